"""cond: both branches compiled, one run; gradients through the one that ran."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autojit as aj
from tests.control_flow.agreement import F, agree, derivatives

X = [0.4, -0.3, 1.2]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_to_second_order_with_outside_tensors(sign: float) -> None:
    w = aj.tensor(np.random.default_rng(0).standard_normal((3, 3)), requires_grad=True)
    x = (aj.tensor(X, dtype=F) * sign).requires_grad_()

    def run(x: aj.Tensor) -> Any:
        y = aj.cond(x.sum() > 0, lambda x: (x @ w).sin(), lambda x: x.exp() * w[0], (x,))
        return derivatives((y**2).sum(), x, w)

    agree(run, x)


def test_one_step_serves_both_answers() -> None:
    step = aj.jit(lambda x: aj.cond(x.min() > 0, lambda x: x.log(), lambda x: x - 1, (x,)))
    assert step(aj.ones(2)).tolist() == [0, 0]
    assert step(-aj.ones(2)).tolist() == [-2, -2]
    assert (step.stats()["captures"], step.stats()["splits"]) == (1, 0)


def test_python_predicates_choose_at_once() -> None:
    assert aj.cond(True, lambda x: x + 1, lambda x: x.nothing, (aj.tensor(1.0),)).item() == 2
    assert aj.cond(0, lambda: aj.tensor(1), lambda: aj.tensor(2)).item() == 2


def test_nests_and_plain_leaves() -> None:
    def run(x: aj.Tensor) -> Any:
        return aj.cond(
            x.sum() > 0,
            lambda x: {"y": x, "n": 3, "z": (None, 1.0)},
            lambda x: {"y": -x, "n": 3, "z": (None, 2.0)},
            (x,),
        )

    found = aj.jit(run)(aj.ones(2))
    assert found["n"] == 3
    assert found["z"][0] is None
    assert float(found["z"][1]) == 1


@pytest.mark.parametrize("transform", ["vmap", "vmap grad", "jvp", "hessian", "grad vmap"])
def test_function_transforms(transform: str) -> None:
    def loss(x: aj.Tensor) -> aj.Tensor:
        return aj.cond(x.sum() > 0, lambda x: (x * x.detach()).sin(), lambda x: x**3, (x,)).sum()

    from autojit.func import grad, hessian, jvp, vmap

    functions = {
        "vmap": vmap(loss),
        "vmap grad": vmap(grad(loss)),
        "grad vmap": grad(lambda b: vmap(loss)(b).sum()),
        "jvp": lambda b: jvp(loss, (b[0],), (b[1],)),
        "hessian": lambda b: hessian(loss)(b[0]),
    }
    batch = aj.tensor(np.random.default_rng(0).uniform(0.2, 1, (4, 3)) * [[1], [-1], [1], [-1]])
    assert len({bool(row.sum() > 0) for row in batch}) == 2
    agree(functions[transform], batch)
    if transform == "vmap grad":
        rows = np.stack([grad(loss)(row).numpy() for row in batch])
        np.testing.assert_allclose(functions[transform](batch).numpy(), rows, rtol=1e-12)


def test_a_branch_changes_state() -> None:
    counts = [aj.zeros((), dtype=aj.int64) for _ in range(2)]

    def run(count: aj.Tensor, x: aj.Tensor) -> Any:
        def counted(x: aj.Tensor) -> aj.Tensor:
            count.add_(1)
            return x * 2

        return aj.cond(x.sum() > 0, counted, lambda x: x, (x,))

    step = aj.jit(lambda x: run(counts[1], x))
    for value in (1.0, -1.0, 2.0):
        run(counts[0], aj.tensor(value))
        step(aj.tensor(value))
    assert counts[0].item() == counts[1].item() == 2


def test_the_branch_not_taken_has_no_effect() -> None:
    x = aj.tensor([0.0, 4.0], dtype=F, requires_grad=True)

    def run(x: aj.Tensor) -> Any:
        y = aj.cond(x.min() > 0, lambda x: x.sqrt(), lambda x: x * 2, (x,))
        return aj.autograd.grad(y.sum(), x)

    assert agree(run, x)(x)[0].tolist() == [2, 2]


def test_errors() -> None:
    x = aj.ones(3)

    def run(on_true: Any, on_false: Any) -> Any:
        return aj.jit(lambda x: aj.cond(x.sum() > 0, on_true, on_false, (x,)))(x)

    with pytest.raises(RuntimeError, match="result of false_fn must have the shape"):
        run(lambda x: x, lambda x: x[:2])
    with pytest.raises(RuntimeError, match=r"result\['a'\] of false_fn must have the dtype"):
        run(lambda x: {"a": x}, lambda x: {"a": x.double()})
    with pytest.raises(RuntimeError, match="structure"):
        run(lambda x: {"a": x}, lambda x: (x,))
    with pytest.raises(RuntimeError, match="bool or single-element tensor"):
        aj.cond(x > 0, lambda x: x, lambda x: x, (x,))
    with pytest.raises(RuntimeError, match="operands to be a tuple"):
        aj.cond(True, lambda x: x, lambda x: x, x)
    with pytest.raises(RuntimeError, match="callable"):
        aj.cond(True, None, lambda x: x, (x,))  # type: ignore[arg-type]
