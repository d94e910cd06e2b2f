"""Containers given as arguments are the caller's: they hold what eager mode leaves in them."""

from __future__ import annotations

import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import optim


@dataclass
class Record:
    n: float
    t: Any


NUMBERS = [7.0, 2.0, 3.0, 4.0, 5.0, 6.0, 1.0]
# ``d``: the container, ``n``: a number that the step computes
CHANGES: dict[str, Callable[[], Any]] = {
    "d['out'] = x * 2": lambda: {"a": 1},
    "d['out'] = x * 2; shown = d['out'] + d['a']": lambda: {"a": aj.ones(2)},
    "d.update(loss=n)": dict,
    "d.setdefault('l', []).append(n)": dict,
    "d['m']['loss'].append(n)": lambda: {"m": {"loss": []}},
    "d['a'] = d.pop('a')": lambda: {"a": 1, "b": 2},
    "if n > 4: d['n'] = n": dict,
    "d.clear()": lambda: {"a": 1},
    "d.append(x * 2)": list,
    "d.insert(0, n)": lambda: [1, 2],
    "d.extend([n, x])": lambda: [1],
    "d += [n]": lambda: [1],
    "shown = d.pop()": lambda: list(NUMBERS),
    "del d[0]": lambda: list(NUMBERS),
    "d.remove(max(d))": lambda: list(NUMBERS),
    "d.sort()": lambda: list(NUMBERS),
    "d.reverse()": lambda: list(NUMBERS),
    "d[1:] = [n]": lambda: list(NUMBERS),
    "d[0].add_(1.0); d.append(d[0] * 1)": lambda: [aj.ones(2)],
    "d[1].append(n)": lambda: (1, []),
    "d.add(n)": set,
    "d.discard(1)": lambda: {1, 2},
    "d.append(n)": lambda: deque(maxlen=2),
    "d['a'].append(n)": lambda: defaultdict(list),
    "d['a'] += 1": Counter,
    "d['a'] = n; d.move_to_end('b')": lambda: OrderedDict(b=1),
    "d.n += n": lambda: Record(0.0, None),
    "d.t = x * 2": lambda: Record(0.0, None),
    "d.t = (x * 2, n)": SimpleNamespace,
    "d['r'] = random.random()": dict,
    "loss = (w * x).sum(); loss.backward(); opt.step(); opt.zero_grad(); d['loss'] = n; log.append(n)": dict,
}


def _shown(value: Any) -> Any:
    if isinstance(value, aj.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return [type(value), *((key, _shown(part)) for key, part in value.items())]
    if isinstance(value, list | tuple | deque):
        return [type(value), *map(_shown, value)]
    return _shown(vars(value)) if isinstance(value, Record | SimpleNamespace) else value


def _program(change: str, jit: Callable[[Any], Any], is_same: bool) -> list[Any]:
    random.seed(0)
    w = aj.ones(2, requires_grad=True)
    names: dict[str, Any] = {"random": random, "w": w, "opt": optim.SGD([w], lr=0.1), "log": []}
    lines = "".join(f"    {line}\n" for line in change.split("; "))
    exec(
        f"def step(d, e, x):\n    shown = None\n    n = x.sum().item()\n{lines}    return shown, bool(e), x * 2", names
    )
    step, found = jit(names["step"]), []
    given = [CHANGES[change]() for _ in range(2)]
    for k in range(6):
        d = given[k > 3]
        found.append(_shown(step(d, d if is_same else [], aj.ones(2) * k)))
        found.append([_shown(given), w.tolist(), list(names["log"])])
    return found


@pytest.mark.parametrize("is_same", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_what_is_given_is_changed_as_in_eager_mode(change: str, is_same: bool) -> None:
    assert _program(change, aj.jit, is_same) == _program(change, lambda f: f, is_same)


@pytest.mark.parametrize("change", ["d['out'] = x * 2", "d.update(loss=n)", "d['m']['loss'].append(n)"])
def test_explain_says_why_such_functions_run_line_by_line(change: str) -> None:
    names: dict[str, Any] = {}
    exec(f"def step(d, x):\n    n = x.sum().item()\n    {change}\n    return x * 2", names)
    step = aj.jit(names["step"])
    for _ in range(3):
        step(CHANGES[change](), aj.ones(2))
    assert step.stats()["captures"] == 0
    assert "that it is given as an argument: ran line by line" in step.explain()


def test_containers_of_arrays_are_changed_as_well() -> None:
    array = np.ones(2)
    given: dict[str, Any] = {"a": array}

    @aj.jit
    def step(d: Any, x: Any) -> Any:
        d["out"] = x * 2
        d["a"] += 1
        return x * 1

    for _ in range(3):
        step(given, aj.ones(2))
    assert list(given) == ["a", "out"]
    assert given["a"] is array
    assert array.tolist() == [4.0, 4.0]


def test_a_container_that_is_filled_once_is_compiled_from_then_on() -> None:
    """A cache: the calls that find it filled are others than the one that fills it."""
    cache: dict[str, Any] = {}

    @aj.jit
    def step(known: Any, x: Any) -> Any:
        if "table" not in known:
            known["table"] = x * 10
        return x + known["table"]

    for _ in range(5):
        assert step(cache, aj.ones(2)).tolist() == [11.0, 11.0]
    assert step.stats()["captures"] == 1
