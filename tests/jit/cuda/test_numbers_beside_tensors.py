"""Numbers that change from call to call, or that a step computes, are where the tensors are that they are used with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj


def _first(x: Any) -> Any:
    return aj.zeros(1, 2, dtype=aj.long, device=x.device)


def _assigned(x: Any, key: Any, m: Any) -> Any:
    y = x.clone()
    y[key] = m
    return y


USES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "scatter": lambda x, n, m: x.scatter(0, _first(x), m),
    "scatter in place": lambda x, n, m: x.clone().scatter_(1, _first(x), n),
    "added": lambda x, n, m: x.clone().scatter_(1, _first(x), m, reduce="add"),
    "row": lambda x, n, m: _assigned(x, 0, m),
    "rows": lambda x, n, m: _assigned(x, [0], m),
    "mask": lambda x, n, m: _assigned(x, x > 1, m),
    "masked": lambda x, n, m: x.masked_fill(x > 1, m),
    "index_fill": lambda x, n, m: x.index_fill(0, _first(x)[0, :1], m),
    "searchsorted": lambda x, n, m: aj.searchsorted(x[0], m),
    "bucketize": lambda x, n, m: aj.bucketize(m, x[0]),
    "isin": lambda x, n, m: aj.isin(x, n),
    "among": lambda x, n, m: aj.isin(n, x.long()),
    "tensor": lambda x, n, m: aj.tensor([n, m], device=x.device),
    "total and number": lambda x, n, m: aj.tensor([x.sum().item(), m, 1], device=x.device),
    "stack": lambda x, n, m: aj.stack([x.sum(), aj.as_tensor(m, device=x.device)]),
    "full": lambda x, n, m: aj.full((2,), m, device=x.device),
    "where": lambda x, n, m: aj.where(x > 1, m, n),
    "diagonal": lambda x, n, m: x.clone().fill_diagonal_(m),
}


@pytest.mark.parametrize("use", USES)
def test_numbers_are_where_the_tensors_are(use: str) -> None:
    step, at_once = aj.jit(USES[use]), USES[use]
    x = aj.arange(6.0).reshape(2, 3)
    for n, m in ((1, 0.5), (2, 1.5), (3, 2.5)):
        wanted = at_once(x, n, m)
        for found in (step(x.to("cuda"), n, m), at_once(x.to("cuda"), n, m)):
            assert found.device.type == "cuda"
            assert found.tolist() == wanted.tolist()
