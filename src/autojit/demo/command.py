"""``python -m autojit demo``: its arguments, and the run from data to verdict."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import autojit as aj
from autojit.core.config import config
from autojit.core.errors import ArgumentError
from autojit.demo.digits import bundled_digits, mnist
from autojit.demo.report import Progress, table, write_plot
from autojit.demo.training import Run, stage_text, train

STEPS, SMALL_STEPS = 1500, 150
EMULATED_STEPS = 20  # on a CUDA device that the host computes, instruction by instruction
GOAL, SMALL_GOAL = 0.97, 0.90  # held-out accuracy on scikit-learn's digits after that many steps
STAGES = ("captured", "adjoint", "optimised", "schedule", "llvm")
DEVICES = ("cpu", "cuda")
DEFAULT_PLOT = Path("out") / "demo.png"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The demo's own options."""
    parser.add_argument("--data", type=Path, metavar="DIR", help="MNIST's idx files; default: scikit-learn's digits")
    parser.add_argument("--steps", type=_positive, metavar="N", help=f"training steps; default: {STEPS}")
    parser.add_argument("--device", choices=DEVICES, default="cpu", help="where to train; default: cpu")
    parser.add_argument("--small", action="store_true", help=f"{SMALL_STEPS} steps, no plot unless asked for")
    parser.add_argument("--show", choices=STAGES, help="print that stage of the compiled step instead of training")
    parser.add_argument("--plot", type=Path, metavar="FILE", help=f"where the plot goes; default: {DEFAULT_PLOT}")


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of steps, 1 or more")
    return int(text)


def run(options: argparse.Namespace) -> int:
    """Run the demo; the process's exit status: 1 when the accuracy falls short of the goal.

    Raises:
        ArgumentError: the data is missing or damaged, compilation is switched off, or there is no such device.
    """
    if config.disable:
        raise ArgumentError("demo: there is nothing to compare", {"AUTOJIT_DISABLE": 1}, "unset AUTOJIT_DISABLE")
    is_emulated = _require(options.device)
    digits = bundled_digits() if options.data is None else mnist(options.data)
    if options.show is not None:
        print(stage_text(digits, options.show, options.device))
        return 0
    steps = options.steps or (EMULATED_STEPS if is_emulated else SMALL_STEPS if options.small else STEPS)
    print(digits.describe())
    eager = train(digits, steps, compiled=False, device=options.device, notice=Progress("eager", steps))
    before = aj.cache.stats()
    compiled = train(digits, steps, compiled=True, device=options.device, notice=Progress("compiled", steps))
    if options.device != "cpu":
        print(f"\n{_place(is_emulated)}", end="")
    print(f"\n{table(eager, compiled, aj.cache.stats() - before, is_timed=not is_emulated)}")
    plot = options.plot or (None if options.small else DEFAULT_PLOT)
    if plot is not None:
        _plot(plot, eager, compiled)
    goal = None if options.steps or options.data or is_emulated else SMALL_GOAL if options.small else GOAL
    return _verdict(goal, eager, compiled)


def _require(device: str) -> bool:
    """Whether the device, which must be there, is emulated."""
    if device == "cpu":
        return False
    if not aj.cuda.is_available():
        raise ArgumentError(
            "demo: there is no CUDA device",
            {"--device": device},
            "train on the CPU, or on a CUDA device that the host computes, slowly: AUTOJIT_CUDA=emulate",
        )
    return bool(aj.cuda.get_device_name().startswith("emulated"))


def _place(is_emulated: bool) -> str:
    name = aj.cuda.get_device_name()
    return f"device              {name}{': its times say nothing of a GPU' if is_emulated else ''}"


def _plot(path: Path, eager: Run, compiled: Run) -> None:
    try:
        write_plot(path, eager, compiled)
    except ImportError:
        print("plot                not written: matplotlib is not installed (pip install 'autojit[examples]')")
    else:
        print(f"plot                {path}")


def _verdict(goal: float | None, *runs: Run) -> int:
    if goal is None:
        return 0
    short = [run for run in runs if run.accuracy < goal]
    for run in short:
        print(
            f"demo: {run.mode} reached {run.accuracy:.1%} of the held-out digits, short of {goal:.0%}", file=sys.stderr
        )
    return 1 if short else 0
