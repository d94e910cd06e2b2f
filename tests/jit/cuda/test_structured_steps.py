"""Steps with ops of their own on a device: eager, compiled and the CPU's, with chains of kernels beside reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj

Step = Callable[..., Any]


def _ordered(x: Any, m: Any, rows: Any) -> Any:
    values, places = aj.sort(x, 1)
    largest, _ = aj.topk(x, 3, 1)
    running, _ = aj.cummax(x, 0)
    return (values * places).sum() + largest.sum() + aj.cumsum(x, 1).mean() + running.sum() + aj.median(x, 1)[0].sum()


def _scattered(x: Any, m: Any, rows: Any) -> Any:
    """Rows beyond `scatter_sorted.FEWEST_ROWS`: the chain reports bad ones from its first kernel."""
    table = aj.zeros(50, 4, device=m.device).index_add(0, rows, m)
    return (table * table).sum() + m[rows].sum() + x.sum()


def _factorised(x: Any, m: Any, rows: Any) -> Any:
    square = m.T @ m / len(m) + aj.eye(4, device=m.device)
    q, r = aj.linalg.qr(m[:6])
    lower = aj.linalg.cholesky(square)
    solved = aj.linalg.solve(square, m[:4]) + aj.cholesky_solve(m[:4], lower) + aj.linalg.inv(square)
    return solved.sum() + (q * x[:6, :4]).sum() + r.sum() + aj.logdet(square) + aj.det(square[:2, :2]) + x.sum()


@pytest.mark.parametrize("program", [_ordered, _scattered, _factorised])
def test_gradients_are_the_hosts_eager_and_compiled_without_call_backs(program: Step) -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(6, 40)).astype("f4")
    m, rows = generator.normal(size=(600, 4)).astype("f4"), generator.integers(0, 50, 600)
    found = []
    for device in ("cpu", "cuda"):
        given = [aj.tensor(a, device=device) for a in (x, m, rows)]

        def gradients(x: Any, m: Any, rows: Any) -> Any:
            return aj.func.grad(program, argnums=(0, 1))(x, m, rows)

        step = aj.jit(gradients)
        for run in (step, step, gradients):
            found.append([g.cpu().numpy() for g in run(*given)])
        if device == "cuda":
            assert step.stats()["fallbacks"] == 0
    for other in found[1:]:
        for one, expected in zip(other, found[0], strict=True):
            assert np.allclose(one, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def test_a_bad_row_of_a_long_scatter_is_an_error_and_changes_nothing() -> None:
    table = aj.zeros(50, 4, device="cuda")
    rows = aj.arange(600, device="cuda") % 50

    @aj.jit
    def step(rows: Any, values: Any) -> None:
        table.index_add_(0, rows, values)

    values = aj.ones(600, 4, device="cuda")
    step(rows, values)
    before = table.cpu().numpy()
    with pytest.raises(IndexError):
        step(aj.where(rows == 7, 50, rows), values)
        aj.cuda.synchronize()
    assert np.array_equal(table.cpu().numpy(), before)
    step(rows, values)
    assert np.array_equal(table.cpu().numpy(), 2 * before)


def test_a_matrix_without_a_result_is_named_as_on_the_host() -> None:
    good, bad = aj.eye(3), -aj.eye(3)
    for function in (aj.linalg.cholesky, aj.jit(lambda a: aj.linalg.cholesky(a))):
        for device in ("cpu", "cuda"):
            with pytest.raises(RuntimeError, match=r"Batch element 1\): .* not positive-definite"):
                function(aj.stack([good, bad]).to(device)).cpu()


def test_what_a_mask_chooses_is_the_hosts_whatever_its_number() -> None:
    """The gradient is a scatter at the places that were counted."""

    def loss(x: Any) -> Any:
        chosen = x[x > 0]
        return (chosen * chosen).sum() + aj.nonzero(x > 1).sum()

    def program(x: Any) -> Any:
        return aj.func.grad(loss)(x), x[x > 0.5], aj.unique(x.round())

    step = aj.jit(program)
    generator = np.random.default_rng(0)
    for scale in (1, 0.2, 3, 0, 1, 2):
        x = aj.tensor(scale * generator.normal(size=(4, 6)).astype("f4"))
        for one, other in zip(step(x.to("cuda")), program(x), strict=True):
            assert one.shape == other.shape and np.allclose(one.cpu().numpy(), other.numpy())
    assert step.stats()["fallbacks"] == 0


def test_counts_are_the_hosts_whatever_their_number() -> None:
    @aj.jit
    def step(x: Any) -> Any:
        return aj.bincount(x)

    for numbers in ([1, 5, 5], [0, 2, 2], [9, 1, 1]):
        assert step(aj.tensor(numbers, device="cuda")).tolist() == np.bincount(numbers).tolist()


def test_products_of_the_host_beside_a_devices_are_of_any_dtype() -> None:
    @aj.jit
    def step(x: Any, *matrices: Any) -> Any:
        return x + 1, *(m @ m.mT for m in matrices)

    whole = aj.arange(12).reshape(3, 4) - 5
    matrices = [whole.to(kind) for kind in (aj.bfloat16, aj.float16, aj.float32, aj.int64)]
    _, *found = step(aj.ones(3, device="cuda"), *matrices)
    for one, m in zip(found, matrices, strict=True):
        assert one.dtype == m.dtype and one.tolist() == (whole @ whole.mT).tolist()
