"""A graph of operands of fixed extents as one function of NumPy calls: how eager mode computes small composites.

A small array costs NumPy 0.3 us, and a walk over nodes that looks operands up and files results another 0.7. So the
calls are written out as the text of a function, elementwise ops as their ufuncs: 0.1 us above NumPy's own time. Names
are taken again as soon as nobody reads them, so that arrays are freed as early as possible. Graphs that are alike but
for extents have one text, which is compiled once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import CodeType
from typing import Any, Protocol

import numpy as np

from autojit.ir.graph import Graph, Value
from autojit.ir.inline import live
from autojit.ir.op import Ndarray, Op
from autojit.ops.elementwise_base import Pointwise
from autojit.ops.graph_op import GraphOp, types_of
from autojit.ops.reductions import Sum
from autojit.ops.redundant_calls import is_ufunc, kept_sums, without_redundant_calls
from autojit.ops.shape import Pad

Rule = Callable[..., Any]


class Program:
    """A graph's NumPy calls, without those that no result needs; what sources give is computed once and for all.

    ``quick_from``: from how many elements on one of its elementwise ops has a faster way than NumPy's (0: none has).
    """

    def __init__(self, graph: Graph) -> None:
        passes = [node.op for node in graph.nodes if not node.op.is_view]
        self.only_spreads = len(passes) == 1 and isinstance(passes[0], Pad) and any(passes[0].interior)
        self.size = max((v.type.size for node in graph.nodes for v in (*node.inputs, *node.outputs)), default=0)
        self._graph = live(without_redundant_calls(graph))
        self.quick_from = min(
            [n.op.fast_from for n in graph.nodes if isinstance(n.op, Pointwise) and n.op.fast_from], default=0
        )
        self._chosen: dict[Callable[[Op], Rule | None], Rule] = {}
        self.run = self._function(_no_other)

    def run_by(self, choose: Callable[[Op], Rule | None], arrays: Sequence[Ndarray]) -> Any:
        """``run``, with the rules for ops that ``choose`` gives in place of theirs; None: their own."""
        return self.by(choose)(*arrays)

    def by(self, choose: Callable[[Op], Rule | None]) -> Rule:
        """The function that `run_by` calls."""
        return self._chosen.get(choose) or self._function(choose)

    def _function(self, choose: Callable[[Op], Rule | None]) -> Rule:
        """The function from arrays to the list of the graph's results, each in memory of its own."""
        run = self._chosen[choose] = function_of(Text(self._graph, choose))
        return run


def _no_other(op: Op) -> None:
    """The ops' own rules."""


_programs: dict[Any, Program] = {}
_PROGRAM_LIMIT = 4096


def program_of(op: GraphOp, arrays: Sequence[Ndarray]) -> Program:
    """The program of an op's graph for operands of these extents, kept for the next call."""
    key = (op, *[(a.shape, a.dtype) for a in arrays])
    program = _programs.get(key)
    if program is None:
        if len(_programs) >= _PROGRAM_LIMIT:
            _programs.clear()
        program = _programs[key] = Program(op.graph_of(types_of(arrays)))
    return program


class Written(Protocol):
    """The text of a function ``run``, and what it names ``k0``, ``k1``, ..."""

    constants: list[Any]

    def source(self) -> str: ...


def function_of(text: Written) -> Rule:
    """The function that a text is of."""
    space: dict[str, Any] = {f"k{number}": value for number, value in enumerate(text.constants)}
    exec(_compiled(text.source()), space)  # the only way to a function of a text
    run: Rule = space["run"]
    return run


class Text:
    """The text of a graph's function, and the rules and arrays that it names ``k0``, ``k1``, ..."""

    def __init__(self, graph: Graph, choose: Callable[[Op], Rule | None] = _no_other) -> None:
        owners: set[int] = set()  # the memories of what sources give
        self.constants: list[Any] = [np.asarray, _own, _owners, owners]
        self._choose = choose
        self._names: dict[Value, str] = {}
        self._free: list[str] = []
        self._count = 0
        self._lines: list[str] = []
        self._fresh: set[Value] = set()  # results that are all of a memory that nothing else has
        self._given = [self._named(v, "a") for v in graph.inputs]
        calls = self._calls(graph)
        self._last = {v: place for place, (_, inputs, _) in enumerate(calls) for v in inputs}
        kept = set(graph.outputs)
        for place, (op, inputs, outputs) in enumerate(calls):
            if not inputs and self._is_kept(outputs[0]):
                given = np.asarray(op.eager())
                owners.add(id(owner_of(given)))
                self._names[outputs[0]] = self._constant(given)
                continue
            self._lines.append(self._call(op, inputs, outputs))
            for v in {*inputs, *outputs}:
                is_read = self._last.get(v, -1) > place or v in kept
                if not is_read and self._names[v][0] == "v":
                    self._free.append(self._names[v])
        self._lines += self._returned(graph.outputs)

    def _is_kept(self, value: Value) -> bool:
        """Whether what a source gives is computed once and for all."""
        return True

    def _calls(self, graph: Graph) -> list[tuple[Op, tuple[Value, ...], tuple[Value, ...]]]:
        """The ops with their operands and results; a sum that keeps its axes is one."""
        kept = {node: later for node, later in kept_sums(graph).items() if self._choose(node.op) is None}
        self._keeping = {later.outputs[0] for later in kept.values()}
        rest = [node for node in graph.nodes if node not in set(kept.values())]
        return [(n.op, n.inputs, kept[n].outputs if n in kept else n.outputs) for n in rest]

    def source(self) -> str:
        return f"def run({', '.join(self._given)}):\n" + "".join(f"    {line}\n" for line in self._lines)

    def _constant(self, value: Any) -> str:
        self.constants.append(value)
        return f"k{len(self.constants) - 1}"

    def _named(self, value: Value, kind: str) -> str:
        if kind == "v" and self._free:
            name = self._free.pop()
        else:
            name = f"{kind}{self._count}"
            self._count += 1
        self._names[value] = name
        return name

    def _call(self, op: Op, inputs: Sequence[Value], outputs: Sequence[Value]) -> str:
        rule, is_fresh = _rule_of(op, self._choose(op))
        if outputs[0] in self._keeping:
            rule = _keeping_sum(op)
        call = f"{self._constant(rule)}({', '.join(self._names[v] for v in inputs)})"
        if len(outputs) == 1:
            (result,) = outputs
            if is_fresh:
                self._fresh.add(result)
            # a ufunc gives a number, not an array, for operands without axes; other rules may
            is_array = bool(result.type.shape)
            return f"{self._named(result, 'v')} = {call if is_array else f'k0({call})'}"
        names = ", ".join(self._named(v, "v") for v in outputs)
        return f"{names} = map(k0, {call})"

    def _returned(self, outputs: Sequence[Value]) -> list[str]:
        """The lines that give the results; those of ufuncs are asked for their order alone."""
        lines: list[str] = []
        places: list[str] = []
        unsure = [v for v in outputs if v not in self._fresh or outputs.count(v) > 1]
        if unsure:
            lines.append(f"taken = k2(k3, ({', '.join(self._given)},))")
            # a result that is of a ufunc may be what another is a view of
            lines += [f"taken.add(id({self._names[v]}))" for v in outputs if v not in unsure]
        for v in outputs:
            name = self._names[v]
            own = f"k1({name}, taken)" if v in unsure else f"{name} if {name}.flags.c_contiguous else {name}.copy()"
            places.append(own)
        return [*lines, f"return [{', '.join(places)}]"]


def _rule_of(op: Op, other: Rule | None) -> tuple[Rule, bool]:
    """What computes an op, and whether it is a function of NumPy's whose result is in memory of its own."""
    if other is not None:
        return other, False
    if isinstance(op, Pointwise) and type(op).eager is Pointwise.eager and not op.is_view:
        return type(op).ufunc, is_ufunc(op) or type(op).ufunc is np.where
    return op.eager, False


def _keeping_sum(op: Op) -> Rule:
    """`Sum.eager` of floats, with the axes kept."""
    assert isinstance(op, Sum)
    axes = op.axes
    return lambda x: _add_up(x, axes, x.dtype, None, True)


_add_up: Callable[..., Any] = np.add.reduce  # NumPy's own annotations do not have None in its positions


@lru_cache(maxsize=1024)
def _compiled(source: str) -> CodeType:
    return compile(source, _FILE, "exec")


_FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "<numpy program>")  # in autojit: no line of a user's


def _owners(known: set[int], arrays: Sequence[Any]) -> set[int]:
    """Which memories are known, and those that arrays that were given are in."""
    return known.union([id(owner_of(array)) for array in arrays])


def _own(found: Ndarray, taken: set[int]) -> Ndarray:
    """The array itself where it is all of a memory that nothing else has taken, else a copy."""
    owner = owner_of(found)
    if id(owner) in taken or owner.nbytes != found.nbytes or not found.flags.c_contiguous:
        return found.copy()
    taken.add(id(owner))
    return found


def owner_of(array: Any) -> Any:
    """Whose memory it is."""
    while type(array.base) is np.ndarray:
        array = array.base
    return array
