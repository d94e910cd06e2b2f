"""What a ``defaultdict`` or ``__missing__`` makes in a step is what eager mode makes: once, by what is there now."""

from __future__ import annotations

import operator
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import autojit as aj


class Key:
    pass


class Box:
    def __init__(self) -> None:
        self.n = 0.0


class Keeping(dict[Any, Any]):
    scale = 2

    def __missing__(self, key: Any) -> Any:
        value = self[key] = [self.scale]
        return value


class Giving(dict[Any, Any]):
    def __missing__(self, key: Any) -> Any:
        return 0.0


class Derived(defaultdict[Any, Any]):
    pass


# ``n``: a number that the step computes; ``start``: a global that the factories read
STATEMENTS = (
    "lists['a'].append(n)",
    "lists['a'].append(n); lists['b'].append(n + 1)",
    "lists[key].append(n)",
    "lists['a'].append(x * 2)",
    "lists['a'].append(n); shown = len(lists['a'])",
    "lists['a'].append(n); shown = sum(lists['a'])",
    "lists['a'].append(n); shown = [k for k, v in lists.items()]",
    "lists['a'].append(n); shown = lists.pop('a')",
    "shown = 'a' in lists; lists['a'].append(n)",
    "shown = lists.get('a'); lists['a'].append(n)",
    "[lists[k].append(n) for k in ('a', 'b')]",
    "lists.__getitem__('a').append(n)",
    "lists.__missing__('a').append(n)",
    "operator.getitem(lists, 'a').append(n)",
    "derived['a'].append(n)",
    "at.lists['a'].append(n)",
    "sets['a'].add(2)",
    "tables['a']['b'] = n",
    "queues['a'].append(n)",
    "boxes['a'].n += n",
    "ints['a'] += 1; ints['b'] += n",
    "shown = ints['a']; ints['a'] = shown + n",
    "ints[key] += 1",
    "zeros['a'] += x",
    "zeros['a'] = zeros['a'] + x",
    "zeros['a'].add_(x)",
    "shown = zeros['a']",
    "nested['a']['b'] += n",
    "nested_lists['a']['b'].append(n)",
    "counter['a'] += 1; counter['b'] += n",
    "counter.update(['a', 'b'])",
    "shown = counter['missing']",
    "counter['a'] += 1; shown = counter.most_common(1)",
    "plain.setdefault('a', []).append(n)",
    "plain.setdefault('a', 0); plain['a'] += n",
    "plain.setdefault('a', []).append(n); plain['b'] = n; plain.setdefault('c', []).append(n); plain['d'] = n",
    "keeping['a'].append(n)",
    "shown = keeping['a'][0]",
    "giving['a'] += n",
    "started['a']; shown = started['a'][0]",
    "started['a'].append(n); shown = list(started['a'])",
    "numbers['a'] += n; shown = numbers['a']",
    "counted['a']",
    "shown = defaultdict(lambda: x * start)['a']",
)
CONTAINERS = (
    "lists", "derived", "sets", "tables", "queues", "boxes", "ints", "zeros", "nested", "nested_lists", "counter",
    "plain", "keeping", "giving", "started", "numbers", "counted",
)  # fmt: skip


def _shown(value: Any) -> Any:
    if isinstance(value, aj.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return [type(value), *((k if isinstance(k, str) else type(k), _shown(v)) for k, v in value.items())]
    if isinstance(value, list | tuple | deque):
        return [type(value), *map(_shown, value)]
    return [type(value), _shown(vars(value))] if isinstance(value, Box | SimpleNamespace) else (type(value), value)


def _names(statements: str) -> dict[str, Any]:
    names: dict[str, Any] = {"aj": aj, "key": Key(), "operator": operator, "defaultdict": defaultdict, "shown": None}
    names |= {"lists": defaultdict(list), "sets": defaultdict(set), "tables": defaultdict(dict), "plain": {}}
    names |= {"queues": defaultdict(lambda: deque(maxlen=3)), "boxes": defaultdict(Box), "ints": defaultdict(int)}
    names |= {"nested": defaultdict(lambda: defaultdict(float)), "counter": Counter(), "derived": Derived(list)}
    names |= {"nested_lists": defaultdict(lambda: defaultdict(list)), "zeros": defaultdict(lambda: aj.zeros(2))}
    names |= {"keeping": Keeping(), "giving": Giving(), "at": SimpleNamespace(lists=defaultdict(list)), "start": 5}
    names |= {"calls": []}
    lines = "".join(f"    {line}\n" for line in statements.split("; "))
    exec(
        "started, numbers = defaultdict(lambda: [start]), defaultdict(lambda: start)\n"
        "counted = defaultdict(lambda: calls.append(1))\n"
        f"def step(x):\n    global shown\n    n = x.sum().item()\n{lines}    return x * 2",
        names,
    )
    return names


def _change(k: int, names: dict[str, Any]) -> None:
    if k in (3, 5):
        for name in CONTAINERS:
            names[name].clear()
    if k == 3:
        names["start"] = 7
    if k == 5:
        Keeping.scale = 3
        names["lists"].default_factory = deque
        names["zeros"].default_factory = lambda: aj.ones(2)
        names["ints"] = defaultdict(int)


def _program(statements: str, jit: Callable[[Any], Any]) -> list[Any]:
    names = _names(statements)
    Keeping.scale = 2
    step, found = jit(names["step"]), []
    for k in range(8):
        found.append(step(aj.ones(2) * k).tolist())
        found.append([(name, _shown(names[name])) for name in (*CONTAINERS, "at", "calls", "shown")])
        _change(k, names)
    return found


@pytest.mark.parametrize("statements", STATEMENTS)
def test_what_a_dictionary_makes_is_made_as_in_eager_mode(statements: str) -> None:
    """It was made once, and what the factory read was not guarded; later calls put the first call's into its place."""
    assert _program(statements, aj.jit) == _program(statements, lambda f: f)


# a container that the step makes when there is none, and adds to
KEPT = (
    "lists['a'].append(n)",
    "queues['a'].append(n)",
    "plain.setdefault('a', []).append(n)",
    "plain.setdefault('a', {})['n'] = n",
    "at.__dict__.setdefault('a', []).append(n)",
    "shown = [] if shown is None else shown; shown.append(n)",
    "plain['a'] = plain.get('a') or []; plain['a'].append(n)",
    "plain['a'] = plain['a'] if 'a' in plain else []; plain['a'].append(n)",
)


@pytest.mark.parametrize("statements", KEPT)
def test_a_container_that_the_step_has_made_stays_the_one_that_it_is(statements: str) -> None:
    """It was another one after every call, and each call was captured anew, because it was longer."""
    names = _names(statements)
    step = aj.jit(names["step"])
    places = names["lists"], names["queues"], names["plain"], vars(names["at"])
    held = []
    for k in range(20):
        step(aj.ones(2) * k)
        made = [table["a"] for table in places if "a" in table] or [names["shown"]]
        held.append(made[0])
    assert all(one is held[0] for one in held)
    assert step.stats()["captures"] <= 3
    assert _shown(held[0])[-1] in ((float, 38.0), ("n", (float, 38.0)))


@pytest.mark.parametrize("kind", [dict, OrderedDict, Counter, Derived])
def test_new_keys_come_in_the_order_in_which_the_step_assigns_them(kind: type) -> None:
    """Numbers came before objects and lists."""

    def program(jit: Callable[[Any], Any]) -> list[Any]:
        table: Any = kind()

        def step(x: Any) -> Any:
            table["list"] = [x]
            table["number"] = x.sum().item()
            table["box"] = Box()
            table["tensor"] = x * 2
            table["tuple"] = (x, 1)
            table["other"] = {"x": x}
            return x * 1

        run, found = jit(step), []
        for k in range(5):
            run(aj.ones(2) * k)
            found.append(_shown(table))
            if k == 2:
                table.clear()
        return found

    assert program(aj.jit) == program(lambda f: f)


def test_open_sizes_stay_open_where_the_step_assigns_objects_and_containers() -> None:
    at = SimpleNamespace()

    def step(x: Any) -> Any:
        at.box, at.list, at.table = Box(), [x], {"a": x * 2}
        return x * 3

    compiled = aj.jit(step)
    for n in (4, 6, 8, 9, 3):
        compiled(aj.ones(n))
        assert at.list[0].shape == at.table["a"].shape == (n,)
    assert compiled.stats()["captures"] == 2
