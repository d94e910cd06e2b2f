"""``functorch.experimental``: names that later moved to ``torch.func``."""

from __future__ import annotations

from autojit.func import functionalize, hessian, jacfwd, jvp, replace_all_batch_norm_modules_

__all__ = ["functionalize", "hessian", "jacfwd", "jvp", "replace_all_batch_norm_modules_"]
