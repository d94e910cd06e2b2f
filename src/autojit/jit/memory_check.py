"""Checked builds (``AUTOJIT_CHECK=1``): that a step may write what it writes, before a call through Python runs it
and after native code has taken a call.

docs/design/recycled_memory.md states the rule that is looked at here. It holds by the construction of
``step_gradients`` and of the native entry's rings; a failure is a defect of autojit, so these are assertions.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from autojit.jit.segment import overlapping
from autojit.tensor.tensor import StepGradient, Tensor

if TYPE_CHECKING:
    from autojit.core.device_array import Array
    from autojit.jit.step import CompiledStep


def check_memory(step: CompiledStep, arrays: Sequence[Any]) -> None:
    """AssertionError if a step with these arrays as arguments would write memory that it must not.

    Time O(n log n) for n tensors of the step.
    """
    written = [(entry.array, True) for entry, _ in step.effects.written]
    moving = [(array, True) for _, array in step.effects.gradients.moving()]
    known = {id(array) for array, _ in written}
    read = [entry.array for entry in step.segment.entries if id(entry.array) not in known]
    places = [*written, *moving, *((array, False) for array in (*read, *arrays))]
    clash = overlapping(places)
    assert clash is None, f"memory that a step writes is another place of it: {_named(step, clash)}"
    for array, _ in moving:
        _check_recycled(step, array)


def check_result(step: CompiledStep, results: Sequence[Tensor], arrays: Sequence[Any]) -> None:
    """AssertionError if memory that was handed out is also an argument's, the state's, or another result's."""
    constant = {id(place.what) for place in step.results.places}
    fresh = [(t._array, True) for t in results if id(t) not in constant]
    others = [entry.array for entry in step.segment.entries] + [array for _, array in step.effects.gradients.moving()]
    clash = overlapping([*fresh, *((array, False) for array in (*others, *arrays))])
    assert clash is None, f"a result has memory that something else shows: {clash}"


def _check_recycled(step: CompiledStep, array: Array) -> None:
    """That nobody but steps holds the memory of a gradient which is written again."""
    owners = [g for g in step.effects.gradients.all if isinstance(g.tensor, StepGradient) and g.tensor._array is array]
    for owner in owners:
        assert owner.is_at_hand, "a gradient that somebody has read would be written again"
    usual = 6  # of the tensor, the segment, the lists of places here and above, the arguments of both functions
    if not owners or sys.getrefcount(array) <= usual:
        return
    holders = [holder for holder in gc.get_referrers(array) if isinstance(holder, Tensor)]
    assert all(type(holder) is StepGradient for holder in holders), "a tensor shows the memory of a step's gradient"


def _named(step: CompiledStep, places: Sequence[int]) -> str:
    names = [f"{entry.input.type} at {entry.source}" for entry, _ in step.effects.written]
    names += [f"a gradient {value.type}" for value in step.effects.moving]
    return " and ".join(names[k] if k < len(names) else "what it reads" for k in places)
