"""Modules called with other tensors: same results, gradients to those tensors, modules unchanged; ensembles by vmap."""

from __future__ import annotations

import numpy as np
import pytest

import autojit as aj
from autojit.func import functional_call, grad, stack_module_state, vmap


def network() -> aj.nn.Sequential:
    return aj.nn.Sequential(aj.nn.Linear(3, 4), aj.nn.Tanh(), aj.nn.Linear(4, 2))


def test_given_tensors_take_the_parameters_places() -> None:
    one, other, x = network(), network(), aj.randn(5, 3)
    before = dict(one.named_parameters())
    found = functional_call(one, dict(other.named_parameters()), (x,))
    np.testing.assert_array_equal(found.detach().numpy(), other(x).detach().numpy())
    assert all(p is before[name] for name, p in one.named_parameters())


def test_parameters_return_when_the_call_fails() -> None:
    layer = aj.nn.Linear(3, 2)
    weight = layer.weight
    with pytest.raises(RuntimeError):
        functional_call(layer, {"weight": aj.ones(2, 7)}, aj.ones(3))
    assert layer.weight is weight


@pytest.mark.parametrize("is_compiled", [False, True])
def test_gradients_reach_the_given_tensors(is_compiled: bool) -> None:
    model, x = network(), aj.randn(5, 3)
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(parameters: dict[str, aj.Tensor], x: aj.Tensor) -> aj.Tensor:
        return functional_call(model, parameters, x).square().sum()

    gradient = aj.jit(grad(loss)) if is_compiled else grad(loss)
    model(x).square().sum().backward()
    for _ in range(3):
        found = gradient(parameters, x)
        for name, p in model.named_parameters():
            assert p.grad is not None
            np.testing.assert_allclose(found[name].numpy(), p.grad.numpy(), rtol=1e-5, atol=1e-6)
    doubled = {name: 2 * p for name, p in parameters.items()}
    assert not np.allclose(gradient(doubled, x)["2.bias"].numpy(), gradient(parameters, x)["2.bias"].numpy())


def test_an_ensemble_is_one_batched_call() -> None:
    models, x = [network() for _ in range(3)], aj.randn(5, 3)
    parameters, buffers = stack_module_state(models)
    assert buffers == {}
    assert all(p.requires_grad and p.is_leaf for p in parameters.values())
    found = vmap(lambda p: functional_call(models[0], p, x))(parameters)
    expected = np.stack([model(x).detach().numpy() for model in models])
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-5, atol=1e-6)


def test_a_tied_weight_stands_for_all_its_names() -> None:
    class Tied(aj.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = aj.nn.Linear(2, 2, bias=False)
            self.second = aj.nn.Linear(2, 2, bias=False)
            self.second.weight = self.first.weight

        def forward(self, x: aj.Tensor) -> aj.Tensor:
            return self.second(self.first(x))

    model, x = Tied(), aj.ones(2)
    both = functional_call(model, {"first.weight": 2 * aj.eye(2)}, x)
    one = functional_call(model, {"first.weight": 2 * aj.eye(2)}, x, tie_weights=False)
    np.testing.assert_array_equal(both.numpy(), [4.0, 4.0])
    np.testing.assert_allclose(one.detach().numpy(), (2 * model.first.weight.sum(1)).detach().numpy(), rtol=1e-6)


def test_assigned_buffers_go_into_the_dict() -> None:
    class Counting(aj.nn.Module):
        count: aj.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", aj.tensor(0))

        def forward(self) -> None:
            self.count = self.count + 1

    model, state = Counting(), {"count": aj.tensor(5)}
    functional_call(model, state)
    assert (model.count.item(), state["count"].item()) == (0, 6)


def test_errors() -> None:
    layer = aj.nn.Linear(2, 2)
    with pytest.raises(RuntimeError, match="Missing key"):
        functional_call(layer, {"weight": aj.ones(2, 2)}, aj.ones(2), strict=True)
    with pytest.raises(ValueError, match="multiple dictionaries"):
        functional_call(layer, [{"weight": aj.ones(2, 2)}, {"weight": aj.ones(2, 2)}], aj.ones(2))
    with pytest.raises(RuntimeError, match="at least one model"):
        stack_module_state([])
    with pytest.raises(RuntimeError, match="same class"):
        stack_module_state([layer, network()])
    with pytest.raises(RuntimeError, match="same training/eval mode"):
        stack_module_state([layer, aj.nn.Linear(2, 2).eval()])


class Knotted(aj.nn.Module):
    """Has a tensor that is no parameter, one that is only given, and a module that has it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = aj.nn.Linear(1, 1)
        self.kept = aj.ones(1)
        self.tied = self.inner.bias

    def forward(self, x: aj.Tensor) -> aj.Tensor:
        return self.inner(x) * self.kept + self.given + self.tied


@pytest.mark.parametrize("compiled", [False, True])
def test_tensors_that_are_no_parameters_are_given_too(compiled: bool) -> None:
    module, one = Knotted(), aj.ones(1)

    def call(tensors: dict[str, aj.Tensor]) -> aj.Tensor:
        found: aj.Tensor = functional_call(module, tensors, one)
        return found

    tensors = {"inner.weight": aj.ones(1, 1), "kept": one * 3, "given": one * 5, "tied": one * 7}
    assert (aj.jit(call) if compiled else call)(tensors).item() == (1 + 7) * 3 + 5 + 7
    assert not hasattr(module, "given") and module.kept.item() == 1 and module.tied is module.inner.bias
    module.inner.m = module  # a module may have itself: names that are given say the way
    around = {"inner.m.kept": one * 2, "inner.m.inner.weight": aj.zeros(1, 1), "given": one}
    found = functional_call(module, around, one, tie_weights=False)
    assert found.item() == pytest.approx((module.inner.bias * 3 + 1).item())


def test_tensors_that_do_not_fit_the_names_are_errors() -> None:
    module, one = Knotted(), aj.ones(1)
    tied = {"given": one, "tied": one, "inner.bias": one * 2}
    with pytest.raises(ValueError, match=r"multiple values for keys \['inner.bias', 'tied'\]"):
        functional_call(module, tied, one)
    with pytest.raises(RuntimeError, match=r"Unexpected key\(s\): 'given'.\n\tMissing key\(s\): 'inner.weight'."):
        functional_call(module, {"given": one, "tied": one}, one, strict=True)
    with pytest.raises(AttributeError, match="no attribute 'given'"):
        functional_call(module, {}, one)
    with pytest.raises(TypeError, match=r"is not an instance of torch\.Tensor"):
        functional_call(module, {"kept": 3}, one)  # type: ignore[dict-item]
    with pytest.raises(TypeError, match=r"is not an instance of torch\.Tensor"):
        functional_call(module, {"training": one}, one)
