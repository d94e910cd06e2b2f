"""Making a module without drawing its parameters."""

from __future__ import annotations

import inspect
from typing import Any

from autojit.core.device import META, default_device
from autojit.core.errors import UsageError
from autojit.nn.module import Module


def skip_init(module_cls: Any, *args: Any, **kwargs: Any) -> Module:
    """A module whose parameters are to be overwritten: nothing is computed for them, and their values are undefined.

    Args:
        args, kwargs: those of the class, which must have an argument ``device``.

    Raises:
        RuntimeError: it is not a Module class, or has no argument ``device``.

    Example:
        >>> from autojit import nn
        >>> nn.utils.skip_init(nn.Linear, 5, 1)
        Linear(in_features=5, out_features=1, bias=True)
    """
    if not isinstance(module_cls, type) or not issubclass(module_cls, Module):
        raise UsageError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise UsageError("Module must support a 'device' arg to skip initialization")
    device = kwargs.pop("device", None)
    made: Module = module_cls(*args, device=META, **kwargs)
    return made.to_empty(device=default_device() if device is None else device)
