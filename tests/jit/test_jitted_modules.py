"""A compiled module is a module: whatever is done with the module can be done with it, and means the same."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import nn


class Scaled(nn.Module):
    """Plain attributes, a buffer, a parameter, a child, a mode and methods of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
        self.memory = nn.Parameter(aj.ones(4))
        self.factor = 2.0
        self.frozen = False

    def forward(self, x: Any) -> Any:
        return self.inner(x) * self.memory * self.factor

    def encode(self, x: Any) -> Any:
        return self.inner[0](x) * self.factor

    def train(self, mode: bool = True) -> Any:
        super().train(mode and not self.frozen)
        return self

    def __len__(self) -> int:
        return 7


@pytest.fixture
def pair() -> tuple[Any, Any]:
    """A module and its compiled form, which have the same parameters."""
    aj.manual_seed(0)
    module = Scaled()
    return module, aj.jit(module)


def _x(rows: int = 5) -> Any:
    return aj.tensor(np.linspace(-1, 1, rows * 3).reshape(rows, 3), dtype=aj.float32)


def test_it_is_a_module_of_the_class(pair: tuple[Any, Any]) -> None:
    module, fast = pair
    assert isinstance(fast, nn.Module)
    assert isinstance(fast, Scaled)
    assert len(fast) == 7
    assert list(fast.state_dict()) == list(module.state_dict())
    assert [p is q for p, q in zip(fast.parameters(), module.parameters(), strict=True)] == [True] * 5
    assert [type(m).__name__ for m in fast.modules()][1:] == [type(m).__name__ for m in module.modules()][1:]


def test_assigned_to_a_module_it_is_a_child(pair: tuple[Any, Any]) -> None:
    module, fast = pair

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = fast
            self.head = nn.Linear(4, 1)

        def forward(self, x: Any) -> Any:
            return self.head(self.net(x))

    outer = Outer()
    names = [name for name, _ in outer.named_parameters()]
    assert [f"net.{name}" for name, _ in module.named_parameters()] == names[: len(names) - 2]
    assert set(outer.state_dict()) >= {"net.memory", "net.inner.1.running_mean", "head.weight"}
    outer.eval()
    assert not any(m.training for m in module.modules())
    outer.load_state_dict({name: aj.zeros_like(t) for name, t in outer.state_dict().items()})
    assert float(module.memory.sum()) == 0
    assert aj.jit(outer)(_x()).shape == (5, 1)


def _trained(make: Callable[[Any], Any], steps: int = 4) -> tuple[list[float], list[Any]]:
    aj.manual_seed(0)
    module = Scaled()
    call = make(module)
    optimizer = aj.optim.SGD(call.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = call(_x()).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.detach().numpy() for p in module.parameters()]


def test_it_is_trained_as_the_module_is() -> None:
    losses, weights = _trained(lambda m: m)
    for make in (aj.jit, aj.compile):
        found = _trained(make)
        np.testing.assert_allclose(found[0], losses, rtol=1e-5)
        for a, b in zip(found[1], weights, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


CHANGES: list[Callable[[Any], Any]] = [
    lambda m: setattr(m, "factor", 3.0),
    lambda m: m.eval(),
    lambda m: m.train(),
    lambda m: m.double().float(),
    lambda m: m.requires_grad_(False),
    lambda m: m.inner[0].register_forward_hook(lambda module, given, result: result + 1),
    lambda m: m.register_forward_hook(lambda module, given, result: result * 2),
    lambda m: m.register_forward_pre_hook(lambda module, given: (given[0] + 1,)),
    lambda m: setattr(m, "memory", nn.Parameter(2 * aj.ones(4))),
    lambda m: setattr(m, "inner", nn.Linear(3, 4)),
    lambda m: m.load_state_dict({k: v * 0.5 for k, v in m.state_dict().items()}),
    lambda m: m.apply(lambda part: None),
    lambda m: m.register_buffer("more", aj.ones(2)),
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("through", [0, 1])
def test_a_change_of_one_is_a_change_of_the_other(
    pair: tuple[Any, Any], change: Callable[[Any], Any], through: int
) -> None:
    module, fast = pair
    fast.eval()
    fast(_x())
    aj.manual_seed(1)
    change(pair[through])
    assert module.state_dict().keys() == fast.state_dict().keys()
    assert fast.training is module.training
    twin = copy.deepcopy(module)
    state = aj.get_rng_state()
    expected = twin(_x())
    aj.set_rng_state(state)
    np.testing.assert_allclose(fast(_x()).detach().numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_what_the_class_overrides_is_overridden(pair: tuple[Any, Any]) -> None:
    module, fast = pair
    fast.frozen = True
    fast.train()
    assert not module.training
    np.testing.assert_allclose(fast.encode(_x()).detach().numpy(), module.encode(_x()).detach().numpy())


def test_a_copy_has_weights_and_steps_of_its_own(pair: tuple[Any, Any]) -> None:
    module, fast = pair
    fast.eval()
    before = fast(_x())
    for made in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
        assert isinstance(made, Scaled)
        assert made.memory is not module.memory
        with aj.no_grad():
            made.memory.zero_()
        assert float(made(_x()).abs().sum()) == 0
        assert made.stats()["captures"] == 1
    assert aj.equal(fast(_x()), before)
    shallow = copy.copy(fast)
    assert shallow.memory is module.memory


def test_saved_weights_fit_both(pair: tuple[Any, Any]) -> None:
    _, fast = pair
    file = io.BytesIO()
    aj.save(fast.state_dict(), file)
    file.seek(0)
    other = Scaled()
    other.load_state_dict(aj.load(file))
    assert aj.equal(other.inner[0].weight, fast.inner[0].weight)


def test_it_tells_about_its_steps(pair: tuple[Any, Any]) -> None:
    module, fast = pair
    fast.eval()
    fast(_x())
    assert fast.stats()["captures"] == 1
    assert "1 capture" in fast.explain()
    assert "matmul" in fast.show("graph")
    assert isinstance(fast.memory, nn.Parameter)  # the module's own names go before
    assert not hasattr(fast, "nothing")
    assert not hasattr(module, "stats")


def test_compiled_twice_is_compiled_once(pair: tuple[Any, Any]) -> None:
    module, fast = pair
    again = aj.jit(fast)
    assert again.memory is module.memory
    again.eval()
    assert type(again) is type(fast)
    assert aj.equal(again(_x()), fast(_x()))


def test_classes_that_keep_book_of_their_subclasses_do_not_see_it() -> None:
    seen: list[str] = []

    class Meta(type):
        def __init__(cls, *given: Any) -> None:
            super().__init__(*given)
            seen.append(cls.__name__)

    class Listed(nn.Module, metaclass=Meta):
        def __init_subclass__(cls, *, key: str) -> None:
            seen.append(key)

        def forward(self, x: Any) -> Any:
            return x + 1

    known = list(seen)
    fast = aj.jit(Listed())
    assert float(fast(aj.ones(()))) == 2
    assert seen == known


def test_a_method_of_a_module_is_compiled_as_before() -> None:
    class Decorated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(aj.ones(3))

        @aj.jit
        def forward(self, x: Any) -> Any:
            return x * self.w

    layer = Decorated()
    assert aj.equal(layer(aj.ones(3)), aj.ones(3))
    assert layer.forward.stats()["captures"] == 1
    assert [name for name, _ in layer.named_parameters()] == ["w"]


def test_compile_hands_its_weights_out_under_torchs_names_and_tells_about_its_steps(pair: tuple[Any, Any]) -> None:
    module, _ = pair
    compiled = aj.compile(module)
    compiled.eval()
    assert not module.training
    compiled(_x())
    assert set(compiled.state_dict()) == {f"_orig_mod.{name}" for name in module.state_dict()}
    assert "1 capture" in compiled.explain()
    compiled.factor = 3.0
    assert module.factor == 3.0
