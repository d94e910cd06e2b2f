"""Trees as torch's libraries speak of them: their own walks give the same leaves and structures as ours."""

from __future__ import annotations

import inspect
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import pytest

import autojit as aj
from autojit.utils import _pytree as trees
from autojit.utils.data import DataLoader, TensorDataset

Pair = namedtuple("Pair", "a b")


@dataclass
class Record:
    x: Any
    y: Any


class Box:
    def __init__(self, parts: list[Any], label: Any) -> None:
        self.parts, self.label = parts, label


trees.register_pytree_node(Box, lambda box: (box.parts, [box.label]), lambda parts, label: Box(list(parts), label[0]))
TREES = [
    3,
    (),
    {"a": [1, Pair(2, (3,))], "b": OrderedDict(c=4)},
    Record([1, 2], {"k": (3, 4)}),
    [Box([1, {"z": 2}], "label"), 5],
]


def walked(tree: Any) -> tuple[list[Any], Any]:
    """The walk of pytorch-lightning: by node type, functions of a node, and a structure put together from parts."""
    kind = trees._get_node_type(tree)
    if kind not in trees.SUPPORTED_NODES:
        return [tree], trees.LeafSpec()
    children, context = trees.SUPPORTED_NODES[kind].flatten_fn(tree)
    each = [walked(child) for child in children]
    return [leaf for leaves, _ in each for leaf in leaves], trees.TreeSpec(kind, context, [spec for _, spec in each])


@pytest.mark.parametrize("tree", TREES, ids=range(len(TREES)))
def test_a_walk_by_nodes_is_the_walk_of_flatten(tree: Any) -> None:
    leaves, spec = walked(tree)
    found, structure = trees.tree_flatten(tree)
    assert leaves == found
    assert spec == structure
    assert hash(spec) == hash(structure)
    assert isinstance(spec, trees.TreeSpec)
    assert isinstance(spec, trees.LeafSpec) == trees._is_leaf(tree)
    again = trees.tree_unflatten([leaf * 10 for leaf in leaves], spec)
    assert trees.tree_leaves(again) == [leaf * 10 for leaf in leaves]
    assert type(again) is type(tree)


def test_nodes_are_made_again_by_their_functions() -> None:
    for tree in TREES[2:]:
        node = trees.SUPPORTED_NODES[trees._get_node_type(tree)]
        made = node.unflatten_fn(*node.flatten_fn(tree))
        assert trees.tree_leaves(made) == trees.tree_leaves(tree)
    assert Box in trees.SUPPORTED_NODES
    assert set(trees.SUPPORTED_NODES) >= {tuple, list, dict, Box}
    with pytest.raises(ValueError, match="already registered"):
        trees.register_pytree_node(Box, lambda box: (box.parts, None), lambda parts, _: parts)


def test_is_leaf_ends_the_walk() -> None:
    tree = {"a": (1, 2), "b": [(3, 4)]}
    leaves, spec = trees.tree_flatten(tree, is_leaf=lambda part: isinstance(part, tuple))
    assert leaves == [(1, 2), (3, 4)]
    assert trees.tree_unflatten([1, 2], spec) == {"a": 1, "b": [2]}


def test_registered_objects_are_arguments_and_results_of_steps() -> None:
    @aj.jit
    def double(box: Box) -> Box:
        return Box([part * 2 for part in box.parts], box.label)

    for k in range(3):
        found = double(Box([aj.ones(2) * k, aj.ones(1)], "x"))
        assert found.parts[0].tolist() == [2 * k] * 2
        assert found.label == "x"
    assert double.stats()["captures"] == 1


@pytest.mark.parametrize("options", ({}, {"num_workers": 1, "multiprocessing_context": "thread"}))
def test_a_loader_is_made_again_of_its_attributes(options: dict[str, Any]) -> None:
    loader = DataLoader(TensorDataset(aj.arange(6)), batch_size=2, **options)
    names = [name for name in inspect.signature(DataLoader).parameters if hasattr(loader, name)]
    chosen = {"batch_size", "shuffle", "sampler", "drop_last"}  # said by ``batch_sampler``
    again: Any = DataLoader(**{name: getattr(loader, name) for name in names if name not in chosen})
    assert [b.tolist() for (b,) in again] == [b.tolist() for (b,) in loader]
