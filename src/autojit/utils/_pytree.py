"""Trees of containers: nested tuples, lists, dicts, named tuples and dataclass instances, taken apart and rebuilt.

Anything else, tensors and numbers among it, is a leaf; ``register_pytree_node`` makes inner nodes of the instances of a
class, in compiled steps too. What torch's libraries ask of nodes is in ``tree_nodes.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from autojit.jit import pytree
from autojit.utils.tree_nodes import (
    SUPPORTED_NODES,
    Context,
    LeafSpec,
    MappingKey,
    NodeDef,
    PyTree,
    SequenceKey,
    TreeSpec,
    _dict_flatten,
    _dict_flatten_with_keys,
    _dict_unflatten,
    _get_node_type,
    _is_leaf,
    _register_pytree_node,
    register_pytree_node,
)

IsLeaf = Callable[[Any], bool] | None


def tree_flatten(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[Any], pytree.TreeSpec]:
    """The leaves in order, and the structure. What ``is_leaf`` says yes to is not looked into.

    Example:
        >>> tree_flatten({"a": [1, 2], "b": (3,)})[0]
        [1, 2, 3]
    """
    if is_leaf is None:
        return pytree.flatten(tree)
    found = None if is_leaf(tree) else pytree.taken_apart(tree)
    if found is None:
        return [tree], pytree.LEAF
    kind, parts, keys = found
    each = [tree_flatten(part, is_leaf) for part in parts]
    return [leaf for leaves, _ in each for leaf in leaves], pytree.node(kind, [spec for _, spec in each], keys)


def tree_unflatten(leaves: Iterable[Any], treespec: pytree.TreeSpec) -> Any:
    """The tree of a structure with other leaves.

    Raises:
        ValueError: there are more or fewer leaves than places.
    """
    given = list(leaves)
    if len(given) != treespec.count:
        raise ValueError(f"tree_unflatten: {len(given)} leaves for a structure with {treespec.count}")
    return treespec.unflatten(given)


def tree_leaves(tree: Any, is_leaf: IsLeaf = None) -> list[Any]:
    """The leaves in order."""
    return tree_flatten(tree, is_leaf)[0]


def tree_iter(tree: Any, is_leaf: IsLeaf = None) -> Iterable[Any]:
    """The leaves, one after the other."""
    return iter(tree_leaves(tree, is_leaf))


def tree_structure(tree: Any, is_leaf: IsLeaf = None) -> pytree.TreeSpec:
    """The structure."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf = None) -> Any:
    """The tree with every leaf replaced by ``func`` of it and of the leaves of trees of the same structure.

    Example:
        >>> tree_map(lambda v, w: v + w, [1, (2,)], [10, (20,)])
        [11, (22,)]
    """
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [tree_leaves(rest, is_leaf) for rest in rests]
    return spec.unflatten([func(*each) for each in zip(leaves, *others, strict=True)])


def tree_map_only(kind: Any, func: Callable[[Any], Any], tree: Any) -> Any:
    """``tree_map`` of the leaves that are instances of a class (or of one of several); others stay.

    Example:
        >>> tree_map_only(int, str, [1, 2.0])
        ['1', 2.0]
    """
    return tree_map(lambda leaf: func(leaf) if isinstance(leaf, kind) else leaf, tree)


def tree_all(predicate: Callable[[Any], bool], tree: Any) -> bool:
    """Whether a predicate holds for every leaf."""
    return all(predicate(leaf) for leaf in tree_leaves(tree))


def tree_any(predicate: Callable[[Any], bool], tree: Any) -> bool:
    """Whether a predicate holds for some leaf."""
    return any(predicate(leaf) for leaf in tree_leaves(tree))


__all__ = [
    "SUPPORTED_NODES", "Context", "LeafSpec", "MappingKey", "NodeDef", "PyTree", "SequenceKey", "TreeSpec",
    "_dict_flatten", "_dict_flatten_with_keys", "_dict_unflatten", "_get_node_type", "_is_leaf",
    "_register_pytree_node", "register_pytree_node", "tree_all", "tree_any", "tree_flatten", "tree_iter", "tree_leaves",
    "tree_map", "tree_map_only", "tree_structure", "tree_unflatten",
]  # fmt: skip
