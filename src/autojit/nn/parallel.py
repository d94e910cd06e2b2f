"""torch.nn.parallel: modules on several devices at once. On the CPU alone there is one device."""

from __future__ import annotations

from autojit.nn.data_parallel import DataParallel

__all__ = ["DataParallel"]
