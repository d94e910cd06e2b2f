"""What passes and schedules know of CPUs, and what the CPU's code knows besides.

Where a number has no measurement beside it, none is recorded. Counts of kernels are those of tools/schedule_bounds.py
(29 steps, 1,778 kernels, 758 of them in bands): they say what a number decides, not what is faster.
"""

from __future__ import annotations

from dataclasses import replace

from autojit.codegen.target import HostTarget
from autojit.core.dtypes import bfloat16, float32, float64
from autojit.core.machine import Attending, Bands, Machine, Transforms

CPU_MACHINE = Machine(
    kind="cpu",
    alignment=64,  # a cache line and the widest vector
    product_dtypes=frozenset((float32, float64)),  # what `products` has micro-kernels for
    dot_dtypes=frozenset(),  # see `machine_of`
    product_batch_axes=2,  # words of `aj_matmul`
    most_buffers=40,  # of a loop nest, before address registers spill on x86-64; 20 make one kernel more, 10 make 188
    small_domain=4096,  # 0: 77 kernels fewer, but 45 % more memory is live at once; 65536: 65 more
    expansion=8,  # 4: 4 kernels fewer; without: 10 more
    least_parts=2,  # 1: edges in a loop that also folds; 100 steps of a stencil take 34 to 38 ms instead of 31
    computes_padded=True,  # False: `heat`, 40 steps of a stencil with their gradient, takes 8.4 instead of 5.5 ms
    many_blocks=8,
    block_bytes=1024,
    accumulated_bytes=64 * 1024,  # smaller results are summed slice by slice in bands
    hoisted_bytes=256 << 20,
    turned_bytes=1 << 20,  # more leaves the second-level cache
    turned_steps=16,  # 7 to 10 products pay for it, measured with widths from 16 to 256
    bands=Bands(
        slice_bytes=384 * 1024,  # well inside a second-level cache
        least_slices=8,  # 4: 24 kernels more are in bands; 32: 76 fewer
        most_slices=512,
        contracted_bytes=64 * 1024,  # 16 KiB: 5 kernels fewer are in bands; without: 126 fewer, and 25 % more memory
        least_bytes=256 * 1024,  # 64 KiB: 8 bands and 88 kernels in them more; 1 MiB: 7 bands and 115 kernels fewer
        least_open_kernels=6,
        resident_bytes=48 * 1024,  # 1 MiB: 14 kernels more are in bands; 0: 295 fewer
        rows_per_packing=96,  # 24: 7 kernels more are in bands; 384: 68 fewer
        least_grains=16,  # a few tiles of a product
    ),
    attention=Attending(
        frozenset((float32, float64)),
        most_width=None,
        # Forward and backward of two heads on one thread, over the time of products and loops. 64 elements: 0.85 at
        # 2,048 keys (16 MiB a matrix), 0.91 at 1,024, 1.15 at 512; 128 elements: 1.09 at 1,024. Causal, 64 elements:
        # 0.46 at 2,048, 0.57 at 1,024, 0.78 at 512, 0.85 at 400, 1.08 at 256. By a table of blocks (flex_attention, 8
        # heads): causal 0.79 at 768, 0.86 at 512, 0.91 at 384, 1.3 at 256; documents 0.48, 0.61, 0.77, 1.3.
        least_table_bytes=3 << 20,
        usual_width=64,
        causal_gain=8,
        least_bytes=32 << 20,  # what one step would keep beside everything else; no measurement is recorded
        of_functions=True,
    ),
    transforms=Transforms(
        most_points=4096,  # two buffers of as many points, 16 float32 numbers each: 1 MiB, a second-level cache
        largest_prime=13,  # 64 lines of 1009 points by convolution take twice the time of 1024
        least_lines=4,  # no measurement of this number and the next two is recorded
        least_points=256,
        least_neighbours=8,
    ),
    least_columns=4,  # argmax over 100,000 rows of 4 takes 0.6 of the time of pairs, of 16 0.14; of 2 it takes 1.5
    parts_log_sums=True,
    loosens_products=True,
    least_sparse_bytes=1 << 20,  # less stays in a second-level cache
    batch_bytes=1 << 20,  # less costs more to fork than it brings
)

aligned = CPU_MACHINE.aligned


def machine_of(target: HostTarget) -> Machine:
    """The numbers of one processor."""
    return replace(CPU_MACHINE, dot_dtypes=frozenset((bfloat16,))) if target.has_dots else CPU_MACHINE


# No measurement of other numbers is recorded.
KEPT_COST = 5  # arithmetic steps above which storing a row element beats computing it again
ROW_SCRATCH_BYTES = 96 * 1024  # of one worker: leaves room in a second-level cache
