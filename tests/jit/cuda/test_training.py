"""Whole training steps on a GPU: the results of the CPU, one go, one graph, no Python but the frame."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.runtime.gpu.emulator.driver import EmulatedDriver
from tests.jit.cuda.programs import PROGRAMS, classes, mlp, trained

CALLS = 4


def assert_same(found: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    """Losses, parameters and state of the optimiser agree to 1e-5."""
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
    for a, b in zip(found[1], expected[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_step_has_the_results_of_the_cpu(name: str) -> None:
    make, batches = PROGRAMS[name]
    expected = trained(make, batches(CALLS), "cpu", True)
    found = trained(make, batches(CALLS), "cuda", True)
    assert_same(found, expected)
    stats = found[2].stats()
    assert (stats["captures"], stats["native_calls"], stats["fallbacks"]) == (1, CALLS - 1, 0)
    assert stats["device_entries"] == 1
    # one launch, and one before it that writes numbers of the host, as they are; more of them as a graph
    assert (stats["graphs"], stats["graph_launches"]) == ((1, CALLS - 1) if stats["launches"] > 2 else (0, 0))
    assert stats["device_bytes"] > 0


def test_all_of_a_small_step_may_be_one_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Across barriers of all blocks; with the bits of launches that do not wait for each other."""
    make, batches = PROGRAMS["mlp_adam"]
    apart = trained(make, batches(CALLS), "cuda", True)
    monkeypatch.setenv("AUTOJIT_CUDA", "together")
    found = trained(make, batches(CALLS), "cuda", True)
    assert found[2].stats()["launches"] <= 3 < apart[2].stats()["launches"]
    for a, b in zip(found[1], apart[1], strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", PROGRAMS)
def test_eager_and_compiled_agree_on_a_gpu(name: str) -> None:
    make, batches = PROGRAMS[name]
    assert_same(trained(make, batches(2), "cuda", False), trained(make, batches(2), "cuda", True))


def test_a_batch_elsewhere_makes_no_graph_anew(driver: EmulatedDriver) -> None:
    training = mlp("cuda", "adam")
    step = aj.jit(training.step)
    kept = [[aj.tensor(a, device="cuda") for a in batch] for batch in classes(8)]
    for batch in kept[:3]:
        step(*batch)
    before = dict(driver.counts)
    for batch in kept[3:]:
        step(*batch)
    done = {what: count - before.get(what, 0) for what, count in driver.counts.items()}
    assert len({t.data_ptr() for batch in kept for t in batch}) == 16
    assert done.get("instantiations", 0) == 0
    assert done.get("graph launches", 0) + done.get("launches", 0) <= 2 * 5  # whatever the step has of kernels
    assert done.get("assemblies", 0) == 0


@pytest.mark.parametrize(("name", "given"), [("mlp_adam", 1), ("embedding", 0)])
def test_a_bad_index_changes_nothing_and_the_next_step_works(name: str, given: int) -> None:
    """Also in the first call of a step, when its memory holds nothing yet."""
    make, batches = PROGRAMS[name]
    aj.manual_seed(0)
    training = make("cuda")
    step = aj.jit(training.step)
    good = [[aj.tensor(a, device="cuda") for a in batch] for batch in batches(3)]
    bad = list(good[0])
    bad[given] = aj.full_like(bad[given], 11)
    for _ in range(2):
        before = training.numbers()
        with pytest.raises(IndexError, match=r"programs\.py"):
            step(*bad)
        for a, b in zip(training.numbers(), before, strict=True):
            np.testing.assert_array_equal(a, b)
    losses = [step(*batch).item() for batch in good]
    with pytest.raises(IndexError):
        step(*bad)
    expected, *_ = trained(make, batches(3), "cpu", True)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
