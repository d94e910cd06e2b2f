"""What a container holds: noted for a comparison, put back, and filled in again."""

from __future__ import annotations

from array import array
from collections import OrderedDict, deque
from collections.abc import Collection
from types import MappingProxyType
from typing import Any

import numpy as np

from autojit.jit.guards import PRIMITIVES
from autojit.jit.places import is_a


def snapshot(value: Collection[Any], without: frozenset[Any]) -> Any:
    """What is in a container, for ``same``; ``without`` some keys."""
    if is_a(value, dict | MappingProxyType):
        pairs = [(k, v) for k, v in value.items() if not without or k not in without]
        return tuple([k for k, _ in pairs]), tuple([v for _, v in pairs])
    if is_a(value, np.ndarray):
        return value.copy() if type(value) is np.ndarray else np.array(value)
    if is_a(value, set):
        return frozenset(value)
    if is_a(value, memoryview | bytearray | array):
        return bytes(value)
    items = tuple(value)
    return (len(items), *(x for k, x in enumerate(items) if k not in without)) if without else items


def without_keys(container: object, before: Any, keys: frozenset[Any]) -> Any:
    """A snapshot of a container as it is without some keys."""
    if not keys or is_a(before, np.ndarray | frozenset | bytes):
        return before
    if is_a(container, dict | MappingProxyType):
        pairs = [(k, v) for k, v in zip(*before, strict=True) if k not in keys]
        return tuple([k for k, _ in pairs]), tuple([v for _, v in pairs])
    return (len(before), *(x for k, x in enumerate(before) if k not in keys))


def restore(container: Collection[Any], before: Any, keys: frozenset[Any]) -> None:
    """Give a list, dictionary or set back what it held; what it has under ``keys`` has been put back already."""
    if is_a(container, dict):
        kept = dict(zip(before[0], before[1], strict=True))
        kept.update(
            {key: dict.get(container, key) for key in keys if dict.__contains__(container, key) and key in kept}
        )
        fill(container, kept)
    elif is_a(container, list):
        items = list(before)
        for key in [k for k in keys if k < min(len(items), len(container))]:
            items[key] = list.__getitem__(container, key)
        fill(container, items)
    elif is_a(container, deque | set):
        fill(container, before)
    elif is_a(container, np.ndarray) and container.flags.writeable:
        container[...] = before
    elif is_a(container, bytearray):
        container[:] = before
    elif is_a(container, array):
        container[:] = array(container.typecode, before)
    elif is_a(container, memoryview) and not container.readonly:
        container.cast("B")[:] = before


def refill(container: Any, places: Collection[Any], items: Any) -> None:
    """What a step does to a list, deque, set or dictionary that it has changed in other ways than by adding to it.

    ``places``: what the step has assigned to is there already.
    """
    for place in places:
        items[place] = container[place]
    if is_a(container, np.ndarray):
        container[...] = items
    else:
        fill(container, items)


def put(table: dict[Any, Any], key: object, value: object) -> None:
    """Assign to a key by Python's own method, as ``fill``."""
    (OrderedDict if is_a(table, OrderedDict) else dict).__setitem__(table, key, value)


def fill(container: object, items: object) -> None:
    """By Python's own methods: a user's class may have others, which nobody has called.

    What stays in a dictionary is never missing from it: it may be a namespace that other code looks names up in.
    """
    kind: Any = next(kind for kind in (OrderedDict, dict, list, deque, set) if is_a(container, kind))
    if is_a(container, dict):
        wanted: Any = items
        _fill_table(kind, container, dict(wanted))
        return
    kind.clear(container)
    (kind.update if is_a(container, set) else kind.extend)(container, items)


def _fill_table(kind: type[dict[Any, Any]], table: dict[Any, Any], wanted: dict[Any, Any]) -> None:
    """What is to go goes, what is to stay is assigned, and goes to the end in turn where the order is another."""
    assign, take, keys = kind.__setitem__, kind.pop, kind.__iter__
    for key in [key for key in keys(table) if key not in wanted]:
        take(table, key)
    for key, value in wanted.items():
        assign(table, key, value)
    in_order = zip(keys(table), wanted, strict=True)
    first = next((k for k, (now, key) in enumerate(in_order) if now is not key), len(wanted))
    for key in list(wanted)[first:]:
        take(table, key)
        assign(table, key, wanted[key])


def parts_of(value: Collection[Any]) -> list[tuple[Any, Any]]:
    """The items of a container with their keys; also the keys that are objects."""
    if is_a(value, np.ndarray) and value.dtype.hasobject:
        return list(enumerate(value.ravel().tolist()))
    if is_a(value, np.ndarray | bytearray | memoryview | array):
        return []
    if is_a(value, dict | MappingProxyType):
        keys = [(k, k) for k in value if not is_a(k, PRIMITIVES)]
        return [*value.items(), *keys]
    return list(enumerate(value))


def items_of(container: object, before: Collection[Any]) -> list[tuple[Any, Any]]:
    """``parts_of`` what a container held when a snapshot of all of it was taken."""
    if is_a(before, np.ndarray | bytes):
        return parts_of(before)
    is_table = is_a(container, dict | MappingProxyType)
    return parts_of(dict(zip(*before, strict=True))) if is_table else list(enumerate(before))
