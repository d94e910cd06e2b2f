"""Launches and bytes of one call of each workload on a GPU, beside what a design of it allows.

    python -m benchmarks.device_launches [--workloads mlp_mnist,gpt] [--folder DIRECTORY] [--apart] [--verbose]

No GPU is needed: the emulated device takes all work and does none (``AUTOJIT_CUDA=emulate,idle``). So full sizes
are compiled, planned and counted in seconds. ``--folder`` has other programs than `benchmarks.workloads`: each
module ``workloads/NAME.py`` there has ``build(namespace, device, size)``, which gives a function and its arguments.
``--apart`` counts a launch for each kernel; ``--verbose`` lists the launches with their parts.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MB = 1e6

ALLOWED = {  # launches of a call, megabytes: the design's estimates by the arithmetic of each program
    "mlp_digits": (3, 0.3),
    "mlp_mnist": (14, 24),
    "convnet": (20, 38),
    "gpt": (95, 415),
    "pinn_burgers": (6, 423),
    "black_scholes": (1, 128),
    "softmax_layernorm": (3, 67),
    "rosenbrock10": (1, 0),
    "rnn": (70, 245),
    "stencil": (60, 1049),
    "hmc": (1, 4),
    "resnet_block": (16, 45),
    "logreg_newton": (25, 117),
    "embedding_bag": (9, 31),
}
LARGER_HERE = ("embedding_bag",)
"""Whose workload in this folder is of another size than the design's."""
LAUNCHES_TOO, BYTES_TOO = 1.3, 1.15
"""How much more than that is still good."""

Program = tuple[Callable[..., Any], tuple[Any, ...]]


@dataclass(frozen=True)
class Counted:
    """One workload."""

    name: str
    launches: int
    megabytes: float
    fallbacks: int
    elapsed_s: float
    allowed: tuple[int, float] | None

    def line(self) -> str:
        """A row of the table; what is beyond the bar is marked."""
        row = f"{self.name:18s} {self.launches:8d}"
        if self.allowed is None:
            return f"{row} {'-':>8s}   {self.megabytes:9.1f} {'-':>8s}   {self.fallbacks:9d} {self.elapsed_s:7.1f}"
        launches, megabytes = self.allowed
        many = "!" if self.launches > launches * LAUNCHES_TOO else " "
        much = "!" if self.megabytes > max(megabytes * BYTES_TOO, 0.1) else " "
        counts = f"{row} {launches:8d} {many} {self.megabytes:9.1f} {megabytes:8.1f} {much}"
        return f"{counts} {self.fallbacks:9d} {self.elapsed_s:7.1f}"


HEAD = f"{'workload':18s} {'launches':>8s} {'design':>8s}   {'MB':>9s} {'design':>8s}   {'fallbacks':>9s} {'s':>7s}"


def count(name: str, program: Program, allowed: tuple[int, float] | None, *, is_verbose: bool) -> Counted:
    """Call a program once on the device and read off what was counted."""
    import autojit as aj

    function, arguments = program
    step = aj.jit(function)
    start_s = time.perf_counter()
    step(*arguments)
    stats = step.stats()
    if is_verbose:
        print(step.show("schedule"))
    elapsed_s = time.perf_counter() - start_s
    return Counted(name, stats["launches"], stats["device_bytes"] / MB, stats["fallbacks"], elapsed_s, allowed)


def own_programs(names: list[str]) -> Iterator[tuple[str, Program]]:
    """Those of `benchmarks.workloads`."""
    from benchmarks.systems import load, plain_step
    from benchmarks.workloads import STEPS
    from benchmarks.workloads.problem import Function, Training

    for name in names or list(STEPS):
        namespace = load("autojit", threads=1, device="cuda")
        problem = STEPS[name].build(namespace)
        assert isinstance(problem, Training | Function), "one compiled step each"
        yield name, (plain_step(namespace, problem), problem.args)


def programs_in(folder: Path, names: list[str]) -> Iterator[tuple[str, Program]]:
    """Those of another folder, at full size."""
    import autojit as aj

    sys.path.insert(0, str(folder))
    for name in names or list(ALLOWED):
        function, arguments, *_ = importlib.import_module(f"workloads.{name}").build(aj, "cuda", "full")
        yield name, (function, arguments)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workloads", default="", help="names, with commas")
    parser.add_argument("--folder", type=Path, help="has other programs, in its folder workloads")
    parser.add_argument("--apart", action="store_true", help="every kernel is launched for itself")
    parser.add_argument("--verbose", action="store_true", help="list launches and their parts")
    given = parser.parse_args()
    os.environ["AUTOJIT_CUDA"] = "emulate,idle,apart" if given.apart else "emulate,idle"
    warnings.filterwarnings("ignore", message=".*emulated.*")
    names = [name for name in given.workloads.split(",") if name]
    print(HEAD)
    programs = own_programs(names) if given.folder is None else programs_in(given.folder, names)
    for name, program in programs:
        allowed = None if given.folder is None and name in LARGER_HERE else ALLOWED.get(name)
        print(count(name, program, allowed, is_verbose=given.verbose).line(), flush=True)


if __name__ == "__main__":
    main()
