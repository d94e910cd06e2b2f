"""What reductions fold in: dtypes, and FoldEmitter, the emitter for accumulators.

Sums may be reassociated (that alone lets LLVM keep several accumulators per vector), and extrema are LLVM's
NaN-propagating intrinsics, which its vectoriser knows as reductions; a compare and a select it leaves scalar.
"""

from __future__ import annotations

from autojit.codegen.emitter import ScalarEmitter
from autojit.codegen.scalar import Scalar, is_half, register_type
from autojit.core.dtypes import DType, float32, float64
from autojit.schedule.loops import Accumulator


class FoldEmitter(ScalarEmitter):
    """Combines an accumulator with one more element."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__(lines, prefix="r", flags="reassoc contract ")

    def _extremum(self, wins: str, a: Scalar, b: Scalar) -> Scalar:
        if a.dtype.kind != "float":
            return super()._extremum(wins, a, b)
        # freeze: else LLVM turns a masked operand into a masked reduction, which it does not vectorise
        element = self.instruction(f"freeze {register_type(b.dtype)} {b.text}", b.dtype)
        name = "maximum" if wins == "gt" else "minimum"
        return self.intrinsic(name, a, element, flags="nsz ")  # of zeros of both signs either one, as eager mode has it


def fold_dtype(dtype: DType) -> DType:
    """The dtype folds run in: halves accumulate in float32."""
    return float32 if is_half(dtype) else dtype


def total_dtype(op_name: str, dtype: DType) -> DType:
    """The dtype of totals of many folds: float32 sums are added up in float64."""
    dtype = fold_dtype(dtype)
    return float64 if op_name == "sum" and dtype is float32 else dtype


def partial_dtype(accumulator: Accumulator) -> DType:
    """The dtype of a chunk's partial result."""
    dtype = accumulator.value.type.dtype
    return total_dtype(accumulator.op.name, dtype) if accumulator.kind == "all" else fold_dtype(dtype)


def rounded_to(emit: ScalarEmitter, value: Scalar, dtype: DType) -> Scalar:
    """A fold's value in the dtype of the result."""
    if value.dtype is dtype:
        return value
    if value.dtype is fold_dtype(dtype):
        return Scalar(emit.rounded(value, dtype).text, dtype)
    return emit.cast(value, dtype)
