"""Passes on graphs in which they find work: each keeps the meaning, each does its job, and no cheaper form is lost."""

from __future__ import annotations

import numpy as np
import pytest

from autojit.ir import evaluate, verify
from tests.codegen.agreement import disagreement
from tests.passes.costs import MANY, measured, recorded, stages
from tests.passes.drawn_graphs import KINDS, arrays_for, drawn

ULPS = 256.0  # of the largest magnitude: sums over steps and products in another order, in up to two derivatives
NOT_DRAWN = {"drawn", "take_given_sizes", "split_folds", "find_column_positions", "settle_devices"}
NOT_DRAWN |= {"end_unawaited", "update_rows"}
"""No pass; sizes that depend on data; what the CPU does not need; one device is drawn; one rank; no table of a MiB; no
positions of extremes along columns."""


@pytest.mark.parametrize("kind", KINDS)
def test_every_pass_keeps_the_meaning(kind: str) -> None:
    for seed in range(100, 100 + MANY.get(kind, 10)):
        for order, graph in enumerate(drawn(kind, seed)):
            arrays = arrays_for(graph)
            with np.errstate(all="ignore"):
                expected = evaluate(graph, arrays)
                before = graph
                for name, changed in stages(graph):
                    if changed is before:
                        continue
                    verify(changed, after=name)
                    before = changed
                    for found, wanted in zip(evaluate(changed, arrays), expected, strict=True):
                        wrong = disagreement(found, wanted, ULPS)
                        assert not wrong, f"{kind} {seed}, derivative {order}, {name}: {wrong}\n{graph}\n{changed}"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
def test_what_passes_make_costs_what_was_recorded(kind: str, large: bool) -> None:
    kept = recorded()[f"{kind} {large}"]
    assert measured(kind, large) == kept, "record anew with python -m tests.passes.costs, and say why"


def test_every_pass_finds_work() -> None:
    work: dict[str, int] = {}
    for rows in recorded().values():
        for name, cost in rows.items():
            run = name.split()[-1]
            work[run] = work.get(run, 0) + cost.changed
    idle = {name for name, changed in work.items() if changed < 5}
    assert idle == NOT_DRAWN, work
