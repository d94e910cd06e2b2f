"""Inner nodes of trees as torch's libraries speak of them: by class, each with two functions and a context.

The trees are those of ``jit.pytree``; here are torch's names for its kinds, keys and structures.
"""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any, NamedTuple

from autojit.jit import pytree

PyTree = Any
Context = Any
_BUILT_IN = (tuple, list, dict, OrderedDict, namedtuple)
_OF_USERS: list[type] = []


class NodeDef(NamedTuple):
    """How instances of a class are taken apart, into (children, context), and made of these again."""

    type: Any
    flatten_fn: Callable[[Any], tuple[list[Any], Any]]
    unflatten_fn: Callable[[Any, Any], Any]


@dataclass(frozen=True, eq=False)
class _Kept:
    """A context of the user's, among the keys of a structure: equal to an equal one, and hashable."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Kept) and bool(self.value == other.value)

    def __hash__(self) -> int:
        try:
            return hash(self.value)
        except TypeError:  # a list: equal ones have equal hashes all the same
            return 0


def register_pytree_node(
    cls: type,
    flatten_fn: Callable[[Any], tuple[Sequence[Any], Any]],
    unflatten_fn: Callable[[Any, Any], Any],
    **options: Any,
) -> None:
    """Make inner nodes of the instances of a class, in trees and in arguments and results of compiled steps.

    Args:
        flatten_fn: an instance to its children and a context, what else it is made of.
        unflatten_fn: children and context to an instance.
        options: torch's names for serialised forms and paths, which are not looked at.

    Raises:
        ValueError: the class is registered already.

    Example:
        >>> from autojit.utils._pytree import register_pytree_node, tree_map
        >>> class Pair:
        ...     def __init__(self, a, b):
        ...         self.a, self.b = a, b
        >>> register_pytree_node(Pair, lambda p: ([p.a, p.b], None), lambda parts, _: Pair(*parts))
        >>> tree_map(lambda v: v + 1, Pair(1, 2)).b
        3
    """
    if pytree.registered(cls) is not None or cls in _BUILT_IN:
        raise ValueError(f"{cls} is already registered as pytree node.")

    def flatten(tree: Any) -> tuple[Sequence[Any], tuple[Any, ...]]:
        children, context = flatten_fn(tree)
        return list(children), (_Kept(context),)

    def unflatten(parts: Sequence[Any], keys: tuple[Any, ...]) -> Any:
        return unflatten_fn(parts, keys[0].value)

    pytree.register(cls, flatten, unflatten)
    _OF_USERS.append(cls)


_register_pytree_node = register_pytree_node


def _get_node_type(tree: Any) -> Any:
    """The class of a node, ``namedtuple`` of every named tuple."""
    return namedtuple if isinstance(tree, tuple) and hasattr(tree, "_fields") else type(tree)


def _is_leaf(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether something is not looked into."""
    return (is_leaf is not None and is_leaf(tree)) or pytree.taken_apart(tree) is None


def _keys_of(kind: Any, context: Any) -> tuple[Any, tuple[Any, ...]]:
    """The kind and the keys of a structure that torch describes by kind and context."""
    if kind is namedtuple:
        return context, ()
    if kind in (dict, OrderedDict) or is_dataclass(kind):
        return kind, tuple(context)
    if pytree.registered(kind) is None:
        return kind, ()
    return kind, context if isinstance(context, tuple) and kind not in _OF_USERS else (_Kept(context),)


class _Structures(type):
    """What ``TreeSpec`` and ``LeafSpec`` share: they name structures, which are ``jit.pytree.TreeSpec``."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, pytree.TreeSpec) and (cls is TreeSpec or value.kind is None)


class TreeSpec(metaclass=_Structures):
    """The structure of a tree; made from torch's description of its uppermost node."""

    def __new__(cls, type: Any, context: Any = None, children_specs: Sequence[pytree.TreeSpec] = ()) -> Any:
        kind, keys = _keys_of(type, context)
        return pytree.node(kind, children_specs, keys)


class LeafSpec(metaclass=_Structures):
    """The structure of a leaf."""

    def __new__(cls) -> Any:
        """The same one every time."""
        return pytree.LEAF


def _context_of(kind: Any, keys: tuple[Any, ...]) -> Any:
    if len(keys) == 1 and isinstance(keys[0], _Kept):
        return keys[0].value
    return list(keys) if kind in (dict, OrderedDict) else keys or None


def _children_and_context(tree: Any) -> tuple[list[Any], Any]:
    found = pytree.taken_apart(tree)
    if found is None:
        raise ValueError(f"{type(tree).__name__} is a leaf")
    kind, parts, keys = found
    return list(parts), kind if _get_node_type(tree) is namedtuple else _context_of(kind, keys)


def _made(kind: Any, context: Any, parts: list[Any]) -> Any:
    """The node of these children."""
    return TreeSpec(kind, context, [pytree.LEAF] * len(parts)).made_of(parts)


class _Nodes(Mapping[Any, NodeDef]):
    """By class, those whose instances are inner nodes; dataclasses are, by their fields, without being listed."""

    def __getitem__(self, kind: Any) -> NodeDef:
        if kind not in self:
            raise KeyError(kind)
        return NodeDef(kind, _children_and_context, lambda parts, context: _made(kind, context, list(parts)))

    def __contains__(self, kind: object) -> bool:
        if kind in _BUILT_IN:
            return True
        return isinstance(kind, type) and (pytree.registered(kind) is not None or is_dataclass(kind))

    def __iter__(self) -> Iterator[Any]:
        return iter((*_BUILT_IN, *_OF_USERS))

    def __len__(self) -> int:
        return len(_BUILT_IN) + len(_OF_USERS)


SUPPORTED_NODES = _Nodes()


class MappingKey(NamedTuple):
    """The way from a mapping to one of its values."""

    key: Any


class SequenceKey(NamedTuple):
    """The way from a sequence to one of its items."""

    idx: int


def _dict_flatten(tree: Mapping[Any, Any]) -> tuple[list[Any], list[Any]]:
    return list(tree.values()), list(tree.keys())


def _dict_unflatten(values: Sequence[Any], context: Sequence[Any]) -> dict[Any, Any]:
    return dict(zip(context, values, strict=True))


def _dict_flatten_with_keys(tree: Mapping[Any, Any]) -> tuple[list[tuple[MappingKey, Any]], list[Any]]:
    return [(MappingKey(key), value) for key, value in tree.items()], list(tree.keys())
