"""nextafter: the neighbour of a number in a format, by its bits."""

from __future__ import annotations

from autojit.codegen.float_format import format_of
from autojit.codegen.instructions import InstructionEmitter
from autojit.codegen.scalar import Scalar, is_half
from autojit.core.dtypes import DType, bfloat16, float16, float32, uint32

DROPPED_BITS = 16  # of a float32 that bfloat16 leaves out


def nextafter(emit: InstructionEmitter, x: Scalar, y: Scalar) -> Scalar:
    """The next number of the dtype after ``x`` towards ``y``, with C's special values; ``y`` where they are equal.

    Formats order the numbers of one sign as their bits, so a step is an addition of 1 to these; from zero it is the
    least number with the sign of ``y``.
    """
    dtype = x.dtype
    kind = float32 if is_half(dtype) else dtype
    wide_x, wide_y = Scalar(x.text, kind), Scalar(y.text, kind)
    bits = _to_bits(emit, x)
    grows = emit.logical_xor(emit.lt(wide_y, wide_x), emit.gt(wide_x, 0.0))
    one = emit.one(bits)
    moved = _from_bits(emit, emit.select(grows, emit.add(bits, one), emit.sub(bits, one)), dtype)
    least = emit.copysign(Scalar(_from_bits(emit, one, dtype).text, kind), wide_y)
    stepped = emit.select(emit.eq(wide_x, 0.0), least, Scalar(moved.text, kind))
    found = emit.select(emit.eq(wide_x, wide_y), wide_y, stepped)
    unordered = emit.logical_or(emit.isnan(wide_x), emit.isnan(wide_y))
    return Scalar(emit.select(unordered, emit.add(wide_x, wide_y), found).text, dtype)


def _to_bits(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """The bits of a number's format as an unsigned integer of a register's width."""
    if x.dtype is float16:
        narrow = emit.instruction(f"fptrunc float {x.text} to half", float16)
        short = emit.instruction(f"bitcast half {narrow.text} to i16", float16)
        return emit.instruction(f"zext i16 {short.text} to i32", uint32)
    if x.dtype is bfloat16:
        return emit.shift_right(emit.bitcast(Scalar(x.text, float32), uint32), DROPPED_BITS)
    return emit.bitcast(x, format_of(x.dtype).bits)


def _from_bits(emit: InstructionEmitter, bits: Scalar, dtype: DType) -> Scalar:
    """The number of the bits, as registers hold it."""
    if dtype is float16:
        short = emit.instruction(f"trunc i32 {bits.text} to i16", float16)
        narrow = emit.instruction(f"bitcast i16 {short.text} to half", float16)
        return emit.instruction(f"fpext half {narrow.text} to float", float16)
    if dtype is bfloat16:
        return emit.bitcast(emit.shift_left(bits, DROPPED_BITS), float32)
    return emit.bitcast(bits, dtype)
