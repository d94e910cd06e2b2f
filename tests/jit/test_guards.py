"""Guards: what a capture baked in never goes silently stale, and ``explain`` says what changed."""

from __future__ import annotations

import functools
import os
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.core.errors import TraceError
from autojit.jit.guards import may_be_changed

FACTOR = 2.0
TABLE = {"scale": 3.0, "names": ["a"]}


def one(value: float = 1.0) -> aj.Tensor:
    return aj.tensor([value])


def test_closures_globals_lists_dicts_and_attributes() -> None:
    global FACTOR
    offsets = [1.0, 2.0]
    settings = SimpleNamespace(bias=0.5, inner=SimpleNamespace(power=2))
    local = 10.0

    @aj.jit
    def step(x: aj.Tensor) -> Any:
        return x * FACTOR + offsets[0] + settings.bias + local + TABLE["scale"] + x**settings.inner.power + len(offsets)

    def expected() -> float:
        power = settings.inner.power
        return 1 * FACTOR + offsets[0] + settings.bias + local + float(TABLE["scale"]) + 1**power + len(offsets)  # type: ignore[arg-type]

    def check(count: int, what: str = "") -> None:
        for _ in range(3):
            assert step(one()).item() == pytest.approx(expected())
        assert step.stats()["captures"] == count, step.explain()
        assert what in step.explain(), step.explain()

    check(1)
    FACTOR = 4.0
    check(2, "global FACTOR: 2.0 -> 4.0")
    offsets[0] = 7.0
    check(3, "offsets")
    offsets.append(1.0)
    check(4)
    settings.bias = 1.5
    check(5, "settings.bias: 0.5 -> 1.5")
    settings.inner.power = 3
    check(6, "power")
    local = 20.0
    check(7, "local: 10.0 -> 20.0")
    TABLE["scale"] = 30.0
    check(8, "TABLE['scale']")
    FACTOR, TABLE["scale"], offsets[:] = 2.0, 3.0, [1.0, 2.0]
    settings.bias, settings.inner.power, local = 0.5, 2, 10.0
    check(8)


def test_guards_name_the_users_line_and_how_to_avoid_it() -> None:
    scale = 1.0
    step = aj.jit(lambda x: x * scale)
    step(one())
    scale = 2.0
    step(one())
    text = step.explain()
    assert "test_guards.py:" in text and "1.0 -> 2.0" in text and "to avoid it" in text


def test_the_advice_is_about_the_reason() -> None:
    """Sizes are left open by themselves; a line that needs Python is to be moved; values are to become tensors."""

    @aj.jit
    def step(x: aj.Tensor, power: Any = 2) -> aj.Tensor:
        if power is None:
            with open(os.devnull) as file:
                return x * len(file.read())
        return x**power

    advice = {"nothing to do": "sizes", "to avoid it": "values", "move that line": "lines"}

    def given() -> set[str]:
        return {what for text, what in advice.items() if text in step.explain()}

    step(aj.ones(3))
    assert given() == set()
    step(aj.ones(4))
    assert given() == {"sizes"}
    step(aj.ones(4), None)
    assert "lines" in given()
    step(aj.ones(4), True)
    assert given() >= {"lines", "values"} and "sizes" not in given()


class Trainer:
    rate = 0.5

    def __init__(self) -> None:
        self.offset = 1.0
        self.weight = one(3.0)
        self.calls_to_helper = 2

    def helper(self, x: aj.Tensor) -> aj.Tensor:
        return x * self.calls_to_helper * self.rate

    @aj.jit
    def step(self, x: aj.Tensor) -> aj.Tensor:
        self.weight += x
        return self.helper(x) + self.offset + self.weight


def test_methods_have_their_own_steps_and_guard_attributes() -> None:
    a, b = Trainer(), Trainer()
    assert a.step(one()).item() == 1 + 1 + 4
    assert a.step(one()).item() == 1 + 1 + 5
    assert b.step(one(2.0)).item() == 2 + 1 + 5
    a.offset = 11.0
    a.calls_to_helper = 4
    assert a.step(one()).item() == 2 + 11 + 6
    Trainer.rate = 1.0
    try:
        assert a.step(one()).item() == 4 + 11 + 7
    finally:
        Trainer.rate = 0.5
    a.weight = one(0.0)
    assert a.step(one()).item() == 2 + 11 + 1


def test_training_mode_and_replaced_parameters() -> None:
    model = aj.nn.Sequential(aj.nn.Linear(4, 4), aj.nn.Dropout(0.5))
    step = aj.jit(model)
    x = aj.ones(3, 4)
    model.eval()
    with aj.no_grad():
        assert np.allclose(step(x).numpy(), model(x).numpy())
        model.train()
        assert (step(x) == 0).any()
        model.eval()
        assert step.stats()["captures"] == 2
        model[0].weight.data = aj.zeros(4, 4)
        assert np.allclose(step(x).numpy(), model[0].bias.detach().numpy())
        model.load_state_dict({k: v * 0 + 1 for k, v in model.state_dict().items()})
        assert np.allclose(step(x).numpy(), 5.0)
        assert step.stats()["captures"] == 2, step.explain()
        model[0].weight = aj.nn.Parameter(aj.zeros(4, 4))
        assert np.allclose(step(x).numpy(), 1.0)
        for k in range(100):
            model[0].bias.data = aj.full((4,), float(k))
            assert step(x)[0, 0].item() == k
    assert step.stats()["captures"] == 3, step.explain()


def test_requires_grad_flips_and_gradients_that_appear() -> None:
    weight = one(2.0)

    @aj.jit
    def step(x: aj.Tensor) -> aj.Tensor:
        return (x * weight).sum()

    assert not step(one()).requires_grad
    weight.requires_grad_()
    step(one(3.0)).backward()
    assert weight.grad.item() == 3.0
    weight.requires_grad_(False)
    assert not step(one()).requires_grad
    x = one().requires_grad_()
    step(x).backward()
    assert x.grad.item() == 2.0


def test_gradient_modes_have_their_own_steps() -> None:
    weight = one(2.0).requires_grad_()
    step = aj.jit(lambda x: x * weight)
    for _ in range(3):
        assert step(one()).requires_grad
        with aj.no_grad():
            assert not step(one()).requires_grad
        with aj.inference_mode():
            assert not step(one()).requires_grad
    assert step.stats()["captures"] == 3


def test_shapes_dtypes_and_baked_arguments() -> None:
    @aj.jit
    def step(x: aj.Tensor, mode: str = "sum", power: int = 1, scale: float = 1.0, flag: bool = False) -> Any:
        y = x**power * scale
        return (y.sum() if mode == "sum" else y.mean()) + (1 if flag else 0)

    assert step(aj.ones(3)).item() == 3
    assert step(aj.ones(4)).item() == 4
    assert "f32[3] -> f32[4]" in step.explain()
    assert step(aj.ones(3, dtype=aj.float64)).dtype is aj.float64
    assert step(aj.ones(3), "mean").item() == 1
    assert step(aj.full((3,), 2.0), "sum", 3).item() == 24
    assert step(aj.ones(3), flag=True).item() == 4
    assert step(aj.ones(3), flag=1).item() == 4


def test_a_second_value_of_a_float_argument_makes_it_an_input() -> None:
    step = aj.jit(lambda x, t: x * t)
    for k in range(20):
        assert step(one(), k * 0.1).item() == pytest.approx(k * 0.1)
    assert step.stats()["captures"] == 2


def test_partial_functions_callable_objects_and_nested_jit() -> None:
    inner_scale = 2.0

    @aj.jit
    def inner(x: aj.Tensor) -> aj.Tensor:
        return x * inner_scale

    class Adder:
        amount = 1.0

        def __call__(self, x: aj.Tensor) -> aj.Tensor:
            return inner(x) + self.amount

    adder = Adder()
    step = aj.jit(adder)
    assert step(one()).item() == 3
    inner_scale = 5.0
    assert step(one()).item() == 6
    adder.amount = 2.0
    assert step(one()).item() == 7
    options = {"k": 1.0}
    partial = aj.jit(functools.partial(lambda o, x, y=1.0: x * o["k"] * y, options, y=3.0))
    assert partial(one()).item() == 3
    options["k"] = 2.0
    assert partial(one()).item() == 6


def test_optimizer_options_that_change_the_program() -> None:
    weight = aj.nn.Parameter(one(1.0))
    optimiser = aj.optim.SGD([weight], lr=1.0)

    @aj.jit
    def step() -> None:
        optimiser.zero_grad()
        (weight * 1.0).sum().backward()
        optimiser.step()

    step()
    assert weight.item() == 0.0
    optimiser.param_groups[0]["weight_decay"] = 1.0
    weight.data.fill_(2.0)
    step()
    assert weight.item() == 2 - 1 - 2
    other = aj.nn.Parameter(one(5.0))
    optimiser.add_param_group({"params": [other]})
    step()
    assert step.stats()["captures"] == 3
    state = optimiser.state_dict()
    state["param_groups"][0]["lr"] = 0.0
    optimiser.load_state_dict(state)
    before = weight.item()
    step()
    assert weight.item() == before


def test_recursion_and_a_global_that_is_rebound_to_a_new_tensor() -> None:
    def power(x: aj.Tensor, n: int) -> aj.Tensor:
        return x if n == 1 else x * power(x, n - 1)

    step = aj.jit(power)
    assert step(one(2.0), 5).item() == 32
    table = [one(1.0)]
    read = aj.jit(lambda x: x + table[0])
    for k in range(4):
        table[0] = one(float(k))
        assert read(one()).item() == 1 + k


def test_an_object_argument_is_baked_in_and_guarded() -> None:
    model = aj.nn.Linear(2, 1)
    config = SimpleNamespace(scale=2.0)
    step = aj.jit(lambda m, c, x: m(x) * c.scale)
    x = aj.ones(1, 2)
    with aj.no_grad():
        for scale in (2.0, 3.0):
            config.scale = scale
            assert step(model, config, x).item() == pytest.approx(model(x).item() * scale)
        other = aj.nn.Linear(2, 1)
        assert step(other, config, x).item() == pytest.approx(other(x).item() * 3)


def test_what_a_decorated_method_reads_and_assigns_is_seen() -> None:
    class Average:
        def __init__(self) -> None:
            self.count, self.rate, self.kept = 0, 0.5, {"mean": aj.zeros(2)}

        @aj.no_grad()
        def update(self, x: aj.Tensor) -> None:
            self.count += 1
            self.kept["mean"] = (1 - self.rate) * self.kept["mean"] + self.rate * x

    average = Average()

    @aj.jit
    def step(x: aj.Tensor) -> aj.Tensor:
        average.update(x)
        return x * 2

    for _ in range(3):
        step(aj.ones(2))
    assert average.count == 3
    assert average.kept["mean"].tolist() == [0.875, 0.875]
    average.rate = 1.0
    step(aj.full((2,), 3.0))
    assert average.kept["mean"].tolist() == [3.0, 3.0]


@pytest.mark.parametrize("where", ["tensor", "accumulated", "forward", "backward"])
def test_hooks_that_a_step_leaves_behind_are_refused_and_taken_back(where: str) -> None:
    seen, weight, layer = [], aj.ones(2, requires_grad=True), aj.nn.Linear(2, 2)
    register = {
        "tensor": weight.register_hook,
        "accumulated": weight.register_post_accumulate_grad_hook,
        "forward": layer.register_forward_hook,
        "backward": layer.register_full_backward_hook,
    }[where]

    def run(x: aj.Tensor, is_removed: bool) -> None:
        handle = register(lambda *given: seen.append(where))
        (weight * layer(x)).sum().backward()
        if is_removed:
            handle.remove()

    with pytest.raises(TraceError, match="registers a hook"):
        aj.jit(lambda x: run(x, False))(aj.ones(1, 2))
    assert not seen
    step = aj.jit(lambda x: run(x, True))
    for count in (1, 2, 3):
        step(aj.ones(1, 2))
        assert seen == [where] * count


class _Names(list[str]):
    pass


@pytest.mark.parametrize("depth", range(3))
def test_what_may_be_changed_is_found_among_anything(depth: int) -> None:
    """A list or array, of a class of the user's too, at any depth of tuples; nothing else is."""
    still: tuple[Any, ...] = (
        1,
        2.0,
        "x",
        None,
        len,
        one,
        property(),
        staticmethod(len),
        {},
        set(),
        range(3),
        (),
        one(),
    )
    kinds: list[Any] = [[], _Names(), np.zeros(2)]
    for changed in kinds:
        value: Any = (*still, changed)
        for _ in range(depth):
            value = (*still, value)
        assert may_be_changed(value)
        assert may_be_changed(changed)
    value = still
    for _ in range(depth):
        value = (*still, value)
    assert not may_be_changed(value)
    assert not any(map(may_be_changed, still))
