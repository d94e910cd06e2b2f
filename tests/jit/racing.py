"""Threads that do things to jitted functions at the same time; each checks what it gets. Not tests themselves.

An *actor* is made once for a race and then called again and again by one thread; it does one thing that a program does
(a first call, a call whose guard fails, a fork) and asserts that what came back is right. Any set of actors may race.
``race_campaigns`` has the long ones.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import autojit as aj

Act = Callable[[int], None]
SWITCH_S = 1e-5
PATIENCE_S = 60.0


class Shared:
    """Jitted functions that all actors of a race call, with the state they touch."""

    def __init__(self) -> None:
        self.table = {"scale": 2.0}
        self.count = aj.zeros(3, dtype=aj.float64)
        self.counted = 0
        self.counting = threading.Lock()
        self.lock = threading.Lock()
        self.made: dict[Any, Any] = {}
        self.helper = Helper()
        self.weight = aj.nn.Parameter(aj.ones(5))
        table, count, weight = self.table, self.count, self.weight

        @aj.jit
        def scaled(x: Any) -> Any:
            return x * table["scale"] + 1, x.sum() * table["scale"]

        @aj.jit
        def product(x: Any) -> Any:
            return (x @ x).tanh(), x + 1

        @aj.jit
        def counting(x: Any) -> Any:
            count.add_(1)
            return x + count.sum() * 0

        @aj.jit
        def picking(x: Any, place: Any) -> Any:
            return x[place] * 2

        @aj.jit
        def weighted(x: Any) -> Any:
            return (weight * x).sum()

        @aj.jit
        def powered(x: Any, k: float) -> Any:
            return x * k + 1

        self.scaled, self.product, self.counts = scaled, product, counting
        self.picking, self.weighted, self.powered = picking, weighted, powered
        self.functions = (scaled, product, counting, picking, weighted, powered)


def expect(found: Any, wanted: Any) -> None:
    """Both are the same up to rounding."""
    found = np.asarray(found.detach().numpy() if isinstance(found, aj.Tensor) else found)
    assert found.shape == np.shape(wanted) and np.allclose(found, wanted, rtol=1e-5, atol=1e-6), (found, wanted)


def vector(k: int, n: int = 5) -> tuple[Any, Any]:
    values = np.linspace(-1, 1, n, dtype=np.float32) + np.float32(k % 17)
    return aj.tensor(values), values


def check_scaled(found: Any, values: Any) -> None:
    """By one of the scales that there have been, the same one in both results."""
    both, total = found
    errors = [np.abs(both.numpy() - (values * s + 1)).max() + abs(total.item() - values.sum() * s) for s in (2, 3)]
    assert min(errors) < 1e-4 * (1 + np.abs(values).sum()), (found, values)


def first_call(shared: Shared) -> Act:
    def act(k: int) -> None:
        x, values = vector(k)
        expect(aj.jit(lambda t: (t * k).exp().sum() + k % 3)(x * 0.01), np.exp(values * 0.01 * k).sum() + k % 3)

    return act


def guard(shared: Shared) -> Act:
    def act(k: int) -> None:
        shared.table["scale"] = 2.0 + k % 2
        x, values = vector(k)
        check_scaled(shared.scaled(x), values)

    return act


def sizes(shared: Shared) -> Act:
    def act(k: int) -> None:
        x, values = vector(k, 3 + k % 11)
        check_scaled(shared.scaled(x), values)

    return act


def numbers(shared: Shared) -> Act:
    def act(k: int) -> None:
        x, values = vector(k)
        factor = k % 23 + 0.5
        expect(shared.powered(x, factor), values * factor + 1)

    return act


def clear(shared: Shared) -> Act:
    def act(k: int) -> None:
        if k % 4 == 0:
            aj.cache.clear()
        x, values = vector(k)
        expect(aj.jit(lambda t: t - k)(x), values - k)

    return act


def fork(shared: Shared) -> Act:
    def act(k: int) -> None:
        if k % 4 or not hasattr(os, "fork"):
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there are threads is the point
            child = os.fork()
        if child == 0:
            faulthandler.dump_traceback_later(PATIENCE_S / 2, file=sys.__stderr__)
            try:
                x, values = vector(k)
                check_scaled(shared.scaled(x), values)
                expect(aj.jit(lambda t: t * 7)(x), values * 7)
                os._exit(0)
            except BaseException as error:
                os.write(2, f"in the child: {error!r}\n".encode())
                os._exit(1)
        until = time.monotonic() + PATIENCE_S
        while True:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                assert status == 0, f"the child ended with {os.waitstatus_to_exitcode(status)}"
                return
            if time.monotonic() > until:
                os.kill(child, 9)
                os.waitpid(child, 0)
                raise AssertionError("the child hangs")
            time.sleep(1e-3)

    return act


def errors(shared: Shared) -> Act:
    def act(k: int) -> None:
        x, values = vector(k)
        place = k % 7
        try:
            found = shared.picking(x, aj.tensor([place]))
        except IndexError:
            assert place >= 5, place
        else:
            assert place < 5, place
            expect(found, values[[place]] * 2)

    return act


def kept(shared: Shared) -> Act:
    results: list[tuple[Any, Any, float]] = []

    def act(k: int) -> None:
        value = float(k % 13)
        results.append((*shared.product(aj.full((6, 6), value)), value))
        del results[:-12]
        for tanh, more, given in results:
            expect(tanh, np.full((6, 6), np.tanh(6 * given * given), np.float32))
            expect(more, np.full((6, 6), given + 1, np.float32))

    return act


def same(shared: Shared) -> Act:
    def plain(x: Any) -> Any:
        return (x @ x).sum()

    def act(k: int) -> None:
        expect(aj.jit(plain)(aj.full((4, 4), float(k % 5))), np.float32(64.0 * (k % 5) ** 2))

    return act


def eager(shared: Shared) -> Act:
    values = np.linspace(-2, 2, 40_000, dtype=np.float32)

    def act(k: int) -> None:
        x = aj.tensor(values)
        expect(aj.nn.functional.softplus(x) + k % 3, np.log1p(np.exp(values)) + k % 3)
        expect(aj.sigmoid(x), 1 / (1 + np.exp(-values)))

    return act


def verified(shared: Shared) -> Act:
    def act(k: int) -> None:
        x, values = vector(k)
        expect(aj.jit(lambda t: (t * 3).tanh(), verify="first")(x), np.tanh(values * 3))

    return act


def told(shared: Shared) -> Act:
    def act(k: int) -> None:
        for function in shared.functions:
            function.explain()
            function.stats()
            if function.newest is not None:
                function.show(("graph", "schedule")[k % 2])
                function.memory()

    return act


def counts(shared: Shared) -> Act:
    def act(k: int) -> None:
        x, values = vector(k)
        expect(shared.counts(x), values)
        with shared.counting:
            shared.counted += 1

    return act


def backward(shared: Shared) -> Act:
    def act(k: int) -> None:
        x, values = vector(k)
        (slope,) = aj.autograd.grad(shared.weighted(x), [shared.weight])
        expect(slope, values)

    return act


def first_backward(shared: Shared) -> Act:
    """Threads differentiate results of one function that nobody has differentiated before."""
    lock, made = shared.lock, shared.made

    def act(k: int) -> None:
        weight = shared.weight
        with lock:
            step = made.setdefault(("backward", k), aj.jit(lambda t, k=k: (weight * t * (k + 1)).sin().sum()))
        x, values = vector(k)
        (slope,) = aj.autograd.grad(step(x), [weight])
        expect(slope, np.cos(values * (k + 1)) * values * (k + 1))

    return act


def draws(shared: Shared) -> Act:
    """No two draws are alike, whoever draws."""

    def act(k: int) -> None:
        drawn = aj.rand(4).numpy().tobytes()
        with shared.lock:
            assert drawn not in shared.made
            shared.made[drawn] = True

    return act


class Helper:
    """An object whose method steps call, and threads call as it is."""

    factor = 3.0

    def scale(self, x: Any) -> Any:
        parts = {"scaled": x * self.factor, "moved": x + self.factor}
        return sum(parts[name] for name in parts)


def observed(shared: Shared) -> Act:
    """A method runs as plain Python while other threads capture it."""
    helper = shared.helper

    def act(k: int) -> None:
        x, values = vector(k)
        expect(helper.scale(x), values * 3 + values + 3)
        expect(aj.jit(lambda t: helper.scale(t) + k)(x), values * 3 + values + 3 + k)

    return act


def threads(shared: Shared) -> Act:
    def act(k: int) -> None:
        aj.set_num_threads(1 + k % 3)
        big = aj.full((300, 300), float(k % 3))
        expect(shared.product(big)[1], np.full((300, 300), k % 3 + 1, np.float32))

    return act


ACTORS = (
    first_call, guard, sizes, numbers, clear, fork, errors, kept, same, eager, verified, told, counts, backward,
    first_backward, draws, observed, threads,
)  # fmt: skip


def race(makers: Sequence[Callable[[Shared], Act]], rounds: int, shared: Shared | None = None) -> None:
    """Let a thread for every actor act so many times; raises the first error of any."""
    shared = shared or Shared()
    failures: list[BaseException] = []
    begin = threading.Barrier(len(makers))

    def run(act: Act, seed: int) -> None:
        begin.wait()
        try:
            for k in range(rounds):
                if failures:
                    return
                act(k + seed)
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=run, args=(make(shared), 3 * k)) for k, make in enumerate(makers)]
    switch_s, cores = sys.getswitchinterval(), aj.get_num_threads()
    sys.setswitchinterval(SWITCH_S)
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(timeout=60 + rounds)
    finally:
        sys.setswitchinterval(switch_s)
        aj.set_num_threads(cores)
    assert not any(worker.is_alive() for worker in workers), "a thread hangs"
    if failures:
        raise failures[0]
    expect(shared.count, np.full(3, shared.counted))
