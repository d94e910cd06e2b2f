"""Decompositions and functions of matrices under torch's top-level names; ``autojit.linalg`` has the newer forms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial, reduce
from string import ascii_lowercase, ascii_uppercase
from typing import Any, NamedTuple

from autojit import ops
from autojit.core.dtypes import DType, bfloat16, bool_, float16, float32, int64, promote_types
from autojit.core.errors import ArgumentError, ArgumentKindError, ShapeError, UsageError
from autojit.dispatch.call_programs import by_calls
from autojit.dispatch.composite_nodes import in_one_node
from autojit.dispatch.declared import EXACT_OUT, declared
from autojit.dispatch.promotion import all_together, cast
from autojit.functions.autocast import in_full_precision, in_lower_precision, in_lower_precision_on_devices
from autojit.functions.matrix_forms import complete_qr, completed
from autojit.functions.refused_dtypes import refuses
from autojit.functions.shape import flip
from autojit.functions.views import narrow
from autojit.ops.composed_products import Addmm
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor, type_of


class SvdFactors(NamedTuple):
    """``U @ diag(S) @ V^H``."""

    U: Tensor
    S: Tensor
    V: Tensor


class QrFactors(NamedTuple):
    """``Q`` with orthonormal columns, ``R`` upper triangular."""

    Q: Tensor
    R: Tensor


class Solution(NamedTuple):
    """What ``triangular_solve`` gives: the solution and the matrix as it was read."""

    solution: Tensor
    cloned_coefficient: Tensor


@declared(out=True)
@refuses("bool int")
@in_full_precision
def svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> SvdFactors:
    """Singular value decomposition ``U, S, V`` (not ``V^H``).

    Shapes: ``f[..., m, n] -> f[..., m, k], f[..., k], f[..., n, k]`` with k the smaller of m and n.

    Args:
        some: the reduced form; the full one completes ``U`` and ``V`` to square matrices, without a derivative there.
        compute_uv: without it ``U`` and ``V`` are zeros, and only ``S`` is differentiable.

    Example:
        >>> import autojit as aj
        >>> aj.svd(aj.tensor([[3.0, 0.0], [0.0, 4.0]])).S
        tensor([4., 3.])
    """
    *lead, rows, columns = type_of(input).shape
    if not compute_uv:
        singular = ops.svdvals(input)
        shapes = ((*lead, rows, rows), (*lead, columns, columns))
        zeros = [input.detach().new_zeros(shape) for shape in shapes]
        return SvdFactors(zeros[0], singular, zeros[1])
    u, s, vh = ops.svd(input)
    return SvdFactors(u, s, vh.mH) if some else SvdFactors(completed(u), s, completed(vh.mH))


@declared()
@refuses("bool int")
@in_full_precision
def qr(input: Tensor, some: bool = True) -> QrFactors:
    """Orthonormal columns times upper triangle; the form that is not reduced has no derivative for tall matrices."""
    return QrFactors(*(ops.qr(input) if some else complete_qr(input)))


@declared()
@refuses("bool int")
def matrix_exp(input: Tensor) -> Tensor:
    """The exponential of square matrices, the sum of ``A**k / k!``; differentiable to every order.

    Example:
        >>> import autojit as aj
        >>> aj.matrix_exp(aj.zeros(2, 2))
        tensor([[1., 0.],
                [0., 1.]])
    """
    dtype = type_of(input).dtype
    if dtype in (bfloat16, float16):
        return cast(ops.matrix_exp(cast(input, float32)), dtype)
    return ops.matrix_exp(input)


@declared(out=True)
def triangular_solve(
    b: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Solution:
    """``X`` with ``A @ X = b``, reading one triangle of ``A``."""
    matrix = A.transpose(-2, -1) if transpose else A
    return Solution(ops.triangular_solve(matrix, b, upper != transpose, True, unitriangular), A.clone())


@declared(method=False, out=True)
def nuclear_norm(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The sum of the singular values of the matrices on two axes."""
    return input.norm("nuc", dim, keepdim)


@declared(method=False)
def lobpcg(
    A: Tensor,
    k: int | None = None,
    B: Tensor | None = None,
    X: Tensor | None = None,
    n: int | None = None,
    iK: Tensor | None = None,
    niter: int | None = None,
    tol: float | None = None,
    largest: bool | None = None,
    method: str | None = None,
    **options: object,
) -> tuple[Tensor, Tensor]:
    """The ``k`` largest (or smallest) eigenvalues of symmetric matrices and their vectors, ``A u = w B u``.

    Computed by a complete decomposition, so that no starting vectors ``X``, preconditioner or tolerance is needed;
    they are accepted and not read. Differentiable.

    Shapes: ``f[..., n, n] -> f[..., k], f[..., n, k]``, in descending order (ascending for the smallest).

    Raises:
        ShapeError: ``A`` is not square, or ``n < 3 k``.
    """
    *_, rows, columns = type_of(A).shape
    count = (type_of(X).shape[-1] if X is not None else 1) if k is None else k
    if rows != columns or rows < 3 * count:
        raise ShapeError(
            f"LPBPCG algorithm is not applicable when the number of A rows (={rows}) is smaller than 3 x the number of "
            f"requested eigenpairs (={count})"
        )
    if B is None:
        values, vectors = ops.eigh(A)
    else:
        lower = ops.cholesky(B)
        half = ops.triangular_solve(lower, A, False)
        values, standard = ops.eigh(ops.triangular_solve(lower, half.mH, False))
        vectors = ops.triangular_solve(lower.mH, standard, True)
    if largest is False:
        return narrow(values, -1, 0, count), narrow(vectors, -1, 0, count)
    top, matching = narrow(values, -1, rows - count, count), narrow(vectors, -1, rows - count, count)
    return flip(top, (-1,)), flip(matching, (-1,))


@declared(method=False)
@refuses("bool int")
def svd_lowrank(A: Tensor, q: int = 6, niter: int = 2, M: Tensor | None = None) -> SvdFactors:
    """The ``q`` largest singular values (of ``A - M``) and their vectors, by a complete decomposition."""
    u, s, v = svd(A if M is None else A - M)
    count = min(q, *type_of(A).shape[-2:])
    return SvdFactors(narrow(u, -1, 0, count), narrow(s, -1, 0, count), narrow(v, -1, 0, count))


@declared(method=False)
@refuses("bool int")
def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> SvdFactors:
    """Principal components of the rows: ``svd_lowrank`` of the centred matrix."""
    *_, rows, columns = type_of(A).shape
    count = min(6, rows, columns) if q is None else q
    return svd_lowrank(A - A.mean(-2, keepdim=True) if center else A, count)


@declared(method=False)
@in_lower_precision
def einsum(equation: str | Tensor, *operands: Tensor | Sequence[object]) -> Tensor:
    """Einstein's summation convention: an equation and operands, or operands each with the numbers of its axes.

    Example:
        >>> import autojit as aj
        >>> x = aj.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> aj.einsum("ij->j", x), aj.einsum(x, [0, 1], [1])
        (tensor([4., 6.]), tensor([4., 6.]))
    """
    if isinstance(equation, Tensor):
        return einsum(*_with_equation((equation, *operands)))
    given: Sequence[Any] = operands[0] if len(operands) == 1 and isinstance(operands[0], list | tuple) else operands
    if len(given) == 1 and type_of(given[0]).dtype.category < 2 and _sums(equation):
        given = [cast(given[0], int64)]  # as in torch: a sum alone widens, products do not
    elif len(given) > 1 and type_of(given[0]).dtype.category < 2 and _sums_of_one(equation):
        given = [cast(x, int64) for x in given]
    if len({type_of(x).dtype for x in given}) > 1 and not _contracts(equation):
        common = reduce(promote_types, [type_of(x).dtype for x in given])
        given = [cast(x, common) for x in given]  # as in torch: elementwise products promote, contractions do not
    found: Tensor = by_calls(("einsum", equation), lambda *operands: ops.einsum(equation, *operands), *given)
    return found.permute(tuple(range(found.ndim))) if found is given[0] else found  # a view, as of other equations


def _contracts(equation: str) -> bool:
    """Whether an equation sums over an axis that several of its operands have."""
    left, arrow, kept = equation.replace(" ", "").replace(".", "").partition("->")
    counts = Counter(label for term in left.split(",") for label in set(term))
    return any(n > 1 and (not arrow or label not in kept) for label, n in counts.items())


_LETTERS = ascii_uppercase + ascii_lowercase  # in the order in which a result has its axes if nothing is said of it


def _with_equation(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """The equation and the operands of ``x, [0, 1], y, [1, 2], [0, 2]``."""
    pairs = list(zip(parts[::2], parts[1::2], strict=False))
    if not all(isinstance(x, Tensor) and isinstance(axes, list | tuple) for x, axes in pairs):
        raise ArgumentKindError("einsum(): expected an equation, or operands each with the list of its subscripts")
    left = ",".join(_letters(axes) for _, axes in pairs)
    result = f"->{_letters(parts[-1])}" if len(parts) % 2 else ""
    return (left + result, *(x for x, _ in pairs))


def _letters(axes: Sequence[Any]) -> str:
    """Subscripts as letters; ``...`` stays."""
    for axis in axes:
        if axis is not Ellipsis and not (isinstance(axis, int) and 0 <= axis < len(_LETTERS)):
            raise ArgumentError(
                f"einsum(): not within the valid range [0, {len(_LETTERS)}): subscript {axis!r}",
                fix="number the axes from 0, and write ... for those that broadcast",
            )
    return "".join("..." if axis is Ellipsis else _LETTERS[axis] for axis in axes)


def _sums_of_one(equation: str) -> bool:
    """Whether an equation sums an axis that only one of its operands has."""
    left, arrow, kept = equation.replace(" ", "").replace(".", "").partition("->")
    terms = [set(term) for term in left.split(",")]
    return bool(arrow) and any(sum(label in term for term in terms) == 1 for label in set.union(*terms) - set(kept))


def _sums(equation: str) -> bool:
    """Whether an equation of one operand sums an axis."""
    labels, arrow, kept = equation.replace(" ", "").replace(".", "").partition("->")
    return bool(set(labels) - set(kept)) if arrow else len(set(labels)) < len(labels)


@declared(in_place="values", out=EXACT_OUT)
def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``beta * input + alpha * mat1 @ mat2``."""
    if state.autocast is not None:
        return state.autocast.lower(addmm, input, mat1, mat2, beta=beta, alpha=alpha)
    operands = (input, mat1, mat2)
    compute = partial(ops.addmm, *operands, beta, alpha)
    if len({type_of(t).dtype for t in operands}) > 1:
        return compute()
    return in_one_node(Addmm(beta, alpha), operands, compute)


@declared(in_place="values", out=EXACT_OUT)
@in_lower_precision_on_devices
def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``beta * input + alpha * mat @ vec``."""
    return ops.addmv(input, mat, vec, beta, alpha)


@declared(in_place="values", out=True)
@in_lower_precision_on_devices
def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``beta * input + alpha * outer(vec1, vec2)``; operands are promoted."""
    input, vec1, vec2 = all_together([input, vec1, vec2], "addr")
    for name, factor in (("alpha", alpha), ("beta", beta)):
        _require_factor(name, factor, type_of(input).dtype)
    return ops.addr(input, vec1, vec2, beta, alpha)


def _require_factor(name: str, factor: object, dtype: DType) -> None:
    """UsageError for a factor of a kind that numbers of a dtype are not multiplied by."""
    if isinstance(factor, complex) and not dtype.is_complex:
        raise UsageError(f"For non-complex input tensors, argument {name} must not be a complex number.")
    if isinstance(factor, float) and dtype.category < 2:
        raise UsageError(f"For integral input tensors, argument {name} must not be a floating point number.")
    if isinstance(factor, bool) and dtype is not bool_:
        raise UsageError(f"Boolean {name} only supported for Boolean results.")


@declared(in_place="values", out=EXACT_OUT)
@in_lower_precision
def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``beta * input + alpha * batch1 @ batch2``."""
    return ops.baddbmm(input, batch1, batch2, beta, alpha)
