"""CudaEmitter: the emitter of scalars where a thread of a GPU computes them.

Three things differ from a CPU. Rare operands take a branch of their own, because threads may part ways where the lanes
of a vector may not. Tables are in constant memory. Folds are those of one thread, in the order given: nothing is
gained by reassociating them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from autojit.codegen import vector_math
from autojit.codegen.emitter import ScalarEmitter
from autojit.codegen.instructions import InstructionEmitter
from autojit.codegen.scalar import Scalar, literal, register_type, suffix
from autojit.core.dtypes import float32

CONSTANT_SPACE = "addrspace(4) "


class CudaEmitter(ScalarEmitter):
    """The scalar emitter of kernels on NVIDIA's GPUs."""

    constant_kind: ClassVar[str] = f"internal {CONSTANT_SPACE}constant"
    constant_space: ClassVar[str] = CONSTANT_SPACE

    def call_rarely(self, name: str, limit: float, *operands: Scalar) -> Scalar:
        """A function of `vector_math` where |operands[0]| > limit, zero elsewhere, by a branch."""
        dtype = operands[0].dtype
        found = vector_math.rare_definition(name, dtype, limit, type(self), _branching)
        self.definitions.update(found.texts)
        kind = register_type(dtype)
        arguments = ", ".join(f"{kind} {x.text}" for x in operands)
        return self.instruction(f"call {kind} {found.symbol}({arguments})", dtype)

    def _extremum(self, wins: str, a: Scalar, b: Scalar) -> Scalar:
        """Of a float32 and a limit other than 0 in one instruction; of zeros the CPU's choice is kept."""
        limit = next((x for x in (a, b) if x.is_literal), None)
        if register_type(a.dtype) != "float" or limit is None or limit.text in _ZEROS:
            return super()._extremum(wins, a, b)
        return self.intrinsic("maximum" if wins == "gt" else "minimum", a, b)


_ZEROS = {literal(zero, float32) for zero in (0.0, -0.0)}


class CudaFold(CudaEmitter):
    """Combines an accumulator with one more element."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__(lines, prefix="r")

    def _extremum(self, wins: str, a: Scalar, b: Scalar) -> Scalar:
        if a.dtype.kind != "float":
            return super()._extremum(wins, a, b)
        return self.intrinsic("maximum" if wins == "gt" else "minimum", a, b)


def _branching(
    symbol: str, operands: Sequence[Scalar], limit: float, body: InstructionEmitter, result: Scalar
) -> dict[str, str]:
    """The test, which is written wherever it is called, and the function behind it, which is not."""
    dtype = operands[0].dtype
    kind = register_type(dtype)
    listed = ", ".join(f"{kind} {x.text}" for x in operands)
    test = [
        f"define internal {kind} {symbol}({listed}) alwaysinline nounwind {{",
        "entry:",
        f"  %magnitude = call {kind} @llvm.fabs.{suffix(dtype)}({kind} {operands[0].text})",
        f"  %rare = fcmp ogt {kind} %magnitude, {literal(limit, dtype)}",
        "  br i1 %rare, label %compute, label %done",
        "compute:",
        f"  %value = call {kind} {symbol}.rare({listed})",
        "  br label %done",
        "done:",
        f"  %result = phi {kind} [ {literal(0.0, dtype)}, %entry ], [ %value, %compute ]",
        f"  ret {kind} %result",
        "}",
    ]
    rare = [
        f"define internal {kind} {symbol}.rare({listed}) noinline nounwind willreturn memory(none) {{",
        "entry:",
        *body.lines,
        f"  ret {kind} {result.text}",
        "}",
    ]
    return {**body.definitions, f"{symbol}.rare": "\n".join(rare), symbol: "\n".join(test)}
