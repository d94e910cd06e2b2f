"""Passes through nodes of native calls: what is computed around a compiled module is differentiated together with it.

A pass is the engine's at first, where the node's rule is a step, and one native call when it has come often: both give
gradients that are what eager mode gives, laid out as there.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import nn
from autojit.debug import explain_backward
from autojit.dispatch.awaited_kernels import awaited
from autojit.nn import functional as F
from tests.jit.test_known_passes import AtOnce, by_the_engine
from tests.jit.test_known_passes import passes as passes

CALLS = 7


class Two(nn.Module):
    """A module with two results, one of which is a view of a leaf's memory turned around."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 6), nn.Parameter(aj.ones(6, 4))

    def forward(self, x: Any) -> Any:
        h = self.a(x).relu()
        return h @ self.b, (h * h).sum(1)


class Noisy(nn.Module):
    """It draws, also what its second derivative depends on, and counts what it has drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 6), nn.Linear(6, 4)
        self.register_buffer("drawn", aj.zeros(()))

    def forward(self, x: Any) -> Any:
        h = F.dropout(self.a(x).tanh(), 0.4)
        noise = aj.randn(h.shape, dtype=h.dtype)
        self.drawn.add_(noise.sum())
        return self.b(h * (1 + noise)).sigmoid()


MODULES: dict[str, Callable[[], Any]] = {
    "layers": lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)),
    "norms": lambda: nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 4)),
    "batches": lambda: nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 4)),
    "images": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 2, 2)),
        nn.Conv2d(1, 3, 2, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.LazyLinear(4),
    ),
    "attention": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 2)), nn.TransformerEncoderLayer(2, 1, 4, 0.0, batch_first=True), nn.Flatten()
    ),
    "two results": Two,
    "draws": Noisy,
    "scalars": lambda: nn.Sequential(nn.Linear(4, 8), nn.Softplus(), nn.Linear(8, 4), nn.Softmax(-1)),
}


def _first(y: Any) -> Any:
    return y[0] if isinstance(y, tuple) else y


def _all(y: Any) -> tuple[Any, ...]:
    return y if isinstance(y, tuple) else (y,)


AROUND: dict[str, Callable[[Any, Any, Any], Any]] = {  # the module, an input, weights outside of it
    "a loss behind it": lambda f, x, w: F.mse_loss(_first(f(x)), x),
    "ops before it": lambda f, x, w: _first(f((x @ w).tanh())).square().mean(),
    "twice": lambda f, x, w: (_first(f(_first(f(x)))) * w.sum()).sum(),
    "a sum alone": lambda f, x, w: _first(f(x)).sum(),
    "pieces": lambda f, x, w: sum((part.exp().sum() for part in _first(f(x)).split(2, 1)), aj.zeros(())),
    "turned": lambda f, x, w: (_first(f(x)).t() @ x).square().sum(),
    "both results": lambda f, x, w: sum(t.square().mean() for t in _all(f(x))),
    "masked": lambda f, x, w: aj.where(x > 0, _first(f(x)), x * w.sum()).mean(),
}


def _trained(name: str, around: str, jit: Callable[[Any], Any], is_double: bool = False) -> list[Any]:
    """Losses, gradients with their strides, parameters and buffers of some steps."""
    aj.manual_seed(0)
    module, w = MODULES[name](), aj.randn(4, 4)
    module(aj.ones(3, 4))  # which makes lazy layers
    if is_double:
        module, w = module.double(), w.double()
    w.requires_grad_()
    leaves = [*module.parameters(), w]
    optimizer = aj.optim.SGD(leaves, 0.002, momentum=0.5)
    f, found = jit(module), list[Any]()
    for _ in range(CALLS):
        x = aj.randn(3, 4, dtype=w.dtype)
        optimizer.zero_grad()
        loss = AROUND[around](f, x, w)
        loss.backward()
        found.append(loss.detach().numpy().copy())
        found += [None if p.grad is None else (p.grad.numpy().copy(), p.grad.stride()) for p in leaves]
        optimizer.step()
    return [*found, *(t.detach().numpy().copy() for t in (*leaves, *module.buffers()))]


def _agree(found: list[Any], wanted: list[Any]) -> None:
    for a, b in zip(found, wanted, strict=True):
        if isinstance(b, tuple):
            assert a[1] == b[1], "strides"
            a, b = a[0], b[0]
        if b is None:
            assert a is None
        else:
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("name", MODULES)
def test_the_nodes_rule_is_a_step(name: str, around: str) -> None:
    with awaited.settled():
        _agree(_trained(name, around, aj.jit, True), _trained(name, around, lambda f: f, True))


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("name", MODULES)
def test_the_pass_is_a_native_call(name: str, around: str, passes: AtOnce) -> None:
    wanted = by_the_engine(lambda: _trained(name, around, lambda f: f, True))
    _agree(_trained(name, around, aj.jit, True), wanted)
    assert passes.native, passes.refused


def _model() -> tuple[Any, Any, list[Any]]:
    aj.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4)).double()
    return model, aj.jit(model), list(model.parameters())


def _loss(f: Any, x: Any) -> Any:
    return (f(x) * 2).square().sum()


CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "a parameter written to": lambda m, log: m[0].weight.data.mul_(0.5),
    "a parameter replaced": lambda m, log: setattr(m[0], "weight", nn.Parameter(aj.ones(8, 4, dtype=aj.float64))),
    "other memory": lambda m, log: setattr(m[2].bias, "data", aj.ones(4, dtype=aj.float64)),
    "no gradient": lambda m, log: m[2].weight.requires_grad_(False),
    "a hook of a leaf": lambda m, log: m[0].bias.register_hook(lambda g: log.append(g.clone()) or g * 2),
    "a hook after the sum": lambda m, log: m[0].bias.register_post_accumulate_grad_hook(lambda t: log.append(t.grad)),
    "a hook of a module": lambda m, log: m[1].register_forward_hook(lambda *given: given[2] * 2),
    "another layer": lambda m, log: m.append(nn.Sigmoid()),
    "evaluation": lambda m, log: m.eval(),
    "loaded": lambda m, log: m.load_state_dict({k: v * 0.5 for k, v in m.state_dict().items()}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_between_passes(change: str, passes: AtOnce) -> None:
    found: list[list[Any]] = []
    for is_jitted in (False, True):
        model, f, leaves = _model()
        log: list[Any] = []
        seen = list[Any]()
        for k in range(2 * CALLS):
            if k == CALLS:
                CHANGES[change](model, log)
                leaves = list(model.parameters())
            x = aj.randn(3, 4, dtype=aj.float64, generator=aj.Generator().manual_seed(k))
            run = (lambda g: g()) if is_jitted else by_the_engine
            run(lambda x=x, f=f if is_jitted else model: _loss(f, x).backward())
            seen += [None if p.grad is None else p.grad.numpy().copy() for p in leaves]
        found.append([*seen, *(g.numpy().copy() for g in log)])
    assert passes.native
    _agree(found[1], found[0])


def test_errors_are_the_engines(passes: AtOnce) -> None:
    model, f, _ = _model()
    x = aj.ones(3, 4, dtype=aj.float64)
    for _ in range(3):
        loss = _loss(f, x)
        loss.backward()
    assert passes.native
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
    loss = _loss(f, x)
    with aj.no_grad():
        model[2].weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    loss = _loss(f, x)
    loss.backward(retain_graph=True)
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_a_result_of_several_that_is_left_can_be_differentiated(passes: AtOnce) -> None:
    """Results of a call have histories of their own, as in eager mode, however the pass through one was made."""
    w = aj.ones(3, dtype=aj.float64).requires_grad_()
    both = aj.jit(lambda x: ((x * w).sin().sum(), (x * w * w).sum()))
    x = aj.arange(3.0, dtype=aj.float64)
    for _ in range(3):
        a, b = both(x)
        (a * 2).backward()
        w.grad = None
        (b * 3).backward()
        assert w.grad is not None
        np.testing.assert_allclose(w.grad.numpy(), 6 * x.numpy())
        w.grad = None
        with pytest.raises(RuntimeError, match="second time"):
            (b * 3).backward()
    assert passes.native


class Counting(nn.Module):
    """State of other kinds: a mean over calls, what was seen last, a table of rows that were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("seen", aj.zeros(4))
        self.register_buffer("calls", aj.zeros((), dtype=aj.int64))

    def forward(self, x: Any) -> Any:
        y = self.layer(x)
        if self.training:
            self.calls.add_(1)
            self.seen.mul_(0.9).add_(y.detach().mean(0) * 0.1)
        return y


class Reading(Counting):
    """Its result depends on what it changes."""

    def forward(self, x: Any) -> Any:
        return super().forward(x) * self.seen


STATEFUL: dict[str, Callable[[], Any]] = {
    "a batch norm": MODULES["batches"],
    "one that counts calls": lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, momentum=None), nn.ReLU()),
    "an instance norm": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 2)), nn.InstanceNorm1d(2, track_running_stats=True, affine=True), nn.Flatten()
    ),
    "own state": Counting,
    "state that it reads": Reading,
    "draws": Noisy,
    "dropout": lambda: nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 4), nn.Dropout(0.2)),
    "a spectral norm": lambda: nn.utils.spectral_norm(nn.Linear(4, 4)),
}
BETWEEN: dict[str, Callable[[Any, int], Any]] = {
    "nothing": lambda m, k: None,
    "evaluation": lambda m, k: m.train(k % 3 != 1),
    "loading": lambda m, k: m.load_state_dict({name: t * 0.5 for name, t in m.state_dict().items()}),
    "buffers given": lambda m, k: [
        setattr(m.get_submodule(path), name, b.clone())
        for path, name, b in [(*n.rpartition(".")[::2], b) for n, b in m.named_buffers()]
        if k % 4 == 2
    ],
    "a call that only looks": lambda m, k: m(aj.ones(2, 4)).detach(),
}


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("name", STATEFUL)
def test_calls_that_change_state(name: str, between: str) -> None:
    """Of modules whose results are differentiated outside: native code writes what they change, too."""
    found: list[list[Any]] = []
    for is_jitted in (False, True):
        aj.manual_seed(0)
        module = STATEFUL[name]()
        f, seen = aj.jit(module) if is_jitted else module, list[Any]()
        for k in range(12):
            BETWEEN[between](module, k)
            x, y = aj.randn(3, 4), aj.randn(3, 4)
            module.zero_grad()
            loss = F.mse_loss(f(x), y)
            if name == "state that it reads":
                loss.backward()
                loss = F.mse_loss(f(y), x)
            else:
                loss = loss + F.mse_loss(f(y), x)  # two calls before a pass, as a discriminator's
            loss.backward()
            seen += [loss.item(), *(None if p.grad is None else p.grad.numpy().copy() for p in module.parameters())]
            seen += [b.numpy().copy() for b in module.buffers()] + [b._version for b in module.buffers()]
        found.append(seen)
    for a, b in zip(found[1], found[0], strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5) if b is not None else None
    if (name, between) == ("a batch norm", "nothing"):
        assert f.stats()["native_calls"] >= 12


@pytest.mark.parametrize("name", ["draws", "dropout", "a batch norm"])
def test_all_derivatives_are_of_what_a_call_has_drawn(name: str, passes: AtOnce) -> None:
    """A penalty on gradients, and passes in another order than the calls; the generator has gone on meanwhile."""
    found: list[list[Any]] = []
    for is_jitted in (False, True):
        aj.manual_seed(0)
        module = STATEFUL[name]().double()
        f, seen = aj.jit(module) if is_jitted else module, list[Any]()
        run = (lambda g: g()) if is_jitted else by_the_engine
        for _ in range(10):
            x = aj.randn(3, 4, dtype=aj.float64).requires_grad_()
            first, second = f(x), f(x * 2)
            aj.randn(7)
            (slope,) = aj.autograd.grad(first.square().sum(), x, create_graph=True)
            module.zero_grad()
            run((slope.square().sum() + first.mean()).backward)
            run((second * 3).sum().backward)
            seen += [first.detach().numpy().copy(), x.grad.numpy().copy()]
            seen += [p.grad.numpy().copy() for p in module.parameters() if p.grad is not None]
        found.append(seen)
    for a, b in zip(found[1], found[0], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)


def test_state_is_as_it_was_after_an_error() -> None:
    """A pass that is refused has not been counted, and the forward call has."""
    module = STATEFUL["a batch norm"]()
    f = aj.jit(module)
    for _ in range(10):
        f(aj.ones(3, 4)).sum().backward()
    before = [b.clone() for b in module.buffers()]
    with pytest.raises(RuntimeError, match="matmul"):
        f(aj.ones(3, 5))
    assert all(bool((a == b).all()) for a, b in zip(before, module.buffers(), strict=True))


def test_two_models_of_one_kind_are_no_others(passes: AtOnce) -> None:
    """What a pass is known by names the call: equal modules with other constants have other derivatives."""
    x = aj.ones(2, 4, dtype=aj.float64)
    for slope in (0.1, 0.3):
        model = nn.Sequential(nn.Linear(4, 4), nn.LeakyReLU(slope)).double()
        f = aj.jit(model)
        for _ in range(3):
            wanted = by_the_engine(lambda m=model: aj.autograd.grad(_loss(m, x), m[0].weight)[0])
            found = aj.autograd.grad(_loss(f, x), model[0].weight)[0]
            np.testing.assert_allclose(found.numpy(), wanted.numpy())


def test_a_model_goes_when_its_last_user_does(passes: AtOnce) -> None:
    model, f, leaves = _model()
    for _ in range(3):
        _loss(f, aj.ones(3, 4, dtype=aj.float64)).backward()
    assert passes.native
    gone = weakref.ref(leaves[0])
    del model, f, leaves
    gc.collect()
    assert gone() is None


def test_it_is_told(passes: AtOnce) -> None:
    _, f, _ = _model()
    for _ in range(3):
        loss = _loss(f, aj.ones(3, 4, dtype=aj.float64))
        loss.backward()
    (line,) = [text for text in explain_backward().splitlines() if f"{loss.grad_fn.source}" in text][-1:] or [""]
    assert "were one native call" in line or not line
