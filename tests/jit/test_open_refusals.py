"""Steps with open sizes whose results the caller differentiates, where ops may refuse what they are given: wherever
such an op is, the step computes the function alone, nothing of its derivatives, and gives what eager mode gives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit import nn
from autojit.ir.verifier import verify
from autojit.tensor.state import reference_only
from tests.jit.agreement import check_equal, plain

F = nn.functional
N = 4
SIZES = (5, 3)

REFUSING: dict[str, Callable[[Any, Any], Any]] = {
    "integer division": lambda x, k: x * (k % k[2]).sum(),
    "look-up": lambda x, k: x * x[..., k - 1].sum(),
    "gather": lambda x, k: x + x.reshape(-1, N)[:1].gather(1, (k - 1).reshape(1, 3)).sum(),
    "probabilities": lambda x, k: x * F.binary_cross_entropy(x.sigmoid(), (x.sigmoid() * 0 + (k % 2).sum() * 0)),
    "class indices": lambda x, k: x + F.cross_entropy(x.reshape(-1, N)[:1], k[:1] - 1),
    "factorisation": lambda x, k: x * aj.linalg.cholesky(aj.eye(3).double() * (2 + x.mean() ** 2)).sum(),
    "solution": lambda x, k: x + aj.linalg.solve(aj.eye(3).double() * (2 + x.mean() ** 2), k.double()).sum(),
    "nothing reads it": lambda x, k: (F.one_hot(k, 4), k // k[2], x * 2)[2],
}

PLACES: dict[str, Callable[[Callable[[Any, Any], Any], Any, Any], Any]] = {
    "scan": lambda f, x, k: aj.scan(lambda c, z: (c * 0.5 + f(z, k), c.sin()), x[0].detach() * 0, x),
    "results of a scan": lambda f, x, k: aj.scan(lambda c, z: (c * 0.5 + f(z, k), c.sin()), x[0].detach() * 0, x)[1],
    "cond": lambda f, x, k: aj.cond(x.sum() > -99, lambda z: f(z, k), lambda z: z * 1, (x,)),
    "the step": lambda f, x, k: f(x, k),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("refusing", REFUSING)
def test_a_step_that_is_differentiated_outside_computes_the_function_alone(refusing: str, place: str) -> None:
    k = aj.tensor([1, 3, 2])

    def function(x: Any) -> Any:
        return PLACES[place](REFUSING[refusing], x, k)

    def seen(run: Callable[[Any], Any], n: int) -> list[Any]:
        x = (aj.arange(n * N).reshape(n, N).double() * 0.1).sin().requires_grad_()
        found = run(x)
        leaves = [y for y in (found if isinstance(found, tuple) else (found,)) if y.requires_grad]
        return [plain(found), plain(aj.autograd.grad([(y * y).sum() for y in leaves], x))]

    step = aj.jit(function)
    for n in SIZES:
        with reference_only():
            eager = seen(function, n)
        check_equal(eager, seen(step, n), f"{n} rows: ")
        verify(step.newest.segment.graph)
    assert step.stats()["captures"] == 2, step.explain()
