"""Steps that are compiled on a thread of their own while calls run eagerly (``@aj.jit(background=True)``).

The calling thread captures, as it alone is in the state that a capture looks at; that is a small part. Passes, schedule
and native code read nothing that the calls change: they are made beside. Such a call then runs line by line, which
alone writes state. A later call finds the step and asks its guards, as always; or it raises what went wrong.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from autojit.compiler import Options
from autojit.core.errors import SpecializeSize, UndecidedSizeError
from autojit.jit.captures import Branch, Captures
from autojit.jit.decision import Decision
from autojit.jit.line_by_line import BeingCompiled
from autojit.jit.memory_budget import warn_if_missed
from autojit.jit.outcomes import Eagerly, Outcome
from autojit.jit.step import Capture, CompiledStep, build_path
from autojit.runtime.background import helper

if TYPE_CHECKING:
    from autojit.jit.calls import Call
    from autojit.jit.function import JitFunction


class Compiling:
    """A capture on its way to a step: what follows ``path``, the decisions that its call has passed."""

    def __init__(self, capture: Capture, path: Sequence[Decision], options: Options, capture_s: float) -> None:
        self.capture, self.path, self.options, self.capture_s = capture, list(path), options, capture_s
        self.made: list[Decision | CompiledStep] = []
        self.branch: Branch = []
        self.error: BaseException | None = None
        self.compile_s = 0.0
        self.process = os.getpid()
        self.done = threading.Event()
        if helper(self._work, "compiles a step") is None:
            self._work()

    def _work(self) -> None:
        start = time.perf_counter()
        try:
            self.made = build_path(self.capture, self.branch, self.path, self.options)
        except BaseException as error:
            self.error = error
        finally:
            self.capture.trace.finish()
            self.compile_s = time.perf_counter() - start
            self.done.set()

    @property
    def is_lost(self) -> bool:
        """Whether it was begun by the process that this one is forked from, whose threads are not here."""
        return self.process != os.getpid()


def begin(
    owner: JitFunction, root: Captures, branch: Branch, capture: Capture, call: Call, capture_s: float
) -> Eagerly:
    """Have what follows a branch compiled; the call runs eagerly, with histories as they were before its capture."""
    root.compiling[id(branch)] = Compiling(capture, call.path, Options(root.forms, owner.memory_budget), capture_s)
    if call.trace is not None:
        call.trace.attach_again()
        call.trace.forget_histories()
    return eagerly(owner)


def eagerly(owner: JitFunction) -> Eagerly:
    """A call whose step is being compiled."""
    owner.counts.eager_calls += 1
    return Eagerly(BeingCompiled())


def is_compiling(owner: JitFunction) -> bool:
    """Whether a step of a function is being made, so that a call would find none."""
    return any(not (c.done.is_set() or c.is_lost) for root in owner.roots.values() for c in root.compiling.values())


def take_over(owner: JitFunction, root: Captures, branch: Branch, call: Call) -> Outcome | None:
    """Put what is ready into a branch; how the call goes on where it could not be compiled, else None.

    Raises:
        whatever compiling has raised, once.
    """
    found = root.compiling.get(id(branch))
    if found is None or not (found.is_lost or owner.is_measured or found.done.is_set()):
        return None
    if found.is_lost:
        del root.compiling[id(branch)]
        return None
    found.done.wait()
    del root.compiling[id(branch)]
    error = found.error
    if isinstance(error, UndecidedSizeError | SpecializeSize):
        symbols = getattr(error, "symbols", ())
        return owner.open_sizes.give_up(found.capture.trace, symbols, str(error), owner.counts.note)
    if error is not None:
        raise error
    branch.extend(found.branch)
    step = found.made[-1]
    assert isinstance(step, CompiledStep)
    owner.newest = step
    owner.payoff.captured(step)
    warn_if_missed(owner, step, found.capture.arrays(call.leaves))
    owner.counts.add(found.made, found.capture_s, found.compile_s)
    return None
