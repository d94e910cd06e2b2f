"""A call of a jitted function through Python: attempts, and what their outcomes lead to.

An attempt looks for the step of the call from the root of its captures on, captures what is missing, and runs the step.
It fails when it finds that the captures or the form of the function must be others; then there is another
one. Here is the whole machine; `jit.outcomes` lists its states.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from autojit.core.errors import WideIntegerError
from autojit.jit.assigned_places import Rebinding, rebound
from autojit.jit.calls import RESTARTS_LIMIT, Call
from autojit.jit.captures import remove
from autojit.jit.compile_options import expect_step
from autojit.jit.failed_calls import undone_if_failed
from autojit.jit.kept_signatures import forget_all
from autojit.jit.line_by_line import BeingCompiled, CopiedArguments, Endless, InPieces, InVain, WideIntegers
from autojit.jit.outcomes import (
    BeginsAgain,
    DrawnOtherwise,
    Eagerly,
    Outcome,
    Ran,
    Rebinds,
    Releases,
    ToCompare,
    attempted,
)
from autojit.jit.places import with_more
from autojit.jit.pytree import Args, Kwargs
from autojit.tensor.state import state

if TYPE_CHECKING:
    from autojit.jit.draw_plans import Drawn
    from autojit.jit.function import JitFunction


def settled(owner: JitFunction, args: Args, kwargs: Kwargs, drawn: Drawn) -> Ran | Eagerly:
    """The outcome of a call after all attempts: its result, or why steps cannot do what it does."""
    begun, made = owner.payoff.begun, owner.counts.captures
    outcome = by_steps(owner, args, kwargs, drawn)
    if isinstance(outcome, Ran):
        return outcome
    if owner.payoff.begun > begun and owner.counts.captures == made:
        owner.payoff.gave_up()
    expect_step(owner, outcome)
    run: Callable[..., Any]
    if isinstance(outcome, ToCompare):
        run, given = partial(outcome.comparison.of_run, drawn), owner.themselves.unwrapped(args, kwargs)
    elif isinstance(outcome, DrawnOtherwise):
        run, given = _with_drawn(owner, outcome, drawn), owner._as_given(args, kwargs)
    else:
        assert isinstance(outcome, Eagerly), "a call that begins again has been made again"
        is_drawn = bool(drawn_so_far := DrawnOtherwise(()).given(drawn))
        if isinstance(outcome.reason, InVain):
            _rest(owner, is_drawn)
        owner.looks_at_arrays |= isinstance(outcome.reason, CopiedArguments)
        if owner.rebinding is None or not is_drawn:
            return outcome
        note_reason(owner, outcome)  # what has been drawn for the call is drawn once
        run = partial(owner.rebinding.line_by_line, drawn_so_far)
        given = owner._as_given(args, kwargs)
    del outcome  # it keeps alive what the attempt has made
    return Ran(run(*given))


def _rest(owner: JitFunction, is_drawn: bool) -> None:
    """After a call that waits: where looking for steps does not pay, the next ones come to no native entry either."""
    if is_drawn:
        owner.payoff.drew_in_vain()
    if owner.payoff.is_resting:
        owner._installed[:] = [None] * len(owner._installed)


def note_reason(owner: JitFunction, outcome: Eagerly) -> None:
    """Why a call runs line by line, for `explain`, which counts those whose steps were being compiled."""
    owner.pieces.has_closures |= isinstance(outcome.reason, InPieces)
    if not isinstance(outcome.reason, BeingCompiled):
        owner.counts.note(str(outcome.reason))


def by_steps(owner: JitFunction, args: Args, kwargs: Kwargs, drawn: Drawn) -> Outcome:
    """The outcome of a call by a step, in whatever form of the function that takes."""
    if not (owner.fullgraph or owner.is_measured) and owner.payoff.rests():
        return Eagerly(InVain(owner.payoff.in_vain()))
    outcome = attempted(_by_step, owner, args, kwargs, drawn)
    while isinstance(outcome, Rebinds):
        _take_over(owner, outcome, drawn, args, kwargs)
        outcome = attempted(_by_step, owner, args, kwargs, drawn)
    return outcome


def _by_step(owner: JitFunction, args: Args, kwargs: Kwargs, drawn: Drawn) -> Outcome:
    """The outcome of a call by a step in the function's present form."""
    rebinding = owner.rebinding
    if rebinding is None:
        return _through_captures(owner, args, kwargs)
    if rebinding.plans.line_by_line is not None:
        return Eagerly(rebinding.plans.line_by_line())
    rebinding.installed = None
    entered = rebinding.values(drawn, args, kwargs)
    if isinstance(entered, DrawnOtherwise):
        return entered
    outcome = _through_captures(owner, (*entered, args, kwargs), {})
    return Ran(rebinding.store(outcome.result)) if isinstance(outcome, Ran) else outcome


def _through_captures(owner: JitFunction, args: Args, kwargs: Kwargs) -> Outcome:
    """The outcome of attempts under one form of the function; each begins at the root of its captures."""
    call = Call(args, kwargs)
    call.bound = owner.gathering.again(call.leaves)
    owner.counts.calls += 1
    with undone_if_failed() as undo:
        while True:
            outcome = attempted(_attempt, owner, call)
            if not isinstance(outcome, BeginsAgain):
                break
            if outcome.is_lost:  # what the path decides is no longer asked: it was captured under other rules
                remove(owner._root(call).branch, call.path[0].capture)
            call.restart(outcome.bound, outcome.is_fixed)
            if call.restarts > RESTARTS_LIMIT + len(call.leaves):
                outcome = Eagerly(Endless())
                break
        if not isinstance(outcome, Ran | ToCompare):
            undo()
    return outcome


def _attempt(owner: JitFunction, call: Call) -> Outcome:
    try:
        found: Outcome = profiled(f"jit {owner.name}", "compiled_step", owner._run, call)
    except WideIntegerError:
        if not call.drawn:
            return Eagerly(WideIntegers())
        owner.counts.note(str(WideIntegers()))
        return DrawnOtherwise(call.drawn)
    return found


def profiled(name: str, kind: str, function: Callable[..., Any], *given: object) -> Any:
    """``function`` of what is given, in view of a profiler if one runs."""
    return function(*given) if state.observer is None else state.observer.call(name, kind, function, *given)


def _take_over(owner: JitFunction, found: Rebinds, drawn: Drawn, args: Args, kwargs: Kwargs) -> None:
    """What the function assigns to becomes arguments and results of its steps; what it no longer does, state."""
    if isinstance(found, Releases) or found.is_lasting:
        owner._released = with_more(owner._released, found.locations)
    before, owner.rebinding = owner.rebinding, rebound(owner.function, owner.rebinding, found, owner._released)
    if owner.rebinding is not before:
        forget_all(owner)
        owner.payoff.begin_form()
    if owner.rebinding is not None:
        owner.rebinding.plans.follow(drawn, found.drawn, (owner.rebinding.held(), args, kwargs))
    owner.counts.note(f"{found.why}: {', '.join(found.names())}" if found.names() else found.why)


def _with_drawn(owner: JitFunction, otherwise: DrawnOtherwise, drawn: Drawn) -> Callable[..., Any]:
    """How a call runs line by line of which no step can be given what it draws."""
    rebinding = owner.rebinding or Rebinding(owner.function, (), owner._released)
    if otherwise.always is not None:
        owner.rebinding, rebinding.plans.line_by_line = rebinding, otherwise.always
        owner.counts.note(str(otherwise.always()))
        forget_all(owner)
    return partial(rebinding.line_by_line, otherwise.given(drawn))
