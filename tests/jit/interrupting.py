"""An interrupt at every place of autojit's own bookkeeping: what it leaves must be sound. A process, not a test itself.

A native profile function counts how often a place is passed (a call, or the return of one, in a code object of autojit)
and sets Ctrl-C there, as a signal would: Python raises it itself where it looks for signals next. Chance meets most of
these places once in thousands of runs, or never.

``python -m tests.jit.interrupting [--count 100] [--only cold]`` prints the places after which something was wrong.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import gc
import itertools
import math
import os
import random
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np

import autojit as aj
from autojit.core import locks
from autojit.core.collector_pause import uncollected
from autojit.core.late_interrupts import late_interrupts
from autojit.core.recursion import headroom
from autojit.core.undivided_work import undivided
from autojit.jit.muted_prints import unheard
from autojit.jit.traced_math import _numbers
from autojit.runtime import bodies
from autojit.runtime.gate import Gate
from autojit.runtime.host import cached_host_target
from autojit.runtime.loader import load
from autojit.runtime.object_cache import default_cache
from autojit.tensor.state import state

PACKAGE = str(Path(aj.__file__).parent)
TESTED = ("core", "runtime", "jit")
ALWAYS = (
    "undivided_work.py",
    "locks.py",
    "process_changes.py",
    "late_interrupts.py",
    "gate.py",
    "bodies.py",
    "calls.py",
)
PATIENCE_S = 300.0  # for one trial: only what hangs takes it, however busy the machine is
_gates: weakref.WeakSet[Any] = weakref.WeakSet()
EVENTS = {"call": 0, "return": 3, "c_call": 4, "c_return": 6}

_PROFILE_IR = """
declare ptr @PyFrame_GetCode(ptr)
declare i32 @PyFrame_GetLasti(ptr)
declare void @Py_DecRef(ptr)
declare void @PyErr_SetInterrupt()

; code object, place in it, event, how often it is still to be passed
@aj_place = global [4 x i64] zeroinitializer

define i32 @aj_profile(ptr %given, ptr %frame, i32 %what, ptr %argument) nounwind {
entry:
  %code = call ptr @PyFrame_GetCode(ptr %frame)
  call void @Py_DecRef(ptr %code)
  %address = ptrtoint ptr %code to i64
  %wanted = load i64, ptr @aj_place
  %is.code = icmp eq i64 %address, %wanted
  br i1 %is.code, label %here, label %out
here:
  %lasti = call i32 @PyFrame_GetLasti(ptr %frame)
  %at = sext i32 %lasti to i64
  %event = sext i32 %what to i64
  %p.at = getelementptr i64, ptr @aj_place, i64 1
  %p.event = getelementptr i64, ptr @aj_place, i64 2
  %p.left = getelementptr i64, ptr @aj_place, i64 3
  %wanted.at = load i64, ptr %p.at
  %wanted.event = load i64, ptr %p.event
  %is.at = icmp eq i64 %at, %wanted.at
  %is.event = icmp eq i64 %event, %wanted.event
  %is.place = and i1 %is.at, %is.event
  br i1 %is.place, label %count, label %out
count:
  %left = load i64, ptr %p.left
  %less = sub i64 %left, 1
  store i64 %less, ptr %p.left
  %is.now = icmp eq i64 %less, 0
  br i1 %is.now, label %interrupt, label %out
interrupt:
  call void @PyErr_SetInterrupt()
  br label %out
out:
  ret i32 0
}
"""


class Place(NamedTuple):
    """A call, or the return of one, in a code object; ``times``: which time that it is passed is meant."""

    code: CodeType
    lasti: int
    event: str
    times: int

    def __str__(self) -> str:
        line = next((n for a, b, n in self.code.co_lines() if a <= max(self.lasti, 0) < b and n), 0)
        where = Path(self.code.co_filename).relative_to(PACKAGE)
        return f"{where}:{line} {self.code.co_qualname} +{self.lasti} {self.event} ({self.times})"

    @property
    def is_always_tried(self) -> bool:
        return self.times == 1 and self.code.co_filename.endswith(ALWAYS)


class Interrupter:
    """Sets Ctrl-C at a place."""

    def __init__(self) -> None:
        names = ("PyFrame_GetCode", "PyFrame_GetLasti", "Py_DecRef", "PyErr_SetInterrupt")
        imports = {n: ctypes.cast(getattr(ctypes.pythonapi, n), ctypes.c_void_p).value or 0 for n in names}
        self._loaded = load(default_cache().object(_PROFILE_IR, cached_host_target(), opt_level=0), imports)
        self._place = (ctypes.c_int64 * 4).from_address(self._loaded.address("aj_place"))
        self._set: Any = ctypes.pythonapi.PyEval_SetProfile
        self._set.argtypes, self._set.restype = [ctypes.c_void_p, ctypes.c_void_p], None

    def call(self, place: Place, work: Callable[[], Any]) -> str:
        """What became of the work: ``done``, ``interrupted`` or ``not met``."""
        self._place[:] = id(place.code), place.lasti, EVENTS[place.event], place.times
        self._set(self._loaded.address("aj_profile"), None)
        try:
            work()
            found = "done"
        except KeyboardInterrupt:
            found = "interrupted"
        self._set(None, None)
        return found if self._place[3] <= 0 else "not met"


def places_of(work: Callable[[], Any]) -> list[Place]:
    """Where a piece of work passes, in order: for each place the first time and the last."""
    passed: dict[tuple[CodeType, int, str], int] = {}
    folders = tuple(f"{PACKAGE}/{folder}/" for folder in TESTED)

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event in EVENTS and frame.f_code.co_filename.startswith(folders):
            key = frame.f_code, frame.f_lasti, event
            passed[key] = passed.get(key, 0) + 1

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return [Place(*key, times) for key, most in passed.items() for times in sorted({1, most})]


class Trial(NamedTuple):
    """What is interrupted, and what must hold afterwards of the same objects."""

    work: Callable[[], Any]
    check: Callable[[], None]


_constants = itertools.count(1)
_first = random.Random(os.getpid()).random()


def fresh() -> float:
    """A number between 0 and 2 that no kernel has been compiled for."""
    return (_first + next(_constants) * 1e-4) % 2


def made(x: Any, parameter: Any) -> Any:
    """A step whose kernels nobody has compiled before: it moves a tensor on and has a result."""
    constant = fresh()

    def step(x: Any) -> Any:
        found = (x * constant).sin()
        parameter.add_(1)
        return found.sum()

    return aj.jit(step)


def _advanced(step: Any, x: Any, parameter: Any, most: int) -> Callable[[], None]:
    """The state is as before the calls or as after one of them; more calls, natively too, go on from there."""

    def check() -> None:
        (before,) = {float(v) for v in parameter.numpy()}
        assert before in range(most + 1), f"the state is {before}"
        results = [float(step(x)) for _ in range(3)]
        assert len(set(results)) == 1, f"results {results}"
        assert set(parameter.numpy()) == {before + 3}, f"from {before} to {parameter.numpy()}"

    return check


def cold() -> Trial:
    """A first call: capture, compile, run."""
    x, parameter = aj.ones(7), aj.zeros(3)
    step = made(x, parameter)
    return Trial(lambda: step(x), _advanced(step, x, parameter, 1))


def warm() -> Trial:
    """Calls of a step that is there, with results that are kept."""
    x, parameter = aj.ones(7), aj.zeros(3)
    step = shared_step(parameter)
    return Trial(lambda: [step(x) for _ in range(4)], _advanced(step, x, parameter, 4))


def again() -> Trial:
    """A first call with another size."""
    x, parameter = aj.ones(7), aj.zeros(3)
    step = made(x, parameter)
    step(x)
    parameter.zero_()
    y = aj.ones(9)
    return Trial(lambda: step(y), _advanced(step, y, parameter, 1))


def differentiated() -> Trial:
    """The first call of a step whose result is differentiated outside, and its derivative."""
    constant = fresh()
    w = aj.ones(5, requires_grad=True)
    step = aj.jit(lambda x: (w * x * constant).sin().sum())
    x = aj.ones(5)

    def check() -> None:
        w.grad = None
        for _ in range(2):
            step(x).backward()
        assert np.allclose(w.grad.numpy(), 2 * constant * math.cos(constant), rtol=1e-4, atol=1e-5)

    return Trial(lambda: step(x).backward(), check)


def shared_step(parameter: Any) -> Any:
    """A step that has its native entry."""
    step = aj.jit(lambda x: (parameter.add_(1), (x * 2).sin().sum())[1])
    x = aj.ones(7)
    for _ in range(3):
        step(x)
    parameter.zero_()
    return step


TRIALS = (cold, warm, again, differentiated)


class World:
    """What belongs to the thread or the process, and is as it was before an interrupt after it, too.

    Threads that compile kernels for an interrupted call end what they have begun: they are waited for.
    """

    def __init__(self) -> None:
        self._wait_for(lambda: undivided._inside == undivided._here.depth)
        self._before = self._seen()

    @staticmethod
    def _wait_for(is_so: Callable[[], bool]) -> None:
        """Until it is so, or for a while."""
        end = time.monotonic() + PATIENCE_S / 4
        while not is_so() and time.monotonic() < end:
            time.sleep(0.001)

    def _seen(self) -> dict[str, Any]:
        return {
            "thread": {k: v for k, v in vars(state).items() if k not in ("quiet", "run", "drawn")},
            "math": dict(vars(math)),
            "stdout": sys.stdout,
            "collector": gc.get_threshold(),
            "recursion": sys.getrecursionlimit(),
            "handler": signal.getsignal(signal.SIGINT),
            "builtins": (min, max, len),
            "locks held": sum(lock._is_owned() for lock in tuple(locks._locks)),
            "inside undivided": (undivided._inside, undivided._here.depth),
            "kernels being made": len(bodies._kernels._making),
            "late interrupts": (late_interrupts.depth, late_interrupts.floor, late_interrupts.kept),
            "inside a change": [dict(w._depths) for w in (uncollected, headroom, unheard, _numbers)],
            "closed gates": sum(gate.words[1] for gate in tuple(_gates)),
        }

    def check(self) -> None:
        self._wait_for(lambda: self._seen() == self._before)
        for name, value in self._seen().items():
            assert value == self._before[name], f"{name}: {value}, was {self._before[name]}"


def in_another_thread(work: Callable[[], Any]) -> None:
    """Another thread must not wait for what the interrupted one has left."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE_S / 2)
    assert not thread.is_alive(), "another thread waits for ever"
    if errors:
        raise errors[0]


def noting_gates() -> None:
    """From now on every gate that is made is known."""
    make: Any = Gate.__init__

    def noted(self: Any) -> None:
        make(self)
        _gates.add(self)

    Gate.__init__ = noted  # type: ignore[method-assign]


def tried(interrupter: Interrupter, make: Callable[[], Trial], place: Place) -> str | None:
    """What is wrong after an interrupt at a place."""
    trial, world = make(), World()
    faulthandler.dump_traceback_later(PATIENCE_S, exit=True)
    try:
        found = interrupter.call(place, trial.work)
        if found == "not met":
            return None
        world.check()
        trial.check()
        if place.lasti % 16 == 0:  # costs as much as the trial
            in_another_thread(make().work)
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        faulthandler.cancel_dump_traceback_later()
    return None


def chosen(places: list[Place], count: int | None, share: int, seed: int) -> Iterator[Place]:
    """All, or one of ``share`` places of the bookkeeping that all other stands on, and ``count`` of the others."""
    rest = [place for place in places if not place.is_always_tried]
    if count is not None and count < len(rest):
        rest = random.Random(seed).sample(rest, count)
    kept = {*rest, *[place for place in places if place.is_always_tried][seed % share :: share]}
    return (place for place in places if place in kept)


def main() -> None:
    """Print the places where an interrupt leaves something behind; exit with 1 if there are any."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, help="places besides those always tried, of each kind of call")
    parser.add_argument("--share", type=int, default=1, help="one of so many places that are always tried")
    parser.add_argument("--only", default="", help="a kind of call")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupter, failed, count = Interrupter(), 0, 0
    noting_gates()
    for make in TRIALS:
        if options.only not in ("", make.__name__):
            continue
        for _ in range(2):  # what is imported, or made once, is not met again
            trial = make()
            trial.work()
            trial.check()
        places = places_of(make().work)
        if make is not cold and options.count is not None:
            ways = random.Random(options.seed).sample(places, min(options.count, len(places)))
        else:
            ways = list(chosen(places, options.count, options.share, options.seed))
        for place in ways:
            count += 1
            print(f"at {make.__name__} {place}", file=sys.stderr, flush=True)
            wrong = tried(interrupter, make, place)
            if wrong is not None:
                failed += 1
                print(f"{make.__name__}: {place}: {wrong}", flush=True)
    print(f"{count} interrupts, {failed} left something behind")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
