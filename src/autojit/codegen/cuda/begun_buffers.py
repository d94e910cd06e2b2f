"""Buffers of a device's kernels that begin where they are first read: see `codegen.first_elements`.

Rounds of an unrolled loop, each of which reads its part of a whole, are one kernel so: it is compiled once, and its
instructions are still in a processor's cache when the next round runs them. Buffers begin at multiples of the widest
access, so a kernel reads as wide as before.
"""

from __future__ import annotations

from dataclasses import replace

from autojit.codegen.cuda.lane_limits import VECTOR_BYTES
from autojit.codegen.first_elements import first_element, from_first_elements
from autojit.codegen.lowered import Offset
from autojit.core.config import config
from autojit.ir.graph import Value
from autojit.schedule.kernels import Access, MatmulKernel
from autojit.schedule.loops import LoopProgram


def begun(value: Value, first: int) -> Value | Offset:
    """A buffer from an element on."""
    return Offset(value, first * value.type.dtype.size_bytes) if first else value


def loops_from_first_elements(program: LoopProgram) -> tuple[LoopProgram, tuple[int, ...]]:
    """A program on buffers that begin where they are read, and the first element of each."""
    return from_first_elements(program, step_bytes=VECTOR_BYTES, reads_pieces=True)


def product_from_first_elements(kernel: MatmulKernel) -> tuple[MatmulKernel, tuple[int, ...]]:
    """A product on such buffers, and the first element of each that it reads."""
    (a, first_a), (b, first_b) = map(_begun, (kernel.a, kernel.b))
    firsts = [first_a, first_b, *(() if kernel.init is None else (0,))]
    epilogue = kernel.epilogue
    if epilogue is not None:
        slot = epilogue.slot
        whole = frozenset([slot])
        program, of_loads = from_first_elements(epilogue.program, step_bytes=VECTOR_BYTES, whole=whole)
        firsts += [first for place, first in enumerate(of_loads) if place != slot]
        epilogue = replace(epilogue, program=program)
    return (replace(kernel, a=a, b=b, epilogue=epilogue), tuple(firsts)) if any(firsts) else (kernel, tuple(firsts))


def _begun(access: Access) -> tuple[Access, int]:
    """A reading of a buffer that begins not far in front of the first element, and where."""
    if config.check or any(type(stride) is int and stride < 0 for stride in access.strides):
        return access, 0
    first = first_element(access.offset, access.value.type.dtype.size_bytes, VECTOR_BYTES)
    return replace(access, offset=access.offset - first), first
