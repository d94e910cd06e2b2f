"""Optimisers see a complex parameter as its real parts, and what a sparse gradient names as a table of just that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import Tensor, optim

OPTIMIZERS: dict[str, Callable[[Any], optim.Optimizer]] = {
    "LBFGS": lambda ps: optim.LBFGS(ps, lr=0.3, max_iter=4),
    "LBFGS with a line search": lambda ps: optim.LBFGS(ps, max_iter=4, line_search_fn="strong_wolfe"),
    "Adagrad": lambda ps: optim.Adagrad(ps, lr=0.3, initial_accumulator_value=0.2),
    "Adam": lambda ps: optim.Adam(ps, lr=0.3, amsgrad=True),
    "RMSprop": lambda ps: optim.RMSprop(ps, lr=0.3, centered=True, momentum=0.5),
    "SGD": lambda ps: optim.SGD(ps, lr=0.3, momentum=0.5, nesterov=True),
    "Adadelta": lambda ps: optim.Adadelta(ps, lr=0.3),
    "Rprop": lambda ps: optim.Rprop(ps, lr=0.03),
    "ASGD": lambda ps: optim.ASGD(ps, lr=0.3),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_complex_parameter_moves_as_its_real_parts(name: str) -> None:
    start = np.array([[1.0, 0.5], [-0.7, 2.0]])
    target = aj.tensor([[0.3, -1.0], [2.0, 0.1]], dtype=aj.float64)

    def trained(is_complex: bool) -> np.ndarray[Any, Any]:
        p = aj.nn.Parameter(aj.view_as_complex(aj.tensor(start)) if is_complex else aj.tensor(start))
        other = aj.nn.Parameter(aj.ones(3, dtype=aj.float64))
        optimizer = OPTIMIZERS[name]([other, p])

        def closure() -> Tensor:
            optimizer.zero_grad()
            parts = aj.view_as_real(p) if is_complex else p
            loss = ((parts - target) ** 2).sum() + (parts**4).sum() * 0.1 + (other**2).sum() * parts[0, 1] ** 2
            loss.backward()
            return loss

        for _ in range(3):
            optimizer.step(closure)
        return (aj.view_as_real(p) if is_complex else p).detach().numpy()

    np.testing.assert_allclose(trained(True), trained(False), rtol=1e-9)


@pytest.mark.parametrize("maximize", [False, True])
def test_a_gradient_of_elements_moves_them_as_rows_of_a_table(maximize: bool) -> None:
    def trained(is_table: bool) -> np.ndarray[Any, Any]:
        start = aj.arange(6.0, dtype=aj.float64)
        p = aj.nn.Parameter(start.reshape(6, 1) if is_table else start.reshape(3, 2))
        optimizer = optim.SparseAdam([p], lr=0.1, maximize=maximize)
        for k in range(3):
            places, values = aj.tensor([1, 4, 4, k]), aj.tensor([1.0, -2.0, 0.5, 3.0], dtype=aj.float64) + k
            if is_table:
                p.grad = aj.sparse_coo_tensor(places[None], values[:, None], (6, 1))
            else:
                p.grad = aj.sparse_coo_tensor(aj.stack([places // 2, places % 2]), values, (3, 2))
            optimizer.step()
        return p.detach().numpy().reshape(-1)

    np.testing.assert_allclose(trained(False), trained(True), rtol=1e-12)
