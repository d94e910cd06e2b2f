"""Products of vectors and matrices."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from autojit import ops
from autojit.core.dtypes import promote_types
from autojit.core.errors import ArgumentKindError, UsageError
from autojit.dispatch.declared import EXACT_OUT, declared
from autojit.dispatch.dispatch import apply_pair
from autojit.dispatch.kernels import in_one_step
from autojit.dispatch.promotion import NUMBERS, Operand, as_operand, cast, refuse_numbers, together
from autojit.dispatch.view_memo import remembered
from autojit.dispatch.view_nodes import no_view
from autojit.functions.elementwise import mul
from autojit.functions.own_memory import no_view_of_parts
from autojit.history.op_node import rename_node
from autojit.ops.composed_products import MATRIX_VECTOR
from autojit.ops.matmul import MATMUL
from autojit.tensor.state import computes_at_once, state
from autojit.tensor.tensor import Tensor, type_of


def _products(name: str, x: Operand, y: Operand) -> tuple[Tensor, Tensor]:
    a, b = _factor(x, name), _factor(y, name)
    if type_of(a).dtype is not type_of(b).dtype:
        raise UsageError(
            f"{name}: expected m1 and m2 to have the same dtype, but got: {a.dtype} != {b.dtype}",
            fix="convert one of them: x.to(w.dtype)",
        )
    return a, b


def _factor(given: Operand, name: str) -> Tensor:
    if isinstance(given, NUMBERS):
        raise ArgumentKindError(
            f"{name}(): a factor must be Tensor, not {type(given).__name__}", {"factor": given}, "multiply by *"
        )
    return as_operand(given, name)


@declared(out=EXACT_OUT)
def matmul(input: Tensor, other: Tensor) -> Tensor:
    """Matrix product of any ranks, torch's rules."""
    if state.autocast is not None:
        return state.autocast.lower(matmul, input, other)
    a, b = getattr(input, "_array", None), getattr(other, "_array", None)
    if a is not None and b is not None and a.dtype is b.dtype and a.dtype.kind == "f":
        if a.ndim == 2 == b.ndim:
            return apply_pair(MATMUL, MATMUL.eager, input, other)
        if a.ndim > 1 and _is_plain(input, other):
            return _at_once(input, other)
    x, y = _products("matmul", input, other)
    found = rename_node(ops.matmul(x, y), _PRODUCT_NODES.get((x.ndim, y.ndim), "UnsafeViewBackward0"))
    return no_view(found, x) if min(x.ndim, y.ndim) == 1 and max(x.ndim, y.ndim) < 3 else found


def _is_plain(x: Tensor, w: Tensor) -> bool:
    """Whether ``_at_once`` multiplies two tensors, whose dtypes are alike."""
    a, b = x._array, w._array
    if type(a) is not np.ndarray or type(b) is not np.ndarray or a.dtype.char not in "fd" or not a.size:
        return False
    if state.observer is not None or not computes_at_once():
        return False
    if b.ndim < 3:
        return bool(a.shape[-1] == b.shape[0] and (b.ndim == 2 or a.ndim == 2))
    return bool(a.shape[:-2] == b.shape[:-2] and a.shape[-1] == b.shape[-2])


def _at_once(x: Tensor, w: Tensor) -> Tensor:
    """A matrix times a vector, many matrices times one, as torch by one product of two matrices, or times as many."""
    ndim = w._array.ndim
    if ndim == 1:
        return apply_pair(MATRIX_VECTOR, MATRIX_VECTOR.eager, x, w)
    if ndim > 2:
        return rename_node(apply_pair(MATMUL, MATMUL.eager, x, w), "UnsafeViewBackward0")
    *lead, k = x._array.shape
    product = apply_pair(MATMUL, MATMUL.eager, _reshaped(x, (prod(lead), k)), w)
    return rename_node(_reshaped(product, (*lead, w._array.shape[1])), "UnsafeViewBackward0")


@remembered
def _reshaped(input: Tensor, shape: tuple[int, ...]) -> Tensor:
    return ops.reshape(input, shape)


_PRODUCT_NODES = {
    (1, 1): "DotBackward0", (2, 1): "MvBackward0", (1, 2): "SqueezeBackward4", (2, 2): "MmBackward0",
}  # fmt: skip


@declared(out=EXACT_OUT)
def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """Product of two matrices."""
    if state.autocast is not None:
        return state.autocast.lower(mm, input, mat2)
    return ops.mm(*_products("mm", input, mat2))


@declared(out=EXACT_OUT)
def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """Products of two stacks of matrices."""
    if state.autocast is not None:
        return state.autocast.lower(bmm, input, mat2)
    return rename_node(ops.bmm(*_products("bmm", input, mat2)), "BmmBackward0")


@declared(out=EXACT_OUT)
@no_view_of_parts
def mv(input: Tensor, vec: Tensor) -> Tensor:
    """Matrix times vector."""
    if state.autocast is not None and state.autocast.is_on_device(input):
        return state.autocast.lower(mv, input, vec)
    x, v = _products("mv", input, vec)
    if type_of(x).ndim == 2 and type_of(v).ndim == 1 and _is_plain(x, v):
        return _at_once(x, v)
    return rename_node(ops.mv(x, v), "MvBackward0")


@declared(out=EXACT_OUT)
def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """Sum of products of two vectors."""
    x, y = _products("dot", input, tensor)
    if type_of(x).ndim == type_of(y).ndim == 1 and type_of(x).shape == type_of(y).shape:
        return in_one_step("inner_product", (), x, y, node="DotBackward0")
    return rename_node(ops.dot(x, y), "DotBackward0")


@declared(out=EXACT_OUT)
@no_view_of_parts
def vdot(input: Tensor, other: Tensor) -> Tensor:
    """``dot`` with the first operand conjugated."""
    return ops.vdot(*_products("vdot", input, other))


@declared(out=True)
def inner(input: Tensor, other: Tensor) -> Tensor:
    """Sums of products over the last axes."""
    if state.autocast is not None:
        return state.autocast.lower(inner, input, other)
    if 0 in (as_operand(input, "inner").ndim, as_operand(other, "inner").ndim):
        return mul(input, other)
    return ops.inner(*_products("inner", input, other))


@declared(aliases="ger", out=True)
def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """All products of two vectors' elements."""
    x, y = together(input, vec2, "outer")
    return in_one_step("outer", (), x, y, node="MulBackward0")


@declared(out=True)
def kron(input: Tensor, other: Tensor) -> Tensor:
    """Kronecker product."""
    refuse_numbers("kron", input, other)
    dtype = promote_types(type_of(input).dtype, type_of(other).dtype)  # of tensors without axes, too
    x, y = cast(input, dtype), cast(other, dtype)
    return in_one_step("kron", (), x, y, node="UnsafeViewBackward0")


@declared(method=False, out=True)
def tensordot(a: Tensor, b: Tensor, dims: int | Sequence[Sequence[int]] = 2) -> Tensor:
    """Contraction over pairs of axes."""
    if isinstance(dims, int) and dims < 0:
        raise UsageError(f"tensordot expects dims >= 0, but got dims={dims}", {"a": a, "b": b})
    if isinstance(dims, int) and dims > min(type_of(a).ndim, type_of(b).ndim):
        raise UsageError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}", {"a": a, "b": b})
    pairs = dims if isinstance(dims, int) else (list(dims[0]), list(dims[1]))
    return ops.tensordot(a, b, pairs)
