"""The steps of the corpus by name: each is a function that runs what is to be compiled.

Programs run twice, so that what only a second call shows (gradients added to, sizes that differ) is compiled too. Ops
are lowered alone: what they compute is judged elsewhere.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

import autojit as aj
from autojit.core.dtypes import ALL_DTYPES
from autojit.ir import Op
from autojit.transforms.adjoint import adjoint
from benchmarks.systems import prepare
from benchmarks.workloads import STEPS as BENCHMARKED
from tests.acceptance.programs import PROGRAMS
from tests.golden.further_steps import STEPS
from tests.golden.printing import Printer, lowered_for_target, watched
from tests.ops.laws import graph_of

HERE = Path(__file__).resolve().parents[2]
SHARED_BENCH = HERE.parent / "shared" / "bench"
NOT_IN = ("numba_op",)  # Numba prints its functions for the processor at hand
DERIVED = ("f32",)  # dtypes in which ops are taken on every sample, and with their adjoints; else on one

Case = Callable[[Printer], str]


def cases() -> dict[str, Case]:
    """Every step; those of the shared benchmarks only where that folder lies beside the project."""
    found: dict[str, Case] = {f"op_{op.name}": partial(_op, op) for op in _ops()}
    for name, program in PROGRAMS.items():
        for size in ("tiny", "medium"):
            found[f"program_{name}_{size}"] = partial(_run, partial(_program, program.build, size))
    for name in BENCHMARKED:
        found[f"workload_{name}"] = partial(_run, partial(_workload, name))
    for path in sorted((HERE / "examples").glob("[a-z]*.py")):
        if path.stem not in NOT_IN:
            found[f"example_{path.stem}"] = partial(_run, partial(_example, path.stem))
    for name, step in STEPS.items():
        found[f"step_{name}"] = partial(_run, step)
    if SHARED_BENCH.is_dir():
        found |= {f"shared_{name}": partial(_run, partial(_shared, name)) for name in _shared_names()}
    return found


def is_shared(name: str) -> bool:
    """Whether a step is one of the shared benchmarks, which are not everywhere."""
    return name.startswith("shared_")


def _run(run: Callable[[], None], printer: Printer) -> str:
    aj.manual_seed(0)
    with watched(printer) as texts, redirect_stdout(StringIO()):
        run()
    assert texts, "nothing was compiled"
    return "\n\n".join(texts) + "\n"


def _ops() -> Iterator[type[Op]]:
    for op in sorted(Op.registry.load().values(), key=lambda op: op.name):
        if op.__module__.startswith("autojit.ops.") and hasattr(op, "samples"):
            yield op


def _op(op_class: type[Op], printer: Printer) -> str:
    """The op on its samples in each dtype, and its adjoint where it has one."""
    texts: list[str] = []
    for dtype in ALL_DTYPES:
        samples = op_class.samples(dtype)  # type: ignore[attr-defined]
        for op, inputs in samples if dtype.short in DERIVED else samples[:1]:
            graph = graph_of(op, inputs)
            texts.append(printer.step(lowered_for_target(graph)))
            if dtype.short in DERIVED:
                try:
                    derivative = adjoint(graph)
                except NotImplementedError as error:
                    texts.append(f"no adjoint: {error}".splitlines()[0])
                else:
                    texts.append(printer.step(lowered_for_target(derivative)))
    return "\n\n".join(texts) + "\n"


def _program(build: Callable[[Any], Any], size: str) -> None:
    run = build(size)
    step = aj.jit(run.step)
    for _ in range(2):
        step(*run.args)


def _workload(name: str) -> None:
    prepared = prepare("autojit", aj, BENCHMARKED[name])
    for _ in range(2):
        prepared.call()


def _example(name: str) -> None:
    folder = str(HERE / "examples")
    sys.path.insert(0, folder)
    try:
        importlib.import_module(name).main(["--small"])
    finally:
        sys.path.remove(folder)
        sys.modules.pop(name, None)


def _shared_names() -> list[str]:
    return [name for name in _shared_workloads().REGISTRY if name not in BENCHMARKED]


def _shared_workloads() -> ModuleType:
    folder = str(SHARED_BENCH)
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module("workloads")


def _shared(name: str) -> None:
    module, size = _shared_workloads().get(name)
    step, args, _ = module.build(aj, "cpu", size)
    compiled = aj.jit(step)
    for _ in range(2):
        compiled(*args)
