"""DataParallel: a module on several devices at once; on the CPU alone it is the module itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autojit.core.errors import UsageError
from autojit.functions.shape import cat
from autojit.nn.module import Module
from autojit.tensor import Tensor

__all__ = ["DataParallel", "data_parallel", "gather", "scatter"]


class DataParallel(Module):
    """The module under ``.module``, which is given the inputs as they are: there is one device.

    Args:
        device_ids: no device, or None; there are no others than the CPU.

    Raises:
        RuntimeError: a device is named.

    Example:
        >>> import autojit as aj
        >>> model = aj.nn.DataParallel(aj.nn.ReLU())
        >>> model(aj.tensor([-1.0, 1.0]))
        tensor([0., 1.])
    """

    def __init__(
        self, module: Module, device_ids: Sequence[Any] | None = None, output_device: Any = None, dim: int = 0
    ) -> None:
        super().__init__()
        if device_ids:
            raise UsageError("DataParallel: there is no device beside the CPU", {"device_ids": device_ids}, "pass None")
        self.dim = dim
        self.module = module
        self.device_ids: list[Any] = []
        self.output_device = output_device

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)


def data_parallel(
    module: Module,
    inputs: Any,
    device_ids: Sequence[Any] | None = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """``DataParallel(module, device_ids)`` called with these inputs, a tuple or a single one.

    Raises:
        RuntimeError: a device is named.

    Example:
        >>> import autojit as aj
        >>> aj.nn.parallel.data_parallel(aj.nn.ReLU(), aj.tensor([-1.0, 1.0]))
        tensor([0., 1.])
    """
    arguments = inputs if isinstance(inputs, tuple) else (inputs,)
    return DataParallel(module, device_ids, output_device, dim)(*arguments, **(module_kwargs or {}))


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> Any:
    """A tensor in parts along an axis, one on each device; of lists, tuples and dicts, one of parts for each device.

    There are fewer parts where the axis is shorter than the devices are many; what is no tensor goes to each.

    Example:
        >>> import autojit as aj
        >>> aj.nn.parallel.scatter({"x": aj.arange(3), "scale": 2.0}, ["cpu", "cpu"])
        [{'x': tensor([0, 1]), 'scale': 2.0}, {'x': tensor([2]), 'scale': 2.0}]
    """
    if isinstance(inputs, Tensor):
        parts = inputs.chunk(len(target_gpus), dim)
        return tuple(part.to(device) for part, device in zip(parts, target_gpus, strict=False))
    if isinstance(inputs, list | tuple) and inputs:
        made = zip(*(scatter(each, target_gpus, dim) for each in inputs), strict=False)
        return [type(inputs)(each) if type(inputs) in (list, tuple) else type(inputs)(*each) for each in made]
    if isinstance(inputs, dict) and inputs:
        columns = (scatter(each, target_gpus, dim) for each in inputs.values())
        return [type(inputs)(zip(inputs, each, strict=True)) for each in zip(*columns, strict=False)]
    return [inputs for _ in target_gpus]


def gather(outputs: Sequence[Any], target_device: Any, dim: int = 0) -> Any:
    """The parts that `scatter` makes as one again, on a device.

    Example:
        >>> import autojit as aj
        >>> aj.nn.parallel.gather([(aj.ones(1), None), (aj.zeros(2), None)], "cpu")
        (tensor([1., 0., 0.]), None)
    """
    first = outputs[0]
    if isinstance(first, Tensor):
        parts = [part.to(target_device).reshape(1) if part.ndim == 0 else part.to(target_device) for part in outputs]
        return cat(parts, dim)
    if isinstance(first, dict):
        return type(first)((key, gather([each[key] for each in outputs], target_device, dim)) for key in first)
    if isinstance(first, list | tuple):
        made = [gather(each, target_device, dim) for each in zip(*outputs, strict=True)]
        return type(first)(made) if type(first) in (list, tuple) else type(first)(*made)
    return first
