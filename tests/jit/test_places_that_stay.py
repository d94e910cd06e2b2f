"""What a function assigns is there after every call, also where the capture found it there already."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import autojit as aj
from autojit import nn

shared = 3


class Holder:
    """Every kind of place that Python code can assign to."""

    of_class = 3
    __slots__ = ("__dict__", "slot")

    def __init__(self) -> None:
        self.slot = 3
        self.attribute = 3
        self.table = {"k": 3, (1, 2): 3}
        self.items = [3, 3]
        self.net = nn.Linear(1, 1)
        self.own = Layer()
        self.inner = SimpleNamespace(value=3)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.value = 3

    def forward(self, x: aj.Tensor) -> aj.Tensor:
        self.value = 3
        return x


def _places() -> dict[str, tuple[Callable[[Any], None], Callable[[Any, int], None], Callable[[Any], Any]]]:
    """Per kind: what the step does, what the world does, and what is there."""
    cell = 3

    def in_cell(h: Any) -> None:
        nonlocal cell
        cell = 3

    def other_cell(h: Any, value: int) -> None:
        nonlocal cell
        cell = value

    def in_globals(h: Any) -> None:
        global shared
        shared = 3

    def simple(name: str) -> Any:
        return (
            lambda h: setattr(h, name, 3),
            lambda h, value: setattr(h, name, value),
            lambda h: getattr(h, name),
        )

    def of(path: Callable[[Any], Any], key: Any) -> Any:
        return (
            lambda h: path(h).__setitem__(key, 3),
            lambda h, value: path(h).__setitem__(key, value),
            lambda h: path(h)[key],
        )

    def within(path: Callable[[Any], Any], name: str) -> Any:
        return (
            lambda h: setattr(path(h), name, 3),
            lambda h, value: setattr(path(h), name, value),
            lambda h: getattr(path(h), name),
        )

    return {
        "attribute": simple("attribute"),
        "slot": simple("slot"),
        "class": within(type, "of_class"),
        "item": of(lambda h: h.table, "k"),
        "item of a tuple": of(lambda h: h.table, (1, 2)),
        "element": of(lambda h: h.items, 1),
        "vars": of(vars, "attribute"),
        "namespace": within(lambda h: h.inner, "value"),
        "module of autojit's": within(lambda h: h.net, "value"),
        "option of a layer": within(lambda h: h.net, "in_features"),
        "module of the user's": (
            lambda h: h.own(aj.ones(1)),
            lambda h, value: setattr(h.own, "value", value),
            lambda h: h.own.value,
        ),
        "training": (
            lambda h: h.net.train(False),
            lambda h, value: h.net.train(bool(value % 2)),
            lambda h: h.net.training,
        ),
        "cell": (in_cell, other_cell, lambda h: cell),
        "global": (in_globals, lambda h, value: globals().__setitem__("shared", value), lambda h: shared),
    }


@pytest.mark.parametrize("name", _places())
@pytest.mark.parametrize("is_there", [True, False], ids=["there already", "something else"])
def test_what_is_assigned_is_there_after_every_call(name: str, is_there: bool) -> None:
    def run(wrap: Callable[..., Any]) -> list[Any]:
        assign, change, look = _places()[name]
        held = Holder()
        change(held, 3 if is_there else 4)
        if name == "training":
            held.net.train(not is_there)

        def function(x: aj.Tensor) -> aj.Tensor:
            assign(held)
            return x * 2

        step = wrap(function)
        found = []
        for k in (4, 3, 5, 7, 3):
            result = step(aj.ones(2) * k).tolist()
            found.append((result, look(held)))
            change(held, k)
        return found

    try:
        assert run(aj.jit) == run(lambda f: f)
    finally:
        Holder.of_class = 3
        globals()["shared"] = 3


def test_an_equal_list_is_another_list() -> None:
    held = SimpleNamespace(items=[1, 2])

    @aj.jit
    def step(x: aj.Tensor) -> aj.Tensor:
        held.items = [1, 2]
        return x

    for _ in range(4):
        before = held.items
        step(aj.ones(1))
        assert held.items == [1, 2]
        assert held.items is not before
        held.items.append(3)


class World:
    """What a training script may reset in every step."""

    def __init__(self) -> None:
        aj.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5), nn.Sequential(nn.Dropout(0.1)))
        self.w = aj.ones(2, requires_grad=True)
        self.weight = self.net[0].weight
        self.last = self.net[2]
        self.saved = {name: v.clone() for name, v in self.net.state_dict().items()}
        self.opt = aj.optim.SGD(self.net.parameters(), lr=0.1)
        self.members = {1}
        self.queue: list[int] = []


def _restored(s: World) -> None:
    s.w.grad = None


def _rate(s: World) -> None:
    for group in s.opt.param_groups:
        group["lr"] = 0.1


def _same_weight(s: World) -> None:
    s.net[0].weight = s.weight


def _same_layer(s: World) -> None:
    s.net[2] = s.last


def _filled(s: World) -> None:
    with aj.no_grad():
        s.w.fill_(1.0)


RESETS: dict[str, tuple[Callable[[World], Any], Callable[[World], Any], Callable[[World], Any]]] = {
    "grad": (_restored, lambda s: setattr(s.w, "grad", aj.ones(2)), lambda s: s.w.grad is None),
    "zero_grad": (
        lambda s: s.opt.zero_grad(),
        lambda s: setattr(s.weight, "grad", aj.ones(2, 2)),
        lambda s: s.weight.grad is None,
    ),
    "lr": (_rate, lambda s: s.opt.param_groups[0].update(lr=5.0), lambda s: s.opt.param_groups[0]["lr"]),
    "train": (lambda s: s.net.train(), lambda s: s.net.eval(), lambda s: [m.training for m in s.net.modules()]),
    "part": (
        lambda s: s.net[2][0].train(),
        lambda s: s.net[2].eval(),
        lambda s: [m.training for m in s.net.modules()],
    ),
    "frozen": (
        lambda s: s.net.requires_grad_(True),
        lambda s: s.net.requires_grad_(False),
        lambda s: [p.requires_grad for p in s.net.parameters()],
    ),
    "flag": (lambda s: s.w.requires_grad_(), lambda s: s.w.requires_grad_(False), lambda s: s.w.requires_grad),
    "weight": (
        _same_weight,
        lambda s: setattr(s.net[0], "weight", nn.Parameter(aj.zeros(2, 2))),
        lambda s: s.net[0].weight is s.weight,
    ),
    "layer": (_same_layer, lambda s: s.net.__setitem__(2, nn.Tanh()), lambda s: s.net[2] is s.last),
    "values": (_filled, lambda s: s.w.data.mul_(3), lambda s: s.w.tolist()),
    "checkpoint": (
        lambda s: s.net.load_state_dict(s.saved),
        lambda s: s.weight.data.zero_(),
        lambda s: s.weight.tolist(),
    ),
    "default dtype": (
        lambda s: aj.set_default_dtype(aj.float32),
        lambda s: aj.set_default_dtype(aj.float64),
        lambda s: aj.get_default_dtype(),
    ),
    "deterministic": (
        lambda s: aj.use_deterministic_algorithms(False),
        lambda s: aj.use_deterministic_algorithms(True),
        lambda s: aj.are_deterministic_algorithms_enabled(),
    ),
    "added": (lambda s: s.members.add(1), lambda s: s.members.discard(1), lambda s: s.members),
    "cleared": (lambda s: s.queue.clear(), lambda s: s.queue.append(1), lambda s: s.queue),
}


@pytest.mark.parametrize("starts_there", [True, False], ids=["there already", "something else"])
@pytest.mark.parametrize("name", RESETS)
def test_what_is_reset_is_reset_at_every_call(name: str, starts_there: bool) -> None:
    reset, disturb, look = RESETS[name]

    def run(wrap: Callable[..., Any]) -> list[Any]:
        s = World()
        if not starts_there:
            disturb(s)

        def function(x: aj.Tensor) -> aj.Tensor:
            reset(s)
            return x * 2

        step = wrap(function)
        found = []
        for k in range(7):
            found.append((step(aj.ones(2) * k).tolist(), repr(look(s))))
            if k % 3 != 1:
                disturb(s)
        return found

    try:
        assert run(aj.jit) == run(lambda f: f)
    finally:
        aj.set_default_dtype(aj.float32)
        aj.use_deterministic_algorithms(False)


def test_a_list_may_be_added_to_and_replaced() -> None:
    def run(wrap: Callable[..., Any]) -> list[Any]:
        held = SimpleNamespace(window=[], table={"last": []})

        def function(x: aj.Tensor) -> aj.Tensor:
            held.window.append(x.sum().item())
            held.window = held.window[-2:]
            held.table["last"] = [*held.table["last"], len(held.window)]
            return x * 2

        step = wrap(function)
        found = []
        for k in range(6):
            step(aj.ones(2) * k)
            found.append((list(held.window), list(held.table["last"])))
        return found

    assert run(aj.jit) == run(lambda f: f)


@pytest.mark.parametrize("begins", [True, False], ids=["required", "not required"])
@pytest.mark.parametrize("ends", [True, False, None], ids=["left on", "left off", "untouched"])
@pytest.mark.parametrize("wanted", [True, False], ids=["on", "off"])
def test_a_flag_that_a_step_sets_holds_for_what_it_computes(begins: bool, wanted: bool, ends: bool | None) -> None:
    def run(wrap: Callable[..., Any]) -> list[Any]:
        w = aj.ones(3, dtype=aj.float64, requires_grad=begins)

        def function(x: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
            first = (w * x).sum()
            w.requires_grad_(wanted)
            second = (w * w * x).sum()
            if ends is not None:
                w.requires_grad_(ends)
            return first, second

        step = wrap(function)
        found: list[Any] = []
        for k in range(5):
            results = step(aj.ones(3, dtype=aj.float64) * (k + 1))
            found.append((w.requires_grad, [y.requires_grad for y in results]))
            w.requires_grad_(k % 3 != 1)
            for y in results:
                if y.requires_grad:
                    w.grad = None
                    y.backward(retain_graph=True)
                    found.append(None if w.grad is None else w.grad.tolist())
        return found

    assert run(aj.jit) == run(lambda f: f)
