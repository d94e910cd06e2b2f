"""Hooks of all modules, and the hooks and helpers that programs use under their older names."""

from __future__ import annotations

from typing import Any

import pytest

import autojit as aj
import autojit.nn.functional as F
from autojit import nn
from autojit.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)


def test_hooks_of_all_modules_run_before_a_modules_own() -> None:
    seen: list[str] = []
    layer = nn.Linear(1, 1)
    layer.register_forward_hook(lambda *_: seen.append("own"))
    with (
        register_module_forward_pre_hook(lambda module, args: seen.append("before")),
        register_module_forward_hook(lambda module, args, output: output * 2),
        register_module_full_backward_hook(lambda module, grad_input, grad_output: seen.append("backward")),
    ):
        x = aj.ones(1, 1, requires_grad=True)
        y = layer(x)
        y.sum().backward()
    assert seen == ["before", "own", "backward"]
    assert aj.allclose(y, 2 * F.linear(x, layer.weight, layer.bias))
    layer(x)
    assert seen == ["before", "own", "backward", "own"]


def test_a_compiled_step_notices_a_hook_of_all_modules() -> None:
    layer = nn.Linear(1, 1)
    step = aj.jit(lambda x: layer(x))
    x = aj.ones(1, 1)
    plain = [step(x) for _ in range(3)][-1]
    with register_module_forward_hook(lambda module, args, output: output + 1):
        assert aj.allclose(step(x), plain + 1)
    assert aj.allclose(step(x), plain)
    with layer.register_forward_hook(lambda module, args, output: output + 2):
        assert aj.allclose(step(x), plain + 2)
    assert aj.allclose(step(x), plain)


def test_registrations_can_be_watched_and_changed() -> None:
    seen: list[Any] = []
    with (
        register_module_parameter_registration_hook(lambda module, name, p: seen.append(name)),
        register_module_buffer_registration_hook(lambda module, name, b: None if b is None else b + 1),
        register_module_module_registration_hook(lambda module, name, m: nn.Identity()),
    ):
        layer = nn.BatchNorm1d(2)
        model = nn.Sequential(nn.ReLU())
    assert seen == ["weight", "bias", "weight", "bias"]  # first None, then the parameter
    assert float(layer.num_batches_tracked) == 0  # reset after registration
    assert type(model[0]) is nn.Identity


def test_state_dicts_have_hooks_under_older_names() -> None:
    layer = nn.Linear(1, 1)
    layer._register_state_dict_hook(lambda module, state, prefix, metadata: {"only": state["weight"]})
    assert list(layer.state_dict()) == ["only"]
    other = nn.Linear(1, 1)

    def rename(state: Any, prefix: str, *_: Any) -> None:
        state[prefix + "weight"] = state.pop(prefix + "w")

    other._register_load_state_dict_pre_hook(rename)
    other.load_state_dict({"w": aj.ones(1, 1), "bias": aj.zeros(1)})
    assert other.weight.item() == 1
    with pytest.warns(FutureWarning, match="Positional args"):
        assert "p.weight" in nn.Linear(1, 1).state_dict({}, "p.")


def test_a_convolution_computes_with_another_weight() -> None:
    class Scaled(nn.Conv2d):
        def forward(self, input: aj.Tensor) -> aj.Tensor:
            return self._conv_forward(input, self.weight * 2, self.bias)

    layer = Scaled(2, 3, 3, padding=1, padding_mode="reflect", bias=False)
    x = aj.randn(1, 2, 5, 5)
    plain = nn.Conv2d.forward(layer, x)
    assert aj.allclose(layer(x), 2 * plain, atol=1e-6)


def test_bags_over_an_existing_table() -> None:
    table = aj.arange(6.0).reshape(3, 2)
    bag = nn.EmbeddingBag.from_pretrained(table, mode="sum")
    assert not bag.weight.requires_grad
    assert bag(aj.tensor([[0, 2]])).tolist() == [[4.0, 6.0]]


def test_tables_of_a_module_hold_the_hooks_themselves() -> None:
    layer = nn.Linear(2, 2)
    seen: list[str] = []
    before = layer.register_forward_pre_hook(lambda module, args: seen.append("before"))
    by_name = layer.register_forward_pre_hook(lambda module, args, kwargs: seen.append("by name"), with_kwargs=True)
    always = layer.register_forward_hook(lambda module, args, output: seen.append("always"), always_call=True)
    layer(aj.ones(1, 2))
    with pytest.raises(RuntimeError):
        layer(aj.ones(1, 3))
    assert seen == ["before", "by name", "always"] * 2
    assert all(callable(hook) for table in (layer._forward_pre_hooks, layer._forward_hooks) for hook in table.values())
    assert before.hooks_dict_ref() is layer._forward_pre_hooks and len(layer._forward_hooks_always_called) == 1
    for handle in (before, by_name, always):
        handle.remove()
    tables = (layer._forward_pre_hooks, layer._forward_pre_hooks_with_kwargs, layer._forward_hooks_always_called)
    assert not any(tables)


def test_a_public_hook_of_a_state_may_not_replace_it() -> None:
    layer = nn.Linear(2, 2)
    layer.register_state_dict_post_hook(lambda module, state, prefix, metadata: {})
    with pytest.raises(RuntimeError, match="state_dict post-hook must return None"):
        layer.state_dict()
