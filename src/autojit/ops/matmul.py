"""Matrix products: the ``Matmul`` op and torch's rank rules on top of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np

from autojit.core.dtypes import HALVES, DType, bool_, float32
from autojit.core.errors import DTypeError, ShapeError, UnsupportedDTypeError
from autojit.core.number_ranges import in_range
from autojit.core.records import record
from autojit.core.sizes import fit, seems_equal
from autojit.core.types import TensorType
from autojit.ir.op import Ndarray, O, Operand, Operands, bind
from autojit.ops.base import Structured, broadcast_shapes, conjugate, normalize_axis, product_jvp, tangent_sum
from autojit.ops.by_name import apply
from autojit.ops.elementwise_arithmetic import add, mul
from autojit.ops.samples import Samples, draws
from autojit.ops.shape import Permute, batch_all, broadcast_to, permute, reshape

__all__ = [
    "Matmul", "addbmm", "addmm", "addmv", "addr", "adjoint_matrix", "baddbmm", "bmm", "dot", "inner", "kron",
    "matmul", "mm", "mv", "outer", "tensordot", "vdot",
]  # fmt: skip


@record
class Matmul(Structured):
    """``(..., m, k) @ (..., k, n) -> (..., m, n)`` with equal batch shapes.

    Halves are multiplied and accumulated in float32 and rounded once, as BLAS libraries do.

    Args:
        result: float32 where halves are not rounded at the end; None: the dtype of the operands. Made by passes.
    """

    result: DType | None = None

    node_class: ClassVar[str] = "MmBackward0"
    operand_names: ClassVar[tuple[str, ...]] = ("self", "mat2")

    masks_cotangents: ClassVar[bool] = False

    def result_type(self, x: TensorType, w: TensorType) -> TensorType:
        if x.ndim < 2 or x.shape[:-2] != w.shape[:-2]:
            raise ShapeError("matmul: batch axes differ", {"x": x, "w": w})
        check_inner(x, w)
        if x.dtype is not w.dtype:
            raise DTypeError(
                f"expected m1 and m2 to have the same dtype, but got: {x.dtype} != {w.dtype}", {"x": x, "w": w}
            )
        if x.dtype is bool_:
            raise UnsupportedDTypeError(
                '"matmul" not implemented for bool', {"x": x, "w": w}, "cast to an integer first"
            )
        if self.result is not None and x.dtype not in HALVES:
            raise DTypeError(f"matmul: products of {x.dtype} are not {self.result}", {"x": x, "w": w})
        found = x.with_shape((*x.shape[:-1], w.shape[-1]))
        return found if self.result is None else found.with_dtype(self.result)

    def parameters(self) -> tuple[tuple[str, object], ...]:
        """That products are of their operands' dtype goes without saying."""
        return () if self.result is None else super().parameters()

    def eager(self, x: Ndarray, w: Ndarray) -> Ndarray:
        if self.result is not None:
            return np.asarray(np.matmul(x.astype(self.result.numpy), w.astype(self.result.numpy)))
        dtype = x.dtype
        if dtype != w.dtype or dtype.kind == "b":
            raise TypeError("matmul: NumPy would promote; the type rule says what is wrong")
        if dtype.itemsize == 2 and dtype.kind not in "iu":
            return np.asarray(np.matmul(x.astype(np.float32), w.astype(np.float32)).astype(x.dtype))
        if dtype.kind == "f" and x.ndim == w.ndim == 2 and x.flags.forc and w.flags.forc:
            found: Ndarray = x.dot(w)  # the same call of BLAS in half the time that small matrices take, bit for bit
            return found
        return np.asarray(np.matmul(x, w))

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        x, w = primals
        if self.result is not None:  # the cotangent of what was rounded next is one of halves: so are the factors
            return MATMUL.vjp(primals, result, apply("cast", y_bar, dtype=x.spec.dtype))
        is_left_turned, is_right_turned = turned_operands.flags

        def x_bar() -> Any:
            if is_left_turned:
                return swap_last(bind(self, conjugate(w), swap_last(y_bar)))
            return bind(self, y_bar, adjoint_matrix(w))

        def w_bar() -> Any:
            if is_right_turned:
                return swap_last(bind(self, swap_last(y_bar), conjugate(x)))
            return bind(self, adjoint_matrix(x), y_bar)

        return x_bar, w_bar

    def _widened(self, operands: Sequence[Any]) -> list[Any]:
        return [apply("cast", x, dtype=self.result) for x in operands]

    jvp = product_jvp

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        x, w = args
        if batched == (True, False) and self.result is None:
            return matmul(x, w)  # one matrix for the whole batch: fold the batch into the rows
        return bind(self, *batch_all(args, batched))

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if dtype is bool_:
            return []
        return [
            (Matmul(), (draws((3, 4), dtype), draws((4, 5), dtype, 1))),
            (Matmul(), (draws((4, 3), dtype).T, draws((2, 5, 4), dtype, 1)[1].T)),
            (Matmul(), (draws((2, 3, 2, 4), dtype), draws((2, 3, 4, 1), dtype, 1))),
            (Matmul(), (draws((2, 0), dtype), draws((0, 3), dtype, 1))),
            *([(Matmul(float32), (draws((3, 4), dtype), draws((4, 5), dtype, 1)))] if dtype in HALVES else []),
        ]


MATMUL = Matmul()


class _TurnedOperands(threading.local):
    """Which operands of the product whose rule runs in this thread are transposes of other tensors.

    Their cotangents are transposed next. Made as transposes of products they are in order then. The engine says so,
    which sees what a product was made of; the passes of a captured step choose orders by themselves.
    """

    flags = False, False


turned_operands = _TurnedOperands()


@record
class MatmulAdd(Structured):
    """``x @ w + c`` with ``c`` like the product: a product accumulated where ``c`` is. Made by passes.

    A ``c`` of float32 takes products of halves as they are.
    """

    operand_names: ClassVar[tuple[str, ...]] = ("mat1", "mat2", "self")

    masks_cotangents: ClassVar[bool] = False

    def result_type(self, x: TensorType, w: TensorType, c: TensorType) -> TensorType:
        product = _product(x.dtype, c.dtype).result_type(x, w)
        if product != c:
            raise ShapeError("matmul_add: the summand is not like the product", {"product": product, "c": c})
        return c

    def eager(self, x: Ndarray, w: Ndarray, c: Ndarray) -> Ndarray:
        product = Matmul(float32) if c.dtype == np.float32 else MATMUL
        return np.asarray(product.eager(x, w) + c)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        product = _product(primals[0].spec.dtype, y_bar.spec.dtype)
        return (*product.vjp(primals[:2], result, y_bar), y_bar)

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        product = _product(primals[0].spec.dtype, result.spec.dtype)
        return tangent_sum(product.jvp(primals[:2], result, tangents[:2]), tangents[2])

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        return bind(self, *batch_all(args, batched))

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if dtype is bool_:
            return []
        matrices = draws((3, 4), dtype), draws((4, 5), dtype, 1)
        summands = (dtype, float32) if dtype in HALVES else (dtype,)
        return [(MatmulAdd(), (*matrices, draws((3, 5), kind, 2))) for kind in summands]


def _product(operand: DType, result: DType) -> Matmul:
    """The product of such operands that is added to such a summand."""
    return Matmul(float32) if operand in HALVES and result is float32 else MATMUL


def check_inner(x: TensorType, w: TensorType) -> None:
    """Raise ShapeError unless the last axis of ``x`` has the extent of the last but one of ``w``."""
    if not fit(x.shape[-1], w.shape[-2]):
        raise inner_axes_differ(x, w)


def inner_axes_differ(x: Operand | TensorType, w: Operand | TensorType) -> ShapeError:
    """The error of two operands (or types) whose contracted extents differ; ranks from 1 up."""
    x_shape, w_shape = _shape_of(x), _shape_of(w)
    w_axis = -2 if len(w_shape) > 1 else -1
    fix = ""
    if len(w_shape) > 1 and x_shape[-1] == w_shape[-1]:
        fix = "transpose the second operand: x @ w.mT"
    expected = f"x axis -1 ({x_shape[-1]}) == w axis {w_axis} ({w_shape[w_axis]})"
    facts = {"x": x, "w": w, "expected": expected, "torch": _words_of_torch(x_shape, w_shape)}
    return ShapeError("matmul: inner axes differ", facts, fix)


def _words_of_torch(x: tuple[int, ...], w: tuple[int, ...]) -> str:
    """By which people and programs know the error."""
    first, second = ("x".join(map(str, shape)) for shape in (x, w))
    if len(x) == len(w) == 1:
        same = "to have the same number of elements"
        return f"inconsistent tensor size, expected tensor [{first}] and src [{second}] {same}"
    if len(w) == 1:
        return f"size mismatch, got input ({prod(x[:-1])}), mat ({first}), vec ({second})"
    if len(w) > 2:
        batches = prod(w[:-2])
        wanted, got = [batches, x[-1]], [batches, w[-2]]
        return f"Expected size for first two dimensions of batch2 tensor to be: {wanted} but got: {got}."
    rows = "x".join(map(str, (prod(x[:-1]), x[-1])))
    return f"mat1 and mat2 shapes cannot be multiplied ({rows} and {second})"


def _shape_of(x: Any) -> tuple[int, ...]:
    type_ = x if isinstance(x, TensorType) else x.spec
    return tuple(type_.shape)


def swap_last(x: O) -> O:
    """Exchange the last two axes."""
    ndim = x.spec.ndim
    return bind(Permute((*range(ndim - 2), ndim - 1, ndim - 2)), x)


def adjoint_matrix(x: O) -> O:
    """The conjugate transpose of the last two axes: the transpose for real operands."""
    return conjugate(swap_last(x))


def matmul(x: O, w: O) -> O:
    """torch.matmul: vectors count as a row (left) or a column (right), batch axes broadcast.

    Shapes: ``(..., m, k) @ (..., k, n) -> (..., m, n)``; ``(k,) @ (k,) -> ()``.

    Raises:
        ShapeError: an operand has rank 0, inner axes differ, or batch axes do not broadcast.
        DTypeError: the dtypes differ or are bool.
    """
    if x.spec.ndim == 2 and w.spec.ndim == 2:
        return bind(MATMUL, x, w)
    if x.spec.ndim == 0 or w.spec.ndim == 0:
        raise ShapeError(
            f"both arguments to matmul need to be at least 1D, but they are {x.spec.ndim}D and {w.spec.ndim}D",
            {"x": x, "w": w},
            "multiply with * instead",
        )
    if x.spec.shape[-1] != w.spec.shape[max(w.spec.ndim - 2, 0)]:
        raise inner_axes_differ(x, w)
    row = x.spec.ndim == 1
    column = w.spec.ndim == 1
    left = reshape(x, (1, *x.spec.shape)) if row else x
    right = reshape(w, (*w.spec.shape, 1)) if column else w
    product = _matrices(left, right)
    shape = list(product.spec.shape)
    if column:
        del shape[-1]
    if row:
        del shape[-1 if column else -2]
    return reshape(product, shape)


def _matrices(x: O, w: O) -> O:
    """Both of rank 2 or more. A single right matrix serves all rows of x at once: one large product."""
    if w.spec.ndim == 2:
        *rows, k = x.spec.shape
        flat = reshape(x, (prod(rows), k))
        return reshape(bind(MATMUL, flat, w), (*rows, w.spec.shape[-1]))
    lead = broadcast_shapes(x.spec.shape[:-2], w.spec.shape[:-2], op="matmul")
    left = broadcast_to(x, (*lead, *x.spec.shape[-2:]))
    right = broadcast_to(w, (*lead, *w.spec.shape[-2:]))
    return bind(MATMUL, left, right)


def mm(x: O, w: O) -> O:
    """Product of two matrices; ShapeError for any other rank."""
    _require_rank("mm", (x, 2), (w, 2))
    return bind(MATMUL, x, w)


def bmm(x: O, w: O) -> O:
    """Product of two stacks of matrices: ``(b, m, k), (b, k, n) -> (b, m, n)``, without broadcasting."""
    _require_rank("batch1 must be a 3D tensor: bmm", (x, 3), (w, 3))
    return bind(MATMUL, x, w)


def mv(x: O, v: O) -> O:
    """Matrix times vector: ``(m, k), (k,) -> (m,)``."""
    _require_rank("mv", (x, 2), (v, 1))
    return matmul(x, v)


def dot(x: O, y: O) -> O:
    """Sum of products of two vectors, without conjugation: ``(k,), (k,) -> ()``."""
    _require_rank("1D tensors expected: dot", (x, 1), (y, 1))
    if x.spec.shape != y.spec.shape:
        raise ShapeError(
            "inconsistent tensor size, expected tensor and src to have the same number of elements",
            {"x": x, "y": y},
        )
    return matmul(x, y)


def vdot(x: O, y: O) -> O:
    """``dot`` with the first vector conjugated."""
    return dot(conjugate(x), y)


def outer(x: O, y: O) -> O:
    """All products of two vectors: ``(m,), (n,) -> (m, n)``."""
    _require_rank("outer", (x, 1), (y, 1))
    return mul(reshape(x, (x.spec.shape[0], 1)), y)


def inner(x: O, y: O) -> O:
    """Contract the last axes: ``(*a, k), (*b, k) -> (*a, *b)``; rank 0 multiplies."""
    if x.spec.ndim == 0 or y.spec.ndim == 0:
        return mul(x, y)
    return tensordot(x, y, ((-1,), (-1,)))


def tensordot(x: O, y: O, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> O:
    """Contract axes of x with axes of y, as torch.tensordot: a number means the last of x with the first of y.

    Raises:
        ShapeError: the numbers of axes or the contracted extents differ.
    """
    if isinstance(axes, int):
        axes = (range(x.spec.ndim - axes, x.spec.ndim), range(axes))
    x_axes = [normalize_axis(a, x.spec.ndim, "tensordot") for a in axes[0]]
    y_axes = [normalize_axis(a, y.spec.ndim, "tensordot") for a in axes[1]]
    for k, (a, b) in enumerate(zip(x_axes, y_axes, strict=False)):  # an axis of extent 1 broadcasts, so the other sums
        if x.spec.shape[a] != y.spec.shape[b] and 1 in (x.spec.shape[a], y.spec.shape[b]):
            x, y = _summed(x, x_axes[k]), _summed(y, y_axes[k])
    extents = [x.spec.shape[a] for a in x_axes]
    if extents != [y.spec.shape[a] for a in y_axes]:
        raise ShapeError(
            "tensordot: contracted dimensions need to match", {"x": x, "y": y, "axes": (tuple(x_axes), tuple(y_axes))}
        )
    x_kept = [a for a in range(x.spec.ndim) if a not in x_axes]
    y_kept = [a for a in range(y.spec.ndim) if a not in y_axes]
    x_shape = [x.spec.shape[a] for a in x_kept]
    y_shape = [y.spec.shape[a] for a in y_kept]
    left = reshape(permute(x, x_kept + x_axes), (prod(x_shape), prod(extents)))
    right = reshape(permute(y, y_axes + y_kept), (prod(extents), prod(y_shape)))
    return reshape(bind(MATMUL, left, right), (*x_shape, *y_shape))


def _summed(x: O, axis: int) -> O:
    shape = tuple(1 if a == axis else n for a, n in enumerate(x.spec.shape))
    return x if seems_equal(x.spec.shape[axis], 1) else reshape(apply("sum", x, axes=(axis,)), shape)


def kron(x: O, y: O) -> O:
    """Kronecker product; the operand of lower rank gets leading axes of extent 1."""
    ndim = max(x.spec.ndim, y.spec.ndim)
    x_shape = (*(1,) * (ndim - x.spec.ndim), *x.spec.shape)
    y_shape = (*(1,) * (ndim - y.spec.ndim), *y.spec.shape)
    left = reshape(x, [n for extent in x_shape for n in (extent, 1)])
    right = reshape(y, [n for extent in y_shape for n in (1, extent)])
    product = mul(left, right)
    return reshape(product, [m * n for m, n in zip(x_shape, y_shape, strict=True)])


def addmm(base: O, x: O, w: O, beta: float = 1, alpha: float = 1) -> O:
    """``beta * base + alpha * (x @ w)``; with ``beta`` 0 the base is not read (NaN in it does not matter)."""
    _require_rank("addmm", (x, 2), (w, 2))
    return _scaled_sum("addmm", base, matmul, x, w, beta, alpha)


def addmv(base: O, x: O, v: O, beta: float = 1, alpha: float = 1) -> O:
    """``beta * base + alpha * (x @ v)`` with a matrix and a vector."""
    return _scaled_sum("addmv", base, mv, x, v, beta, alpha)


def addr(base: O, x: O, y: O, beta: float = 1, alpha: float = 1) -> O:
    """``beta * base + alpha * outer(x, y)``."""
    return _scaled_sum("addr", base, outer, x, y, beta, alpha)


def baddbmm(base: O, x: O, w: O, beta: float = 1, alpha: float = 1) -> O:
    """``beta * base + alpha * bmm(x, w)``."""
    return _scaled_sum("baddbmm", base, bmm, x, w, beta, alpha)


def addbmm(base: O, x: O, w: O, beta: float = 1, alpha: float = 1) -> O:
    """``beta * base + alpha * sum over the batch of bmm(x, w)``: one product with the batch folded into k."""
    _require_rank("addbmm", (x, 3), (w, 3))
    return _scaled_sum("addbmm", base, lambda x, w: tensordot(x, w, ((0, 2), (0, 1))), x, w, beta, alpha)


def require_base(what: str, base: O, product: O, dtype: DType | None = None) -> None:
    """Errors for a summand whose dtype or rank does not fit the product (of factors of ``dtype``) it is added to."""
    wanted = dtype or product.spec.dtype
    if base.spec.dtype is not wanted:
        raise DTypeError(
            f"{what}: self and mat2 must have the same dtype, but got {base.spec.dtype} and {wanted}",
            {"input": base},
        )
    if base.spec.ndim > product.spec.ndim:
        raise ShapeError(
            f"{what}: the input of shape {list(base.spec.shape)} does not broadcast to the shape of the product, "
            f"{list(product.spec.shape)}",
            {"input": base},
        )


def _scaled_sum(what: str, base: O, product: Callable[[O, O], O], x: O, w: O, beta: float, alpha: float) -> O:
    """Of halves added up in float32, in which they are multiplied, and rounded with the summand."""
    dtype = x.spec.dtype
    beta, alpha = (in_range(n, dtype) if isinstance(n, complex) else n for n in (beta, alpha))
    is_wide = dtype in HALVES and w.spec.dtype is dtype
    if is_wide and product is matmul and x.spec.ndim == w.spec.ndim == 2:
        total = bind(Matmul(float32), x, w)  # whose derivative reads halves
    elif is_wide:
        total = product(apply("cast", x, dtype=float32), apply("cast", w, dtype=float32))
    else:
        total = product(x, w)
    require_base(what, base, total, dtype)
    total = total if alpha == 1 else mul(total, alpha)
    if beta != 0:
        summand = apply("cast", base, dtype=float32) if is_wide else base
        total = add(summand if beta == 1 else mul(summand, beta), total)
    return apply("cast", total, dtype=dtype) if is_wide else total


def _require_rank(what: str, *operands: tuple[Any, int]) -> None:
    for x, ndim in operands:
        if x.spec.ndim != ndim:
            raise ShapeError(f"{what}: expected a {ndim}D tensor, but got {x.spec.ndim}D", {"operand": x})
