"""Printed kernels on the emulated device: launched on arrays, every access checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autojit.codegen.cuda.copies import access_bytes
from autojit.codegen.cuda.entry_point import entry_text
from autojit.codegen.cuda.target import CudaTarget
from autojit.codegen.grid_text import GridText
from tests.codegen.cuda.grids import LANE_ORDERS, device, launch_entry, launches

Array = np.ndarray[Any, Any]

TARGET = CudaTarget("sm_90", 132)
ORDERS = LANE_ORDERS


def run_grid(
    kernel: GridText,
    arrays: Sequence[Array],
    *,
    same: Mapping[int, int] | None = None,
    order: int | None = None,
    architecture: str = "sm_90",
    code: int = 0,
    is_shifted: bool = False,
) -> tuple[list[Array], Array]:
    """Launch a kernel, and what combines its partial results; what its buffers hold then, and the error words.

    Buffers that a kernel only writes are fresh memory, which nobody may read; of the others ``arrays`` are copied.

    Args:
        arrays: of every buffer.
        same: buffers in the memory of another one.
        is_shifted: buffers are aligned to their elements, and no further.
    """
    driver, same, target = device(order), same or {}, CudaTarget(architecture, TARGET.processors)
    places, blocks = list[int](), list[int]()
    for number, (buffer, array) in enumerate(zip(kernel.buffers, arrays, strict=True)):
        if number in same:
            places.append(places[same[number]])
            continue
        shift = buffer.element_bytes if is_shifted else 0
        blocks.append(driver.allocate(max(array.nbytes + shift, 1)))
        places.append(blocks[-1] + shift)
        if buffer.role != "writes" and array.size:
            driver.write(places[-1], _bits(array))
    errors = driver.allocate(16)
    driver.write(errors, np.zeros(2, np.int64))
    partial = driver.allocate(kernel.partial_bytes) if kernel.partial_bytes else 0
    for part in launches(kernel):
        if all(part.blocks):
            given = [*places, *[partial] * bool(part.partial_bytes), *[errors, code] * part.reports]
            launch_entry(driver, part, entry_text(part, _alignments(part, arrays, is_shifted), {}), target, given)
    found = [
        driver.read(place, _bits(array).dtype.str, array.shape).view(array.dtype) if array.size else array.copy()
        for place, array in zip(places, arrays, strict=True)
    ]
    words = driver.read(errors, "i8", (2,))
    for place in {*blocks, errors, *[partial] * bool(partial)}:
        driver.release(place)
    return found, words


def _alignments(kernel: GridText, arrays: Sequence[Array], is_shifted: bool) -> list[int]:
    """What is said of buffers: of those that begin at multiples of 256 bytes as when they are bound (`runtime.gpu`)."""
    pairs = zip(kernel.buffers, arrays, strict=True)
    return [max(b.element_bytes, 0 if is_shifted else access_bytes(array.nbytes, 256)) for b, array in pairs]


def _bits(array: Array) -> Array:
    """The array with a dtype that NumPy itself knows."""
    contiguous = np.ascontiguousarray(array)
    return contiguous if contiguous.dtype.isbuiltin == 1 else contiguous.view(f"u{contiguous.itemsize}")
