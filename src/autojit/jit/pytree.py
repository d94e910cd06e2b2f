"""Pytrees: nested tuples, lists, dicts and named tuples with tensors and Python values at the leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TreeSpec:
    """The structure of a pytree. ``kind`` is None for a leaf; ``keys`` are a dict's keys."""

    kind: Any
    children: tuple[TreeSpec, ...] = ()
    keys: tuple[Any, ...] = ()

    def unflatten(self, leaves: list[Any]) -> Any:
        """Rebuild the tree; consumes ``leaves`` from the front."""
        return self._build(iter(leaves))

    def _build(self, leaves: Any) -> Any:
        if self.kind is None:
            return next(leaves)
        parts = [child._build(leaves) for child in self.children]
        if issubclass(self.kind, dict):
            return self.kind(zip(self.keys, parts, strict=True))
        if hasattr(self.kind, "_fields"):
            return self.kind(*parts)
        return self.kind(parts)


LEAF = TreeSpec(None)


def flatten(tree: Any) -> tuple[list[Any], TreeSpec]:
    """The leaves in order, and the structure."""
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves.append)


def _flatten(tree: Any, add: Callable[[Any], None]) -> TreeSpec:
    kind = type(tree)
    if kind is tuple or kind is list or (isinstance(tree, tuple) and hasattr(tree, "_fields")):
        return TreeSpec(kind, tuple(_flatten(item, add) for item in tree))
    if isinstance(tree, dict):
        return TreeSpec(kind, tuple(_flatten(item, add) for item in tree.values()), tuple(tree))
    add(tree)
    return LEAF
