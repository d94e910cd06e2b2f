"""Elementwise functions and losses with the points where their derivatives jump, vanish or are infinite.

``T`` is a torch-like module: torch when ``tools/make_kink_table.py`` records what it says, autojit in the test. A case
is a function of float64 vectors and the points for each operand; two operands take every pair of points.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

inf, nan = math.inf, math.nan
NEAR_ZERO = (-1.0, -1e-300, -0.0, 0.0, 1e-300, 1.0)


class Case(NamedTuple):
    """A function ``of(T, *operands)`` and the points of each operand."""

    of: Callable[..., Any]
    points: tuple[tuple[float, ...], ...]


def around(*kinks: float) -> tuple[float, ...]:
    """The kinks and a step to both sides of each."""
    return tuple(x for kink in kinks for x in (kink - 0.5, kink, kink + 0.5))


def _unary(of: Callable[..., Any], *points: float) -> Case:
    return Case(of, (points or NEAR_ZERO,))


def _function(name: str, *points: float, **options: Any) -> Case:
    return _unary(lambda T, x: getattr(T.nn.functional, name)(x, **options), *points)


def _plain(name: str, *points: float) -> Case:
    return _unary(lambda T, x: getattr(T, name)(x), *points)


def _pair(name: str, x: tuple[float, ...] = (-1.0, 0.0, 1.0), y: tuple[float, ...] = (-1.0, 0.0, 1.0)) -> Case:
    return Case(lambda T, a, b: getattr(T, name)(a, b), (x, y))


def _loss(name: str, x: tuple[float, ...], y: tuple[float, ...], **options: Any) -> Case:
    def of(T: Any, a: Any, b: Any) -> Any:
        return getattr(T.nn.functional, name)(a, b.detach(), reduction="none", **options)

    return Case(of, (x, y))


CASES: dict[str, Case] = {
    "abs": _plain("abs"),
    "sign": _plain("sign", *NEAR_ZERO, nan),
    "sgn": _plain("sgn"),
    "sqrt": _plain("sqrt", 0.0, 1.0, -1.0),
    "rsqrt": _plain("rsqrt", 0.0, 1.0),
    "reciprocal": _plain("reciprocal", 0.0, -0.0, 1.0),
    "log": _plain("log", 0.0, 1.0, -1.0),
    "log1p": _plain("log1p", -1.0, 0.0),
    "acos": _plain("acos", -1.0, 0.0, 1.0),
    "asin": _plain("asin", -1.0, 0.0, 1.0),
    "acosh": _plain("acosh", 1.0, 2.0),
    "atanh": _plain("atanh", -1.0, 0.0, 1.0),
    "frac": _plain("frac", *around(0.0, 1.0)),
    "floor": _plain("floor", *around(0.0, 1.0)),
    "round": _plain("round", 0.5, 1.5, -0.5),
    "trunc": _plain("trunc", *around(0.0)),
    "square": _plain("square"),
    "cube": _unary(lambda T, x: x**3),
    "fourth": _unary(lambda T, x: x**4),
    "power 1": _unary(lambda T, x: x**1.0),
    "power 1.5": _unary(lambda T, x: x**1.5, 0.0, 1.0),
    "power 0.5": _unary(lambda T, x: x**0.5, 0.0, 1.0),
    "power 2.5": _unary(lambda T, x: x**2.5, 0.0, 1.0),
    "power 0": _unary(lambda T, x: x**0.0),
    "power -1": _unary(lambda T, x: x**-1.0, 0.0, 1.0),
    "logit": _plain("logit", -0.5, 0.0, 0.5, 1.0, 1.5),
    "logit eps": _unary(lambda T, x: T.logit(x, 0.1), 0.0, 0.05, 0.5, 0.95, 1.0),
    "sinc": _plain("sinc", -1.0, -1e-5, 0.0, 1e-5, 1.0, 2.0),
    "erfinv": _plain("erfinv", -1.0, 0.0, 1.0),
    "xlogx": _unary(lambda T, x: T.special.entr(x), 0.0, 0.5, 1.0, -1.0),
    "tanh": _plain("tanh", 0.0, 30.0, inf, -inf),
    "sigmoid": _plain("sigmoid", 0.0, 800.0, -800.0),
    "exp2": _plain("exp2", 0.0, -2000.0),
    "expm1": _plain("expm1", 0.0, -50.0),
    "clamp": _unary(lambda T, x: T.clamp(x, -1.0, 1.0), *around(-1.0, 1.0)),
    "clamp_min": _unary(lambda T, x: T.clamp(x, min=0.0)),
    "clamp_max": _unary(lambda T, x: T.clamp(x, max=0.0)),
    "clamp from a tensor": Case(lambda T, x, y: T.clamp(x, min=y), ((-1.0, 0.0, 1.0, nan), (0.0, 1.0))),
    "clamp to a tensor": Case(lambda T, x, y: T.clamp(x, max=y), ((-1.0, 0.0, 1.0, nan), (0.0, 1.0))),
    "clamp between tensors": Case(lambda T, x, y: T.clamp(x, y, y + 1), ((-1.0, 0.0, 0.5, 1.0, 2.0), (0.0, 0.5))),
    "deg2rad": _plain("deg2rad"),
    "nan_to_num": _plain("nan_to_num", 0.0, nan, inf, -inf),
    "relu": _function("relu"),
    "relu6": _function("relu6", *around(0.0, 6.0)),
    "elu": _function("elu"),
    "elu 2": _function("elu", alpha=2.0),
    "celu": _function("celu"),
    "celu 2": _function("celu", alpha=2.0),
    "selu": _function("selu"),
    "gelu": _function("gelu", 0.0, 40.0, -40.0),
    "silu": _function("silu", 0.0, 800.0, -800.0),
    "mish": _function("mish", 0.0, 30.0, -30.0),
    "hardtanh": _function("hardtanh", *around(-1.0, 1.0)),
    "hardsigmoid": _function("hardsigmoid", *around(-3.0, 3.0)),
    "hardswish": _function("hardswish", *around(-3.0, 3.0)),
    "leaky_relu": _function("leaky_relu"),
    "softplus": _function("softplus", 0.0, 20.0, 20.5, 19.5),
    "softshrink": _function("softshrink", *around(-0.5, 0.5)),
    "hardshrink": _function("hardshrink", *around(-0.5, 0.5)),
    "softsign": _function("softsign"),
    "tanhshrink": _function("tanhshrink"),
    "threshold": _function("threshold", *around(1.0), threshold=1.0, value=3.0),
    "logsigmoid": _function("logsigmoid", 0.0, 800.0, -800.0),
    "maximum": _pair("maximum"),
    "minimum": _pair("minimum"),
    "fmax": _pair("fmax", (0.0, 1.0, nan), (0.0, 1.0, nan)),
    "fmin": _pair("fmin", (0.0, 1.0, nan), (0.0, 1.0, nan)),
    "hypot": _pair("hypot"),
    "atan2": _pair("atan2"),
    "copysign": _pair("copysign", (-1.0, 0.0, 1.0), (-1.0, 1.0)),
    "xlogy": _pair("xlogy", (0.0, 1.0), (0.0, 1.0)),
    "xlog1py": Case(lambda T, a, b: T.special.xlog1py(a, b), ((0.0, 1.0), (-1.0, 0.0))),
    "pow": _pair("pow", (0.0, 1.0), (0.0, 1.0, 2.0)),
    "fmod": _pair("fmod", (0.0, 1.0, 2.0, -1.5), (1.0, 2.0)),
    "remainder": _pair("remainder", (0.0, 1.0, 2.0, -1.5), (1.0, 2.0)),
    "div": _pair("div", (0.0, 1.0), (1.0, 2.0)),
    "logaddexp": _pair("logaddexp", (0.0, -inf, inf, 800.0), (0.0, -inf, inf)),
    "logaddexp2": _pair("logaddexp2", (0.0, -inf, inf, 2000.0), (0.0, -inf, inf)),
    "huber": _loss("huber_loss", around(-1.0, 0.0, 1.0), (0.0,)),
    "huber 2": _loss("huber_loss", around(-2.0, 0.0, 2.0), (0.0,), delta=2.0),
    "smooth_l1": _loss("smooth_l1_loss", around(-1.0, 0.0, 1.0), (0.0,)),
    "smooth_l1 2": _loss("smooth_l1_loss", around(-2.0, 0.0, 2.0), (0.0,), beta=2.0),
    "smooth_l1 0": _loss("smooth_l1_loss", around(0.0), (0.0,), beta=0.0),
    "l1": _loss("l1_loss", around(0.0), (0.0,)),
    "mse": _loss("mse_loss", around(0.0), (0.0,)),
    "bce": _loss("binary_cross_entropy", (0.0, 0.25, 1.0), (0.0, 0.5, 1.0)),
    "bce logits": _loss("binary_cross_entropy_with_logits", (-800.0, 0.0, 800.0), (0.0, 0.5, 1.0)),
    "margin ranking": Case(
        lambda T, x, y: T.nn.functional.margin_ranking_loss(x, y, T.ones_like(x), margin=0.5, reduction="none"),
        ((0.0, 0.5, 1.0), (0.0, 0.5)),
    ),
    "hinge": _loss("hinge_embedding_loss", around(0.0, 1.0), (-1.0, 1.0)),
    "kl_div": _loss("kl_div", (-1.0, 0.0), (0.0, 0.5, 1.0)),
    "soft_margin": _loss("soft_margin_loss", (-800.0, 0.0, 800.0), (-1.0, 1.0)),
}


def operands(case: Case) -> list[list[float]]:
    """The vectors of the operands: every combination of their points."""
    return [list(column) for column in zip(*itertools.product(*case.points), strict=True)]


def outcome(T: Any, case: Case) -> dict[str, list[Any]]:
    """Values, gradients, and second derivatives (the gradients of the weighted sum of gradients)."""
    xs = [T.tensor(x, dtype=T.float64, requires_grad=True) for x in operands(case)]
    y = case.of(T, *xs)
    slopes = T.autograd.grad(y.sum(), xs, create_graph=True, allow_unused=True)
    first = [None if g is None else [v.item() for v in g.detach()] for g in slopes]
    found = {"value": y.detach().tolist(), "first": first}
    given = [g for g in slopes if g is not None and g.requires_grad]
    total = sum((k + 1) * g.sum() for k, g in enumerate(given)) if given else None
    try:
        second = T.autograd.grad(total, xs, allow_unused=True) if total is not None else [None] * len(xs)
    except RuntimeError:  # torch has no second derivative of this function
        return found
    found["second"] = [[0.0] * len(xs[0]) if g is None else [v.item() for v in g.detach()] for g in second]
    return found
