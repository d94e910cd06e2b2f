"""Arguments that a step gives another shape in place (``t_``, ``squeeze_``) have it afterwards, as in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from tests.jit.agreement import Program, agree

FORMS: dict[str, Callable[[aj.Tensor], Any]] = {
    "squeeze_": lambda x: x.squeeze_(),
    "squeeze_ one": lambda x: x.squeeze_(0),
    "unsqueeze_": lambda x: x.unsqueeze_(-1),
    "t_": lambda x: x.view(-1, 1) if x.ndim > 2 else x.t_(),
    "transpose_": lambda x: x.transpose_(0, -1),
    "swapaxes_": lambda x: x.swapaxes_(-1, 0),
    "twice": lambda x: x.transpose_(0, -1).unsqueeze_(0),
    "there and back": lambda x: x.unsqueeze_(0).squeeze_(0),
}
USES: dict[str, Callable[..., Any]] = {
    "returned": lambda x, change: change(x),
    "a view before": lambda x, change: (x[0], change(x), x * 2)[::2],
    "a view after": lambda x, change: (change(x), x[0], x[0].mul_(2))[1:],
    "written before": lambda x, change: (x.mul_(3), change(x), x + 1)[2],
    "written after": lambda x, change: (change(x), x.mul_(3), x.sum())[1:],
    "written through a view": lambda x, change: (change(x), x.reshape(-1)[:1].add_(5), x * x)[2],
    "aliased": lambda x, change: (x.detach(), change(x), x.shape, x.is_contiguous()),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", [(1, 3), (2, 3), (3, 3), (1, 2, 3)])
def test_the_argument_has_its_new_form_afterwards(form: str, use: str, shape: tuple[int, ...]) -> None:
    def make() -> Program:
        given = [aj.arange(float(aj.Size(shape).numel())).reshape(shape).clone() for _ in range(2)]
        shown = [x.view(-1) for x in given]
        return Program(lambda x: USES[use](x, FORMS[form]), [(given[0],), (given[1],), (given[0],)], [*given, *shown])

    agree(make)


def test_a_result_of_an_argument_with_a_history() -> None:
    def run(wrap: Callable[..., Any]) -> Any:
        w = aj.tensor([[1.0, 2.0]], requires_grad=True)
        x = w * 2
        y = wrap(lambda x: (x.squeeze_(), (x * x).sum())[1])(x)
        (y + x.sum()).backward()
        return x.shape, w.grad.tolist()

    assert run(aj.jit) == run(lambda f: f)
