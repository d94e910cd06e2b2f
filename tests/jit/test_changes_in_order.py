"""Several changes of one container in one step are made at every call in the order of the function, whatever it holds.

Each program is a random row of statements that eager mode runs without an error; the world changes the container, too.
"""

from __future__ import annotations

import heapq
import operator
import random
from array import array
from collections import Counter, OrderedDict, UserDict, UserList, defaultdict, deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.core.errors import AutojitError

OF_ITEMS = (
    "c.append(v)", "c.append(n)", "c.extend([v, 1])", "c.extend(k for k in (1, v))", "c += [n, v]", "c.insert(1, v)",
    "c.pop()", "c.pop(0)", "c[0] = v", "c[-1] = n", "c[1] = c[0] + 1", "c[-1] += v", "del c[0]", "del c[-1]",
    "c.clear()", "c.reverse()", "c.remove(c[0])", "log.append(len(c))", "log.append(c[-1])", "log.append(c.pop())",
    "log.append(2 in c)", "log.append(sum(c))", "log.append(list(c))", "if len(c) > 4: c.pop(0)",
    "if c and c[0] == 1: c.append(7)", "while len(c) > 5: c.pop()", "for k in (1, 2): c.append(k * v)",
)  # fmt: skip
OF_LISTS = (
    "del c[:-2]", "del c[2:]", "del c[::2]", "c[1:2] = [v, v]", "c[:] = c[-3:]", "c[-1:] = []",
    "c[:2] = reversed(c[:2])", "c *= 2", "c.sort()", "c.sort(key=lambda k: -k)", "c.sort(); c.append(v)",
    "heapq.heappush(c, n)", "heapq.heapify(c)", "operator.setitem(c, 0, n)", "log.append(c.index(c[-1]))",
    "log.append(c.count(2))", "log.append(sorted(c)[0])",
)  # fmt: skip
OF_DEQUES = ("c.appendleft(v)", "c.popleft()", "c.rotate(1)", "c.extendleft([n, v])")
OF_SETS = (
    "c.add(n)", "c.add(7)", "c.discard(n)", "c.update((n, n + 1))", "c |= {n, 9}", "c &= {1, 2, 3, n}", "c -= {1, n}",
    "c ^= {n, 4}", "c.difference_update([2, n])", "c.intersection_update(range(6))", "c.clear()",
    "log.append(len(c))", "log.append(n in c)", "log.append(sorted(c))", "if len(c) > 3: c.discard(min(c))",
    "c.symmetric_difference_update({2})", "c.remove(min(c))", "for k in (1, n): c.add(k)",
    "log.append(max(c, default=0))",
)  # fmt: skip
OF_KEYS = (
    "c['a'] = v", "c[n] = v", "c['z'] = n", "c.pop('a', None)", "c.pop(n, None)", "c['b'] = c.pop('b', 0) + v",
    "c.update({'a': n, 'q': v})", "c.setdefault(n, v)", "c.setdefault('s', 1)", "del c[next(iter(c))]", "c.clear()",
    "log.append(list(c))", "log.append(len(c))", "log.append(c.get('a'))", "log.append(n in c)",
    "log.append(list(c.items()))", "if len(c) > 4: del c[next(iter(c))]", "c['keys'] = len(c)",
    "log.append(max(map(str, c), default=''))", "c['a'] = c.get('a', 0) + 1", "log.append(c.pop(n, 0))",
)  # fmt: skip
OF_ARRAYS = (
    "c[0] = v", "c[-1] = n", "c[1] = c[0] + 1", "c[0] += 1", "log.append(float(c[0]))", "log.append(len(c))",
    "log.append(float(sum(c)))", "if c[0] > 3: c[0] = 0",
)  # fmt: skip
OF_NUMPY = (
    *OF_ARRAYS, "c += 1", "c *= 2", "c += v", "c[:] = v", "c[c > 3] = n", "c.fill(n)", "c.sort()",
    "np.clip(c, 0, 5, out=c)", "np.copyto(c, 1)", "c[:2] = c[1:]", "c[1:] = x.sum().item()", "log.append(c.sum())",
    "np.add.at(c, [0, 0], 1)",
)  # fmt: skip

MADE: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "list": (lambda: [1, 2, 3], OF_ITEMS + OF_LISTS),
    "deque": (lambda: deque([1, 2, 3]), OF_ITEMS + OF_DEQUES),
    "deque of four": (lambda: deque([1, 2, 3], 4), (*OF_ITEMS[:5], *OF_ITEMS[6:], "c.appendleft(v)", "c.rotate(-1)")),
    "UserList": (lambda: UserList([1, 2, 3]), OF_ITEMS + OF_LISTS[:6]),
    "set": (lambda: {1, 2, 3}, OF_SETS),
    "dict": (lambda: {"a": 1, "b": 2}, OF_KEYS),
    "OrderedDict": (
        lambda: OrderedDict(a=1, b=2),
        (*OF_KEYS, "if 'a' in c: c.move_to_end('a')", "c[n] = v; c.move_to_end(n, last=False)", "c.popitem(False)"),
    ),
    "defaultdict": (lambda: defaultdict(int, a=1, b=2), (*OF_KEYS, "c[n] += 1", "c['a'] += v")),
    "Counter": (
        lambda: Counter(a=1, b=2),
        (*OF_KEYS[:4], *OF_KEYS[6:14], "c[n] += 1", "c.update(['a', n])", "c.subtract(['b'])"),
    ),
    "UserDict": (lambda: UserDict(a=1, b=2), OF_KEYS),
    "NumPy": (lambda: np.array([1.0, 2.0, 3.0]), OF_NUMPY),
    "array": (lambda: array("d", [1.0, 2.0, 3.0]), OF_ARRAYS),
}  # fmt: skip
HELD = {"global": "c", "attribute": "s.c", "item": "s.d['c']"}


class Holder:
    def __init__(self, c: Any) -> None:
        self.c = c
        self.d = {"c": c}


def _shown(c: Any) -> Any:
    items = sorted(c) if isinstance(c, set) else list(c.items()) if hasattr(c, "items") else list(c)
    return (
        [(key, round(float(x), 9)) for key, x in items] if hasattr(c, "items") else [round(float(x), 9) for x in items]
    )


def _world(c: Any, k: int) -> None:
    """What happens between calls."""
    if k in (2, 5):
        if isinstance(c, set | dict | UserDict):
            c.add(8) if isinstance(c, set) else c.update(w=8)
        elif isinstance(c, array | np.ndarray):
            c[1] = 8
        else:
            c.append(8)
    if k == 3 and not isinstance(c, array | np.ndarray):
        c.clear()
        c.update(MADE_AGAIN[type(c)]) if isinstance(c, set | dict | UserDict) else c.extend([3, 1, 2])


MADE_AGAIN: dict[type, Any] = {
    set: {3, 1, 2}, dict: {"b": 3, "a": 1}, OrderedDict: {"b": 3, "a": 1}, UserDict: {"b": 3, "a": 1},
    defaultdict: {"b": 3, "a": 1}, Counter: {"b": 3, "a": 1},
}  # fmt: skip
SIZES = (2, 2, 4, 2, 4, 4, 2, 2)


def calls(
    kind: str, held: str, statements: list[str], jit: Callable[[Any], Any], seen: list[Any] | None = None
) -> list[Any]:
    """What the container, what was logged and the results are after each call."""
    c, log, s = MADE[kind][0](), [], Holder(None)
    s.c = s.d["c"] = c
    names = {"c": c, "log": log, "s": s, "np": np, "heapq": heapq, "operator": operator, "__name__": __name__}
    lines = ["def step(x):", "    global c", "    v, n = x.sum().item(), x.shape[0]"]
    lines += [
        f"    {line.replace('c[', HELD[held] + '[')}" if held != "global" else f"    {line}" for line in statements
    ]
    exec("\n".join([*lines, "    return x * 2"]), names)
    run, seen = jit(names["step"]), [] if seen is None else seen
    for k, n in enumerate(SIZES):
        _world(c, k)
        result = run(aj.full((n,), float(k)))
        seen.append((result.tolist(), _shown(c), list(log), names["c"] is c))
    return seen


def programs(kind: str, count: int, seed: str = "") -> list[tuple[str, list[str]]]:
    """Random rows of statements that run in eager mode."""
    draw = random.Random(kind + seed)
    found: list[tuple[str, list[str]]] = []
    while len(found) < count:
        statements = [draw.choice(MADE[kind][1]) for _ in range(draw.randint(2, 4))]
        held = draw.choice(list(HELD))
        try:
            calls(kind, held, statements, lambda function: function)
        except (LookupError, ValueError, TypeError, StopIteration):
            continue
        found.append((held, statements))
    return found


def _check(kind: str, held: str, statements: list[str]) -> bool:
    """Whether the program was not refused by name, at its first call."""
    expected = calls(kind, held, statements, lambda function: function)
    compiled: list[Any] = []
    try:
        calls(kind, held, statements, aj.jit, compiled)
    except AutojitError:
        assert not compiled, (held, statements)
        return False
    assert compiled == expected, (held, statements)
    return True


@pytest.mark.parametrize("kind", MADE)
def test_changes_are_made_in_order(kind: str) -> None:
    agreed = [_check(kind, *program) for program in programs(kind, 24)]
    assert sum(agreed) >= len(agreed) // 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("seed", range(10))
def test_many_changes_are_made_in_order(kind: str, seed: int) -> None:
    for program in programs(kind, 60, str(seed)):
        _check(kind, *program)
