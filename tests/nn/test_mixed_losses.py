"""Losses and products of operands of two dtypes: the dtype of the result, or the refusal, is that of PyTorch 2.14."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import autojit as aj
import autojit.nn.functional as F

LETTERS = {"float32": "s", "float64": "d", "float16": "h", "bfloat16": "b", "int64": "l", "bool": "?"}

# by function: the dtype of the result for every dtype of x, one group each, and every dtype of y; "-" is refused
CASES: dict[str, tuple[str, str]] = {
    "binary_cross_entropy_with_logits": (
        "F.binary_cross_entropy_with_logits(x, y)",
        "sdhb-- sdhb-- sdhb-- sdhb-- ------ ------",
    ),
    "binary_cross_entropy_with_logits of weights": (
        "F.binary_cross_entropy_with_logits(x, y, aj.ones(4), pos_weight=aj.ones(4))",
        "sdhb-- sdhb-- sdhb-- sdhb-- ------ ------",
    ),
    "huber_loss": ("F.huber_loss(x, y)", "ssssss dddddd hhhhhh bbbbbb ------ ------"),
    "l1_loss": ("F.l1_loss(x, y)", "sdsss- ddddd- sdhsh- sdsbb- sdhb-- ------"),
    "mse_loss": ("F.mse_loss(x, y, reduction='none')", "sdssss dddddd sdhshh sdsbbb sdhb-- sdhb--"),
    "smooth_l1_loss": ("F.smooth_l1_loss(x, y)", "sdssss dddddd sdhshh sdsbbb sdhb-- sdhb--"),
    "soft_margin_loss": ("F.soft_margin_loss(x, y)", "ssssss dddddd hhhhhh bbbbbb ------ ------"),
    "kl_div": ("F.kl_div(x, y, reduction='sum')", "sdss-- dddd-- sdhs-- sdsb-- ------ ------"),
    "poisson_nll_loss": ("F.poisson_nll_loss(x, y)", "sdssss dddddd sdhshh sdsbbb sdssss sdsss-"),
    "multilabel_soft_margin_loss": ("F.multilabel_soft_margin_loss(x, y)", "sdsss- ddddd- sdhsh- sdsbb- ------ ------"),
    "margin_ranking_loss": ("F.margin_ranking_loss(x, x, y)", "sdsss- ddddd- sdhsh- sdsbb- sdhbs- ------"),
    "cosine_similarity": ("F.cosine_similarity(x, y, 0)", "sdssss dddddd sdhshh sdsbbb sdhb-- sdhb--"),
    "cross_entropy of probabilities": (
        "F.cross_entropy(x[None], y[None])",
        "sdss-- dddd-- sdhs-- sdsb-- ------ ------",
    ),
    "nll_loss of weights": ("F.nll_loss(x[None], aj.tensor([1]), y)", "s----- -d---- --h--- ---b-- ------ ------"),
    "triplet_margin_loss": ("F.triplet_margin_loss(x, y, x)", "sdsss- ddddd- sdhsh- sdsbb- sdsss- ------"),
    "pairwise_distance": ("F.pairwise_distance(x, y)", "sdsss- ddddd- sdhsh- sdsbb- sdhbs- ------"),
    "prelu": ("F.prelu(x, y[:1])", "s----- -d---- --h--- ---b-- ------ ------"),
    "rms_norm": ("F.rms_norm(x, (4,), y)", "ssssss dddddd hhhhhh bbbbbb ------ ------"),
    "layer_norm": ("F.layer_norm(x, (4,), y)", "s----- -d---- h-h--- b--b-- ------ ------"),
    "add": ("aj.add(x, y, alpha=2)", "sdssss dddddd sdhshh sdsbbb sdhbll sdhbl?"),
    "sub": ("aj.sub(x, y, alpha=2)", "sdsss- ddddd- sdhsh- sdsbb- sdhbl- ------"),
    "rsub": ("aj.rsub(x, y, alpha=2)", "sdsss- ddddd- sdhsh- sdsbb- sdhbl- ------"),
    "lerp": ("aj.lerp(x, y, 0.5)", "s----- -d---- --h--- ---b-- ------ ------"),
    "outer product": ("aj.einsum('i,j->ij', x, y)", "sdssss dddddd sdhshh sdsbbb sdhbll sdhbl?"),
    "inner product": ("aj.einsum('i,i->', x, y)", "s----- -d---- --h--- ---b-- ----l- ------"),
    "product": ("aj.einsum('i,i->i', x, y)", "sdssss dddddd sdhshh sdsbbb sdhbll sdhbl?"),
}


def _operands(dtypes: tuple[str, str], gradients: bool) -> list[Any]:
    found = [aj.tensor(v).to(getattr(aj, d)) for v, d in zip(([1.0, 0.0, 1.0, 1.0], [1.0, 1.0, 0.0, 1.0]), dtypes)]
    return [t.requires_grad_() if gradients and t.is_floating_point() else t for t in found]


def _call(formula: str) -> Any:
    return lambda x, y: eval(formula, {"aj": aj, "F": F, "x": x, "y": y})


@pytest.mark.parametrize("name", CASES)
def test_results_have_the_dtypes_of_torch(name: str) -> None:
    formula, expected = CASES[name]
    found = ""
    for dtypes in product(LETTERS, LETTERS):
        try:
            result = _call(formula)(*_operands(dtypes, False))
        except (RuntimeError, TypeError, ValueError) as error:
            assert str(error), dtypes
            found += "-"
        else:
            found += LETTERS[str(result.dtype).rpartition(".")[2]]
            if result.dtype is aj.bool:
                continue
            wide = _call(formula)(*[t.double() for t in _operands(dtypes, False)])
            np.testing.assert_allclose(result.double().numpy(), wide.numpy(), rtol=2e-2, atol=2e-2, err_msg=str(dtypes))
    assert found == expected.replace(" ", "")


_CONSTANTS = ("soft_margin_loss", "nll_loss of weights")  # whose second operand has no derivative


@pytest.mark.parametrize("jit", [lambda f: f, aj.jit], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtypes", [("bfloat16", "float32"), ("float32", "bfloat16"), ("float32", "float64")])
@pytest.mark.parametrize("name", CASES)
def test_gradients_have_the_dtypes_of_their_operands(name: str, dtypes: tuple[str, str], jit: Any) -> None:
    formula, expected = CASES[name]
    letters = list(LETTERS)
    if expected.split()[letters.index(dtypes[0])][letters.index(dtypes[1])] == "-" or name in _CONSTANTS:
        return
    x, y = _operands(dtypes, True)
    jit(_call(formula))(x, y).sum().backward()
    for t in (x, y):
        assert t.grad is not None
        assert t.grad.dtype is t.dtype


@pytest.mark.parametrize("name", _CONSTANTS)
def test_an_operand_without_a_derivative_is_refused_as_one_that_requires_grad(name: str) -> None:
    x, y = _operands(("float32", "float32"), True)
    with pytest.raises(RuntimeError, match="is not differentiable with respect to argument"):
        _call(CASES[name][0])(x, y)
    with aj.no_grad():
        _call(CASES[name][0])(x, y)


def test_a_scalar_is_a_row_of_one_class() -> None:
    x = aj.tensor(0.3, requires_grad=True)
    loss = F.multi_margin_loss(x, aj.tensor(0))
    loss.backward()
    assert loss.item() == 0.0
    assert x.grad is not None


def test_targets_outside_0_to_1_are_refused() -> None:
    p = aj.tensor([0.5, 0.5])
    with pytest.raises(RuntimeError, match="all elements of target should be between 0 and 1"):
        F.binary_cross_entropy(p, aj.tensor([0.5, 1.5]))
