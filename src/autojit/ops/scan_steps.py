"""Scan: a loop with a known number of steps, over slices of stacked operands.

The derivative is a scan the other way round. It reads the values the carries had at every step, which the forward scan
hands out stacked; whatever else of a step both compute, the compiler's ``share_steps`` pass hands over in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autojit.core.dtypes import DType
from autojit.core.errors import AutojitError, ShapeError
from autojit.core.ports import ports
from autojit.core.records import record
from autojit.core.types import TensorType
from autojit.ir.builder import GraphBuilder
from autojit.ir.calls_out import without_calls
from autojit.ir.concrete import is_open, symbols_of
from autojit.ir.graph import Graph, Value, replace
from autojit.ir.op import O, Operands, bind
from autojit.ir.text import parse_graph
from autojit.ops.control_flow import (
    HoldsGraphs,
    check_type,
    evaluate_round,
    floats,
    flows,
    with_batch_axis,
)
from autojit.ops.elementwise_arithmetic import add
from autojit.ops.graph_op import as_tuple, batched_graph, filled, one_or_all, placed
from autojit.ops.numpy_program import Program
from autojit.ops.samples import Samples, draws
from autojit.ops.shape import permute

__all__ = ["Scan"]

_MANY_ROUNDS = 4  # writing the calls of a body out costs as much as some rounds by the interpreter


@record(eq=False)
class Scan(HoldsGraphs):
    """``length`` steps of ``body``: (carries, slices, constants) to (carries, results); results come out stacked.

    Operands are the first carries, the stacks whose slices along axis 0 the steps read, and what is the same for all
    steps. Results are the last carries, then a stack per result of a step. ``reverse``: the last slice comes first.
    """

    body: Graph
    carries: int
    stacks: int
    length: int
    reverse: bool

    @property
    def n_outputs(self) -> int:
        return len(self.body.outputs)

    def graphs(self) -> tuple[Graph, ...]:
        return (self.body,)

    def with_graphs(self, graphs: Sequence[Graph]) -> Scan:
        (body,) = graphs
        return Scan(body, self.carries, self.stacks, self.length, self.reverse)

    def result_type(self, *types: TensorType) -> Any:
        first = self.carries
        stacked = range(first, first + self.stacks)
        for k in stacked:
            if types[k].ndim == 0 or types[k].shape[0] != self.length:
                raise ShapeError(f"scan: stack {k - first} does not have {self.length} slices", {"stack": types[k]})
        slices = [t.drop((0,)) if k in stacked else t for k, t in enumerate(types)]
        self._check_operands(self.body, slices, "the body")
        outputs = [v.type for v in self.body.outputs]
        for k in range(first):
            check_type(f"scan: carry {k} after a step", outputs[k], types[k])
        stacks = [t.with_shape((self.length, *t.shape)) for t in outputs[first:]]
        return one_or_all([*outputs[:first], *stacks])

    def eager(self, *arrays: Any) -> Any:
        first, rest = self.carries, self.carries + self.stacks
        carried, stacks, constants = list(arrays[:first]), arrays[first:rest], arrays[rest:]
        made = [v.type for v in self.body.outputs[first:]]
        results = [np.empty((self.length, *t.shape), t.dtype.numpy) for t in made]
        compute = self._round()
        for step in reversed(range(self.length)) if self.reverse else range(self.length):
            found = compute([*carried, *[np.asarray(x[step]) for x in stacks], *constants], step)
            carried = list(found[:first])
            for stack, y in zip(results, found[first:], strict=True):
                stack[step] = y
        return one_or_all([*carried, *results])

    def _program(self) -> Program | None:
        """The body's NumPy calls, kept with the op; None where sizes are open, or it does more than compute."""
        found: Program | None = self.__dict__.get("_calls")
        does_more = self.calls_out or any(node.is_kept for node in self.body.nodes)
        if found is None and not does_more and not _has_open_sizes(self.body):
            found = Program(self.body)
            object.__setattr__(self, "_calls", found)
        return found

    def _round(self) -> Callable[[Sequence[Any], int], Sequence[Any]]:
        """What computes one round: the body's NumPy calls written out if there are enough rounds to pay for that."""
        program = self._program() if self.length >= _MANY_ROUNDS else None
        if program is None:
            return lambda given, step: evaluate_round(self.body, given, step)

        def compute(given: Sequence[Any], step: int) -> Sequence[Any]:
            try:
                found: Sequence[Any] = program.run(*given)
            except AutojitError:  # the interpreter says where
                return evaluate_round(self.body, given, step)
            return found

        return compute

    # -- derivatives

    def histories(self, operands: Operands) -> tuple[Any, ...]:
        """The values that the carries have at the beginning of every step, stacked."""
        body = without_calls(self.body)
        body = replace(body, outputs=(*self.body.outputs, *self.body.inputs[: self.carries]))
        found = bind(self.with_graphs([body]), *operands)
        return as_tuple(found, len(body.outputs))[self.n_outputs :]

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        body, first, rest = self.body, self.carries, self.carries + self.stacks
        bars = as_tuple(y_bar, self.n_outputs)
        kept = [k for k in floats(body.outputs) if k < first or bars[k] is not None]
        wanted = floats(body.inputs)
        if not wanted or not kept:
            return (None,) * len(primals)
        adjoint = ports.transforms.adjoint(replace(body, outputs=tuple(body.outputs[k] for k in kept)), wanted)
        moving = [k for k in wanted if k < first]
        slices = [k for k in wanted if first <= k < rest]
        constants = [k for k in wanted if k >= rest]
        backward = _backward_body(adjoint, len(body.inputs), wanted, first, rest)
        like = primals[0]
        starts = filled(like, [bars[k] for k in moving], [body.inputs[k].type for k in moving])
        sums = [like._literal(0, body.inputs[k].type) for k in constants]
        stacks = [*self.histories(primals), *primals[first:rest], *[bars[k] for k in kept if k >= first]]
        scan = Scan(backward, len(moving) + len(constants), len(stacks), self.length, not self.reverse)
        found = as_tuple(bind(scan, *starts, *sums, *stacks, *primals[rest:]), scan.n_outputs)
        return placed(len(primals), [*moving, *constants, *slices], found)

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        body, first, rest = self.body, self.carries, self.carries + self.stacks
        moving = [k for k in floats(body.inputs) if k < first or tangents[k] is not None]
        outputs = floats(body.outputs)
        if not moving or not outputs:
            return None
        pushed = ports.transforms.jvp(body, moving)
        count = len(body.inputs)
        primal, dots = pushed.inputs[:count], dict(zip(moving, pushed.inputs[count:], strict=True))
        carried = [dots[k] for k in moving if k < first]
        slices = [*primal[:rest], *(dots[k] for k in moving if first <= k < rest)]
        constants = [*primal[rest:], *(dots[k] for k in moving if k >= rest)]
        forward = Graph(
            (*carried, *slices, *constants), pushed.nodes, tuple(pushed.outputs[self.n_outputs + k] for k in outputs)
        )
        like = primals[0]
        starts = filled(like, [tangents[k] for k in moving if k < first], [v.type for v in carried])
        stacks = [*self.histories(primals), *primals[first:rest], *[tangents[k] for k in moving if first <= k < rest]]
        fixed = [*primals[rest:], *[tangents[k] for k in moving if k >= rest]]
        scan = Scan(forward, len(starts), len(stacks), self.length, self.reverse)
        found = as_tuple(bind(scan, *starts, *stacks, *fixed), scan.n_outputs)
        return one_or_all(placed(self.n_outputs, outputs, found))

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        first, rest = self.carries, self.carries + self.stacks
        size = next(a.spec.shape[0] for a, flag in zip(args, batched, strict=True) if flag)
        flags = list(batched)
        while True:
            reached = flows(self.body, flags)
            grown = [a or b for a, b in zip(flags[:first], reached, strict=False)]
            if grown == flags[:first]:
                break
            flags[:first] = grown
        leading = [*flags[:first], *reached[first:]]
        operands = list(args)
        for k in range(first):
            if flags[k] and not batched[k]:
                operands[k] = with_batch_axis(args[k], size)
        for k in range(first, rest):
            if flags[k]:  # the axis of the steps stays the first
                operands[k] = permute(args[k], (1, 0, *range(2, args[k].spec.ndim)))
        scan = self.with_graphs([batched_graph(self.body, flags, size, leading)])
        results = list(as_tuple(bind(scan, *operands), self.n_outputs))
        for k, y in enumerate(results):
            if not leading[k]:
                results[k] = with_batch_axis(y, size)
            elif k >= first:
                results[k] = permute(y, (1, 0, *range(2, y.spec.ndim)))
        return one_or_all(results)

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if dtype.short not in ("f32", "f64"):
            return []
        t = dtype.short
        body = parse_graph(
            f"(c: {t}[3], n: i64[], x: {t}[3], w: {t}[3]) {{ a: {t}[3] = mul(c, w); b: {t}[3] = add(a, x); "
            f"d: {t}[3] = sin(b); e: {t}[3] = mul(d, x); one: i64[] = full[value=1, dtype=i64, shape=()](); "
            f"m: i64[] = add(n, one); return d, m, e, n }}"
        )
        operands = draws((3,), dtype, 1), np.asarray(0), draws((4, 3), dtype, 2), draws((3,), dtype, 3) / 4
        found: list[Any] = [(Scan(body, 2, 1, 4, reverse), operands) for reverse in (False, True)]
        alone = parse_graph(f"(c: {t}[3], x: {t}[3]) {{ a: {t}[3] = mul(c, x); b: {t}[3] = sin(a); return b }}")
        mapped = parse_graph(f"(x: {t}[3], w: {t}[3]) {{ a: {t}[3] = mul(x, w); b: {t}[3] = exp(a); return b }}")
        found.append((Scan(alone, 1, 1, 4, False), (operands[0], operands[2])))
        found.append((Scan(mapped, 0, 1, 4, False), operands[2:]))
        return found


def _has_open_sizes(graph: Graph) -> bool:
    values = (*graph.inputs, *[v for node in graph.nodes for v in node.outputs])
    return any(is_open(v.type.shape) for v in values) or any(symbols_of(node.op) for node in graph.nodes)


def _backward_body(adjoint: Graph, inputs: int, wanted: Sequence[int], first: int, rest: int) -> Graph:
    """The step of the backward scan.

    ``adjoint`` takes the ``inputs`` values of a step, the cotangents of its differentiable carries and of results, and
    gives those of the inputs ``wanted``. The step carries the cotangents of carries and of constants, whose shares it
    adds up, and gives those of slices.
    """
    primal, bars = adjoint.inputs[:inputs], adjoint.inputs[inputs:]
    found = dict(zip(wanted, adjoint.outputs, strict=True))
    moving = [k for k in wanted if k < first]
    constants = [k for k in wanted if k >= rest]
    builder = GraphBuilder(nodes=adjoint.nodes)
    sums = [Value(primal[k].type) for k in constants]
    totals = [
        add(builder.tracer(total), builder.tracer(found[k])).value for total, k in zip(sums, constants, strict=True)
    ]
    slices = [found[k] for k in wanted if first <= k < rest]
    return Graph(
        (*bars[: len(moving)], *sums, *primal[:rest], *bars[len(moving) :], *primal[rest:]),
        tuple(builder.nodes),
        (*(found[k] for k in moving), *totals, *slices),
    )
