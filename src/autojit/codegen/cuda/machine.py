"""What passes and schedules know of GPUs.

Where a number has no measurement beside it, none is recorded: no GPU has run this code yet.
"""

from __future__ import annotations

from autojit.core.dtypes import bfloat16, float16, float32, float64, int8, int16, int32, int64, uint8
from autojit.core.machine import Attending, FewRows, Machine

NEVER = 1 << 62
"""Bytes or steps that no graph has."""

CUDA_MACHINE = Machine(
    kind="cuda",
    alignment=256,  # what the driver gives, and two of a cache's lines
    dot_dtypes=frozenset(),  # its products of halves have results of halves
    product_dtypes=frozenset((float32, float64, float16, bfloat16, int8, int16, int32, int64, uint8)),
    product_batch_axes=8,  # any number: a block computes where its matrices begin once
    most_buffers=96,  # addresses are parameters in constant memory, not registers; parameters end at 4 KiB
    small_domain=4096,  # what waits for a pass over memory would part it in two; launches are shared anyway
    expansion=8,
    least_parts=1,  # what four shifted gradients add up to is read without its rim: one kernel instead of two
    computes_padded=False,  # nothing was measured
    many_blocks=NEVER,  # a launch per block costs more than asking each element which block it is in
    block_bytes=1024,
    accumulated_bytes=0,  # no bands: a sum into the product's memory saves the kernel that would add
    hoisted_bytes=256 << 20,
    turned_bytes=1 << 20,
    turned_steps=16,
    bands=None,  # rows are spread over the processors, not sliced for a cache
    batch_bytes=NEVER,  # independent kernels are launches of their own
    value_bytes=64,  # keys of generators have 16; the block that travels with a launch has room for 4 KiB
    attention=Attending(frozenset((float32, float16, bfloat16)), 128),  # wider rows fill shared memory
    few_rows=FewRows(
        rows=132, elements=16 << 10, least=1 << 10
    ),  # processors; what a block holds; a lane's vector each
    epilogue_expressions=96,  # a thread may hold 32 elements of a product: 3,000 lines of text
)
