"""Fake quantisation: floats rounded to what few bits can tell, with the gradient of the identity."""

from __future__ import annotations

from autojit.core.dtypes import float32
from autojit.core.errors import ShapeError, UsageError
from autojit.dispatch.declared import declared
from autojit.functions.comparison import where
from autojit.functions.elementwise import round as round_to_even
from autojit.functions.factories import as_tensor
from autojit.functions.refused_dtypes import refuses
from autojit.functions.views import view
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of


@declared(method=False)
@refuses("bool int complex")
def fake_quantize_per_tensor_affine(
    input: Tensor, scale: float | Tensor, zero_point: int | Tensor, quant_min: int, quant_max: int
) -> Tensor:
    """The multiples of ``scale`` that are nearest to the elements, between those of ``quant_min`` and ``quant_max``.

    ``(clamp(round(x / scale) + zero_point, quant_min, quant_max) - zero_point) * scale``. The gradient goes through
    unchanged where nothing was cut off (straight-through estimator), and is 0 elsewhere.

    Raises:
        RuntimeError: ``quant_min`` is greater than ``quant_max``, or a number ``zero_point`` is not between them.

    Example:
        >>> import autojit as aj
        >>> aj.fake_quantize_per_tensor_affine(aj.tensor([0.12, 0.98, -1.0]), 0.1, 0, 0, 255)
        tensor([0.1000, 1.0000, 0.0000])

    Source: Jacob et al., CVPR 2018.
    """
    _check_range("fake_quantize_per_tensor_affine", quant_min, quant_max)
    if not isinstance(zero_point, Tensor) and not quant_min <= zero_point <= quant_max:
        raise UsageError(
            "`zero_point` must be between `quant_min` and `quant_max`.",
            {"zero_point": zero_point, "quant_min": quant_min, "quant_max": quant_max},
        )
    return _quantized(input, scale, zero_point, quant_min, quant_max)


@declared(method=False)
@refuses("bool int complex")
def fake_quantize_per_channel_affine(
    input: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:
    """``fake_quantize_per_tensor_affine`` with a scale and a zero point for each index of ``axis``.

    Shapes: ``f[.., n, ..], f[n], [n] -> f[.., n, ..]``.

    Raises:
        RuntimeError: ``quant_min`` is greater than ``quant_max``, or ``scale`` and ``zero_point`` are not one number
            for each index of ``axis``.

    Example:
        >>> import autojit as aj
        >>> x = aj.tensor([[0.26, 0.26], [3.0, 3.0]])
        >>> aj.fake_quantize_per_channel_affine(x, aj.tensor([0.1, 0.5]), aj.tensor([0, 0], dtype=aj.int32), 1, 0, 5)
        tensor([[0.3000, 0.5000],
                [0.5000, 2.5000]])
    """
    name = "fake_quantize_per_channel_affine"
    _check_range(name, quant_min, quant_max)
    shape = type_of(input).shape
    if not -len(shape) <= axis < len(shape):
        raise ShapeError("`axis` must be between 0 and number of dimensions of input", {"input": input, "axis": axis})
    for role, given in (("scale", scale), ("zero_point", zero_point)):
        if type_of(given).shape != (shape[axis],):
            raise ShapeError(
                f"{name}: {role} needs one number for each index of the axis", {"input": input, role: given}
            )
    along = tuple([-1 if k == axis % len(shape) else 1 for k in range(len(shape))])
    return _quantized(input, view(scale, along), view(zero_point, along), quant_min, quant_max)


def _check_range(name: str, quant_min: int, quant_max: int) -> None:
    if quant_min > quant_max:
        raise UsageError(
            "`quant_min` should be less than or equal to `quant_max`.",
            {"quant_min": quant_min, "quant_max": quant_max},
            f"{name} takes the smaller one first",
        )


def _quantized(x: Tensor, scale: float | Tensor, zero_point: float | Tensor, least: int, most: int) -> Tensor:
    scale = as_tensor(scale, dtype=float32, device=x.device).detach()  # torch's kernels have it as a float32, too
    whole = round_to_even(x.detach() * (1.0 / scale)) + zero_point
    through = where((whole >= least) & (whole <= most), x, 0.0)
    grid = (whole.clamp(least, most) - zero_point).to(float32) * scale
    return grid.to(x.dtype) + (through - through.detach())
