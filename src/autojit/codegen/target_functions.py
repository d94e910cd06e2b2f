"""Functions that machines have instructions for, and others do in several steps, to the same bits.

Kernels only declare them (`DECLARATIONS`), so that a kernel's text is the same for every machine; `with_definitions`
puts the machine's definitions in their places when the text is compiled.
"""

from __future__ import annotations

from autojit.codegen.target import Target

SCALED = "@aj.scaled.f32"
"""``x * 2^n`` rounded once, for n up to 200, and from -300 on unless x is zero."""

DECLARATIONS: dict[str, str] = {SCALED: f"declare float {SCALED}(float, i32)"}

_IN_TWO_STEPS = f"""define internal float {SCALED}(float %x, i32 %n) alwaysinline nounwind {{
  %least = call i32 @llvm.smax.i32(i32 %n, i32 -254)
  %field = add i32 %least, 254
  %low = lshr i32 %field, 1
  %high = sub i32 %field, %low
  %low.bits = shl i32 %low, 23
  %low.power = bitcast i32 %low.bits to float
  %halfway = fmul float %x, %low.power
  %high.bits = shl i32 %high, 23
  %high.power = bitcast i32 %high.bits to float
  %result = fmul float %halfway, %high.power
  ret float %result
}}"""

_BY_INSTRUCTION = f"""define internal float {SCALED}(float %x, i32 %n) alwaysinline nounwind {{
  %result = call float @llvm.ldexp.f32.i32(float %x, i32 %n)
  ret float %result
}}"""


def with_definitions(ir_text: str, target: Target) -> str:
    """The module with the target's definitions for what it declares."""
    has_scalef = "+avx512f" in target.features.split(",") and "+avx512vl" in target.features.split(",")
    definition = _BY_INSTRUCTION if has_scalef else _IN_TWO_STEPS
    return ir_text.replace(DECLARATIONS[SCALED], definition)
