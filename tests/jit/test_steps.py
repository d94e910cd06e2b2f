"""Training steps: eager equals compiled in outputs, gradients, parameters, optimiser state and random numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import autojit as aj
from autojit.functions.random import default_generator
from autojit.nn import functional as F
from tests.jit.agreement import Program, agree


def mlp() -> aj.nn.Module:
    return aj.nn.Sequential(aj.nn.Linear(5, 8), aj.nn.Tanh(), aj.nn.Linear(8, 3))


def batches(count: int, n: int = 4) -> list[tuple[aj.Tensor, aj.Tensor]]:
    return [(aj.randn(n, 5), aj.randint(0, 3, (n,))) for _ in range(count)]


OPTIMISERS: dict[str, Callable[..., aj.optim.Optimizer]] = {
    "sgd": lambda p: aj.optim.SGD(p, lr=0.1),
    "momentum": lambda p: aj.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: aj.optim.Adam(p, lr=0.01),
    "adamw": lambda p: aj.optim.AdamW(p, lr=0.01),
}


@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_training_step_agrees_with_eager(name: str) -> None:
    def make() -> Program:
        model = mlp()
        optimiser = OPTIMISERS[name](model.parameters())

        def step(x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
            optimiser.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimiser.step()
            return loss.detach()

        return Program(step, batches(5), list(model.parameters()))

    step = agree(make, captures=1)
    step(*batches(1)[0])  # reading ``.grad`` lent the gradients out; from now on they are the step's own again
    step(*batches(1)[0])
    assert step.stats()["native_calls"] >= 1


def test_gradients_accumulate_over_two_backward_calls_and_between_steps() -> None:
    def make() -> Program:
        model = mlp()

        def step(x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
            F.cross_entropy(model(x), y).backward()
            loss = (model(x) ** 2).mean()
            loss.backward()
            return loss.detach()

        return Program(step, batches(4), list(model.parameters()))

    agree(make, captures=2)  # without and with a gradient to add to


def test_zero_grad_outside_the_step() -> None:
    def make() -> Program:
        model = mlp()

        def step(x: aj.Tensor, y: aj.Tensor) -> None:
            F.cross_entropy(model(x), y).backward()

        return Program(step, batches(4), list(model.parameters()), lambda k: model.zero_grad())

    agree(make, captures=1)


def test_everything_autograd_offers_inside_one_step() -> None:
    class Cube(aj.autograd.Function):
        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            ctx.save_for_backward(x)
            ctx.factor = 3.0
            return x**3

        @staticmethod
        def backward(ctx, bar):  # type: ignore[no-untyped-def]
            (x,) = ctx.saved_tensors
            return bar * ctx.factor * x**2 * 0.5  # deliberately not the true derivative

    def make() -> Program:
        model = mlp().double()
        optimiser = aj.optim.SGD(model.parameters(), lr=0.05)

        def step(x: aj.Tensor) -> tuple[aj.Tensor, ...]:
            optimiser.zero_grad()
            x = x.detach().requires_grad_()
            hidden = model[1](model[0](x))
            hidden.retain_grad()
            handle = hidden.register_hook(lambda g: g * 2)
            y = Cube.apply(model[2](hidden))
            y = y * 1.0
            y[:, 0] += 1.0
            y.mul_(2.0)
            (slope,) = aj.autograd.grad(y.sum(), x, create_graph=True)
            loss = (y**2).mean() + (slope**2).sum()
            loss.backward(retain_graph=True)
            (y.sum() * 0.1).backward()
            handle.remove()
            optimiser.step()
            return loss.detach(), x.grad, hidden.grad

        calls = [(aj.randn(4, 5, dtype=aj.float64),) for _ in range(3)]
        return Program(step, calls, list(model.parameters()))

    step = agree(make, captures=1)
    assert step.stats()["fallbacks"] == 0


def test_random_numbers_are_those_of_eager_mode() -> None:
    def make() -> Program:
        model = aj.nn.Sequential(aj.nn.Linear(5, 16), aj.nn.Dropout(0.5), aj.nn.Linear(16, 3))

        def step(x: aj.Tensor, y: aj.Tensor) -> tuple[aj.Tensor, ...]:
            noise = aj.randn(4, 3)
            loss = F.cross_entropy(model(x) + noise, y)
            return loss.detach(), aj.rand(2), aj.randint(0, 10, (3,)), aj.randperm(5)

        def between(k: int) -> None:
            aj.rand(k + 1)

        return Program(step, batches(3), [default_generator._state], between)

    agree(make, captures=1)


def test_state_updated_while_results_are_differentiated_outside() -> None:
    def make() -> Program:
        model = aj.nn.Sequential(aj.nn.Linear(5, 6), aj.nn.BatchNorm1d(6), aj.nn.Dropout(0.3), aj.nn.Linear(6, 3))
        state = [*model.parameters(), *model.buffers()]

        def forward(x: aj.Tensor) -> aj.Tensor:
            return model(x)

        return Program(forward, [(x,) for x, _ in batches(3)], state)

    def trained(compiled: bool) -> list[np.ndarray]:
        aj.manual_seed(1)
        program = make()
        forward = aj.jit(program.function) if compiled else program.function
        optimiser = aj.optim.SGD([t for t in program.state if t.requires_grad], lr=0.1)
        for (x,) in program.calls:
            optimiser.zero_grad()
            (forward(x) ** 2).mean().backward()
            optimiser.step()
        return [t.detach().numpy().copy() for t in program.state]

    for a, b in zip(trained(False), trained(True), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)


def test_a_learning_rate_schedule_never_captures_again() -> None:
    def make() -> Program:
        model = mlp()
        optimiser = aj.optim.SGD(model.parameters(), lr=0.1)
        scheduler = aj.optim.lr_scheduler.StepLR(optimiser, step_size=3, gamma=0.9)

        def step(x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
            optimiser.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimiser.step()
            return loss.detach()

        return Program(step, batches(50), list(model.parameters()), lambda k: scheduler.step() if k else None)

    agree(make, captures=1)


def test_backward_and_update_as_two_steps() -> None:
    model = mlp()
    optimiser = aj.optim.Adam(model.parameters(), lr=0.01)
    twin = mlp()
    twin.load_state_dict(model.state_dict())
    reference = aj.optim.Adam(twin.parameters(), lr=0.01)

    def losses(m: aj.nn.Module, x: aj.Tensor, y: aj.Tensor) -> None:
        m.zero_grad()
        F.cross_entropy(m(x), y).backward()

    backward = aj.jit(lambda x, y: losses(model, x, y))
    update = aj.jit(lambda: optimiser.step())
    for k, (x, y) in enumerate(batches(12)):
        backward(x, y)
        losses(twin, x, y)
        if k % 5 == 4:
            norms = [p.grad.norm().item() for p in model.parameters()]
            kept = [p.grad for p in model.parameters()] if k == 9 else []
            assert len(norms) == 4
        update()
        reference.step()
        for a, b in zip(model.parameters(), twin.parameters(), strict=True):
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=2e-4, atol=1e-6)
    assert len(kept) == 4
    assert backward.stats()["captures"] == 1, backward.explain()
    assert update.stats()["captures"] == 1, update.explain()
    assert update.stats()["native_calls"] >= 5


def test_a_gradient_keeps_its_place_when_others_are_replaced_between_steps() -> None:
    w, v = (aj.tensor(values, requires_grad=True) for values in ([1.0, 2.0], [3.0, 4.0]))

    @aj.jit
    def first(x: aj.Tensor) -> None:
        v.grad = None
        (w * v * x).sum().backward()

    @aj.jit
    def second(x: aj.Tensor) -> None:
        w.grad = None
        (w * v * x).sum().backward()

    for _ in range(3):
        for _ in range(2):
            first(aj.ones(2))
        second(aj.ones(2))
    assert (w.grad.tolist(), v.grad.tolist()) == ([3.0, 4.0], [2.0, 4.0])


def test_gradients_zeroed_in_place_and_assigned() -> None:
    def make() -> Program:
        model = mlp()
        optimiser = aj.optim.SGD(model.parameters(), lr=0.1)

        def step(x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
            optimiser.zero_grad(set_to_none=False)
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            model[0].bias.grad = model[0].bias.grad * 0.5 + 1.0
            model[2].weight.grad.mul_(2.0)
            optimiser.step()
            model[2].bias.grad = None
            return loss.detach()

        return Program(step, batches(5), list(model.parameters()))

    agree(make)


MODELS: dict[str, Callable[[], tuple[aj.nn.Module, Callable[[], aj.Tensor]]]] = {
    "gru": lambda: (aj.nn.GRU(4, 6, batch_first=True), lambda: aj.randn(3, 5, 4, dtype=aj.float64)),
    "lstm": lambda: (aj.nn.LSTM(4, 6, num_layers=2), lambda: aj.randn(5, 3, 4, dtype=aj.float64)),
    "transformer": lambda: (
        aj.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True),
        lambda: aj.randn(2, 5, 8, dtype=aj.float64),
    ),
    "embedding": lambda: (
        aj.nn.Sequential(aj.nn.Embedding(7, 4), aj.nn.LayerNorm(4), aj.nn.GELU(), aj.nn.Linear(4, 2)),
        lambda: aj.randint(0, 7, (3, 5)),
    ),
    "batch norm": lambda: (
        aj.nn.Sequential(aj.nn.Linear(4, 6), aj.nn.BatchNorm1d(6), aj.nn.ReLU(), aj.nn.Linear(6, 2)),
        lambda: aj.randn(8, 4, dtype=aj.float64),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_train_alike(name: str) -> None:
    def make() -> Program:
        model, batch = MODELS[name]()
        model.double()  # Adam divides by the gradient's size: gradients that are only rounding must stay below eps
        optimiser = aj.optim.AdamW(model.parameters(), lr=0.01)

        def step(x: aj.Tensor) -> aj.Tensor:
            optimiser.zero_grad()
            found = model(x)
            found = found[0] if isinstance(found, tuple) else found
            loss = (found**2).mean()
            loss.backward()
            aj.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimiser.step()
            return loss.detach()

        return Program(step, [(batch(),) for _ in range(3)], [*model.parameters(), *model.buffers()])

    agree(make, captures=1)
