"""A container that a step reads as a whole, with all that is in it, is read again when any part of it has changed."""

from __future__ import annotations

import copy
import json
import pickle
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

import autojit as aj


@dataclass
class Config:
    """A part with fields."""

    scale: float = 1.0
    steps: list[int] = field(default_factory=lambda: [1, 2])


NESTS: dict[str, Callable[[], Any]] = {
    "list of lists": lambda: [[1, 2], [3]],
    "dict of lists": lambda: {"a": [1, 2], "b": [3]},
    "list of dicts": lambda: [{"a": 1}, {"b": [2]}],
    "tuple of lists": lambda: ([1], [[2]]),
    "deque of lists": lambda: deque([[1], [2]]),
    "ordered dict of dicts": lambda: OrderedDict(a={"b": {"c": 1}}),
    "defaultdict of lists": lambda: defaultdict(list, a=[1]),
    "shared list twice": lambda: (lambda part: [part, part, [5]])([1]),
    "fields": lambda: [Config(), Config(2.0)],
    "namespace": lambda: [SimpleNamespace(a=[1], b=SimpleNamespace(c=2))],
}
READERS: dict[str, Callable[[Any], Any]] = {
    "str": str,
    "format": lambda v: f"{v}",
    "percent": lambda v: "%s" % (v,),  # noqa: UP031
    "pickle": lambda v: len(pickle.dumps(v)) + sum(pickle.dumps(v)),
    "deepcopy": lambda v: repr(copy.deepcopy(v)),
    "json": lambda v: json.dumps(v, default=str),
}


def numbers_in(value: Any, seen: Any = ()) -> list[tuple[Any, Any]]:
    """(container, place) of every number."""
    if isinstance(value, dict):
        items: Any = list(value.items())
    elif isinstance(value, list | tuple | deque):
        items = list(enumerate(value))
    else:
        value = vars(value)
        items = list(value.items())
    found = []
    for place, part in items:
        found += [(value, place)] if isinstance(part, int | float) else numbers_in(part)
    return found


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("nest", NESTS)
def test_a_change_in_any_depth_is_seen(nest: str, reader: str) -> None:
    value = NESTS[nest]()
    read = READERS[reader]

    def step(x: aj.Tensor) -> aj.Tensor:
        text = read(value)
        return x + (text if isinstance(text, int) else sum(map(ord, text)))

    compiled = aj.jit(step)
    x = aj.ones(2)
    assert compiled(x).tolist() == step(x).tolist()
    places = numbers_in(value)
    for holder, place in (places[0], places[-1]):
        holder[place] += 7
        for _ in range(2):
            assert compiled(x).tolist() == step(x).tolist(), (nest, reader, place)
