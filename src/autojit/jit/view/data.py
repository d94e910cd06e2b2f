"""The whole page as plain data, of numbers, texts, lists and dictionaries alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autojit.jit.report import explain_function, memory_of
from autojit.jit.stages import assembly_of
from autojit.jit.verdict import size_places
from autojit.jit.view.graphs import Tables
from autojit.jit.view.programs import Programs, Texts

if TYPE_CHECKING:
    from autojit.jit.function import JitFunction
    from autojit.jit.step import CompiledStep
    from autojit.jit.timing import Timing

MOST_TEXT = 1_200_000  # characters of LLVM and assembly on a page, which stays below 3 MB with them
MOST_STAGE = 500_000  # of a program's schedule or PTX


def view_data(function: JitFunction, assembly: bool = True) -> dict[str, Any]:
    """What the page of a function's last step shows.

    Raises:
        TraceError: it has not been called yet.
    """
    step = function.last_step()
    tables, texts = Tables(), Texts(MOST_TEXT)
    programs = Programs(function, tables, texts, assembly_of if assembly else _no_assembly).all(step)
    for program in programs:
        for stage in ("schedule", "ptx"):
            program[stage] = _cut(program[stage], stage)
    return {
        "name": function.name,
        "signature": ", ".join(str(leaf.value.type) for leaf in step.capture.arguments if leaf.value is not None),
        "sizes": _sizes(function, step),
        "stats": {name: value for name, value in function.stats().items() if value},
        "memory": memory_of(step),
        "explain": str(explain_function(function, verbose=False)),
        "timing": _timing(function.timed),
        "programs": programs,
        "texts": texts.kept,
        "left_out": texts.left_out,
        **tables.as_data(),
    }


def _sizes(function: JitFunction, step: CompiledStep) -> dict[str, str]:
    """Symbols of sizes that are left open: where they are, and what they were in the last run."""
    last = step.segment.sizes()
    told = {symbol: ", ".join(places) for symbol, places in size_places(function, step).items()}
    return {symbol: f"{place} (last {last.get(symbol, '?')})" for symbol, place in told.items()}


def _no_assembly(text: str) -> str:
    return "view(assembly=True) has it"


def _cut(text: str, stage: str) -> str:
    if len(text) <= MOST_STAGE:
        return text
    return f"{text[:MOST_STAGE]}\n... {len(text) - MOST_STAGE} characters left out: step.show({stage!r}) prints all"


def _timing(timing: Timing | None) -> dict[str, Any] | None:
    if timing is None or not (timing.calls_ns or timing.kernels):
        return None
    return {"text": str(timing), "calls": len(timing.calls_ns), "by_kernels": timing.by_kernels}
