"""A change of a container is the object's, wherever it is found: places that are assigned anew, places that hold one.

Laws over what a step does with two places and what happens between the calls; which objects are one is compared too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import autojit as aj

Jit = Callable[[Any], Any]

CHANGES = (
    "at.b.append(v); at.c = at.c + [v]", "at.b.append(v); at.c = at.b", "at.c.append(v); at.c = at.b",
    "at.b.pop(0); at.b = at.b + [v]", "at.b.pop(); at.c = at.b + [v]", "at.b.pop(); at.c = list(at.b)",
    "at.b.append(v); at.b = at.b[1:]", "at.b.append(v); at.b = list(at.c)", "at.b.append(v); at.b = []",
    "at.b.append(1.0); at.b = at.b + [2.0]", "at.b[0] = v; at.b = at.b + [v]", "at.b.insert(0, v); at.b = at.b[:3]",
    "at.b += [v]; at.c = at.c + at.b", "at.b.clear(); at.b = [v, v]", "at.b.extend([v]); at.b, at.c = at.c, at.b",
    "at.b, at.c = at.c, at.b; at.b.append(v)", "at.b, at.c = at.c, at.b; at.b[0] = v", "at.c = at.b; at.c.append(v)",
    "at.c = at.b; at.c.append(v); at.b = at.b + [1.0]", "at.b.sort(); at.b = at.b[:2] + [v]",
    "at.d['k'] = v; at.d = {'k': v + 1}", "at.d['k'] = v; at.d = dict(at.d)", "at.d.update(k=v); at.e = dict(at.d)",
    "at.d['n'] = at.d.get('n', 0) + v; at.d = {**at.d, 'm': v}", "at.d['k'] = v; at.e = at.d",
    "at.e['k'] = v; at.e = at.d", "at.d, at.e = at.e, at.d; at.d['k'] = v", "at.s.add(1); at.s = {2}",
    "at.s.add(round(v)); at.s = set(at.s) | {7}", "at.q.append(v); at.q = type(at.q)(at.q, 3)",
    "at.q.rotate(); at.q = at.q + at.w", "at.w.append(v); at.q, at.w = at.w, at.q", "at.a += 1; at.a = at.a * 2",
    "at.n[0].append(v); at.n = [[v]]", "at.n[0].append(v); at.n[0] = at.b", "at.n.append(at.b); at.b = at.b + [v]",
    "at.p[1].append(v); at.p = (2, [v])", "at.p[1].append(v); at.p = (2, at.p[1])",
    "at.t.append(x * 2); at.t = at.t[-2:]", "at.t[0] = x * 2; at.t = at.t + [x]",
)  # fmt: skip
BETWEEN = {
    ".": lambda at, kept: None,
    "k": lambda at, kept: kept.append(list(vars(at).values())),
    "x": lambda at, kept: vars(at).update(b=at.c, c=at.b, d=at.e, e=at.d, q=at.w, w=at.q),
    "=": lambda at, kept: vars(at).update(c=at.b, e=at.d, w=at.q),
    "e": lambda at, kept: vars(at).update({name: getattr(at, name).copy() for name in "bcdesqwan"}),
}
"""What happens: a call; all that is there is kept, to look at it later; places swap, share, or get equal objects."""


def _told(value: Any, known: dict[int, int]) -> Any:
    """What a value holds, and which of it are one object."""
    if isinstance(value, aj.Tensor):
        return value.tolist()
    if not isinstance(value, list | dict | set | deque | np.ndarray | tuple):
        return value
    if id(value) in known:
        return "again", known[id(value)]
    if not isinstance(value, tuple):
        known[id(value)] = len(known)
    if isinstance(value, dict):
        return {key: _told(part, known) for key, part in value.items()}
    parts = sorted(value) if isinstance(value, set) else value
    return type(value).__name__, [_told(part, known) for part in parts]


def _changed(change: str, events: str, of_globals: bool, jit: Jit) -> list[Any]:
    at = SimpleNamespace(b=[3.0, 1.0, 2.0, 5.0, 4.0, 6.0], c=[9.0] * 8, d={"k": 1.0}, e={"k": 5.0}, s={1})
    vars(at).update(q=deque([1.0, 2.0]), w=deque([4.0, 2.0]), a=np.ones(2), n=[[1.0], [2.0]], p=(1, [2.0]))
    at.t = [aj.ones(2), aj.ones(2)]
    names: dict[str, Any] = vars(at) if of_globals else {"at": at}
    head = f"    global {', '.join(vars(at))}\n" if of_globals else ""
    body = change.replace("at.", "") if of_globals else change
    exec(f"def step(x):\n{head}    v = x.sum().item()\n    {body}\n    return x * 1", names)
    step = jit(names.pop("step"))
    names.pop("__builtins__", None)
    kept: list[Any] = []
    found: list[Any] = []
    for k, event in enumerate(events):
        if event == ".":
            step(aj.ones(2) * (k + 1))
        BETWEEN[event](at, kept)
        plain = {name: value for name, value in vars(at).items() if name != "__builtins__"}
        found.append(_told([kept, list(plain.values())], {}))
    return found


@pytest.mark.parametrize("of_globals", [False, True], ids=["attributes", "globals"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_of_the_object_before_its_place_is_assigned(change: str, of_globals: bool) -> None:
    for events in (".k.k.", "..x..", "..=.k.", ".ke.e.", "k.=.x.."):
        args = change, events, of_globals
        assert _changed(*args, aj.jit) == _changed(*args, lambda f: f), events


def test_a_list_that_is_changed_before_its_place_is_assigned_keeps_its_step() -> None:
    def program(jit: Jit) -> tuple[list[Any], Any]:
        at = SimpleNamespace(losses=[1.0], shown=[], other=[1.0])

        def step(x: Any, told: list[Any]) -> Any:
            at.losses.append(x.sum().item())
            at.losses = at.losses[-3:]
            return x * len(told) + len(at.other)

        run, found = jit(step), []
        for k in range(14):
            before = at.losses
            told = at.losses if k == 9 else [1.0]
            found.append((run(aj.ones(2) * k, told).tolist(), list(before), list(at.losses), list(at.other)))
            if k in (7, 11):
                at.other = at.losses
        return found, run

    (found, run), (expected, _) = program(aj.jit), program(lambda f: f)
    assert found == expected
    assert run.stats()["native_calls"] >= 2


READS = (
    "at.b.append(1.0); r = len(at.c)", "r = len(at.c); at.b.append(1.0); r = r + len(at.c)",
    "at.b[:1] = [4.0]; r = at.c[0]", "at.n[0][0] = at.n[0][0] + 1; r = sum(at.b)",
    "at.b.insert(0, 5.0); r = sum(at.c)", "at.b.append(1.0); r = sum(at.p[1])",
    "at.b.append(1.0); r = len(at.n[0])", "at.n[0].append(2.0); r = len(at.b)", "at.a[0] = 4.0; r = at.z[0]",
    "r = 1 if at.b is at.c else 0", "r = 1 if at.b is at.n[0] else 0", "r = 1 if at.p[1] is at.b else 0",
    "r = 1 if at.a is at.z else 0", "r = 1 if id(at.b) == id(at.c) else 0", "r = sum(at.b) if at.b is not at.c else 9",
    "at.last = at.b; r = len(at.b)", "at.last = at.b; r = 1 if at.last is at.c else 0", "at.last = at.b or at.c; r = 1",
    "at.last = (at.b, 1); r = len(at.c)", "at.last = at.p; r = 1", "at.last = at.n[0]; r = 1", "at.last = at.a; r = 1",
    "at.last = at.b.append; r = 1", "at.last = [at.b, at.c]; r = 1", "at.last = {'of': at.b}; r = 1",
    "at.kept[0] = at.b; r = 1", "at.kept.append(at.b); r = 1", "r = at.b", "r = (at.b, at.c)", "r = at.p",
    "r = ((at.p, 1), at.z)", "r = at.n[0]", "r = {'of': at.b}",
)  # fmt: skip
HAPPENS: dict[str, Callable[[Any], Any]] = {
    "b": lambda at: {"b": list(at.b)}, "c": lambda at: {"c": list(at.c)}, "e": lambda at: {"c": list(at.b)},
    "=": lambda at: {"c": at.b}, "z": lambda at: {"z": at.a}, "y": lambda at: {"z": at.a.copy()},
    "p": lambda at: {"p": (1, at.b)}, "q": lambda at: {"p": (1, list(at.b))}, "n": lambda at: {"n": [at.b, *at.n[1:]]},
    "m": lambda at: {"n": [list(part) for part in at.n]}, "a": lambda at: {"a": at.a.copy()}, "0": lambda at: {"b": []},
    "1": lambda at: {"b": [1.0], "c": [1.0]}, "x": lambda at: at.b.append(3.0) or {}, "l": lambda at: {"last": None},
}  # fmt: skip
"""What happens: equal copies, one object for two places, objects as at first, a change."""


def _parts(shown: Any) -> list[Any]:
    if isinstance(shown, tuple | list):
        return [shown, *(part for inner in shown for part in _parts(inner))]
    if isinstance(shown, dict):
        return list(shown.values())
    return [shown.__self__] if hasattr(shown, "__self__") else [shown]


def _read(statement: str, events: str, jit: Jit) -> list[Any]:
    at = SimpleNamespace(b=[1.0], c=[1.0], p=(1, [1.0]), n=[[1.0], [1.0]], a=np.ones(2), z=np.ones(2))
    at.last, at.kept = None, [None]
    names: dict[str, Any] = {"at": at}
    exec(f"def step(x):\n    {statement}\n    return x * 1, r", names)
    step, found = jit(names["step"]), []
    for event in events:
        if event != ".":
            vars(at).update(HAPPENS[event](at))
            continue
        shown = step(aj.ones(2))[1]
        known = [at.b, at.c, at.p[1], *at.n, at.a, at.z]
        parts = [part for value in (shown, at.last, at.kept[-1]) for part in _parts(value)]
        found.append([[k for k, one in enumerate(known) if part is one] for part in parts])
        found += [repr(known), repr(shown) if isinstance(shown, int | float) else None]
    return found


@pytest.mark.parametrize("statement", READS)
def test_which_object_a_container_is_counts_where_it_leaves_the_step_or_is_asked(statement: str) -> None:
    for events in ("..e=.b.", "..z.z.a.", "..q.p.e.p.", "..en.n.m.", "..1=.1.b.c..l.", "..b.x.b..y.", "0..b..b..x.."):
        assert _read(statement, events, aj.jit) == _read(statement, events, lambda f: f), events


@pytest.mark.parametrize(
    "statement", ["seen.add(n)", "seen.add((n, 1))", "set.add(seen, n + 1)", "seen.update([n])", "seen.discard(n)"]
)
def test_sizes_in_a_set_are_what_they_are_in_eager_mode(statement: str) -> None:
    def program(jit: Jit) -> list[Any]:
        names: dict[str, Any] = {"seen": set()}
        exec(f"def step(x):\n    n = x.shape[0]\n    {statement}\n    return x.sum() * 0 + len(seen)", names)
        step, found = jit(names["step"]), []
        for k, n in enumerate((2, 2, 4, 3, 2, 3, 5, 5, 4)):
            if k == 3:
                names["seen"].clear()
            found += [step(aj.ones(n)).item(), sorted(map(str, names["seen"]))]
        return found

    assert program(aj.jit) == program(lambda f: f)


def test_sizes_that_are_only_added_to_a_set_stay_open() -> None:
    seen: set[int] = set()
    step = aj.jit(lambda x: (seen.add(x.shape[0]), x * 2)[1])
    for n in range(2, 10):
        step(aj.ones(n))
    assert seen == set(range(2, 10))
    assert step.stats()["captures"] == 2
