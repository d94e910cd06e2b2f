"""Containers that a step changes, in whatever order and however often, hold after every call what eager mode leaves."""

from __future__ import annotations

import operator
import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from typing import Any

import pytest

import autojit as aj
from autojit.core.errors import AutojitError
from autojit.jit.calls import Call
from autojit.jit.guards import broken_guard

Change = Callable[[Any, int], Any]
COMMON: dict[str, Change] = {
    "clear": lambda s, k: s.clear(),
    "remove": lambda s, k: s.remove(k),
    "len": lambda s, k: len(s),
    "has": lambda s, k: k in s,
}
ORDERED: dict[str, Change] = {
    **COMMON,
    "pop": lambda s, k: s.pop(),
    "append": lambda s, k: s.append(k),
    "append 2": lambda s, k: s.append(k + 1),
    "extend": lambda s, k: s.extend([k, k + 1]),
    "insert": lambda s, k: s.insert(0, k),
    "reverse": lambda s, k: s.reverse(),
    "set": lambda s, k: s.__setitem__(0, k),
    "delete": lambda s, k: s.__delitem__(0),
}


def _merge(s: Any, k: int) -> None:
    s |= {k: k, k + 1: 2}


MAPPED: dict[str, Change] = {
    "clear": lambda s, k: s.clear(),
    "len": lambda s, k: len(s),
    "has": lambda s, k: k in s,
    "get": lambda s, k: s.get(k, 7),
    "item": lambda s, k: s[k],
    "set": lambda s, k: s.__setitem__(k, k + 1),
    "operator": lambda s, k: operator.setitem(s, k, 5),
    "delete": lambda s, k: s.__delitem__(k),
    "pop": lambda s, k: s.pop(k, 3),
    "popitem": lambda s, k: s.popitem()[1],
    "update": lambda s, k: s.update({k: k, k + 1: 1}),
    "merge": _merge,
    "setdefault": lambda s, k: s.setdefault(k, 6),
    "values": lambda s, k: sum(s.values()),
    "count": lambda s, k: s.__setitem__(k, s.get(k, 0) + 1),
}


BY_ITEMS = ("set", "update", "merge", "setdefault", "count", "subtract", "operator")
MAPPINGS = ("dict", "OrderedDict", "defaultdict", "Counter")


def _mapping(kind: type, *given: Any) -> Callable[[Any], Any]:
    return lambda items: kind(*given, {k: k for k in items})


KINDS: dict[str, tuple[Callable[[Any], Any], dict[str, Change]]] = {
    "dict": (_mapping(dict), MAPPED),
    "OrderedDict": (
        _mapping(OrderedDict),
        {
            **MAPPED,
            "move_to_end": lambda s, k: s.move_to_end(k),
            "popitem first": lambda s, k: s.popitem(last=False)[1],
        },
    ),
    "defaultdict": (_mapping(defaultdict, int), MAPPED),
    "Counter": (_mapping(Counter), {**MAPPED, "subtract": lambda s, k: s.subtract([k])}),
    "list": (list, {**ORDERED, "sort": lambda s, k: s.sort(), "pop first": lambda s, k: s.pop(0)}),
    "deque": (deque, {**ORDERED, "rotate": lambda s, k: s.rotate(1), "popleft": lambda s, k: s.popleft()}),
    "set": (
        set,
        {
            **COMMON,
            "add": lambda s, k: s.add(k),
            "add 2": lambda s, k: s.add(k + 1),
            "discard": lambda s, k: s.discard(k),
            "update": lambda s, k: s.update((k, k + 1)),
        },
    ),
}


def calls(kind: str, names: list[tuple[str, int]], wrap: Callable[..., Any]) -> list[Any]:
    """What the container holds after each call, and the results; the world changes it too."""
    make, changes = KINDS[kind]
    held = make([1, 2, 3])

    def step(x: aj.Tensor) -> aj.Tensor:
        found = [changes[name](held, k) for name, k in names]
        return x + sum(int(v) for v in found if isinstance(v, int))

    run = wrap(step)
    by_items = isinstance(held, dict) and any(name in BY_ITEMS for name, _ in names)  # in what order is not promised
    seen: list[Any] = []
    for k in range(4):
        if k == 2:
            held.clear()
            fresh = make([2, 1, 5, 7])
            held.extend(fresh) if isinstance(held, list | deque) else held.update(fresh)
        try:
            seen.append(run(aj.zeros(1)).tolist())
        except (LookupError, ValueError) as error:  # a compiled step that fails changes nothing
            return [*seen, type(error)]
        shown = list(held.items()) if isinstance(held, dict) else list(held)
        seen.append(sorted(shown) if kind == "set" or by_items else shown)
    return seen


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_a_container_is_changed_at_every_call_as_in_eager_mode(kind: str, seed: int) -> None:
    draw = random.Random(f"{kind}{seed}")
    agreed = 0
    for _ in range(10):
        names = [(draw.choice(list(KINDS[kind][1])), draw.choice((2, 3, 9))) for _ in range(draw.randint(1, 4))]
        try:
            compiled = calls(kind, names, aj.jit)
        except AutojitError:  # refused by name
            continue
        assert compiled == calls(kind, names, lambda f: f), names
        agreed += 1
    assert agreed >= (3 if kind in MAPPINGS else 6), "refusals are the exception"


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_capture_compares_is_what_was_there_before_it(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the very next call would find it changed; what the step has put there itself is no read."""
    broken: list[str | None] = []
    monkeypatch.setattr(Call, "check_untorn", lambda self, guards: broken.append(broken_guard(guards)))
    pairs = list(product(KINDS[kind][1], repeat=2))
    for names in random.Random(kind).sample(pairs, min(len(pairs), 24)):
        with suppress(AutojitError):
            calls(kind, [(names[0], 2), (names[1], 9), (names[1], 2)], aj.jit)
        assert not any(broken), (names, broken)
