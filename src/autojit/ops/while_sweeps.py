"""WhileLoop: a loop whose number of steps is found while it runs, and its derivatives.

A derivative goes through the same steps again, the other way round, and reads what earlier steps left. How many there
are is known only while the op runs, so that such *tapes* have no type; they stay inside the op: it makes several
*sweeps* over the steps. The first sweep runs while its first carry is true; each later one goes through as many steps,
forwards or backwards. A step of a sweep may push values on tapes, and steps of later sweeps read them at their own
place. The derivative of such an op is again one: its sweeps, then their adjoints in the reverse order and direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.dtypes import DType, bool_
from autojit.core.errors import DTypeError
from autojit.core.ports import ports
from autojit.core.records import record
from autojit.core.types import TensorType
from autojit.ir.builder import GraphBuilder
from autojit.ir.graph import Graph, Value, replace
from autojit.ir.op import O, Operands, bind
from autojit.ir.text import parse_graph
from autojit.ops.base import tangent_sum
from autojit.ops.control_flow import (
    HoldsGraphs,
    check_type,
    evaluate_round,
    floats,
    flows,
    only_outputs,
    select,
    with_batch_axis,
)
from autojit.ops.elementwise_arithmetic import add
from autojit.ops.graph_op import as_tuple, batched_graph, filled, one_or_all, placed
from autojit.ops.reductions import AnyTrue
from autojit.ops.samples import Samples, draws
from autojit.ops.sources import zeros_like

__all__ = ["WhileLoop"]


@record
class Sweep:
    """One sweep: ``body`` takes (carries, values read from tapes ``reads``, constants) to (carries, pushed values).

    Tapes are numbered through all sweeps in the order of pushing; ``first_tape`` is the number of the sweep's first.
    """

    body: Graph
    carries: int
    reads: tuple[int, ...]
    reverse: bool
    first_tape: int

    @property
    def pushes(self) -> int:
        return len(self.body.outputs) - self.carries

    @property
    def first_constant(self) -> int:
        return self.carries + len(self.reads)


@record(eq=False)
class WhileLoop(HoldsGraphs):
    """Sweeps over steps, of which the first runs while its first carry is true.

    Operands are the first carries of every sweep, then what is the same for all steps, which every body takes. Results
    are the last carries of every sweep. Per sweep: its body, how many carries it has, the tapes it reads, whether it
    goes backwards. For the code generator: a loop that is ``kept`` under a number leaves its tapes; one that resumes
    that number has the same first sweeps, and need not make them again (0: neither).
    """

    bodies: tuple[Graph, ...]
    carries: tuple[int, ...]
    reads: tuple[tuple[int, ...], ...]
    reverse: tuple[bool, ...]
    kept: int = 0
    resumes: int = 0

    @property
    def n_outputs(self) -> int:
        return sum(self.carries)

    def graphs(self) -> tuple[Graph, ...]:
        return self.bodies

    def with_graphs(self, graphs: Sequence[Graph]) -> WhileLoop:
        return WhileLoop(tuple(graphs), self.carries, self.reads, self.reverse, self.kept, self.resumes)

    if TYPE_CHECKING:

        def silent(self) -> WhileLoop: ...

    def sweeps(self) -> list[Sweep]:
        """The sweeps in order."""
        found: list[Sweep] = []
        tape = 0
        for parts in zip(self.bodies, self.carries, self.reads, self.reverse, strict=True):
            found.append(Sweep(*parts, tape))
            tape += found[-1].pushes
        return found

    def tapes(self) -> list[TensorType]:
        """The type of one element of every tape."""
        return [v.type for body, count in zip(self.bodies, self.carries, strict=True) for v in body.outputs[count:]]

    def result_type(self, *types: TensorType) -> Any:
        if types[0].dtype is not bool_ or types[0].shape:
            raise DTypeError("while_loop: the first carry must be one bool: whether to go on", {"carry": types[0]})
        carried, constants = types[: self.n_outputs], types[self.n_outputs :]
        tapes, place = self.tapes(), 0
        for number, sweep in enumerate(self.sweeps()):
            mine = carried[place : place + sweep.carries]
            place += sweep.carries
            read = [tapes[k] for k in sweep.reads]
            self._check_operands(sweep.body, [*mine, *read, *constants], f"sweep {number}")
            for k, t in enumerate(mine):
                check_type(f"while_loop: carry {k} of sweep {number} after a step", sweep.body.outputs[k].type, t)
        return one_or_all(carried)

    def eager(self, *arrays: Any) -> Any:
        constants = arrays[self.n_outputs :]
        tapes: list[list[Any]] = []
        results: list[Any] = []
        place = steps = 0
        for number, sweep in enumerate(self.sweeps()):
            carried = list(arrays[place : place + sweep.carries])
            place += sweep.carries
            pushed: list[list[Any]] = [[] for _ in range(sweep.pushes)]
            order: Any = range(steps)
            if number == 0:
                order = _while_true(carried)
            elif sweep.reverse:
                order = reversed(order)
            for step in order:
                read = [tapes[k][step] for k in sweep.reads]
                found = evaluate_round(sweep.body, [*carried, *read, *constants], step)
                carried[:] = found[: sweep.carries]
                for tape, y in zip(pushed, found[sweep.carries :], strict=True):
                    tape.append(y)
                steps = steps + 1 if number == 0 else steps
            tapes += [tape[::-1] for tape in pushed] if sweep.reverse else pushed
            results += carried
        return one_or_all(results)

    # -- derivatives

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        made = _Backward(self.silent() if self.calls_out else self)
        for number in reversed(range(len(self.bodies))):
            made.add_adjoint(number)
        bars = as_tuple(y_bar, self.n_outputs)
        like, count = primals[0], self.n_outputs
        starts: list[Any] = []
        for origin in made.origins:
            if origin < count:
                starts += filled(like, [bars[origin]], [primals[origin].spec])
            else:
                starts.append(zeros_like(primals[origin]))
        op = made.finish()
        found = as_tuple(bind(op, *primals[:count], *starts, *primals[count:]), op.n_outputs)[count:]
        total: list[Any] = [None] * len(primals)
        for origin, bar in zip(made.origins, found, strict=True):
            total[origin] = tangent_sum(total[origin], bar)
        return tuple(total)

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        count = self.n_outputs
        first = self.sweeps()[0].first_constant
        constants = [k for k in floats(self.bodies[0].inputs[first:]) if tangents[count + k] is not None]
        smooth = [k for k, t in enumerate(self.tapes()) if t.dtype.is_differentiable]
        place = _doubled_places(self.sweeps(), smooth)
        bodies: list[Graph] = []
        reads: list[tuple[int, ...]] = []
        operands: list[Any] = []
        outputs: list[int | None] = []  # of which carry an output is the tangent
        start = 0
        for sweep in self.sweeps():
            carried = [k for k in floats(sweep.body.inputs) if k < sweep.carries]
            read = [tape for tape in sweep.reads if tape in smooth]
            bodies.append(_pushed_body(sweep, constants))
            reads.append((*(place[tape, False] for tape in sweep.reads), *(place[tape, True] for tape in read)))
            mine = range(start, start + sweep.carries)
            dots = [tangents[start + k] for k in carried]
            operands += [primals[k] for k in mine]
            operands += filled(primals[0], dots, [primals[start + k].spec for k in carried])
            outputs += [None] * sweep.carries + [start + k for k in carried]
            start += sweep.carries
        operands += [*primals[count:], *[tangents[count + k] for k in constants]]
        carries = tuple(len(b.outputs) - len(_pushes(s)) for b, s in zip(bodies, self.sweeps(), strict=True))
        op = WhileLoop(tuple(bodies), carries, tuple(reads), self.reverse)
        found = as_tuple(bind(op, *operands), op.n_outputs)
        pushed = [k for k, origin in enumerate(outputs) if origin is not None]
        return one_or_all(placed(count, [k for k in outputs if k is not None], [found[k] for k in pushed]))

    # -- batches

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        size = next(a.spec.shape[0] for a, flag in zip(args, batched, strict=True) if flag)
        carried, tapes = self._batched_flags(batched, masked=False)
        is_masked = carried[0]
        if is_masked:
            carried, tapes = self._batched_flags(batched, masked=True)
        count = self.n_outputs
        constants = batched[count:]
        bodies: list[Graph] = []
        start = first_tape = 0
        for sweep in self.sweeps():
            flags = [*carried[start : start + sweep.carries], *[tapes[k] for k in sweep.reads], *constants]
            leading = [
                *carried[start : start + sweep.carries],
                *[tapes[first_tape + k] for k in range(sweep.pushes)],
            ]
            bodies.append(batched_graph(sweep.body, flags, size, leading))
            start += sweep.carries
            first_tape += sweep.pushes
        operands = [
            with_batch_axis(x, size) if k < count and carried[k] and not batched[k] else x for k, x in enumerate(args)
        ]
        if is_masked:
            return self._masked(bodies, operands)
        found = as_tuple(bind(self.with_graphs(bodies), *operands), count)
        return one_or_all([y if carried[k] else with_batch_axis(y, size) for k, y in enumerate(found)])

    def _batched_flags(self, batched: Sequence[bool], masked: bool) -> tuple[list[bool], list[bool]]:
        """Which carries (of all sweeps) and which tapes differ along the batch; all do where elements end apart."""
        count = self.n_outputs
        carried = [masked or flag for flag in batched[:count]]
        tapes: list[bool] = []
        start = 0
        for sweep in self.sweeps():
            stop = start + sweep.carries
            while True:
                flags = [*carried[start:stop], *[tapes[k] for k in sweep.reads], *batched[count:]]
                reached = flows(sweep.body, flags)
                grown = [a or b for a, b in zip(carried[start:stop], reached, strict=False)]
                if grown == carried[start:stop]:
                    break
                carried[start:stop] = grown
            tapes += [masked or flag for flag in reached[sweep.carries :]]
            start = stop
        return carried, tapes

    def _masked(self, bodies: Sequence[Graph], operands: Sequence[Any]) -> Any:
        """Steps while any element goes on; elements that have ended keep their carries.

        A first carry says whether any element goes on; the mask of those that do is the next, and the last tape of the
        first sweep.
        """
        sweeps = self.sweeps()
        mask_tape = sweeps[0].pushes
        masked = [_masked_body(sweeps[0], bodies[0], is_first=True)]
        masked += [_masked_body(s, b, is_first=False) for s, b in zip(sweeps[1:], bodies[1:], strict=True)]
        reads: list[tuple[int, ...]] = [()]
        for sweep in sweeps[1:]:
            moved = [k if k < mask_tape else k + 1 for k in sweep.reads]
            reads.append((*moved, mask_tape))
        carries = (self.carries[0] + 1, *self.carries[1:])
        op = WhileLoop(tuple(masked), carries, tuple(reads), self.reverse)
        found = as_tuple(bind(op, bind(AnyTrue((0,)), operands[0]), *operands), op.n_outputs)
        return one_or_all(found[1:])

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if dtype.short not in ("f32", "f64"):
            return []
        t = dtype.short
        body = parse_graph(
            f"(go: bool[], n: i64[], x: {t}[3], w: {t}[3]) {{ a: {t}[3] = mul(x, w); b: {t}[3] = sin(a); "
            "one: i64[] = full[value=1, dtype=i64, shape=()](); m: i64[] = add(n, one); "
            "last: i64[] = full[value=3, dtype=i64, shape=()](); more: bool[] = lt(m, last); return more, m, b }"
        )
        operands = np.asarray(0), draws((3,), dtype, 1), draws((3,), dtype, 3) / 2
        op = WhileLoop((body,), (3,), ((),), (False,))
        return [(op, (np.asarray(go), *operands)) for go in (True, False)]


def _while_true(carried: list[Any]) -> Any:
    step = 0
    while carried[0]:
        yield step
        step += 1


def _pushes(sweep: Sweep) -> list[Value]:
    """What a sweep with tangents pushes: its own values, then the tangents of those that have one."""
    pushed = sweep.body.outputs[sweep.carries :]
    return [*pushed, *(v for v in pushed if v.type.dtype.is_differentiable)]


def _pushed_body(sweep: Sweep, constants: Sequence[int]) -> Graph:
    """A sweep's body with tangents: of its carries, of what it reads, of some ``constants``, and of what it gives."""
    body, count, first = sweep.body, sweep.carries, sweep.first_constant
    moving = [k for k in floats(body.inputs) if k < first or k - first in constants]
    pushed = ports.transforms.jvp(body, moving)
    primal = pushed.inputs[: len(body.inputs)]
    dots = dict(zip(moving, pushed.inputs[len(body.inputs) :], strict=True))
    values, y_dots = pushed.outputs[: len(body.outputs)], pushed.outputs[len(body.outputs) :]
    inputs = (
        *primal[:count], *(dots[k] for k in moving if k < count),
        *primal[count:first], *(dots[k] for k in moving if count <= k < first),
        *primal[first:], *(dots[k] for k in moving if k >= first),
    )  # fmt: skip
    smooth = floats(body.outputs)
    outputs = (
        *values[:count], *(y_dots[k] for k in moving if k < count),
        *values[count:], *(y_dots[k] for k in smooth if k >= count),
    )  # fmt: skip
    return Graph(inputs, pushed.nodes, outputs)


def _doubled_places(sweeps: Sequence[Sweep], kept: Sequence[int]) -> dict[tuple[int, bool], int]:
    """The new number of a tape, and of that of its tangents, when every sweep pushes its tangents after its values."""
    place: dict[tuple[int, bool], int] = {}
    for sweep in sweeps:
        mine = range(sweep.first_tape, sweep.first_tape + sweep.pushes)
        for tape in mine:
            place[tape, False] = len(place)
        for tape in mine:
            if tape in kept:
                place[tape, True] = len(place)
    return place


def _masked_body(sweep: Sweep, body: Graph, is_first: bool) -> Graph:
    """A batched body whose carries stay where its mask is false; the first sweep pushes the mask, others read it."""
    builder = GraphBuilder(nodes=body.nodes)
    mask = body.inputs[0] if is_first else Value(TensorType((body.inputs[0].type.shape[0],), bool_))
    old, new = body.inputs[: sweep.carries], body.outputs[: sweep.carries]
    tracer = builder.tracer
    chosen = [select(tracer(mask), tracer(b), tracer(a)).value for a, b in zip(old, new, strict=True)]
    pushes = body.outputs[sweep.carries :]
    if is_first:
        more = bind(AnyTrue((0,)), tracer(chosen[0])).value
        return Graph((Value(more.type), *body.inputs), tuple(builder.nodes), (more, *chosen, *pushes, mask))
    inputs = (*body.inputs[: sweep.first_constant], mask, *body.inputs[sweep.first_constant :])
    return Graph(inputs, tuple(builder.nodes), (*chosen, *pushes))


class _Backward:
    """The derivative of a loop under construction: its sweeps, which also push their carries, then their adjoints.

    ``origins`` names, per carry of an adjoint sweep, the operand whose cotangent it is.
    """

    def __init__(self, op: WhileLoop) -> None:
        self.sweeps = op.sweeps()
        self.bodies: list[Graph] = []
        self.carries: list[int] = list(op.carries)
        self.reverse: list[bool] = list(op.reverse)
        self.place: list[int] = []  # the new number of a tape
        self.history: list[list[int]] = []  # per sweep, the tapes of its carries
        self.tapes = 0
        self.origins: list[int] = []
        self.bars: dict[int, list[int]] = {}  # an old tape -> the tapes of its cotangents, one per sweep that read it
        self.starts: list[int] = [sum(op.carries[:k]) for k in range(len(op.carries))]
        self.first_constant = sum(op.carries)
        for sweep in self.sweeps:
            body, count = sweep.body, sweep.carries
            self.bodies.append(replace(body, outputs=(*body.outputs, *body.inputs[:count])))
            self.place += range(self.tapes, self.tapes + sweep.pushes)
            self.tapes += sweep.pushes
            self.history.append(list(range(self.tapes, self.tapes + count)))
            self.tapes += count
        self.reads: list[tuple[int, ...]] = [tuple(self.place[k] for k in sweep.reads) for sweep in self.sweeps]

    def add_adjoint(self, number: int) -> None:
        """The adjoint of a sweep; those of all later sweeps are there already."""
        sweep = self.sweeps[number]
        body, count, first = sweep.body, sweep.carries, sweep.first_constant
        wanted = floats(body.inputs)
        read_later = [k for k in range(sweep.pushes) if self.bars.get(sweep.first_tape + k)]
        kept = [k for k in floats(body.outputs) if k < count or k - count in read_later]
        adjoint = ports.transforms.adjoint(only_outputs(body, kept), wanted)
        primal, bars = adjoint.inputs[: len(body.inputs)], adjoint.inputs[len(body.inputs) :]
        found = dict(zip(wanted, adjoint.outputs, strict=True))
        moving = [k for k in wanted if k < count]
        constants = [k for k in wanted if k >= first]
        builder = GraphBuilder(nodes=adjoint.nodes)
        sums = [Value(primal[k].type) for k in constants]
        totals = [
            add(builder.tracer(total), builder.tracer(found[k])).value for total, k in zip(sums, constants, strict=True)
        ]
        parts, tape_reads, given = _summed_bars(
            [self.bars[sweep.first_tape + k - count] for k in kept if k >= count], bars[len(moving) :]
        )
        read = [k for k in wanted if count <= k < first]
        self.bodies.append(
            Graph(
                (*bars[: len(moving)], *sums, *primal[:first], *given, *primal[first:]),
                (*parts, *builder.nodes),
                (*(found[k] for k in moving), *totals, *(found[k] for k in read)),
            )
        )
        self.reads.append((*self.history[number], *(self.place[k] for k in sweep.reads), *tape_reads))
        self.carries.append(len(moving) + len(constants))
        self.reverse.append(not sweep.reverse)
        self.origins += [self.starts[number] + k for k in moving]
        self.origins += [self.first_constant + k - first for k in constants]
        for k in read:
            self.bars.setdefault(sweep.reads[k - count], []).append(self.tapes)
            self.tapes += 1

    def finish(self) -> WhileLoop:
        return WhileLoop(tuple(self.bodies), tuple(self.carries), tuple(self.reads), tuple(self.reverse))


def _summed_bars(tapes: Sequence[Sequence[int]], bars: Sequence[Value]) -> tuple[list[Any], list[int], list[Value]]:
    """(nodes, tapes to read, the values read) such that every cotangent in ``bars`` is the sum of what tapes hold."""
    builder = GraphBuilder()
    reads: list[int] = []
    given: list[Value] = []
    for mine, bar in zip(tapes, bars, strict=True):
        reads += mine
        if len(mine) == 1:
            given.append(bar)
            continue
        parts = [Value(bar.type) for _ in mine]
        given += parts
        total: Any = builder.tracer(parts[0])
        for part in parts[1:]:
            total = add(total, builder.tracer(part))
        last = builder.nodes.pop()
        builder.nodes.append(replace(last, outputs=(bar,)))
    return list(builder.nodes), reads, given
