"""Lists, dictionaries and records that a function is given as arguments and changes: as eager mode leaves them.

Where the same object is given again, calls become native; where it is another one in every call, the function runs line
by line, and nothing of what was given is kept for long.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

import autojit as aj


@dataclass
class Log:
    values: list[Any] = field(default_factory=list)
    count: int = 0


def appends(x: aj.Tensor, kept: Any) -> Any:
    kept.append(x.sum().item())
    return x * 2


def appends_in_a_nest(x: aj.Tensor, kept: Any) -> Any:
    kept["values"].append((x * 3).mean().item())
    kept["last"] = float(len(kept["values"]))
    return x - 1


def counts(x: aj.Tensor, kept: Any) -> Any:
    kept["count"] += 1
    return x * kept["count"]


def of_a_record(x: aj.Tensor, kept: Any) -> Any:
    kept.values.append(x.max().item())
    kept.count += 2
    return x + kept.count


def named(x: aj.Tensor, *, kept: Any) -> Any:
    kept.append(x.min().item())
    return x


CASES: dict[str, tuple[Callable[..., Any], Callable[[], Any]]] = {
    "appends": (appends, list),
    "nest": (appends_in_a_nest, lambda: {"values": [], "last": 0.0}),
    "counts": (counts, lambda: {"count": 0}),
    "record": (of_a_record, Log),
    "named": (lambda x, kept: named(x, kept=kept), list),
}


def _history(called: Callable[..., Any], make: Callable[[], Any], calls: int, each: int) -> list[Any]:
    told: list[Any] = []
    kept = make()
    for k in range(calls):
        if k % each == each - 1:
            told.append(repr(kept))
            kept = make()
        told.append(called(aj.arange(3.0) + k, kept).tolist())
    return [*told, repr(kept)]


@pytest.mark.filterwarnings("ignore:(?s)jit. .* served no second call")
@pytest.mark.parametrize("each", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("name", CASES)
def test_what_is_given_is_left_as_eager_mode_leaves_it(name: str, each: int) -> None:
    function, make = CASES[name]
    assert _history(aj.jit(function), make, 40, each) == _history(function, make, 40, each)


@pytest.mark.parametrize("name", CASES)
def test_the_same_object_again_is_no_reason_to_run_line_by_line(name: str) -> None:
    function, make = CASES[name]
    step = aj.jit(function)
    _history(step, make, 40, 100)
    assert step.stats()["native_calls"] >= 30
    assert "line by line" not in step.explain()


def test_by_name() -> None:
    step, kept = aj.jit(named), []
    for k in range(12):
        step(aj.ones(2) * k, kept=kept)
    assert kept == [float(k) for k in range(12)]
    assert step.stats()["native_calls"] >= 8


def test_what_others_do_to_it_in_between_counts() -> None:
    def averaged(x: aj.Tensor, kept: Any) -> Any:
        kept.append(x.sum().item())
        return x * len(kept)

    def run(called: Callable[..., Any]) -> list[Any]:
        kept: list[float] = []
        told = []
        for k in range(30):
            told.append(called(aj.ones(2) * k, kept).tolist())
            if k % 5 == 4:
                kept.insert(0, -1.0)
            if k % 11 == 10:
                kept.clear()
        return [*told, list(kept)]

    assert run(aj.jit(averaged)) == run(averaged)


@pytest.mark.filterwarnings("ignore:(?s)jit. .* served no second call")
def test_objects_of_every_call_are_let_go() -> None:
    def step(x: aj.Tensor, batch: Any) -> Any:
        batch["y"] = (x * 2).sum().item()
        return x

    compiled, refs = aj.jit(step), []
    for k in range(60):
        held = aj.ones(4) * k
        batch = {"x": held}
        refs.append(weakref.ref(held))
        compiled(aj.ones(2), batch)
        assert batch["y"] == 4.0
        del held, batch
    gc.collect()
    assert sum(ref() is not None for ref in refs) <= 20
