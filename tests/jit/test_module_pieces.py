"""Modules that a step calls which runs line by line: each is compiled by itself, all else is as without ``jit``."""

from __future__ import annotations

import copy
import gc
import random
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import nn
from autojit.jit import module_pieces
from autojit.nn import functional as F

STEPS = 34


class Coin(nn.Module):
    """A module that no step serves often: what it is depends on a text of what it computes."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def forward(self, x: Any) -> Any:
        y = self.inner(x)
        return y * 2 if "e" in repr(y.sum()) else y


class Several(nn.Module):
    """Two inputs by name, three results in a dictionary, one of which is none."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Any, *, other: Any = None, scale: float = 1.0) -> Any:
        h = self.a(x) + self.b(x if other is None else other) * scale
        return {"y": h.relu(), "none": None, "parts": (h.sum(), 3)}


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(2, 4, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.rnn(x.reshape(x.shape[0], 2, 2))[0][:, -1]


MODULES: dict[str, Callable[[], Any]] = {
    "layers": lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)),
    "dropout and batch norm": lambda: nn.Sequential(
        nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 4)
    ),
    "recurrent": Recurrent,
    "one that runs line by line": Coin,
    "nests": Several,
}
CHANGES: dict[str, Callable[[Any, int, list[Any]], Any]] = {
    "nothing": lambda m, k, log: None,
    "evaluation": lambda m, k, log: m.train(k % 5 != 3),
    "loading": lambda m, k, log: k % 6 or m.load_state_dict({n: t * 0.9 for n, t in m.state_dict().items()}),
    "other parameters": lambda m, k, log: k % 9 == 4 and _replace(m),
    "frozen": lambda m, k, log: next(iter(m.parameters())).requires_grad_(k % 7 < 4),
    "hooks": lambda m, k, log: k == 12 and m.register_forward_hook(lambda _, x, y: log.append(len(x))),
    "gradient hooks": lambda m, k, log: (
        k == 12 and next(iter(m.parameters())).register_hook(lambda g: log.append(float(g.sum())))
    ),
    "without gradients": lambda m, k, log: k == 14 and m.requires_grad_(False) and m.requires_grad_(True),
}


def _replace(module: Any) -> None:
    """Another parameter in the place of the first one."""
    path, first = next(iter(module.named_parameters()))
    owner, name = module.get_submodule(path.rpartition(".")[0]), path.rpartition(".")[2]
    setattr(owner, name, nn.Parameter(first.detach() * 0.5))


def _result(y: Any) -> Any:
    return y["y"] + y["parts"][0] if isinstance(y, dict) else y


def _program(module: Any, optimizer: Any) -> Callable[[Any, Any], Any]:
    """A training step that no step serves."""

    def train(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.mse_loss(_result(module(x)), y)
        if "nan" in repr(loss):
            return None
        loss.backward()
        optimizer.step()
        return loss

    return train


def _ran(name: str, change: str, is_jitted: bool) -> tuple[list[Any], Any]:
    aj.manual_seed(0)
    module, log = MODULES[name]().double(), list[Any]()
    optimizer = aj.optim.SGD(module.parameters(), 0.002, momentum=0.9)
    step = _program(module, optimizer)
    step = aj.jit(step) if is_jitted else step
    seen = list[Any]()
    for k in range(STEPS):
        CHANGES[change](module, k, log)
        if change == "other parameters":
            optimizer.param_groups[0]["params"][:] = list(module.parameters())
        rows = 3 + k % 2
        loss = step(aj.randn(rows, 4, dtype=aj.float64), aj.randn(rows, 4, dtype=aj.float64))
        seen.append(loss.item())
        seen += [None if p.grad is None else p.grad.numpy().copy() for p in module.parameters()]
    return [*seen, *(t.detach().numpy() for t in module.state_dict().values()), np.array(log)], step


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", MODULES)
def test_everything_is_as_without_jit(name: str, change: str) -> None:
    wanted, _ = _ran(name, change, False)
    found, step = _ran(name, change, True)
    for a, b in zip(found, wanted, strict=True):
        if b is None:
            assert a is None
        else:
            np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)
    assert "compiled by itself" in step.explain()


def _native(step: Any) -> dict[str, int]:
    return {s.name: s.natives.total() for _, s in step.pieces.modules._steps().values()}


def test_most_of_its_calls_are_native() -> None:
    _, step = _ran("layers", "nothing", True)
    (count,) = _native(step).values()
    assert count > (STEPS - module_pieces.CALLS) // 2
    assert f"{count} native call(s) of {STEPS - module_pieces.CALLS}" in step.explain()


def test_of_one_that_runs_line_by_line_the_modules_inside_are_compiled() -> None:
    step = _ran("one that runs line by line", "nothing", True)[1]
    found = _native(step)
    assert found["Coin"] == 0
    assert found["Sequential"] > 0
    assert "it runs line by line, too" in step.explain()


def _steps_of(program: Callable[[Any], Any], count: int = STEPS) -> Any:
    step = aj.jit(program)
    for _ in range(count):
        step(aj.randn(3, 4))
    return step


def test_derivatives_of_all_orders_lead_through_them() -> None:
    model = MODULES["layers"]().double()

    def penalty(x: Any) -> Any:
        x = x.detach().double().requires_grad_()
        y = model(x)
        (slope,) = aj.autograd.grad(y.square().sum(), x, create_graph=True)
        loss = slope.square().sum() + y.mean()
        return "nan" in repr(loss), aj.autograd.grad(loss, list(model.parameters()), retain_graph=True), loss

    step = aj.jit(penalty)
    for k in range(STEPS):
        x = aj.randn(3, 4, generator=aj.Generator().manual_seed(k))
        for a, b in zip(step(x)[1], penalty(x)[1], strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-9, atol=1e-12)
    assert sum(_native(step).values())


def test_modules_made_in_a_call_are_let_be() -> None:
    def program(x: Any) -> Any:
        made = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        return "nan" in repr(copy.deepcopy(made)(x) + made(x))

    assert not _native(_steps_of(program))


def test_a_layer_is_no_piece() -> None:
    layer = nn.Linear(4, 4)
    assert not _native(_steps_of(lambda x: "nan" in repr(layer(x))))


def test_errors_name_the_module_and_leave_state() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    step = _steps_of(lambda x: "nan" in repr(model(x)))
    before = model[1].running_mean.clone()
    with pytest.raises(RuntimeError, match="matmul") as found:
        step(aj.randn(3, 5))
    with pytest.raises(RuntimeError, match="matmul") as wanted:
        model(aj.randn(3, 5))
    assert str(found.value).splitlines()[:4] == str(wanted.value).splitlines()[:4]
    assert bool((before == model[1].running_mean).all())
    step(aj.randn(3, 4))


def test_who_looks_at_ops_or_compares_calls_has_no_pieces() -> None:
    model = MODULES["layers"]()

    def program(x: Any) -> Any:
        return "nan" in repr(model(x))

    with aj.eager():
        assert not _native(_steps_of(program))
    with pytest.warns(UserWarning, match="Anomaly"), aj.autograd.detect_anomaly():
        assert not _native(_steps_of(program))
    aj.use_deterministic_algorithms(True)
    try:
        assert not _native(_steps_of(program))
    finally:
        aj.use_deterministic_algorithms(False)


def test_a_module_goes_when_its_last_user_does() -> None:
    held = [MODULES["layers"]()]
    step = _steps_of(lambda x: "nan" in repr(held[0](x)))
    assert _native(step)
    gone = weakref.ref(held[0])
    held[0] = MODULES["layers"]()
    step(aj.randn(3, 4))
    gc.collect()
    assert gone() is None


def test_jitted_functions_inside_run_as_they_are_written() -> None:
    """What a user compiles by itself runs inside a call line by line as it did; modules in it are pieces."""
    model = MODULES["layers"]()
    inner = aj.jit(lambda x: model(x) * 2)
    step = _steps_of(lambda x: "nan" in repr(inner(x)))
    assert inner.stats()["captures"] == 0
    assert sum(_native(step).values())


def test_in_threads() -> None:
    """Two threads run one step line by line, with one piece."""
    from concurrent.futures import ThreadPoolExecutor

    model = MODULES["layers"]().double()

    def program(x: Any) -> Any:
        y = model(x)
        return "nan" in repr(y), y

    step = _steps_of(lambda x: program(x.double()))
    given = [aj.randn(3, 4, dtype=aj.float64) for _ in range(40)]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(step, given))
    for (_, y), x in zip(found, given, strict=True):
        np.testing.assert_allclose(y.detach().numpy(), model(x).detach().numpy(), rtol=1e-12)


def test_optimisers_and_passes_inside_are_native_too() -> None:
    """What eager mode compiles of itself is compiled in calls line by line as well."""
    model = MODULES["layers"]()
    optimizer = aj.optim.Adam(model.parameters(), 0.01)
    train = aj.jit(_program(model, optimizer))
    until = time.monotonic() + 60
    while time.monotonic() < until:
        train(aj.ones(3, 4), aj.ones(3, 4))
        time.sleep(0.001)  # its step is compiled beside
        if optimizer._known_steps.native is not None and optimizer._known_steps.native.natives.total():
            break
    assert optimizer._known_steps.native is not None
    assert optimizer._known_steps.native.natives.total()


class Skipped(nn.Module):
    """Left out by chance."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(layer for _ in range(layers) for layer in (nn.Linear(4, 4), nn.GELU())))

    def forward(self, x: Any) -> Any:
        return x if random.random() < 0.25 else self.layers(x)


@pytest.mark.parametrize("layers", [1, 40])
def test_small_modules_that_are_given_what_they_draw_are_let_be(layers: int) -> None:
    """Larger ones are not; either way they draw what they would."""
    found = []
    for is_jitted in (False, True):
        aj.manual_seed(0)
        random.seed(0)
        model = Skipped(layers).double()

        def program(x: Any, model: Any = model) -> Any:
            y = model(x)
            return "nan" in repr(y), y.detach()

        step = aj.jit(program) if is_jitted else program
        found.append([step(aj.randn(3, 4, dtype=aj.float64))[1].numpy() for _ in range(90)])
        found[-1].append(np.array(random.random()))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)
    assert ("Skipped is compiled by itself" in step.explain()) is True
    assert ("it runs line by line, too" in step.explain()) == (layers == 1)
