"""What the derivatives and the batched form of every op cost, as recorded: a rule that builds more than before is seen.

``python -m tests.transforms.costs`` records them anew; the difference of that file belongs to the change.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import autojit.ops  # noqa: F401 - fills the registry
from autojit.core.dtypes import complex128, float32, float64, int64
from autojit.ir import Graph, Op
from autojit.transforms.adjoint import adjoint
from autojit.transforms.jvp import jvp
from autojit.transforms.vmap import vmap
from tests.ops.laws import graph_of
from tests.passes.costs import Cost, cost_of
from tests.passes.drawn_graphs import KINDS, drawn

RECORDED = Path(__file__).parent / "recorded" / "costs.json"
CHAINS = "drawn graphs"
Made = Callable[[Graph], list[Graph]]


def _one_by_one(graph: Graph) -> list[int]:
    return [k for k, v in enumerate(graph.inputs) if v.type.dtype.is_differentiable]


def _batched(graph: Graph) -> list[Graph]:
    n = len(graph.inputs)
    alone = [tuple(k == j for k in range(n)) for j in range(n)] if n > 1 else []
    return [vmap(graph, batched, 2) for batched in [(True,) * n, *alone]]


FORMS: dict[str, Made] = {
    "adjoint": lambda graph: [adjoint(graph), *(adjoint(graph, [k]) for k in _one_by_one(graph))],
    "jvp": lambda graph: [jvp(graph), *(jvp(graph, [k]) for k in _one_by_one(graph))],
    "vmap": _batched,
    "adjoint of adjoint": lambda graph: [adjoint(adjoint(graph))],
    "jvp of adjoint": lambda graph: [jvp(adjoint(graph))],
}


def names() -> list[str]:
    """The ops that have samples."""
    every = Op.registry.load().items()
    return sorted(name for name, op in every if op.__module__.startswith("autojit.ops.") and hasattr(op, "samples"))


def measured(name: str) -> dict[str, list[int]]:
    """Per form: nodes, elements written and read and multiplications, over all samples; forms that there are not: 0."""
    totals = dict.fromkeys(FORMS, Cost())
    for dtype in (float64, float32, complex128, int64):
        for op, inputs in Op.registry.load()[name].samples(dtype):  # type: ignore[attr-defined]
            graph = graph_of(op, inputs)
            for form, make in FORMS.items():
                if inputs and (form == "vmap" or op.is_differentiable):
                    try:
                        made = make(graph)
                    except NotImplementedError:  # an operand by which there is no derivative
                        continue
                    for one in made:
                        totals[form] = totals[form].plus(cost_of(one))
    return {form: list(cost[:4]) for form, cost in totals.items()}


def measured_chains() -> dict[str, list[int]]:
    """Of drawn graphs by each input alone: what does not lead to it is not differentiated."""
    totals = {"adjoint": Cost(), "jvp": Cost()}
    for kind in KINDS:
        for graph in drawn(kind, 3)[:1]:
            for k in _one_by_one(graph):
                totals["adjoint"] = totals["adjoint"].plus(cost_of(adjoint(graph, [k])))
                totals["jvp"] = totals["jvp"].plus(cost_of(jvp(graph, [k])))
    return {form: list(cost[:4]) for form, cost in totals.items()}


def recorded() -> dict[str, dict[str, list[int]]]:
    """What was written by ``main``."""
    kept: dict[str, dict[str, list[int]]] = json.loads(RECORDED.read_text())
    return kept


def main() -> None:
    """Write what the ops' forms cost today."""
    RECORDED.parent.mkdir(exist_ok=True)
    rows = [f'"{name}": {json.dumps(measured(name))}' for name in names()]
    rows.append(f'"{CHAINS}": {json.dumps(measured_chains())}')
    RECORDED.write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main()
