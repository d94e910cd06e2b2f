"""Handles of hooks, trees of containers, blocks that keep the random state, older names."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from typing import Any

import pytest

import autojit as aj
from autojit import nn
from autojit.utils._pytree import (
    tree_all,
    tree_any,
    tree_flatten,
    tree_leaves,
    tree_map,
    tree_map_only,
    tree_structure,
    tree_unflatten,
)  # fmt: skip
from autojit.utils.hooks import RemovableHandle, unserializable_hook, warn_if_has_hooks


def test_every_hook_gives_the_one_kind_of_handle() -> None:
    x = aj.ones(1, requires_grad=True)
    assert isinstance(x.register_hook(lambda g: g), RemovableHandle)
    assert isinstance(nn.Linear(1, 1).register_forward_hook(lambda *a: None), RemovableHandle)
    hooks: OrderedDict[int, Any] = OrderedDict()
    handle = RemovableHandle(hooks)
    hooks[handle.id] = print
    with handle:
        pass
    assert not hooks


def test_saving_a_tensor_with_hooks_warns_unless_they_are_marked() -> None:
    x = aj.ones(2, requires_grad=True)
    x.register_hook(unserializable_hook(lambda g: g))
    warn_if_has_hooks(x)
    assert aj.equal(pickle.loads(pickle.dumps(x)), x)
    x.register_hook(lambda g: g)
    with pytest.warns(UserWarning, match="will not be serialized"):
        warn_if_has_hooks(x)


def test_trees_are_taken_apart_and_rebuilt() -> None:
    tree = {"a": [1, 2.5], "b": (3,)}
    leaves, spec = tree_flatten(tree)
    assert leaves == tree_leaves(tree) == [1, 2.5, 3]
    assert spec == tree_structure(tree)
    assert tree_unflatten(leaves, spec) == tree
    assert tree_map(lambda v, w: v * w, tree, tree) == {"a": [1, 6.25], "b": (9,)}
    assert tree_map_only(int, lambda v: -v, tree) == {"a": [-1, 2.5], "b": (-3,)}
    assert tree_all(lambda v: v > 0, tree)
    assert not tree_any(lambda v: v > 5, tree)
    with pytest.raises(ValueError, match="leaves"):
        tree_unflatten([1], spec)


def test_a_fork_leaves_the_random_state_as_it_was() -> None:
    with aj.random.fork_rng():
        inside = aj.rand(3)
    assert aj.equal(aj.rand(3), inside)
    with aj.random.fork_rng(enabled=False):
        drawn = aj.rand(3)
    assert not aj.equal(aj.rand(3), drawn)


def test_a_backward_hook_of_the_older_form_sees_the_last_node() -> None:
    layer, seen = nn.Linear(2, 3), []
    layer.register_backward_hook(lambda module, inputs, outputs: seen.append((module, len(inputs), outputs[0].shape)))
    with pytest.warns(FutureWarning, match="the forward contains multiple autograd Nodes"):  # weight.T is one
        layer(aj.ones(1, 2)).sum().backward()
    assert seen[0][0] is layer
    assert seen[0][2] == (1, 3)
    with pytest.raises(RuntimeError, match="Cannot use both"):
        layer.register_full_backward_hook(lambda *a: None)


def test_parameters_of_integers_must_not_require_gradients() -> None:
    with pytest.raises(RuntimeError, match="floating point"):
        nn.Parameter(aj.ones(2).long())
    assert not nn.Parameter(aj.ones(2).long(), requires_grad=False).requires_grad


def test_the_default_type_can_be_named_by_its_class() -> None:
    aj.set_default_tensor_type(aj.DoubleTensor)
    try:
        assert aj.ones(1).dtype is aj.float64
    finally:
        aj.set_default_tensor_type("FloatTensor")
    with pytest.raises(TypeError, match="invalid type"):
        aj.set_default_tensor_type("Nothing")


def test_a_size_given_to_the_class_means_extents() -> None:
    assert aj.Tensor(aj.Size([2])).shape == (2,)
    assert aj.Tensor([2]).shape == (1,)
