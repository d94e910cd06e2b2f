"""Functions composed of others: angles, products of many operands, distances, integrals, statistics of rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations as pairs_of
from itertools import combinations_with_replacement as pairs_with_repetition
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from autojit import ops
from autojit.core.device import DeviceLike
from autojit.core.dtypes import HALVES, DType, bool_, float32, int64
from autojit.core.errors import ArgumentError, DTypeError, UsageError
from autojit.core.number_ranges import in_range
from autojit.core.sizes import agree, is_symbolic, seems_equal
from autojit.core.wrapping import named
from autojit.dispatch.composite_nodes import as_float
from autojit.dispatch.declared import EXACT_OUT, declared
from autojit.dispatch.kernels import in_one_pass, in_one_step
from autojit.dispatch.on_device import placed
from autojit.dispatch.promotion import Number, Operand, all_together, as_operand, cast, floating, together
from autojit.functions.autocast import in_full_precision, in_full_precision_on_devices, in_lower_precision
from autojit.functions.comparison import eq, isfinite, isnan, le, logical_and, logical_or, where
from autojit.functions.elementwise import abs, add, clone, div, imag, mul, real, sub, times
from autojit.functions.factories import finish, zeros
from autojit.functions.index_functions import index_select
from autojit.functions.own_memory import no_view_of_parts, own_memory
from autojit.functions.products import bmm, matmul
from autojit.functions.reduction import norm
from autojit.functions.refused_dtypes import refuses
from autojit.functions.shape import Tensors, cat, diag_embed, each, meshgrid, reshape, stack
from autojit.functions.special import lgamma
from autojit.history.lasting import with_lasting_constants
from autojit.history.op_node import rename_node
from autojit.ops.base import normalize_axis
from autojit.ops.matmul import require_base
from autojit.tensor.of_arrays import constant
from autojit.tensor.tensor import Tensor, type_of, wrap

if TYPE_CHECKING:
    from numpy.typing import NDArray


@declared(in_place="values", out=EXACT_OUT, lists=True)
def frac(input: Operand) -> Tensor:
    """What is left of a number without its whole part."""
    x = as_operand(input, "frac")
    if type_of(x).dtype.category < 2:
        raise UsageError(f'"frac" not implemented for {type_of(x).dtype}')
    return in_one_pass("fraction", (), x, node="FracBackward0", keeps=False)


@declared(in_place="values", out=True, lists=True)
@refuses("int")
def lerp(input: Tensor, end: Tensor, weight: Tensor | Number) -> Tensor:
    """``input + weight * (end - input)``."""
    if _all_floats(input, end):
        if isinstance(weight, int | float):
            return in_one_pass("lerp", (weight,), input, end, node="LerpBackward0", keeps=False)
        if _all_floats(input, weight):
            return in_one_pass("lerp", (), input, end, weight, node="LerpBackward1")
    if type_of(input).dtype is not type_of(end).dtype:
        raise DTypeError(f"expected dtype {type_of(input).dtype} for `end` but got dtype {type_of(end).dtype}")
    weight = in_range(weight, type_of(input).dtype) if isinstance(weight, complex) else weight
    found: Tensor = ops.lerp(input, end, weight)
    return found


@declared(in_place="values", out=True, lists=True)
def addcmul(input: Operand, tensor1: Operand, tensor2: Operand, *, value: Number = 1) -> Tensor:
    """``input + value * tensor1 * tensor2``."""
    if _all_floats(input, tensor1, tensor2) and isinstance(value, int | float):
        return in_one_pass("addcmul", (value,), input, tensor1, tensor2, node="AddcmulBackward0")
    base, first, second = all_together([input, tensor1, tensor2], "addcmul")
    if _all_floats(base, first, second) and isinstance(value, int | float):
        return addcmul(base, first, second, value=value)
    return add(base, times(mul(first, second), value))


@declared(in_place="values", out=True, lists=True)
def addcdiv(input: Operand, tensor1: Operand, tensor2: Operand, *, value: Number = 1) -> Tensor:
    """``input + value * tensor1 / tensor2``."""
    if _all_floats(input, tensor1, tensor2) and isinstance(value, int | float):
        return in_one_pass("addcdiv", (value,), input, tensor1, tensor2, node="AddcdivBackward0")
    if all(isinstance(t, Tensor) and type_of(t).dtype.category < 2 for t in (tensor1, tensor2)):
        raise UsageError(
            "Integer division with addcdiv is no longer supported, and addcdiv divides tensor1 by tensor2 truly",
            {"tensor1": tensor1, "tensor2": tensor2},
            "convert to floats: addcdiv(input, tensor1.float(), tensor2)",
        )
    base, first, second = all_together([input, tensor1, tensor2], "addcdiv")
    if _all_floats(base, first, second) and isinstance(value, int | float):
        return addcdiv(base, first, second, value=value)
    quotient = div(first, second)
    return add(base, times(quotient, value))


def _all_floats(*operands: object) -> bool:
    """Whether these are tensors of one floating dtype, which nothing needs to be promoted to."""
    dtypes = {type_of(t).dtype if type(t) is Tensor else bool_ for t in operands}
    return len(dtypes) == 1 and dtypes.pop().is_floating_point


@declared(in_place="values", out=EXACT_OUT, reads_numbers=True)
def nan_to_num(
    input: Tensor, nan: Number | None = None, posinf: Number | None = None, neginf: Number | None = None
) -> Tensor:
    """Replace NaN and infinities by numbers (the dtype's extremes by default)."""
    if type_of(input).dtype.category < 2:
        return clone(input)
    if type_of(input).dtype.is_complex:
        parts = [nan_to_num(part(input), nan, posinf, neginf) for part in (real, imag)]
        return ops.complex(*parts)
    return in_one_pass("nan_to_num", (0.0 if nan is None else nan, posinf, neginf), input)


@declared(in_place="values", out=True)
@refuses("complex")
def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """``log(x / (1 - x))``; ``eps`` clamps to [eps, 1 - eps] first."""
    x = floating(input, "logit")
    if eps is not None:  # unlike `clamp`, whose derivative at a bound is 0; torch looks at the lower end first
        x = where(x < eps, eps, where(x > 1 - eps, 1 - eps, x))
    return in_one_pass("logit", (), x, node="LogitBackward0", eps=None if eps is None else as_float(eps))


@declared(in_place="values", out=True, numpy="radians")
@refuses("complex")
def deg2rad(input: Tensor) -> Tensor:
    """Degrees as radians."""
    return with_lasting_constants(mul(floating(input, "deg2rad"), math.pi / 180), input)


@declared(in_place="values", out=True, numpy="degrees")
@refuses("complex")
def rad2deg(input: Tensor) -> Tensor:
    """Radians as degrees."""
    return with_lasting_constants(mul(floating(input, "rad2deg"), 180 / math.pi), input)


@declared(in_place="values")
@refuses("bool complex")
def mvlgamma(input: Tensor, p: int) -> Tensor:
    """The logarithm of the multivariate gamma function of dimension ``p``."""
    if p < 1:
        raise UsageError(f"p has to be greater than or equal to 1, but got {p}", {"input": input})
    x = floating(input, "mvlgamma")
    total = x * 0 + p * (p - 1) / 4 * math.log(math.pi)
    for k in range(p):
        total = total + lgamma(x - k / 2)
    return total


@declared(in_place="values", out=True)
@in_lower_precision
def addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``beta * input + alpha * sum of batch1 @ batch2``: ``f[b, n, m], f[b, m, p] -> f[n, p]``."""
    if type_of(batch1).dtype in HALVES:
        found: Tensor = ops.addbmm(input, batch1, batch2, beta, alpha)
    else:
        product = bmm(batch1, batch2).sum(0, dtype=type_of(batch1).dtype)
        require_base("addbmm", input, product)
        ignores_input = type(beta) in (int, float) and beta == 0  # NaN, too
        found = times(product, alpha) if ignores_input else add(times(input, beta), times(product, alpha))
    (count, rows, _), columns = type_of(batch1).shape, type_of(batch2).shape[2]
    return rename_node(
        found, "AddbmmBackward0", batch1_sym_argsize_0=count, batch1_sym_argsize_1=rows, batch2_sym_argsize_2=columns
    )


@declared(method=False)
@own_memory
def chain_matmul(*matrices: Tensors) -> Tensor:
    """The product of matrices, from left to right."""
    given: Any = matrices[0] if len(matrices) == 1 and not isinstance(matrices[0], Tensor) else matrices
    if not given or any(type_of(matrix).ndim != 2 for matrix in given):
        raise UsageError("chain_matmul(): Expected one or more matrices", {"ranks": [type_of(x).ndim for x in given]})
    found: Tensor = given[0]
    for matrix in given[1:]:
        found = matmul(found, matrix)
    return found


@declared()
def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """A matrix with all elements on a diagonal."""
    return diag_embed(reshape(input, -1), offset)


@declared(method=False)
def block_diag(*tensors: Tensor) -> Tensor:
    """A matrix with the operands (matrices, vectors as rows, numbers) on its block diagonal."""
    if not tensors:
        return zeros(1, 0)
    blocks = [reshape(x, (1, -1)) if type_of(x).ndim < 2 else x for x in tensors]
    what = "torch.block_diag: Input tensors must have 2 or fewer dimensions."
    width = sum(type_of(x).shape[1] for x in blocks)
    rows, before = [], 0
    for k, x in enumerate(blocks):
        if (ndim := type_of(x).ndim) > 2:
            raise UsageError(f"{what} Input {k} has {ndim} dimensions")
        height, own = type_of(x).shape
        left, right = x.new_zeros((height, before)), x.new_zeros((height, width - before - own))
        rows.append(cat([left, x, right], 1))
        before += own
    return cat(rows, 0)


@declared(method=False)
def cartesian_prod(*tensors: Tensor) -> Tensor:
    """Every combination of elements of vectors, as rows."""
    for vector in tensors:
        _require_vector(vector)
    if len(tensors) == 1:
        return tensors[0]
    return stack([reshape(grid, -1) for grid in meshgrid(*tensors, indexing="ij")], 1)


def _require_vector(x: Tensor) -> None:
    if type_of(x).ndim != 1:
        raise UsageError(f"Expect a 1D vector, but got shape {list(type_of(x).shape)}", {"input": x})


@declared(method=False)
@no_view_of_parts
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """Every combination of ``r`` elements of a vector, as rows; ``with_replacement`` elements may repeat."""
    _require_vector(input)
    if r < 0:
        raise UsageError(f"Expect a non-negative number, but got {r}", {"input": input})
    if r == 0:
        return input.new_empty((0,))
    choose: Any = pairs_with_repetition if with_replacement else pairs_of
    places = np.array(list(choose(range(type_of(input).size), r)), np.int64).reshape(-1, r)
    return reshape(index_select(input, 0, placed(wrap(places.reshape(-1)), type_of(input).device)), places.shape)


@declared(method=False, out=True)
def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """Join along the third axis."""
    if not tensors:
        raise UsageError("dstack expects a non-empty TensorList")
    return cat([atleast_3d(x) for x in tensors], 2)


@overload
def atleast_3d(tensor: Tensor, /) -> Tensor: ...
@overload
def atleast_3d(*tensors: Tensors) -> Any: ...
@declared(method=False)
def atleast_3d(*tensors: Tensors) -> Any:
    """Tensors of rank 3 or more: vectors become ``[1, n, 1]``, matrices ``[n, m, 1]``."""
    return each(_with_three_axes, tensors)


def _with_three_axes(x: Tensor) -> Tensor:
    shape = type_of(x).shape
    return x if len(shape) >= 3 else reshape(x, ((1, 1, 1), (1, *shape, 1), (*shape, 1))[len(shape)])


@declared(out=True)
def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """The vector product along an axis of extent 3, by default the first such axis."""
    x, y = type_of(input), type_of(other)
    if dim is None:
        dim = next((axis for axis, n in enumerate(x.shape) if n == 3), 0)
    if x.ndim != y.ndim:
        raise UsageError("linalg.cross: inputs must have the same number of dimensions.", {"other": other})
    dim = normalize_axis(dim, x.ndim, "linalg.cross")
    if x.shape[dim] != 3 or y.shape[dim] != 3:
        raise UsageError("linalg.cross: inputs dimension must have length 3", {"input": input, "other": other})
    if x.dtype is not y.dtype or x.dtype is bool_:
        raise DTypeError(f"linalg.cross: expected scalar type {x.dtype.scalar_type} but found {y.dtype.scalar_type}")
    return in_one_step("cross", (dim,), input, other, node="LinalgCrossBackward0")


_DISTANCE_MODES = (
    "use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist",
)  # fmt: skip


@declared(method=False)
@refuses("bool int complex")
@in_full_precision
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary") -> Tensor:
    """p-norm distances of all rows: ``f[..., n, d], f[..., m, d] -> f[..., n, m]``."""
    for name, t in (("X1", x1), ("X2", x2)):
        if type_of(t).dtype.kind != "float":
            raise UsageError(f"cdist only supports floating-point dtypes, {name} got: {type_of(t).dtype}", {name: t})
        if type_of(t).ndim < 2:
            raise UsageError(f"cdist only supports at least 2D tensors, {name} got: {type_of(t).ndim}D", {name: t})
    if not agree(type_of(x1).shape[-1], type_of(x2).shape[-1]):
        raise UsageError(
            f"X1 and X2 must have the same number of columns. X1: {type_of(x1).shape[-1]} X2: {type_of(x2).shape[-1]}",
            {"X1": x1, "X2": x2},
        )
    if p < 0:
        raise UsageError("cdist only supports non-negative p values", {"p": p})
    x, y = [cast(t, float32) if type_of(t).dtype.size_bytes == 2 else t for t in (x1, x2)]
    if compute_mode not in _DISTANCE_MODES:
        raise ArgumentError(f"{compute_mode} is not a valid value for compute_mode", {"known": _DISTANCE_MODES})
    found = _distances(x, y, p, compute_mode)
    return rename_node(cast(found, type_of(x1).dtype), "CdistBackward0", p=float(p))


def _distances(x: Tensor, y: Tensor, p: float, mode: str) -> Tensor:
    """By products where torch takes them and they are faster, else from the differences."""
    (n, width), m = type_of(x).shape[-2:], type_of(y).shape[-2]
    by_products = p == 2 and mode != "donot_use_mm_for_euclid_dist" and not any(map(is_symbolic, (n, m, width)))
    if by_products and (mode == "use_mm_for_euclid_dist" or (max(n, m) > 25 and width > _SHORT_ROW)):
        return in_one_step("distances_by_products", (), x, y)
    return in_one_step("distances", (float(p),), x, y)


_SHORT_ROW = 24  # elements; up to here one pass over the differences is faster than a matrix product


@declared(method=False)
@refuses("complex")
@in_full_precision_on_devices
def pdist(input: Tensor, p: float = 2) -> Tensor:
    """p-norm distances of every two rows: ``f[n, d] -> f[n (n - 1) / 2]``."""
    place = type_of(input).device
    first, second = (placed(wrap(rows), place) for rows in np.triu_indices(type_of(input).shape[0], 1))
    apart = index_select(input, 0, first) - index_select(input, 0, second)
    return rename_node(norm(apart, p, -1), "PdistBackward0", p=float(p))


@declared(in_place="values", out=True)
@in_full_precision_on_devices
def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """Slices along an axis whose p-norm is above ``maxnorm``, scaled down to it."""
    if type_of(input).ndim < 2:
        raise UsageError(f"renorm: input needs at least 2 dimensions, got {type_of(input).ndim} dimensions")
    if not p > 0 or maxnorm < 0:
        raise UsageError(f"renorm: non-positive-norm not supported: p={p}, maxnorm={maxnorm}", {"input": input})
    along = normalize_axis(dim, type_of(input).ndim, "renorm")
    axes = tuple(axis for axis in range(type_of(input).ndim) if axis != along)
    size = norm(input, p, axes, keepdim=True)
    return mul(input, where(size > maxnorm, maxnorm / (size + 1e-7), 1.0))


@declared()
@refuses("bool int complex")
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """``x`` where positive, else ``weight * x``; one weight, or one per channel (axis 1)."""
    w = weight
    if not seems_equal(type_of(w).size, 1):
        w = reshape(w, (1, -1, *(1,) * (type_of(input).ndim - 2)) if type_of(input).ndim > 1 else (-1,))
    return where(input > 0, input, w * input)


@declared()
def is_nonzero(input: Tensor) -> bool:
    """Whether the only element differs from 0."""
    return bool(as_operand(input))


@declared()
def is_conj(input: Tensor) -> bool:
    """Whether the elements are conjugates yet to be computed; never, as ``conj`` computes at once."""
    return False


@declared()
def is_neg(input: Tensor) -> bool:
    """Whether the elements are negatives yet to be computed; never, as ``neg`` computes at once."""
    return False


@declared()
def resolve_conj(input: Tensor) -> Tensor:
    """The tensor itself, see ``is_conj``."""
    return input


@declared()
def resolve_neg(input: Tensor) -> Tensor:
    """The tensor itself, see ``is_neg``."""
    return input


@declared()
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have one shape."""
    return type_of(input).shape == type_of(other).shape


def _triangle(
    name: str, places: Callable[[int, int, int], tuple[NDArray[Any], ...]], which: str
) -> Callable[..., Tensor]:
    def indices(row: int, col: int, offset: int = 0, *, dtype: DType | None = None, **options: Any) -> Tensor:
        for name, extent in (("row", row), ("col", col)):
            if extent < 0:
                raise UsageError(f"{name} must be non-negative, got {extent}")
        return _made(np.stack(places(row, offset, col)).astype((dtype or int64).numpy), **options)

    doc = f"Positions of a matrix's {which} triangle, as rows of an integer matrix."
    return declared(method=False)(named(indices, name, doc))


def _made(
    found: NDArray[Any],
    device: DeviceLike = None,
    requires_grad: bool = False,
    layout: object = None,
    pin_memory: bool = False,
) -> Tensor:
    return finish(constant(found), requires_grad, device)


tril_indices = _triangle("tril_indices", np.tril_indices, "lower")
triu_indices = _triangle("triu_indices", np.triu_indices, "upper")


@declared(numbers="none")
def isclose(
    input: Operand, other: Operand, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Tensor:
    """Whether ``|input - other| <= atol + rtol * |other|``, elementwise."""
    for name, bound in (("rtol", rtol), ("atol", atol)):
        if bound < 0:
            raise UsageError(f"{name} must be greater than or equal to zero, but got {bound}")
    x, y = together(input, other, "isclose")
    dtypes = [type_of(t).dtype for t in (input, other) if isinstance(t, Tensor)]
    if len(set(dtypes)) == 2:
        raise UsageError(f"isclose: {dtypes[0]} did not match {dtypes[1]}", {"other": other})
    same = eq(x, y)
    if type_of(x).dtype.category >= 2:
        if equal_nan:
            same = logical_or(same, logical_and(isnan(x), isnan(y)))
        near = le(abs(sub(x, y)), add(abs(mul(y, rtol)), atol))
        return logical_or(same, logical_and(near, logical_and(isfinite(x), isfinite(y))))
    return same if rtol == 0 and atol == 0 else isclose(x.double(), y.double(), rtol, atol)


@declared()
def allclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Whether all elements are close, as a Python bool."""
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


@declared()
def equal(input: Tensor, other: Tensor) -> bool:
    """Whether shapes and all elements are equal, as a Python bool."""
    return bool(input.shape == other.shape and eq(input, other).all())
