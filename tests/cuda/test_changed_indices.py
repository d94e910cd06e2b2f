"""An index that is changed in place between its use and the backward pass is refused on devices as on the CPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import autojit as aj
from autojit.nn import functional as F

pytestmark = pytest.mark.gpu
Use = Callable[[aj.Tensor, aj.Tensor], aj.Tensor]
USES: dict[str, Use] = {
    "index": lambda x, i: x[i],
    "gather": lambda x, i: x.gather(0, i),
    "index_select": lambda x, i: x.index_select(0, i),
    "embedding": lambda x, i: F.embedding(i, x.reshape(6, 1)),
    "take": lambda x, i: x.take(i),
    "index_add": lambda x, i: x.clone().index_add(0, i, x[:2]),
    "scatter": lambda x, i: x.clone().scatter(0, i, x[:2]),
    "index_put": lambda x, i: x.clone().index_put((i,), x[:2]),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_it_is_refused(device: str, use: Use) -> None:
    x, index = aj.arange(6.0, device=device, requires_grad=True), aj.tensor([0, 2], device=device)
    y = use(x, index).sum()
    index.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_what_is_left_alone_is_not(device: str, use: Use) -> None:
    x, index = aj.arange(6.0, device=device, requires_grad=True), aj.tensor([0, 2], device=device)
    y = use(x, index).sum()
    changed = index + 1
    changed.add_(1)
    y.backward()
    expected = aj.arange(6.0, requires_grad=True)
    use(expected, index.cpu()).sum().backward()
    assert x.grad.tolist() == expected.grad.tolist()


def test_a_change_after_the_backward_pass_is_allowed(device: str) -> None:
    x, index = aj.arange(6.0, device=device, requires_grad=True), aj.tensor([0, 2], device=device)
    for _ in range(2):
        x.grad = None
        x.gather(0, index).sum().backward()
        assert x.grad.sum().item() == 2
        index.add_(1)
