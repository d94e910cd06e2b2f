"""What no compiled step can do runs line by line: every call gives and leaves what it does in eager mode."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import nn, optim

Step = Callable[[aj.Tensor], Any]


def _batch(k: int) -> aj.Tensor:
    return aj.tensor(np.random.RandomState(k).uniform(0.5, 1.5, (3, 2)))


def _halved(optimizer: Any) -> Any:
    return optim.lr_scheduler.ExponentialLR(optimizer, 0.5)


def _training(
    after: Callable[[Any, Any], Any], kind: Any = optim.SGD, rates: Any = _halved, **options: Any
) -> Callable[[], Step]:
    """A training step with a schedule and something ``after`` it, given the optimiser and the schedule."""

    def make() -> Step:
        model = nn.Linear(2, 1).double()
        optimizer = kind(model.parameters(), lr=0.1, **options)
        schedule = rates(optimizer)

        def step(x: aj.Tensor) -> Any:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss, after(optimizer, schedule), list(model.parameters())

        return step

    return make


class _OwnRates(optim.lr_scheduler.LRScheduler):
    seen = ()

    def get_lr(self) -> list[Any]:
        return [rate / (1 + self.last_epoch) for rate in self.base_lrs]

    def step(self, epoch: int | None = None) -> None:
        super().step(epoch)
        self.seen = (*self.seen, self.last_epoch)


def _stepped(read: Callable[[Any, Any], Any], rates: Any = _halved) -> Callable[[], Step]:
    def after(optimizer: Any, schedule: Any) -> Any:
        schedule.step()
        return read(optimizer, schedule)

    return _training(after, rates=rates)


def _more_parameters(optimizer: Any, schedule: Any) -> int:
    if len(optimizer.param_groups) < 3:
        optimizer.add_param_group({"params": [nn.Parameter(aj.ones(2))], "lr": 0.5})
        schedule.base_lrs.append(0.5)
    return len(optimizer.param_groups)


def _rewound(optimizer: Any, schedule: Any) -> int:
    saved = copy.deepcopy(optimizer.state_dict())
    saved["param_groups"][0]["lr"] *= 0.5
    optimizer.load_state_dict(saved)
    return len(saved["state"])


def _forgotten(optimizer: Any, schedule: Any) -> int:
    optimizer.state.clear()
    return len(optimizer.state)


def _on_state(change: Callable[[Any, aj.Tensor], Any], *shape: int) -> Callable[[], Step]:
    """A step that does something to a tensor from outside."""

    def make() -> Step:
        held = aj.arange(float(np.prod(shape))).reshape(shape).clone()

        def step(x: aj.Tensor) -> Any:
            found = change(held, x)
            return found, held.shape, held.stride(), held.clone(), held.sum() * x

        return step

    return make


def _versions() -> Step:
    w = aj.ones(2)

    def step(x: aj.Tensor) -> Any:
        before = w._version
        w.add_(1)
        return w * before + x, x._version - w._version

    return step


def _newton() -> Step:
    w = aj.zeros(2, dtype=aj.float64, requires_grad=True)
    optimizer = optim.LBFGS([w], lr=0.5, max_iter=3)

    def step(x: aj.Tensor) -> Any:
        def closure() -> aj.Tensor:
            optimizer.zero_grad()
            loss = ((x @ w - 1) ** 2).sum()
            loss.backward()  # type: ignore[no-untyped-call, unused-ignore]
            return loss

        return optimizer.step(closure), w

    return step


def _another_memory() -> Step:
    w, v = aj.ones(3, 2), aj.zeros(3, 2)

    def step(x: aj.Tensor) -> Any:
        handle = w.detach()
        handle.data = v
        handle.add_(x)
        return handle, w.clone(), v.clone()

    return step


def _in_body(change: Callable[[aj.Tensor], Any]) -> Callable[[], Step]:
    def make() -> Step:
        held = aj.arange(6.0, dtype=aj.float64).reshape(2, 3).clone()

        def body(carry: aj.Tensor, row: aj.Tensor) -> Any:
            return carry + row, row * (change(held) or 1)

        def step(x: aj.Tensor) -> Any:
            return aj.scan(body, aj.zeros(2, dtype=aj.float64), x), held.shape

        return step

    return make


def _unseeded() -> Step:
    def step(x: aj.Tensor) -> Any:
        drawn = np.random.default_rng().uniform()  # another number at every call, of which the range is known
        return x * (0 <= drawn < 1), drawn < 1

    return step


PROGRAMS: dict[str, Callable[[], Step]] = {
    "options after schedule.step()": _stepped(lambda optimizer, schedule: optimizer.param_groups[0]["lr"]),
    "get_last_lr() after schedule.step()": _stepped(lambda optimizer, schedule: schedule.get_last_lr()),
    "last_epoch after schedule.step()": _stepped(lambda optimizer, schedule: schedule.last_epoch),
    "state_dict() after schedule.step()": _stepped(lambda optimizer, schedule: schedule.state_dict()["last_epoch"]),
    "vars() after schedule.step()": _stepped(lambda optimizer, schedule: vars(schedule)["last_epoch"]),
    "getattr() after schedule.step()": _stepped(lambda optimizer, schedule: getattr(schedule, "_step_count")),  # noqa: B009
    "state_dict() after the user's schedule.step()": _stepped(lambda o, schedule: schedule.state_dict(), _OwnRates),
    "the user's attributes after schedule.step()": _stepped(lambda o, schedule: list(schedule.seen), _OwnRates),
    "two schedule.step()": _stepped(lambda optimizer, schedule: schedule.step()),
    "add_param_group": _training(_more_parameters),
    "load_state_dict": _training(_rewound, momentum=0.9),
    "load_state_dict of Adam": _training(_rewound, optim.Adam),
    "state.clear()": _training(_forgotten, momentum=0.9),
    "t_": _on_state(lambda held, x: held.t_(), 2, 3),
    "unsqueeze_": _on_state(lambda held, x: held.unsqueeze_(0), 2),
    "squeeze_": _on_state(lambda held, x: held.squeeze_(), 2, 1),
    "transpose_": _on_state(lambda held, x: held.transpose_(0, 1), 3, 2),
    "swapaxes_": _on_state(lambda held, x: held.swapaxes_(0, 1), 2, 3),
    "resize_": _on_state(lambda held, x: held.resize_(1, 2), 2, 2),
    "set_": _on_state(lambda held, x: held.set_(aj.arange(4.0)), 2, 2),
    "resize_ of its own": _on_state(lambda held, x: (x * 2).resize_(2), 2, 2),
    "_version": _versions,
    "_version in a body": _in_body(lambda held: held._version),
    "t_ in a body": _in_body(lambda held: held.t_() is None),
    "LBFGS.step()": _newton,
    "data of a handle": _another_memory,
    "a generator without a seed": _unseeded,
}

COMPILED = {"two schedule.step()"}


def _flat(found: Any) -> list[Any]:
    if isinstance(found, dict):
        return _flat(list(found.values()))
    if isinstance(found, list | tuple):
        return [leaf for part in found for leaf in _flat(part)]
    return [found.detach().clone() if isinstance(found, aj.Tensor) else found]


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_call_is_as_in_eager_mode(name: str) -> None:
    runs: list[list[Any]] = []
    for compile in (lambda step: step, aj.jit):
        aj.manual_seed(0)
        step: Any = compile(PROGRAMS[name]())
        runs.append([leaf for k in range(12) for leaf in _flat(step(_batch(k)))])
    eager, found = runs
    assert len(eager) == len(found)
    for a, b in zip(eager, found, strict=True):
        if isinstance(a, aj.Tensor):
            assert a.shape == b.shape
            assert a.stride() == b.stride()
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12, atol=1e-14)
        else:
            assert a == b
    told = step.explain()
    assert ("line by line" in told) == (name not in COMPILED), told


def test_state_of_an_optimiser_is_asked_for_before_it_has_any() -> None:
    def run(jit: Callable[[Any], Any]) -> list[float]:
        weight = aj.nn.Parameter(aj.ones(3))
        optimizer = aj.optim.SGD([weight], 0.1, momentum=0.9)

        @jit
        def step(x: Any) -> Any:
            momentum = optimizer.state[weight].get("momentum_buffer", 0.0)
            weight.grad = None
            (weight * x + momentum).sum().backward()
            optimizer.step()
            return weight.sum().detach()

        return [step(aj.ones(3)).item() for _ in range(4)]

    assert run(aj.jit) == run(lambda f: f)
