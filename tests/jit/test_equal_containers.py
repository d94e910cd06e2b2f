"""A container that a step changes or hands on is guarded as itself: an equal one that replaces it is another."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import autojit as aj

Step = Callable[[Any, Any], Any]


def _assigns_an_item(at: Any, x: Any) -> Any:
    at.numbers[0] = at.numbers[0] + 1
    return x * at.numbers[0]


STEPS: dict[str, Step] = {
    "appends": lambda at, x: (at.empty.append(1), x * 1)[1],
    "appends numbers": lambda at, x: (at.numbers.append(x.sum().item()), x * 1)[1],
    "extends": lambda at, x: (at.numbers.extend([3.0]), x * len(at.numbers))[1],
    "assigns an item": _assigns_an_item,
    "appends inside a tuple": lambda at, x: (at.pair[1].append(4.0), x * 1)[1],
    "returns a list": lambda at, x: (at.numbers, x * 1),
    "returns an array": lambda at, x: (at.array, x * 1),
    "reads": lambda at, x: x * at.numbers[0] + sum(at.numbers),
    "changes an array": lambda at, x: (aj.from_numpy(at.array).add_(x.sum()), x * 1)[1],
}


def _told(statement: str) -> Step:
    names: dict[str, Any] = {"aj": aj, "partial": partial}
    exec(f"def step(at, x):\n    {statement}\n    return x * 1", names)  # the same statement on any container
    step: Step = names["step"]
    return step


STEPS |= {
    said: _told(said)
    for said in (
        "at.empty += [1.0]", "at.numbers += [x.sum().item()]", "at.numbers += (v.item() for v in x)",
        "at.numbers.extend(v.item() for v in x)", "at.numbers.extend({'a': x[0].item()}.values())",
        "at.numbers.extend(zip([1], [x[0].item()]))", "at.empty += {1: 2}.keys()", "at.numbers *= 2",
        "at.numbers[len(at.numbers):] = [x.sum().item()]", "at.numbers.insert(0, x.sum().item())",
        "at.empty.__iadd__([x[0].item()])", "at.numbers.sort()", "at.numbers.reverse()", "at.numbers[0] += 1.0",
        "at.pair[1].insert(0, 1.0)", "at.pair[1].extend([2.0])", "at.shown = (at.numbers, 1)", "at.shown = at.numbers",
        "at.shown = at.numbers.append", "at.shown = partial(max, at.numbers)", "at.shown = at.array[:1]",
        "at.shown = {'of': at.numbers}", "at.kept[0] = at.numbers", "at.kept.append(at.numbers)",
    )
}  # fmt: skip


def _renew(at: Any, k: int, kept: list[Any]) -> None:
    """Equal containers, where equal means what the old ones hold by now."""
    kept.append(SimpleNamespace(**vars(at)))
    if k % 2:  # the old ones are emptied first, so that new empty ones equal them
        at.empty.clear()
        at.numbers[:] = [1.0]
        at.pair[1].clear()
        at.array[:] = 0
    at.empty, at.numbers, at.array = list(at.empty), list(at.numbers), at.array.copy()
    at.pair = (1, list(at.pair[1]))


def _parts(shown: Any) -> list[Any]:
    """What is in something that a step has stored."""
    if isinstance(shown, partial):
        return list(shown.args)
    if callable(shown):
        return [shown.__self__]
    return list(shown.values()) if isinstance(shown, dict) else [shown, *(shown if isinstance(shown, tuple) else ())]


def _program(step: Step, jit: Callable[[Any], Any]) -> list[Any]:
    at = SimpleNamespace(empty=[], numbers=[1.0], pair=(1, [2.0]), array=np.zeros(2), kept=[None], shown=None)
    run = jit(lambda x: step(at, x))
    found: list[Any] = []
    kept: list[Any] = []
    for k in range(6):
        result = run(aj.ones(2, dtype=aj.float64))
        shown = result[0] if isinstance(result, tuple) else None
        found.append((shown is at.numbers, shown is at.array))
        found.append([kept is at.numbers for kept in at.kept])
        found.append(any(part is at.numbers for part in _parts(at.shown)))
        found.append((result[1] if isinstance(result, tuple) else result).tolist())
        _renew(at, k, kept)
        found += [(list(x.empty), list(x.numbers), x.pair[1][:], x.array.tolist()) for x in (*kept, at)]
    return found


@pytest.mark.parametrize("name", STEPS)
def test_a_container_that_was_replaced_by_an_equal_one_is_left_alone(name: str) -> None:
    """Seed 3004326: the list that a step appends to was cleared, and replaced by an empty one."""
    assert _program(STEPS[name], aj.jit) == _program(STEPS[name], lambda f: f)


def test_an_equal_container_that_is_only_read_needs_no_other_capture() -> None:
    at = SimpleNamespace(numbers=[1.0, 2.0])
    step = aj.jit(lambda x: x * at.numbers[0] + at.numbers[1])
    for _ in range(5):
        at.numbers = [1.0, 2.0]
        assert step(aj.ones(1)).item() == 3
    assert step.stats()["captures"] == 1


CHANGES = (
    "log += [x.sum().item()]",
    "log += [1.0]",
    "log += {1: 2}.values()",
    "log += (v.item() for v in x)",
    "log[len(log):] = [x.sum().item()]",
    "log.insert(0, x.sum().item())",
    "log.__iadd__([1.0])",
    "log.append(1.0)",
)


@pytest.mark.parametrize("kind", ["list", "deque"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_variable_whose_container_was_replaced_by_an_equal_one(change: str, kind: str) -> None:
    """Seed 10001590: the list of a global was emptied, and replaced by an empty one; the step added to the old one."""
    if kind == "deque" and "len(log):" in change:
        return  # it has no slices

    def program(jit: Callable[[Any], Any]) -> list[Any]:
        names: dict[str, Any] = {"log": (made := {"list": list, "deque": deque}[kind])(), "aj": aj}
        exec(f"def step(x):\n    global log\n    {change}\n    return x * 1", names)
        step, found, kept = jit(names["step"]), [], []
        for k in range(7):
            step(aj.ones(2, dtype=aj.float64) * k)
            found += [list(names["log"]), [list(old) for old in kept]]
            if k in (1, 4):
                kept.append(names["log"])
                names["log"].clear()
                names["log"] = made()
        return found

    assert program(aj.jit) == program(lambda f: f)


@pytest.mark.parametrize(
    "change", ["log += [x.sum().item()]", "log += (v.item() for v in x)", "log |= {'a': x[0].item()}"]
)
def test_what_is_added_by_an_operator_costs_one_capture(change: str) -> None:
    names: dict[str, Any] = {"log": {} if "|=" in change else [], "aj": aj}
    exec(f"def step(x):\n    global log\n    {change}\n    return x * 1", names)
    step = aj.jit(names["step"])
    for k in range(6):
        step(aj.ones(2) * k)
    assert step.stats()["captures"] <= 2
    assert names["log"] == ({"a": 5.0} if "|=" in change else names["log"])


@pytest.mark.parametrize("made", [list, deque, dict, set])
def test_whether_anything_is_in_a_container_is_one_bit_of_it(made: Any) -> None:
    log: Any = made()

    def step(x: Any) -> Any:
        y = x * 3 if log else x * 2
        if made is dict:
            log["a"] = y.sum().item()
        elif made is set:
            log.add(1)
        else:
            log.append(y.sum().item())
        return y

    compiled = aj.jit(step)
    found = [compiled(aj.ones(2) * k)[0].item() for k in range(6)]
    assert found == [0, 3, 6, 9, 12, 15]
    assert compiled.stats()["captures"] <= 3
    log.clear()
    assert compiled(aj.ones(2))[0].item() == 2
