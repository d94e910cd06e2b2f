"""ScalarEmitter: the expression emitter that op lowerings speak to, on the CPU and on CUDA.

It adds to `InstructionEmitter` what takes more than a few instructions: integer division, integer powers and the
mathematical functions of `vector_math`, which are called here and defined in ``definitions``; the module that holds
the kernel must contain those texts once. float16 and bfloat16 are computed in float32 and rounded after every op.
"""

from __future__ import annotations

from autojit.codegen import rare_calls, vector_math
from autojit.codegen.instructions import InstructionEmitter
from autojit.codegen.scalar import Scalar, is_half, register_type
from autojit.core.dtypes import float32, float64, uint64


class ScalarEmitter(InstructionEmitter):
    """The complete emitter. Methods named after a function document its accuracy only where it exceeds 2 ulp."""

    def call(self, name: str, *operands: Scalar) -> Scalar:
        """Apply a function of `vector_math`; operands are floats of one dtype."""
        dtype = operands[0].dtype
        assert dtype.kind == "float", f"{name} of {dtype}; cast first"
        if is_half(dtype):
            wide = self.call(name, *(Scalar(x.text, float32) for x in operands))
            return self.rounded(wide, dtype)
        found = vector_math.definition(name, dtype, type(self))
        self.definitions.update(found.texts)
        kind = register_type(dtype)
        arguments = ", ".join(f"{kind} {x.text}" for x in operands)
        return self.instruction(f"call {kind} {found.symbol}({arguments})", dtype)

    def table(self, name: str, row: Scalar, columns: int) -> tuple[Scalar, ...]:
        """Load one row of a table of `vector_math`."""
        self.definitions[f"@aj.{name}"] = vector_math.table_definition(name)
        first = self.mul(row, columns)
        loaded = []
        for column in range(columns):
            place = self.add(first, column)
            pointer = self.instruction(f"getelementptr inbounds double, ptr @aj.{name}, i64 {place.text}", uint64)
            loaded.append(self.load(pointer.text, float64, ", align 8"))
        return tuple(loaded)

    def call_rarely(self, name: str, x: Scalar, limit: float) -> Scalar:
        """A function of `vector_math` where |x| > limit, zero elsewhere."""
        found = vector_math.rare_definition(name, x.dtype, limit, type(self))
        self.definitions.update(found.texts)
        return self.instruction(rare_calls.call_text(found.symbol, x), x.dtype)

    def exp(self, x: Scalar) -> Scalar:
        return self.call("exp", x)
