"""The kernels that programs become on CUDA, without a device: one JSON line each. Run by `tools.kernel_facts`.

    AUTOJIT_CUDA=emulate,sm_90 python -O -m tools.kernel_programs [NAME...] [--bench FOLDER]

Programs run as they would, on a device that runs a few blocks of each kernel (`tools.idle_device`): so kernels,
addresses and entry points are those of the runtime, at full size, and results are whatever memory holds. Who reads a
result and decides by it may go another way than usual, and one that fails is said to have stopped; what it had compiled
until then counts. So programs run with ``-O``: they do not judge their results (``assert``), nor do distributions
their parameters, whose checks are the only kernels that are not seen.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import autojit as aj
from autojit.codegen.cuda.early_start import Start
from autojit.core.sizes import is_symbolic
from autojit.runtime.gpu import devices
from autojit.runtime.gpu.bound_launch import BoundLaunch
from autojit.runtime.gpu.works import size_of
from benchmarks.systems import prepare
from benchmarks.workloads import WORKLOADS
from tools.access_classes import Range
from tools.idle_device import IdleDriver, told

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"


def programs(bench: Path | None) -> dict[str, Callable[[], object]]:
    """Programs by name: workloads of a folder if one is given, those of ``benchmarks``, and ``examples``."""
    found: dict[str, Callable[[], object]] = {}
    if bench is not None:
        sys.path.insert(0, str(bench))
        for name in importlib.import_module("workloads").REGISTRY:
            found[f"bench/{name}"] = _of_bench(name)
    for name, workload in WORKLOADS.items():
        found[f"workload/{name}"] = lambda workload=workload: _workload(workload)  # type: ignore[misc]
    sys.path.insert(0, str(EXAMPLES))
    for path in sorted(EXAMPLES.glob("[a-z]*.py")):
        text = path.read_text()
        if "--device" in text or ("from _setup import" in text and "--device" in (EXAMPLES / "_setup.py").read_text()):
            found[f"example/{path.stem}"] = _example(path.stem, "--steps" in text or "options(" in text)
    return found


def _of_bench(name: str) -> Callable[[], object]:
    def run() -> None:
        module, size = importlib.import_module("workloads").get(name)
        step, arguments, _ = module.build(aj, "cuda", size)
        aj.jit(step)(*arguments)

    return run


def _workload(workload: Any) -> None:
    aj.set_default_device("cuda")
    try:
        prepare("autojit", aj, workload, "cuda").call()
    finally:
        aj.set_default_device("cpu")


def _example(name: str, has_steps: bool) -> Callable[[], object]:
    def run() -> None:
        options = ["--device", "cuda", *(["--steps", "2"] if has_steps else [])]
        importlib.import_module(name).main(options)

    return run


@contextmanager
def _recording(record: Callable[[BoundLaunch, str], None]) -> Iterator[None]:
    """Inside, be told of every launch that is bound to memory."""
    usual = BoundLaunch.text

    def text(self: BoundLaunch, start: Start) -> str:
        found = usual(self, start)
        record(self, found)
        return found

    BoundLaunch.text = text  # type: ignore[method-assign]
    try:
        yield
    finally:
        BoundLaunch.text = usual  # type: ignore[method-assign]


def _buffers(one: BoundLaunch) -> list[Range]:
    """Where the buffers are that kernels access, with the bytes of their elements."""
    found: list[Range] = []
    for kernel in one.kernels:
        for k, (argument, buffer) in enumerate(zip(kernel.work.buffers, kernel.kernel.buffers, strict=True)):
            size_bytes = size_of(argument)
            address = kernel.present_address(k)
            if address is not None and not is_symbolic(size_bytes):
                found.append((address, address + size_bytes, buffer.element_bytes))
    return found


def _row(program: str, one: BoundLaunch, text: str) -> dict[str, Any]:
    return {
        "program": program,
        "kernel": one.label,
        "blocks": list(one.blocks),
        "threads": one.grid.threads,
        "bytes": sum(kernel.traffic_bytes for kernel in one.kernels),
        "ptx": devices.cuda_device(0).kernels.ptx([text])[0],
    }


def _print(driver: IdleDriver, name: str, run: Callable[[], object]) -> None:
    """One line for each kernel that a program launches."""
    bound: list[tuple[BoundLaunch, str]] = []  # how many blocks open sizes ask for is known when they have run
    with _recording(lambda one, text: bound.append((one, text))):
        try:
            with redirect_stdout(StringIO()):
                run()
        except Exception as error:
            print(json.dumps({"program": name, "stopped": f"{type(error).__name__}: {error}"}))
    for one, text in bound:
        row = _row(name, one, text)
        print(json.dumps(row | told(driver.accesses.get(row["ptx"]), _buffers(one))), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names; default: all")
    parser.add_argument("--bench", type=Path, help="a folder with a package ``workloads``")
    parser.add_argument("--texts", action="store_true", help="run no blocks: accesses stay unknown")
    options = parser.parse_args()
    if not devices.settings().emulates:
        parser.error("no device is to run: AUTOJIT_CUDA=emulate says so")
    driver = IdleDriver(devices.settings().architecture, samples=not options.texts)
    devices.set_driver(driver)
    for name, run in programs(options.bench).items():
        if not options.names or any(part in name for part in options.names):
            _print(driver, name, run)
    sys.stdout.flush()
    os._exit(0)  # what memory holds is nobody's result


if __name__ == "__main__":
    main()
