"""``verify="always"`` and ``verify=n``: no alarm where compiled is eager, and every planted fault is named."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.core.errors import TraceError
from autojit.jit import effects, followed_tensors, native, step, step_gradients, verify
from tests.jit.test_recycled_memory import _run as gradients_between_calls
from tests.optim.training_programs import Program


def _always(function: Callable[..., Any]) -> Any:
    return aj.jit(function, verify="always")


@pytest.mark.parametrize("seed", range(6))
def test_training_raises_no_alarm(seed: int) -> None:
    Program(seed, _always).run()


@pytest.mark.parametrize("seed", range(20))
def test_gradients_between_calls_raise_no_alarm(seed: int) -> None:
    found = gradients_between_calls(seed, _always)
    assert found == gradients_between_calls(seed, lambda function: function)


class _Model(aj.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = aj.nn.Sequential(
            aj.nn.Linear(3, 4), aj.nn.BatchNorm1d(4), aj.nn.Dropout(0.5), aj.nn.Tanh(), aj.nn.Linear(4, 2)
        )
        self.seen = 0

    def forward(self, x: aj.Tensor) -> aj.Tensor:
        self.seen += 1
        return self.layers(x)


@pytest.mark.parametrize("verify", ["always", 3])
def test_a_model_with_random_numbers_buffers_and_counters_goes_on_as_without(verify: Any) -> None:
    def run(**options: Any) -> Any:
        aj.manual_seed(0)
        model = _Model()
        optimizer = aj.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        model.layers[0].weight.register_hook(lambda g: g * 2)

        def function(x: aj.Tensor) -> aj.Tensor:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        compiled = aj.jit(function, **options)
        losses = [compiled(aj.randn(5, 3)).item() for _ in range(7)]
        return losses, model.seen, compiled.stats()

    losses, seen, stats = run(verify=verify)
    expected, _, _ = run()
    assert losses == expected
    assert seen == 7
    assert stats["native_calls"] >= 3  # what is compared is what runs without comparison


def _sgd(**options: Any) -> tuple[Any, Any, Any]:
    w = aj.tensor([1.0, -2.0], requires_grad=True)
    optimizer = aj.optim.SGD([w], lr=0.1, momentum=0.9)

    def function(x: aj.Tensor) -> aj.Tensor:
        optimizer.zero_grad()
        loss = ((x * w) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return w, optimizer, aj.jit(function, **options)


def test_state_that_is_not_followed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_tensors.Holder, "places", lambda self, may_begin: [])
    _, optimizer, compiled = _sgd(verify="always")
    saved = optimizer.state_dict()
    for _ in range(3):
        compiled(aj.ones(2))
    optimizer.load_state_dict(saved)
    with pytest.raises(TraceError, match=r"jit\(verify='always'\): .*differs from eager|only"):
        for _ in range(3):
            compiled(aj.ones(2))


def test_gradients_that_are_not_followed_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_tensors, "follow", lambda places, state: (None, {}))
    w, v = aj.ones(2, requires_grad=True), aj.ones(2, requires_grad=True)
    compiled = _always(lambda x: (w * x + 2 * v * x).sum().backward())
    with pytest.raises(TraceError, match=r"grad: .* differs"):
        for _ in range(6):
            compiled(aj.ones(2))
            w.grad, v.grad = v.grad, w.grad


def test_a_gradient_that_somebody_holds_and_is_written_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def adopted(self: Any, state: Any) -> bool:
        self.tensor = self.leaf._grad
        return False

    monkeypatch.setattr(step_gradients.ReplacedGradient, "prepare", adopted)
    w = aj.ones(2, requires_grad=True)
    w.grad = aj.ones(2)
    held = [w.grad]

    def function(x: aj.Tensor) -> aj.Tensor:
        w.grad = w.grad * 0.5 + x
        return x * len(held)

    with pytest.raises(TraceError, match=r"held\[0\]: value differs|w\.grad: object differs|w\.grad: .* only"):
        _always(function)(aj.ones(2))


def test_arguments_that_are_one_are_named_though_only_native_code_errs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "identities_of", lambda arguments: ())
    compiled = _always(lambda a, b: aj.autograd.grad((a * b).sum(), [a, b]))
    x, y = aj.ones(2, requires_grad=True), aj.ones(2, requires_grad=True)
    compiled(x, y)
    compiled(x, y)
    with pytest.raises(TraceError, match=r"result\[[01]\]: (value|object) differs"):
        compiled(x, x)


def test_a_history_that_is_lost_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "kept_operand", lambda t, *_: aj.tensor(t.detach().numpy().copy()))
    w = aj.ones(2, requires_grad=True)

    def function(x: aj.Tensor) -> aj.Tensor:
        w.data.mul_(2)
        return (w * w * x).sum()

    with pytest.raises(TraceError, match="result: requires_grad differs"):
        _always(function)(aj.ones(2))


def test_versions_and_strides_and_errors_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = aj.ones(3)
    with monkeypatch.context() as planted:
        planted.setattr(effects.Effects, "count_versions", lambda self, leaves: None)
        with pytest.raises(TraceError, match="kept: changes differs"):
            _always(lambda x: kept.add_(x).sum())(aj.ones(3))
    original = step.CompiledStep.run

    def strided(self: Any, leaves: Any, arrays: Any, given: Any) -> Any:
        found = original(self, leaves, arrays, given)
        return aj.from_numpy(np.asfortranarray(found.numpy()))

    monkeypatch.setattr(step.CompiledStep, "run", strided)
    with pytest.raises(TraceError, match="result: strides differs"):
        _always(lambda x: x + 1)(aj.ones(3, 4))

    def failing(self: Any, leaves: Any, arrays: Any, given: Any) -> Any:
        raise ValueError("planted")

    monkeypatch.setattr(step.CompiledStep, "run", failing)
    with pytest.raises(TraceError, match="the call: no error in eager mode"):
        _always(lambda x: x + 1)(aj.ones(3))


def test_only_every_nth_call_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "identities_of", lambda arguments: ())
    compiled = aj.jit(lambda a, b: aj.autograd.grad((a * b).sum(), [a, b]), verify=3)
    x, y = aj.ones(2, requires_grad=True), aj.ones(2, requires_grad=True)
    compiled(x, y)
    compiled(x, y)
    compiled(x, x)  # wrong, and not looked at
    with pytest.raises(TraceError, match=r"jit\(verify=3\)"):
        compiled(x, x)


@pytest.mark.parametrize("verify", [0, -1, True, "sometimes", 1.5])
def test_other_values_are_refused(verify: Any) -> None:
    with pytest.raises(ValueError, match="verify"):
        aj.jit(lambda x: x, verify=verify)


def test_errors_that_both_raise_are_raised() -> None:
    compiled = _always(lambda x, k: x.index_select(0, k))
    compiled(aj.ones(3), aj.tensor([0, 2]))
    for _ in range(2):
        with pytest.raises(IndexError):
            compiled(aj.ones(3), aj.tensor([0, 3]))
    assert compiled(aj.ones(3), aj.tensor([0, 2])).tolist() == [1, 1]


DRAWS: dict[str, Callable[[], Callable[[], float]]] = {
    "random": lambda: random.Random(3).random,
    "an iterator": lambda: iter([0.5, 0.25, 2.0, 4.0]).__next__,
    "a clock": lambda: time.perf_counter,
    "NumPy": lambda: np.random.default_rng(3).random,
}


@pytest.mark.parametrize("option", ["first", "always", 2])
@pytest.mark.parametrize("name", DRAWS)
def test_a_compared_call_draws_once_in_all(name: str, option: Any) -> None:
    def run(**options: Any) -> tuple[list[float], list[float]]:
        draw, seen = DRAWS[name](), []

        @aj.jit(**options)
        def step(x: aj.Tensor) -> aj.Tensor:
            value = draw()
            seen.append(value)
            return x.double() * value

        return [step(aj.ones(1)).item() for _ in range(4)], seen

    found, seen = run(verify=option)
    assert found == seen
    assert name == "a clock" or (found, seen) == run()


def test_compared_calls_whose_draws_depend_on_a_mode_go_on_as_without() -> None:
    def run(**options: Any) -> tuple[list[float], float]:
        items, mode = iter(range(100)), [False]

        @aj.jit(**options)
        def step(x: aj.Tensor) -> aj.Tensor:
            return x * next(items) + (next(items) if mode[0] else 0.5)

        found = []
        for k in range(9):
            mode[0] = k in (2, 3, 6)
            found.append(step(aj.ones(1)).item())
        return found, next(items)

    assert run(verify="always") == run(verify=3) == run(verify="first") == run()


def test_the_first_run_of_every_step_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    picture = verify._picture
    monkeypatch.setattr(verify, "_picture", lambda *args: compared.append(0) or picture(*args))
    compiled = aj.jit(lambda x: x * 2, verify="first", dynamic=False)
    for size in (3, 3, 5, 5, 3, 5):
        compiled(aj.ones(size))
    assert len(compared) == 2 * 2  # once in each mode
    assert compiled.stats()["captures"] == 2


def test_a_first_run_that_fails_as_in_eager_mode_raises_the_same() -> None:
    compiled = aj.jit(lambda x, k: x.index_select(0, k), verify="first")
    with pytest.raises(IndexError):
        compiled(aj.ones(3), aj.tensor([7]))
    assert compiled(aj.ones(3), aj.tensor([1])).tolist() == [1.0]


def test_a_planted_fault_of_the_first_run_is_named_by_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    held = {"scale": aj.ones(2)}

    @aj.jit(verify="first")
    def compiled(x: aj.Tensor) -> aj.Tensor:
        held["scale"].mul_(2)
        return x * held["scale"]

    run = step.CompiledStep.run

    def faulty(self: Any, leaves: Any, arrays: Any, given: Any) -> Any:
        found = run(self, leaves, arrays, given)
        held["scale"]._array[0] += 1
        return found

    monkeypatch.setattr(step.CompiledStep, "run", faulty)
    with pytest.raises(TraceError, match=r"jit\(verify='first'\): held\['scale'\]: value differs"):
        compiled(aj.ones(2))


@pytest.mark.parametrize("name", ["SGD", "Adam", "Adagrad", "Rprop"])
@pytest.mark.parametrize("verify", ["first", "always"])
def test_what_optimisers_begin_with_raises_no_alarm(name: str, verify: str) -> None:
    w = aj.nn.Parameter(aj.ones(3))
    optimizer = getattr(aj.optim, name)([w], lr=0.1)

    def step(x: Any) -> Any:
        def closure() -> Any:
            optimizer.zero_grad()
            loss = ((w * x - 1) ** 2).sum()
            loss.backward()
            return loss

        return optimizer.step(closure)

    compiled = aj.jit(step, verify=verify)
    for _ in range(3):
        compiled(aj.ones(3) * 2)


@pytest.mark.parametrize("verify", ["always", "first", 2])
def test_schedules_in_the_step_raise_no_alarm(verify: Any) -> None:
    def run(**options: Any) -> list[float]:
        aj.manual_seed(0)
        model = aj.nn.Linear(2, 1)
        optimizer = aj.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        schedule = aj.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

        @aj.jit(**options)
        def train() -> None:
            optimizer.zero_grad()
            model(aj.ones(1, 2)).square().sum().backward()
            optimizer.step()
            schedule.step()

        found = []
        for _ in range(6):
            train()
            found.append(model.weight.sum().item())
        return found

    assert run(verify=verify) == run()


def test_calls_that_raise_are_compared_with_what_was_there_before() -> None:
    table = aj.nn.Embedding(4, 2)
    optimizer = aj.optim.SGD(table.parameters(), lr=0.1)

    @aj.jit(verify="always")
    def step(words: aj.Tensor) -> aj.Tensor:
        optimizer.zero_grad()
        loss = table(words).pow(2).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    for words in ([0, 1], [2, 3], [9, 0], [1, 1]):
        with pytest.raises(IndexError, match="9") if 9 in words else contextlib.nullcontext():
            step(aj.tensor(words))


NETS: dict[str, Callable[[], aj.nn.Module]] = {
    "a bias before batch norm": lambda: aj.nn.Sequential(
        aj.nn.Conv1d(3, 8, 3), aj.nn.BatchNorm1d(8), aj.nn.ReLU(), aj.nn.Flatten(), aj.nn.Linear(48, 3)
    ),
    "a bias before softmax": lambda: aj.nn.Sequential(aj.nn.Flatten(), aj.nn.Linear(24, 1), aj.nn.Softmax(0)),
    "a scale before layer norm": lambda: aj.nn.Sequential(
        aj.nn.Flatten(), aj.nn.Linear(24, 6), aj.nn.LayerNorm(6), aj.nn.LayerNorm(6), aj.nn.Linear(6, 3)
    ),
}


@pytest.mark.parametrize("name", NETS)
def test_gradients_that_cancel_to_rounding_raise_no_alarm(name: str) -> None:
    aj.manual_seed(0)
    net = NETS[name]()
    optimizer = aj.optim.SGD(net.parameters(), lr=0.1)

    def step(x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
        optimizer.zero_grad()
        loss = (net(x) * y).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    verified = aj.jit(step, verify="always")
    for k in range(12):
        before = {name: p.detach().clone() for name, p in net.named_parameters()}
        verified(aj.randn(16, 3, 8), aj.randn(16, 1))
        assert any(not aj.equal(p.detach(), before[name]) for name, p in net.named_parameters()), k


def test_rounding_explains_no_other_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    aj.manual_seed(0)
    net = NETS["a bias before batch norm"]()
    bias, right = net[0].bias, verify._picture

    def spoilt(roots: Any, result: Any, versions: Any) -> Any:
        """What the step leaves, with one per mille of the other gradients added to the one that is rounding."""
        picture = right(roots, result, versions)
        if bias.grad is not None and verify.state.detour is None:
            path = next(path for path in picture if path.endswith("_parameters['bias'].grad"))
            picture[path]["value"] = picture[path]["value"] + np.float32(1e-3)
        return picture

    monkeypatch.setattr(verify, "_picture", spoilt)
    with pytest.raises(TraceError, match="value differs from eager mode"):
        aj.jit(lambda x: net(x).square().mean().backward(), verify="always")(aj.randn(16, 3, 8))
