"""The steps of a library: one function captured for several kinds of sizes, all with the same arguments and state.

A call names its open sizes; the first step whose conditions hold for them runs. SizeGuards are worked out by a size
program of their own (`runtime.size_program`), the same in every process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autojit.core.dtypes import float32
from autojit.core.records import record
from autojit.core.size_expressions import Expression, add, constant, scale, symbol
from autojit.core.size_recorder import SizeGuard
from autojit.core.sizes import expression_of, is_symbolic, size
from autojit.core.types import TensorType
from autojit.export.captured_parts import Parts
from autojit.export.refusals import ExportError
from autojit.export.step_state import StepState
from autojit.ir.concrete import is_open
from autojit.ir.graph import Value
from autojit.jit.step import CompiledStep
from autojit.runtime.library.instance_image import Address, InstanceImage
from autojit.runtime.library.interface import Copy, Guard, NumberRange, Variant
from autojit.runtime.library.library_code import LibraryCode
from autojit.runtime.library.plan_writer import ImagedMemory, ImagedSizes
from autojit.runtime.plan import PlanBuilder

MOST_THREADS = 64
"""That scratch is laid out for: address space alone, memory comes with the first use."""


@record(eq=False)
class OpenSize:
    """A size that a call names: the extent of an argument on an axis."""

    name: str
    argument: int
    axis: int
    least: int = 0
    most: int | None = None

    @property
    def expression(self) -> Expression:
        """It as an expression."""
        return symbol(self.name, 0)


@record(eq=False)
class Written:
    """A step in the image.

    Attributes:
        words: its row for the interface.
        conditions: on the sizes of a call, as text.
    """

    words: Variant
    conditions: list[str]


class VariantWriter:
    """Writes steps into one image, with one state."""

    def __init__(
        self, image: InstanceImage, code: LibraryCode, error: Address, state: StepState, sizes: Sequence[OpenSize]
    ) -> None:
        self.image = image
        self.code = code
        self.error = error
        self.state = state
        self.sizes = sizes
        self.tapes: list[Address] = []

    def write(self, parts: Parts, first_reporter: int) -> Written:
        """One step; its kernels that report are numbered from ``first_reporter`` on."""
        step = parts.step
        segment, lowered = step.segment, step.segment.compiled.lowered
        memory = ImagedMemory(lowered.reporters, self.image, self.code, self.error, MOST_THREADS, self.tapes)
        builder = PlanBuilder(lowered, self._fixed(parts), native=memory)
        n_inputs = len(segment.graph.inputs)
        block, table = self.image.zeros(1 + n_inputs + len(segment.graph.outputs))
        block[0] = builder.plan()
        for k in range(parts.n_results, segment.n_free):  # what the caller does not see
            block[1 + n_inputs + k] = self._kept(step, k)
        program = builder.sizes
        assert program is None or isinstance(program, ImagedSizes)
        renamed = self.renamed(parts)
        guards = self._guards(parts, renamed)
        asked = self._program_of(guards)
        known = [named.expression for named in self.sizes]
        places = [known.index(renamed[name]) for name in (() if program is None else program.symbols)]
        rooms = [] if program is None else program.rooms()
        ranges, copies = self._ranges(parts), self._copies(parts, n_inputs)
        words = Variant(
            table=table + 8,
            first_argument=8 * parts.first_input,
            first_result=8 * n_inputs,
            sizes=0 if program is None else program.place,
            n_symbols=len(places),
            symbols=self.image.words(places)[1],
            n_counted=0 if program is None else len(program.counted),
            before=0 if program is None else program.before,
            rooms=self.image.words(map(int, rooms))[1],
            n_rooms=len(rooms),
            guard_program=asked[0],
            guard_table=asked[1],
            guards=asked[2],
            n_guards=len(guards),
            ranges=self.image.words([w for row in ranges for w in row])[1],
            n_ranges=len(ranges),
            copies=self.image.words([w for row in copies for w in row])[1],
            n_copies=len(copies),
            first_reporter=first_reporter,
        )
        plain = {name: int(word) for name, word in zip(Variant.fields, words, strict=True)}
        return Written(words.but(**plain), [str(guard) for guard in guards])

    def _kept(self, step: CompiledStep, output: int) -> int:
        """Memory for a graph output that is no result."""
        kind = step.segment.graph.outputs[output].type
        if is_open(kind.shape):
            raise ExportError("export: a value that the function keeps has an open size", {"type": kind})
        return self.image.arena(kind.size_bytes)

    def _ranges(self, parts: Parts) -> list[NumberRange]:
        """What is known of numbers: of arguments, and of those that the function keeps."""
        found = []
        kept = {assigned.value: self.state.of_assigned(assigned).place for assigned in parts.assigned}
        pairs = [(leaf.value, leaf.number_class) for leaf in parts.step.capture.arguments if leaf.value is not None]
        for k, (value, known) in enumerate(pairs):
            if known is not None:
                place, number = kept.get(value, 0), max(k - parts.first_input, 0)
                found.append(NumberRange(argument=number, place=place, least=known.least, most=known.most))
        return found

    def _copies(self, parts: Parts, n_inputs: int) -> list[Copy]:
        """What is copied to the state when a run has succeeded."""
        return [
            Copy(
                source=n_inputs + assigned.result,
                target=self.state.of_assigned(assigned).place,
                bytes=assigned.value.type.size_bytes,
            )
            for assigned in parts.assigned
            if assigned.result is not None
        ]

    def _fixed(self, parts: Parts) -> dict[Value, int]:
        """Where state and gradients are."""
        step, segment = parts.step, parts.step.segment
        schedule = segment.compiled.lowered.schedule
        first = len(segment.graph.inputs) - len(segment.entries)
        places = {segment.graph.inputs.index(a.value): self.state.of_assigned(a).place for a in parts.assigned}
        fixed: dict[Value, int] = {schedule.graph.inputs[k]: place for k, place in places.items()}
        for k, entry in enumerate(segment.entries, first):
            fixed[schedule.graph.inputs[k]] = self.state.of_entry(entry).place
        at = segment.n_free
        for grad in step.effects.gradients.all:
            for _, array in grad.moving():
                fixed[schedule.outputs[at]] = self.state.of_gradient(grad, array).place
                at += 1
        for k, write in enumerate(segment.fixed, segment.n_free + segment.n_moving):
            assert write.entry is not None
            fixed[schedule.outputs[k]] = self.state.of_entry(write.entry).place
        return fixed

    # -- conditions

    def renamed(self, parts: Parts) -> dict[str, Expression]:
        """By a step's own names of sizes, those of a call."""
        found: dict[str, Expression] = {}
        for named in self.sizes:
            own = own_symbol(self._extent(parts, named))
            if own is not None:
                found.setdefault(own, named.expression)
        return found

    def _extent(self, parts: Parts, named: OpenSize) -> int:
        return parts.inputs[named.argument].type.shape[named.axis]

    def _guards(self, parts: Parts, renamed: Mapping[str, Expression]) -> list[SizeGuard]:
        found = [
            SizeGuard(guard.expression.substitute(renamed), guard.relation, guard.outcome)
            for guard, _ in parts.step.trace.size_guards
        ]
        for named in self.sizes:
            extent = self._extent(parts, named)
            if own_symbol(extent) is not None:
                least = max(expression_of(extent).lower_bound() or 0, named.least)
                found.append(SizeGuard(_difference(named.expression, constant(least)), "<", False))
                if named.most is not None:
                    found.append(SizeGuard(_difference(constant(named.most), named.expression), "<", False))
            wanted = expression_of(extent).substitute(renamed)
            if wanted != named.expression:
                found.append(SizeGuard(_difference(named.expression, wanted), "==", True))
        return found

    def _program_of(self, guards: Sequence[SizeGuard]) -> tuple[int, int, int]:
        """(the program that works conditions out, its table, the conditions); zeros where nothing is asked."""
        if not guards:
            return 0, 0, 0
        memory = ImagedMemory((), self.image, self.code, self.error, 1, self.tapes)
        program = ImagedSizes(memory, [TensorType(tuple(size(0, s.expression) for s in self.sizes), float32)], ())
        places = [program.expression(guard.expression) for guard in guards]
        address = program.finish()
        rows = [
            Guard(place=place, is_less=int(guard.relation == "<"), outcome=int(guard.outcome))
            for place, guard in zip(places, guards, strict=True)
        ]
        return address, program.place, self.image.words([w for row in rows for w in row])[1]


def own_symbol(extent: int) -> str | None:
    """The name of an extent that is a symbol and no more."""
    return str(extent) if is_symbolic(extent) and expression_of(extent).symbols() == (str(extent),) else None


def _difference(a: Expression, b: Expression) -> Expression:
    return add(a, scale(b, -1))
