"""LoopProgram: a fusion group as loops over expressions, for any target.

A group becomes: row loops; per row a sequence of *phases*, each one pass over the inner loops; reductions over the
inner loops separate the phases. Expressions form a hash-consed DAG whose leaves are loads at index expressions.

- ``row`` expressions (no inner variable) are computed once per row;
- an expensive expression needed again in a later phase is kept in a row-sized scratch (``cached``), a cheap one is
  computed again;
- reductions over rows accumulate into ``accumulators`` (per inner position, or one number).

How to read: ``Expr`` and ``ExprBuilder`` (pull values into the DAG), ``LoopProgram`` (the result), ``build_program``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeVar, cast

from autojit.core.dtypes import DType
from autojit.core.sizes import surely_less
from autojit.ir.graph import Node, Value
from autojit.ir.index import Index, LoopVariable, Opaque, Quotient, Remainder, linearize
from autojit.ir.op import Op
from autojit.ops.base import Elementwise, Reduction, Reindex, Source
from autojit.ops.formula import Formula
from autojit.ops.joining import Concatenate
from autojit.ops.random import RandomBits
from autojit.ops.shape import SliceUpdate
from autojit.schedule.expressions import (
    FIRST,
    LAST,
    Applied,
    Expr,
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
from autojit.schedule.pull import Indices, broadcast_index, gathered_index

E = TypeVar("E", bound=Expr)

LONGEST_CHAIN = 32  # guards; nested twice they tell a thousand pieces apart


@dataclass
class RowReduction:
    """A reduction over the inner loops: ``value`` is ``expr`` folded with ``op`` where the phase of ``expr`` ends.

    A `RowResult` names it by its ``number``, the place among the program's reductions.
    """

    number: int
    value: Value
    op: Op
    expr: Expr


@dataclass
class Accumulator:
    """A reduction over rows. ``kind``: "col" (one number per inner position) or "all"; ``prefix`` rows are kept."""

    value: Value
    op: Op
    expr: Expr
    kind: str
    prefix: int
    full: bool  # the operand has one element per point of the domain, not per row


@dataclass
class Store:
    """A FULL or ROW value written to its buffer."""

    value: Value
    expr: Expr
    index: Index


class Form:
    """What programs that differ in their values only have in common; ``texts`` is what was printed for them."""

    __slots__ = ("texts",)

    def __init__(self) -> None:
        self.texts: dict[Any, Any] = {}


@dataclass
class LoopProgram:
    """Everything a target needs to print one kernel.

    Programs that differ in their values only are of one ``form`` and share their expressions: when it is settled, none
    changes any more but for what is overwritten in place.
    """

    rows: list[LoopVariable]
    inner: list[LoopVariable]
    prefix: int  # how many leading row loops column reductions keep
    reductions: list[RowReduction] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    is_flat: bool = False  # no reduction asked for a split: rows and inner are the printer's choice
    accumulators: list[Accumulator] = field(default_factory=list)
    loads: list[Value] = field(default_factory=list)
    lookups: dict[str, Expr] = field(default_factory=dict)  # opaque index name -> the run-time index
    lookup_nodes: dict[str, Node] = field(default_factory=dict)  # opaque index name -> the gather that looks up
    exprs: list[Expr] = field(default_factory=list)
    in_place: dict[Value, int] = field(default_factory=dict)  # stored value -> the load whose buffer it overwrites
    form: Form = field(default_factory=Form)

    @property
    def row_count(self) -> int:
        return prod(v.extent for v in self.rows)

    @property
    def inner_count(self) -> int:
        return prod(v.extent for v in self.inner)

    def roots(self) -> list[Expr]:
        return [
            *(r.expr for r in self.reductions),
            *(s.expr for s in self.stores),
            *(a.expr for a in self.accumulators),
        ]

    def renamed(self, names: Mapping[Value, Value], definitions: Mapping[Value, Node]) -> LoopProgram:
        """The same program on other values; nothing is overwritten in place yet."""
        return LoopProgram(
            rows=self.rows,
            inner=self.inner,
            prefix=self.prefix,
            reductions=[RowReduction(r.number, names[r.value], r.op, r.expr) for r in self.reductions],
            stores=[Store(names[s.value], s.expr, s.index) for s in self.stores],
            is_flat=self.is_flat,
            accumulators=[
                Accumulator(names[a.value], a.op, a.expr, a.kind, a.prefix, a.full) for a in self.accumulators
            ],
            loads=[names[v] for v in self.loads],
            lookups=self.lookups,
            lookup_nodes={name: definitions[names[n.outputs[0]]] for name, n in self.lookup_nodes.items()},
            exprs=self.exprs,
            form=self.form,
        )


class ExprBuilder:
    """Pulls values of a group into the expression DAG."""

    def __init__(self, group: Group, definitions: Mapping[Value, Node], inline: set[Value]) -> None:
        self.group = group
        self.definitions = definitions
        self.inline = inline
        self.interned: dict[Any, Expr] = {}
        self.members: dict[Value, Expr] = {}
        self.reductions: dict[Value, int] = {}  # value -> number
        self.loads: dict[Value, int] = {}
        self.lookups: dict[str, Expr] = {}
        self.lookup_nodes: dict[str, Node] = {}
        self.exprs: list[Expr] = []

    def _intern(self, kind: type[E], dtype: DType, **parts: Any) -> E:
        """The expression of these parts: the known one if there is one."""
        key = (kind, dtype.short, *parts.values())
        found = self.interned.get(key)
        if found is None:
            found = self.interned[key] = kind(len(self.exprs), dtype, **parts)
            self.exprs.append(found)
        return cast(E, found)

    def value(self, value: Value, index: Indices) -> Expr:
        """The element of a value at a position."""
        group = self.group
        if value in group.level:
            here = tuple(i.opened() for i in index)
            assert group.position[value] == here, f"{value} is read away from its position"
            return self.member(value)
        node = self.definitions.get(value)
        if node is None or value not in self.inline:
            return self.load(value, index)
        return self.through(node, index)

    def load(self, value: Value, index: Indices) -> Expr:
        slot = self.loads.setdefault(value, len(self.loads))
        return self._intern(
            Load, value.type.dtype, buffer=slot, positions=(linearize(index, value.type.shape).opened(),)
        )

    def member(self, value: Value) -> Expr:
        found = self.members.get(value)
        if found is not None:
            return found
        node = self.definitions[value]
        if isinstance(node.op, Reduction):
            expr: Expr = self._intern(RowResult, value.type.dtype, number=self.reductions[value])
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
        return self._intern(Applied, node.outputs[0].type.dtype, op=node.op, args=args)

    def _formula(self, formula: Formula, args: tuple[Expr, ...]) -> Expr:
        body = formula.body
        known = dict(zip(body.inputs, args, strict=True))
        for node in body.nodes:
            (value,) = node.outputs
            if isinstance(node.op, Source):
                known[value] = self._intern(FromSource, value.type.dtype, op=node.op, positions=())
            else:
                known[value] = self._applied(node, tuple([known[v] for v in node.inputs]))
        return known[body.outputs[0]]

    def through(self, node: Node, index: Indices) -> Expr:
        """An element behind a reindexing op, a source or a gather."""
        op = node.op
        if isinstance(op, Reindex):
            (x,) = node.inputs
            guards = _open_guards(op.valid(index, x.type))
            source = op.source_index(index, x.type)
            if not guards:
                return self.value(x, source)
            source = tuple(i.within(n) for i, n in zip(source, x.type.shape, strict=True))
            fill = self._intern(Number, x.type.dtype, digits=Number.digits_of(op.fill))  # type: ignore[attr-defined]
            return self._guard(guards, self.value(x, source), fill)
        if isinstance(op, Elementwise):
            return self.computed(node, index)
        if isinstance(op, Source):
            here = tuple(i.opened() for i in index)
            return self._intern(FromSource, node.outputs[0].type.dtype, op=op, positions=here)
        return self._gather(node, index)

    def _guard(self, guards: tuple[Guard, ...], inside: Expr, outside: Expr, end: str | None = None) -> Expr:
        return self._intern(Guarded, inside.dtype, args=(inside, outside), guards=guards, end=end)

    def _gather(self, node: Node, index: Indices) -> Expr:
        lookups, data_index = gathered_index(node, index)
        renamed: dict[str, str] = {}
        for operand, where, extent, opaque in lookups:
            position = self.value(operand, where)
            lookup = self._intern(LookUp, position.dtype, args=(position,), extent=extent)
            name = f"x{lookup.serial}"
            self.lookups[name] = lookup
            self.lookup_nodes.setdefault(name, node)
            renamed[opaque] = name
        return self.value(node.inputs[0], tuple(_rename(i, renamed) for i in data_index))

    def _concatenate(self, node: Node, index: Indices) -> Expr:
        axis = node.op.axis  # type: ignore[attr-defined]
        pieces: list[tuple[Value, int]] = []
        total = 0
        for piece in node.inputs:
            if piece.type.shape[axis] != 0:
                pieces.append((piece, total))
            total += piece.type.shape[axis]
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
                expr, part = self._intern(Number, inside.dtype, digits=Number.digits_of(0)), LAST
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
        position = linearize(index, node.outputs[0].type.shape).opened()
        return self._intern(RandomWord, node.outputs[0].type.dtype, op=node.op, args=words, positions=(position,))


def _terms(index: Index) -> Iterable[Any]:
    for term, _ in index.terms:
        yield term
        if isinstance(term, Quotient | Remainder):
            yield from _terms(term.base)


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
    total = Index((), index.offset)
    for term, coefficient in index.terms:
        new = Opaque(names[term.text], term.extent) if isinstance(term, Opaque) and term.text in names else term
        total = total + Index.of(new) * coefficient
    return total


def build_program(
    group: Group, stored: Sequence[Value], definitions: Mapping[Value, Node], inline: set[Value]
) -> LoopProgram:
    """The loops of a group that stores ``stored`` (members of level FULL or ROW; OUT members are always stored)."""
    builder = ExprBuilder(group, definitions, inline)
    row_axes = group.row_axes if group.row_axes is not None else tuple(range(len(group.shape)))
    program = LoopProgram(
        rows=_variables(group, row_axes),
        inner=_variables(group, group.inner_axes),
        is_flat=group.row_axes is None,
        prefix=len([a for a in row_axes[: group.prefix or 0] if group.shape[a] != 1]),
    )
    wanted = set(stored)
    for node in group.members:
        (value,) = node.outputs
        level = group.level[value]
        if isinstance(node.op, Reduction):
            _add_reduction(program, builder, group, node, level)
        else:
            builder.member(value)
        if value in wanted and level != OUT:
            position = group.canonical(value.type.shape, level)
            program.stores.append(Store(value, builder.member(value), linearize(position, value.type.shape)))
    program.loads = list(builder.loads)
    program.lookups = builder.lookups
    program.lookup_nodes = builder.lookup_nodes
    program.exprs = builder.exprs
    return program


def _variables(group: Group, axes: Iterable[int]) -> list[LoopVariable]:
    return [t for a in axes for t, _ in group.axes[a].terms if isinstance(t, LoopVariable)]


def _add_reduction(program: LoopProgram, builder: ExprBuilder, group: Group, node: Node, level: str) -> None:
    (x,) = node.inputs
    (value,) = node.outputs
    full = prod(x.type.shape) == prod(group.shape)
    operand_level = FULL if full else ROW
    expr = builder.value(x, group.canonical(x.type.shape, operand_level))
    if level == ROW:
        number = builder.reductions[value] = len(program.reductions)
        program.reductions.append(RowReduction(number, value, node.op, expr))
        builder.member(value)
        return
    kind = "all" if value.type.size == 1 else "col"
    program.accumulators.append(Accumulator(value, node.op, expr, kind, 0 if kind == "all" else program.prefix, full))
