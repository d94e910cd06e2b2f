"""What a call of a step needs Python for: such steps have no native entry, as ``explain()`` tells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from autojit.ir.concrete import symbols_of
from autojit.jit.recorded_results import can_be_recorded, takes_long

if TYPE_CHECKING:
    from autojit.jit.step import CompiledStep


def _counts_results(step: CompiledStep) -> bool:
    """Whether sizes that the step counts are in its results: as extents, as numbers, or in views of arguments."""
    if step.counts_results is None:
        counted = set(step.segment.executable.counted)
        shown = (*(v.type for v in step.results.values), *((p.what, p.chain) for p in step.results.places))
        step.counts_results = bool(counted) and any(symbols_of(what) & counted for what in shown)
    return step.counts_results


def why_not_native(step: CompiledStep) -> str | None:
    """What a call of a step needs Python for; None: nothing."""
    return next((reason for reason, is_so in _needs(step) if is_so), None)


def _needs(step: CompiledStep) -> Iterator[tuple[str, object]]:
    """What may need Python, and whether it does."""
    arguments, trace = step.capture.arguments, step.trace
    numbers = [leaf.number_class for leaf in arguments if leaf.number_class]
    yield (
        "its results can be differentiated by the caller, and it changes tensors or is several ops",
        step.is_differentiable and not can_be_recorded(step),
    )
    yield (
        "its results can be differentiated by the caller, it changes tensors, and takes so long that this is no matter",
        step.is_differentiable and takes_long(step),
    )
    yield "it replaces tensors, gradients or histories that the caller sees", not step.effects.is_plain
    yield "it asks for gradients that histories outside may lead to", step.effects.asked.passes
    yield "it asks for attributes of arguments", trace.asks_attributes
    yield "sizes of its results are counted", _counts_results(step)
    yield "it asks where arguments begin in their storage", trace.offsets_asked
    yield "state is not in contiguous memory", step.segment.copies_in or step.segment.copies_out
    yield "ops are called back", step.compiled.lowered.computed_back
    yield "it takes numbers of NumPy that have fewer than 64 bits", any(not known.is_native for known in numbers)
    yield "arguments have gradients that it reads", any(leaf.grad_value is not None for leaf in arguments)
