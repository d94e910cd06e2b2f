"""Which native entry a call of a jitted function comes to first: that of the step, or the way, which ran last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autojit.jit.decided_calls import AGAIN, DecidedCalls, NativeDecision, is_able
from autojit.jit.given_memory import count_for
from autojit.jit.native import NativeStep
from autojit.jit.native_calls import linked
from autojit.jit.needed_python import why_not_native
from autojit.jit.other_steps import RECENT_LIMIT, finishing, latest
from autojit.jit.recorded_results import has_code
from autojit.tensor.state import state

if TYPE_CHECKING:
    from autojit.jit.calls import Call
    from autojit.jit.captures import Captures
    from autojit.jit.decision import Decision
    from autojit.jit.function import JitFunction
    from autojit.jit.step import CompiledStep


def install(owner: JitFunction, root: Captures, step: CompiledStep, call: Call) -> None:
    """A step has run through Python, which has verified every guard: its native entry is for the next call."""
    mode = owner._mode()
    if state.anomaly or state.autocast is not None or not has_code(step):
        return  # its steps are looked for in ``_slow``
    is_native = why_not_native(step) is None and step.capture.modes_left is None
    if call.path or root.decided is not None:
        calls = _of_way(owner, root, step, call, is_native)
        owner._installed[mode] = None if calls is None or calls.rests() else owner._called(calls)
        return
    owner._installed[mode] = owner._called(_native(owner, step, call)) if is_native else None


def _of_way(owner: JitFunction, root: Captures, step: CompiledStep, call: Call, is_native: bool) -> DecidedCalls | None:
    """The calls of a signature of which some decide, with the way that one of them has just gone."""
    calls = root.decided
    if is_native and step.calls > AGAIN and _has_way(call):
        if calls is None:
            calls = root.decided = DecidedCalls(owner, root, step)
            mode = owner._mode()
            owner._decided[mode] = (calls, *owner._decided[mode])[:RECENT_LIMIT]
        for decision in call.path:
            calls.add(_native_decision(decision, call.epoch))
        calls.add(_native(owner, step, call))
    return calls


def _has_way(call: Call) -> bool:
    """Whether the decisions of a call may have native entries: each has run often, for how often it was bound anew."""
    for decision in call.path:
        native = decision.entry
        if (native is None or not native.is_present) and (
            decision.calls <= AGAIN << decision.bound_anew or not is_able(decision)
        ):
            return False
    return True


def _native_decision(decision: Decision, epoch: int) -> NativeDecision:
    native = decision.entry
    if native is not None and native.is_present:
        native.refresh(epoch)
        return native
    decision.bound_anew += native is not None
    decision.entry = made = NativeDecision(decision, epoch)
    return made


def _native(owner: JitFunction, step: CompiledStep, call: Call) -> NativeStep:
    """The entry of a step, for the memory that it has by now."""
    native: NativeStep | None = step.entry
    if native is not None and native.fits(call.leaves):
        native.refresh(call.epoch)
        return native
    slow = owner._refused if owner.rebinding is None else finishing(owner)
    native = step.entry = NativeStep(step, call.leaves, call.epoch, slow, owner.name, owner._beside)
    count_for(native.entry, native.count_places)
    owner.natives.add(native)
    if step.is_whole:  # the others do not run but behind their decisions
        mode = owner._mode()
        others = (other for other in owner._recent[mode] if other.step is not step)
        owner._recent[mode] = linked(owner._recent[mode], latest(native, *others), owner._is_alone)
    return native
