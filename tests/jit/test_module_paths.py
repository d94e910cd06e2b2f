"""Every op of a step is known by the module whose call it is from, by its phase, and by the user's line."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit import nn
from autojit.core.errors import ArgumentError
from autojit.core.program_parts import BACKWARD, FORWARD, UPDATE, Part
from autojit.jit.stages import OTHER_NAMES, STAGES, adjoint_of, kernel_texts, named_entries, state_names


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 8), nn.Tanh(), nn.Linear(8, width))

    def forward(self, x: Any) -> Any:
        return x + self.mlp(self.norm(x))


class Net(nn.Module):
    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Block(width) for _ in range(2)])
        self.head = nn.Linear(width, 3)

    def encode(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x

    def forward(self, x: Any) -> Any:
        return self.head(self.encode(x))


def training_step(net: Any, call: Callable[[Any], Any] | None = None) -> Any:
    optimizer = aj.optim.AdamW(net.parameters())
    criterion = nn.CrossEntropyLoss()

    @aj.jit
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = criterion((call or net)(x), y)
        loss.backward()
        optimizer.step()
        return loss

    step(aj.ones(4, 6), aj.tensor([0, 1, 2, 0]))
    return step


def parts(step: Any) -> list[Part]:
    return [node.source.part for node in step.last_step().segment.graph.nodes]


def test_forward_nodes_belong_to_modules_and_backward_nodes_to_those_whose_derivative_they_are() -> None:
    net = Net()
    found = parts(training_step(net))
    forward = {part.module for part in found if part.phase == FORWARD}
    computing = {name for name, module in net.named_modules() if name and not list(module.children())}
    assert computing - {"layers"} <= forward
    assert {"layers.0", "layers.1", "CrossEntropyLoss"} <= forward
    backward = {part.module for part in found if part.phase == BACKWARD}
    assert computing - {"layers"} <= backward
    assert {part.module for part in found if part.phase == UPDATE} == {"AdamW"}


def test_the_phases_follow_each_other() -> None:
    phases = [part.phase for part in parts(training_step(Net()))]
    order = [phase for k, phase in enumerate(phases) if k == 0 or phases[k - 1] != phase]
    assert order.index(FORWARD) < order.index(BACKWARD) < order.index(UPDATE)
    assert order[-1] == UPDATE


def test_a_method_of_the_model_names_its_modules_as_a_call_does() -> None:
    net = Net()
    called = {part.module for part in parts(training_step(net)) if part.phase == FORWARD}
    through = {part.module for part in parts(training_step(net, lambda x: net.head(net.encode(x))))}
    assert called - {"Net"} <= through | {""}
    assert "layers.1.mlp.2" in through


def test_modules_with_hooks_have_names_too() -> None:
    net = Net()
    net.layers[1].mlp[1].register_forward_hook(lambda module, args, result: result * 2)
    assert "layers.1.mlp.1" in {part.module for part in parts(training_step(net))}


def test_two_models_of_one_step_are_told_apart() -> None:
    first, second = nn.Sequential(nn.Linear(6, 6)), nn.Sequential(nn.Linear(6, 3))
    step = aj.jit(lambda x: second(first(x)))
    step(aj.ones(2, 6))
    assert {part.module for part in parts(step)} - {""} == {"Sequential.0", "Sequential(2).0"}
    names = set(state_names(step.last_step()).values())
    assert names == {f"{root}.0.{name}" for root in ("Sequential", "Sequential(2)") for name in ("weight", "bias")}


def test_a_module_that_no_attribute_holds_is_named_by_its_class() -> None:
    held = [nn.Linear(6, 6)]

    class Outer(nn.Module):
        def forward(self, x: Any) -> Any:
            return held[0](x)

    step = aj.jit(Outer())
    step(aj.ones(2, 6))
    assert "Linear" in {part.module for part in parts(step)}


def test_state_has_the_names_that_named_parameters_gives() -> None:
    net = Net()
    names = set(state_names(training_step(net).last_step()).values())
    parameters = {name for name, _ in net.named_parameters()}
    assert parameters <= names
    assert {f"exp_avg of {name}" for name in parameters} <= names


def test_names_keep_no_module_alive() -> None:
    net = Net()
    step = aj.jit(lambda x: x * 2)
    watched = weakref.ref(net)
    with aj.no_grad():
        inner = aj.jit(lambda model, x: model(x))
        inner(net, aj.ones(2, 6))
    part = parts(inner)[0]
    inner = step
    del net
    gc.collect()
    assert watched() is None
    assert part.module


@pytest.mark.parametrize("stage", [*STAGES, *OTHER_NAMES])
def test_every_stage_is_shown(stage: str) -> None:
    step = training_step(Net())
    text = step.show(stage)
    assert text == step.show(stage.upper()) == step.show(OTHER_NAMES.get(stage, stage))
    assert bool(text) == (stage != "ptx")


def test_an_unknown_stage_is_refused_with_those_there_are() -> None:
    with pytest.raises(ArgumentError, match="optimised"):
        training_step(Net()).show("hlo")


def test_the_adjoint_is_what_backward_recorded_under_the_names_of_the_whole() -> None:
    step = training_step(Net())
    whole = step.last_step().segment.graph
    adjoint = adjoint_of(whole)
    assert set(adjoint.nodes) == {node for node in whole.nodes if node.source.part.phase == BACKWARD}
    lines = {line.strip() for line in step.show("captured").splitlines()}
    told = [line.strip() for line in step.show("adjoint").splitlines() if "backward)" in line]
    assert len(told) == len(adjoint.nodes)
    assert set(told) <= lines


def test_kernels_have_the_names_of_the_schedule_products_included() -> None:
    step = training_step(Net())
    lowered = step.last_step().compiled.lowered
    names = [name for _, name in named_entries(lowered)]
    assert any(name.startswith("matmul 4x6x8") and "layers.0.mlp.0" in name for name in names)
    llvm = step.show("llvm")
    for users in kernel_texts(lowered).values():
        assert all(f"; kernel {user}" in llvm for user in users)


def test_rows_of_the_profiler_name_modules() -> None:
    step = training_step(Net())
    with aj.autograd.profiler.profile() as prof:
        step(aj.ones(4, 6), aj.tensor([0, 1, 2, 0]))
    assert any("layers.1.mlp.0 backward" in event.name for event in prof.function_events)
