"""What Python fetches or does besides tensors happens at every call: random numbers, iterators, lists, prints."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj


def both(make: Callable[[], Callable[[aj.Tensor], Any]], calls: int = 6) -> tuple[list[Any], list[Any], Any]:
    """What the calls of a function give, eagerly and compiled, each from the same start."""
    found = []
    step: Any = None
    for compile_with in (lambda f: f, aj.jit):
        random.seed(3)
        np.random.seed(3)
        step = compile_with(make())
        found.append([_plain(step(aj.full((2,), float(k)))) for k in range(calls)])
    return found[0], found[1], step


def _plain(value: Any) -> Any:
    return value.detach().numpy().tolist() if isinstance(value, aj.Tensor) else value


DRAWING: dict[str, Callable[[], Callable[[aj.Tensor], Any]]] = {
    "random.random": lambda: lambda x: x * random.random(),
    "random.uniform": lambda: lambda x: x + random.uniform(1, 2) * random.gauss(0, 1),
    "random.Random": lambda: (lambda own: lambda x: x * own.randint(1, 100))(random.Random(5)),
    "np.random.rand": lambda: lambda x: x + np.random.rand(2).sum() + np.random.normal(),
    "np.random.Generator": lambda: (lambda own: lambda x: x + own.standard_normal(2))(np.random.default_rng(1)),
    "permutations": lambda: lambda x: x * aj.tensor(np.random.permutation(2)),
    "next": lambda: (lambda items: lambda x: x * next(items))(iter(range(100))),
    "a generator": lambda: (lambda items: lambda x: x * next(items))(k * k for k in range(100)),
    "decided by draws": lambda: lambda x: x if random.random() < 0.5 else -x,
    "in a loop": lambda: lambda x: sum(x * random.random() for _ in range(3)),
    "in a helper": lambda: (lambda helper: lambda x: x * helper())(lambda: random.random() + random.random()),
}


@pytest.mark.parametrize("name", DRAWING)
def test_what_is_drawn_is_drawn_at_every_call_in_eagers_order(name: str) -> None:
    eager, compiled, step = both(DRAWING[name])
    np.testing.assert_allclose(compiled, eager, rtol=1e-6)
    assert step.stats()["captures"] <= 4, step.explain()
    assert len({str(value) for value in compiled}) > 1


def test_a_draw_of_a_step_that_has_to_be_captured_anew_is_not_lost() -> None:
    scale = {"v": 1.0}

    def run(compile_with: Callable[..., Any]) -> list[float]:
        random.seed(1)
        step = compile_with(lambda x: x * random.random() * scale["v"])
        found = []
        for k in range(8):
            scale["v"] = float(k // 2 + 1)
            found.append(step(aj.ones(1)).item())
        return found

    np.testing.assert_allclose(run(aj.jit), run(lambda f: f), rtol=1e-6)


def test_clocks_are_read_at_every_call() -> None:
    step = aj.jit(lambda x: x.double() * 0 + time.perf_counter())
    times = [step(aj.ones(1)).item() for _ in range(4)]
    assert times == sorted(times) and len(set(times)) == 4


def test_lists_outside_grow_by_the_values_of_each_call() -> None:
    def run(compile_with: Callable[..., Any]) -> tuple[Any, ...]:
        losses: list[Any] = []
        last: deque[Any] = deque(maxlen=3)
        log: dict[str, Any] = {}
        seen: set[Any] = set()

        def step(x: aj.Tensor) -> aj.Tensor:
            loss = (x * x).sum()
            losses.append(loss.item())
            losses.extend([loss, x.detach()])
            last.append(loss.item())
            seen.add("a")
            log["loss"] = loss.item()
            log["count"] = log.get("count", 0) + 1
            return loss

        jitted = compile_with(step)
        for k in range(6):
            jitted(aj.full((2,), float(k)))
        if compile_with is aj.jit:
            assert jitted.stats()["captures"] <= 4, jitted.explain()
        return [_plain(v) for v in losses], list(last), log, seen

    assert run(aj.jit) == run(lambda f: f)


def test_prints_happen_at_every_call(capsys: pytest.CaptureFixture[str]) -> None:
    def step(x: aj.Tensor) -> aj.Tensor:
        y = x.sum()
        print("sum", y.item(), end=";")
        print(y.detach())
        return y

    said = []
    for run in (step, aj.jit(step)):
        for k in range(3):
            run(aj.full((2,), float(k)))
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]


def test_walking_an_iterator_from_outside_goes_on_from_call_to_call() -> None:
    items = iter(range(6))

    def function(x: aj.Tensor) -> aj.Tensor:
        found = x * 0
        for k in items:
            found = found + x * k
            if k % 3 == 2:
                break
        return found

    step = aj.jit(function)
    assert [step(aj.ones(1)).item() for _ in range(3)] == [3.0, 12.0, 0.0]
    assert "goes on from call to call" in step.explain()


@pytest.mark.parametrize("change", ["d['out'] = y", "l.append(y)", "l[0] = y", "d['l'].append(y)", "del d['l']"])
def test_containers_given_as_arguments_are_changed_as_eager_mode_does(change: str) -> None:
    names: dict[str, Any] = {}
    exec(f"def f(x, d, l):\n    y = x * 2\n    {change}\n    return y", names)
    function, step = names["f"], aj.jit(names["f"])
    for k in range(3):
        eager, given = ({"l": [aj.ones(1)]}, [aj.ones(1)]), ({"l": [aj.ones(1)]}, [aj.ones(1)])
        assert step(aj.ones(2) * k, *given).tolist() == function(aj.ones(2) * k, *eager).tolist()
        assert repr(given) == repr(eager)
        eager, given = ({"l": [np.ones(1)]}, [np.ones(1)]), ({"l": [np.ones(1)]}, [np.ones(1)])
        assert step(aj.ones(2) * k, *given).tolist() == function(aj.ones(2) * k, *eager).tolist()
        assert repr(given) == repr(eager)


CHANGING: dict[str, Callable[[list[Any]], Callable[[aj.Tensor], Any]]] = {
    "read after adding": lambda kept: lambda x: (kept.append(x.sum().item()), x * len(kept))[1],
    "given back": lambda kept: lambda x: (kept.append(2.0), list(kept), x * kept[-1])[2],
    "emptied and filled": lambda kept: lambda x: (kept.clear(), kept.append(x.sum().item()), kept.append(1.0), x)[3],
    "taken from": lambda kept: lambda x: x * kept.pop(),
    "sorted": lambda kept: lambda x: (kept.append(0.5), kept.sort(), x * kept[0])[2],
}


@pytest.mark.parametrize("name", CHANGING)
def test_lists_that_a_step_changes_are_as_after_eager_calls(name: str) -> None:
    found = []
    for compile_with in (lambda f: f, aj.jit):
        kept: list[Any] = [4.0, 3.0, 2.0, 5.0, 6.0]
        step = compile_with(CHANGING[name](kept))
        found.append([[_plain(step(aj.full((2,), float(k)))), list(kept)] for k in range(4)])
    assert found[0] == found[1]
