"""What the compiler made of a graph, as text: graph, kernels, memory, plan; kernels' own texts under their digests.

The text names nothing that belongs to one process or machine: no address, no file, no line, no processor but `TARGET`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from autojit.backend import compiling_by, cpu_backend
from autojit.codegen.cpu.lower import lower
from autojit.codegen.lowered import Callback, LoweredStep, Nested, Offset, Scratch, Tape, Word
from autojit.codegen.target import HostTarget
from autojit.core.device import Device
from autojit.ir.graph import Graph, Node, Value
from autojit.ir.op import Op
from autojit.ir.printing import names_of, print_graph
from autojit.schedule.schedule import Schedule
from tests.on_cpu import optimize, schedule

TARGET = HostTarget("x86_64-unknown-linux-gnu", "x86-64-v3", "+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe", 32)
_SHARED = Scratch, Word, Tape  # memory that several arguments may name: which is which belongs to the plan
_SOURCE = re.compile(r"(?m)^( {6}\S.*?)  \S.*$")  # of a node in a schedule's text: the user's line


class Printer:
    """Texts of lowered steps; ``kernels`` collects the kernels they name: digest -> text."""

    def __init__(self) -> None:
        self.kernels: dict[str, str] = {}
        self._names: dict[Value, str] = {}
        self._marks: dict[int, str] = {}  # of memory by identity

    def step(self, lowered: LoweredStep) -> str:
        """Graph, schedule and plan of one lowered step, those of loop bodies behind it."""
        found = lowered.schedule
        self._names = dict(names_of(found.graph))
        self._marks = {}
        parts = [print_graph(found.graph), _SOURCE.sub(r"\1", str(found)), *self._memory(found), *self._plan(lowered)]
        parts += [_indented(self._inside(inner)) for inner in lowered.plans_inside()]
        return "\n".join(parts)

    def _inside(self, lowered: LoweredStep) -> str:
        kept = self._names, self._marks
        text = self.step(lowered)
        self._names, self._marks = kept
        return text

    def _memory(self, found: Schedule) -> Iterator[str]:
        for field in dataclasses.fields(found.memory):
            content = getattr(found.memory, field.name)
            if field.name == "machine":
                continue
            lines = [f"{self.show(k)}={self.show(v)}" for k, v in content.items()] if isinstance(content, dict) else ()
            yield f"memory {field.name}: {', '.join(sorted(lines)) if lines else self.show(content)}"

    def _plan(self, lowered: LoweredStep) -> Iterator[str]:
        for entry in lowered.entries:
            yield self.show(entry)
        for field in dataclasses.fields(lowered):
            if field.name not in ("schedule", "entries", "origins"):
                yield f"{field.name}: {self.show(getattr(lowered, field.name))}"

    def show(self, thing: Any) -> str:
        """Anything that stands in a plan."""
        if isinstance(thing, Value):
            return self._names.get(thing) or thing.name or "?"
        if isinstance(thing, Device):
            return str(thing)
        if isinstance(thing, str) and "\n" in thing:
            return self._kernel(thing)
        if isinstance(thing, tuple | list):
            return f"[{', '.join(self.show(x) for x in thing)}]"
        if isinstance(thing, frozenset | set):
            return f"{{{', '.join(sorted(self.show(x) for x in thing))}}}"
        if isinstance(thing, Mapping):
            return f"{{{', '.join(f'{self.show(k)}: {self.show(v)}' for k, v in thing.items())}}}"
        if isinstance(thing, Node | Callback):
            return f"<{thing.op if isinstance(thing, Node) else thing.kernel.node.op}>"
        if dataclasses.is_dataclass(thing) and not isinstance(thing, Op | type):
            return self._record(thing)
        return str(thing)

    def _record(self, thing: Any) -> str:
        shown = [
            f"{field.name}={self.show(getattr(thing, field.name))}"
            for field in dataclasses.fields(thing)
            if not (isinstance(thing, Nested) and field.name == "lowered") and not _says_nothing(thing, field)
        ]
        if isinstance(thing, _SHARED):
            mark = self._marks.setdefault(id(thing), f"#{len(self._marks)}")
            return f"{type(thing).__name__}{mark}({', '.join(shown)})"
        return f"{type(thing).__name__}({', '.join(shown)})"

    def _kernel(self, text: str) -> str:
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        self.kernels[digest] = text
        return f"kernel:{digest}"


def _says_nothing(thing: Any, field: Any) -> bool:
    """Whether a field that only devices and their runs need has its default."""
    return isinstance(thing, Scratch | Tape | Offset) and getattr(thing, field.name) == field.default


def lowered_for_target(graph: Graph) -> LoweredStep:
    """A graph through passes, schedule and lowering, without LLVM."""
    return lower(schedule(optimize(graph)), TARGET)


@contextmanager
def watched(printer: Printer) -> Iterator[list[str]]:
    """The text of each graph that is compiled inside, lowered for `TARGET` beside this machine."""
    texts: list[str] = []
    usual = cpu_backend()

    def lower_twice(found: Schedule, target: HostTarget) -> LoweredStep:
        texts.append(printer.step(lower(found, TARGET)))
        return usual.lower(found, target)

    with compiling_by(dataclasses.replace(usual, lower=lower_twice)):
        yield texts


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
