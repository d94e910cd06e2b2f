"""Running a program in one mode: eager, compiled, or compiled without the passes that only make it faster."""

from __future__ import annotations

import gc
import itertools
import linecache
import os
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

import autojit as aj
from autojit.core.config import config
from autojit.tensor.state import reference_only
from autojit.testing.fuzz.watching import Ended, Fact, Watch

MODES = ("eager", "compiled", "passes off")
ProgramFunction = Callable[[Callable[..., Any], Watch], None]


COLLECT_EVERY = 100  # a collection of all objects takes as long as a program
_forgotten = itertools.count(1)


class Seen(NamedTuple):
    """What a run showed."""

    facts: list[Fact]
    error: Exception | None  # of the step
    failed_at: str
    broken: Exception | None  # of the program around its steps
    torn: tuple[Fact, Fact] | None  # what a failed compiled call changed
    left: list[Fact]  # by an eager call that failed, or a compiled one that ran line by line


def load(text: str, name: str) -> ProgramFunction:
    """The function ``program`` of a script, whose lines tracebacks and ``inspect`` can show."""
    file = f"<fuzz {name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    module = ModuleType(f"fuzz_{name}")
    sys.modules[module.__name__] = module  # dataclasses look their module up
    exec(compile(text, file, "exec"), module.__dict__)
    found: ProgramFunction = module.__dict__["program"]
    return found


def run(program: ProgramFunction, mode: str) -> Seen:
    """One run from equal beginnings; the process is left as it was."""
    see = Watch(checks_failures=mode != "eager")
    broken: Exception | None = None
    before = config.passes
    config.passes = "none" if mode == "passes off" else "all"
    try:
        with _same_world(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if mode == "eager":
                with reference_only():  # NumPy and nothing else
                    program(lambda f: f, see)
            else:
                program(aj.jit, see)
    except Ended:
        pass
    except Exception as error:
        broken = error
    finally:
        config.passes = before
    return Seen(see.facts, see.error, see.failed_at, broken, see.torn, see.left)


@contextmanager
def _same_world() -> Iterator[None]:
    """Equal random numbers at the start; at the end the modes and variables that a program may switch are restored."""
    aj.manual_seed(0)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - programs draw from the global generator, as users' do
    environment = dict(os.environ)
    dtype = aj.get_default_dtype()
    try:
        with aj.set_grad_enabled(True):
            yield
    finally:
        aj.set_default_dtype(dtype)
        aj.use_deterministic_algorithms(False)
        if dict(os.environ) != environment:
            os.environ.clear()
            os.environ.update(environment)


def forget(name: str) -> None:
    """Drop a program's lines; every some programs, what they left in memory."""
    linecache.cache.pop(f"<fuzz {name}>", None)
    sys.modules.pop(f"fuzz_{name}", None)
    if next(_forgotten) % COLLECT_EVERY == 0:
        gc.collect()
