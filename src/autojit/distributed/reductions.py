"""How reductions combine elements: torch's ``ReduceOp``, and dtypes that MPI cannot combine.

float16 and bfloat16 are combined in float32 and rounded once, at the end; bool counts as 0 and 1, a sum being "any"
and a product "all"; the small floats of 8 bits are refused, as torch refuses them.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.errors import ArgumentError, DTypeError

if TYPE_CHECKING:
    from autojit.core.communicator import Ndarray

__all__ = ["ReduceOp", "reduce_op"]


class ReduceOp(enum.Enum):
    """How elements of several ranks are combined."""

    SUM = "sum"
    AVG = "avg"
    PRODUCT = "prod"
    MIN = "min"
    MAX = "max"
    BAND = "band"
    BOR = "bor"
    BXOR = "bxor"
    PREMUL_SUM = "premul_sum"


reduce_op = ReduceOp  # torch's older name
ReduceOp.RedOpType = ReduceOp  # type: ignore[attr-defined]  # torch's name for the type of the members


def operation(op: Any, name: str) -> str:
    """The engine's word for a reduction.

    Raises:
        ValueError: it is none, or needs a factor.
    """
    found = op.value if isinstance(op, ReduceOp) else str(op).lower().replace("product", "prod")
    if found not in {kind.value for kind in ReduceOp} or found == "premul_sum":
        raise ArgumentError(f"{name}: this reduction is not there", {"op": op}, "scale the tensor, then ReduceOp.SUM")
    return str(found)


def check_dtype(dtype: np.dtype[Any], op: str, name: str) -> None:
    """Refuse a reduction that a dtype does not have.

    Raises:
        DTypeError: complex numbers have no order; bits are those of whole numbers; floats of 8 bits do not add.
    """
    kind = dtype.kind if dtype.name in np.sctypeDict or dtype.name == "bool" else "f" if dtype.itemsize > 1 else "f8"
    is_refused = (
        kind == "f8"
        or (kind == "c" and op in ("max", "min"))
        or (kind in "fc" and op in ("band", "bor", "bxor"))
        or (kind in "biu" and op == "avg")
    )
    if is_refused:
        raise DTypeError(f"{name}: {dtype.name} has no such reduction", {"op": op}, "convert the tensor first")


def to_engine(array: Ndarray, op: str) -> tuple[Ndarray, str]:
    """The elements as the engine combines them, which may be the array's memory, and the engine's reduction.

    The engine knows whole numbers, float32, float64 and complex numbers, and no average.
    """
    if array.dtype == np.bool_:
        return array.view(np.uint8), {"sum": "max", "bor": "max", "prod": "min", "band": "min"}.get(op, op)
    engine_op = "sum" if op == "avg" else op
    is_half = array.dtype.itemsize == 2 and array.dtype.kind not in "iu"
    return (array.astype(np.float32) if is_half else array), engine_op


def from_engine(found: Ndarray, dtype: np.dtype[Any], op: str, size: int) -> Ndarray:
    """What the engine has combined, as elements of ``dtype``: the same memory where it can be."""
    if dtype == np.bool_:
        return found.view(np.bool_)
    if op == "avg":
        found /= size
    return found.astype(dtype, copy=False)
