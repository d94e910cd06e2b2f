"""Fold and simplify: rules that hold bit for bit.

Identities of reindexing (reshape of reshape, empty permutations), of arithmetic with literals where they are exact for
every input including NaN and -0.0 (``x * 1``, ``x - 0``), literals folded through ops, and gradients of look-ups along
an axis (a scatter of one element per row into zeros is a comparison with the position).
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from autojit.core.dtypes import DType
from autojit.core.errors import AutojitError
from autojit.core.once import once
from autojit.core.sizes import surely_less
from autojit.ir.builder import Tracer
from autojit.ir.graph import Graph
from autojit.ir.op import Op, bind
from autojit.ir.result_types import result_types
from autojit.ops.base import Elementwise, Reduction, Reindex, Source
from autojit.ops.ordering import Later
from autojit.ops.reinterpret import AsStrided
from autojit.ops.requirements import InRange
from autojit.ops.reversal import Flip
from autojit.ops.shape import BroadcastTo, Pad, Permute, Reshape
from autojit.ops.sources import Iota, source_at
from autojit.ops.transfers import ToDevice
from autojit.passes.rewrite import Rewriter, Rule

MAX_FOLDED_OPERANDS = 4


def _reshape(rewriter: Rewriter, op: Reshape, operands: tuple[Tracer, ...]) -> Any:
    (x,) = operands
    if x.spec.shape == op.shape:
        return x
    if isinstance(rewriter.op_of(x), Reshape):
        return _reshape(rewriter, op, (rewriter.operand_of(x),)) or bind(op, rewriter.operand_of(x))
    return _reindex(rewriter, op, operands)


def _permute(rewriter: Rewriter, op: Permute, operands: tuple[Tracer, ...]) -> Any:
    (x,) = operands
    if op.axes == tuple(range(len(op.axes))):
        return x
    before = rewriter.op_of(x)
    if isinstance(before, Permute):
        axes = tuple(before.axes[a] for a in op.axes)
        source = rewriter.operand_of(x)
        return source if axes == tuple(range(len(axes))) else bind(Permute(axes), source)
    return _reindex(rewriter, op, operands)


def _as_strided(rewriter: Rewriter, op: AsStrided, operands: tuple[Tracer, ...]) -> Any:
    """The whole in row-major order is a reshape; another view may have the operand's shape and show other elements."""
    (x,) = operands
    if op.is_whole:
        return _reshape(rewriter, Reshape(op.shape), operands) or bind(Reshape(op.shape), x)
    return _reindex(rewriter, op, operands)


def _same_shape(rewriter: Rewriter, op: Any, operands: tuple[Tracer, ...]) -> Any:
    (x,) = operands
    if op.result_type(x.spec) == x.spec:
        return x
    return _reindex(rewriter, op, operands)


def _reindex(rewriter: Rewriter, op: Reindex, operands: tuple[Tracer, ...]) -> Any:
    """Any rearrangement of a repeated number is that number in the new shape."""
    (x,) = operands
    value = rewriter.literal(x)
    if value is None or (isinstance(op, Pad) and not _same_bits(op.value, value, x.spec.dtype)):
        return None
    return x._literal(value, op.result_type(x.spec))


def _same_bits(a: Any, b: Any, dtype: DType) -> bool:
    """Whether two numbers are one element of the dtype: -0.0 is not 0.0."""
    return np.asarray(a, dtype.numpy).tobytes() == np.asarray(b, dtype.numpy).tobytes()


def _flip(rewriter: Rewriter, op: Flip, operands: tuple[Tracer, ...]) -> Any:
    (x,) = operands
    if all(surely_less(x.spec.shape[axis], 2) for axis in op.axes):
        return x
    return _reindex(rewriter, op, operands)


def _pad(rewriter: Rewriter, op: Pad, operands: tuple[Tracer, ...]) -> Any:
    (x,) = operands
    if not any((*op.low, *op.high, *op.interior)):
        return x
    if x.spec.size == 0:
        return x._literal(op.value, op.result_type(x.spec))
    return _reindex(rewriter, op, operands)


def _cast(rewriter: Rewriter, op: Any, operands: tuple[Tracer, ...]) -> Any:
    (x,) = operands
    return x if op.dtype is x.spec.dtype else _fold(rewriter, op, operands)


def _fold(rewriter: Rewriter, op: Op, operands: tuple[Tracer, ...]) -> Any:
    """An elementwise op on literals is a literal."""
    if len(operands) > MAX_FOLDED_OPERANDS:
        return None
    values = [rewriter.literal(x) for x in operands]
    if any(v is None for v in values):
        return None
    result = result_types(op, *[x.spec for x in operands])
    arrays = [np.asarray(v, x.spec.dtype.numpy) for v, x in zip(values, operands, strict=True)]
    try:
        with np.errstate(all="ignore"):
            folded = np.asarray(op.eager(*arrays), result.dtype.numpy)
    except AutojitError:
        return None  # said when it is computed, if it is
    return operands[0]._literal(folded.item(), result)


def _is(value: Any, number: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == number


def _kept(rewriter: Rewriter, op: Op, operands: tuple[Tracer, ...], which: int) -> Any:
    """The operand itself, broadcast to the result's shape."""
    x = operands[which]
    result = result_types(op, *[o.spec for o in operands])
    if x.spec.shape == result.shape and x.spec.device == result.device:
        return x
    value = rewriter.literal(x)
    if value is not None:
        return x._literal(value, result)
    return bind(BroadcastTo(result.shape), x) if x.spec.device == result.device else None


def _mul(rewriter: Rewriter, op: Op, operands: tuple[Tracer, ...]) -> Any:
    a, b = (rewriter.literal(x) for x in operands)
    if _is(a, 1):
        return _kept(rewriter, op, operands, 1)
    if _is(b, 1):
        return _kept(rewriter, op, operands, 0)
    return _fold(rewriter, op, operands)


def _guarded_mul(rewriter: Rewriter, op: Op, operands: tuple[Tracer, ...]) -> Any:
    """With a finite literal as partial derivative the guard changes nothing."""
    factor = rewriter.literal(operands[1])
    if isinstance(factor, int | float) and math.isfinite(factor):
        mul = Op.registry["mul"]()
        return _mul(rewriter, mul, operands) or bind(mul, *operands)
    return None


def _sub(rewriter: Rewriter, op: Op, operands: tuple[Tracer, ...]) -> Any:
    value = rewriter.literal(operands[1])
    if _is(value, 0) and math.copysign(1.0, value) > 0:
        return _kept(rewriter, op, operands, 0)
    return _fold(rewriter, op, operands)


def _div(rewriter: Rewriter, op: Op, operands: tuple[Tracer, ...]) -> Any:
    value = rewriter.literal(operands[1])
    if _is(value, 1):
        return _kept(rewriter, op, operands, 0)
    if isinstance(value, float) and _has_exact_reciprocal(value, operands[1].spec.dtype):
        reciprocal = operands[1]._literal(1.0 / value, operands[1].spec)
        return bind(Op.registry["mul"](), operands[0], reciprocal)
    return _fold(rewriter, op, operands)


def _has_exact_reciprocal(value: float, dtype: DType) -> bool:
    """Whether the number is a power of two whose reciprocal is a normal number of the dtype."""
    if value == 0 or not math.isfinite(value) or math.frexp(value)[0] not in (0.5, -0.5):
        return False
    if dtype.kind != "float":
        return False
    info: Any = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]
    return float(info.smallest_normal) <= 1.0 / abs(value) <= float(info.max)


def _where(rewriter: Rewriter, op: Op, operands: tuple[Tracer, ...]) -> Any:
    condition = rewriter.literal(operands[0])
    if condition is None:
        return None
    return _kept(rewriter, op, operands, 1 if condition else 2)


def _scatter(rewriter: Rewriter, op: Any, operands: tuple[Tracer, ...]) -> Any:
    """One element per row added into zeros: ``where(position == index, src, 0)``."""
    base, src, index = operands
    if not _is(rewriter.literal(base), 0) or index.spec.shape[op.axis] != 1:
        return None
    others = [n for a, n in enumerate(index.spec.shape) if a != op.axis]
    if others != [n for a, n in enumerate(base.spec.shape) if a != op.axis]:
        return None
    extent = base.spec.shape[op.axis]
    position = base.builder.apply(Iota(base.spec.shape, op.axis, index.spec.dtype, base.spec.device), ())[0]
    scalar = index.spec.with_shape(())
    bind(InRange(op.shown_name, op.axis, extent, str(base.spec)), index)
    zero = index._literal(0, scalar)
    wrapped = bind(
        Op.registry["where"](),
        bind(Op.registry["lt"](), index, zero),
        bind(Op.registry["add"](), index, index._literal(extent, scalar)),
        index,
    )
    hit = bind(Op.registry["eq"](), Tracer(base.builder, position), wrapped)
    return bind(Op.registry["where"](), hit, src, base._literal(0, base.spec.with_shape(())))


def _fold_of_one(rewriter: Rewriter, op: Reduction, operands: tuple[Tracer, ...]) -> Any:
    """Folding axes of extent 1 only rearranges; the position found there is 0."""
    (x,) = operands
    if any(x.spec.shape[axis] != 1 for axis in op.axes):
        return None
    result = op.result_type(x.spec)
    return x._literal(0, result) if getattr(op, "is_pair", False) else bind(Reshape(result.shape), x)


def _to_device(rewriter: Rewriter, op: ToDevice, operands: tuple[Tracer, ...]) -> Any:
    """A source begins where it is wanted, and so does what is computed of sources; what comes back from another device
    has not left; a literal is everywhere.
    """
    (x,) = operands
    if x.spec.device == op.device:
        return x
    value, before = rewriter.literal(x), rewriter.op_of(x)
    if value is not None:
        return x._literal(value, x.spec.on(op.device))
    if isinstance(before, Source):
        return Tracer(x.builder, x.builder.apply(source_at(before, op.device), ())[0])
    if isinstance(before, Elementwise) and x.spec.ndim:
        node = rewriter.node_of(x)
        read = [] if node is None else [x.builder.tracer(value) for value in node.inputs]
        if all(isinstance(rewriter.op_of(operand), Source) for operand in read):
            return bind(before, *[_to_device(rewriter, op, (operand,)) for operand in read])
    if isinstance(before, ToDevice):
        first = rewriter.operand_of(x)
        return first if first.spec.device == op.device else bind(op, first)
    return None


def _later(rewriter: Rewriter, op: Later, operands: tuple[Tracer, ...]) -> Any:
    """Numbers are there at any time."""
    x = operands[0]
    return x if rewriter.literal(x) is not None or isinstance(rewriter.op_of(x), Source) else None


SPECIAL: dict[str, Rule] = {
    "as_strided": _as_strided,
    "reshape": _reshape,
    "permute": _permute,
    "flip": _flip,
    "pad": _pad,
    "cast": _cast,
    "mul": _mul,
    "guarded_mul": _guarded_mul,
    "sub": _sub,
    "div": _div,
    "where": _where,
    "scatter": _scatter,
    "to_device": _to_device,
    "later": _later,
}


OF_LITERALS = {"mul", "guarded_mul", "sub", "div", "where", "scatter"}
"""Rules that have nothing to say where no operand is a literal; those that fold elementwise ops are others."""


def _rules() -> dict[str, Rule]:
    rules: dict[str, Rule] = {}
    for name, op in Op.registry.items():
        if issubclass(op, Elementwise):
            rules[name] = _fold
        elif issubclass(op, Reindex):
            rules[name] = _same_shape
        elif issubclass(op, Reduction):
            rules[name] = _fold_of_one
    rules.update(SPECIAL)
    return rules


@once
def _known_rules() -> tuple[dict[str, Rule], set[str]]:
    """The rules by op, and the ops whose rules look at literals."""
    rules = _rules()
    return rules, {*OF_LITERALS, *(name for name, rule in rules.items() if rule is _fold)}


def simplify(graph: Graph) -> Graph:
    """Apply the rules once, front to back.

    Preserves results bit for bit and source locations. Time O(nodes).
    """
    return Rewriter(*_known_rules()).run(graph)
