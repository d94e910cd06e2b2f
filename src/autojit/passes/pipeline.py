"""The passes in order."""

from __future__ import annotations

from collections.abc import Callable

from autojit.core.config import config
from autojit.core.late_interrupts import late_interrupts
from autojit.ir.graph import Graph
from autojit.ir.verifier import verify
from autojit.passes.accumulate import accumulate_products
from autojit.passes.common_subexpressions import eliminate_common_subexpressions
from autojit.passes.constants import fold_constants
from autojit.passes.dead_code import eliminate_dead_code
from autojit.passes.expand import expand
from autojit.passes.fill_empty import fill_empty
from autojit.passes.given_sizes import take_given_sizes
from autojit.passes.join_products import join_products
from autojit.passes.join_slices import join_slices
from autojit.passes.layout import transpose_products
from autojit.passes.loop_bodies import optimize_bodies
from autojit.passes.simplify import simplify

Pass = Callable[[Graph], Graph]

PASSES: tuple[Pass, ...] = (
    take_given_sizes,
    eliminate_dead_code,
    fill_empty,
    expand,
    simplify,
    eliminate_common_subexpressions,
    eliminate_dead_code,
    join_slices,
    fold_constants,
    transpose_products,
    simplify,
    join_products,
    eliminate_common_subexpressions,
    accumulate_products,
    eliminate_dead_code,
)
NEEDED: tuple[Pass, ...] = (
    take_given_sizes,
    eliminate_dead_code,
    fill_empty,
    expand,
    eliminate_dead_code,
)  # to be lowered at all


def optimize(graph: Graph) -> Graph:
    """Run every pass, on bodies of branches and loops first; under ``AUTOJIT_PASSES=none`` those that lowering needs.

    Under ``AUTOJIT_CHECK=1`` the verifier looks at the graph before the first and after each.
    """
    if config.check:
        verify(graph, after="recording")
    graph = optimize_bodies(graph, optimize)
    for run in NEEDED if config.passes == "none" else PASSES:
        late_interrupts.poll()
        graph = run(graph)
        if config.check:
            verify(graph, after=run.__name__)
    return graph
