"""How long the first result takes: from an empty object cache, and in a second process that finds its objects there.

    python -m benchmarks.first_results [--programs heat,lstm,ctc,u_net,gpt,small] [--rounds 5]

Every figure is a fresh process that finds Python's bytecode, as after an installation (a checkout where nothing may
write it compiles autojit's sources at every import, four times as long); the programs take turns. *Result*: from the
start of the process, interpreter, NumPy and data included, until the first step has run. *Call*: that step alone, wall
clock; *processor*: in processor time of all threads, which other processes disturb less. The least of the rounds. With
``--warm`` the empty cache is one that ``python -m autojit warm`` has filled.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

FIGURES = ("result", "call", "processor")
Step = tuple[Callable[..., Any], tuple[Any, ...]]
Runs = dict[str, list[dict[str, float]]]


def ctc(aj: Any) -> Step:
    """Connectionist temporal classification of 50 frames, a linear layer in front."""
    aj.manual_seed(0)
    layer = aj.nn.Linear(16, 20)
    optimizer = aj.optim.Adam(layer.parameters(), 1e-3)
    rng = np.random.default_rng(0)
    frames = aj.tensor(rng.normal(size=(50, 8, 16)).astype(np.float32))
    labels = aj.tensor(rng.integers(1, 20, (8, 12)))
    lengths = aj.tensor(np.full(8, 50)), aj.tensor(np.full(8, 12))

    def step(frames: Any, labels: Any) -> Any:
        optimizer.zero_grad()
        loss = aj.nn.functional.ctc_loss(aj.nn.functional.log_softmax(layer(frames), -1), labels, *lengths)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return aj.jit(step), (frames, labels)


def u_net(aj: Any) -> Step:
    """Three levels of 16, 32 and 64 channels on 64 x 64 pixels, batch norm, a step of Adam."""
    nn = aj.nn
    aj.manual_seed(0)

    def block(given: int, made: int) -> Any:
        first, second = nn.Conv2d(given, made, 3, padding=1), nn.Conv2d(made, made, 3, padding=1)
        return nn.Sequential(first, nn.BatchNorm2d(made), nn.ReLU(), second, nn.BatchNorm2d(made), nn.ReLU())

    down, up = [block(3, 16), block(16, 32), block(32, 64)], [block(64, 32), block(32, 16)]
    wider = [nn.ConvTranspose2d(64, 32, 2, stride=2), nn.ConvTranspose2d(32, 16, 2, stride=2)]
    last, pool = nn.Conv2d(16, 2, 1), nn.MaxPool2d(2)
    optimizer = aj.optim.Adam(nn.ModuleList([*down, *up, *wider, last]).parameters(), 1e-3)
    x, y = aj.randn(4, 3, 64, 64), aj.randint(0, 2, (4, 64, 64))

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        first = down[0](x)
        second = down[1](pool(first))
        found = up[0](aj.cat([wider[0](down[2](pool(second))), second], 1))
        found = last(up[1](aj.cat([wider[1](found), first], 1)))
        loss = nn.functional.cross_entropy(found, y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return aj.jit(step), (x, y)


def small(aj: Any) -> Step:
    """A layer of 16 x 4 and its gradient."""
    weight, x = aj.randn(16, 4, requires_grad=True), aj.randn(8, 16)

    def step(x: Any) -> Any:
        loss = aj.tanh(x @ weight).sum()
        (slope,) = aj.autograd.grad(loss, (weight,))
        return loss.detach(), slope

    return aj.jit(step), (x,)


PROGRAMS = {"ctc": ctc, "u_net": u_net, "small": small}
"""Besides the workloads of the other benchmarks."""


def measure(name: str, started: float) -> dict[str, float]:
    """The figures of this process."""
    import autojit as aj

    if name in PROGRAMS:
        step, args = PROGRAMS[name](aj)
    else:
        from benchmarks.systems import prepare
        from benchmarks.workloads import WORKLOADS

        step, args = prepare("autojit", aj, WORKLOADS[name], "cpu").call, ()
    wall, processor = time.perf_counter(), time.process_time()
    step(*args)
    return {
        "result": time.time() - started,
        "call": time.perf_counter() - wall,
        "processor": time.process_time() - processor,
    }


def in_fresh_process(name: str, cache: str, bytecode: str) -> dict[str, float]:
    command = ["-m", "benchmarks.first_results", "--measure", name, "--started", str(time.time())]
    found: dict[str, float] = json.loads(output_of(command, cache, bytecode))
    return found


def output_of(command: list[str], cache: str, bytecode: str) -> str:
    environment = {**os.environ, "AUTOJIT_CACHE_DIR": os.path.join(cache, "objects"), "PYTHONPYCACHEPREFIX": bytecode}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True, env=environment)
    return done.stdout


def rounds(names: list[str], count: int, *, is_warm: bool) -> tuple[Runs, Runs]:
    """The figures of every process: from an empty cache, and of the next one."""
    cold: Runs = {name: [] for name in names}
    warm: Runs = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as bytecode:
        for k in range(1 + count):  # the first round writes the bytecode
            for name in names:
                with tempfile.TemporaryDirectory() as cache:
                    if is_warm:
                        output_of(["-m", "autojit", "warm"], cache, bytecode)
                    found = in_fresh_process(name, cache, bytecode), in_fresh_process(name, cache, bytecode)
                if k:
                    cold[name].append(found[0])
                    warm[name].append(found[1])
    return cold, warm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default="heat,lstm,ctc,u_net,gpt,small")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm", action="store_true", help="begin with what `python -m autojit warm` compiles")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--started", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.started)))
        return
    names = options.programs.split(",")
    cold, warm = rounds(names, options.rounds, is_warm=options.warm)
    print(
        f"{'seconds':10}" + "".join(f"{f'{kind} {figure}':>17}" for kind in ("empty", "second") for figure in FIGURES)
    )
    for name in names:
        found = [min(run[figure] for run in runs[name]) for runs in (cold, warm) for figure in FIGURES]
        print(f"{name:10}" + "".join(f"{seconds:17.3f}" for seconds in found))


if __name__ == "__main__":
    main()
