"""Long races: many fresh processes whose first calls race, and millions of calls of steps that threads share.

From the root of the repository, with ``src`` on the path::

    python -m tests.jit.race_campaigns processes --count 1000          fresh processes, cache cold
    python -m tests.jit.race_campaigns processes --count 1000 --warm   the same with a warm cache
    python -m tests.jit.race_campaigns calls --count 10000000          calls of shared steps by 8 threads

A *burst* is an actor that calls a shared step some hundred times and keeps all results before it looks at any: their
memory is held together, which is what threads could confuse, and one comparison of NumPy checks them all, so that the
time goes into calls.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import autojit as aj

from .racing import Act, Shared, check_scaled, race, vector

BURST = 250  # calls whose results are held together
SLOPES = 25  # a call with its gradient takes as long as many calls
ROUNDS = 20  # bursts of a thread between two looks at the time
INPUTS = 16
FIRST_CALLS = 10


def close(found: Sequence[aj.Tensor], wanted: Sequence[Any]) -> None:
    """Every result is the wanted one up to rounding."""
    values = np.concatenate([t.detach().numpy().ravel() for t in found])
    expected = np.concatenate([np.ravel(w) for w in wanted])
    assert values.shape == expected.shape
    wrong = np.flatnonzero(~(np.abs(values - expected) <= 1e-5 * (1 + np.abs(expected))))
    assert not wrong.size, (wrong[:5], values[wrong[:5]], expected[wrong[:5]])


def powers(shared: Shared) -> Act:
    inputs = [vector(k) for k in range(INPUTS)]

    def act(k: int) -> None:
        calls = [(*inputs[j % INPUTS], (j + k) % 23 + 0.5) for j in range(BURST)]
        close([shared.powered(x, factor) for x, _, factor in calls], [v * factor + 1 for _, v, factor in calls])

    return act


def products(shared: Shared) -> Act:
    inputs = [aj.full((6, 6), float(k)) for k in range(INPUTS)]
    wanted = [(np.full((6, 6), np.tanh(6.0 * k * k)), np.full((6, 6), k + 1.0)) for k in range(INPUTS)]

    def act(k: int) -> None:
        found = [shared.product(inputs[(j + k) % INPUTS]) for j in range(BURST)]
        for part in range(2):
            close([both[part] for both in found], [wanted[(j + k) % INPUTS][part] for j in range(BURST)])

    return act


def scales(shared: Shared) -> Act:
    """Sizes change within a burst; all threads call with the one scale."""
    inputs = [vector(k, 3 + k % 11) for k in range(2 * INPUTS)]

    def act(k: int) -> None:
        calls = [inputs[(j + k) % len(inputs)] for j in range(BURST)]
        found = [shared.scaled(x) for x, _ in calls]
        close([scaled for scaled, _ in found], [2 * v + 1 for _, v in calls])
        close([total for _, total in found], [2 * v.sum(dtype=np.float64) for _, v in calls])

    return act


def counted(shared: Shared) -> Act:
    inputs = [vector(k) for k in range(INPUTS)]

    def act(k: int) -> None:
        calls = [inputs[(j + k) % INPUTS] for j in range(BURST)]
        found = [shared.counts(x) for x, _ in calls]
        with shared.counting:
            shared.counted += BURST
        close(found, [v for _, v in calls])

    return act


def picks(shared: Shared) -> Act:
    """Every third index is out of range and must raise, and nothing but it."""
    inputs = [vector(k) for k in range(INPUTS)]
    places = [aj.tensor([place]) for place in range(7)]

    def act(k: int) -> None:
        found, wanted = [], []
        for j in range(BURST):
            (x, values), place = inputs[j % INPUTS], (j + k) % 7
            try:
                found.append(shared.picking(x, places[place]))
            except IndexError:
                assert place >= 5, place
            else:
                assert place < 5, place
                wanted.append(values[[place]] * 2)
        close(found, wanted)

    return act


def slopes(shared: Shared) -> Act:
    inputs = [vector(k) for k in range(INPUTS)]

    def act(k: int) -> None:
        calls = [inputs[(j + k) % INPUTS] for j in range(SLOPES)]
        found = [aj.autograd.grad(shared.weighted(x), [shared.weight])[0] for x, _ in calls]
        close(found, [v for _, v in calls])

    return act


BURSTS: tuple[Callable[[Shared], Act], ...] = (
    powers, products, scales, counted, picks, products, powers, slopes,
)  # fmt: skip


def calls(count: int, seconds: float) -> None:
    """So many calls of shared steps by eight threads."""
    shared, start, ran = Shared(), time.monotonic(), 0
    while ran < count and time.monotonic() - start < seconds:
        race(BURSTS, ROUNDS, shared)
        ran += ROUNDS * sum(SLOPES if actor is slopes else BURST for actor in BURSTS)
    print(f"{ran} calls, no error, no wrong value, {time.monotonic() - start:.0f} s")


def first_calls() -> None:
    """What a fresh process does: eight threads call the same functions for the first time."""
    shared = Shared()
    functions = [aj.jit(lambda a, b, k=k: (a @ b).tanh().sum() + k) for k in range(FIRST_CALLS)]
    x = np.random.default_rng(0).standard_normal((40, 40)).astype(np.float32)
    t, wanted = aj.tensor(x), np.tanh(x @ x).sum()

    def make(shared: Shared) -> Act:
        def act(k: int) -> None:
            found = functions[k % FIRST_CALLS](t, t).item()
            assert abs(found - wanted - k % FIRST_CALLS) < 1e-2, (found, wanted)
            check_scaled(shared.scaled(vector(k)[0]), vector(k)[1])

        return act

    race([make] * 8, FIRST_CALLS, shared)


def processes(count: int, is_warm: bool, seconds: float, at_once: int = 1) -> int:
    """So many fresh processes with racing first calls; how many failed."""
    start, folder = time.monotonic(), tempfile.mkdtemp(prefix="autojit-race-")

    def one(k: int) -> int | None:
        if time.monotonic() - start > seconds:
            return None
        cache = os.path.join(folder, "warm" if is_warm else str(k))
        done = subprocess.run(
            [sys.executable, "-m", "tests.jit.race_campaigns", "first"],
            env={**os.environ, "AUTOJIT_CACHE_DIR": cache}, capture_output=True, text=True, timeout=600,
        )  # fmt: skip
        if not is_warm:
            shutil.rmtree(cache, ignore_errors=True)
        if done.returncode:
            print(f"process {k} ended with {done.returncode}\n{done.stderr[-2000:]}", flush=True)
        return done.returncode

    try:
        with ThreadPoolExecutor(at_once) as pool:
            codes = [code for code in pool.map(one, range(count)) if code is not None]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    failed = sum(code != 0 for code in codes)
    print(f"{len(codes)} processes, {'warm' if is_warm else 'cold'}: {failed} failed, {time.monotonic() - start:.0f} s")
    return failed


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Race threads over jitted functions.")
    parser.add_argument("what", choices=("processes", "calls", "first"))
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--at-once", type=int, default=1, help="processes at the same time")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    options = parser.parse_args()
    if options.what == "first":
        first_calls()
    elif options.what == "calls":
        calls(options.count, options.seconds)
    else:
        return processes(options.count, options.warm, options.seconds, options.at_once)
    return 0


if __name__ == "__main__":
    sys.exit(main())
