"""What a step makes of numbers and arrays begins anew at every call: nothing done to it before comes back."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import autojit as aj

NUMBERS = [float(k) for k in range(100)]  # more than what is written into a graph
Make = Callable[[], Any]

MAKERS: dict[str, Make] = {
    "tensor of a list": lambda: aj.tensor(NUMBERS),
    "tensor of a short list": lambda: aj.tensor([1.0, 2.0]),
    "tensor of an array": lambda: aj.tensor(np.arange(100.0)),
    "tensor of a transposed array": lambda: aj.tensor(np.ones((3, 40)).T),
    "as_tensor of a list": lambda: aj.as_tensor(NUMBERS),
    "as_tensor of an array": lambda: aj.as_tensor(np.zeros(3)),
    "asarray": lambda: aj.asarray(np.zeros(100)),
    "from_numpy": lambda: aj.from_numpy(np.zeros(5)),
    "from_numpy of a large array": lambda: aj.from_numpy(np.zeros((20, 20))),
    "from_numpy of a view": lambda: aj.from_numpy(np.zeros((3, 4)).T),
    "from_dlpack": lambda: aj.from_dlpack(np.zeros(5)),
    "linspace": lambda: aj.linspace(0, 1, 100, dtype=aj.float64),
    "logspace": lambda: aj.logspace(0, 1, 100, dtype=aj.float64),
    "positions": lambda: aj.tril_indices(20, 20).double(),
    "new_tensor": lambda: aj.zeros(1, dtype=aj.float64).new_tensor(NUMBERS),
    "a parameter": lambda: aj.nn.Parameter(aj.tensor(NUMBERS)).detach(),
    "an embedding": lambda: aj.nn.Embedding.from_pretrained(aj.tensor([[1.0, 2.0]] * 50)).weight.data,
    "zeros": lambda: aj.zeros(100),
}
USES: dict[str, Callable[[Any, Any], Any]] = {
    "returned": lambda t, x: t,
    "changed and returned": lambda t, x: t.add_(x),
    "changed and read": lambda t, x: t.mul_(2).sum() * x,
    "an element assigned": lambda t, x: (t.__setitem__(0, x), t, t * 2)[1:],
    "its part changed": lambda t, x: (t[1:].add_(1), t.sum())[1],
    "with views of it": lambda t, x: (t, t[1:], t.detach(), t.sum() * x),
    "asked for": lambda t, x: x if float(t.add_(1).sum()) > 0 else -x,
    "in a loop": lambda t, x: aj.scan(lambda c, z: (c + t.add(z).sum().to(c.dtype), c), x, aj.ones(4))[0],
    "in vmap": lambda t, x: aj.func.vmap(lambda z: (t + z).sum())(aj.ones(3)) * x,
}


def _program(make: Make, use: Callable[[Any, Any], Any], jit: Callable[[Any], Any]) -> list[Any]:
    holder = SimpleNamespace(kept=None)

    @jit
    def step(x: Any) -> Any:
        t = make()
        holder.kept = t
        return use(t, x)

    found: list[Any] = []
    for k in range(3):
        results = step(aj.tensor(1.0 + k))
        shown = [*(results if isinstance(results, tuple) else [results]), holder.kept]
        found += [(t.round(decimals=9).tolist(), t.stride(), t.requires_grad) for t in shown]  # sums by another order
        for t in shown:
            t.add_(1)
    return found


@pytest.mark.parametrize("use", USES)
def test_what_a_step_makes_begins_with_the_same_at_every_call(use: str) -> None:
    for make in MAKERS.values():
        assert _program(make, USES[use], aj.jit) == _program(make, USES[use], lambda f: f), make


@pytest.mark.parametrize("name", MAKERS)
def test_what_a_loop_makes_it_makes_in_every_round(name: str) -> None:
    def program(jit: Callable[[Any], Any]) -> list[Any]:
        @jit
        def step(x: Any) -> Any:
            return aj.scan(lambda c, z: (c + MAKERS[name]().add_(z).sum().to(c.dtype), c), x, aj.ones(4))[0]

        return [step(aj.tensor(float(k), dtype=aj.float64)).round(decimals=9).item() for k in range(3)]

    assert program(aj.jit) == program(lambda f: f)


def test_an_array_outside_shares_its_memory_with_what_a_step_makes_of_it() -> None:
    def program(jit: Callable[[Any], Any]) -> list[Any]:
        whole, parts = np.arange(6.0), {"a": np.arange(4.0)}

        @jit
        def step(x: Any) -> Any:
            aj.from_numpy(whole[::2]).add_(x)
            aj.from_dlpack(parts["a"]).mul_(2)
            return aj.as_tensor(parts["a"]).sum()

        found = [step(aj.tensor(float(k))).item() for k in range(4)]
        return [*found, whole.tolist(), parts["a"].tolist()]

    assert program(aj.jit) == program(lambda f: f)


def _changed_by_numpy(x: Any) -> Any:
    array = np.zeros(3)
    t = aj.from_numpy(array)
    array[1] = 3
    return t * x


def _seen_by_numpy(x: Any) -> Any:
    array = np.zeros(3)
    aj.from_numpy(array).add_(x)
    return float(array.sum()) * x


def _seen_by_another_tensor(x: Any) -> Any:
    array = np.zeros(3)
    t, other = aj.from_numpy(array), aj.from_numpy(array)
    del array
    t.add_(x)
    return other


@pytest.mark.parametrize("step", [_changed_by_numpy, _seen_by_numpy, _seen_by_another_tensor])
def test_changes_that_an_array_and_a_tensor_of_the_step_would_share_are_refused(step: Callable[[Any], Any]) -> None:
    with pytest.raises(RuntimeError, match="a tensor and a NumPy array that the step makes share memory"):
        aj.jit(step)(aj.ones(()))
    assert step(aj.ones(())).sum() == 3


def test_constants_of_a_step_are_no_decisions() -> None:
    @aj.jit
    def step(x: Any) -> Any:
        t = aj.tensor(NUMBERS)
        return x if t.sum() > 10 and t[3].item() == 3 and len(t.tolist()) == 100 else -x

    assert [step(aj.tensor(2.0)).item() for _ in range(3)] == [2.0] * 3
    assert (step.stats()["captures"], step.stats()["splits"]) == (1, 0)
