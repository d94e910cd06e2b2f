"""LoopProgram: a fusion group as loops over expressions, for any target.

A group becomes: row loops; per row a sequence of *phases*, each one pass over the inner loops; reductions over the
inner loops separate the phases. Expressions form a hash-consed DAG whose leaves are loads at index expressions.

- reductions over rows accumulate into ``accumulators`` (per inner position, or one number);
- a *flat* program has no reduction that asks for a split: all its loops are rows.

How a target goes through the loops is its *walk*: which of a flat program's loops run inside, what is computed once a
row, what a later phase computes again.

How to read: ``LoopProgram`` (the result), ``ExprBuilder`` (pulls values into the DAG), ``build_program``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache
from math import prod
from typing import Any

from autojit.core.records import record
from autojit.core.sizes import surely_less
from autojit.core.types import Shape
from autojit.ir.graph import Node, Value
from autojit.ir.index import Index, LoopVariable, Opaque, Quotient, Remainder, Term, linearize
from autojit.ir.op import Op
from autojit.ops.base import Elementwise, Reduction, Reindex, Source
from autojit.ops.formula import Formula
from autojit.ops.joining import Concatenate
from autojit.ops.random import RandomBits
from autojit.ops.reductions import Amin, Position
from autojit.ops.shape import SliceUpdate
from autojit.schedule.expressions import (
    FIRST,
    LAST,
    Applied,
    Expr,
    Expressions,
    FromSource,
    Guard,
    Guarded,
    Load,
    LookUp,
    Number,
    RandomWord,
    RowResult,
)
from autojit.schedule.groups import FULL, OUT, ROW, Group
from autojit.schedule.joined import parts_of
from autojit.schedule.positions import place_if_extreme
from autojit.schedule.pull import Indices, broadcast_index, gathered_index

# Guards. A chain is as deep an expression as it is long, and printing goes down it; nested twice, chains of this length
# tell a thousand pieces apart. No concatenation has more than 32 pieces in the steps of tools/schedule_bounds.py.
LONGEST_CHAIN = 32


@record
class RowReduction:
    """A reduction over the inner loops: ``value`` is ``expr`` folded with ``op`` where the phase of ``expr`` ends.

    A `RowResult` names it by its ``number``, the place among the program's reductions. An extreme that is folded for
    its position alone has a value that is not of the graph.
    """

    number: int
    value: Value
    op: Op
    expr: Expr


@record
class Accumulator:
    """A reduction over rows. ``kind``: "col" (one number per inner position) or "all"; ``prefix`` rows are kept."""

    value: Value
    op: Op
    expr: Expr
    kind: str
    prefix: int
    full: bool  # the operand has one element per point of the domain, not per row


@record
class Store:
    """A FULL or ROW value written to its buffer."""

    value: Value
    expr: Expr
    index: Index


class Form:
    """What programs that differ in their values only have in common.

    ``texts`` is what was printed for them, ``rewritten`` how a target rewrites them before it prints.
    """

    __slots__ = ("rewritten", "texts")

    def __init__(self) -> None:
        self.rewritten: dict[Any, Any] = {}
        self.texts: dict[Any, Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Form, ()


@record(eq=False)
class LoopProgram:
    """Everything a target needs to print one kernel. Programs that differ in their values only are of one ``form``."""

    rows: tuple[LoopVariable, ...]
    inner: tuple[LoopVariable, ...]
    prefix: int  # how many leading row loops column reductions keep
    is_flat: bool  # no reduction asked for a split: all loops are rows
    exprs: tuple[Expr, ...]
    reductions: tuple[RowReduction, ...]
    stores: tuple[Store, ...]
    accumulators: tuple[Accumulator, ...]
    loads: tuple[Value, ...]
    lookups: Mapping[str, Expr] = field(default_factory=dict)  # opaque index name -> the run-time index
    lookup_nodes: Mapping[str, Node] = field(default_factory=dict)  # opaque index name -> the gather that looks up
    in_place: Mapping[Value, int] = field(default_factory=dict)  # stored value -> the load whose buffer it overwrites
    form: Form = field(default_factory=Form)

    @property
    def sliced(self) -> tuple[LoopVariable, ...]:
        """The loops that slices cut: those that column reductions keep, else the rows.

        The last loop of a flat nest stays whole if it has others around it, and is cut if it is the only one.
        """
        if self.prefix:
            return self.rows[: self.prefix]
        if self.is_flat and len(self.rows) > 1:
            return self.rows[:-1]
        if not self.rows and len(self.inner) == 1 and not self.reductions:
            return self.inner
        return self.rows

    def roots(self) -> list[Expr]:
        return [
            *(r.expr for r in self.reductions),
            *(s.expr for s in self.stores),
            *(a.expr for a in self.accumulators),
        ]

    def structure(self) -> Any:
        """The program without its values: equal ones print equal kernels."""
        folds = [(a.op, a.expr.serial, a.kind, a.prefix, a.full, a.value.type.dtype.short) for a in self.accumulators]
        return (
            (tuple(self.rows), tuple(self.inner), self.prefix, self.is_flat),
            tuple([e.structure() for e in self.exprs]),
            tuple([(r.op, r.expr.serial, r.value.type.dtype.short) for r in self.reductions]),
            tuple([(s.expr.serial, s.index, s.value.type.dtype.short) for s in self.stores]),
            tuple(folds),
            tuple([v.type.dtype.short for v in self.loads]),
            tuple([(n, e.serial) for n, e in self.lookups.items()]),
            tuple([self.in_place.get(s.value) for s in self.stores]),
        )

    def renamed(self, names: Mapping[Value, Value], definitions: Mapping[Value, Node]) -> LoopProgram:
        """The same program on other values; nothing is overwritten in place."""
        return replace(
            self,
            reductions=tuple([replace(r, value=names.get(r.value, r.value)) for r in self.reductions]),
            stores=tuple([Store(names[s.value], s.expr, s.index) for s in self.stores]),
            accumulators=tuple(
                [Accumulator(names[a.value], a.op, a.expr, a.kind, a.prefix, a.full) for a in self.accumulators]
            ),
            loads=tuple([names[v] for v in self.loads]),
            lookup_nodes={name: definitions[names[n.outputs[0]]] for name, n in self.lookup_nodes.items()},
            in_place={},
        )


class ExprBuilder:
    """Pulls values of a group into the expression DAG."""

    def __init__(self, group: Group, definitions: Mapping[Value, Node], inline: set[Value]) -> None:
        self.group = group
        self.definitions = definitions
        self.inline = inline
        self.members: dict[Value, Expr] = {}
        self.reductions: dict[Value, RowReduction] = {}
        self.loads: dict[Value, int] = {}
        self.lookup_nodes: dict[str, Node] = {}
        self.exprs = Expressions()

    def value(self, value: Value, index: Indices) -> Expr:
        """The element of a value at a position."""
        group = self.group
        if value in group.level:
            # Fusion has let it join because of this; a member that is read elsewhere would be another element.
            here = tuple(i.opened() for i in index)
            assert group.position[value] == here, f"{value} is read away from its position"
            return self.member(value)
        node = self.definitions.get(value)
        if node is None or value not in self.inline:
            return self.load(value, index)
        return self.through(node, index)

    def load(self, value: Value, index: Indices) -> Expr:
        slot = self.loads.setdefault(value, len(self.loads))
        return self.exprs.make(Load, value.type.dtype, positions=(_address(index, value.type.shape),), buffer=slot)

    def member(self, value: Value) -> Expr:
        found = self.members.get(value)
        if found is not None:
            return found
        node = self.definitions[value]
        if isinstance(node.op, Reduction):
            ended = self.reductions[value]
            expr: Expr = self.exprs.make(RowResult, value.type.dtype, phase=ended.expr.phase + 1, number=ended.number)
        else:
            expr = self.computed(node, self.group.position[value])
        self.members[value] = expr
        return expr

    def computed(self, node: Node, index: Indices) -> Expr:
        op = node.op
        if isinstance(op, Elementwise):
            args = tuple(self.value(x, broadcast_index(index, x.type.shape)) for x in node.inputs)
            return self._formula(op, args) if isinstance(op, Formula) else self._applied(node, args)
        if isinstance(op, Concatenate):
            return self._concatenate(node, index)
        if isinstance(op, SliceUpdate):
            return self._slice_update(node, index)
        if isinstance(op, RandomBits):
            return self._random(node, index)
        return self.through(node, index)

    def _applied(self, node: Node, args: tuple[Expr, ...]) -> Expr:
        return self.exprs.make(Applied, node.outputs[0].type.dtype, op=node.op, args=args)

    def _formula(self, formula: Formula, args: tuple[Expr, ...]) -> Expr:
        body = formula.body
        known = dict(zip(body.inputs, args, strict=True))
        for node in body.nodes:
            (value,) = node.outputs
            if isinstance(node.op, Source):
                known[value] = self.exprs.make(FromSource, value.type.dtype, op=node.op, positions=())
            else:
                known[value] = self._applied(node, tuple([known[v] for v in node.inputs]))
        return known[body.outputs[0]]

    def through(self, node: Node, index: Indices) -> Expr:
        """An element of a reindexing op, a source or a gather."""
        op = node.op
        if isinstance(op, Reindex):
            x = node.inputs[0]
            guards = _open_guards(op.valid(index, x.type))
            source = op.source_index(index, x.type)
            if not guards:
                return self.value(x, source)
            # Behind the guard the position is inside, so divisions further down may simplify by that (`Index.within`).
            source = tuple(i.within(n) for i, n in zip(source, x.type.shape, strict=True))
            fill = self.exprs.make(Number, x.type.dtype, digits=Number.digits_of(op.value))  # type: ignore[attr-defined]
            return self._guard(guards, self.value(x, source), fill)
        if isinstance(op, Elementwise):
            return self.computed(node, index)
        if isinstance(op, Source):
            here = tuple(i.opened() for i in index)
            return self.exprs.make(FromSource, node.outputs[0].type.dtype, op=op, positions=here)
        return self._gather(node, index)

    def _guard(self, guards: tuple[Guard, ...], inside: Expr, outside: Expr, end: str | None = None) -> Expr:
        return self.exprs.make(Guarded, inside.dtype, args=(inside, outside), guards=guards, end=end)

    def _gather(self, node: Node, index: Indices) -> Expr:
        lookups, data_index = gathered_index(node, index)
        renamed: dict[str, str] = {}
        for operand, where, extent, opaque in lookups:
            position = self.value(operand, where)
            lookup = self.exprs.make(LookUp, position.dtype, args=(position,), extent=extent)
            name = f"x{lookup.serial}"
            self.exprs.lookups[name] = lookup
            self.lookup_nodes.setdefault(name, node)
            renamed[opaque] = name
        return self.value(node.inputs[0], tuple(_rename(i, renamed) for i in data_index))

    def _concatenate(self, node: Node, index: Indices) -> Expr:
        assert isinstance(node.op, Concatenate)
        axis, starts = node.op.axis, node.op.offsets([piece.type for piece in node.inputs])
        pieces = [(x, start) for x, start in zip(node.inputs, starts, strict=False) if x.type.shape[axis] != 0]
        return self._chain(axis, pieces, index, True)

    def _chain(self, axis: int, pieces: Sequence[tuple[Value, int]], index: Indices, is_whole: bool) -> Expr:
        """Guards that ask for one piece after the other, or of many pieces for one run of them after the other.

        The chain's length is how deep the expression gets, and so what is written for it; of runs it is a logarithm.

        Args:
            is_whole: these are all pieces, not a run of them.
        """
        run = -(-len(pieces) // LONGEST_CHAIN)
        runs = [pieces[k : k + run] for k in range(0, len(pieces), run)]
        expr: Expr | None = None
        for place in reversed(range(len(runs))):
            of_run = runs[place]
            (piece, start), (end, after) = of_run[0], of_run[-1]
            extent = after - start + end.type.shape[axis]
            if len(of_run) > 1:
                inside = self._chain(axis, of_run, index, False)
            else:
                shifted = (index[axis] - start).within(extent)
                inside = self.value(piece, tuple(shifted if a == axis else i for a, i in enumerate(index)))
            guards = _open_guards(((index[axis], start, start + extent),))
            part = FIRST if place == 0 and is_whole else None
            if expr is None and guards:
                expr, part = self.exprs.make(Number, inside.dtype, digits=Number.digits_of(0)), LAST
            expr = inside if expr is None or not guards else self._guard(guards, inside, expr, part)
        assert expr is not None
        return expr

    def _slice_update(self, node: Node, index: Indices) -> Expr:
        base, piece = node.inputs
        op: Any = node.op
        steps = op.steps or (1,) * len(index)
        guards: list[Guard] = []
        inner: list[Index] = []
        for i, start, step, extent in zip(index, op.starts, steps, piece.type.shape, strict=True):
            shifted = i - start
            guards.append((shifted, 0, (extent - 1) * step + 1))
            if step != 1:
                guards.append((Index.of(Remainder(shifted, step)), 0, 1))
                shifted = Index.of(Quotient(shifted, step))
            inner.append(shifted.within(extent))
        kept = _open_guards(guards)
        outside = self.value(base, index)
        if not kept:
            return self.value(piece, tuple(inner))
        return self._guard(kept, self.value(piece, tuple(inner)), outside)

    def _random(self, node: Node, index: Indices) -> Expr:
        (key,) = node.inputs
        words = tuple(self.value(key, (Index((), k),)) for k in range(key.type.shape[0]))
        position = _address(index, node.outputs[0].type.shape)
        return self.exprs.make(RandomWord, node.outputs[0].type.dtype, op=node.op, args=words, positions=(position,))


@lru_cache(maxsize=16384)  # as many as `linearize` keeps
def _address(index: Indices, shape: Shape) -> Index:
    return linearize(index, shape).opened()


def _open_guards(guards: Iterable[Guard]) -> tuple[Guard, ...]:
    """The guards that do not always hold."""
    return tuple((index.opened(), low, high) for index, low, high in guards if not _always((index, low, high)))


def _always(guard: Guard) -> bool:
    index, low, high = guard
    if any(type(t) is Remainder for t, _ in index.terms):
        return False
    least, greatest = index.bounds()
    return surely_less(low - 1, least) and surely_less(greatest, high)


def _rename(index: Index, names: Mapping[str, str]) -> Index:
    def other(term: Term) -> Index | None:
        if isinstance(term, Opaque) and term.text in names:
            return Index.of(Opaque(names[term.text], term.extent))
        return None

    return index.replaced(other)


def build_program(
    group: Group, stored: Sequence[Value], definitions: Mapping[Value, Node], inline: set[Value]
) -> LoopProgram:
    """The loops of a group that stores ``stored`` (members of level FULL or ROW; OUT members are always stored)."""
    builder = ExprBuilder(group, definitions, inline)
    row_axes = group.row_axes if group.row_axes is not None else tuple(range(len(group.shape)))
    prefix = len([a for a in row_axes[: group.prefix or 0] if group.shape[a] != 1])
    stores: list[Store] = []
    accumulators: list[Accumulator] = []
    wanted = set(stored)
    for node in group.members:
        (value,) = node.outputs
        level = group.level[value]
        if level == OUT and isinstance(node.op, Concatenate):
            for part, position in parts_of(node, group, definitions):
                stores.append(Store(value, builder.member(part), linearize(position, value.type.shape)))
            continue
        if not isinstance(node.op, Reduction):
            builder.member(value)
        elif level == ROW:
            _add_reduction(builder, node)
        else:
            accumulators.append(_accumulator(builder, node, prefix))
        if value in wanted and level != OUT:
            position = group.canonical(value.type.shape, level)
            stores.append(Store(value, builder.member(value), linearize(position, value.type.shape)))
    return LoopProgram(
        rows=_variables(group, row_axes),
        inner=_variables(group, group.inner_axes),
        prefix=prefix,
        is_flat=group.row_axes is None,
        exprs=tuple(builder.exprs.made),
        reductions=tuple(builder.reductions.values()),
        stores=tuple(stores),
        accumulators=tuple(accumulators),
        loads=tuple(builder.loads),
        lookups=builder.exprs.lookups,
        lookup_nodes=builder.lookup_nodes,
    )


def _variables(group: Group, axes: Iterable[int]) -> tuple[LoopVariable, ...]:
    return tuple([t for a in axes for t, _ in group.axes[a].terms if isinstance(t, LoopVariable)])


def _add_reduction(builder: ExprBuilder, node: Node) -> None:
    (value,) = node.outputs
    expr, _ = _operand(builder, node)
    op = node.op
    if isinstance(op, Position) and type(expr) is Load:
        op, expr = _add_extreme(builder, node, op, expr)
    builder.reductions[value] = RowReduction(len(builder.reductions), value, op, expr)
    builder.member(value)


def _add_extreme(builder: ExprBuilder, node: Node, op: Position, element: Expr) -> tuple[Op, Expr]:
    """Fold the extreme for whose position a reduction asks; returns what finds that, in the pass behind."""
    (value,), (x,) = node.outputs, node.inputs
    best = Value(value.type.with_dtype(element.dtype), f"{value.name}.extreme")
    first = builder.reductions[best] = RowReduction(len(builder.reductions), best, op.extreme(op.axes), element)
    found = builder.exprs.make(RowResult, element.dtype, phase=element.phase + 1, number=first.number)
    index = builder.group.canonical(x.type.shape, FULL)
    return Amin(op.axes), place_if_extreme(builder.exprs, op, x.type, index, (element, found))


def _accumulator(builder: ExprBuilder, node: Node, prefix: int) -> Accumulator:
    (value,) = node.outputs
    expr, full = _operand(builder, node)
    kind = "all" if value.type.size == 1 else "col"
    return Accumulator(value, node.op, expr, kind, 0 if kind == "all" else prefix, full)


def _operand(builder: ExprBuilder, node: Node) -> tuple[Expr, bool]:
    """An element of what a reduction folds, and whether there is one per point of the domain, not per row."""
    (x,) = node.inputs
    group = builder.group
    full = prod(x.type.shape) == prod(group.shape)
    return builder.value(x, group.canonical(x.type.shape, FULL if full else ROW)), full
