"""Functions that write into tensors of their own have the derivatives that they have without writes, in every nest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit.func import grad, hessian, jacfwd, jacrev, jvp, vmap

Function = Callable[[aj.Tensor], aj.Tensor]


def _elements(x: aj.Tensor) -> aj.Tensor:
    y = aj.zeros(3, dtype=x.dtype)
    for k in range(3):
        y[k] = x[k] ** 2 + (y[k - 1] if k else 0)
    return y


def _view_made_before(x: aj.Tensor) -> aj.Tensor:
    y = aj.ones(3, dtype=x.dtype)
    seen = y.view(3)[1:]
    y.mul_(x).add_(x.sin())
    return aj.cat([y[:1], seen])


def _rows(x: aj.Tensor) -> aj.Tensor:
    y = aj.zeros(2, 3, dtype=x.dtype)
    y[0] = x * x[0]
    y[1] = y[0] * 2
    y.t()[1].add_(x[:2])
    return y.sum(0)


def _likeness(x: aj.Tensor) -> aj.Tensor:
    y = x.new_zeros(3)
    y[0] = x[1] ** 2
    y.view(3)[1:].copy_(x[1:] * x[0])
    return y


def _cut_off(x: aj.Tensor) -> aj.Tensor:
    y = x.detach() * 0
    y.narrow(0, 1, 2).add_(x[:2] ** 2)
    return y


def _scattered(x: aj.Tensor) -> aj.Tensor:
    y = aj.zeros_like(x)
    y.index_add_(0, aj.tensor([0, 0, 2]), x**2)
    y[aj.tensor([1])] = x[:1] * x[2:]
    return y


# with writes, and without
FUNCTIONS: dict[str, tuple[Function, Function]] = {
    "elements": (_elements, lambda x: (x**2).cumsum(0)),
    "a view made before": (_view_made_before, lambda x: x + x.sin()),
    "rows": (_rows, lambda x: 3 * x * x[0] + aj.stack([x[0] * 0, x[0] + x[1], x[0] * 0])),
    "a likeness": (_likeness, lambda x: aj.stack([x[1] ** 2, x[1] * x[0], x[2] * x[0]])),
    "cut off": (_cut_off, lambda x: aj.stack([x[0] * 0, x[0] ** 2, x[1] ** 2])),
    "scattered": (_scattered, lambda x: aj.stack([x[0] ** 2 + x[1] ** 2, x[0] * x[2], x[2] ** 2])),
}
TRANSFORMS: dict[str, Callable[[Function, aj.Tensor], Any]] = {
    "jacfwd": lambda f, x: jacfwd(f)(x),
    "jacrev": lambda f, x: jacrev(f)(x),
    "hessian": lambda f, x: hessian(lambda x: f(x).sin().sum())(x),
    "jacfwd of jacfwd": lambda f, x: jacfwd(jacfwd(f))(x),
    "jacfwd of jacrev": lambda f, x: jacfwd(jacrev(f))(x),
    "jacrev of jacfwd": lambda f, x: jacrev(jacfwd(f))(x),
    "a batch of tangents": lambda f, x: vmap(lambda t: jvp(f, (x,), (t,))[1])(aj.eye(3, dtype=x.dtype)),
    "a batch of weights": lambda f, x: vmap(lambda w: grad(lambda x: (f(x) * w).sum())(x))(aj.stack([x, x + 1])),
}
OF_BATCHES: dict[str, Callable[[Function, aj.Tensor], Any]] = {  # whose tensors of zeros are made of batched ones
    "a batch": lambda f, x: vmap(f)(aj.stack([x, x + 1])),
    "a batch of jacrev": lambda f, x: vmap(jacrev(f))(aj.stack([x, x + 1])),
    "a batch of jacfwd": lambda f, x: vmap(jacfwd(f))(aj.stack([x, x + 1])),
    "a batch of hessians": lambda f, x: vmap(hessian(lambda x: f(x).sum()))(aj.stack([x, x + 1])),
}
CASES = [(f, t) for f in FUNCTIONS for t in TRANSFORMS]
CASES += [(f, t) for f in ("a likeness", "cut off", "scattered") for t in OF_BATCHES]


@pytest.mark.parametrize("jit", [lambda f: f, aj.jit], ids=["eager", "compiled"])
@pytest.mark.parametrize(("name", "transform"), CASES)
def test_derivatives_are_those_without_writes(name: str, transform: str, jit: Any) -> None:
    with_writes, without = FUNCTIONS[name]
    apply = {**TRANSFORMS, **OF_BATCHES}[transform]
    x = aj.tensor([0.5, -1.2, 0.7], dtype=aj.float64)
    found = jit(lambda x: apply(with_writes, x))(x)
    assert aj.allclose(found, apply(without, x))


def test_what_differs_along_a_batch_is_not_written_to_what_all_share() -> None:
    shared = aj.zeros(2)
    with pytest.raises(RuntimeError, match="inplace arithmetic"):
        vmap(lambda x: shared.add_(x))(aj.ones(3, 2))
    with pytest.raises(RuntimeError, match="inplace arithmetic"):  # nor what was alike, but is not any more
        vmap(lambda t: shared.add_(jvp(lambda x: x.clone().add_(t), (aj.ones(2),), (t,))[0]))(aj.ones(3, 2))
    assert not shared.any()


def test_a_write_whose_views_in_an_outer_batch_are_not_known_is_refused() -> None:
    def partly(x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
        whole = y.clone()
        whole[1] += x.sum()
        return whole

    x, y = aj.ones(2, 3), aj.rand(2, 3)
    with pytest.raises(RuntimeError, match="inplace arithmetic"):
        vmap(jacfwd(partly))(x, y)
    expected = aj.zeros(2, 3, 3)
    expected[:, 1] = 1.0
    assert aj.equal(vmap(jacrev(partly))(x, y), expected)
