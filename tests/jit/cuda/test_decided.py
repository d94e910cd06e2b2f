"""Branches and loops that the device decides by itself: the host's results and errors, without a wait."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.runtime.gpu.emulator.driver import EmulatedDriver
from tests.emulated import emulated_cuda, fresh_driver

WITHOUT_CONDITIONS = 12030


@pytest.fixture
def driver() -> Iterator[EmulatedDriver]:
    """Lanes, blocks and nodes of graphs come in a random order."""
    with emulated_cuda(7) as found:
        yield found


def rows(count: int, width: int = 4) -> aj.Tensor:
    return aj.linspace(-1, 1, count * width, device="cuda").reshape(count, width)


def until_large(x: aj.Tensor, w: aj.Tensor) -> Any:
    """A product, a sum, a counter of the host; from no turn to many."""
    return aj.while_loop(
        lambda c, n: (c.abs().sum() < 40) & (n < 30), lambda c, n: ((c @ w).sin() + 1.5 * c + x, n + 1), (x * 2, 0)
    )[0]


def exchanged(x: aj.Tensor, w: aj.Tensor) -> Any:
    """Each carry is made of another one, and one goes through as it is."""
    a, b, c = aj.while_loop(lambda a, b, c: b.sum() < 9, lambda a, b, c: (b + 1, a + c, c), (x, x * 2, x.abs() + 0.5))
    return a, b, c


def nested(x: aj.Tensor, w: aj.Tensor) -> Any:
    """A loop and a scan in a branch in a loop."""

    def chosen(c: aj.Tensor) -> aj.Tensor:
        (found,) = aj.while_loop(lambda y: y.sum() < 3, lambda y: (y * 1.5 + 0.25,), (c,))
        return found

    def other(c: aj.Tensor) -> aj.Tensor:
        return aj.scan(lambda y, row: (y * 0.5 + row, y), c, w)[0]

    def turn(n: aj.Tensor, c: aj.Tensor) -> Any:
        return n + 1, aj.cond(c.sum() > 0, chosen, other, (c,)) - 1

    return aj.while_loop(lambda n, c: (n < 4) & (c.sum() < 50), turn, (0, x[0]))[1]


def either(x: aj.Tensor, w: aj.Tensor) -> Any:
    """One of two; what follows reads what it gives."""
    y, z = aj.cond(x.sum() > 0, lambda a, b: (a.exp() @ b, a), lambda a, b: (a * 3, a @ b), (x, w))
    return (y * z).sum(0), y


PROGRAMS = [until_large, exchanged, nested, either]
named = pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)


def results(program: Callable[..., Any]) -> tuple[list[Any], Any]:
    """What four calls give, and the step, from data that make few turns and many, one way and the other."""
    step, found = aj.jit(program), []
    for shift in (0.05, 0.6, -0.7, 20.0):
        made = step(rows(4) + shift, rows(4) / 2)
        found += [t.cpu().numpy() for t in (made if isinstance(made, tuple) else (made,))]
    return found, step


@named
def test_the_device_decides_as_the_host_does(
    driver: EmulatedDriver, program: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, step = results(program)
    stats = step.stats()
    assert (stats["fallbacks"], stats["device_entries"], stats["graphs"], stats["graph_launches"]) == (0, 1, 1, 3)
    monkeypatch.setattr(driver, "version", WITHOUT_CONDITIONS)
    expected, step = results(program)
    for mine, theirs in zip(found, expected, strict=True):  # a product may be rounded before what follows it, or not
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    assert step.stats()["device_entries"] > 1  # told in parts, because the host looks at conditions


@named
def test_a_step_is_one_launch_without_waits(driver: EmulatedDriver, program: Callable[..., Any]) -> None:
    step, x, w = aj.jit(program), rows(4) + 0.1, rows(4) / 2
    step(x, w), step(x, w)
    moved = x + 0
    gc.collect()  # graphs of other steps are waited for when they go
    before = driver.counts.copy()
    step(moved, w)
    done = driver.counts - before
    assert (done["waits"], done["graph launches"], done["copies out"], done["instantiations"]) == (0, 1, 0, 0)


def test_a_turn_that_reports_an_error_is_the_last_and_state_is_as_before(driver: EmulatedDriver) -> None:
    table, state = rows(5, 3), aj.zeros(3, device="cuda")

    @aj.jit
    def step(places: aj.Tensor) -> Any:
        state.add_(1)
        turns, total = aj.while_loop(
            lambda n, c: places[n] >= 0, lambda n, c: (n + 1, c + table[places[n]]), (places[0] * 0, state * 0)
        )
        state.mul_(2)
        return turns, total

    for given, wrong in (([1, 0, 4, -1], 0), ([1, 9, 4, -1], 1), ([3, -1, 9, 9], 0), ([1, 2, 3, 4], 1)) * 2:
        places, before = aj.tensor(given, device="cuda"), state.cpu().numpy()
        if wrong:
            with pytest.raises(IndexError, match=r"out of (bounds|range)"):
                step(places)
            np.testing.assert_array_equal(state.cpu().numpy(), before)
        else:
            turns, total = step(places)
            count = given.index(-1)
            assert int(turns) == count
            expected = table.cpu().numpy()[given[:count]].sum(0)
            np.testing.assert_allclose(total.cpu().numpy(), expected, rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(state.cpu().numpy(), 2 * (before + 1))


def test_what_a_device_cannot_decide_is_the_hosts() -> None:
    """A gradient leaves tapes; a condition of the host is known to it; singular values have no kernel."""

    def tapes(x: aj.Tensor, w: aj.Tensor) -> Any:
        return aj.func.grad(lambda x: until_large(x, w).sum())(x)

    def known(x: aj.Tensor, w: aj.Tensor) -> Any:
        return aj.while_loop(lambda n, c: n < 3, lambda n, c: (n + 1, c * 2), (aj.tensor(0), x))[1]

    def called_back(x: aj.Tensor, w: aj.Tensor) -> Any:
        return aj.while_loop(
            lambda c: aj.linalg.svdvals(c).sum() < 20, lambda c: (c * 2,), (x + aj.eye(4, device="cuda"),)
        )[0]

    with emulated_cuda() as driver:
        for program in (tapes, known, called_back):
            found, step = results(program)
            assert step.stats()["device_entries"] > 1 or program is known
            driver.version, before = WITHOUT_CONDITIONS, driver.version
            try:
                for mine, theirs in zip(found, results(program)[0], strict=True):
                    np.testing.assert_array_equal(mine, theirs)
            finally:
                driver.version = before


def test_bodies_go_with_their_step() -> None:
    driver = fresh_driver()
    with emulated_cuda(driver=driver):
        step = aj.jit(until_large)
        for _ in range(3):
            step(rows(4), rows(4) / 2)
        assert driver.live_graphs == 2  # the step's, and that of its first call
        del step
        gc.collect()
        assert driver.live_graphs == 0
