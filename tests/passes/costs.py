"""What a graph costs: nodes, elements written and read, multiplications of matrix products; steps of loops count.

``python -m tests.passes.costs`` records what the passes make of the drawn graphs today, so that a pass that does less
(or more) than before shows in the difference of one file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from autojit.ir import Graph
from autojit.ops.matmul import Matmul, MatmulAdd
from autojit.ops.scan_steps import Scan
from autojit.passes.loop_bodies import optimize_bodies
from autojit.passes.open_bodies import open_bodies
from autojit.passes.pipeline import PASSES, Pass
from autojit.passes.prune_bodies import merge_scans, prune_bodies
from autojit.passes.resume_loops import resume_loops
from autojit.passes.share_steps import share_steps
from tests.on_cpu import CPU_MACHINE, hoist_steps, optimize, run_pass
from tests.passes.drawn_graphs import KINDS, drawn

RECORDED = Path(__file__).parent / "recorded" / "costs.json"
SEEDS = {False: 15, True: 12}  # of graphs that are small, and large
MANY = {"literals": 100, "layouts": 50}  # they are small and quick
STEPS = 4  # of a loop whose number of steps is found while it runs


class Cost(NamedTuple):
    """Totals over all steps of loops, but for the nodes."""

    nodes: int = 0
    written: int = 0
    read: int = 0
    multiplications: int = 0
    changed: int = 0  # graphs whose cost a pass changed

    def plus(self, other: Cost, times: int = 1) -> Cost:
        """The sum; what the other one moves and multiplies counts several times."""
        (n, *rest), (m, *more) = self, other
        return Cost(n + m, *(a + times * b for a, b in zip(rest, more, strict=True)))


def cost_of(graph: Graph) -> Cost:
    total = Cost()
    for node in graph.nodes:
        graphs = node.op.graphs() if hasattr(node.op, "graphs") else ()
        times = node.op.length if isinstance(node.op, Scan) else STEPS
        for inner in graphs:
            total = total.plus(cost_of(inner), times)
        products = 0
        if isinstance(node.op, Matmul | MatmulAdd):
            products = node.outputs[0].type.size * node.inputs[0].type.shape[-1]
        written, read = (sum(v.type.size for v in values) for values in (node.outputs, node.inputs))
        total = total.plus(Cost(1, written, read, products))
    return total


def _in_bodies(graph: Graph) -> Graph:
    return optimize_bodies(graph, CPU_MACHINE, optimize)


LOOP_PASSES: tuple[Pass, ...] = (
    merge_scans, open_bodies, prune_bodies, share_steps, prune_bodies, hoist_steps, prune_bodies, resume_loops,
    _in_bodies,
)  # fmt: skip


def stages(graph: Graph) -> Iterator[tuple[str, Graph]]:
    """The passes one after the other as the compiler runs them: (place and name, the graph after it)."""
    for place, run in enumerate((*LOOP_PASSES, *PASSES)):
        graph = run(graph) if run in LOOP_PASSES else run_pass(run, graph)
        yield f"{place} {run.__name__}", graph


def measured(kind: str, large: bool) -> dict[str, Cost]:
    """Per pass: the cost of all graphs of a kind after it; first that of the graphs, of which most are derivatives."""
    found: dict[str, Cost] = {}
    for seed in range(MANY.get(kind, SEEDS[large])):
        for graph in drawn(kind, seed, large):
            cost = cost_of(graph)
            found["drawn"] = found.get("drawn", Cost()).plus(cost)
            for name, after in stages(graph):
                was, cost = cost, cost_of(after)
                found[name] = found.get(name, Cost()).plus(cost._replace(changed=int(cost != was)))
    return found


def recorded() -> dict[str, dict[str, Cost]]:
    """What was written by ``main``."""
    kept: dict[str, dict[str, list[int]]] = json.loads(RECORDED.read_text())
    return {name: {run: Cost(*row) for run, row in rows.items()} for name, rows in kept.items()}


def main() -> None:
    """Write what the passes make of the graphs today."""
    every = {f"{kind} {large}": measured(kind, large) for kind in KINDS for large in (False, True)}
    rows = [
        f'"{name}": {{\n' + ",\n".join(f'  "{k}": {json.dumps(v)}' for k, v in costs.items()) + "\n}"
        for name, costs in every.items()
    ]
    RECORDED.write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main()
