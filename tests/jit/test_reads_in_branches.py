"""What a function reads on one way through its decisions only is guarded on that way, whichever was captured first."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import autojit as aj

READS: dict[str, tuple[str, Callable[[Any, float], None]]] = {
    "an attribute": ("x * at.{}", lambda at, v: setattr(at, "b", v)),
    "a key": ("x * at.table['{}']", lambda at, v: at.table.update(b=v)),
    "an item": ("x * at.lists['{}'][0]", lambda at, v: at.lists["b"].__setitem__(0, v)),
    "an array": ("x * float(at.arrays['{}'].sum())", lambda at, v: at.arrays["b"].fill(v)),
    "a function": ("at.functions['{}'](x)", lambda at, v: at.functions.update(b=lambda x: x * v)),
    "a length": ("x * len(at.lists['{}'])", lambda at, v: at.lists["b"].append(v)),
    "a form": ("x * at.tensors['{}'].ndim", lambda at, v: at.tensors.update(b=aj.ones((1,) * int(v)))),
    "a flag": (
        "x * int(at.tensors['{}'].requires_grad)",
        lambda at, v: at.tensors["b"].requires_grad_(v % 2 == 0),
    ),
}
BODIES = {
    "one decision": "if x.sum() > 0:\n        return {a}\n    return {b}",
    "two": "if x.sum() > 0:\n        return {a}\n    if x.sum() < -100:\n        return {a} + 1\n    return {b}",
    "before the second": "if x.sum() > 0:\n        return {a}\n    y = {b}\n    return y + 1 if y.sum() > 3 else y - 1",
    "a number": "n = int(x[0].item())\n    return {a} if n > 0 else {b}",
}


def _seen(read: str, body: str, order: tuple[int, ...], jit: Callable[[Any], Any]) -> list[Any]:
    text, change = READS[read]
    at = SimpleNamespace(
        a=2.0,
        b=3.0,
        table={"a": 2.0, "b": 3.0},
        lists={"a": [2.0], "b": [3.0]},
        arrays={"a": np.ones(2), "b": np.ones(2)},
        functions={"a": lambda x: x * 2, "b": lambda x: x * 3},
        tensors={"a": aj.ones(2), "b": aj.ones(2)},
    )
    names: dict[str, Any] = {"at": at, "__name__": __name__}
    exec(f"def step(x):\n    {BODIES[body].format(a=text.format('a'), b=text.format('b'))}", names)
    step, found = jit(names["step"]), []
    for k in range(4):
        found += [step(aj.tensor([sign, 2.0 * sign])).tolist() for sign in order]
        change(at, float(k + 1))
    return found


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("read", READS)
def test_every_way_has_the_guards_of_what_it_reads(read: str, body: str) -> None:
    for order in product((1, -1), repeat=2):
        assert _seen(read, body, order, aj.jit) == _seen(read, body, order, lambda f: f)


def test_a_number_that_changes_and_is_read_in_one_branch_becomes_an_argument() -> None:
    at = SimpleNamespace(scale=1.0)

    @aj.jit
    def step(x: Any) -> Any:
        return x * 2 if x.sum() > 0 else x * at.scale

    x = aj.ones(2)
    for k in range(30):
        at.scale = float(k)
        assert step(x).tolist() == [2.0, 2.0]
        assert step(-x).tolist() == [-float(k), -float(k)]
    assert step.stats()["captures"] < 10
