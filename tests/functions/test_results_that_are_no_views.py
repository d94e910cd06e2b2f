"""Results that are made as views of intermediate results are no views to callers: they may be cut off their history in
place, and written to with a history where they were made without one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj

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
