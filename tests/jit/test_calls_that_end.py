"""Every call of a jitted function comes to an end, whatever it stores outside and then changes, in few captures."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import autojit as aj


class Key:
    pass


class Box:
    def __init__(self) -> None:
        self.n: Any = 0
        self.table: dict[str, Any] = {}


# made in the step, stored outside, and changed there: ``n`` is a number that the step computes
STORED = (
    "table[key] = {}; table[key]['n'] = n",
    "table[key] = {}; table[key]['n'] = n; table[key]['n'] += 1",
    "table[key] = Box(); table[key].n = n; table[key].table['a'] = n",
    "table[key] = []; table[key].append(n)",
    "table[key] = {}; table.get(key)['n'] = n",
    "table[key, 1] = {}; table[key, 1]['n'] = n",
    "table[key] = {key: {}}; table[key][key]['n'] = n",
    "table[Key] = {}; table[Key]['n'] = n",
    "table[frozenset((1,))] = {}; table[frozenset((1,))]['n'] = n",
    "inner = {}; table[key] = inner; table['b'] = inner; table[key]['n'] = n; table['b']['m'] = n",
    "table.setdefault(key, {})['n'] = n",
    "table.setdefault(key, {}).setdefault('l', []).append(n)",
    "table.setdefault('a', {})['n'] = n; table.values()",
    "table.update({key: {}}); table[key]['n'] = n",
    "table |= {key: {}}; table[key]['n'] = n",
    "table['a'] = {}; [part.__setitem__('n', n) for part in table.values()]",
    "table[key] = {}; [part.__setitem__('n', n) for k, part in table.items()]",
    "table[key] = table.get(key) or {}; table[key]['n'] = table[key].get('n', 0) + n",
    "ordered[key] = {}; ordered[key]['n'] = n; ordered.move_to_end(key)",
    "items.append({}); items[-1]['n'] = n",
    "items.append({}); [part.__setitem__('n', n) for part in items]",
    "items.append(Box()); items[-1].n = n",
    "items.insert(0, {}); items[0]['n'] = n",
    "items += [{}]; items[-1]['n'] = n",
    "items[0:1] = [{}]; items[0]['n'] = n",
    "queue.append({}); queue[-1]['n'] = n",
    "queue.appendleft({}); queue[0]['n'] = n",
    "made[key]['n'] = n",
    "at.table = {}; at.table['n'] = n",
    "vars(at)['table'] = {}; at.table['n'] = n",
    "at.box = Box(); at.box.box = Box(); at.box.box.n = n",
)
# places whose names are new in every run: no capture serves another one
NEW = (
    "table[Key()] = 1",
    "table[object()] = {}",
    "y = x * 2; table[id(y)] = 1",
    "table[x * 2] = n",
    "setattr(at, f'a{id(Box())}', n)",
)
OF_ARGUMENTS = ("table[id(x)] = 1", "table[x] = n", "table[x] = {}; table[x]['n'] = n", "table[hash(x)] = n")


def _shown(value: Any) -> Any:
    if isinstance(value, dict):
        return [type(value), *((k if isinstance(k, str) else type(k), _shown(v)) for k, v in value.items())]
    if isinstance(value, list | deque):
        return [type(value), *map(_shown, value)]
    return [type(value), _shown(vars(value))] if isinstance(value, Box | SimpleNamespace) else (type(value), value)


def _program(statements: str, jit: Callable[[Any], Any]) -> tuple[list[Any], Any]:
    names: dict[str, Any] = {"Key": Key, "Box": Box, "key": Key(), "at": SimpleNamespace()}
    names |= {"table": {}, "ordered": OrderedDict(), "made": defaultdict(dict), "items": [{}], "queue": deque()}
    lines = "".join(f"    {line}\n" for line in statements.split("; "))
    exec(f"def step(x):\n    global table, items\n    n = x.sum().item()\n{lines}    return x * 2", names)
    step, found = jit(names["step"]), []
    given = [aj.ones(2), aj.ones(2) * 3, aj.ones(2) * 4]
    for k in range(6):
        found.append(step(given[k % 3]).tolist())
        found.append([_shown(names[name]) for name in ("table", "ordered", "made", "items", "queue")])
        found.append(len(vars(names["at"])) if "setattr" in statements else _shown(names["at"]))
        if k == 3:
            names["table"].clear()
            names["at"].__dict__.clear()
    return found, step


@pytest.mark.parametrize("statements", STORED)
def test_what_the_step_stores_and_changes_is_the_steps_own(statements: str) -> None:
    """A dictionary under an object as a key was found outside when it was read again: every capture met a new one."""
    found, step = _program(statements, aj.jit)
    assert found == _program(statements, lambda f: f)[0]
    if "move_to_end" in statements:
        assert "ran line by line" in step.explain()
    else:
        assert 0 < step.stats()["captures"] <= 6


@pytest.mark.parametrize("statements", OF_ARGUMENTS)
def test_the_identity_of_an_argument_is_the_callers_tensors(statements: str) -> None:
    """A stand-in's id named another place in every capture."""
    found, step = _program(statements, aj.jit)
    assert found == _program(statements, lambda f: f)[0]
    assert step.stats()["captures"] <= 8


@pytest.mark.parametrize("statements", NEW)
def test_places_that_are_new_in_every_run_are_assigned_line_by_line(statements: str) -> None:
    found, step = _program(statements, aj.jit)
    eager = _program(statements, lambda f: f)[0]
    assert found[::3] == eager[::3]
    if "id(" not in statements:  # which may come again, in eager mode, too
        assert found == eager
        assert step.stats()["captures"] == 0
        assert "assigns to other places in every run" in step.explain()


def test_an_assignment_to_what_has_no_items_raises_pythons_error() -> None:
    for statement in ("k[0] = x", "del k[0]", "(1, 2)[0] = x"):
        names: dict[str, Any] = {}
        exec(f"def step(x, k=1):\n    {statement}", names)
        for step in (names["step"], aj.jit(names["step"])):
            with pytest.raises(TypeError, match="item"):
                step(aj.ones(2))
