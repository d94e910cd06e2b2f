"""Parts: pytrees, overlap of arrays, traced numbers outside a capture, lent gradients."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import autojit as aj
from autojit.jit.guards import same
from autojit.jit.pytree import flatten
from autojit.jit.segment import overlapping
from autojit.tensor.lent_gradients import step_gradient
from autojit.tensor.tensor import StepGradient

Point = namedtuple("Point", "x y")
LEAVES = st.one_of(st.integers(), st.none(), st.text("ab", max_size=2))
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
        st.tuples(inner, inner).map(lambda pair: Point(*pair)),
        st.lists(inner, max_size=2).map(lambda items: OrderedDict(enumerate(items))),
    ),
    max_leaves=8,
)


@given(TREES)
def test_flattening_and_rebuilding_gives_the_tree_back(tree: Any) -> None:
    leaves, spec = flatten(tree)
    again = spec.unflatten(leaves)
    assert again == tree and type(again) is type(tree)
    assert flatten(again)[1] == spec and hash(flatten(again)[1]) == hash(spec)


def test_overlap_is_found_only_where_something_is_written() -> None:
    base = np.arange(10.0)
    parts = [base[:4], base[3:6], base[6:]]
    assert overlapping([(a, False) for a in parts]) is None
    assert overlapping([(parts[0], True), (parts[1], False), (parts[2], False)]) == (0, 1)
    assert overlapping([(parts[0], False), (parts[2], True)]) is None
    assert overlapping([(base[:0], True), (base, True)]) is None
    assert overlapping([(base, False), (parts[2], True)]) is not None


def test_sameness_for_guards() -> None:
    assert same(float("nan"), float("nan")) and not same(0.0, -0.0) and not same(1, True) and not same(1, 1.0)
    assert same([1, (2.0, "a")], [1, (2.0, "a")]) and not same([1], (1,))
    t = aj.ones(1)
    assert same(t, t) and not same(t, aj.ones(1))
    items: list[int] = []
    assert same(items.append, items.append) and not same(items.append, items.pop) and not same(items.append, [].append)


def test_a_lent_gradient_is_a_plain_tensor_and_takes_its_place() -> None:
    leaf = aj.ones(2, requires_grad=True)
    leaf._grad = step_gradient(np.ones(2, np.float32))
    assert type(leaf._grad) is StepGradient
    first = leaf.grad
    assert type(first) is aj.Tensor and leaf.grad is first and leaf._grad is first


@pytest.mark.parametrize("bad", [lambda n: n.missing, lambda n: n + "a", lambda n: n["a"]])
def test_a_traced_number_refuses_what_a_number_refuses(bad: Any) -> None:
    with pytest.raises((TypeError, AttributeError)):
        aj.jit(lambda x: bad(x.sum().item()))(aj.ones(2))
