"""Modules that calls line by line call again and again: each is a step of its own.

What no step can do is a line or two of most functions: a shuffled list, a decision on every element, a record of
another kind. The rest of the time goes into the modules that these functions call. So once a function has run line by
line ``CALLS`` times, a module that it has called in an earlier call, too, is compiled as ``jit(module)`` is, outermost
ones first. One whose steps do not serve most of its calls is let be for good, and those that it calls are looked at.

Nothing here says what a module does: its steps have guards, and what they cannot do runs line by line. Where equal
calls have to give equal bits (`gradcheck`, deterministic algorithms), or where somebody watches the ops, nothing is
compiled; nor where there are other ranks, which would have to compile the same in the same call.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autojit.core.communicator import is_any_joined
from autojit.dispatch.awaited_kernels import awaited
from autojit.jit.eager_mode import by_steps_of_their_own
from autojit.tensor.state import state

if TYPE_CHECKING:
    from autojit.jit.function import JitFunction

CALLS = 8
"""Of the function, line by line, before its modules are compiled: it may only be finding its steps. Compiling a module
of three layers takes 40 ms, and saves 0.1 to 0.2 ms a call; two Transformer layers 0.5 s, and 5 ms a call.
"""
TRIED = 16  # calls of a module after which its steps are to serve half of them, and again at every power of two
DRAWN_NODES = 64
"""A step of fewer that is given what it draws (a block left out by chance) takes 60 us besides, as its ops do."""
MOST_MET = 4096


class _Itself:
    """What `Methods` binds to a module: the module."""

    __name__ = "pieces"

    def __get__(self, instance: object, owner: type | None = None) -> object:
        return instance

    def __call__(self) -> None:
        """It is no function, and never called."""


class _Met:
    """A module that a function has called."""

    __slots__ = ("calls", "first", "is_let_be", "module")

    def __init__(self, module: object, first: int) -> None:
        self.module = weakref.ref(module)
        self.first = first  # the call of the function in which that was
        self.calls = 0  # of its steps
        self.is_let_be = type(module).__module__.startswith("autojit.") and not getattr(module, "_modules", None)


class ModulePieces:
    """The modules that the calls line by line of one function call."""

    def __init__(self, owner: JitFunction) -> None:
        self._owner = owner
        self._whole: JitFunction | None = None  # whose methods are the modules' steps
        self._met: dict[int, _Met] = {}  # by id
        self._calls = 0

    def begun(self) -> ModulePieces:
        """A call of the function runs line by line."""
        self._calls += 1
        return self

    def step_of(self, module: object) -> JitFunction | None:
        """What runs a call of a module; None: its own code."""
        if self._calls <= CALLS:
            if self._calls == CALLS:
                self._meet(module)
            return None
        met = self._met.get(id(module))
        if met is None or met.module() is not module:
            self._meet(module)
            return None
        if met.is_let_be or met.first == self._calls or not _is_plain_now():
            return None
        found = self._steps().get(id(module))
        step = self._made(module) if found is None else found[1]
        met.calls += 1
        if met.calls >= TRIED and not met.calls & (met.calls - 1):
            met.is_let_be = _is_in_vain(step, met.calls)
        return step

    def run(self, step: JitFunction, args: Sequence[object], kwargs: Mapping[str, object]) -> Any:
        """A call of a module by its step: inside, nothing runs line by line but what the step cannot do."""
        with by_steps_of_their_own():
            return step(*args, **kwargs)

    def explain(self, verbose: bool) -> Iterator[str]:
        """What came of each."""
        for module, step in tuple(self._steps().values()):
            met = self._met.get(id(module))
            how = f"{step.natives.total()} native call(s) of {0 if met is None else met.calls}"
            given_up = "; it runs line by line, too" if met is None or met.is_let_be else ""
            yield f"  its {step.name} is compiled by itself: {how}{given_up}"
            if verbose:
                yield from (f"    {line}" for line in str(step.explain(verbose)).splitlines())

    def _meet(self, module: object) -> None:
        if len(self._met) >= MOST_MET:
            self._met.clear()
        known = self._met.get(id(module))
        if known is None or known.module() is not module:
            self._met[id(module)] = _Met(module, self._calls)

    def _steps(self) -> Mapping[int, tuple[object, JitFunction]]:
        """The modules that are compiled, and their steps, by id."""
        return {} if self._whole is None else self._whole.methods.kept

    def _made(self, module: object) -> JitFunction:
        if self._whole is None:
            self._whole = self._owner._beside(_Itself())
        made = self._whole.methods.of(module, type(module))
        made.pieces.modules = None  # what it calls is looked at when it is let be
        return made


def _is_in_vain(step: JitFunction, calls: int) -> bool:
    """Whether native code serves less than half of a module's calls, or costs what it saves."""
    if 2 * (step.natives.total() + step.counts.eager_calls) < calls:
        return True
    return step.rebinding is not None and max([one.n_nodes for one in step.steps()], default=0) < DRAWN_NODES


def _is_plain_now() -> bool:
    """Whether a step may run instead of ops: nobody looks at these, or compares equal calls."""
    now = state.__dict__
    return not (
        now["trace"] is not None
        or now["layers"]
        or now["anomaly"]
        or now["observer"] is not None
        or now["recording_hooks"] is not None
        or now["reference"]
        or awaited.at_once
        or awaited.is_settled
        or is_any_joined()
    )
