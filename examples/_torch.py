"""The examples as torch programs: their imports changed, nothing else; and the two loss curves compared.

    python examples/_torch.py [EXAMPLE ...] [--small]

Runs each example eagerly under torch, then under autojit eagerly and compiled, and prints how far the curves are apart.
The programs of ``written_for_torch/`` say ``import torch``; of them, what they print under torch is recorded.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent
# torch has no NumPy functions of tensors, Numba ops, scan, export, and no group without a launcher
OWN = {"lennard_jones", "numba_op", "adaptive_ode", "data_parallel", "export_step"}
EXAMPLES = tuple(sorted({path.stem for path in FOLDER.glob("[a-z]*.py")} - OWN))
PROGRAMS = tuple(sorted((FOLDER / "written_for_torch").glob("*.py")))
IMPORT = re.compile(r"^(import|from) autojit\b", re.MULTILINE)


def load(name: str, library: str = "autojit") -> dict[str, Any]:
    """The namespace of an example; with another library its imports of autojit name that one instead."""
    path = FOLDER / f"{name}.py"
    source = IMPORT.sub(rf"\1 {library}", path.read_text(encoding="utf-8"))
    namespace: dict[str, Any] = {"__name__": name, "__file__": str(path)}
    exec(compile(source, str(path), "exec", dont_inherit=True), namespace)
    return namespace


def curve(name: str, library: str, *arguments: str) -> tuple[np.ndarray, float]:
    """What the example returns (its losses), and how many seconds it took; its printing is dropped."""
    program = load(name, library)
    start = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        losses = program["main"](list(arguments))
    return np.array(losses), time.perf_counter() - start


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """The greatest difference of two curves, relative to the greatest value."""
    return float(np.abs(a - b).max() / np.abs(a).max()) if len(a) == len(b) else np.inf


def sampled(losses: np.ndarray) -> np.ndarray:
    """At most 20 values of a curve, the first five among them."""
    return np.concatenate([losses[:5], losses[5 :: max(1, len(losses) // 15)]])[:20]


def numbers(printed: str) -> list[float]:
    """The numbers that a program has printed."""
    return [float(word) for word in re.findall(r"-?\d+\.?\d*(?:e[+-]?\d+)?", printed)]


def record(curves: dict[str, list[float]], file: Path) -> None:
    """Write curves to a JSON file, with what the programs print under torch."""
    for path in PROGRAMS:
        done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=True)
        curves[path.stem] = numbers(done.stdout)
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(values)}" for name, values in (known | curves).items())
    file.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="the examples under torch and under autojit")
    parser.add_argument("examples", nargs="*", metavar="EXAMPLE", help=", ".join(EXAMPLES))
    parser.add_argument("--small", action="store_true", help="smaller models and few steps")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write samples of torch's curves to a JSON file")
    options = parser.parse_args()
    size = ["--small"] if options.small else []
    sys.path.insert(0, str(FOLDER))
    print(f"{'example':18}{'torch':>9}{'eager':>9}{'compiled':>10}   first 5 / all: eager, compiled from torch")
    recorded: dict[str, list[float]] = {}
    for name in options.examples or EXAMPLES:
        torch, torch_s = curve(name, "torch", *size, "--eager")
        recorded[name] = [float(f"{v:.13g}") for v in sampled(torch)]
        eager, eager_s = curve(name, "autojit", *size, "--eager")
        compiled, compiled_s = curve(name, "autojit", *size)
        apart = [f"{distance(torch[:5], c[:5]):.0e} / {distance(torch, c):.0e}" for c in (eager, compiled)]
        print(f"{name:18}{torch_s:7.1f} s{eager_s:7.1f} s{compiled_s:8.1f} s   {', '.join(apart)}", flush=True)
    if options.record is not None:
        record(recorded, options.record)


if __name__ == "__main__":
    main()
