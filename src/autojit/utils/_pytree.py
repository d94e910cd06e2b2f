"""Trees of containers: nested tuples, lists, dicts, named tuples and dataclass instances, taken apart and rebuilt.

Anything else, tensors and numbers among it, is a leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from autojit.jit import pytree
from autojit.jit.pytree import TreeSpec


def tree_flatten(tree: Any) -> tuple[list[Any], TreeSpec]:
    """The leaves in order, and the structure.

    Example:
        >>> tree_flatten({"a": [1, 2], "b": (3,)})[0]
        [1, 2, 3]
    """
    return pytree.flatten(tree)


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """The tree of a structure with other leaves.

    Raises:
        ValueError: there are more or fewer leaves than places.
    """
    given = list(leaves)
    if len(given) != treespec.count:
        raise ValueError(f"tree_unflatten: {len(given)} leaves for a structure with {treespec.count}")
    return treespec.unflatten(given)


def tree_leaves(tree: Any) -> list[Any]:
    """The leaves in order."""
    return tree_flatten(tree)[0]


def tree_structure(tree: Any) -> TreeSpec:
    """The structure."""
    return tree_flatten(tree)[1]


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any) -> Any:
    """The tree with every leaf replaced by ``func`` of it and of the leaves of trees of the same structure.

    Example:
        >>> tree_map(lambda v, w: v + w, [1, (2,)], [10, (20,)])
        [11, (22,)]
    """
    leaves, spec = tree_flatten(tree)
    others = [tree_leaves(rest) for rest in rests]
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
    "TreeSpec", "tree_all", "tree_any", "tree_flatten", "tree_leaves", "tree_map", "tree_map_only", "tree_structure",
    "tree_unflatten",
]  # fmt: skip
