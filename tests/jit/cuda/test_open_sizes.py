"""Steps and eager ops on a GPU for batches of many sizes: how many are compiled, how many graphs are alive."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.runtime.gpu.emulator.driver import EmulatedDriver
from autojit.runtime.gpu.graphs import MOST_GRAPHS
from autojit.runtime.gpu.modules import LoadedKernels
from tests.jit.cuda.programs import OPTIMIZERS, classes, mlp, trained

F = aj.nn.functional


def sizes(seed: int, count: int, most: int) -> list[int]:
    """Sizes up to one, in any order, some of them more than once, 1 among them."""
    rng = np.random.default_rng(seed)
    found = [*rng.integers(1, most + 1, count).tolist(), 1, most]
    return [*found, *rng.permutation(found).tolist()[: count // 2]]


@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
def test_a_training_step_takes_batches_of_any_size(optimizer: str, driver: EmulatedDriver) -> None:
    """Three captures at most: the first size, every other one, and 1, whose broadcasting is its own."""
    batches = [classes(1, rows)[0] for rows in sizes(1, 14, 70)]
    here, there = (trained(lambda d: mlp(d, optimizer), batches, d, True) for d in ("cpu", "cuda"))
    for mine, theirs in ((here[0], there[0]), *zip(here[1], there[1], strict=True)):
        np.testing.assert_allclose(theirs, mine, rtol=2e-4, atol=2e-6)
    stats = there[2].stats()
    assert (len(there[2].steps()), stats["specialised_sizes"], stats["fallbacks"], stats["splits"]) == (3, 0, 0, 0)
    assert stats["graphs"] <= len(set(map(len, [b[0] for b in batches])))


def test_at_most_so_many_graphs_are_alive(driver: EmulatedDriver) -> None:
    """Every size comes twice in a row, so each gets a graph, in place of the one that was not asked for the longest."""
    w = aj.linspace(-1, 1, 12, device="cuda").reshape(4, 3)

    @aj.jit
    def step(x: aj.Tensor) -> aj.Tensor:
        return ((x @ w).exp() @ w.t()).sum(0)

    before = driver.live_graphs
    for n in (2, *range(3, 15)):
        x = np.random.default_rng(n).standard_normal((n, 4)).astype("f4")
        for _ in range(3):
            found = step(aj.tensor(x, device="cuda"))
        np.testing.assert_allclose(
            found.cpu().numpy(), (np.exp(x @ w.cpu().numpy()) @ w.cpu().numpy().T).sum(0), rtol=1e-4
        )
        assert driver.live_graphs - before <= MOST_GRAPHS + 1  # and that of the first size's own step
    assert len(step.steps()) == 2 and step.stats()["graphs"] >= 12


def test_sizes_that_never_come_again_get_no_graph() -> None:
    step = aj.jit(lambda x: (x.exp().sum(0), x.sum(0).exp()))
    for n in range(2, 12):
        step(aj.ones(n, 3, device="cuda"))
    assert len(step.steps()) == 2 and step.stats()["graphs"] == 0


def test_rows_of_any_length_and_number() -> None:
    """Two sizes: attention over any number of positions."""

    def attend(q: aj.Tensor, k: aj.Tensor) -> aj.Tensor:
        return (q @ k.mT / 2).softmax(-1) @ k

    step = aj.jit(attend)
    rng = np.random.default_rng(0)
    for n, t in ((2, 3), (3, 3), (3, 9), (5, 40), (2, 2), (4, 33)):
        q, k = (rng.standard_normal((n, t, 4)).astype("f4") for _ in range(2))
        found = step(aj.tensor(q, device="cuda"), aj.tensor(k, device="cuda"))
        expected = attend(aj.tensor(q), aj.tensor(k))
        np.testing.assert_allclose(found.cpu().numpy(), expected.numpy(), rtol=1e-4, atol=1e-6)
    assert len(step.steps()) <= 3


def test_temporaries_that_a_call_outgrows_are_elsewhere_then() -> None:
    """Arenas of the device grow while graphs of other sizes are alive."""
    w = aj.linspace(-1, 1, 16, device="cuda").reshape(4, 4)
    step = aj.jit(lambda x: ((x @ w).tanh() @ w).sum())
    host = w.cpu().numpy()
    for n in (2, 3, 3, 3, 500, 3, 3, 2000, 500, 3):
        x = np.linspace(-1, 1, 4 * n, dtype="f4").reshape(n, 4)
        expected = (np.tanh(x @ host) @ host).sum()
        np.testing.assert_allclose(step(aj.tensor(x, device="cuda")).item(), expected, rtol=1e-3, atol=1e-3)


def test_a_bad_index_is_reported_whatever_the_size() -> None:
    step = aj.jit(lambda table, i: table[i].sum())
    table = aj.ones(4, 3, device="cuda")
    for n in (2, 3, 5):
        assert step(table, aj.zeros(n, dtype=aj.int64, device="cuda")).item() == 3.0 * n
    with pytest.raises(IndexError):
        step(table, aj.full((4,), 9, dtype=aj.int64, device="cuda")).item()
    assert step(table, aj.zeros(6, dtype=aj.int64, device="cuda")).item() == 18.0


def texts_of(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that are made from now on."""
    made: list[str] = []
    load = LoadedKernels._loaded

    def watched(self: LoadedKernels, texts: Any, levels: Any) -> list[int]:
        made.extend(texts)
        return load(self, texts, levels)

    monkeypatch.setattr(LoadedKernels, "_loaded", watched)
    return made


@pytest.mark.parametrize(
    ("op", "most"),
    [
        (lambda x: x + x, 2),
        (lambda x: x.erfc(), 2),
        (lambda x: x * x[0], 3),
        (lambda x: x.amax(1), 3),
        (lambda x: x @ x.new_ones(5, 3), 5),
        (lambda x: x.clone(memory_format=aj.contiguous_format).fill_(2.5), 3),
    ],
    ids=["a sum of two", "a function", "a row beside", "rows folded", "a product", "filled"],
)
def test_eager_ops_over_many_sizes_have_few_kernels(op: Any, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = texts_of(monkeypatch)
    for n in range(2, 32):
        x = np.random.default_rng(n).standard_normal((n, 5)).astype("f4")
        np.testing.assert_allclose(op(aj.tensor(x, device="cuda")).cpu().numpy(), op(aj.tensor(x)).numpy(), rtol=1e-5)
    assert len(made) <= most
