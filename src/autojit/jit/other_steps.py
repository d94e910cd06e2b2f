"""Calls that a native step refuses: it is tried again when what it has read is as it was, and so are those before it.

The guard epoch counts changes of any module or optimiser, also of those that a step has never met. Where it has moved
on, the guards are looked at, and the native code is told: that takes a fifth of a call through Python.

Those of a function whose places, or what it draws, are arguments of its steps are given them all the same: a step whose
guards hold draws, and finds in its places, what the refused one would.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from autojit.jit.arguments import in_row_major
from autojit.jit.calls import alone
from autojit.jit.failed_calls import undone_if_failed
from autojit.jit.guards import broken_guard, stand_ins
from autojit.jit.number_guards import Decided, broken_number
from autojit.jit.pytree import Args, Kwargs, TreeSpec, flatten
from autojit.runtime.entry_spec import Refusal
from autojit.runtime.gate import UNLESS_REENTERED
from autojit.tensor.state import guard_epoch, state

if TYPE_CHECKING:
    from autojit.jit.decided_calls import DecidedCalls
    from autojit.jit.function import JitFunction
    from autojit.jit.native import NativeStep


RECENT_LIMIT = 8  # steps that are asked in turn: one that refuses takes a microsecond, a call through Python 200
CHOSEN_LIMIT = 64  # and steps for what Python decides on numbers, of which that is asked first


def latest(*natives: NativeStep) -> tuple[NativeStep, ...]:
    """The steps that are tried, the last one first."""
    chosen = [native for native in natives if native.step.trace.number_guards][:CHOSEN_LIMIT]
    others = [native for native in natives if not native.step.trace.number_guards][:RECENT_LIMIT]
    return tuple([native for native in natives if native in chosen or native in others])


class Finished(NamedTuple):
    """A result whose places have been stored already."""

    result: Any


class Handed(NamedTuple):
    """What another native step than the one that was called gave."""

    native: NativeStep | DecidedCalls
    result: Any


def by_another(owner: JitFunction, args: Args, kwargs: Kwargs, refused: DecidedCalls | None = None) -> Handed | None:
    """The result of a call by one of the steps that ran before the last one; None if none of them fits.

    ``refused``: the calls in which Python decides that have refused it.
    """
    if state.anomaly or state.autocast is not None:
        return None
    mode = owner._mode()
    last = owner._installed[mode]
    packed = in_row_major(args, kwargs)
    given, named = (args, kwargs) if packed is None else (packed.args, packed.kwargs)
    leaves: list[Any] | None = None
    tree: TreeSpec | None = None
    answers: Decided = {}
    for native in owner._recent[mode]:
        if native.is_nested or native.step.trace.number_guards:
            if leaves is None:
                leaves, tree = flatten((args, kwargs))
            if native.is_nested and tree != native.step.capture.argument_tree:
                continue
            if broken_number(native.step.capture, leaves, answers):
                continue
        if not native.is_present or not (packed is None or native.may_copy(packed)):
            continue
        is_behind = native.guards.asks_epoch and native.guards.epoch != int(guard_epoch[0])
        if not is_behind and native.call == last and packed is None:
            continue
        with UNLESS_REENTERED, undone_if_failed() as undo:
            holds = not is_behind or _holds_again(owner, native)
            known = leaves if native.is_nested and packed is None else None
            found = native.attempt_of(known, given, named) if holds else Refusal.SLOW
            if type(found) is not Refusal:
                owner._installed[mode] = owner._called(native)
                return Handed(native, found)
            undo()
    for decided in owner._decided[mode] if packed is None else ():
        if decided is refused or decided.rests():
            continue
        with UNLESS_REENTERED, undone_if_failed() as undo:
            found = decided.attempt(args, kwargs)
            if type(found) is not Refusal:
                owner._installed[mode] = owner._called(decided)
                return Handed(decided, found)
            undo()
    return None


def _holds_again(owner: JitFunction, native: NativeStep) -> bool:
    """Whether all that a step has read is as it was, whatever the guard epoch has counted; its native code is told."""
    step = native.step
    with UNLESS_REENTERED, alone(owner._lock, owner.natives):
        epoch, guards = int(guard_epoch[0]), step.capture.guards  # what changes from now on counts
        if broken_guard(guards) is not None or (stand_ins(guards) and not native.is_layered):
            return False
        if step.capture.following.failure(step.segment) is not None or not native.is_present:
            return False
        if native.recorded is not None and not native.recorded.is_current:
            return False
        native.refresh(epoch)
        return True
    return False


def finishing(owner: JitFunction, by: DecidedCalls | None = None) -> Callable[..., Finished | Handed]:
    """Where a native step whose arguments are ``(values, drawn, args, kwargs)`` goes when it refuses: to others, or to
    a call with the user's arguments, which stores by itself. ``by``: what refuses, if it is no step alone.
    """

    def refused(*given: Any) -> Finished | Handed:
        return by_another(owner, given, {}, by) or Finished(owner._slow(*given[-2], **given[-1]))

    return refused
