"""How reductions combine elements: torch's ``ReduceOp``, and dtypes that MPI cannot combine.

What becomes of each dtype is `ops.rank_arithmetic`'s to say, as for the ops of a compiled step.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.errors import ArgumentError, DTypeError
from autojit.ops.collectives import COMBINATIONS
from autojit.ops.rank_arithmetic import combined_as, from_keys, ordered_keys, wide

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


def to_engine(array: Ndarray, op: str) -> tuple[Ndarray, Any]:
    """The elements as the engine combines them, which may be the array's memory, and the engine's reduction."""
    engine_op: Any = "sum" if op == "avg" else op
    parts = wide(array, engine_op)  # what a compiled step sends: some ranks may run line by line
    if op in ("max", "min") and parts.dtype.kind == "f":
        return ordered_keys(parts, engine_op), engine_op
    if op in COMBINATIONS:
        engine_op = combined_as(array.dtype, engine_op)
    return parts, engine_op


def from_engine(found: Ndarray, dtype: np.dtype[Any], op: str, size: int) -> Ndarray:
    """What the engine has combined, as elements of ``dtype``: the same memory where it can be."""
    if dtype == np.bool_:
        return found.view(np.bool_)
    if op in ("max", "min") and found.dtype.kind == "i" and dtype.kind not in "iu":
        found = from_keys(found, np.dtype(f"f{found.itemsize}"))
    if op == "avg":
        found /= size
    return found.astype(dtype, copy=False)
