"""Running logarithms of sums of exponentials along lines, as ops that run in vectors.

Element by element a line waits for an exponential and a logarithm each. With the running maximum m known it takes two
exponentials and a logarithm of whole lines, and s[i] = s[i-1] exp(m[i-1] - m[i]) + exp(x[i] - m[i]) between them.
"""

from __future__ import annotations

from typing import Any

from autojit.core.dtypes import HALVES, float32
from autojit.core.machine import Machine
from autojit.ir.builder import Tracer
from autojit.ir.op import bind, bind_all
from autojit.ops.elementwise_arithmetic import Cast, add, sub, where
from autojit.ops.elementwise_exponential import exp, log
from autojit.ops.elementwise_logic import isinf
from autojit.ops.scans import CumulativeExtreme, LinearRecurrence, shifted
from autojit.ops.sources import literal


def log_sums_in_parts(machine: Machine, op: Any, x: Tracer) -> Any:
    """A ``Cumulative`` of kind "logsumexp" along the last axis, where the machine wants it; None: the op stays.

    Preserves results to rounding. An infinite maximum is not subtracted: its exponential and logarithm are itself.
    """
    here = machine.parts_log_sums and x.spec.device.type == machine.kind
    if op.kind != "logsumexp" or op.reverse or not here or op.axis != x.spec.ndim - 1:
        return None  # running maxima have one direction; columns are vectors already
    if x.spec.dtype in HALVES:
        return bind(Cast(x.spec.dtype), _of_line(op, bind(Cast(float32), x)))
    return _of_line(op, x)


def _of_line(op: Any, x: Any) -> Any:
    best, _ = bind_all(CumulativeExtreme("max", op.axis), x)
    finite = where(isinf(best), literal(best, 0), best)
    before = shifted(best, op.axis, False, float("-inf"))
    total = bind(LinearRecurrence(op.axis), exp(sub(before, finite)), exp(sub(x, finite)))
    return add(best, log(total))
