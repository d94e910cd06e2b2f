"""An operand that changes in place before backward: torch's error, or the gradient at the values that were read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import autojit as aj
from autojit.nn import functional as F
from tests.autograd.modes import Mode

Loss = Callable[[aj.Tensor, aj.Tensor], aj.Tensor]
ROWS: dict[str, Loss] = {
    "cross_entropy": F.cross_entropy, "nll_loss": F.nll_loss, "multi_margin": F.multi_margin_loss,
    "index_select": lambda x, y: x.index_select(0, y), "take": aj.take, "look-up": lambda x, y: x[y],
    "gather": lambda x, y: x.gather(1, y[:, None]), "scatter": lambda x, y: x.scatter(1, y[:, None], 0.0),
    "embedding": lambda x, y: F.embedding(y, x), "embedding_bag": lambda x, y: F.embedding_bag(y[None], x),
    "weights": lambda x, y: F.cross_entropy(x, aj.ones_like(y), weight=y[:1].float().expand(4) + 1),
}  # fmt: skip
ELEMENTS: dict[str, Loss] = {
    "mse": F.mse_loss, "smooth_l1": F.smooth_l1_loss, "huber": F.huber_loss, "soft_margin": F.soft_margin_loss,
    "logits": F.binary_cross_entropy_with_logits, "kl_div": lambda x, y: F.kl_div(x, y, reduction="sum"),
    "soft targets": F.cross_entropy, "xlogy": aj.xlogy, "clamp": lambda x, y: aj.clamp(x, y - 0.1, y + 0.1),
    "maximum": aj.maximum, "where": lambda x, y: aj.where(y > 0.5, x, y), "masked": lambda x, y: x[y > 0.5],
    "masked_fill": lambda x, y: x.masked_fill(y > 0.5, 0.0), "cdist": aj.cdist, "dist": aj.dist,
    "cosine": F.cosine_similarity, "batch_norm": lambda x, y: F.batch_norm(x, None, None, y[2], training=True),
    "attention": lambda x, y: F.scaled_dot_product_attention(x, y, y),
}  # fmt: skip
CASES = [(name, loss, True) for name, loss in ROWS.items()] + [(name, loss, False) for name, loss in ELEMENTS.items()]


@pytest.mark.parametrize(("loss", "are_rows"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_gradient_is_of_the_values_that_were_read(loss: Loss, are_rows: bool, mode: Mode) -> None:
    aj.manual_seed(0)
    x = aj.rand(3, 4).requires_grad_()
    other = aj.tensor([0, 2, 1]) if are_rows else aj.rand(3, 4)

    def gradient(x: aj.Tensor, other: aj.Tensor) -> aj.Tensor:
        return aj.autograd.grad(loss(x, other).sum(), x)[0]

    def changed(x: aj.Tensor, other: aj.Tensor) -> aj.Tensor:
        y = loss(x, other).sum()
        other.zero_()
        return aj.autograd.grad(y, x)[0]

    expected = gradient(x, other.clone())
    run = mode(changed)
    try:
        found = run(x, other.clone())
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
    else:
        assert aj.allclose(found, expected)
