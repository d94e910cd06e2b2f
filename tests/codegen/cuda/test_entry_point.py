"""Entry points: what a launch passes, what LLVM may take for granted, and what runs after an error."""

from __future__ import annotations

import re
from collections.abc import Hashable

import numpy as np
import pytest

from autojit.codegen.cuda.entry_point import Known, Part, PartText, entry_text
from autojit.codegen.cuda.grid_function import CudaKernel, Grid
from autojit.codegen.cuda.target import CudaTarget
from autojit.codegen.grid_text import Buffer, GridText, Role
from autojit.core.dtypes import float32, float64, int64
from autojit.runtime.llvm import compile_to_object
from tests.codegen.cuda.grids import LANE_ORDERS, Memory, device, launch_entry

TARGET = CudaTarget("sm_90", 132)


def _doubling(role: Role = "writes", *, reports: bool = False) -> GridText:
    """``y = 2 x`` for blocks of 128 threads, four neighbours a thread."""
    kernel = CudaKernel(Grid(128, (8, 1, 1)))
    kernel.pointers([4096, 4096])
    first = kernel.add(kernel.mul(kernel.block_x, 512), kernel.mul(kernel.thread, 4))
    places = [kernel.add(first, k) for k in range(4)]
    values = [kernel.read(0, float32, place) for place in places]
    if reports:
        with kernel.when(kernel.test("eq", kernel.block_x, 7)):
            kernel.report(3, first)
    for place, value in zip(places, values, strict=True):
        kernel.write(1, kernel.emit.add(value, value), place)
    return kernel.finished([Buffer("reads", 4), Buffer(role, 4)])


def _ptx(text: str) -> str:
    return compile_to_object(text, TARGET).decode()


def test_parameters_are_those_that_a_launch_passes() -> None:
    kernel = _doubling(reports=True)
    assert kernel.reports
    plain, moved = (_ptx(entry_text(kernel, [16, 16], moving)) for moving in ({}, {0: False, 1: True}))
    # buffers, error words, code; or: where addresses are, bytes behind one, error words, code
    assert len(re.findall(r"\.param \.\w+ (?:\.ptr \S+ \.align \d+ )?kernel_param", plain)) == 4
    assert len(re.findall(r"\.param \.\w+ (?:\.ptr \S+ \.align \d+ )?kernel_param", moved)) == 5
    assert ".maxntid 128" in plain


@pytest.mark.parametrize("moving", [{}, {0: False}, {0: True, 1: False}, {0: True, 1: True}])
def test_aligned_neighbours_are_one_access_wherever_the_address_comes_from(moving: dict[int, bool]) -> None:
    ptx = _ptx(entry_text(_doubling(), [16, 16], moving))
    assert re.search(r"ld\.global\S*\.v4\.b32", ptx)
    assert "st.global.v4.b32" in ptx


def test_an_alignment_of_one_element_promises_no_more() -> None:
    ptx = _ptx(entry_text(_doubling(), [4, 4], {}))
    assert ".v4." not in ptx and ".v2." not in ptx


def test_what_is_updated_in_place_may_be_another_buffer() -> None:
    alone, updated = (_ptx(entry_text(_doubling(role), [16, 16], {})) for role in ("writes", "updates"))
    assert "ld.global.nc" in alone
    heads = [text for text in entry_text(_doubling("updates"), [16, 16], {}).splitlines() if "ptx_kernel" in text]
    assert "noalias" not in heads[0] and "nc" not in updated
    assert re.search(r"ld\.global\.v4\.b32", updated) and "st.global.v4.b32" in updated


def test_a_guarded_kernel_reads_the_error_word_first() -> None:
    ptx = _ptx(entry_text(_doubling(), [16, 16], {}, guarded=True))
    first = next(line for line in ptx.splitlines() if ".global.b" in line or ".global.nc" in line)
    assert "ld.global.b64" in first
    assert len(re.findall(r"\.param \.\w+ (?:\.ptr \S+ \.align \d+ )?kernel_param", ptx)) == 3


@pytest.mark.parametrize("order", LANE_ORDERS)
@pytest.mark.parametrize("moving", [{}, {1: False}, {0: True, 1: False}, {0: False, 1: True}])
def test_a_launch_finds_its_buffers_and_runs_only_if_nothing_was_reported(
    moving: dict[int, bool], order: int | None
) -> None:
    kernel, memory = _doubling(reports=True), Memory(device(order))
    entry = entry_text(kernel, [256, 256], moving, guarded=True)
    x = np.arange(4096, dtype=np.float32)
    addresses = [memory.put(x), memory.put(np.zeros(4096, np.float32))]
    errors = memory.put(np.zeros(2, np.int64))
    arguments: list[int] = []
    for number, address in enumerate(addresses):
        if number in moving:  # a slot of a table, which says where something begins that the buffer is a part of
            behind = 512 * moving[number]
            arguments += [memory.put(np.array([address - behind])), *[behind] * moving[number]]
        else:
            arguments.append(address)
    launch_entry(memory.driver, kernel, entry, TARGET, [*arguments, errors, 5])
    y = memory.driver.read(addresses[1], "f4", (4096,))
    word, position = memory.driver.read(errors, "i8", (2,)).tolist()
    assert word == 5 << 32 | 3 and 7 * 512 <= position < 4096  # the last block's first thread that came
    done = (y == 2 * x).reshape(8, 512)
    assert done[7].all()  # who reports goes on; blocks that begin later may do nothing, but no block a part
    assert np.all(done.all(1) | ~done.any(1))
    memory.driver.write(addresses[1], np.full(4096, -1, np.float32))
    launch_entry(memory.driver, kernel, entry, TARGET, [*arguments, errors, 5])
    assert (memory.driver.read(addresses[1], "f4", (4096,)) == -1).all()
    memory.release()


def test_values_of_every_width_cross_lanes() -> None:
    kernel = CudaKernel(Grid(32, (1, 1, 1)))
    kernel.pointers([32, 32])
    for dtype in (float64, int64):
        value = kernel.emit.load(kernel.address(kernel.buffers[0], dtype, kernel.thread), dtype)
        kernel.emit.store(kernel.shuffle(value, 1), kernel.address(kernel.buffers[1], dtype, kernel.thread))
    ptx = _ptx(entry_text(kernel.finished([Buffer("reads", 8), Buffer("writes", 8)]), [8, 8], {}))
    assert ptx.count("shfl.sync.bfly.b32") == 4


@pytest.mark.parametrize("alignments", [(16, 4), (4, 16), (16, 16)])
def test_a_parameter_of_several_parts_promises_what_holds_for_all(alignments: tuple[int, int]) -> None:
    known: dict[Hashable, Known] = {}
    keys = "a", "b"  # the first part's result is the second's operand
    first = PartText(Part(_doubling(), [16, alignments[0]], {}, keys=keys), "%k0.", meets=True, known=known)
    second = PartText(Part(_doubling(), [alignments[1], 16], {}, keys=("b", "c")), "%k1.", meets=True, known=known)
    assert len(first.parameters) == 2 and len(second.parameters) == 1
    assert f"align {min(alignments)} %k0.b1" in first.parameters[1]
