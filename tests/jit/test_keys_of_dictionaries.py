"""Keys of dictionaries: those that are equal but of other types, and counters that are updated by mappings."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj

EQUAL_KEYS: tuple[tuple[Any, ...], ...] = (
    (1, True, 1.0, 1),
    (0, False, 0.0, -0.0),
    ((1, 2), (True, 2), (1, 2.0)),
    (("a", (0, 1)), ("a", (False, 1))),
)


@pytest.mark.parametrize("kind", [dict, OrderedDict])
@pytest.mark.parametrize("keys", EQUAL_KEYS)
def test_equal_keys_of_other_types_are_other_arguments(keys: tuple[Any, ...], kind: Callable[[Any], Any]) -> None:
    """``{1: t}`` and ``{True: t}`` shared a step, so results had the key of the first call."""

    def step(d: Any, x: Any) -> Any:
        return {key: value * 2 for key, value in d.items()}, [repr(key) for key in d], x

    compiled = aj.jit(step)
    for key in keys * 2:
        given = kind({"first": aj.ones(1), key: aj.ones(2)})
        found, eager = compiled(given, aj.ones(2)), step(given, aj.ones(2))
        assert list(map(repr, found[0])) == list(map(repr, eager[0]))
        assert found[1] == eager[1]
    assert compiled.stats()["captures"] == len(set(map(repr, keys)))


COUNTS = (
    "counts.update(a=2)",
    "counts.update(a=n)",
    "counts.update({'a': n, 'b': 1})",
    "counts.update('abca')",
    "counts.update(['a'], b=n)",
    "counts.update(Counter('aab'))",
    "counts.subtract(a=2, b=n)",
    "counts.subtract({'a': n})",
    "counts += Counter(a=2)",
    "del counts['missing']",
    "counts['a'] += n; del counts['a']",
    "plain.update(a=n)",
    "plain.update([('a', n)], b=x * 2)",
    "plain.update(zip('ab', (n, 2)))",
)


@pytest.mark.parametrize("statements", COUNTS)
@pytest.mark.parametrize("is_empty", [True, False])
def test_counters_and_dictionaries_are_updated_by_every_call(statements: str, is_empty: bool) -> None:
    """``Counter.update`` of an empty counter goes to ``dict.update``, which was refused."""

    def program(jit: Callable[[Any], Any]) -> list[Any]:
        names: dict[str, Any] = {"counts": Counter() if is_empty else Counter("abb"), "plain": {}, "Counter": Counter}
        lines = "".join(f"    {line}\n" for line in statements.split("; "))
        exec(f"def step(x):\n    global counts\n    n = x.sum().item()\n{lines}    return x * 1", names)
        step, found = jit(names["step"]), []
        for k in range(5):
            step(aj.ones(2) * k)
            plain = [(key, v.tolist() if isinstance(v, aj.Tensor) else v) for key, v in names["plain"].items()]
            found.append((list(names["counts"].items()), plain))
            if k == 2:
                names["counts"].clear()
        return found

    assert program(aj.jit) == program(lambda f: f)
