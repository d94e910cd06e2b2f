"""Products of parts of one whole, products that are stacked, and sums of column sums: one of each; results stay."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import autojit as aj

Cell = Callable[[aj.Tensor, aj.Tensor], aj.Tensor]


def drawn(*shape: int, seed: int = 0) -> aj.Tensor:
    return aj.tensor(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def compiled(function: Callable[..., object], *args: aj.Tensor) -> str:
    """The optimised graph of a function whose compiled results are the eager ones."""
    step = aj.jit(function)
    found, expected = step(*args), function(*args)
    for y, reference in zip(*(r if isinstance(r, tuple) else (r,) for r in (found, expected)), strict=True):
        np.testing.assert_allclose(y.detach().numpy(), reference.detach().numpy(), rtol=2e-5, atol=2e-5)
    return str(step.show("optimised"))


def kept_apart(x: aj.Tensor, w: aj.Tensor, parts: list[aj.Tensor]) -> aj.Tensor:
    """A chain of steps, each of which multiplies one part."""
    state = aj.zeros(parts[0].shape[0], w.shape[1])
    for part in parts:
        state = aj.tanh(part @ w + state)
    return state


PARTS: dict[str, Callable[[aj.Tensor], list[aj.Tensor]]] = {
    "first axis": lambda x: [x[t] for t in range(6)],
    "second axis": lambda x: [x[:, t] for t in range(6)],
    "unbound": lambda x: list(x.unbind(1)),
    "backwards": lambda x: [x[5 - t] for t in range(6)],
    "pairs": lambda x: [x[t : t + 2].reshape(12, 8) for t in (0, 2, 4)],
}


@pytest.mark.parametrize("name", PARTS)
def test_products_of_all_parts_of_a_whole_are_one(name: str) -> None:
    text = compiled(lambda x, w: kept_apart(x, w, PARTS[name](x)), drawn(6, 6, 8), drawn(8, 5, seed=1))
    assert text.count("matmul") == (3 if name == "pairs" else 1)  # three parts are too few


@pytest.mark.parametrize("left_out", [0, 3, 5])
def test_what_nobody_reads_is_not_multiplied(left_out: int) -> None:
    def program(x: aj.Tensor, w: aj.Tensor) -> aj.Tensor:
        return kept_apart(x, w, [x[t] for t in range(6) if t != left_out])

    assert compiled(program, drawn(6, 6, 8), drawn(8, 5, seed=1)).count("matmul") == 5


@pytest.mark.parametrize("axis", [0, 1])
def test_products_that_are_stacked_multiply_a_stack(axis: int) -> None:
    def program(x: aj.Tensor, w: aj.Tensor) -> aj.Tensor:
        state = x[0]
        found = []
        for t in range(5):
            state = aj.sin(state + x[t])
            found.append(state @ w)
        return aj.stack(found, axis)

    text = compiled(program, drawn(5, 4, 8), drawn(8, 16, seed=1))
    assert text.count("matmul") == 1


def test_products_that_are_read_alone_too_stay() -> None:
    def program(x: aj.Tensor, w: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        state, found = x[0], []
        for t in range(5):
            found.append(aj.sin(state + x[t]) @ w)
            state = found[-1]
        return aj.stack(found), state

    assert compiled(program, drawn(5, 4, 16), drawn(16, 16, seed=1)).count("matmul") == 5


def test_a_recurrent_step_multiplies_its_input_once_each_way() -> None:
    """One product of the input, one of its gradient, one of each weight's; two a step for the state."""
    steps = 6

    def program(x: aj.Tensor, w: aj.Tensor, u: aj.Tensor, b: aj.Tensor) -> tuple[aj.Tensor, ...]:
        x, w, u, b = (v.detach().requires_grad_() for v in (x, w, u, b))
        state = aj.zeros(4, 16)
        for t in range(steps):
            state = aj.tanh(x[t] @ w + state @ u + b)
        return aj.autograd.grad(state.square().sum(), (x, w, u, b))

    text = compiled(program, drawn(steps, 4, 24), drawn(24, 16, seed=1), drawn(16, 16, seed=2), drawn(16, seed=3))
    assert text.count("matmul") <= 4 + 2 * steps - 1
    assert text.count("sum[axes=(0,)]") == 1


def test_rows_of_one_product_are_those_of_many_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: aj.Tensor, w: aj.Tensor) -> aj.Tensor:
        return aj.stack([aj.sin(x[t] @ w) for t in range(8)])

    x, w = drawn(8, 32, 40), drawn(40, 48, seed=1)
    joined = aj.jit(program)(x, w).numpy()
    monkeypatch.setattr("autojit.passes.join_rows.FEWEST", 1000)
    assert aj.jit(lambda x, w: program(x, w))(x, w).numpy().tobytes() == joined.tobytes()
