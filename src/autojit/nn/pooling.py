"""Pooling layers, sliding blocks and their inverses; each calls the function of the same name in ``F``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autojit.core.errors import ArgumentError
from autojit.nn import functional as F
from autojit.nn.declared_layer import DeclaredLayer
from autojit.nn.functional.adaptive_pooling import OutputSize
from autojit.nn.functional.windows import Extents, numbers
from autojit.tensor import Tensor

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "Fold", "FractionalMaxPool2d", "FractionalMaxPool3d",
    "LPPool1d", "LPPool2d", "LPPool3d", "MaxPool1d", "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d",
    "MaxUnpool3d", "Unfold",
]  # fmt: skip


class _MaxPool(DeclaredLayer, shows="kernel_size stride padding dilation ceil_mode"):
    """The greatest element of every window."""

    def __init__(
        self,
        kernel_size: Extents,
        stride: Extents | None = None,
        padding: Extents = 0,
        dilation: Extents = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Any:
        pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[self._ndim - 1]
        return pool(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices
        )


class MaxPool1d(_MaxPool, ndim=1):
    """The greatest element of every window. Shapes: ``[(n,) c, length] -> [(n,) c, windows]``; see ``F.max_pool1d``."""


class MaxPool2d(_MaxPool, ndim=2):
    """The greatest element of every window. Shapes: ``[(n,) c, h, w] -> [(n,) c, h', w']``; see ``F.max_pool2d``.

    Example:
        >>> import autojit as aj
        >>> from autojit import nn
        >>> nn.MaxPool2d(2)(aj.arange(16.0).reshape(1, 4, 4))
        tensor([[[ 5.,  7.],
                 [13., 15.]]])
    """


class MaxPool3d(_MaxPool, ndim=3):
    """The greatest element of every window of a volume; see ``F.max_pool3d``."""


class _MaxUnpool(DeclaredLayer, shows="kernel_size stride padding"):
    """What ``MaxPool`` kept, back at its place."""

    def __init__(self, kernel_size: Extents, stride: Extents | None = None, padding: Extents = 0) -> None:
        super().__init__()
        self.kernel_size = self._numbers(kernel_size)
        self.stride = self.kernel_size if stride is None else self._numbers(stride)
        self.padding = self._numbers(padding)

    def _numbers(self, value: Extents) -> tuple[int, ...]:
        return numbers(value, self._ndim, type(self).__name__, "kernel_size, stride, padding")

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        unpool = (F.max_unpool1d, F.max_unpool2d, F.max_unpool3d)[self._ndim - 1]
        return unpool(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool1d(_MaxUnpool, ndim=1):
    """The inverse of ``MaxPool1d``; see ``F.max_unpool1d``."""


class MaxUnpool2d(_MaxUnpool, ndim=2):
    """The inverse of ``MaxPool2d``; see ``F.max_unpool2d``."""


class MaxUnpool3d(_MaxUnpool, ndim=3):
    """The inverse of ``MaxPool3d``; see ``F.max_unpool3d``."""


class AvgPool1d(DeclaredLayer, shows="kernel_size stride padding"):
    """The mean of every window. Shapes: ``f[(n,) c, length] -> f[(n,) c, windows]``; see ``F.avg_pool1d``."""

    def __init__(
        self,
        kernel_size: Extents,
        stride: Extents | None = None,
        padding: Extents = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = numbers(kernel_size, 1, "AvgPool1d", "kernel_size")
        self.stride = self.kernel_size if stride is None else numbers(stride, 1, "AvgPool1d", "stride")
        self.padding = numbers(padding, 1, "AvgPool1d", "padding")
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class _AvgPool(DeclaredLayer, shows="kernel_size stride padding"):
    """The mean of every window of an image or a volume."""

    def __init__(
        self,
        kernel_size: Extents,
        stride: Extents | None = None,
        padding: Extents = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        pool = F.avg_pool2d if self._ndim == 2 else F.avg_pool3d
        return pool(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad,
            self.divisor_override,
        )  # fmt: skip


class AvgPool2d(_AvgPool, ndim=2):
    """The mean of every window. Shapes: ``f[(n,) c, h, w] -> f[(n,) c, h', w']``; see ``F.avg_pool2d``."""


class AvgPool3d(_AvgPool, ndim=3):
    """The mean of every window of a volume; see ``F.avg_pool3d``."""


class _LPPool(DeclaredLayer, shows="norm_type kernel_size stride ceil_mode"):
    """The root of the sum of powers of every window."""

    def __init__(
        self, norm_type: float, kernel_size: Extents, stride: Extents | None = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        pool = (F.lp_pool1d, F.lp_pool2d, F.lp_pool3d)[self._ndim - 1]
        return pool(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool1d(_LPPool, ndim=1):
    """Norms of windows; see ``F.lp_pool1d``."""


class LPPool2d(_LPPool, ndim=2):
    """Norms of windows of an image; see ``F.lp_pool2d``."""


class LPPool3d(_LPPool, ndim=3):
    """Norms of windows of a volume; see ``F.lp_pool3d``."""


class _AdaptiveAvgPool(DeclaredLayer, shows="output_size"):
    """Means of as many even windows as asked for."""

    def __init__(self, output_size: OutputSize) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        pool = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)[self._ndim - 1]
        return pool(input, self.output_size)


class AdaptiveAvgPool1d(_AdaptiveAvgPool, ndim=1):
    """Means of even windows; see ``F.adaptive_avg_pool1d``."""


class AdaptiveAvgPool2d(_AdaptiveAvgPool, ndim=2):
    """Means of even windows of an image; see ``F.adaptive_avg_pool2d``.

    Example:
        >>> import autojit as aj
        >>> from autojit import nn
        >>> nn.AdaptiveAvgPool2d((1, 1))(aj.ones(2, 3, 7, 5)).shape
        autojit.Size([2, 3, 1, 1])
    """


class AdaptiveAvgPool3d(_AdaptiveAvgPool, ndim=3):
    """Means of even windows of a volume; see ``F.adaptive_avg_pool3d``."""


class _AdaptiveMaxPool(DeclaredLayer, shows="output_size"):
    """The greatest elements of as many even windows as asked for."""

    def __init__(self, output_size: OutputSize, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Any:
        pool = (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d)[self._ndim - 1]
        return pool(input, self.output_size, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMaxPool, ndim=1):
    """Maxima of even windows; see ``F.adaptive_max_pool1d``."""


class AdaptiveMaxPool2d(_AdaptiveMaxPool, ndim=2):
    """Maxima of even windows of an image; see ``F.adaptive_max_pool2d``."""


class AdaptiveMaxPool3d(_AdaptiveMaxPool, ndim=3):
    """Maxima of even windows of a volume; see ``F.adaptive_max_pool3d``."""


class Unfold(DeclaredLayer, shows="kernel_size dilation padding stride"):
    """Every sliding block of an image as a column; see ``F.unfold``."""

    def __init__(self, kernel_size: Extents, dilation: Extents = 1, padding: Extents = 0, stride: Extents = 1) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)


class Fold(DeclaredLayer, shows="output_size kernel_size dilation padding stride"):
    """Columns added up where their blocks are in an image; see ``F.fold``."""

    def __init__(
        self,
        output_size: Extents,
        kernel_size: Extents,
        dilation: Extents = 1,
        padding: Extents = 0,
        stride: Extents = 1,
    ) -> None:
        super().__init__()
        self.output_size = output_size
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)


class _FractionalMaxPool(DeclaredLayer):
    _random_samples: Tensor | None

    def __init__(
        self,
        kernel_size: Extents,
        output_size: Extents | None = None,
        output_ratio: float | Sequence[float] | None = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        self.kernel_size = _each(kernel_size, self._ndim)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else _each(output_size, self._ndim)
        self.output_ratio = None if output_ratio is None else _each(output_ratio, self._ndim)
        if output_size is None and output_ratio is None:
            raise ArgumentError(f"{name} requires specifying either an output size, or a pooling ratio")
        if output_size is not None and output_ratio is not None:
            raise ArgumentError("only one of output_size and output_ratio may be specified")
        if self.output_ratio is not None and not all(0 < ratio < 1 for ratio in self.output_ratio):
            raise ArgumentError(f"output_ratio must be between 0 and 1 (got {output_ratio})")

    def forward(self, input: Tensor) -> Any:
        pool = F.fractional_max_pool2d if self._ndim == 2 else F.fractional_max_pool3d
        return pool(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples
        )


def _each(value: Any, ndim: int) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, Sequence) else (value,) * ndim


class FractionalMaxPool2d(_FractionalMaxPool, ndim=2):
    """Maxima over windows of an image at drawn places; see ``F.fractional_max_pool2d``.

    Example:
        >>> import autojit as aj
        >>> aj.nn.FractionalMaxPool2d(2, output_ratio=0.7)(aj.ones(1, 9, 9)).shape
        autojit.Size([1, 6, 6])
    """


class FractionalMaxPool3d(_FractionalMaxPool, ndim=3):
    """Maxima over windows of a volume at drawn places; see ``F.fractional_max_pool3d``."""
