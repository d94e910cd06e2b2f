"""Functions of probabilities that are infinite at 0 or 1: log-odds, entropy, the binary cross-entropy.

Each states its derivative in one formula, torch's, which is right at the ends too: put together from logarithms and
quotients, 0 times infinity would appear in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from autojit.ir.op import Ndarray, O, Operands
from autojit.ops.elementwise_arithmetic import add, div, mul, neg, sub, where
from autojit.ops.elementwise_base import Binary, Divisor, Slope, binary, unary
from autojit.ops.elementwise_exponential import log
from autojit.ops.elementwise_logic import gt, logical_or, lt
from autojit.ops.elementwise_selection import clamp_min

if TYPE_CHECKING:
    from autojit.ir.emitter import Emitter, S

__all__ = ["Entropy", "Logit", "ProbabilityLoss", "entropy", "logit", "probability_loss"]

_LEAST_LOG = -100.0
_LEAST_VARIANCE = float(np.float32(1e-12))  # torch's bound, a float32 constant there
_INSIDE = (0.2, 0.8)


def _quiet(function: Any) -> Any:
    """The NumPy function without warnings of infinities at the ends; of halves every step rounds, as in torch."""

    def compute(*arrays: Ndarray) -> Any:
        with np.errstate(all="ignore"):
            return function(*arrays)

    return staticmethod(compute)


class Logit(Divisor):
    """Log-odds ``log(x / (1 - x))``: infinite at 0 and 1, NaN outside, and so is its derivative ``1 / (x (1 - x))``."""

    accepts: ClassVar[tuple[str, ...]] = ("float",)
    domain: ClassVar[tuple[float, float]] = _INSIDE
    ufunc = _quiet(lambda x: np.log(x / (1 - x)))

    def divisor(self, x: O, y: O) -> O:
        return where(logical_or(lt(x, 0), gt(x, 1)), math.nan, mul(x, sub(1, x)))

    def lower(self, emit: Emitter[S], x: S) -> S:
        return emit.log(emit.div(x, emit.sub(emit.one(x), x)))


class Entropy(Slope):
    """``-x log(x)``: 0 at 0, minus infinity below; its derivative is infinite at 0 and NaN below."""

    accepts: ClassVar[tuple[str, ...]] = ("float",)
    domain: ClassVar[tuple[float, float]] = _INSIDE
    ufunc = _quiet(lambda x: np.where(x > 0, -x * np.log(x), np.where(x < 0, x.dtype.type(-np.inf), x * 0)))

    def slope(self, x: O, y: O) -> O:
        return neg(add(log(x), 1))

    def lower(self, emit: Emitter[S], x: Any) -> Any:
        zero = emit.zero(x)
        inside = emit.neg(emit.mul(x, emit.log(x)))
        ends = emit.select(emit.lt(x, zero), emit.constant(-math.inf, x.dtype), emit.mul(x, zero))
        return emit.select(emit.gt(x, zero), inside, ends)


def _loss(p: Ndarray, target: Ndarray) -> Any:
    least = p.dtype.type(_LEAST_LOG)
    return (target - 1) * np.maximum(np.log1p(-p), least) - target * np.maximum(np.log(p), least)


class ProbabilityLoss(Binary):
    """``-(t log p + (1 - t) log(1 - p))``, each logarithm at least -100; derivative ``(p - t) / (p (1 - p))``."""

    is_cheap: ClassVar[bool] = False
    accepts: ClassVar[tuple[str, ...]] = ("float",)
    domain: ClassVar[tuple[float, float]] = _INSIDE
    ufunc = _quiet(_loss)

    def partials(self, primals: Operands, result: O) -> Sequence[Any]:
        p, target = primals
        return lambda: self._by_probability(p, target), lambda: self._by_target(p)

    def _by_probability(self, p: O, target: O) -> O:
        return div(sub(p, target), clamp_min(mul(sub(1, p), p), _LEAST_VARIANCE))

    def _by_target(self, p: O) -> O:
        return sub(clamp_min(log(sub(1, p)), _LEAST_LOG), clamp_min(log(p), _LEAST_LOG))

    def lower(self, emit: Emitter[S], p: Any, target: Any) -> Any:
        one, least = emit.one(p), emit.constant(_LEAST_LOG, p.dtype)
        of_zero = emit.maximum(emit.log1p(emit.neg(p)), least)
        of_one = emit.maximum(emit.log(p), least)
        return emit.sub(emit.mul(emit.sub(target, one), of_zero), emit.mul(target, of_one))


logit = unary(Logit())
entropy = unary(Entropy())
probability_loss = binary(ProbabilityLoss())
