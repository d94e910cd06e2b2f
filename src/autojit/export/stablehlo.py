"""A function without effects as StableHLO text, which XLA and other compilers read.

How to read: `stablehlo_text` walks the graph; `_RULES` says for each op which lines it becomes, by its name. Operands
are broadcast first, as StableHLO does not. State is constants of the text. What has no counterpart is refused.

Format: the StableHLO specification, 1.0, and the ``chlo`` dialect for a few functions (``erf``, ``lgamma``, ...).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from autojit.backend import backend_of
from autojit.core.device_array import packed
from autojit.core.dtypes import DType, bool_
from autojit.export.refusals import ExportError
from autojit.export.stablehlo_lines import StableHloLines, listed
from autojit.export.stablehlo_types import NAMES, tensor_text
from autojit.ir.concrete import is_open
from autojit.ir.graph import Graph, Node, Value
from autojit.jit.step import CompiledStep
from autojit.passes.pipeline import without_kernels


def stablehlo_text(step: CompiledStep, name: str, conditions: Sequence[str] = ()) -> str:
    """The module of a step that changes nothing.

    Args:
        conditions: on its open sizes; a comment of the text.

    Raises:
        ExportError: it changes state, counts a size, or an op has no counterpart; the message names op and line.
    """
    effects = step.effects
    if effects.changes_anything:
        raise ExportError(
            "export: StableHLO has no state, and the step changes tensors or gradients",
            {"changed": ", ".join(str(e.input.type) for e, _ in effects.written[:3]) or "gradients"},
            "export a function that only computes results, as a model's forward under aj.no_grad()",
        )
    captured = step.segment.graph
    machine = backend_of(captured).machine
    note = f"// for sizes: {' and '.join(conditions)}\n" if conditions else ""
    return note + _Writer(without_kernels(captured, machine), step).text(name)


class _Writer(StableHloLines):
    """One function."""

    def __init__(self, graph: Graph, step: CompiledStep) -> None:
        super().__init__()
        self.graph = graph
        entries = step.segment.entries
        self._given = graph.inputs[: len(graph.inputs) - len(entries)]
        self._orders = step.results.orders if step.call is None else [None] * len(graph.outputs)
        for k, value in enumerate(self._given):
            self.names[value] = f"%arg{k}"
            self.sizes.add(f"%arg{k}", value.type)
        for entry, value in zip(entries, graph.inputs[len(self._given) :], strict=True):
            self.names[value] = self.constant(np.asarray(packed(entry.array)), value.type)

    def text(self, name: str) -> str:
        for node in self.graph.nodes:
            self._write(node)
        arguments = ", ".join(f"{self.names[v]}: {tensor_text(v.type)}" for v in self._given)
        made = [self._result(v, order) for v, order in zip(self.graph.outputs, self._orders, strict=True)]
        results = ", ".join(kind for _, kind in made)
        end = f"    return {', '.join(name for name, _ in made)} : {results}" if made else "    return"
        head = f"  func.func public @main({arguments}) -> ({results}) {{"
        return "\n".join([f"module @{name} {{", head, *(f"    {line}" for line in self.lines), end, "  }", "}", ""])

    def _result(self, value: Value, order: Sequence[int] | None) -> tuple[str, str]:
        """A result and its type, its axes in the function's order: in the graph they are as they are in memory."""
        if order is None:
            return self.names[value], tensor_text(value.type)
        axes = [list(order).index(axis) for axis in range(len(order))]
        kind = tensor_text(value.type.with_shape(tuple(value.type.shape[axis] for axis in axes)))
        kinds = f"({tensor_text(value.type)}) -> {kind}"
        return self.value(f"stablehlo.transpose {self.names[value]}, dims = [{listed(axes)}] : {kinds}"), kind

    def _write(self, node: Node) -> None:
        rule = _RULES.get(node.op.name)
        types = [v.type for v in (*node.inputs, *node.outputs)]
        is_there = rule is not None and all(t.dtype.name in NAMES for t in types)
        found = rule(self, node) if is_there and rule is not None else None
        if found is None:
            raise ExportError(
                f"export: {node.op.shown_name} has no counterpart in StableHLO",
                {"op": node.op.name, "at": node.source},
                "leave it out of the function that is exported, or save the library with save()",
            )
        self.names[node.outputs[0]] = found


Rule = Callable[[_Writer, Node], str | None]


def _same(name: str) -> Rule:
    """Operands and result of one dtype."""

    def rule(w: _Writer, node: Node) -> str:
        return w.apply(name, node.outputs[0].type, *w.operands(node))

    return rule


def _chlo(name: str) -> Rule:
    def rule(w: _Writer, node: Node) -> str:
        kind = tensor_text(node.outputs[0].type)
        operands = w.operands(node)
        return w.value(f"chlo.{name} {', '.join(operands)} : {kind} -> {kind}")

    return rule


def _comparison(direction: str) -> Rule:
    def rule(w: _Writer, node: Node) -> str:
        a, b = w.operands(node)
        return w.compare(direction, a, b, node.inputs[0].type.with_shape(node.outputs[0].type.shape))

    return rule


def _reduction(name: str, start: Callable[[DType], Any]) -> Rule:
    def rule(w: _Writer, node: Node) -> str:
        (x,), result = node.inputs, node.outputs[0].type
        axes: Any = node.op
        if not axes.axes:
            return w.names[x]
        first = w.filled(start(x.type.dtype), x.type.with_shape(()))
        dims = ", ".join(map(str, axes.axes))
        kinds = f"({tensor_text(x.type)}, {tensor_text(x.type.with_shape(()))}) -> {tensor_text(result)}"
        over = f"applies stablehlo.{name} across dimensions = [{dims}]"
        return w.value(f"stablehlo.reduce({w.names[x]} init: {first}) {over} : {kinds}")

    return rule


def _lowest(dtype: DType) -> Any:
    if dtype.is_floating_point:
        return -np.inf
    return False if dtype.name == "bool" else np.iinfo(dtype.numpy).min


def _highest(dtype: DType) -> Any:
    if dtype.is_floating_point:
        return np.inf
    return True if dtype.name == "bool" else np.iinfo(dtype.numpy).max


def _with_number(name: str, number: float, is_first: bool) -> Rule:
    """An op of the operand and a number."""

    def rule(w: _Writer, node: Node) -> str:
        kind = node.outputs[0].type
        (x,) = w.operands(node)
        other = w.filled(number, kind)
        return w.apply(name, kind, *((other, x) if is_first else (x, other)))

    return rule


def _of_operand(name: str) -> Rule:
    """The operand twice."""

    def rule(w: _Writer, node: Node) -> str:
        (x,) = w.operands(node)
        return w.apply(name, node.outputs[0].type, x, x)

    return rule


def _identity(w: _Writer, node: Node) -> str:
    return w.names[node.inputs[0]]


def _where(w: _Writer, node: Node) -> str:
    kind = node.outputs[0].type
    condition, a, b = w.operands(node)
    predicate = tensor_text(kind.with_dtype(bool_))
    return w.value(f"stablehlo.select {condition}, {a}, {b} : {predicate}, {tensor_text(kind)}")


def _cast(w: _Writer, node: Node) -> str:
    (x,), kind = node.inputs, node.outputs[0].type
    return w.convert(w.names[x], x.type, kind.dtype)


def _squared_deviation(w: _Writer, node: Node) -> str:
    kind = node.outputs[0].type
    difference = w.apply("stablehlo.subtract", kind, *w.operands(node))
    return w.apply("stablehlo.multiply", kind, difference, difference)


def _is_nan(w: _Writer, node: Node) -> str:
    x = node.inputs[0]
    return w.compare("NE", w.names[x], w.names[x], x.type)


def _is_inf(w: _Writer, node: Node) -> str:
    x = node.inputs[0]
    size = w.apply("stablehlo.abs", x.type, w.names[x])
    return w.compare("EQ", size, w.filled(np.inf, x.type), x.type)


def _is_finite(w: _Writer, node: Node) -> str:
    x, kind = node.inputs[0], node.outputs[0].type
    return w.value(f"stablehlo.is_finite {w.names[x]} : ({tensor_text(x.type)}) -> {tensor_text(kind)}")


def _remainder(w: _Writer, node: Node) -> str:
    """Of the sign of the divisor."""
    kind = node.outputs[0].type
    a, b = w.operands(node)
    rest, zero = w.apply("stablehlo.remainder", kind, a, b), w.filled(0, kind)
    differ = w.apply(
        "stablehlo.xor", kind.with_dtype(bool_), w.compare("LT", rest, zero, kind), w.compare("LT", b, zero, kind)
    )
    wanted = w.apply("stablehlo.and", kind.with_dtype(bool_), differ, w.compare("NE", rest, zero, kind))
    moved = w.apply("stablehlo.add", kind, rest, b)
    predicate = tensor_text(kind.with_dtype(bool_))
    return w.value(f"stablehlo.select {wanted}, {moved}, {rest} : {predicate}, {tensor_text(kind)}")


def _full(w: _Writer, node: Node) -> str:
    op: Any = node.op
    return w.filled(op.value, node.outputs[0].type)


def _extent(w: _Writer, node: Node) -> str:
    op: Any = node.op
    return w.filled_with_size(op.size, node.outputs[0].type)


def _constant(w: _Writer, node: Node) -> str:
    return w.constant(np.asarray(node.op.eager()), node.outputs[0].type)


def _iota(w: _Writer, node: Node) -> str:
    op: Any = node.op
    return w.iota(op.axis, node.outputs[0].type)


def _reshape(w: _Writer, node: Node) -> str:
    return w.reshape(w.names[node.inputs[0]], node.inputs[0].type, node.outputs[0].type.shape)


def _broadcast(w: _Writer, node: Node) -> str:
    (x,) = w.operands(node)
    return x


def _permute(w: _Writer, node: Node) -> str:
    op: Any = node.op
    kinds = f"({tensor_text(node.inputs[0].type)}) -> {tensor_text(node.outputs[0].type)}"
    return w.value(f"stablehlo.transpose {w.names[node.inputs[0]]}, dims = [{listed(op.axes)}] : {kinds}")


def _slice(w: _Writer, node: Node) -> str | None:
    op: Any = node.op
    if any(step < 1 for step in op.steps):
        return None
    bounds = op.starts, op.stops, op.steps
    if any(map(is_open, bounds)):
        (x,) = node.inputs
        return w.dynamic("real_dynamic_slice", [w.names[x]], [x.type], bounds, node.outputs[0].type)
    spans = [f"{a}:{b}:{s}" for a, b, s in zip(op.starts, op.stops, op.steps, strict=True)]
    kinds = f"({tensor_text(node.inputs[0].type)}) -> {tensor_text(node.outputs[0].type)}"
    return w.value(f"stablehlo.slice {w.names[node.inputs[0]]} [{', '.join(spans)}] : {kinds}")


def _concatenate(w: _Writer, node: Node) -> str:
    op: Any = node.op
    kinds = ", ".join(tensor_text(v.type) for v in node.inputs)
    names = ", ".join(w.names[v] for v in node.inputs)
    return w.value(f"stablehlo.concatenate {names}, dim = {op.axis} : ({kinds}) -> {tensor_text(node.outputs[0].type)}")


def _pad(w: _Writer, node: Node) -> str:
    op: Any = node.op
    (x,), kind = node.inputs, node.outputs[0].type
    value = w.filled(op.value, x.type.with_shape(()))
    widths = op.low, op.high, op.interior
    if any(map(is_open, widths)):
        return w.dynamic("dynamic_pad", [w.names[x], value], [x.type, x.type.with_shape(())], widths, kind)
    how = f"low = [{listed(op.low)}], high = [{listed(op.high)}], interior = [{listed(op.interior)}]"
    kinds = f"({tensor_text(x.type)}, {tensor_text(x.type.with_shape(()))}) -> {tensor_text(kind)}"
    return w.value(f"stablehlo.pad {w.names[x]}, {value}, {how} : {kinds}")


def _flip(w: _Writer, node: Node) -> str:
    op: Any = node.op
    kind = tensor_text(node.outputs[0].type)
    return w.value(f"stablehlo.reverse {w.names[node.inputs[0]]}, dims = [{listed(op.axes)}] : {kind}")


def _matmul(w: _Writer, node: Node) -> str | None:
    (a, b), kind = node.inputs, node.outputs[0].type
    if min(a.type.ndim, b.type.ndim) < 2:
        return None
    batch = kind.shape[:-2]
    left, right = (v.type.with_shape((*batch, *v.type.shape[-2:])) for v in (a, b))
    names = [w.broadcast(w.names[v], v.type, wide.shape) for v, wide in ((a, left), (b, right))]
    axes = listed(range(len(batch)))
    shared = f"batching_dims = [{axes}] x [{axes}], " if batch else ""
    places = f"{shared}contracting_dims = [{len(batch) + 1}] x [{len(batch)}]"
    kinds = f"({tensor_text(left)}, {tensor_text(right)}) -> {tensor_text(kind)}"
    return w.value(f"stablehlo.dot_general {', '.join(names)}, {places}, precision = [HIGHEST, HIGHEST] : {kinds}")


def _convolution(w: _Writer, node: Node) -> str | None:
    op: Any = node.op
    (x, kernel), kind = node.inputs, node.outputs[0].type
    if is_open((*x.type.shape[1:], *kernel.type.shape)):
        return None  # its padding would be a number of the call
    spatial = range(len(op.extents))
    pads = []
    for k in spatial:
        reach = (op.extents[k] - 1) * op.stride[k] + op.dilation[k] * (kernel.type.shape[2 + k] - 1) + 1
        pads.append(f"[{op.padding[k]}, {reach - x.type.shape[2 + k] - op.padding[k]}]")
    names = ", ".join(map(str, spatial))
    numbers = f"[b, f, {names}]x[o, i, {names}]->[b, f, {names}]"
    window = f"{{stride = [{listed(op.stride)}], pad = [{', '.join(pads)}], rhs_dilate = [{listed(op.dilation)}]}}"
    groups = (
        f"{{batch_group_count = 1 : i64, feature_group_count = {op.groups} : i64, "
        "precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]}"
    )
    kinds = f"({tensor_text(x.type)}, {tensor_text(kernel.type)}) -> {tensor_text(kind)}"
    return w.value(
        f"stablehlo.convolution({w.names[x]}, {w.names[kernel]}) "
        f"dim_numbers = {numbers}, window = {window} {groups} : {kinds}"
    )


def _index_select(w: _Writer, node: Node) -> str:
    """Rows by their numbers; one that is not there becomes the nearest."""
    op: Any = node.op
    x, index = node.inputs
    sizes = [1 if axis == op.axis else n for axis, n in enumerate(x.type.shape)]
    after = range(op.axis + index.type.ndim, node.outputs[0].type.ndim)
    picked = w.names[index], index.type
    return w.gather(node, picked, [*range(op.axis), *after], [op.axis], sizes, index.type.ndim)


def _gather_nd(w: _Writer, node: Node) -> str:
    """Elements or rows by the numbers of the first axes, which count from the end where they are negative."""
    x, *indices = node.inputs
    count = len(indices)
    shape = node.outputs[0].type.shape[: node.outputs[0].type.ndim - (x.type.ndim - count)]
    parts = []
    for axis, index in enumerate(indices):
        kind = index.type.with_shape(shape)
        number = w.broadcast(w.names[index], index.type, shape)
        is_negative = w.compare("LT", number, w.filled(0, kind), kind)
        moved = w.apply("stablehlo.add", kind, number, w.filled_with_size(x.type.shape[axis], kind))
        predicate = tensor_text(kind.with_dtype(bool_))
        parts.append(w.value(f"stablehlo.select {is_negative}, {moved}, {number} : {predicate}, {tensor_text(kind)}"))
    sizes = [1 if axis < count else n for axis, n in enumerate(x.type.shape)]
    offsets = range(len(shape), node.outputs[0].type.ndim)
    return w.gather(node, w.stacked(parts, indices[0].type.with_shape(shape)), offsets, range(count), sizes, len(shape))


def _gather(w: _Writer, node: Node) -> str:
    """Along one axis, at the same places of the others."""
    op: Any = node.op
    x, index = node.inputs
    parts = [w.names[index] if axis == op.axis else w.iota(axis, index.type) for axis in range(index.type.ndim)]
    ones = [1] * x.type.ndim
    return w.gather(node, w.stacked(parts, index.type), (), range(x.type.ndim), ones, index.type.ndim)


def _floor_divide(w: _Writer, node: Node) -> str:
    kind = node.outputs[0].type
    a, b = w.operands(node)
    quotient = w.apply("stablehlo.divide", kind, a, b)
    if kind.dtype.is_floating_point:
        return w.apply("stablehlo.floor", kind, quotient)
    if not kind.dtype.is_signed:
        return quotient
    rest, zero = w.apply("stablehlo.remainder", kind, a, b), w.filled(0, kind)
    flags = kind.with_dtype(bool_)
    differ = w.apply("stablehlo.xor", flags, w.compare("LT", rest, zero, kind), w.compare("LT", b, zero, kind))
    wanted = w.apply("stablehlo.and", flags, differ, w.compare("NE", rest, zero, kind))
    less = w.apply("stablehlo.subtract", kind, quotient, w.filled(1, kind))
    return w.value(f"stablehlo.select {wanted}, {less}, {quotient} : {tensor_text(flags)}, {tensor_text(kind)}")


def _pow_number(w: _Writer, node: Node) -> str:
    op: Any = node.op
    kind = node.outputs[0].type
    (x,) = w.operands(node)
    return w.apply("stablehlo.power", kind, x, w.filled(op.exponent, kind))


_RULES: Mapping[str, Rule] = {
    **{
        ours: _same(f"stablehlo.{theirs}")
        for ours, theirs in {
            "add": "add", "sub": "subtract", "mul": "multiply", "div": "divide", "maximum": "maximum",
            "minimum": "minimum", "pow": "power", "fmod": "remainder", "atan2": "atan2",
            "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor", "bitwise_not": "not", "abs": "abs",
            "neg": "negate", "exp": "exponential", "expm1": "exponential_minus_one", "log": "log",
            "log1p": "log_plus_one", "sin": "sine", "cos": "cosine", "tan": "tan", "tanh": "tanh", "sqrt": "sqrt",
            "rsqrt": "rsqrt", "ceil": "ceil", "floor": "floor", "sign": "sign", "round": "round_nearest_even",
            "sigmoid": "logistic",
        }.items()
    },
    **{
        ours: _chlo(theirs)
        for ours, theirs in {
            "erf": "erf", "erfc": "erfc", "erfinv": "erf_inv", "lgamma": "lgamma", "digamma": "digamma",
            "acos": "acos", "acosh": "acosh", "asin": "asin", "asinh": "asinh", "atan": "atan", "atanh": "atanh",
            "sinh": "sinh", "cosh": "cosh",
        }.items()
    },
    **{
        ours: _comparison(direction)
        for ours, direction in {"eq": "EQ", "ne": "NE", "lt": "LT", "le": "LE", "gt": "GT", "ge": "GE"}.items()
    },
    "sum": _reduction("add", lambda _: 0),
    "prod": _reduction("multiply", lambda _: 1),
    **dict.fromkeys(("amax", "largest"), _reduction("maximum", _lowest)),
    **dict.fromkeys(("amin", "least"), _reduction("minimum", _highest)),
    "all_true": _reduction("and", lambda _: True),
    "any_true": _reduction("or", lambda _: False),
    "square": _of_operand("stablehlo.multiply"),
    "reciprocal": _with_number("stablehlo.divide", 1, True),
    "relu": _with_number("stablehlo.maximum", 0, False),
    "exp2": _with_number("stablehlo.power", 2, True),
    "stop_gradient": _identity, "where": _where, "cast": _cast, "squared_deviation": _squared_deviation,
    "is_nan": _is_nan, "is_inf": _is_inf, "is_finite": _is_finite, "remainder": _remainder, "full": _full,
    "constant": _constant, "size_value": _extent, "iota": _iota, "reshape": _reshape, "broadcast_to": _broadcast,
    "permute": _permute, "slice": _slice, "concatenate": _concatenate, "pad": _pad, "flip": _flip, "matmul": _matmul,
    "convolution": _convolution, "index_select": _index_select,
    "gather_nd": _gather_nd, "gather": _gather, "floor_divide": _floor_divide, "pow_number": _pow_number,
}  # fmt: skip
