"""Write the op reference: one page per family in docs/reference/, made from the op classes and nothing else.

    python tools/make_op_reference.py [FOLDER]      # default: docs/reference

Each entry has what the class says about itself: its docstring, static parameters, the types of a few sample inputs and
results, the dtypes it takes, and its backward graph for the first sample, which is what the VJP rule records.
"""

from __future__ import annotations

import inspect
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autojit.core import dtypes
from autojit.core.dtypes import dtype_of_numpy
from autojit.core.records import finish
from autojit.core.types import TensorType
from autojit.ir import Graph, GraphBuilder, Op
from autojit.ir.op import Registry
from autojit.ops.base import Elementwise, Reduction, Reindex, Source, Structured
from autojit.passes.dead_code import eliminate_dead_code
from autojit.transforms.adjoint import adjoint

ROOT = Path(__file__).resolve().parents[1]
FAMILIES = (
    ("elementwise", Elementwise, "One scalar from scalars; operands broadcast. Any chain of them is one loop."),
    ("reindex", Reindex, "Which input element each output element is. Costs nothing inside a fused kernel."),
    ("reduction", Reduction, "An associative operator and its identity over some axes."),
    ("source", Source, "An element from its index: constants, ranges, random numbers."),
    ("structured", Structured, "Ops whose loops are lowered by a module of their own, or that call LAPACK."),
    ("other", Op, "Ops with rules of their own that belong to no family."),
)  # fmt: skip
DTYPES = ("bool_", "uint8", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128")
SAMPLES_SHOWN = 3
LONGEST_GRAPH = 12  # lines; a longer backward graph is counted instead


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "docs" / "reference").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages(folder).items():
        (folder / name).write_text(text, encoding="utf-8")


def pages(folder: Path) -> dict[str, str]:
    """File name -> text, with links as seen from the folder."""
    found: dict[str, str] = {}
    rows = []
    for name, title, classes, summary in families():
        entries = "\n".join(entry(cls, folder) for cls in classes)
        found[f"{name}.md"] = f"# {title} ops\n\n{summary} {MADE_BY}\n\n{entries}"
        links = ", ".join(f"[{cls.name}]({name}.md#{cls.name})" for cls in classes)
        rows.append(f"| [{title}]({name}.md) | {summary} | {links} |")
    table = "\n".join(["| family | what it states | ops |", "|---|---|---|", *rows])
    found["index.md"] = f"# Op reference\n\n{HEAD}\n\n{table}\n"
    return found


MADE_BY = "Made by `tools/make_op_reference.py` from the classes."
HEAD = f"""The ops that graphs consist of. Functions such as `aj.softmax` or `nn.functional.gelu` are composites over
them; the [API reference](../api.md) has those. {MADE_BY}

A derivative is the backward graph of the first sample: the graph's inputs, then the cotangent `y_bar0` of the result,
to the cotangents of the inputs. It consists of ops, so every order follows."""


def families() -> Iterator[tuple[str, str, list[type[Op]], str]]:
    """(file stem, title, classes in alphabetical order, what the family states); a class is in the first that fits."""
    left = {name: cls for name, cls in sorted(registry().items()) if cls.__module__.startswith("autojit.ops.")}
    for name, base, summary in FAMILIES:
        mine = {op_name: cls for op_name, cls in left.items() if base in cls.__mro__}
        left = {op_name: cls for op_name, cls in left.items() if op_name not in mine}
        yield name, name.capitalize(), list(mine.values()), summary


def registry() -> Registry:
    return Op.registry.load()


def entry(cls: type[Op], folder: Path) -> str:
    """What is known of one op."""
    lines = [f"## {cls.name}", "", inspect.cleandoc(cls.__doc__ or ""), ""]
    finish(cls)  # a class of which no op was made yet
    if cls.__match_args__:
        lines.append(f"- parameters: {', '.join(f'`{name}`' for name in cls.__match_args__)}")
    lines += [f"- {line}" for line in (types_of(cls), dtypes_of(cls)) if line]
    source = Path(inspect.getsourcefile(cls) or "")
    lines.append(f"- source: [{source.name}]({Path(os.path.relpath(source, folder)).as_posix()})")
    return "\n".join([*lines, *derivative_of(cls), ""])


def samples_of(cls: type[Op], dtype: str) -> list[tuple[Op, Sequence[Any]]]:
    """The samples that the laws of ops are checked on; none where the op does not take the dtype."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(cls.samples(getattr(dtypes, dtype))) if hasattr(cls, "samples") else []


def graph_of(op: Op, inputs: Sequence[Any]) -> Graph:
    """The graph of one application."""
    builder = GraphBuilder()
    types = [TensorType(np.shape(x), dtype_of_numpy(np.asarray(x).dtype)) for x in inputs]
    return builder.finish(builder.apply(op, [builder.input(t) for t in types]))


def types_of(cls: type[Op]) -> str:
    """A few samples as ``op: types -> types``."""
    shown: list[str] = []
    for op, inputs in next(
        (s for s in (samples_of(cls, d) for d in ("float64", "complex128", "int64", "bool_")) if s), []
    ):
        graph = graph_of(op, inputs)
        operands, results = (", ".join(str(v.type) for v in side) for side in (graph.inputs, graph.outputs))
        text = f"`{op}: {operands} -> {results}`" if operands else f"`{op}: {results}`"
        if text not in shown and len(text) < 160:
            shown.append(text)
        if len(shown) == SAMPLES_SHOWN:
            break
    return f"types: {', '.join(shown)}" if shown else ""


def dtypes_of(cls: type[Op]) -> str:
    """The dtypes there are samples of."""
    accepted = [dtype.strip("_") for dtype in DTYPES if samples_of(cls, dtype)]
    return f"dtypes: {', '.join(accepted)}" if accepted else ""


def derivative_of(cls: type[Op]) -> list[str]:
    """The backward graph of the first differentiable sample, or why there is none."""
    why = getattr(cls.vjp, "not_differentiable", None)
    if why is not None:
        return [f"- derivative: none, {why}"]
    for dtype in ("float64", "complex128"):
        for op, inputs in samples_of(cls, dtype):
            if all(np.size(x) for x in inputs):
                return backward(op, inputs)
    return ["- derivative: by the graphs it holds"]


def backward(op: Op, inputs: Sequence[Any]) -> list[str]:
    graph = eliminate_dead_code(adjoint(graph_of(op, inputs)))
    text = str(graph)
    if len(text.splitlines()) > LONGEST_GRAPH:
        ops = sorted({node.op.name for node in graph.nodes})
        return [f"- derivative: {len(graph.nodes)} ops ({', '.join(ops)})"]
    return ["- derivative:", "", "```text", text, "```"]


if __name__ == "__main__":
    main()
