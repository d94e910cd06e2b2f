"""Where the extreme of a row is, by two folds that vectorisers know instead of one of pairs, which none does.

The first finds the extreme; the second the least of the positions whose element is equal to it, or NaN, which is an
extreme that is equal to nothing. Both look at elements in memory (`loops`): computed twice they might not be the same.
"""

from __future__ import annotations

from autojit.core.dtypes import bool_, int32, int64
from autojit.core.sizes import surely_less
from autojit.core.types import TensorType
from autojit.ops.elementwise_arithmetic import Where
from autojit.ops.elementwise_logic import BitwiseOr, Eq, Ne
from autojit.ops.reductions import Position, highest
from autojit.ops.sources import Iota
from autojit.schedule.expressions import Applied, Expr, Expressions, FromSource, Number
from autojit.schedule.pull import Indices


def place_if_extreme(exprs: Expressions, op: Position, x: TensorType, index: Indices, pair: tuple[Expr, Expr]) -> Expr:
    """An element's position along the axis if it is the extreme of its row, else what is behind all of them.

    The least one of a row is where the extreme is first.

    Args:
        exprs: of the program.
        op: the reduction.
        x: the type of what it folds.
        index: where the element is in it.
        pair: the element, and the extreme.
    """
    (axis,) = op.axes
    element, _ = pair
    is_extreme = exprs.make(Applied, bool_, op=Eq(), args=pair)
    if element.dtype.kind == "float":
        is_nan = exprs.make(Applied, bool_, op=Ne(), args=(element, element))
        is_extreme = exprs.make(Applied, bool_, op=BitwiseOr(), args=(is_extreme, is_nan))
    dtype = int32 if surely_less(x.shape[axis], highest(int32)) else int64
    here = tuple(i.opened() for i in index)
    place = exprs.make(FromSource, dtype, op=Iota(x.shape, axis, dtype, x.device), positions=here)
    behind = exprs.make(Number, dtype, digits=Number.digits_of(highest(dtype)))
    return exprs.make(Applied, dtype, op=Where(), args=(is_extreme, place, behind))
