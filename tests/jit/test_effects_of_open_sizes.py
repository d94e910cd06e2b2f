"""A function with effects, called with changing batch sizes: each effect happens once per call, as in eager mode.

A capture that leaves sizes open is recorded twice (`jit.generality`). What the function does to the world outside is
held back until the step has run, in both recordings, so nobody can see the second.
"""

from __future__ import annotations

import collections
import io
import itertools
import logging
import os
import random
import sqlite3
import subprocess
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autojit as aj


class World:
    """What the functions change, made afresh for each run; ``seen`` tells what a caller can see of it."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "file"
        self.file.write_text("")
        self.stream = self.file.open("a")
        self.descriptor = self.stream.fileno()
        self.items: list[Any] = []
        self.queue: collections.deque[int] = collections.deque()
        self.counter: collections.Counter[str] = collections.Counter()
        self.numbers = bytearray()
        self.keys: set[int] = set()
        self.total = 0
        self.count = itertools.count()
        self.random, self.generator = random.Random(3), np.random.default_rng(3)
        self.array, self.tensor = np.zeros(2), aj.zeros(())
        self.weight = aj.ones((), requires_grad=True)
        self.weight.register_hook(lambda grad: self.items.append("hook"))
        self.text, self.out, self.err = io.StringIO(), io.StringIO(), io.StringIO()
        self.database = sqlite3.connect(":memory:")
        self.database.execute("create table rows (n)")
        self.norm = aj.nn.BatchNorm1d(1)
        self.log = logging.Logger("effects")
        self.log.addHandler(logging.StreamHandler(self.text))

    def seen(self) -> tuple[Any, ...]:
        self.stream.flush()
        gradient = None if self.weight.grad is None else self.weight.grad.item()
        return (
            self.file.read_text(), list(self.items), list(self.queue), dict(self.counter), bytes(self.numbers),
            set(self.keys), self.total, repr(self.count), self.random.getstate(), str(np.random.get_state()),
            str(self.generator.bit_generator.state), random.getstate(), aj.get_rng_state().tolist(),
            self.array.tolist(), self.tensor.item(), gradient, self.norm.num_batches_tracked.item(),
            self.text.getvalue(), self.out.getvalue(), self.err.getvalue(),
            self.database.execute("select count(*) from rows").fetchall(),
        )  # fmt: skip

    def close(self) -> None:
        self.stream.close()
        self.database.close()


def _thread(world: World) -> None:
    thread = threading.Thread(target=world.items.append, args=(1,))
    thread.start()
    thread.join()


def _finalized(world: World) -> None:
    weakref.finalize(World.__new__(World), world.items.append, 1)


def _caught(world: World, x: aj.Tensor) -> None:
    world.items.append("before")
    try:
        x.reshape(1, 2)
    except RuntimeError:
        world.items.append("after")


def _backward(world: World, x: aj.Tensor) -> None:
    (x * world.weight).sum().backward()


EFFECTS: dict[str, Callable[[World, aj.Tensor], Any]] = {
    "append": lambda world, x: world.items.append(1),
    "append a size": lambda world, x: world.items.append(x.shape[0]),
    "append a text": lambda world, x: world.items.append(f"{x.shape[0]} rows"),
    "append a number": lambda world, x: world.items.append(x.sum().item()),
    "deque": lambda world, x: world.queue.append(len(world.queue)),
    "counter": lambda world, x: world.counter.update(["called"]),
    "bytes": lambda world, x: world.numbers.extend(b"a"),
    "set": lambda world, x: world.keys.add(len(world.keys)),
    "attribute": lambda world, x: setattr(world, "total", world.total + 1),
    "iterator": lambda world, x: next(world.count),
    "random": lambda world, x: x * random.random(),
    "a generator": lambda world, x: x * world.random.random(),
    "NumPy's random numbers": lambda world, x: x * float(np.random.rand()),
    "a generator of NumPy's": lambda world, x: x * world.generator.standard_normal(),
    "random tensors": lambda world, x: x * aj.rand(x.shape),
    "an array": lambda world, x: np.add(world.array, 1, out=world.array),
    "a tensor": lambda world, x: world.tensor.add_(x.sum()),
    "a gradient with a hook": _backward,
    "statistics of a layer": lambda world, x: world.norm(x[:, None]),
    "print": lambda world, x: print("called"),
    "print of a size": lambda world, x: print(x.shape[0]),
    "stdout": lambda world, x: sys.stdout.write("called"),
    "stderr": lambda world, x: print("called", file=sys.stderr),
    "log": lambda world, x: world.log.warning("called"),
    "warning": lambda world, x: warnings.warn("called", stacklevel=2),
    "text": lambda world, x: world.text.write("called"),
    "file": lambda world, x: world.stream.write("called"),
    "descriptor": lambda world, x: os.write(world.descriptor, b"called"),
    "path": lambda world, x: world.file.write_text("called"),
    "process": lambda world, x: subprocess.run([sys.executable, "-c", f"open({str(world.file)!r}, 'a').write('a')"]),
    "database": lambda world, x: world.database.execute("insert into rows values (1)"),
    "thread": lambda world, x: _thread(world),
    "finalizer": lambda world, x: _finalized(world),
    "error caught": _caught,
}


def _history(
    effect: Callable[[World, aj.Tensor], Any], folder: Path, monkeypatch: pytest.MonkeyPatch, is_compiled: bool
) -> list[Any]:
    """What can be seen after calls with several batch sizes, and how many warnings each has given."""
    folder.mkdir()
    world = World(folder)
    monkeypatch.setattr(sys, "stdout", world.out)
    monkeypatch.setattr(sys, "stderr", world.err)
    for seed in (random.seed, np.random.seed, aj.manual_seed):
        seed(0)

    def step(x: aj.Tensor) -> aj.Tensor:
        effect(world, x)
        return x * 2

    function = aj.jit(step) if is_compiled else step
    found = []
    try:
        for rows in (3, 4, 5, 5, 7):
            with warnings.catch_warnings(record=True) as given:
                warnings.simplefilter("always")
                result = function(aj.ones(rows))
            found.append((result.tolist(), len(given), world.seen()))
    finally:
        world.close()
    return found


@pytest.mark.parametrize("name", EFFECTS)
def test_an_effect_happens_once_per_call(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    eager = _history(EFFECTS[name], tmp_path / "eager", monkeypatch, is_compiled=False)
    compiled = _history(EFFECTS[name], tmp_path / "compiled", monkeypatch, is_compiled=True)
    assert [str(x).replace("/compiled/", "/eager/") for x in compiled] == [str(x) for x in eager]
