"""Where a cotangent may be exactly 0 because a branch was masked, and what products do there.

``where(x > 0, x * log(x), 0)`` has derivative 0 at 0: the cotangent that ``where`` hands to the product is 0 there, and
0 times the slope ``log(0)`` must stay 0. Elsewhere 0 times infinity is the NaN that it is, and a guard at every product
would cost dense derivatives their multiply-adds (1.3 to 1.6 times on chains of products in cache, 1.4 times on prices
of options with their Greeks). So whoever walks a
history backwards, the engine on recorded nodes and the adjoint pass on graphs, notes what is behind an op that can
zero cotangents (``masks_cotangents``), or behind a cotangent that the user gave, and says so here while a rule runs.
The walk sees the same ops in eager mode and in a capture, so both take the same product; a captured function in a
history outside says what the ops inside it hand on (``masked_operands``), as does a composite that is one op to eager
mode.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from autojit.ir.op import O, Op, bind

__all__ = ["cotangent_product", "cotangent_quotient", "masking", "under_mask"]


class _Masking(threading.local):
    """Whether the cotangent of the rule that runs in this thread may be a masked 0."""

    is_on = False
    outputs: frozenset[int] | None = None  # of a captured function whose rule runs: of which outputs; None: of all


masking = _Masking()


@contextmanager
def under_mask(is_on: bool) -> Iterator[None]:
    """Rules inside take their cotangents as possibly masked, or as dense."""
    before = masking.is_on, masking.outputs
    masking.is_on, masking.outputs = is_on, None
    try:
        yield
    finally:
        masking.is_on, masking.outputs = before


def cotangent_product(y_bar: O, slope: O) -> O:
    """``y_bar * slope`` in a rule; 0 where a masked ``y_bar`` is 0, even if ``slope`` is infinite or NaN."""
    return bind(Op.registry["guarded_mul" if masking.is_on else "mul"](), y_bar, slope)


def cotangent_quotient(y_bar: O, divisor: O) -> O:
    """``y_bar / divisor`` in a rule; 0 where a masked ``y_bar`` is 0, even if ``divisor`` is 0 or NaN."""
    return bind(Op.registry["guarded_div" if masking.is_on else "div"](), y_bar, divisor)
