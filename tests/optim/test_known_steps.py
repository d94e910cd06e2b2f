"""Optimisers' steps that come often: native calls that move what the ops move, for whatever may happen between them."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import nn, optim
from autojit.dispatch.awaited_kernels import awaited
from autojit.jit import compiled_beside
from autojit.jit import function as function_of_jit
from autojit.jit.function import JitFunction
from autojit.optim import known_steps

ALGORITHMS: dict[str, Callable[[Any], Any]] = {
    "Adam": lambda p: optim.Adam(p, lr=1e-2),
    "Adam, decay, greatest": lambda p: optim.Adam(p, lr=1e-2, weight_decay=0.1, amsgrad=True, maximize=True),
    "AdamW": lambda p: optim.AdamW(p, lr=1e-2),
    "Adamax": lambda p: optim.Adamax(p, lr=1e-2),
    "NAdam": lambda p: optim.NAdam(p, lr=1e-2),
    "RAdam": lambda p: optim.RAdam(p, lr=1e-2),
    "SGD": lambda p: optim.SGD(p, lr=1e-2),
    "SGD, Nesterov": lambda p: optim.SGD(p, lr=1e-2, momentum=0.9, nesterov=True, weight_decay=0.01),
    "Adagrad": lambda p: optim.Adagrad(p, lr=1e-2, lr_decay=0.1),
    "Adadelta": lambda p: optim.Adadelta(p),
    "ASGD": lambda p: optim.ASGD(p, lr=1e-2),
    "RMSprop": lambda p: optim.RMSprop(p, lr=1e-2, momentum=0.5, centered=True),
    "Rprop": lambda p: optim.Rprop(p, lr=1e-2),
    "Adafactor": lambda p: optim.Adafactor(p, lr=1e-2),
}


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are known from the second on, and compiled while the caller waits."""
    monkeypatch.setattr(known_steps, "TIMES", 1)
    made = lambda function, background: JitFunction(function)
    monkeypatch.setattr(known_steps, "JitFunction", made)


Event = Callable[[Any, int], None]


def trained(make: Callable[[Any], Any], steps: int = 8, between: Event = lambda optimizer, k: None) -> tuple[Any, Any]:
    """Parameters after steps along given gradients, and their optimiser."""
    draws = np.random.default_rng(0)
    shapes = (3, 4), (4,), (2, 3)
    parameters = [nn.Parameter(aj.tensor(draws.standard_normal(shape).astype(np.float32))) for shape in shapes]
    optimizer = make(parameters)
    for k in range(steps):
        between(optimizer, k)
        for p in parameters:
            p.grad = aj.tensor(draws.standard_normal(tuple(p.shape)).astype(np.float32)) if p.requires_grad else None
        optimizer.step()
    return parameters, optimizer


def state_of(optimizer: Any) -> list[Any]:
    state = optimizer.state_dict()["state"]
    return [(k, name, value) for k in sorted(state) for name, value in sorted(state[k].items())]


def require_equal_training(make: Callable[[Any], Any], between: Event = lambda optimizer, k: None) -> Any:
    """The same with and without known steps; the optimiser of the former."""
    mine, optimizer = trained(make, between=between)
    with awaited.settled():
        theirs, other = trained(make, between=between)
    for p, q in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=2e-5, atol=1e-6)
    for (_, name, value), (_, other_name, expected) in zip(state_of(optimizer), state_of(other), strict=True):
        assert name == other_name
        np.testing.assert_allclose(np.asarray(value), np.asarray(expected), rtol=2e-5, atol=1e-6)
    assert other._known_steps.native is None
    return optimizer


def native_calls(optimizer: Any) -> int:
    native = optimizer._known_steps.native
    if native is None:
        return 0
    stats = native.stats()
    return int(stats["native_calls"] + stats["python_calls"])


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("name", ALGORITHMS)
def test_known_steps_move_what_the_ops_move(name: str) -> None:
    optimizer = require_equal_training(ALGORITHMS[name])
    assert optimizer._known_steps.why == ""
    assert native_calls(optimizer) == 7
    assert optimizer._known_steps.native.stats()["captures"] <= 2


def schedule(optimizer: Any, k: int) -> None:
    optimizer.param_groups[0]["lr"] = 0.01 / (k + 1)


def switched_option(optimizer: Any, k: int) -> None:
    if k == 4:
        optimizer.param_groups[0]["weight_decay"] = 0.3


def frozen(optimizer: Any, k: int) -> None:
    optimizer.param_groups[0]["params"][1].requires_grad = k < 4


def loaded(optimizer: Any, k: int) -> None:
    if k == 4:
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))


def replaced_memory(optimizer: Any, k: int) -> None:
    if k == 4:
        for p in optimizer.param_groups[0]["params"]:
            p.data = p.data * 2


def cleared_state(optimizer: Any, k: int) -> None:
    if k == 4:
        optimizer.param_groups[0]["params"][0].detach().mul_(0.5)
        optimizer.state.clear()


def changed_state(optimizer: Any, k: int) -> None:
    if k == 4:
        for kept in optimizer.state.values():
            kept["exp_avg"] = kept["exp_avg"] * 0.5
            kept["exp_avg_sq"].add_(1.0)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    "between", [schedule, switched_option, frozen, loaded, replaced_memory, cleared_state, changed_state]
)
def test_what_programs_do_between_steps_counts(between: Event) -> None:
    optimizer = require_equal_training(ALGORITHMS["Adam"], between)
    assert native_calls(optimizer)


@pytest.mark.usefixtures("at_once")
def test_a_schedule_needs_one_capture_and_versions_count_on() -> None:
    parameters, optimizer = trained(ALGORITHMS["AdamW"], between=schedule)
    assert optimizer._known_steps.native.stats()["captures"] == 1
    before = parameters[0]._version
    y = (parameters[0] * parameters[0]).sum()
    optimizer.step()
    assert parameters[0]._version > before
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


@pytest.mark.usefixtures("at_once")
def test_hooks_counts_and_results_are_those_of_every_step() -> None:
    seen: list[str] = []

    def make(parameters: Any) -> Any:
        optimizer = optim.Adam(parameters)
        optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
        optimizer.register_step_post_hook(lambda *_: seen.append("after"))
        return optimizer

    _, optimizer = trained(make)
    assert native_calls(optimizer) == 7
    assert seen == ["before", "after"] * 8
    assert optimizer._step_calls == 8
    assert optimizer.step(lambda: 3.5) == 3.5


class OwnAlgorithm(optim.Adam):
    """An algorithm of a user's, which wants to see its updates."""

    updates = 0

    def _update(self, *given: Any) -> None:
        OwnAlgorithm.updates += 1
        super()._update(*given)


@pytest.mark.usefixtures("at_once")
def test_what_could_be_seen_from_inside_is_left_to_the_ops() -> None:
    _, optimizer = trained(lambda p: OwnAlgorithm(p))
    assert (native_calls(optimizer), OwnAlgorithm.updates) == (0, 24)
    aj.use_deterministic_algorithms(True)
    try:
        _, optimizer = trained(ALGORITHMS["Adam"])
    finally:
        aj.use_deterministic_algorithms(False)
    assert native_calls(optimizer) == 0
    with aj.profiler.profile():
        _, optimizer = trained(ALGORITHMS["Adam"])
    assert native_calls(optimizer) == 0


@pytest.mark.usefixtures("at_once")
def test_copies_and_files_of_an_optimiser_are_without_its_steps() -> None:
    _, optimizer = trained(ALGORITHMS["Adam"])
    for made in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        assert made._known_steps.native is None
        for p in made.param_groups[0]["params"]:
            p.grad = aj.ones_like(p)
        made.step()
    assert "_known_steps" not in optimizer.__getstate__()


@pytest.mark.usefixtures("at_once")
def test_an_optimiser_that_is_gone_keeps_nothing_once_another_steps() -> None:
    gc.collect()
    _, optimizer = trained(ALGORITHMS["Adam"])
    assert native_calls(optimizer)
    gone = weakref.ref(optimizer), weakref.ref(optimizer.param_groups[0]["params"][0])
    del optimizer
    assert gone[0]() is None
    _, other = trained(ALGORITHMS["Adam"])
    assert native_calls(other)
    assert gone[1]() is None


def test_a_step_is_compiled_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call that begins to compile one, and those until it is there, are the ops'."""
    monkeypatch.setattr(known_steps, "TIMES", 1)
    waits = threading.Event()
    build = compiled_beside.build_path
    monkeypatch.setattr(compiled_beside, "build_path", lambda *given: (waits.wait(60), build(*given))[1])
    _, optimizer = trained(ALGORITHMS["SGD"])
    assert (native_calls(optimizer), optimizer._known_steps.native.counts.eager_calls) == (1, 1)
    waits.set()
    for _ in range(1000):
        optimizer.step()
        if native_calls(optimizer) > 10:
            break
        time.sleep(0.01)
    assert native_calls(optimizer) > 10


@pytest.mark.usefixtures("at_once")
def test_a_step_that_cannot_be_compiled_is_the_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(*given: Any) -> None:
        raise MemoryError("planted")

    monkeypatch.setattr(function_of_jit, "build_path", build)
    optimizer = require_equal_training(ALGORITHMS["Adam"])
    assert optimizer._known_steps.why == "raised MemoryError: planted"


@pytest.mark.usefixtures("at_once")
def test_steps_that_native_code_cannot_serve_are_left_to_the_ops() -> None:
    """Parameters with other memory in every step: each would be followed by Python, which takes longer than the ops."""

    def other_memory(optimizer: Any, k: int) -> None:
        for p in optimizer.param_groups[0]["params"]:
            p.data = p.data.clone()

    _, optimizer = trained(next(iter(ALGORITHMS.values())), 40, other_memory)
    assert "were native" in optimizer._known_steps.why
    assert optimizer._known_steps.native is None
    _, optimizer = trained(next(iter(ALGORITHMS.values())), 80)
    assert optimizer._known_steps.why == ""


def own_memory_as_gradient(parameters: Any) -> list[Any]:
    return [p.detach() for p in parameters]


def one_memory_for_two(parameters: Any) -> list[Any]:
    shared = parameters[0].detach().flatten()[:6] * 0.5
    return [parameters[0].detach() * 0.5, shared[:4], shared.reshape(2, 3)]


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("gradients", [own_memory_as_gradient, one_memory_for_two])
@pytest.mark.parametrize("name", ["Adam", "SGD", "SGD, Nesterov"])
def test_gradients_may_share_memory(name: str, gradients: Callable[[Any], list[Any]]) -> None:
    def moved() -> list[Any]:
        parameters, optimizer = trained(ALGORITHMS[name])
        for _ in range(6):
            for p, grad in zip(parameters, gradients(parameters), strict=True):
                p.grad = grad
            optimizer.step()
        return [p.detach().numpy() for p in parameters]

    found = moved()
    with awaited.settled():
        expected = moved()
    for p, q in zip(found, expected, strict=True):
        np.testing.assert_allclose(p, q, rtol=5e-5, atol=1e-6)


@pytest.mark.usefixtures("at_once")
def test_numbers_that_are_tensors_may_change_in_place() -> None:
    def halved(optimizer: Any, k: int) -> None:
        optimizer.param_groups[0]["lr"].mul_(0.5)

    optimizer = require_equal_training(lambda p: optim.Adam(p, lr=aj.tensor(0.1)), halved)
    assert native_calls(optimizer)


@pytest.mark.usefixtures("at_once")
def test_groups_have_their_own_numbers() -> None:
    def make(parameters: Any) -> Any:
        groups = [{"params": parameters[:1]}, {"params": parameters[1:], "lr": 0.2, "weight_decay": 0.3}]
        return optim.AdamW(groups, lr=0.01, weight_decay=0.0)

    def later(optimizer: Any, k: int) -> None:
        optimizer.param_groups[1]["lr"] *= 0.5

    optimizer = require_equal_training(make, later)
    assert optimizer._known_steps.native.stats()["captures"] == 1
