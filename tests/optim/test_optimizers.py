"""Optimisers: each follows its published recurrence, the same with numbers and with slots; groups, state, errors."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import nn, optim
from autojit.jit.line_by_line import GivenUp
from autojit.jit.trace import Trace
from autojit.optim import adam, adaptive, arithmetic, param_group
from autojit.tensor.state import guard_epoch, state

Array = np.ndarray
RNG = np.random.default_rng(5)
START = RNG.normal(size=(3, 2))
GRADIENTS = [RNG.normal(size=(3, 2)) for _ in range(8)]


def _run(make: Callable[[list[nn.Parameter]], optim.Optimizer], gradients: list[Array] = GRADIENTS) -> Array:
    p = nn.Parameter(aj.tensor(START))
    optimizer = make([p])
    for gradient in gradients:
        p.grad = aj.tensor(gradient)
        optimizer.step()
    return p.detach().numpy()


def _sgd(momentum: float, dampening: float, nesterov: bool, decay: float) -> Array:
    p, v = START.copy(), None
    for g in GRADIENTS:
        d = g + decay * p
        v = d.copy() if v is None else momentum * v + (1 - dampening) * d
        p -= 0.1 * (d + momentum * v if nesterov else v)
    return p


def _adam(decay: float, decoupled: bool, amsgrad: bool) -> Array:
    p, m, v, greatest = START.copy(), 0.0, 0.0, 0.0
    for t, g in enumerate(GRADIENTS, 1):
        if decoupled:
            p *= 1 - 0.1 * decay
        else:
            g = g + decay * p
        m, v = 0.8 * m + 0.2 * g, 0.9 * v + 0.1 * g * g
        greatest = np.maximum(greatest, v)
        second = (greatest if amsgrad else v) / (1 - 0.9**t)
        p -= 0.1 * m / (1 - 0.8**t) / (np.sqrt(second) + 1e-8)
    return p


def _adamax() -> Array:
    p, m, u = START.copy(), 0.0, 0.0
    for t, g in enumerate(GRADIENTS, 1):
        m, u = 0.9 * m + 0.1 * g, np.maximum(0.999 * u, np.abs(g) + 1e-8)
        p -= 0.1 / (1 - 0.9**t) * m / u
    return p


def _nadam() -> Array:
    p, m, v, product = START.copy(), 0.0, 0.0, 1.0
    for t, g in enumerate(GRADIENTS, 1):
        mu, after = (0.9 * (1 - 0.5 * 0.96 ** (s * 4e-3)) for s in (t, t + 1))
        product *= mu
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        root = np.sqrt(v / (1 - 0.999**t)) + 1e-8
        p -= 0.1 * ((1 - mu) / (1 - product) * g + after / (1 - product * after) * m) / root
    return p


def _radam() -> Array:
    p, m, v = START.copy(), 0.0, 0.0
    limit = 2 / (1 - 0.9) - 1
    for t, g in enumerate(GRADIENTS, 1):
        m, v = 0.9 * m + 0.1 * g, 0.9 * v + 0.1 * g * g
        rho = limit - 2 * t * 0.9**t / (1 - 0.9**t)
        scale = 1.0
        if rho > 5:
            r = math.sqrt((rho - 4) * (rho - 2) * limit / ((limit - 4) * (limit - 2) * rho))
            scale = r * math.sqrt(1 - 0.9**t) / (np.sqrt(v) + 1e-8)
        p -= 0.1 * m / (1 - 0.9**t) * scale
    return p


def _rmsprop() -> Array:
    p, v, mean, buffer = START.copy(), 0.0, 0.0, 0.0
    for g in GRADIENTS:
        v, mean = 0.99 * v + 0.01 * g * g, 0.99 * mean + 0.01 * g
        buffer = 0.9 * buffer + g / (np.sqrt(v - mean * mean) + 1e-8)
        p -= 0.1 * buffer
    return p


def _adagrad() -> Array:
    p, total = START.copy(), 0.2
    for t, g in enumerate(GRADIENTS):
        total = total + g * g
        p -= 0.1 / (1 + 0.05 * t) * g / (np.sqrt(total) + 1e-10)
    return p


def _adadelta() -> Array:
    p, v, steps = START.copy(), 0.0, 0.0
    for g in GRADIENTS:
        v = 0.9 * v + 0.1 * g * g
        delta = np.sqrt(steps + 1e-6) / np.sqrt(v + 1e-6) * g
        steps = 0.9 * steps + 0.1 * delta * delta
        p -= delta
    return p


def _rprop() -> Array:
    p, before, size = START.copy(), np.zeros_like(START), np.full_like(START, 0.1)
    for g in GRADIENTS:
        agreement = np.sign(g * before)
        size = np.clip(size * np.where(agreement > 0, 1.2, np.where(agreement < 0, 0.5, 1.0)), 1e-6, 50)
        before = np.where(agreement < 0, 0.0, g)
        p -= np.sign(before) * size
    return p


def _asgd() -> Array:
    p, eta = START.copy(), 0.1
    for t, g in enumerate(GRADIENTS, 1):
        p = p * (1 - 1e-4 * eta) - eta * g
        eta = float(np.float32(0.1 / (1 + 1e-4 * 0.1 * t) ** 0.75))
    return p


CASES: dict[str, tuple[Callable[[Any], optim.Optimizer], Callable[[], Array]]] = {
    "sgd": (lambda p: optim.SGD(p, 0.1, weight_decay=0.3), lambda: _sgd(0.0, 0.0, False, 0.3)),
    "momentum": (lambda p: optim.SGD(p, 0.1, 0.9), lambda: _sgd(0.9, 0.0, False, 0.0)),
    "dampening": (lambda p: optim.SGD(p, 0.1, 0.9, 0.4), lambda: _sgd(0.9, 0.4, False, 0.0)),
    "nesterov": (lambda p: optim.SGD(p, 0.1, 0.9, nesterov=True), lambda: _sgd(0.9, 0.0, True, 0.0)),
    "adam": (lambda p: optim.Adam(p, 0.1, (0.8, 0.9), weight_decay=0.2), lambda: _adam(0.2, False, False)),
    "adamw": (lambda p: optim.AdamW(p, 0.1, (0.8, 0.9), weight_decay=0.2), lambda: _adam(0.2, True, False)),
    "amsgrad": (lambda p: optim.Adam(p, 0.1, (0.8, 0.9), amsgrad=True), lambda: _adam(0.0, False, True)),
    "adamax": (lambda p: optim.Adamax(p, 0.1), _adamax),
    "nadam": (lambda p: optim.NAdam(p, 0.1), _nadam),
    "radam": (lambda p: optim.RAdam(p, 0.1, (0.9, 0.9)), _radam),
    "rmsprop": (lambda p: optim.RMSprop(p, 0.1, momentum=0.9, centered=True), _rmsprop),
    "adagrad": (lambda p: optim.Adagrad(p, 0.1, 0.05, initial_accumulator_value=0.2), _adagrad),
    "adadelta": (lambda p: optim.Adadelta(p), _adadelta),
    "rprop": (lambda p: optim.Rprop(p, 0.1), _rprop),
    "asgd": (lambda p: optim.ASGD(p, 0.1), _asgd),
}
# nadam and asgd keep scalars in float32, as torch
TOLERANCE = {"nadam": 1e-5, "asgd": 1e-7}


@pytest.mark.parametrize("name", CASES)
def test_optimizer_follows_its_recurrence(name: str) -> None:
    make, expected = CASES[name]
    np.testing.assert_allclose(_run(make), expected(), rtol=TOLERANCE.get(name, 1e-11))


@pytest.mark.parametrize("name", CASES)
def test_update_with_slots_equals_update_with_numbers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a step is traced, hyper-parameters and counters are 0-d tensors: the formula must not depend on that."""
    make, _ = CASES[name]
    expected = _run(make)
    for module in (param_group, arithmetic, adam, adaptive):
        monkeypatch.setattr(module, "is_tracing", lambda: True)
    np.testing.assert_allclose(_run(make), expected, rtol=TOLERANCE.get(name, 1e-11))


def test_maximize_ascends() -> None:
    down = _run(lambda p: optim.Adam(p, 0.1))
    up = _run(lambda p: optim.Adam(p, 0.1, maximize=True), [-g for g in GRADIENTS])
    np.testing.assert_allclose(up, down)


def test_groups_have_their_own_options() -> None:
    p, q = nn.Parameter(aj.zeros(2)), nn.Parameter(aj.zeros(2))
    optimizer = optim.SGD([{"params": [("first", p)]}, {"params": [("named", q)], "lr": 1.0}], lr=0.1)
    p.grad = q.grad = aj.ones(2)
    optimizer.step()
    assert p.tolist() == pytest.approx([-0.1, -0.1])
    assert q.tolist() == [-1.0, -1.0]
    assert optimizer.param_groups[1]["param_names"] == ["named"]
    with pytest.raises(ValueError, match="some parameters appear in more than one parameter group"):
        optimizer.add_param_group({"params": [("again", p)]})
    with pytest.raises(ValueError, match="with/without names"):
        optimizer.add_param_group({"params": [nn.Parameter(aj.zeros(2))]})
    with pytest.warns(UserWarning, match="duplicate parameters"):
        optim.SGD([p, p], lr=0.1)
    optimizer.zero_grad()
    assert p.grad is None


def test_impossible_options_are_refused() -> None:
    p = [nn.Parameter(aj.zeros(1))]
    for make, text in (
        (lambda: optim.SGD(p, lr=-1.0), "Invalid learning rate: -1.0"),
        (lambda: optim.SGD(p, nesterov=True), "Nesterov momentum requires a momentum"),
        (lambda: optim.Adam(p, betas=(1.0, 0.9)), "Invalid beta parameter at index 0: 1.0"),
        (lambda: optim.Adam([]), "optimizer got an empty parameter list"),
    ):
        with pytest.raises(ValueError, match=text):
            make()
    with pytest.raises(TypeError, match="should be an iterable of Tensors or dicts"):
        optim.SGD(p[0])
    with pytest.raises(ValueError, match="can't optimize a non-leaf Tensor"):
        optim.SGD([p[0] * 2])


def test_state_dict_resumes_exactly() -> None:
    def train(p: nn.Parameter, optimizer: optim.Optimizer, gradients: list[Array]) -> None:
        for gradient in gradients:
            p.grad = aj.tensor(gradient)
            optimizer.step()

    p = nn.Parameter(aj.tensor(START))
    first = optim.Adam([p], 0.1, amsgrad=True)
    train(p, first, GRADIENTS[:4])
    q = nn.Parameter(p.detach().clone())
    second = optim.Adam([q], 0.7)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    train(p, first, GRADIENTS[4:])
    train(q, second, GRADIENTS[4:])
    assert aj.equal(p, q)
    state = first.state_dict()
    assert list(state["state"][0]) == ["step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"]
    assert state["param_groups"][0]["params"] == [0]
    with pytest.raises(ValueError, match="different number of parameter groups"):
        second.load_state_dict({"state": {}, "param_groups": []})
    again = pickle.loads(pickle.dumps(first))
    assert again.param_groups[0]["lr"] == 0.1


def test_slots_follow_writes_and_only_structural_changes_bump_the_epoch() -> None:
    optimizer = optim.Adam([nn.Parameter(aj.zeros(1))], lr=0.1)
    group = optimizer.param_groups[0]
    lr, beta = group.slot("lr"), group.slot("betas", 0)
    before, baked = int(guard_epoch[0]), optimizer._guard_snapshot()
    group["lr"] = 0.025
    group.update(betas=(0.5, 0.999))
    assert float(lr) == 0.025
    assert float(beta) == 0.5
    assert int(guard_epoch[0]) == before
    assert optimizer._guard_snapshot() == baked
    group["weight_decay"] = 0.1
    assert int(guard_epoch[0]) > before, "weight decay switched on: a branch of the step"
    assert optimizer._guard_snapshot() != baked


def test_hyper_parameters_are_not_written_by_code_of_a_capture_that_nobody_observes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = optim.SGD([nn.Parameter(aj.zeros(1))], lr=0.1).param_groups[0]
    monkeypatch.setattr(state, "trace", Trace())
    with pytest.raises(GivenUp):
        group["lr"] = 0.2
    assert group["lr"] == 0.1


def test_step_hooks_and_closures() -> None:
    p = nn.Parameter(aj.ones(1))
    optimizer = optim.SGD([p], lr=0.1)
    seen = []
    optimizer.register_step_pre_hook(lambda o, args, kwargs: seen.append("before"))
    handle = optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append("after"))

    def closure() -> aj.Tensor:
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    with aj.no_grad():
        assert float(optimizer.step(closure)) == 1.0
    assert p.item() == pytest.approx(0.8)
    handle.remove()
    optimizer.step()
    assert seen == ["before", "after", "before"]


def test_users_own_step_gets_hooks_too() -> None:
    class Signs(optim.Optimizer):
        def __init__(self, params: Any) -> None:
            super().__init__(params, {"lr": 1.0})

        def step(self, closure: Any = None) -> None:
            with aj.no_grad():
                for group in self.param_groups:
                    for p in group["params"]:
                        p -= group["lr"] * p.grad.sign()

    p = nn.Parameter(aj.tensor([3.0]))
    optimizer, seen = Signs([p]), []
    optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append(1))
    p.grad = aj.tensor([2.0])
    optimizer.step()
    assert p.item() == 2.0
    assert seen == [1]


@pytest.mark.parametrize("line_search", [None, "strong_wolfe"])
def test_lbfgs_finds_the_minimum(line_search: str | None) -> None:
    p = nn.Parameter(aj.tensor([-1.2, 1.0], dtype=aj.float64))
    target = aj.tensor([0.5, -2.0], dtype=aj.float64)
    optimizer = optim.LBFGS([p], lr=1.0 if line_search else 0.3, max_iter=40, line_search_fn=line_search)

    def closure() -> aj.Tensor:
        optimizer.zero_grad()
        if line_search:
            loss = 100 * (p[1] - p[0] ** 2) ** 2 + (1 - p[0]) ** 2  # Rosenbrock, least at (1, 1)
        else:
            loss = ((p - target) ** 2 * aj.tensor([1.0, 3.0], dtype=aj.float64)).sum()
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    expected = [1.0, 1.0] if line_search else target.tolist()
    np.testing.assert_allclose(p.detach().numpy(), expected, rtol=1e-4)


def test_a_step_that_calls_lbfgs_runs_line_by_line_and_its_closure_compiles() -> None:
    p, start = nn.Parameter(aj.tensor([3.0, -2.0])), aj.tensor([3.0, -2.0])
    optimizer = optim.LBFGS([p], lr=0.5)

    def closure() -> aj.Tensor:
        optimizer.zero_grad()
        loss = ((p - 1) ** 2).sum()
        loss.backward()
        return loss

    step = aj.jit(lambda: optimizer.step(closure))
    assert step().item() == ((start - 1) ** 2).sum().item()
    assert "the closure as a step of its own" in step.explain()
    assert closure().item() < 1e-6
    p.data.copy_(start)
    compiled = aj.jit(closure)
    optimizer.step(compiled)
    assert compiled().item() < 1e-6
    assert compiled.stats()["captures"] <= 2


COMPLEX = ("ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD")


@pytest.mark.parametrize("compile_with", [aj.jit, lambda f: f], ids=["compiled", "eager"])
@pytest.mark.parametrize("name", COMPLEX)
def test_a_complex_parameter_moves_as_its_real_and_imaginary_parts(name: str, compile_with: Callable[..., Any]) -> None:
    parts = np.random.default_rng(0).normal(size=(3, 2))
    real = aj.tensor(parts, requires_grad=True)
    whole = aj.view_as_complex(aj.tensor(parts)).clone().requires_grad_()
    rules = [getattr(optim, name)([p], lr=0.05) for p in (real, whole)]

    def step() -> None:
        for rule, p in zip(rules, (real, aj.view_as_real(whole)), strict=True):
            rule.zero_grad()
            (p**3).sum().backward()
            rule.step()

    run = compile_with(step)
    for _ in range(4):
        run()
    np.testing.assert_allclose(aj.view_as_real(whole.detach()).numpy(), real.detach().numpy(), rtol=1e-6)
    moments = [value for value in rules[1].state[whole].values() if value.shape == whole.shape]
    assert all(value.is_complex() for value in moments)


@pytest.mark.parametrize("name", ["Adam", "RMSprop", "Adagrad", "Adadelta", "Rprop", "ASGD", "RAdam", "Adafactor"])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_step_counts_once_for_every_parameter(name: str, compiled: bool) -> None:
    ps = [nn.Parameter(aj.ones(n)) for n in (1, 2, 3)]
    optimizer = getattr(optim, name)(ps)

    def step() -> None:
        for p in ps:
            p.grad = aj.ones_like(p)
        optimizer.step()

    call = aj.jit(step) if compiled else step
    for _ in range(3):
        call()
    assert [float(optimizer.state[p]["step"]) for p in ps] == [3.0, 3.0, 3.0]


def _banana(x: aj.Tensor) -> aj.Tensor:
    return (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2


@pytest.mark.parametrize("most", [2, 3, 6, 20])
def test_a_line_search_tries_no_more_points_than_are_left(most: int) -> None:
    x = aj.tensor([-1.2, 1.0], dtype=aj.float64, requires_grad=True)
    optimizer = optim.LBFGS([x], max_iter=8, max_eval=most, line_search_fn="strong_wolfe")
    calls: list[float] = []

    def closure() -> aj.Tensor:
        optimizer.zero_grad()
        loss = _banana(x)
        loss.backward()
        calls.append(loss.item())
        return loss

    for _ in range(4):
        before = len(calls)
        optimizer.step(closure)
        assert len(calls) - before <= most + 1  # one where a search begins


@pytest.mark.parametrize("line_search", [None, "strong_wolfe"])
def test_lbfgs_maximizes_what_it_minimizes_with_the_other_sign(line_search: str | None) -> None:
    found = []
    for sign in (1, -1):
        x = aj.tensor([-1.2, 1.0], dtype=aj.float64, requires_grad=True)
        optimizer = optim.LBFGS([x], lr=0.5, max_iter=5, line_search_fn=line_search, maximize=sign < 0)

        def closure(x: aj.Tensor = x, optimizer: Any = optimizer, sign: int = sign) -> aj.Tensor:
            optimizer.zero_grad()
            loss = sign * _banana(x)
            loss.backward()
            return loss

        found.append([sign * optimizer.step(closure).item() for _ in range(3)] + x.tolist())
    assert found[0] == found[1]


def test_an_optimiser_around_another_need_not_be_initialised() -> None:
    class Around(optim.Optimizer):
        def __init__(self, base: optim.Optimizer) -> None:
            self.base, self.param_groups, self.defaults, self.state = base, base.param_groups, base.defaults, {}

        def step(self, closure: Any = None) -> Any:
            self.state["calls"] = self.state.get("calls", 0) + 1
            return self.base.step(closure)

    p = nn.Parameter(aj.ones(2))
    optimizer = copy.deepcopy(Around(optim.SGD([p], 0.5)))
    (q,) = optimizer.param_groups[0]["params"]
    for _ in range(2):
        optimizer.zero_grad()
        q.sum().backward()
        optimizer.step()
    assert (q.tolist(), p.tolist(), optimizer.state["calls"]) == ([0.0, 0.0], [1.0, 1.0], 2)


@pytest.mark.parametrize("dtype", [aj.float32, aj.float64])
def test_lbfgs_goes_the_same_way_with_long_vectors_and_with_short_ones(
    dtype: aj.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for short in (0, 100):
        monkeypatch.setattr("autojit.optim.lbfgs.SHORT", short)
        p = nn.Parameter(aj.linspace(-1, 1, 5, dtype=dtype))
        optimizer = optim.LBFGS([p], lr=0.5, max_iter=6, history_size=3)

        def closure(p: Any = p, optimizer: Any = optimizer) -> aj.Tensor:
            optimizer.zero_grad()
            loss = (p**4 + p.cumsum(0) ** 2).sum() - p[0]
            loss.backward()
            return loss

        optimizer.step(closure)
        kept = optimizer.state[p]["d"]
        assert type(kept) is aj.Tensor and kept.dtype is dtype
        found.append(p.detach().numpy())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-4 if dtype is aj.float32 else 1e-9)


class Wrapped:
    """A wrapper that passes for an optimiser of the wrapped one's class, as Lightning Fabric's does."""

    def __init__(self, optimizer: aj.optim.Optimizer) -> None:
        self.wrapped, self.steps = optimizer, 0
        self.__class__ = type("Wrapped" + type(optimizer).__name__, (Wrapped, type(optimizer)), {})

    def step(self, closure: Any = None) -> Any:
        self.steps += 1
        return self.wrapped.step(closure)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)


@pytest.mark.parametrize("kind", [aj.optim.SGD, aj.optim.Adam])
def test_wrappers_with_an_optimisers_class_answer_for_it(kind: Any) -> None:
    w = aj.ones(3, requires_grad=True)
    inner = kind([w], lr=0.1)
    outer: Any = Wrapped(inner)
    schedule = aj.optim.lr_scheduler.StepLR(outer, 1, 0.5)
    for _ in range(2):
        outer.zero_grad()
        (w * w).sum().backward()
        outer.step()
        schedule.step()
    assert isinstance(outer, kind) and outer.param_groups is inner.param_groups and outer.state is inner.state
    assert outer.steps == 2 and inner.param_groups[0]["lr"] == pytest.approx(0.025) and w.grad is not None


def test_zeroed_gradients_may_be_views_and_keep_their_memory() -> None:
    w = aj.ones(3, requires_grad=True)
    whole = aj.ones(2, 3)
    w.grad = whole[0]
    aj.optim.SGD([w], lr=0.1).zero_grad(set_to_none=False)
    assert whole.tolist() == [[0, 0, 0], [1, 1, 1]] and not w.grad.requires_grad
    w.grad = (w * w).detach().requires_grad_()
    aj.optim.SGD([w], lr=0.1).zero_grad(set_to_none=False)
    assert w.grad.tolist() == [0, 0, 0] and not w.grad.requires_grad and w.grad.grad_fn is None
