"""A module called with other tensors; an older path of ``autojit.func.functional_call``."""

from __future__ import annotations

from typing import Any

from autojit.core.user_warnings import warn
from autojit.nn.functional_call import functional_call as call_of_func
from autojit.nn.module import Module
from autojit.tensor import Tensor

__all__ = ["functional_call"]


def functional_call(
    module: Module,
    parameters_and_buffers: dict[str, Tensor],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """``autojit.func.functional_call`` under its older path, with a warning that says so."""
    warn(
        "`torch.nn.utils.stateless.functional_call` is deprecated as of PyTorch 2.0 and will be removed in a future "
        "version of PyTorch. Please use `torch.func.functional_call` instead which is a drop-in replacement.",
        FutureWarning,
    )
    return call_of_func(module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict)
