"""Tensors in places outside that are others in every call: after a few captures they are arguments, as batches are.

A trainer that keeps its batch in an attribute, a target network's output in a global, a closure over what the last
line made: eager mode reads what is there, and so does a step, without a capture for every tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import nn, optim
from autojit.jit.assigned_places import TENSORS_BEFORE

GLOBAL: Any = None


class Keeper:
    """A class that keeps what it is given."""

    of_class: Any = None

    def __init__(self) -> None:
        self.held: Any = None


def _global() -> tuple[Callable[[Any], None], Callable[[], Any]]:
    def put(x: Any) -> None:
        global GLOBAL
        GLOBAL = x

    return put, lambda: GLOBAL


def _attribute() -> tuple[Callable[[Any], None], Callable[[], Any]]:
    keeper = Keeper()
    return lambda x: setattr(keeper, "held", x), lambda: keeper.held


def _namespace() -> tuple[Callable[[Any], None], Callable[[], Any]]:
    keeper = SimpleNamespace(held=None)
    return lambda x: setattr(keeper, "held", x), lambda: keeper.held


def _key() -> tuple[Callable[[Any], None], Callable[[], Any]]:
    table: dict[str, Any] = {}
    return lambda x: table.update(batch=x), lambda: table["batch"]


def _cell() -> tuple[Callable[[Any], None], Callable[[], Any]]:
    held = None

    def put(x: Any) -> None:
        nonlocal held
        held = x

    return put, lambda: held


def _of_module() -> tuple[Callable[[Any], None], Callable[[], Any]]:
    module = nn.Module()
    return lambda x: setattr(module, "held", x), lambda: module.held


PLACES = {"global": _global, "attribute": _attribute, "namespace": _namespace, "key": _key, "cell": _cell,
          "of_module": _of_module}  # fmt: skip


def _reads(read: Callable[[], Any]) -> Callable[[Any], Any]:
    return lambda w: (read() * w).sum()


def _backward(read: Callable[[], Any]) -> Callable[[Any], Any]:
    def step(w: Any) -> Any:
        (read() * w).square().sum().backward()
        found, w.grad = w.grad, None
        return found

    return step


def _with_respect_to_it(read: Callable[[], Any]) -> Callable[[Any], Any]:
    def step(w: Any) -> Any:
        x = read().detach().requires_grad_()
        (found,) = aj.autograd.grad((x.sin() * w).sum(), x, create_graph=True)
        return found.square().sum()

    return step


def _trains(read: Callable[[], Any]) -> Callable[[Any], Any]:
    aj.manual_seed(1)
    net = nn.Linear(3, 1)
    optimizer = optim.Adam(net.parameters(), lr=0.1)

    def step(w: Any) -> Any:
        optimizer.zero_grad()
        loss = (net(read()) * w.detach().mean()).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def _changes_it(read: Callable[[], Any]) -> Callable[[Any], Any]:
    def step(w: Any) -> Any:
        with aj.no_grad():
            read().mul_(w.detach())
        return read().sum()

    return step


def _asks_for_it(read: Callable[[], Any]) -> Callable[[Any], Any]:
    return lambda w: (read(), read().t(), w.sum())


USES = {"reads": _reads, "backward": _backward, "with_respect_to_it": _with_respect_to_it, "trains": _trains,
        "changes_it": _changes_it, "asks_for_it": _asks_for_it}  # fmt: skip
CALLS = 7


def tensors() -> Iterator[Any]:
    rng = np.random.default_rng(3)
    for _ in range(CALLS):
        yield aj.tensor(rng.normal(size=(2, 3)).astype(np.float32))


def seen(place: str, use: str, compiled: bool) -> tuple[list[Any], Any]:
    """What calls give and leave, and the step."""
    put, read = PLACES[place]()
    step = USES[use](read)
    step = aj.jit(step) if compiled else step
    w, found = aj.tensor([1.0, 2.0, 3.0], requires_grad=True), []
    for x in tensors():
        put(x)
        given = step(w)
        values = given if isinstance(given, tuple) else (given,)
        found += [read() is x, x.numpy().copy(), *(value.detach().numpy().copy() for value in values)]
        if use == "asks_for_it":
            found.append(given[0] is x)
    return found, step


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("place", PLACES)
def test_what_is_there_is_taken_without_a_capture_each(place: str, use: str) -> None:
    expected, _ = seen(place, use, False)
    given, step = seen(place, use, True)
    for a, b in zip(given, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    assert step.stats()["captures"] <= TENSORS_BEFORE + 1, step.explain()
    assert "line by line" not in step.explain()


def test_two_that_alternate_have_a_step_each() -> None:
    keeper = Keeper()
    online, target = aj.ones(3), aj.zeros(3)

    @aj.jit
    def step(x: Any) -> Any:
        return (x + keeper.held).sum()

    for k in range(6):
        keeper.held = (online, target)[k % 2]
        assert step(aj.ones(3)).item() == (6.0, 3.0)[k % 2]
    assert step.stats()["captures"] == 2


def test_sizes_of_what_is_there_open_as_those_of_arguments_do() -> None:
    keeper = Keeper()

    @aj.jit
    def step() -> Any:
        return keeper.held.square().sum()

    for size in (2, 3, 4, 5, 6, 7, 8, 9):
        keeper.held = aj.ones(size)
        assert step().item() == size
    assert step.stats()["captures"] <= TENSORS_BEFORE + 3, step.explain()


def test_one_tensor_in_two_places_is_one() -> None:
    keeper, other = Keeper(), Keeper()

    @aj.jit
    def step() -> Any:
        with aj.no_grad():
            keeper.held.add_(1.0)
        return other.held.sum()

    for k in range(8):
        keeper.held = aj.full((2,), float(k))
        other.held = keeper.held if k % 3 else aj.zeros(2)
        assert step().item() == (2.0 * (k + 1) if k % 3 else 0.0)
