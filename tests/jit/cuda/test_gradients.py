"""``gradcheck`` and ``gradgradcheck`` of functions on a GPU, as they are and compiled."""

from __future__ import annotations

from collections.abc import Callable

import autojit as aj
from autojit import nn
from autojit.autograd import gradcheck, gradgradcheck
from tests.covering import covering

F = nn.functional

Function = Callable[..., aj.Tensor]


def leaf(*shape: int) -> aj.Tensor:
    return (aj.rand(*shape, dtype=aj.float64, device="cuda") + 0.2).requires_grad_()


def attention(q: aj.Tensor, k: aj.Tensor, v: aj.Tensor) -> aj.Tensor:
    return aj.softmax(q @ k.transpose(-2, -1), -1) @ v


def looked_up(table: aj.Tensor) -> aj.Tensor:
    index = aj.tensor([2, 0, 2, 1], device="cuda")
    return aj.zeros(3, 2, dtype=aj.float64, device="cuda").index_add(0, index, table[index].exp()).sin()


FUNCTIONS: dict[str, tuple[Function, Callable[[], tuple[aj.Tensor, ...]]]] = {
    "elementwise": (lambda x, y: (x * y).sin() / (x + y).sqrt(), lambda: (leaf(2, 3), leaf(3))),
    "product": (lambda a, b: (a @ b).tanh(), lambda: (leaf(2, 2), leaf(2, 1))),
    "rows": (lambda x: aj.log_softmax(x, -1) * F.layer_norm(x, (3,)), lambda: (leaf(2, 3),)),
    "attention": (attention, lambda: (leaf(1, 2, 1), leaf(1, 2, 1), leaf(1, 2, 1))),
    "attention as an op": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        lambda: (leaf(1, 2, 1), leaf(1, 2, 1), leaf(1, 2, 1)),
    ),
    "convolution": (lambda x, w: F.conv1d(x, w, padding=1), lambda: (leaf(1, 2, 3), leaf(1, 2, 2))),
    "look-ups": (looked_up, lambda: (leaf(3, 2),)),
    "sums of sums": (lambda x: aj.cumsum(x, 0).prod(1) + aj.logsumexp(x, 1), lambda: (leaf(2, 3),)),
}


@covering("name, is_compiled", FUNCTIONS, [True, False], every=2)
def test_derivatives_are_those_of_differences(name: str, is_compiled: bool) -> None:
    aj.manual_seed(3)
    function, operands = FUNCTIONS[name]
    checked = aj.jit(function) if is_compiled else function
    assert gradcheck(checked, operands(), check_forward_ad=True)
    assert gradgradcheck(checked, operands())
