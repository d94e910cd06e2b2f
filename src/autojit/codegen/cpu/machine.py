"""What passes and schedules know of CPUs, and what the CPU's code knows besides.

Where a number has no measurement beside it, none is recorded: it is what stood in the pass or schedule that reads it.
"""

from __future__ import annotations

from autojit.core.dtypes import float32, float64
from autojit.core.machine import Bands, Machine

CPU_MACHINE = Machine(
    kind="cpu",
    alignment=64,  # a cache line and the widest vector
    product_dtypes=frozenset((float32, float64)),  # what `products` has micro-kernels for
    product_batch_axes=2,  # words of `aj_matmul`
    most_buffers=40,  # of a loop nest, before address registers spill on x86-64
    small_domain=4096,
    expansion=8,
    many_blocks=8,
    block_bytes=1024,
    accumulated_bytes=64 * 1024,  # smaller results are summed slice by slice in bands
    hoisted_bytes=256 << 20,
    turned_bytes=1 << 20,  # more leaves the second-level cache
    turned_steps=16,  # 7 to 10 products pay for it, measured with widths from 16 to 256
    bands=Bands(
        slice_bytes=384 * 1024,  # well inside a second-level cache
        least_slices=8,
        most_slices=512,
        contracted_bytes=64 * 1024,
        least_bytes=256 * 1024,
        least_open_kernels=6,
        resident_bytes=48 * 1024,
        rows_per_packing=96,
        least_units=16,  # a few tiles of a product
    ),
    batch_bytes=1 << 20,  # less costs more to fork than it brings
)

aligned = CPU_MACHINE.aligned

# No measurement of other numbers is recorded.
KEPT_COST = 5  # arithmetic steps above which storing a row element beats computing it again
ROW_SCRATCH_BYTES = 96 * 1024  # of one worker: leaves room in a second-level cache
