"""Arguments of graphs that are structures, taken apart as a structure says: proxies, too, which have no parts yet."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any

from autojit.core.errors import UsageError
from autojit.jit import pytree as trees

__all__ = ["SUPPORTED_NODES", "register_pytree_flatten_spec", "tree_flatten_spec"]

Flatten = Callable[[Any, trees.TreeSpec], list[Any]]

SUPPORTED_NODES: dict[type, Flatten] = {}
"""By class, how an instance, or a proxy of one, gives its parts."""


def register_pytree_flatten_spec(
    cls: type, flatten_fn_spec: Flatten, flatten_fn_exact_match_spec: Callable[..., bool] | None = None
) -> None:
    """Say how instances of a class, and proxies of such, give their parts."""
    SUPPORTED_NODES[cls] = flatten_fn_spec


def tree_flatten_spec(pytree: Any, spec: trees.TreeSpec) -> list[Any]:
    """The leaves of a tree whose structure is known.

    Raises:
        RuntimeError: the tree has another structure.

    Example:
        >>> from autojit.fx._pytree import tree_flatten_spec
        >>> from autojit.utils._pytree import tree_structure
        >>> tree_flatten_spec({"b": [1, 2], "a": 3}, tree_structure({"a": 0, "b": [0, 0]}))
        [3, 1, 2]
    """
    if spec.kind is None:
        return [pytree]
    parts = _parts(pytree, spec)
    if len(parts) != len(spec.children):
        raise _another(pytree, spec)
    return [leaf for part, child in zip(parts, spec.children, strict=True) for leaf in tree_flatten_spec(part, child)]


def _parts(tree: Any, spec: trees.TreeSpec) -> list[Any]:
    kind = spec.kind
    known = SUPPORTED_NODES.get(kind)
    if known is not None:
        return known(tree, spec)
    is_sequence, is_mapping = issubclass(kind, list | tuple), issubclass(kind, dict | OrderedDict)
    try:
        if is_sequence and (not isinstance(tree, list | tuple) or len(tree) == len(spec.children)):
            return [tree[place] for place in range(len(spec.children))]
        if is_mapping and (not isinstance(tree, dict) or len(tree) == len(spec.keys)):
            return [tree[key] for key in spec.keys]
        if trees.registered(kind) is None and is_dataclass(kind):
            return [getattr(tree, name) for name in spec.keys]
    except (AttributeError, KeyError, TypeError):
        raise _another(tree, spec) from None
    found = None if is_sequence or is_mapping else trees.taken_apart(tree)
    if found is None or (found[0], found[2]) != (kind, spec.keys):
        raise _another(tree, spec)
    return list(found[1])


def _another(tree: object, spec: trees.TreeSpec) -> UsageError:
    return UsageError(
        "fx: an argument has another structure than the one that the graph was traced for",
        {"traced for": f"{spec.kind.__name__} of {len(spec.children)}", "given": type(tree).__name__},
        "trace again with concrete_args of this structure",
    )
