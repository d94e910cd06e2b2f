"""Trees of containers: nested tuples, lists, dicts, named tuples and dataclass instances, taken apart and rebuilt.

Anything else, tensors and numbers among it, is a leaf; ``register_pytree_node`` makes inner nodes of the instances of a
class, in compiled steps too. What torch's libraries ask of nodes is in ``tree_nodes.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

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


def tree_any_only(kind: Any, predicate: Callable[[Any], bool], tree: Any) -> bool:
    """Whether a predicate holds for some leaf of a class."""
    return any(predicate(leaf) for leaf in tree_leaves(tree) if isinstance(leaf, kind))


def tree_all_only(kind: Any, predicate: Callable[[Any], bool], tree: Any) -> bool:
    """Whether a predicate holds for every leaf of a class."""
    return all(predicate(leaf) for leaf in tree_leaves(tree) if isinstance(leaf, kind))


def tree_map_(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf = None) -> Any:
    """Call ``func`` of every leaf for what it does; the tree itself."""
    for each in zip(tree_leaves(tree, is_leaf), *(tree_leaves(rest, is_leaf) for rest in rests), strict=True):
        func(*each)
    return tree


def tree_is_leaf(tree: Any, is_leaf: IsLeaf = None) -> bool:
    """Whether something is a leaf.

    Example:
        >>> tree_is_leaf(3), tree_is_leaf([3])
        (True, False)
    """
    return bool(is_leaf is not None and is_leaf(tree)) or pytree.taken_apart(tree) is None


def tree_flatten_with_path(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[tuple[Any, Any]], pytree.TreeSpec]:
    """The leaves in order, each after the way to it; and the structure.

    Example:
        >>> [(keystr(path), leaf) for path, leaf in tree_flatten_with_path({"a": [1, 2]})[0]]
        [("['a'][0]", 1), ("['a'][1]", 2)]
    """
    return list(_with_paths(tree, (), is_leaf)), tree_structure(tree, is_leaf)


def tree_leaves_with_path(tree: Any, is_leaf: IsLeaf = None) -> list[tuple[Any, Any]]:
    """The leaves in order, each after the way to it."""
    return list(_with_paths(tree, (), is_leaf))


def tree_map_with_path(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf = None) -> Any:
    """``tree_map`` of a function that is given the way to the leaf first.

    Example:
        >>> tree_map_with_path(lambda path, x: keystr(path) + str(x), [1, {"k": 2}])
        ['[0]1', {'k': "[1]['k']2"}]
    """
    pairs, spec = tree_flatten_with_path(tree, is_leaf)
    others = [tree_leaves(rest, is_leaf) for rest in rests]
    return spec.unflatten([func(*pair, *each) for pair, *each in zip(pairs, *others, strict=True)])


def _with_paths(tree: Any, path: tuple[Any, ...], is_leaf: IsLeaf) -> Iterable[tuple[Any, Any]]:
    if tree_is_leaf(tree, is_leaf):
        return [(path, tree)]
    _, inside, _ = pytree.taken_apart(tree) or (None, (), None)
    parts = list(inside)
    if isinstance(tree, Mapping):
        ways: list[Any] = [MappingKey(key) for key in tree]
    elif hasattr(tree, "_fields"):
        ways = [GetAttrKey(name) for name in tree._fields]
    else:
        ways = [SequenceKey(place) for place in range(len(parts))]
    each = zip(parts, ways, strict=True)
    return [pair for part, way in each for pair in _with_paths(part, (*path, way), is_leaf)]


class GetAttrKey(NamedTuple):
    """The way from an object to one of its attributes."""

    name: str


def keystr(kp: Iterable[Any]) -> str:
    """A way as a program writes it: ``['a'][0].x``."""
    return "".join(f".{key.name}" if isinstance(key, GetAttrKey) else f"[{key[0]!r}]" for key in kp)


__all__ = [
    "SUPPORTED_NODES", "Context", "GetAttrKey", "LeafSpec", "MappingKey", "NodeDef", "PyTree", "SequenceKey",
    "TreeSpec", "_dict_flatten", "_dict_flatten_with_keys", "_dict_unflatten", "_get_node_type", "_is_leaf",
    "_register_pytree_node", "keystr", "register_pytree_node", "tree_all", "tree_all_only", "tree_any",
    "tree_any_only", "tree_flatten", "tree_flatten_with_path", "tree_is_leaf", "tree_iter", "tree_leaves",
    "tree_leaves_with_path", "tree_map", "tree_map_", "tree_map_only", "tree_map_with_path", "tree_structure",
    "tree_unflatten",
]  # fmt: skip
