"""Functions of users in kernels of a device: the host's numbers, fused, with their exceptions.

What only the host can run is called back.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

numba = pytest.importorskip("numba")

import autojit as aj  # noqa: E402
from tests.emulated import emulated_cuda  # noqa: E402
from tests.numba_ops.functions import CASES, recursive  # noqa: E402
from tests.ptxas import assemble, needs_ptxas  # noqa: E402

pytestmark = pytest.mark.gpu


@numba.njit
def in_pieces(x: float) -> float:
    mantissa, exponent = math.frexp(x)
    return mantissa * exponent


@numba.njit
def grown(x: float) -> float:
    return math.gamma(x) + math.ldexp(x, 2)


@numba.njit
def root(x: float) -> float:
    if x < 0.0:
        raise ValueError("the root of a negative number")
    return math.sqrt(x)


def drawn(name: str, count: int, device: str) -> list[aj.Tensor]:
    rng = np.random.default_rng(3)
    domains = CASES[name].domains
    return [aj.tensor(rng.uniform(*d, count), device=device, requires_grad=True) for d in domains]


@pytest.mark.parametrize("name", ["branch_loop_exp", "newton_root", "series", "calls_another"])
def test_values_and_gradients_are_those_of_the_host(device: str, name: str) -> None:
    """Loops whose length the data decide, branches, functions that call others: one kernel with what is around them."""
    op = aj.op(CASES[name].function)

    def step(*xs: aj.Tensor) -> tuple[aj.Tensor, ...]:
        y = aj.tanh(op(*[x * 1.1 for x in xs])).sum()
        return (y.detach(), *aj.autograd.grad(y, xs))

    jitted = aj.jit(step)
    expected = step(*drawn(name, 7, "cpu"))
    for run in (step, jitted):
        for found, wanted in zip(run(*drawn(name, 7, device)), expected, strict=True):
            assert found.device.type == device
            np.testing.assert_allclose(found.cpu().numpy(), wanted.numpy(), rtol=1e-9)
    assert jitted.stats()["fallbacks"] == 0


def test_it_is_fused_with_its_neighbours(device: str) -> None:
    op = aj.op(CASES["newton_root"].function)
    step = aj.jit(lambda x: aj.tanh(op(2 * x)) + 1)
    step(aj.rand(5, dtype=aj.float64, device=device))
    assert step.show("schedule").splitlines()[0].startswith("1 kernels")


@pytest.mark.parametrize("function", [in_pieces, grown], ids=["frexp", "gamma"])
def test_what_only_the_hosts_libraries_have_is_called_back(device: str, function: Any) -> None:
    op = aj.op(function)
    x = aj.tensor([0.3, 1.7, 5.0], dtype=aj.float64, device=device)
    step = aj.jit(lambda x: op(x * 1) + 1)
    expected = [function(v) + 1 for v in x.tolist()]
    np.testing.assert_allclose((op(x) + 1).cpu().numpy(), expected, rtol=1e-14)
    np.testing.assert_allclose(step(x).cpu().numpy(), expected, rtol=1e-14)
    assert step.stats()["fallbacks"] == (device == "cuda")
    assert device == "cpu" or "linked_scalar" in step.explain()


def test_a_recursion_has_no_stack_on_a_device(device: str) -> None:
    op, n = aj.op(recursive), aj.tensor(3)
    x = aj.tensor([0.5, -1.2], dtype=aj.float64, device=device)
    step = aj.jit(lambda x: op(x, n))
    expected = [recursive(v, 3) for v in x.tolist()]
    np.testing.assert_allclose(step(x).cpu().numpy(), expected, rtol=1e-13)
    assert step.stats()["fallbacks"] == (device == "cuda")


@pytest.mark.parametrize("is_compiled", [False, True], ids=["eager", "compiled"])
def test_an_exception_is_raised_and_the_state_is_as_before(device: str, is_compiled: bool) -> None:
    op = aj.op(root)
    total = aj.zeros(3, dtype=aj.float64, device=device)

    def step(x: aj.Tensor) -> aj.Tensor:
        total.add_(op(x))
        return total.sum()

    run = aj.jit(step) if is_compiled else step
    fine = aj.tensor([1.0, 4.0, 9.0], dtype=aj.float64, device=device)
    run(fine)
    with pytest.raises(ValueError, match="the root of a negative number"):
        run(-fine)
    assert total.tolist() == [1, 2, 3]
    assert run(fine).item() == 12


def test_functions_over_arrays_are_called_back(device: str) -> None:
    @aj.op(out=lambda x: x)
    def running(x: Any, out: Any) -> None:
        total = 0.0
        for k in range(x.shape[0]):
            total += x[k]
            out[k] = total

    x = aj.arange(5, dtype=aj.float64, device=device)
    step = aj.jit(lambda x: running(2 * x))
    for run in (step, lambda x: running(2 * x)):
        found = run(x)
        assert (found.device.type, found.tolist()) == (device, [0, 2, 6, 12, 20])
    assert step.stats()["fallbacks"] == (device == "cuda")


@needs_ptxas
def test_it_assembles_without_spills() -> None:
    op = aj.op(CASES["branch_loop_exp"].function)
    with emulated_cuda():
        step = aj.jit(lambda x, y: aj.tanh(op(2 * x, y)))
        step(*drawn("branch_loop_exp", 5, "cuda"))
        (found,) = assemble([step.show("ptx")], "sm_90")
    assert (found.spilled_bytes, found.registers <= 168) == (0, True)
