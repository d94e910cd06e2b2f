"""Derivative rules and batched forms of ops build what they built when their costs were recorded, and no more."""

from __future__ import annotations

import pytest

from tests.transforms.costs import CHAINS, measured, measured_chains, names, recorded

KEPT = recorded()


@pytest.mark.parametrize("name", names())
def test_the_forms_of_an_op_cost_what_was_recorded(name: str) -> None:
    assert measured(name) == KEPT.get(name), "record anew with python -m tests.transforms.costs, and say why"


def test_derivatives_by_some_inputs_cost_what_was_recorded() -> None:
    assert measured_chains() == KEPT[CHAINS], "record anew with python -m tests.transforms.costs, and say why"


def test_nothing_is_recorded_of_ops_that_are_gone() -> None:
    assert sorted(KEPT) == sorted([*names(), CHAINS])
