"""What all transforms do with their arguments: dtypes, axes, sizes, the normalisation mode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autojit import ops
from autojit.core.dtypes import bfloat16, float16, float32
from autojit.core.errors import AxisError, DTypeError, ShapeError, UsageError
from autojit.core.sizes import as_extent
from autojit.dispatch.promotion import cast, floating
from autojit.functions.autocast import converted
from autojit.ops.base import normalize_axis
from autojit.tensor import Tensor
from autojit.tensor.state import state
from autojit.tensor.tensor import type_of

OPPOSITE = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def norm_of(norm: str | None) -> str:
    """The normalisation mode; "backward" by default."""
    if norm is None:
        return "backward"
    if norm not in OPPOSITE:
        raise UsageError(f'Invalid normalization mode: "{norm}"', fix='pass "forward", "backward" or "ortho"')
    return norm


def complex_operand(x: Any, name: str) -> Tensor:
    """The operand as a complex tensor."""
    t = _transformable(x, name)
    dtype = type_of(t).dtype
    return t if dtype.is_complex else cast(t, dtype.to_complex())


def real_operand(x: Any, name: str, what: str = "a real input tensor") -> Tensor:
    """The operand as a floating point tensor; complex ones are refused."""
    t = _transformable(x, name)
    dtype = type_of(t).dtype
    if dtype.is_complex:
        said = f"{name} expects {what}, but got {dtype.scalar_type}"
        raise DTypeError(said, {"input": t}, f"take the real part: {name}(x.real)")
    return t


def _transformable(x: Any, name: str) -> Tensor:
    if state.autocast is not None:
        x = converted(x, float32)
    if not isinstance(x, Tensor):
        raise TypeError(f"fft_{name}(): argument 'input' (position 1) must be Tensor, not {type(x).__name__}")
    t = floating(x, name)
    if type_of(t).dtype in (float16, bfloat16):
        raise DTypeError(
            f"{name}: Unsupported dtype {type_of(t).dtype.scalar_type}", {"input": x}, "convert it: x.float()"
        )
    return t


def axis_of(x: Tensor, dim: int) -> int:
    """The axis counted from the end."""
    ndim = type_of(x).ndim
    if ndim == 0:
        raise AxisError(f"Dimension specified as {dim} but tensor has no dimensions", {"input": x})
    return normalize_axis(dim, ndim, "fft") - ndim


def size_of(name: str, n: Any) -> int:
    """A number of points, as an int."""
    if isinstance(n, bool) or not hasattr(type(n), "__index__"):
        raise TypeError(f"fft_{name}(): argument 'n' must be int, not {type(n).__name__}")
    return int(n.__index__())


def require_points(n: int) -> int:
    """``n`` if it is at least 1."""
    if n < 1:
        raise ShapeError(f"Invalid number of data points ({n}) specified", fix="pass at least one point")
    return n


def resized(x: Tensor, sizes: Sequence[int], axes: Sequence[int]) -> Tensor:
    """``x`` cut or padded with zeros at the end of axes."""
    shape = type_of(x).shape
    ndim = len(shape)
    stops: list[int | None] = [None] * ndim
    high = [0] * ndim
    for n, axis in zip(sizes, axes, strict=True):
        if n < shape[axis]:
            stops[axis] = n
        else:
            high[axis] = n - shape[axis]
    cut = ops.strided_slice(x, [0] * ndim, stops)
    return ops.pad(cut, [0] * ndim, high)


def axes_and_sizes(x: Tensor, s: Any, dim: Any) -> tuple[tuple[int, ...], list[int]]:
    """The axes, counted from the end, and per axis the number of points; -1 in ``s`` keeps the extent."""
    shape = type_of(x).shape
    ndim = len(shape)
    sizes = None if s is None else [as_extent(n) for n in (s if isinstance(s, Sequence) else [s])]
    given = None if dim is None else tuple(dim if isinstance(dim, Sequence) else [dim])
    if given is not None:
        axes = tuple(normalize_axis(axis, ndim, "fft") - ndim for axis in given)
        if len(set(axes)) != len(axes):
            raise ShapeError("FFT dims must be unique", {"dim": given})
        if sizes is not None and len(sizes) != len(axes):
            raise ShapeError("When given, dim and shape arguments must have the same length", {"s": s, "dim": dim})
    elif sizes is not None:
        if len(sizes) > ndim:
            raise ShapeError(f"Got shape with {len(sizes)} values but input tensor only has {ndim} dimensions.")
        axes = tuple(range(-len(sizes), 0))
    else:
        axes = tuple(range(-ndim, 0))
    if sizes is None:
        sizes = [-1] * len(axes)
    return axes, [shape[axis] if n == -1 else require_points(n) for n, axis in zip(sizes, axes, strict=True)]
