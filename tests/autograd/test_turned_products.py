"""Products with transposed operands: their gradients are right, laid out like the leaves, and nobody else's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import autojit as aj
from autojit.core.reference_counts import ARGUMENTS_ARE_COUNTED
from autojit.nn.functional import linear

PRODUCTS: dict[str, Callable[[aj.Tensor, aj.Tensor], aj.Tensor]] = {
    "right": lambda x, w: x @ w.t(),
    "left": lambda x, w: w.t().t() @ x.t(),
    "both": lambda x, w: (w @ x.t()).t(),
    "linear": lambda x, w: linear(x, w, aj.ones(w.shape[0], dtype=w.dtype)),
    "batch": lambda x, w: aj.stack([x, x]) @ aj.stack([w, w]).mT,
    "rows": lambda x, w: linear(aj.stack([x, x]), w),
}


def operands(dtype: aj.dtype = aj.float64) -> tuple[aj.Tensor, aj.Tensor]:
    aj.manual_seed(0)
    return aj.randn(5, 3, dtype=dtype), aj.randn(4, 3, dtype=dtype)


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("dtype", [aj.float64, aj.complex128])
def test_gradients_are_right_and_laid_out_like_their_leaves(name: str, dtype: aj.dtype) -> None:
    if name == "linear" and dtype.is_complex:
        pytest.skip("the product with a bias is of real numbers here")
    x, w = (t.requires_grad_() for t in operands(dtype))
    assert aj.autograd.gradcheck(PRODUCTS[name], (x, w))
    PRODUCTS[name](x, w).abs().sum().backward()
    assert (x.grad.stride(), w.grad.stride()) == (x.stride(), w.stride())
    for leaf, found in zip((x, w), aj.autograd.grad(PRODUCTS[name](x, w).abs().sum(), (x, w)), strict=True):
        assert found.stride() == leaf.stride()
        aj.testing.assert_close(found, leaf.grad)


def test_what_somebody_holds_is_not_taken_over() -> None:
    """Hooks, retained gradients and results keep what they have seen when ``.grad`` changes."""
    x, w = operands()
    held: list[aj.Tensor] = []
    w.requires_grad_()
    turned = w.t()
    turned.retain_grad()
    turned.register_hook(held.append)
    w.register_hook(held.append)
    (x @ turned).sum().backward()
    before = [t.clone() for t in (*held, turned.grad)]
    assert w.grad is not None
    w.grad.zero_()
    for seen, kept in zip((*held, turned.grad), before, strict=True):
        aj.testing.assert_close(seen, kept)


@pytest.mark.skipif(not ARGUMENTS_ARE_COUNTED, reason="who holds an array is not known")
def test_the_gradient_of_a_linear_layer_is_not_copied() -> None:
    x, w = operands(aj.float32)
    w.requires_grad_()
    made: list[int] = []
    product = np.matmul

    def watched(*args: np.ndarray) -> np.ndarray:
        found = product(*args)
        made.append(found.ctypes.data)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "matmul", watched)
        linear(x, w, aj.ones(4)).sum().backward()
    assert w.grad is not None
    assert w.grad.data_ptr() == made[-1]
