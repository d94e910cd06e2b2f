"""Ops made from functions over whole arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autojit as aj

numba = pytest.importorskip("numba")


@numba.njit
def correlate(x: Any, w: Any, out: Any) -> None:
    for i in range(out.shape[0]):
        total = 0.0
        for j in range(w.shape[0]):
            total += x[i + j] * w[j]
        if total > 1e6:
            raise OverflowError("too loud")
        out[i] = total


@numba.njit
def convolve(g: Any, w: Any, out: Any) -> None:
    for k in range(out.shape[0]):
        out[k] = 0.0
    for i in range(g.shape[0]):
        for j in range(w.shape[0]):
            out[i + j] += g[i] * w[j]


correlation = aj.op(
    correlate,
    out=lambda x, w: (x[0] - w[0] + 1,),
    vjp=lambda grad, result, x, w: (convolution(grad, w), correlation(x, grad)),
)
convolution = aj.op(
    convolve,
    out=lambda g, w: (g[0] + w[0] - 1,),
    vjp=lambda grad, result, g, w: (correlation(grad, w), correlation(grad, g)),
)


def drawn(*counts: int) -> list[aj.Tensor]:
    generator = np.random.default_rng(5)
    return [aj.tensor(generator.normal(size=n), requires_grad=True) for n in counts]


def test_values_and_derivatives() -> None:
    x, w = drawn(12, 4)
    expected = np.correlate(x.detach().numpy(), w.detach().numpy())
    jitted = aj.jit(lambda x, w: correlation(x * 1.0, w) + 0.0)
    for run in (correlation, jitted):
        np.testing.assert_allclose(run(x, w).detach().numpy(), expected, rtol=1e-13)
        assert aj.autograd.gradcheck(run, (x, w))
        assert aj.autograd.gradgradcheck(run, (x, w))
    assert jitted.stats()["fallbacks"] == 0


def test_a_compiled_step_calls_it_without_python() -> None:
    x, w = (t.detach() for t in drawn(30, 5))

    @aj.jit
    def step(x: aj.Tensor, w: aj.Tensor) -> aj.Tensor:
        x = x.clone().requires_grad_()
        return aj.autograd.grad(correlation(x.exp(), w).square().sum(), x)[0]

    values = [step(x, w) for _ in range(3)][-1]
    inner = x.exp().requires_grad_()
    (wanted,) = aj.autograd.grad(correlation(inner, w).square().sum(), inner)
    np.testing.assert_allclose(values.numpy(), (wanted * x.exp()).detach().numpy(), rtol=1e-12)
    assert step.stats()["fallbacks"] == 0
    assert step.stats()["native_calls"] > 0


@pytest.mark.parametrize("wrap", [lambda f: f, aj.jit], ids=["eager", "compiled"])
def test_its_exceptions_are_raised(wrap: Any) -> None:
    x, w = (t.detach() for t in drawn(12, 4))
    run = wrap(lambda x, w: correlation(x.abs(), w.abs()))
    run(x, w)
    with pytest.raises(OverflowError, match="too loud"):
        run(x * 1e9, w)


def test_batches() -> None:
    x, w = (t.detach() for t in drawn(12, 4))
    rows = aj.stack([x, 2.0 * x, x + 1.0])
    expected = np.stack([correlation(row, w).numpy() for row in rows])
    np.testing.assert_allclose(aj.func.vmap(correlation, (0, None))(rows, w).numpy(), expected, rtol=1e-14)
    slopes = aj.func.vmap(aj.func.grad(lambda x: correlation(x, w).square().sum()))(rows)
    assert slopes.shape == (3, 12)


def test_several_results_numbers_and_dtypes() -> None:
    @aj.op(out=lambda x, scale: [x, ((), aj.float64), (x[:1], aj.int64)])
    def summary(x: Any, scale: float, scaled: Any, total: Any, signs: Any) -> None:
        total[()] = 0.0
        for i in range(x.shape[0]):
            signs[i] = 0
            for j in range(x.shape[1]):
                scaled[i, j] = x[i, j] * scale
                total[()] += x[i, j]
                signs[i] += 1 if x[i, j] > 0 else -1

    x = aj.tensor([[1.0, -2.0, 3.0], [-1.0, -1.0, 5.0]])
    jitted = aj.jit(lambda x: summary(x, 2.0))
    for scaled, total, signs in (summary(x, 2.0), jitted(x), summary(x.t().contiguous().t(), 2.0)):
        np.testing.assert_array_equal(scaled.numpy(), 2 * x.numpy())
        assert (scaled.dtype, total.dtype, signs.dtype) == (aj.float32, aj.float64, aj.int64)
        assert total.item() == 5.0
        assert signs.tolist() == [1, -1]
    assert jitted.stats()["fallbacks"] == 0


def test_memory_of_its_own_is_linked_and_what_cannot_be_is_called_back_and_counted() -> None:
    @aj.op(out=lambda x: x)
    def reversed_twice(x: Any, out: Any) -> None:
        kept = np.empty(x.shape[0])
        for i in range(x.shape[0]):
            kept[i] = 2.0 * x[x.shape[0] - 1 - i]
        for i in range(x.shape[0]):
            out[i] = kept[i]

    @aj.op(out=lambda x: x)
    def printing(x: Any, out: Any) -> None:
        for i in range(x.shape[0]):
            out[i] = x[i]
        if x[0] < -1e9:
            print("low")

    (x,) = (t.detach() for t in drawn(40))
    linked, called = aj.jit(lambda x: reversed_twice(x + 1.0)), aj.jit(lambda x: printing(x + 1.0))
    for _ in range(3):
        np.testing.assert_array_equal(linked(x).numpy(), 2.0 * (x.numpy() + 1.0)[::-1])
        np.testing.assert_array_equal(called(x).numpy(), x.numpy() + 1.0)
    assert linked.stats()["fallbacks"] == 0
    assert called.stats()["fallbacks"] == 1
    assert "linked_array" in called.explain()


def test_what_is_missing_or_wrong_is_said() -> None:
    silent = aj.op(correlate, out=lambda x, w: (x[0] - w[0] + 1,))
    x, w = drawn(6, 2)
    with pytest.raises(RuntimeError, match="has the derivative that it is given"):
        silent(x, w).sum().backward()
    short = aj.op(correlate, out=lambda x, w: (x[0] - w[0] + 1,), vjp=lambda grad, result, x, w: x)
    with pytest.raises(RuntimeError, match="returned 1 cotangents for 2 operands"):
        short(x, w).sum().backward()
    with pytest.raises(ValueError, match="out gives 3"):
        aj.op(correlate, out=lambda x, w: 3)(x, w)
    with pytest.raises(RuntimeError, match="Numba cannot compile"):
        aj.op(correlate, out=lambda x, w: x)(x.reshape(2, 3), w)
    with pytest.raises(NotImplementedError, match="no arrays of this dtype"):
        correlation(x.half(), w.half())
