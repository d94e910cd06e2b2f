"""The passes in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import cast

from autojit.core.config import config
from autojit.core.late_interrupts import late_interrupts
from autojit.core.machine import Machine
from autojit.core.size_recorder import agreed
from autojit.ir.graph import Graph
from autojit.ir.verifier import verify
from autojit.passes.accumulate import accumulate_products
from autojit.passes.begun_collectives import end_unawaited
from autojit.passes.body_devices import settle_devices
from autojit.passes.column_positions import find_column_positions
from autojit.passes.common_subexpressions import eliminate_common_subexpressions
from autojit.passes.constants import fold_constants
from autojit.passes.dead_code import eliminate_dead_code
from autojit.passes.expand import expand
from autojit.passes.fill_empty import fill_empty
from autojit.passes.given_sizes import take_given_sizes
from autojit.passes.join_products import join_products
from autojit.passes.join_rows import join_rows
from autojit.passes.join_slices import join_slices
from autojit.passes.join_sums import join_sums
from autojit.passes.layout import transpose_products
from autojit.passes.loop_bodies import optimize_bodies
from autojit.passes.narrow_products import loosen_narrow_products
from autojit.passes.read_parts import multiply_what_is_read
from autojit.passes.simplify import simplify
from autojit.passes.sparse_updates import update_rows
from autojit.passes.split_folds import split_folds

Pass = Callable[[Graph], Graph]
MachinePass = Callable[[Graph, Machine], Graph]

PASSES: tuple[Pass | MachinePass, ...] = (
    take_given_sizes,
    eliminate_dead_code,
    fill_empty,
    expand,
    simplify,
    eliminate_common_subexpressions,
    eliminate_dead_code,
    join_slices,
    fold_constants,
    multiply_what_is_read,
    transpose_products,
    simplify,
    eliminate_dead_code,
    join_rows,
    join_products,
    join_sums,
    eliminate_common_subexpressions,
    loosen_narrow_products,
    accumulate_products,
    split_folds,
    find_column_positions,
    update_rows,
    eliminate_dead_code,
    settle_devices,
    end_unawaited,
)
NEEDED: tuple[Pass | MachinePass, ...] = (
    take_given_sizes,
    eliminate_dead_code,
    fill_empty,
    expand,
    eliminate_dead_code,
    end_unawaited,
)  # to be lowered at all
FOR_MACHINES: frozenset[Pass | MachinePass] = frozenset(
    (
        expand,
        join_rows,
        join_products,
        loosen_narrow_products,
        accumulate_products,
        settle_devices,
        find_column_positions,
        split_folds,
        update_rows,
    )
)
"""Those that ask where the graph will run."""


def optimize(graph: Graph, machine: Machine) -> Graph:
    """Run every pass, on bodies of branches and loops first; under ``AUTOJIT_PASSES=none`` those that lowering needs.

    Under ``AUTOJIT_CHECK=1`` the verifier looks at the graph before the first and after each.
    """
    with agreed():
        if config.check:
            verify(graph, after="recording")
        graph = optimize_bodies(graph, machine, partial(optimize, machine=machine))
        for run in NEEDED if config.passes == "none" else PASSES:
            late_interrupts.poll()
            graph = run_pass(run, graph, machine)
            if config.check:
                verify(graph, after=run.__name__)
        return graph


def without_kernels(graph: Graph, machine: Machine) -> Graph:
    """Ops for which a machine has kernels of their own written out as the ops they are made of: for other formats."""
    return eliminate_dead_code(expand(eliminate_dead_code(graph), replace(machine, attention=None)))


def run_pass(run: Pass | MachinePass, graph: Graph, machine: Machine) -> Graph:
    """One of `PASSES` on a graph."""
    if run in FOR_MACHINES:
        return cast(MachinePass, run)(graph, machine)
    return cast(Pass, run)(graph)
