"""At kinks, ends of domains and ties: values, gradients and second derivatives are torch's, eagerly and compiled.

What torch says is recorded (``tools/make_kink_table.py``). ``OTHER`` lists where we differ on purpose, and why.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autojit as aj
from tests.dispatch.kink_cases import CASES, Case, operands, outcome

RECORDED = json.loads((Path(__file__).parent / "recorded" / "kinks.json").read_text())
SLOPE = "a masked or flat branch has derivative 0 here, where torch multiplies 0 by infinity"
OTHER = {
    "logit eps: second": SLOPE, "atan2: second": SLOPE, "copysign: second": SLOPE, "xlogy: first": SLOPE,
    "xlogy: second": SLOPE, "xlog1py: first": SLOPE, "xlog1py: second": SLOPE, "pow: second": SLOPE,
    "logaddexp: second": SLOPE, "logaddexp2: first": SLOPE, "logaddexp2: second": SLOPE,
    "sinc: first": "torch's formula cancels near 0 (1e-7)", "sinc: second": "torch's formula cancels near 0",
    "hardsigmoid: first": "torch multiplies by a float32 constant", "soft_margin: value": "torch's overflows",
    "soft_margin: first": "torch's overflows", "soft_margin: second": "torch's overflows",
    "bce: second": "torch adds 1e-12 to its denominators, and counts the bounds of the logarithms twice",
    "softplus: second": "torch counts 20 itself as beyond the threshold, in the second derivative only",
}  # fmt: skip


def flat(found: dict[str, list[Any]]) -> dict[str, Any]:
    """What to compare, as arrays; symbolic zeros are zeros."""
    zeros = [0.0] * len(found["value"])
    return {k: np.array([zeros if g is None else g for g in v] if k != "value" else v) for k, v in found.items()}


def compiled_outcome(case: Case) -> dict[str, list[Any]]:
    """The same, every part of it computed by one compiled step."""

    @aj.jit
    def step(*xs: Any) -> Any:
        y = case.of(aj, *xs)
        slopes = aj.autograd.grad(y.sum(), xs, create_graph=True, allow_unused=True)
        given = [g for g in slopes if g is not None and g.requires_grad]
        total = sum((k + 1) * g.sum() for k, g in enumerate(given)) if given else None
        second = aj.autograd.grad(total, xs, allow_unused=True) if total is not None else [None] * len(xs)
        shown = [None if g is None else g.detach() for g in slopes]
        return y.detach(), shown, [aj.zeros_like(x.detach()) if g is None else g.detach() for g, x in zip(second, xs)]

    y, first, second = step(*[aj.tensor(x, dtype=aj.float64).requires_grad_() for x in operands(case)])
    return {
        "value": y.tolist(), "first": [None if g is None else g.tolist() for g in first],
        "second": [g.tolist() for g in second],
    }  # fmt: skip


@pytest.mark.parametrize("how", ["eager", "compiled"])
@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives_at_kinks_are_torchs(name: str, how: str) -> None:
    case = CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        found = outcome(aj, case) if how == "eager" else compiled_outcome(case)
    expected = flat(RECORDED[name])
    for what, array in flat(found).items():
        if what in expected and f"{name}: {what}" not in OTHER:
            note = f"{what} of {name} at {operands(case)}"
            np.testing.assert_allclose(array, expected[what], rtol=1e-12, atol=1e-14, err_msg=note)


TIED = {
    "median": lambda x: x.median(),
    "nanmedian": lambda x: x.nanmedian(),
    "amax": lambda x: x.amax(),
    "amin": lambda x: x.amin(),
    "max": lambda x: x.max(),
    "max of rows": lambda x: x.reshape(2, 3).max(1).values,
    "sort": lambda x: x.sort().values,
    "kthvalue": lambda x: x.kthvalue(3).values,
    "mode": lambda x: x.mode().values,
    "cummax": lambda x: x.cummax(0).values,
    "cummin": lambda x: x.cummin(0).values,
    "maximum": lambda x: aj.maximum(x[:3], x[3:]),
    "fmax": lambda x: aj.fmax(x[:3], x[3:]),
    "clamp": lambda x: x.clamp(1.0, 2.0),
    "relu": lambda x: (x - 2).relu(),
    "topk": lambda x: x.topk(3).values,
    "norm": lambda x: (x - 2).norm(float("inf")),
    "logsumexp": lambda x: x.logsumexp(0),
    "median of rows": lambda x: x.reshape(2, 3).median(1).values,
    "prod of zeros": lambda x: (x - 2).prod(),
    "cumprod": lambda x: (x - 2).cumprod(0),
    "abs": lambda x: (x - 2).abs(),
    "quantile": lambda x: x.quantile(0.5),
    "dist": lambda x: aj.dist(x[:3], x[3:]),
    "cdist": lambda x: aj.cdist(x[:3, None], x[3:, None]),
    "angle": lambda x: aj.complex(x - 2, 0 * x).angle(),
    "sgn": lambda x: aj.view_as_real(aj.complex(x - 2, 0 * x).sgn()),
}


@pytest.mark.parametrize("wrap", [lambda f: f, aj.jit], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", TIED)
def test_forward_and_reverse_mode_share_alike_at_ties(name: str, wrap: Any) -> None:
    x = aj.tensor([1.0, 2.0, 2.0, 3.0, 2.0, 1.0], dtype=aj.float64)
    forward = wrap(aj.func.jacfwd(TIED[name]))(x)
    reverse = wrap(aj.func.jacrev(TIED[name]))(x)
    assert reverse.isfinite().all()
    np.testing.assert_allclose(forward.numpy(), reverse.numpy(), rtol=1e-13, atol=1e-15)


def test_the_direction_of_complex_zero_has_derivative_zero() -> None:
    for function in (lambda z: z.sgn().real, lambda z: z.angle(), lambda z: z.abs()):
        z = aj.tensor([0j, 3 + 4j], dtype=aj.complex128).requires_grad_()
        (eager,) = aj.autograd.grad(function(z).sum(), z)
        compiled = aj.jit(lambda t, f=function: aj.autograd.grad(f(t).sum(), t)[0])(z)
        assert eager[0].item() == 0
        np.testing.assert_allclose(compiled.numpy(), eager.numpy(), rtol=1e-14)


@pytest.mark.parametrize("dtype", [aj.float16, aj.bfloat16, aj.float32, aj.float64], ids=str)
def test_the_sign_of_nan_is_zero(dtype: Any) -> None:
    x = aj.tensor([float("nan"), -2.0, 0.0], dtype=dtype)
    assert x.sign().tolist() == aj.jit(lambda t: t.sign())(x).tolist() == [0.0, -1.0, 0.0]


def test_the_median_of_nothing_is_nan() -> None:
    assert aj.tensor([]).median().isnan().item()


def test_the_axes_of_a_number_move_nowhere_and_attention_of_no_width_is_even() -> None:
    assert aj.tensor(3.0).movedim(0, -1).shape == ()
    nothing, values = aj.ones(1, 2, 3, 0), aj.ones(1, 2, 3, 4)
    for attend in (
        aj.nn.functional.scaled_dot_product_attention,
        aj.jit(aj.nn.functional.scaled_dot_product_attention),
    ):
        np.testing.assert_allclose(attend(nothing, nothing, values).numpy(), values.numpy(), rtol=1e-6)
