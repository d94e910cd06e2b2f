"""Steps that hand namespaces to code of Python's own: what is looked up there by others never goes missing."""

from __future__ import annotations

import builtins
import math
import types
from collections import OrderedDict, defaultdict
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.jit.held_contents import _fill_table, fill

SCALE = 2.0


def first(x: Any, n: Any) -> Any:
    return x[: min(len(x), max(n, 1))] * SCALE


NAMESPACES: dict[str, Any] = {"globals": globals, "builtins": lambda: vars(builtins), "math": lambda: vars(math)}


@pytest.mark.parametrize("name", NAMESPACES)
def test_a_namespace_that_a_step_hands_on_is_left_as_it_was(name: str) -> None:
    names = {"found": first, "__builtins__": vars(builtins), **globals()}
    table = NAMESPACES[name]()
    before, kinds = dict(vars(builtins)), dict(vars(math))

    def step(x: Any, n: Any) -> Any:
        n = int(n)  # a number of the step, so that `len`, `min` and `max` are other functions from here on
        table.get("nothing")
        again = types.FunctionType(first.__code__, names, "again")
        return again(x, n) + eval("first(x, n) * 0 + SCALE", dict(names), {"x": x, "n": n}) + len(repr(table)[:1])

    jitted = aj.jit(step)
    x = aj.arange(5.0)
    for n in (2, 3, 2, 4):
        given = aj.tensor(n)
        np.testing.assert_array_equal(jitted(x, given).numpy(), step(x, given).numpy())
        assert dict(vars(builtins)) == before and list(vars(builtins)) == list(before)
        assert dict(vars(math)) == kinds


@pytest.mark.parametrize("kind", [dict, OrderedDict, lambda pairs: defaultdict(int, pairs)])
@pytest.mark.parametrize("wanted", ["abcd", "dcba", "acd", "xa", "", "bxyacd"])
def test_a_table_is_filled_as_if_it_had_been_emptied(kind: Any, wanted: str) -> None:
    table = kind([(key, 0) for key in "abcd"])
    fill(table, {key: k for k, key in enumerate(wanted)})
    assert list(table.items()) == [(key, k) for k, key in enumerate(wanted)]


def test_keys_that_are_equal_are_those_that_were_there() -> None:
    table = {True: "a", 2: "b"}
    fill(table, {1: "c", 2.0: "d"})
    assert [type(key) for key in table] == [int, float] and list(table.values()) == ["c", "d"]


def test_what_stays_is_there_all_the_time() -> None:
    """`fill` looks its own names up in this table, between any two assignments."""
    table = dict(vars(builtins))
    filled = types.FunctionType(_fill_table.__code__, {"__builtins__": table})
    filled(dict, table, {"more": 1, **dict(list(table.items())[:-1])})
    assert next(iter(table)) == "more" and len(table) == len(vars(builtins))
