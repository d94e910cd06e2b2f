"""What a GPU's steps call back, from the ops' samples: ``python tools/make_callbacks.py`` writes it to docs/cuda.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import autojit.ops  # noqa: F401
from autojit.codegen.cuda.machine import CUDA_MACHINE
from autojit.codegen.cuda.structured import PRINTERS, print_structured
from autojit.codegen.cuda.target import CudaTarget
from autojit.core.dtypes import ALL_DTYPES
from autojit.ir import Op
from autojit.ir.builder import GraphBuilder
from autojit.ir.graph import Graph
from autojit.ops.base import Elementwise, Structured
from autojit.ops.counted_positions import Counting
from autojit.ops.data_dependent import DataDependent
from autojit.ops.formula import is_lowered
from autojit.passes.pipeline import optimize
from autojit.schedule.kernels import StructuredKernel
from autojit.schedule.scheduler import schedule
from autojit.tensor.tensor import array_type

PAGE = Path(__file__).resolve().parents[1] / "docs" / "cuda.md"
BEGIN, END = "<!-- called back -->\n", "<!-- end of called back -->\n"
TARGET = CudaTarget("sm_90", 132)

LAPACK = "factorisations that iterate, with LAPACK's signs and order"
REASONS = {
    "decompositions": LAPACK,
    "eigenvalues": LAPACK,
    "indefinite": LAPACK,
    "matrix_exponential": LAPACK,
    "matrix_roots": LAPACK,
    "pseudo_inverse": LAPACK,
    "fourier": "Fourier transforms",
    "requirements": "what an op would refuse, asked by a captured `try`",
}
SPECIAL = "special functions without code for any target"


def _graphs(op_class: type[Op], is_complex: bool = False) -> Iterator[Graph]:
    """An op on each of its samples of real numbers, or of complex ones."""
    for dtype in ALL_DTYPES:
        for op, inputs in op_class.samples(dtype) if dtype.is_complex is is_complex else ():  # type: ignore[attr-defined]
            builder = GraphBuilder()
            yield builder.finish(builder.apply(op, [builder.input(array_type(x)) for x in inputs]))


def _has_callback(op_class: type[Op]) -> bool:
    """Whether a sample of the op has no code; of an op without samples, whether its class has none."""
    graphs = list(_graphs(op_class)) or list(_graphs(op_class, is_complex=True))
    if not graphs:
        has_code = any(base in PRINTERS for base in op_class.__mro__) or issubclass(op_class, DataDependent | Counting)
        return not has_code and not (issubclass(op_class, Elementwise) and is_lowered(op_class))
    for graph in graphs:
        for item in schedule(optimize(graph, CUDA_MACHINE), CUDA_MACHINE).kernels:
            for kernel in getattr(item, "kernels", [item]):
                if isinstance(kernel, StructuredKernel) and print_structured(kernel, TARGET) is None:
                    return True
    return False


def _is_primitive(op_class: type[Op]) -> bool:
    known = op_class.__module__.startswith("autojit.ops.") and hasattr(op_class, "samples")
    return known and (issubclass(op_class, Structured) or not hasattr(op_class, "graphs"))


def called_back() -> dict[str, list[str]]:
    """The ops that are called back for some real dtype, by reason."""
    found: dict[str, list[str]] = {}
    for name, op_class in sorted(Op.registry.load().items()):
        if _is_primitive(op_class) and _has_callback(op_class):
            reason = REASONS.get(op_class.__module__.removeprefix("autojit.ops."), SPECIAL)
            found.setdefault(reason, []).append(name)
    return found


def table() -> str:
    """The part of the page."""
    rows = [f"| {reason} | {', '.join(f'`{name}`' for name in names)} |" for reason, names in called_back().items()]
    return "\n".join(["| called back | ops |", "|---|---|", *sorted(rows), ""])


def page(text: str) -> str:
    """The page with the table as it is now."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table()}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
