"""Pytrees: nested tuples, lists, dicts, named tuples and dataclass instances; tensors and Python values are leaves."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import accumulate
from operator import attrgetter, itemgetter
from types import NoneType
from typing import Any, NamedTuple

import numpy as np

from autojit.tensor.tensor import Tensor

Args = tuple[Any, ...]  # of a call
Kwargs = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TreeSpec:
    """The structure of a pytree. ``kind`` is None for a leaf; ``keys`` are a dict's keys or a dataclass's fields.

    ``key_kinds``: what tells keys apart that are equal, as 1, True and 1.0 are; empty where all are texts.
    """

    kind: Any
    children: tuple[TreeSpec, ...] = ()
    keys: tuple[Any, ...] = ()
    key_kinds: tuple[Any, ...] = ()
    count: int = field(init=False, repr=False, compare=False)  # of leaves
    is_shared: bool = field(init=False, repr=False, compare=False)  # whether equal ones are this object
    _hash: int | None = field(init=False, repr=False, compare=False)  # once asked for: a key of many tables

    def __post_init__(self) -> None:
        count = 1 if self.kind is None else sum([child.count for child in self.children])
        object.__setattr__(self, "count", count)
        object.__setattr__(self, "is_shared", self.kind is None)
        object.__setattr__(self, "_hash", None)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, TreeSpec) or type(other) is not type(self):
            return NotImplemented
        if self.count != other.count:
            return False
        own, others = (self.kind, self.keys, self.key_kinds), (other.kind, other.keys, other.key_kinds)
        return own == others and self.children == other.children

    def __hash__(self) -> int:
        known = self._hash
        if known is None:
            known = hash((self.kind, self.children, self.keys, self.key_kinds))
            object.__setattr__(self, "_hash", known)
        return known

    def __reduce__(self) -> Any:
        return type(self), (self.kind, self.children, self.keys, self.key_kinds)  # hashes are a process's own

    @property
    def num_leaves(self) -> int:
        """The number of leaves, by torch's name."""
        return self.count

    def unflatten(self, leaves: Sequence[Any]) -> Any:
        """Rebuild the tree."""
        return leaves[0] if self.kind is None else self._build(iter(leaves))

    def _build(self, leaves: Any) -> Any:
        return next(leaves) if self.kind is None else self.made_of([child._build(leaves) for child in self.children])

    def made_of(self, parts: Sequence[Any]) -> Any:
        """An inner node, from its parts: a list of them, which is nobody's, or a tuple."""
        kind = self.kind
        if kind is tuple:
            return tuple(parts)
        if kind is list:
            return parts if type(parts) is list else list(parts)
        if kind is dict or kind is OrderedDict:
            return kind(zip(self.keys, parts, strict=True))
        if kind in _REGISTERED:
            return _REGISTERED[kind].unflatten(list(parts), self.keys)
        if self.keys:
            made = object.__new__(kind)
            for name, part in zip(self.keys, parts, strict=True):
                object.__setattr__(made, name, part)
            return made
        return kind(*parts)

    def assembler(self, first: int = 0) -> Callable[[Sequence[Any]], Any]:
        """What rebuilds the tree of a tuple of leaves, of which those from number ``first`` on are its own."""
        if self.kind is None:
            return itemgetter(first)
        if all(child.kind is None for child in self.children):
            own = itemgetter(slice(first, first + len(self.children)))
            return lambda leaves: self.made_of(own(leaves))
        starts = accumulate((child.count for child in self.children[:-1]), initial=first)
        makers = [child.assembler(start) for child, start in zip(self.children, starts, strict=True)]
        return lambda leaves: self.made_of([make(leaves) for make in makers])


LEAF = TreeSpec(None)


Flatten = Callable[[Any], tuple[Sequence[Any], tuple[Any, ...]]]
Unflatten = Callable[[Sequence[Any], tuple[Any, ...]], Any]


class Registered(NamedTuple):
    """How instances of a class are taken apart: into (parts, what else they are made of), and put together again."""

    flatten: Flatten
    unflatten: Unflatten


_REGISTERED: dict[type, Registered] = {}


def register(kind: type, flatten: Flatten, unflatten: Unflatten) -> None:
    """Let instances of a class be inner nodes of pytrees; what ``flatten`` gives besides the parts must be hashable."""
    _LEAVES.discard(kind)
    _REGISTERED[kind] = Registered(flatten, unflatten)


def flatten(tree: object) -> tuple[list[Any], TreeSpec]:
    """The leaves in order, and the structure."""
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves.append)


def _flatten(tree: object, add: Callable[[Any], None]) -> TreeSpec:
    kind: Any = type(tree)
    if kind in _LEAVES:
        add(tree)
        return LEAF
    if kind is tuple or kind is list:
        children = [_flatten(part, add) for part in tree]  # type: ignore[attr-defined]
        for child in children:
            if child is not LEAF:
                return node(kind, children, ())
        return _flat(kind, len(children))
    found = taken_apart(tree)
    if found is None:
        add(tree)
        return LEAF
    kind, parts, keys = found
    return node(kind, [_flatten(part, add) for part in parts], keys)


def _flat(kind: Any, count: int) -> TreeSpec:
    """The structure of a tuple, or a list, of leaves."""
    found = _FLAT.get((kind, count))
    if found is None:
        found = _FLAT[kind, count] = node(kind, [LEAF] * count, ())
    return found


def leaves_of(tree: object) -> Iterator[Any]:
    """The leaves in order, of a nest whose structure does not matter: its keys may be numbers of a step."""
    found = taken_apart(tree)
    if found is None:
        yield tree
        return
    for part in found[1]:
        yield from leaves_of(part)


def node(kind: Any, children: Iterable[TreeSpec], keys: tuple[Any, ...]) -> TreeSpec:
    """The structure of an inner node: one object for equal ones of Python's own kinds, which every call meets again."""
    kinds = kinds_of(keys) if keys else ()
    parts = tuple(children)
    if kind not in _OFTEN_MET or not all(map(_IS_SHARED, parts)):
        return TreeSpec(kind, parts, keys, kinds)
    key = (kind, keys, kinds, *map(id, parts))  # which the structure keeps alive
    found = _NODES.get(key)
    if found is None:
        if len(_NODES) >= _MOST_NODES:
            _forget_nodes()
        found = _NODES[key] = TreeSpec(kind, parts, keys, kinds)
        object.__setattr__(found, "is_shared", True)
    return found


def _forget_nodes() -> None:
    """Others will be made: those that are there are no longer the only ones."""
    for known in _NODES.values():
        object.__setattr__(known, "is_shared", False)
    _NODES.clear()
    _FLAT.clear()


_IS_SHARED = attrgetter("is_shared")
_OFTEN_MET = frozenset((tuple, list, dict))
_NODES: dict[Any, TreeSpec] = {}
_FLAT: dict[tuple[Any, int], TreeSpec] = {}
_MOST_NODES = 1024


_LEAVES: set[type] = {Tensor, np.ndarray, float, int, bool, str, NoneType}  # the most frequent ones, known at once


def registered(kind: type) -> Registered | None:
    """How instances of a class are taken apart, if somebody has said so."""
    return _REGISTERED.get(kind)


def kinds_of(keys: tuple[Any, ...]) -> tuple[Any, ...]:
    """``TreeSpec.key_kinds`` of keys."""
    for key in keys:
        if type(key) is not str:
            return tuple([_kind_of(key) for key in keys])
    return ()


def _kind_of(key: Any) -> Any:
    kind = type(key)
    return (kind, *map(_kind_of, key)) if kind is tuple else (kind, repr(key)) if kind is float else kind


def taken_apart(tree: Any) -> tuple[Any, Iterable[Any], tuple[Any, ...]] | None:
    """(kind, parts, keys) of the ``TreeSpec`` of a nest; None: it is a leaf."""
    kind = type(tree)
    if kind is tuple or kind is list or (isinstance(tree, tuple) and hasattr(tree, "_fields")):
        return kind, tree, ()
    if kind is dict or kind is OrderedDict:
        return kind, tree.values(), tuple(tree)
    registered = _REGISTERED.get(kind)
    if registered is not None:
        return kind, *registered.flatten(tree)
    if is_dataclass(kind) and _is_record(tree):
        names = tuple(f.name for f in fields(kind))
        return kind, [getattr(tree, name) for name in names], names
    return None


def _is_record(tree: Any) -> bool:
    """Whether a dataclass instance is its fields and nothing more (a module or a stateful object is not)."""
    names = {f.name for f in fields(tree)}
    return bool(names) and set(getattr(tree, "__dict__", names)) <= names and not hasattr(tree, "named_modules")
