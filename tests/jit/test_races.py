"""Whatever several threads do to jitted functions at the same time: every call gets its right result, none fails."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from . import race_campaigns, racing

ROOT = Path(__file__).resolve().parents[2]
PAIRS = list(itertools.combinations_with_replacement(racing.ACTORS, 2))


def test_everything_at_once() -> None:
    racing.race(racing.ACTORS, 8)


@pytest.mark.parametrize("actor", racing.ACTORS, ids=lambda a: a.__name__)
def test_many_threads_do_the_same(actor: Callable[[racing.Shared], racing.Act]) -> None:
    racing.race([actor] * (3 if actor is racing.fork else 6), 4)


def test_draws_of_other_threads_are_no_difference_to_what_verification_compares() -> None:
    racing.race([racing.verified, racing.draws] * 4, 8)


def test_bursts_of_calls() -> None:
    racing.race(race_campaigns.BURSTS, 1)


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS, ids=lambda p: "-".join(a.__name__ for a in p))
def test_every_pair(pair: tuple[Callable[[racing.Shared], racing.Act], ...]) -> None:
    racing.race(pair * 4, 100)


@pytest.mark.slow
@pytest.mark.parametrize("is_warm", [False, True], ids=["cold", "warm"])
def test_first_calls_race_in_a_thousand_processes(is_warm: bool) -> None:
    assert race_campaigns.processes(1000, is_warm, float("inf")) == 0


@pytest.mark.slow
def test_ten_million_calls_of_shared_steps() -> None:
    race_campaigns.calls(10**7, float("inf"))


EXIT = """
import sys, threading, time
import autojit as aj
sys.setswitchinterval(1e-5)
step = aj.jit(lambda x: (x @ x).tanh().sum())
kept = []
def work(k):
    x = aj.ones(300 + k, 300 + k)
    while True:
        kept.append(step(x))
        del kept[:-50]
        aj.jit(lambda t: t * k)(x)
for k in range(4):
    threading.Thread(target=work, args=(k,), daemon=True).start()
time.sleep(float(sys.argv[1]))
"""


@pytest.mark.parametrize("after_s", [0.01, 0.3, 1.0])
def test_a_process_ends_while_threads_compile_and_run_steps(after_s: float) -> None:
    done = subprocess.run(
        [sys.executable, "-c", EXIT, str(after_s)], capture_output=True, text=True, timeout=600, cwd=ROOT / "src"
    )
    assert (done.returncode, done.stderr) == (0, "")


HELD_FOR_EVER = """
import gc, threading, time, weakref
import autojit as aj
from autojit.core import locks

class Noisy:
    def __init__(self, model):
        self.model = model
    def __del__(self):
        del self.model

model = aj.nn.Linear(600, 600)
opt = aj.optim.Adam(model.parameters())
def train(x):
    opt.zero_grad()
    loss = model(x).tanh().sum()
    loss.backward()
    opt.step()
    return loss, model(x)
step = aj.jit(train)
kept = [train(aj.ones(600, 600)), step(aj.ones(600, 600)), step, Noisy(step(aj.ones(600, 600)))]
kept.append(kept)
held = threading.Event()
def hold():
    for lock in tuple(locks._locks):
        lock.acquire()
    held.set()
    time.sleep(1000)
threading.Thread(target=hold, daemon=True).start()
held.wait()
if HOW == "collected":
    del kept, step, opt, model
    gc.collect()
"""


@pytest.mark.parametrize("how", ["collected", "at exit"])
def test_what_is_freed_waits_for_no_lock(how: str) -> None:
    """A daemon thread that the end of the process stops may have any lock; nobody opens it again."""
    done = subprocess.run(
        [sys.executable, "-c", f"HOW = {how!r}\n{HELD_FOR_EVER}"],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=ROOT / "src",
    )
    assert (done.returncode, done.stderr) == (0, "")
