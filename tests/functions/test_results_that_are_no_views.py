"""Results that are made as views of intermediate results are no views to callers: they may be cut off their history in
place, and written to with a history where they were made without one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
import autojit.nn.functional as F

FUNCTIONS: dict[str, Callable[[aj.Tensor, aj.Tensor], Any]] = {
    "max": lambda x, _: x.max(1),
    "min": lambda x, _: x.min(1),
    "median": lambda x, _: x.median(1),
    "nanmedian": lambda x, _: x.nanmedian(dim=1),
    "mode": lambda x, _: x.mode(),
    "kthvalue": lambda x, _: aj.kthvalue(x, 2),
    "quantile": lambda x, _: aj.quantile(x, 0.3, dim=1),
    "nanquantile": lambda x, _: x.nanquantile(0.3, 1),
    "matrix times vector": lambda x, v: x @ v,
    "mv": lambda x, v: aj.mv(x, v),
    "vector times vector": lambda x, v: v @ v,
    "vdot": lambda x, v: aj.vdot(v, v),
    "mean": lambda x, _: x.mean(1),
    "sum": lambda x, _: x.sum(1, keepdim=True),
    "vector times matrix": lambda x, v: v @ x.T,
    "gather": lambda x, _: x[0, 1].gather(0, aj.tensor([0])) * x[0],
    "gather of a scalar": lambda x, _: x[0, 0].gather(0, aj.tensor(0)),
    "take": lambda x, _: x.take(aj.tensor(0)),
    "index_select": lambda x, _: x[0, 0].index_select(0, aj.tensor([0])),
    "index_add": lambda x, v: x[0, 0].index_add(0, aj.tensor([0]), v[0]),
    "index_copy": lambda x, v: x[0, 0].index_copy(0, aj.tensor([0]), x[0, 0] * v[0]),
    "index_reduce": lambda x, v: x[0, 0].index_reduce(0, aj.tensor([0]), v[0], "amax"),
    "put": lambda x, v: x.put(aj.tensor([1]), v[:1]),
    "combinations": lambda x, v: aj.combinations(x[0]),
    "gradient": lambda x, _: aj.gradient(x),
    "cholesky": lambda x, _: aj.linalg.cholesky(x @ x.T + 9 * aj.eye(3)),
    "pinv": lambda x, _: aj.linalg.pinv(x.T),
    "svd": lambda x, _: aj.linalg.svd(x, full_matrices=False),
    "solve": lambda x, v: aj.linalg.solve(x @ x.T + 9 * aj.eye(3), v[:3]),
    "solve_triangular": lambda x, v: aj.linalg.solve_triangular(x[:, :3] + 9 * aj.eye(3), x, upper=False),
    "unfold": lambda x, _: F.unfold(x[None], 2),
    "max_unpool": lambda x, _: F.max_unpool2d(x[None, :2, :2], aj.tensor([[[0, 3], [5, 6]]]), 2),
    "group_norm": lambda x, v: F.group_norm(x[None], 3, v[:3], v[:3]),
}


@pytest.mark.parametrize("jit", [lambda f: f, aj.jit], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_they_are_cut_off_and_written_to_like_others(name: str, jit: Any) -> None:
    def step(x: aj.Tensor, v: aj.Tensor) -> Any:
        cut = FUNCTIONS[name](x, v)
        for t in cut if isinstance(cut, tuple) else (cut,):
            assert not t._is_view()
            assert not t.detach_().requires_grad
        with aj.no_grad():
            found = FUNCTIONS[name](x, v)
        first = found[0] if isinstance(found, tuple) else found
        first.mul_(x[0, 0])
        return aj.autograd.grad(first.sum(), (x,))[0]

    x = aj.tensor([[1.0, 2.0, 5.0, 2.0], [4.0, 0.5, 0.5, 3.0], [1.0, 1.5, 2.5, 1.5]], requires_grad=True)
    v = aj.tensor([1.0, -1.0, 2.0, 0.5])
    with aj.no_grad():
        found = FUNCTIONS[name](x, v)
    total = (found[0] if isinstance(found, tuple) else found).sum()
    grad = jit(step)(x, v)
    assert grad[0, 0].item() == pytest.approx(total.item())
    assert grad.count_nonzero() == 1


SAME: dict[str, Callable[[aj.Tensor], Any]] = {
    "cummax": lambda x: x.cummax(0),
    "cummin": lambda x: x.cummin(0),
    "cumsum": lambda x: x.cumsum(0),
    "cumprod": lambda x: x.cumprod(0),
    "logcumsumexp": lambda x: x.logcumsumexp(0),
    "triangular_solve": lambda x: aj.triangular_solve(x.reshape(1, 1) * 2, x.reshape(1, 1))[::-1],
    "sort": lambda x: x.sort(),
    "median": lambda x: x.median(0),
    "mode": lambda x: x.mode(),
    "logsumexp": lambda x: x.logsumexp(()),
}


@pytest.mark.parametrize("jit", [lambda f: f, aj.jit], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", SAME)
def test_a_write_to_the_result_of_a_scalar_leaves_the_scalar(name: str, jit: Any) -> None:
    @jit
    def step(x: aj.Tensor) -> aj.Tensor:
        found = SAME[name](x)
        first = found[0] if isinstance(found, tuple) else found
        first.add_(1.0)
        return first

    x = aj.tensor(2.0)
    step(x)
    assert x.item() == 2.0
