"""FoldEmitter: the emitter for accumulators of reductions.

Sums may be reassociated (that alone lets LLVM keep several accumulators per vector), and extrema are LLVM's
NaN-propagating intrinsics, which its vectoriser knows as reductions; a compare and a select it leaves scalar.
"""

from __future__ import annotations

from autojit.codegen.emitter import ScalarEmitter
from autojit.codegen.scalar import Scalar, register_type


class FoldEmitter(ScalarEmitter):
    """Combines an accumulator with one more element."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__(lines, prefix="r", flags="reassoc contract ")

    def _extremum(self, wins: str, a: Scalar, b: Scalar) -> Scalar:
        if a.dtype.kind != "float":
            return super()._extremum(wins, a, b)
        # freeze: else LLVM turns a masked operand into a masked reduction, which it does not vectorise
        element = self.instruction(f"freeze {register_type(b.dtype)} {b.text}", b.dtype)
        return self.intrinsic("maximum" if wins == "gt" else "minimum", a, element)
