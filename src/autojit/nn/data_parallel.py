"""DataParallel: a module on several devices at once; on the CPU alone it is the module itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autojit.core.errors import UsageError
from autojit.nn.module import Module


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
