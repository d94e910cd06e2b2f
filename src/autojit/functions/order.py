"""Order along an axis: sorting, the greatest few, running sums, products and extremes, differences."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from autojit import ops
from autojit.core.dtypes import DType, bool_
from autojit.core.errors import UsageError
from autojit.core.wrapping import named
from autojit.dispatch.call_programs import by_calls
from autojit.dispatch.declared import DTYPE_OUT, Out, declared
from autojit.functions.autocast import in_full_precision_on_devices
from autojit.functions.comparison import eq, where
from autojit.functions.elementwise import logaddexp, real, sub
from autojit.functions.own_memory import no_view_of_parts, own_memory
from autojit.functions.reduction import ValuesIndices, _whole
from autojit.functions.refused_dtypes import refuses
from autojit.ops.base import normalize_axis
from autojit.tensor.tensor import Tensor, type_of


@declared(in_place="values", out=DTYPE_OUT)
@in_full_precision_on_devices
@own_memory
def cumsum(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """Running sum along ``dim``."""
    found: Tensor = by_calls(("cumsum", dim), lambda x: ops.cumsum(x, dim), _whole(input, dtype, "cumsum"))
    return found


@declared(in_place="values", out=DTYPE_OUT)
@in_full_precision_on_devices
@own_memory
def cumprod(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """Running product along ``dim``."""
    found: Tensor = by_calls(("cumprod", dim), lambda x: ops.cumprod(x, dim), _whole(input, dtype, "cumprod"))
    return found


@declared(out=True)
@own_memory
def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """Running ``logsumexp`` along ``dim``."""
    if type_of(input).dtype.is_complex:
        return _complex_logcumsumexp(input, dim)
    return ops.logcumsumexp(input, dim)


def _complex_logcumsumexp(x: Tensor, dim: int) -> Tensor:
    """By steps that double the span: after them an element holds the sum of the ``2 s`` elements up to it."""
    axis, span = normalize_axis(dim, type_of(x).ndim, "logcumsumexp"), 1
    x = where(eq(real(x), -inf), -inf, x)  # the angle of nothing is none
    count = type_of(x).shape[axis] if type_of(x).ndim else 1
    while span < count:
        joined = logaddexp(x.narrow(axis, span, count - span), x.narrow(axis, 0, count - span))
        x = ops.concatenate([x.narrow(axis, 0, span), joined], axis)
        span *= 2
    return x


def _running(name: str, what: str) -> Callable[..., ValuesIndices]:
    def running(input: Tensor, dim: int) -> ValuesIndices:
        values, places = getattr(ops, name)(input, dim)  # whose module is imported when it is first used
        return ValuesIndices(input.clone() if values is input else values, places)

    doc = f"Running {what} along ``dim`` and where it was last met."
    return declared(out=True)(refuses("complex")(named(running, name, doc)))


cummax, cummin = _running("cummax", "maximum"), _running("cummin", "minimum")


@declared(out=Out(is_exact=True))
@refuses("complex")
def sort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> ValuesIndices:
    """Values in order along ``dim`` and where they came from; equal values keep their order."""
    return ValuesIndices(*ops.sort(input, dim, descending))


@declared(out=True)
@refuses("complex")
def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """The positions that ``sort`` gives."""
    return ops.argsort(input, dim, descending)


@declared(out=True)
@refuses("complex")
def msort(input: Tensor) -> Tensor:
    """Values in order along the first axis."""
    return ops.msort(input)


@declared(out=Out(is_exact=True))
@refuses("bool complex")
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> ValuesIndices:
    """The ``k`` largest (or smallest) along ``dim``, in order, and where they are."""
    return ValuesIndices(*ops.topk(input, k, dim, largest))


@declared(out=Out(is_apart=True))
@refuses("bool complex")
@no_view_of_parts
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
    """The k-th smallest along ``dim`` (from 1) and where it is."""
    return kept(ops.kthvalue(input, k, dim), dim, keepdim, input.ndim > 0)


def kept(found: tuple[Tensor, Tensor], dim: int, keepdim: bool, is_line: bool) -> ValuesIndices:
    """The pair, with the reduced axis put back on request where there was one."""
    values, indices = found
    if keepdim and is_line:
        return ValuesIndices(values.unsqueeze(dim), indices.unsqueeze(dim))
    return ValuesIndices(values, indices)


@declared(out=True)
@own_memory
def diff(
    input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """The n-th forward difference along ``dim``; the operand itself for n = 0."""
    if n < 0:
        raise UsageError(f"order must be non-negative but got {n}")
    if type_of(input).ndim == 0:
        raise UsageError("diff expects input to be at least one-dimensional", {"input": input})
    if n == 0:
        return input
    parts = [p for p in (prepend, input, append) if p is not None]
    x = parts[0] if len(parts) == 1 else ops.concatenate(parts, dim)
    for _ in range(n):
        count = type_of(x).shape[normalize_axis(dim, type_of(x).ndim, "diff")]
        kept = count - 1 if count else 0  # no elements have no differences
        later, earlier = x.narrow(dim, count - kept, kept), x.narrow(dim, 0, kept)
        x = later.logical_xor(earlier) if type_of(x).dtype is bool_ else sub(later, earlier)
    return x
