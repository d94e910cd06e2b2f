"""Functions of integers and of the digits of floats: common factors, mantissa and exponent, positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from autojit import ops
from autojit.core.dtypes import bool_, float32, float64, int32, int64
from autojit.core.errors import ArgumentError, ShapeError, UnsupportedError, UsageError
from autojit.core.wrapping import named
from autojit.dispatch.declared import declared
from autojit.dispatch.promotion import cast, refuse_numbers, together
from autojit.functions.comparison import bitwise_and, bitwise_left_shift, bitwise_right_shift, where
from autojit.functions.factories import arange, full
from autojit.functions.order import cumsum
from autojit.functions.shape import stack
from autojit.functions.views import view
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of


class Frexp(NamedTuple):
    """``mantissa * 2 ** exponent``, the mantissa from a half up to one in size."""

    mantissa: Tensor
    exponent: Tensor


def _of_integers(
    name: str, compute: Callable[[Tensor, Tensor], Tensor], what: str, result: str
) -> Callable[[Tensor, Tensor], Tensor]:
    def function(input: Tensor, other: Tensor) -> Tensor:
        refuse_numbers(name, input, other)
        x, y = together(input, other, name)
        if type_of(x).dtype.category != 1:
            raise UnsupportedError(f'"{name}_cpu" not implemented for {type_of(x).dtype}', {"input": x, "other": y})
        return compute(x, y)

    told = f"""The {what} of integers; operands broadcast and are promoted.

    Raises:
        NotImplementedError: the operands are not integers.

    Example:
        >>> import autojit as aj
        >>> aj.{name}(aj.tensor([12, -6, 0]), aj.tensor(8))
        tensor([{result}])
    """
    return declared(in_place="values", numbers="none", out=True)(named(function, name, told))


gcd = _of_integers("gcd", ops.gcd, "greatest common divisor", "4, 2, 8")
lcm = _of_integers("lcm", ops.lcm, "least common multiple", "24, 24,  0")
_LAYOUT = {  # of a dtype: the integer of its size, the bits of the fraction, the exponent of one
    float32: (int32, 23, 127),
    float64: (int64, 52, 1023),
}
_LIFT = 2.0**64  # brings the smallest numbers into the normal range


@declared(out=True)
def frexp(input: Tensor) -> Frexp:
    """The mantissa, from a half up to one in size, and the int32 exponent of two; 0, inf and NaN keep exponent 0.

    Differentiable in the mantissa: the exponent is constant.

    Raises:
        RuntimeError: the operand is not a float.

    Example:
        >>> import autojit as aj
        >>> aj.frexp(aj.tensor([8.0, -3.0])).mantissa
        tensor([ 0.5000, -0.7500])
    """
    spec = type_of(input)
    if spec.dtype.kind != "float":
        raise UsageError("torch.frexp() only supports floating-point dtypes", {"input": input}, "convert: x.float()")
    x = input if spec.dtype in _LAYOUT else cast(input, float32)
    exponent = _exponent(x.detach())
    half = exponent // 2  # two steps, as one power of two may be out of range
    mantissa = x * _power_of_two(-half, x) * _power_of_two(half - exponent, x)
    return Frexp(cast(mantissa, spec.dtype), cast(exponent, int32))


def _exponent(x: Tensor) -> Tensor:
    whole, fraction, bias = _LAYOUT[type_of(x).dtype]
    low = x.abs() < 2.0 ** (2 - bias)
    lifted = where(low, x * _LIFT, x)
    field = bitwise_and(bitwise_right_shift(view(lifted, whole), fraction), 2 * bias + 1)
    found = field - (bias - 1) - where(low, 64, 0)
    plain = x.ne(0) & field.ne(2 * bias + 1)
    return cast(where(plain, found, 0), whole)


def _power_of_two(exponent: Tensor, like: Tensor) -> Tensor:
    _, fraction, bias = _LAYOUT[type_of(like).dtype]
    return view(bitwise_left_shift(exponent + bias, fraction), type_of(like).dtype)


@declared()
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """The positions of the first ``size`` elements that are not zero, as rows: ``[..] -> i64[size, rank]``.

    Rows beyond their number hold ``fill_value``. The shape does not depend on the elements.

    Raises:
        RuntimeError: ``size`` is negative.

    Example:
        >>> import autojit as aj
        >>> aj.nonzero_static(aj.tensor([0, 3, 4]), size=3)
        tensor([[ 1],
                [ 2],
                [-1]])
    """
    if size < 0:
        raise UsageError("nonzero_static: 'size' must be an non-negative integer", {"size": size})
    spec = type_of(input)
    if spec.ndim == 0 or spec.size == 0:
        return full((size, spec.ndim), fill_value, dtype=int64, device=spec.device)
    found = (input if spec.dtype is bool_ else input.ne(0)).reshape(-1)
    rank = cumsum(cast(found, int64), 0) - 1
    place = where(found & (rank < size), rank, size)
    flat = place.new_full((size + 1,), -1).scatter(0, place, arange(spec.size, device=spec.device))[:size]
    rows = stack(list(unravel_index(where(flat < 0, 0, flat), spec.shape)), 1)
    return where(flat.unsqueeze(1) < 0, fill_value, rows)


@declared(method=False)
def unravel_index(indices: Tensor, shape: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Flat positions as one tensor of positions per axis of ``shape``; they wrap around.

    Raises:
        TypeError: ``indices`` are not integers, or ``shape`` is not a list of extents.
        ValueError: an extent is negative.

    Example:
        >>> import autojit as aj
        >>> aj.unravel_index(aj.tensor([3, 5]), (2, 3))
        (tensor([1, 1]), tensor([0, 2]))
    """
    dtype = type_of(indices).dtype
    if dtype.category != 1:
        raise TypeError(f"expected 'indices' to be integer dtype, but got {dtype}")
    if not isinstance(shape, int | Sequence):
        raise TypeError(f"expected 'shape' to be int or sequence of ints, but got {type(shape)}")
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    if any(not isinstance(n, int) for n in extents):
        kinds: list[type] = [type(n) for n in extents]
        given = next(kind for kind in kinds if not issubclass(kind, int))
        raise TypeError(f"expected 'shape' sequence to only contain ints, but got {given}")
    if any(n < 0 for n in extents):
        raise ArgumentError(f"'shape' cannot have negative values, but got {extents}")
    found: list[Tensor] = []
    indices = cast(indices, int64)
    step = 1
    for extent in reversed(extents):
        if extent == 0:
            raise ShapeError("unravel_index: an axis of shape has no positions", {"shape": extents})
        found.append(indices.div(step, rounding_mode="floor") % extent)
        step *= extent
    return tuple(reversed(found))
