"""Convolution layers and their transposes over one, two and three spatial axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from autojit.core.dtypes import DType
from autojit.core.errors import ArgumentError
from autojit.nn import functional as F
from autojit.nn import init
from autojit.nn.declared_layer import DeclaredLayer
from autojit.nn.functional.convolution import extents
from autojit.nn.functional.windows import Extents
from autojit.nn.parameter import Parameter
from autojit.tensor import Tensor

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]

_MODES = ("zeros", "reflect", "replicate", "circular")


class _Convolution(DeclaredLayer):
    """What all six layers share. Weights start uniform in +-1/sqrt(inputs of an output)."""

    _is_transposed: ClassVar[bool] = False
    weight: Parameter
    bias: Parameter | None

    def _build(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Extents,
        stride: Extents,
        padding: Extents | str,
        dilation: Extents,
        output_padding: Extents,
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any,
        dtype: DType | None,
    ) -> None:
        super().__init__()
        _check(in_channels, out_channels, groups, padding, stride, padding_mode)
        ndim = self._ndim
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = extents(kernel_size, ndim, "kernel_size")
        self.stride = extents(stride, ndim, "stride")
        self.padding = padding if isinstance(padding, str) else extents(padding, ndim, "padding")
        self.dilation = extents(dilation, ndim, "dilation")
        self.output_padding = extents(output_padding, ndim, "output_padding")
        self.groups = groups
        self.padding_mode = padding_mode
        self.transposed = self._is_transposed
        self._reversed_padding_repeated_twice = self._widths()
        first, second = (in_channels, out_channels) if self._is_transposed else (out_channels, in_channels)
        shape = (first, second // groups, *self.kernel_size)
        self._add_parameters(device, dtype, weight=shape, bias=(out_channels,) if bias else None)
        self.reset_parameters()

    def _widths(self) -> list[int]:
        """Padding as ``F.pad`` takes it: last axis first, before and after."""
        found: list[int] = []
        for axis in reversed(range(self._ndim)):
            if not isinstance(self.padding, str):
                found += [self.padding[axis]] * 2
                continue
            total = self.dilation[axis] * (self.kernel_size[axis] - 1) if self.padding == "same" else 0
            found += [total // 2, total - total // 2]
        return found

    def reset_parameters(self) -> None:
        """Draw the parameters again."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is None:
            return
        fan_in = math.prod(self.weight.shape[1:])
        if fan_in:
            bound = 1 / math.sqrt(fan_in)
            init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        none, ones = (0,) * self._ndim, (1,) * self._ndim
        parts = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"]
        parts += self._unlike(padding=none, dilation=ones, output_padding=none, groups=1)
        parts += ["bias=False"] if self.bias is None else []
        return ", ".join(parts + self._unlike(padding_mode="zeros"))


def _check(
    in_channels: int, out_channels: int, groups: int, padding: Extents | str, stride: Extents, padding_mode: str
) -> None:
    if groups <= 0:
        raise ArgumentError("groups must be a positive integer")
    if in_channels % groups:
        raise ArgumentError("in_channels must be divisible by groups")
    if out_channels % groups:
        raise ArgumentError("out_channels must be divisible by groups")
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise ArgumentError(f"Invalid padding string '{padding}', should be one of {{'same', 'valid'}}")
        steps = stride if isinstance(stride, Sequence) else (stride,)
        if padding == "same" and any(step != 1 for step in steps):
            raise ArgumentError("padding='same' is not supported for strided convolutions")
    if padding_mode not in _MODES:
        raise ArgumentError(f"padding_mode must be one of {set(_MODES)}, but got padding_mode='{padding_mode}'")


class _Forward(_Convolution):
    """The three plain layers."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Extents,
        stride: Extents = 1,
        padding: Extents | str = 0,
        dilation: Extents = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        self._build(
            in_channels, out_channels, kernel_size, stride, padding, dilation, 0, groups, bias, padding_mode, device,
            dtype,
        )  # fmt: skip

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The convolution with another weight and bias; layers that compute their weight call it."""
        convolve = (F.conv1d, F.conv2d, F.conv3d)[self._ndim - 1]
        padding: Extents | str = self.padding
        if self.padding_mode != "zeros":
            input, padding = F.pad(input, self._reversed_padding_repeated_twice, self.padding_mode), 0
        return convolve(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class Conv1d(_Forward, ndim=1):
    """A bank of kernels over signals. Shapes: ``f[(n,) c, length] -> f[(n,) o, places]``; see ``F.conv1d``.

    Example:
        >>> from autojit import nn
        >>> nn.Conv1d(4, 6, 3, padding=1)
        Conv1d(4, 6, kernel_size=(3,), stride=(1,), padding=(1,))
    """


class Conv2d(_Forward, ndim=2):
    """A bank of kernels over images. Shapes: ``f[(n,) c, h, w] -> f[(n,) o, h', w']``; see ``F.conv2d``.

    Example:
        >>> import autojit as aj
        >>> from autojit import nn
        >>> nn.Conv2d(3, 8, 3, stride=2)(aj.ones(5, 3, 9, 9)).shape
        autojit.Size([5, 8, 4, 4])
    """


class Conv3d(_Forward, ndim=3):
    """A bank of kernels over volumes. Shapes: ``f[(n,) c, d, h, w] -> f[(n,) o, d', h', w']``; see ``F.conv3d``."""


class _Transposed(_Convolution):
    """The three transposed layers."""

    _is_transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Extents,
        stride: Extents = 1,
        padding: Extents = 0,
        output_padding: Extents = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Extents = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        if padding_mode != "zeros":
            raise ArgumentError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        self._build(
            in_channels, out_channels, kernel_size, stride, padding, dilation, output_padding, groups, bias,
            padding_mode, device, dtype,
        )  # fmt: skip

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        extra = self.output_padding if output_size is None else self._extra(input, list(output_size))
        convolve = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[self._ndim - 1]
        padding = self.padding
        assert not isinstance(padding, str)
        return convolve(input, self.weight, self.bias, self.stride, padding, extra, self.groups, self.dilation)

    def _extra(self, input: Tensor, wanted: list[int]) -> tuple[int, ...]:
        """The output padding that makes the result as large as asked for."""
        ndim = self._ndim
        if len(wanted) == input.ndim:
            wanted = wanted[-ndim:]
        if len(wanted) != ndim:
            raise ArgumentError(
                f"{type(self).__name__}: for {input.ndim}D input, output_size must have {ndim} or {input.ndim} "
                f"elements (got {len(wanted)})"
            )
        assert not isinstance(self.padding, str)
        window = zip(input.shape[-ndim:], self.stride, self.padding, self.dilation, self.kernel_size, strict=True)
        least = [(n - 1) * s - 2 * p + d * (k - 1) + 1 for n, s, p, d, k in window]
        most = [n + s - 1 for n, s in zip(least, self.stride, strict=True)]
        if any(not low <= n <= high for low, n, high in zip(least, wanted, most, strict=True)):
            raise ArgumentError(
                f"requested an output size of {wanted}, but valid sizes range from {least} to {most} "
                f"(for an input of {list(input.shape[2:])})"
            )
        return tuple(n - low for n, low in zip(wanted, least, strict=True))


class ConvTranspose1d(_Transposed, ndim=1):
    """The transpose of ``Conv1d``. Shapes: ``f[(n,) c, length] -> f[(n,) o, length']``; see ``F.conv_transpose1d``."""


class ConvTranspose2d(_Transposed, ndim=2):
    """The transpose of ``Conv2d``. Shapes: ``f[(n,) c, h, w] -> f[(n,) o, h', w']``; see ``F.conv_transpose2d``.

    Example:
        >>> import autojit as aj
        >>> from autojit import nn
        >>> nn.ConvTranspose2d(3, 2, 3, stride=2)(aj.ones(1, 3, 4, 4), output_size=(10, 10)).shape
        autojit.Size([1, 2, 10, 10])
    """


class ConvTranspose3d(_Transposed, ndim=3):
    """The transpose of ``Conv3d``; see ``F.conv_transpose3d``."""
