"""One node of the history for a function that several ops compute.

The ops here are recorded, never computed: their results come from other ops, and only their derivative rules run. Users
see one node (its hooks, its name, its several outputs) where the function they called is one step to them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from autojit.core.records import record
from autojit.core.types import TensorType
from autojit.ir.op import Op, Operands
from autojit.ops.base import keep_axes, sum_to
from autojit.ops.composites_reduction import mean
from autojit.ops.elementwise_arithmetic import add, div, mul, sub, where
from autojit.ops.elementwise_logic import eq
from autojit.ops.matmul import MATMUL
from autojit.ops.reductions import spread
from autojit.tensor.recording import record as record_results
from autojit.tensor.recording import wants_grad
from autojit.tensor.state import R, state
from autojit.tensor.storage import ElsewhereArray
from autojit.tensor.tensor import Tensor, made_in_inference


def in_one_node(op: Op, operands: Sequence[Tensor], compute: Callable[[], R]) -> R:
    """What ``compute()`` gives, a fresh tensor or a tuple of them, recorded as results of ``op``."""
    if not state.grad_enabled or state.layers:
        return compute()
    is_wanted = False
    for t in operands:
        if wants_grad(t):
            is_wanted = True
        if type(t._array) is ElsewhereArray or made_in_inference(t):
            return compute()
    if not is_wanted:
        return compute()
    state.grad_enabled = False
    try:
        found = compute()
    finally:
        state.grad_enabled = True
    results: tuple[Any, ...] = found if isinstance(found, tuple) else (found,)
    record_results(op, operands, results)
    if state.observer is not None and results[0]._grad_fn is not None:
        state.observer.made(results[0]._grad_fn)
    return found


class _Recorded(Op, abstract=True):
    """An op that is never computed."""

    masks_cotangents: ClassVar[bool] = False

    def eager(self, *arrays: Any) -> Any:
        raise AssertionError("recorded only: its results were computed by other ops")

    jvp = eager
    batch = eager


@record
class _Moments(_Recorded, abstract=True):
    """The spread of real numbers over ``axes`` and their mean; squares are divided by ``count - correction``."""

    axes: tuple[int, ...]
    correction: float
    keep: bool

    n_outputs: ClassVar[int] = 2

    def result_type(self, x: TensorType) -> tuple[TensorType, TensorType]:
        found = x.with_shape(keep_axes(x.shape, self.axes)) if self.keep else x.drop(self.axes)
        return found, found

    def vjp(self, primals: Operands, result: Any, y_bar: Any) -> Sequence[Any]:
        (x,), (spread_bar, mean_bar) = primals, y_bar
        shape = x.spec.shape
        count = math.prod(shape[axis] for axis in self.axes)
        freedom = max(0.0, count - self.correction)

        def x_bar() -> Any:
            through_mean = None if mean_bar is None else div(spread(mean_bar, shape, self.axes), count)
            if spread_bar is None:
                return through_mean
            deviation = sub(x, mean(x, self.axes, keep=True))
            variance_bar = spread(self.variance_bar(result[0], spread_bar), shape, self.axes)
            through_variance = mul(mul(variance_bar, 2 / freedom if freedom else math.inf), deviation)
            return through_variance if through_mean is None else add(through_variance, through_mean)

        return (x_bar,)

    def variance_bar(self, found: Any, bar: Any) -> Any:
        """The cotangent of the variance from that of the first result, which is ``found``."""
        raise NotImplementedError


class VarMean(_Moments):
    """Variance and mean."""

    def variance_bar(self, found: Any, bar: Any) -> Any:
        return bar


class StdMean(_Moments):
    """Standard deviation and mean; the derivative of a deviation of 0 is 0."""

    def variance_bar(self, found: Any, bar: Any) -> Any:
        return div(bar, where(eq(found, 0), math.inf, mul(found, 2)))


@record
class Addmm(_Recorded):
    """``beta * base + alpha * (x @ w)`` of matrices of one dtype; ``base`` broadcasts. Computed if both are 1."""

    beta: float
    alpha: float

    def eager(self, base: Any, x: Any, w: Any) -> Any:
        assert self.beta == self.alpha == 1, "others are recorded only"
        return MATMUL.eager(x, w) + base

    def result_type(self, base: TensorType, x: TensorType, w: TensorType) -> TensorType:
        return MATMUL.result_type(x, w)

    def vjp(self, primals: Operands, result: Any, y_bar: Any) -> Sequence[Any]:
        base, x, w = primals
        scaled = y_bar if self.alpha == 1 else mul(y_bar, self.alpha.conjugate())
        x_bar, w_bar = MATMUL.vjp((x, w), result, scaled)
        return lambda: self._base_bar(base, y_bar), x_bar, w_bar

    def _base_bar(self, base: Any, y_bar: Any) -> Any:
        if self.beta == 0:
            return None
        return sum_to(y_bar if self.beta == 1 else mul(y_bar, self.beta.conjugate()), base.spec.shape)


ADDMM = Addmm(1, 1)
