"""Moving and casting what a Module keeps: ``module.to(...)`` and its like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import autojit as aj
from autojit.nn.parameter import Parameter
from autojit.tensor import Tensor


def convert_parameter(parameter: Parameter, fn: Callable[[Tensor], Tensor]) -> None:
    """Replace the data of a parameter and its gradient by ``fn`` of them; the parameter object stays."""
    data = parameter.data
    converted = fn(data)
    if converted is data:
        return
    grad = parameter.grad
    parameter.grad = None  # a gradient of the old dtype would not fit the new data
    parameter.data = converted
    if grad is not None:
        parameter.grad = fn(grad.detach()).requires_grad_(grad.requires_grad)


def parse_to(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Device and dtype (None: unchanged) of the arguments of ``to``."""
    device, dtype = kwargs.get("device"), kwargs.get("dtype")
    for arg in (*args, *([kwargs["tensor"]] if "tensor" in kwargs else [])):
        if isinstance(arg, Tensor):
            device, dtype = arg.device, arg.dtype
        elif isinstance(arg, aj.dtype):
            dtype = arg
        elif arg is not None and not isinstance(arg, bool):
            device = arg
    return (None if device is None else aj.device(device)), dtype
