"""Batches by functions of types, and trees with the ways to their leaves."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.utils import _pytree
from autojit.utils.data import default_collate
from autojit.utils.data._utils.collate import collate, default_collate_fn_map

Pair = namedtuple("Pair", "x y")


def test_types_of_ones_own_are_collated_inside_containers() -> None:
    functions: dict[Any, Any] = {**default_collate_fn_map, frozenset: lambda sets, **_: frozenset.union(*sets)}
    items = [{"p": Pair(k, frozenset([k])), "more": [1.5 * k, np.float32(k), aj.ones(2) * k]} for k in range(3)]
    found = collate(items, collate_fn_map=functions)
    assert found["p"].x.tolist() == [0, 1, 2] and found["p"].y == {0, 1, 2}
    assert [t.dtype for t in found["more"]] == [aj.float64, aj.float32, aj.float32]
    loader = aj.utils.data.DataLoader(items, batch_size=3, collate_fn=lambda b: collate(b, collate_fn_map=functions))
    assert next(iter(loader))["p"].y == {0, 1, 2}
    with pytest.raises(TypeError, match="found <class 'frozenset'>"):
        default_collate([frozenset([1])])


def test_a_type_comes_before_the_types_it_is_one_of() -> None:
    functions: dict[Any, Any] = {**default_collate_fn_map, bool: lambda flags, **_: any(flags)}
    assert collate([False, True], collate_fn_map=functions) is True
    assert default_collate([False, True]).dtype is aj.bool


def test_leaves_know_the_way_to_them() -> None:
    tree = {"a": [1, Pair(2, (3,))], 4: 5}
    ways = [(_pytree.keystr(path), leaf) for path, leaf in _pytree.tree_leaves_with_path(tree)]
    assert ways == [("['a'][0]", 1), ("['a'][1].x", 2), ("['a'][1].y[0]", 3), ("[4]", 5)]
    doubled = _pytree.tree_map_with_path(lambda path, x, y: (len(path), x + y), tree, tree)
    assert doubled == {"a": [(2, 2), Pair((3, 4), ((4, 6),))], 4: (1, 10)}
    stopped = _pytree.tree_flatten_with_path(tree, is_leaf=lambda x: isinstance(x, Pair))[0]
    assert len(stopped) == 3 and _pytree.tree_is_leaf(Pair(1, 2), lambda x: isinstance(x, Pair))
    assert _pytree.tree_any_only(int, lambda x: x == 3, tree) and not _pytree.tree_all_only(int, lambda x: x == 3, tree)
    seen: list[int] = []
    assert _pytree.tree_map_(seen.append, tree) is tree and seen == [1, 2, 3, 5]
