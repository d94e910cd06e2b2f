"""An exported step computes the bits that the step computes in the process: results and state, call after call."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import autojit as aj
from tests.export.agreement import arrays, bits, exported, state_bits
from tests.export.programs import PROGRAMS


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_library_goes_on_as_the_process_does(name: str, tmp_path: Path) -> None:
    aj.manual_seed(1)
    function, calls = PROGRAMS[name]()
    step, library = exported(function, calls, tmp_path / "step")
    for arguments in calls * 2:
        assert bits(library(*arrays(arguments))) == bits(step(*arguments))
    found = {key: value.tobytes() for key, value in library.state_dict().items()}
    expected = state_bits(step)
    assert {key: found[key] for key in expected if key in found} == expected


@pytest.mark.parametrize("name", ["large_parallel", "sorting", "batchnorm_and_momentum"])
def test_results_do_not_depend_on_the_number_of_threads(name: str, tmp_path: Path) -> None:
    function, calls = PROGRAMS[name]()
    _, library = exported(function, calls, tmp_path / "step")
    found = []
    for count in (1, 2, 3, 8):
        library.set_num_threads(count)
        library.reset_state()
        found.append(bits([library(*arrays(calls[0])) for _ in range(3)]))
    assert library.num_threads == 8
    assert found == [found[0]] * 4


def test_open_sizes_take_every_extent(tmp_path: Path) -> None:
    model = aj.nn.Sequential(aj.nn.Linear(5, 7), aj.nn.Tanh(), aj.nn.LayerNorm(7), aj.nn.Linear(7, 2))
    batch = aj.export.Dim("batch")
    made = aj.export.export(model, (aj.ones(3, 5),), dynamic_shapes=({0: batch},))
    made.save(tmp_path / "model")
    library, fast = aj.export.load(tmp_path / "model"), aj.jit(model)
    for n in (3, 2, 1, 0, 40, 3, 1000, 1, 2):
        x = np.random.default_rng(n).normal(size=(n, 5)).astype(np.float32)
        with aj.no_grad():
            assert bits(library(x)) == bits(fast(aj.tensor(x)))


def test_two_sizes_are_open_apart_or_together(tmp_path: Path) -> None:
    def product(a: aj.Tensor, b: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        return a @ b, (a * 2).sum(0)

    rows, inner = aj.export.Dim("rows", min=2), aj.export.Dim("inner", min=2)
    shapes = {"a": {0: rows, 1: inner}, "b": {0: inner}}
    aj.export.export(product, (aj.ones(4, 6), aj.ones(6, 3)), dynamic_shapes=shapes).save(tmp_path / "p")
    library = aj.export.load(tmp_path / "p")
    assert [size["name"] for size in library.manifest["sizes"]] == ["rows", "inner"]
    rng = np.random.default_rng(0)
    for m, k in ((4, 6), (2, 9), (50, 2), (6, 6)):
        a, b = rng.normal(size=(m, k)).astype(np.float32), rng.normal(size=(k, 3)).astype(np.float32)
        assert bits(library(a, b)) == bits(aj.jit(product)(aj.tensor(a), aj.tensor(b)))
    with pytest.raises(ValueError, match=r"b: shape \[5, 3\], not \[6, 3\]"):
        library(np.ones((4, 6), np.float32), np.ones((5, 3), np.float32))
    with pytest.raises(aj.export.load.__globals__["standalone"].StepError, match="no step for these sizes"):
        library(np.ones((1, 6), np.float32), np.ones((6, 3), np.float32))


def test_steps_captured_so_far_are_all_in_the_library(tmp_path: Path) -> None:
    weight = aj.ones(3)

    @aj.jit
    def step(x: aj.Tensor) -> aj.Tensor:
        weight.add_(x.sum(0))
        return (x * weight).sum()

    inputs = [np.random.default_rng(n).normal(size=(n, 3)).astype(np.float32) for n in (4, 5, 1, 9)]
    for x in inputs:
        step(aj.tensor(x))
    step.export(tmp_path / "step")
    library = aj.export.load(tmp_path / "step")
    for x in inputs * 2:
        assert bits(library(x)) == bits(step(aj.tensor(x)))


def test_numbers_are_arguments_where_the_step_has_them_so(tmp_path: Path) -> None:
    @aj.jit
    def step(x: aj.Tensor, scale: float, *, power: int) -> tuple[aj.Tensor, int]:
        return x * scale + power, power

    for k in range(8):
        step(aj.ones(2), 0.5 + k, power=k)
    step.export(tmp_path / "step")
    library = aj.export.load(tmp_path / "step")
    for scale, power in ((0.25, 3), (7.5, 11)):
        result, number = library(np.ones(2, np.float32), scale, power=power)
        assert bits(result) == bits(step(aj.ones(2), scale, power=power)[0])
        assert number == power
    with pytest.raises(RuntimeError, match="range that the step was captured for"):
        library(np.ones(2, np.float32), -1.0, power=3)  # the step was captured for positive numbers


def test_gradients_that_a_step_leaves_are_shown(tmp_path: Path) -> None:
    weight = aj.tensor([1.0, 2.0], requires_grad=True)

    def step(x: aj.Tensor) -> None:
        weight.grad = None
        (weight * x).sum().backward()

    _, library = exported(step, [(aj.tensor([3.0, 4.0]),)], tmp_path / "step")
    assert library(np.array([5, 6], np.float32)) is None
    assert library.state["weight.grad"].tolist() == [5, 6]
    assert "weight.grad" not in library.state_dict()


@pytest.mark.parametrize("size", [0, 3])
def test_a_modules_results_that_can_be_differentiated_are_exported(size: int, tmp_path: Path) -> None:
    model = aj.nn.Linear(2, 2)
    x = aj.ones(size, 2)
    aj.export.export(model, (x,)).save(tmp_path / "model")
    assert bits(aj.export.load(tmp_path / "model")(x.numpy())) == bits(aj.jit(model)(x))


def test_exporting_runs_nothing(tmp_path: Path) -> None:
    ran: list[int] = []
    total = aj.zeros(1)

    def step(x: aj.Tensor) -> aj.Tensor:
        total.add_(x)
        return total * 2

    made = aj.export.export(step, (aj.ones(1),))
    made.save(tmp_path / "step")
    assert total.item() == 0 and not ran
    assert aj.export.load(tmp_path / "step")(np.ones(1, np.float32)).tolist() == [2]
