"""Arrays from outside that a step reads or assigns to, and tensors on the same memory: every call as in eager mode."""

from __future__ import annotations

import array
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.core.errors import TraceError
from tests.covering import covering

N = 4


def _of_buffer(made: Any) -> tuple[Any, Any]:
    return aj.frombuffer(made, dtype=aj.float64), made


def _of_tensor(show: Callable[[Any], Any]) -> tuple[Any, Any]:
    t = aj.arange(float(N), dtype=aj.float64)
    return t, show(t)


SHARED: dict[str, Callable[[], tuple[Any, Any]]] = {  # a tensor and an array on its memory
    "numpy()": lambda: _of_tensor(lambda t: t.numpy()),
    "of a part": lambda: _of_tensor(lambda t: t[1:].numpy()),
    "reversed": lambda: _of_tensor(lambda t: t.numpy()[::-1]),
    "a memoryview": lambda: _of_tensor(lambda t: memoryview(t.numpy())),
    "from_numpy": lambda: (aj.from_numpy(made := np.arange(float(N))), made),
    "a row of a matrix": lambda: (aj.from_numpy((made := np.arange(2.0 * N).reshape(2, N))[1]), made[1]),
    "array.array": lambda: _of_buffer(array.array("d", range(N))),
    "bytearray": lambda: (aj.frombuffer(made := bytearray(np.arange(float(N)).tobytes()), dtype=aj.float64), made),
}
READS = {
    "an item": "found = float(n[0])",
    "all": "found = list(n)",
    "by NumPy": "found = np.asarray(n)[-1]",
    "its length": "found = len(n)",
    "nothing": "found = 0",
    "transposed": "found = np.asarray(n).T[1]",
    "in a list": "found = [float(a[1]) for a in held.kept]",
}
WRITES = {
    "in place": "t.add_(x)",
    "by a view": "t[1:].mul_(3)",
    "by .data": "t.data.add_(x)",
    "an item": "t[1] = x[0] * 2",
    "detached": "t.detach().copy_(x)",
    "nothing": "x = t * x",
}


def _seen(shared: str, body: str, when: str, jit: Callable[[Any], Any]) -> list[Any]:
    held = SimpleNamespace()
    held.t, held.n = SHARED[shared]()
    own = aj.arange(float(N), dtype=aj.float64)
    names: dict[str, Any] = {"held": held, "np": np, "aj": aj, "__name__": __name__}
    takes = "t, x" if when.startswith("an argument") else "x"
    finds = "n = held.n" if when.startswith("an argument") else "t, n = held.t, held.n"
    exec(f"def step({takes}):\n    {finds}\n    {body}\n    return found, x * 1", names)
    step, seen, t = jit(names["step"]), [], held.t
    held.kept = [held.n]
    for k in range(6):
        if when.endswith("later"):
            held.t = t if k >= 3 else own
        elif when.endswith("at first"):
            held.t = t if k < 2 else own
        elif when.endswith("by .data"):
            held.t = own
            if k == 2:
                own.data = t
            if k == 4:
                own.data = aj.ones(N, dtype=aj.float64)
        x = aj.full((N,), 1.0 + k, dtype=aj.float64)
        found, y = step(held.t, x) if when.startswith("an argument") else step(x)
        seen.append([np.asarray(found).tolist(), y.tolist(), t.tolist(), own.tolist(), list(held.n)])
    return seen


WHEN = ["always", "later", "at first", "by .data", "an argument", "an argument later", "an argument at first"]


@covering("shared, when", SHARED, WHEN, every=2)
def test_what_a_step_reads_of_an_array_is_what_its_tensor_holds_by_then(shared: str, when: str) -> None:
    for read in READS.values():
        for write in WRITES.values():
            body = f"{write}; {read}"
            assert _seen(shared, body, when, aj.jit) == _seen(shared, body, when, lambda f: f), body


ASSIGNED = {"an item": "n[1] = 7", "all": "n[:] = n[:1] * len(n)", "of the step": "n[0] = x.sum().item()"}


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("shared", ["numpy()", "from_numpy", "array.array"])
@pytest.mark.parametrize("name", ASSIGNED)
def test_what_a_step_assigns_to_an_array_its_tensor_holds_from_then_on(name: str, shared: str, when: str) -> None:
    body = f"{ASSIGNED[name]}; x = x * t; found = 0"
    eager = _seen(shared, body, when, lambda f: f)
    try:
        found = _seen(shared, body, when, aj.jit)
    except TraceError as error:
        assert "also looks at the array" in str(error)
        return
    assert found == eager


@pytest.mark.parametrize("grad_is_kept", [False, True])
@pytest.mark.parametrize("what", ["weight", "grad", "momentum"])
def test_arrays_of_what_an_optimiser_changes(what: str, grad_is_kept: bool) -> None:
    def seen(jit: Callable[[Any], Any]) -> list[Any]:
        model = aj.nn.Linear(2, 1)
        aj.nn.init.ones_(model.weight)
        optimiser = aj.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)

        def plain() -> None:
            optimiser.zero_grad(set_to_none=not grad_is_kept)
            model(aj.ones(1, 2)).square().sum().backward()
            optimiser.step()

        aj.nn.init.zeros_(model.bias)
        plain()
        n = {
            "weight": lambda: model.weight.detach(),
            "grad": lambda: model.weight.grad,
            "momentum": lambda: optimiser.state[model.weight]["momentum_buffer"],
        }[what]().numpy()

        @jit
        def step() -> Any:
            plain()
            return float(n[0, 0])

        return [(step(), n.tolist()) for _ in range(4)]

    assert seen(aj.jit) == seen(lambda f: f)


def test_running_statistics() -> None:
    def seen(jit: Callable[[Any], Any]) -> list[Any]:
        layer = aj.nn.BatchNorm1d(2)
        mean = layer.running_mean.numpy()
        step = jit(lambda x: (layer(x).sum().detach(), mean.tolist()))
        return [step(aj.full((3, 2), float(k)))[1] for k in range(4)]

    assert seen(aj.jit) == seen(lambda f: f)


def test_such_calls_are_told_and_others_run_natively() -> None:
    t, other = aj.zeros(2), np.ones(2)
    n = t.numpy()

    @aj.jit
    def shared(x: Any) -> Any:
        t.add_(x)
        return n.sum()

    @aj.jit
    def apart(x: Any) -> Any:
        t.add_(x)
        return t * other.sum()

    for _ in range(12):
        shared(aj.ones(2))
        apart(aj.ones(2))
    assert "shares memory with a tensor" in shared.explain()
    assert shared.stats()["captures"] == 0
    assert apart.stats()["captures"] == 1
    assert apart.stats()["native_calls"] >= 10
