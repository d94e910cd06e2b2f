"""For which extents kernels of eager mode on a device are made: few, whatever extents come, and those that fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autojit.core.device import Device
from autojit.core.dtypes import float32
from autojit.core.errors import ShapeError
from autojit.core.types import TensorType
from autojit.dispatch.open_kernels import MOST_KEPT, OpenKernels, OpenMemory
from autojit.dispatch.operand_memory import Memory
from autojit.ir.concrete import concrete, is_open

CUDA = Device("cuda", 0)


def memory(*shape: int, axes: tuple[int, ...] | None = None) -> Memory:
    return Memory(TensorType(shape, float32, CUDA), axes)


class Made:
    """Kernels that are made of the operands' types; some forms are refused with open sizes."""

    def __init__(self, kept: int = 100, refuses: bool = False) -> None:
        self.made: list[tuple[Any, tuple[Memory, ...]]] = []
        self.refuses = refuses
        self.kernels = OpenKernels(self.make, kept)

    def make(self, what: Any, memories: tuple[Memory, ...]) -> tuple[Memory, ...]:
        if self.refuses and any(is_open(m.type.shape) for m in memories):
            raise ShapeError("it needs the sizes")
        self.made.append((what, memories))
        return memories

    def find(self, *memories: Memory, elementwise: bool = False, fixed: bool = False) -> OpenMemory | None:
        """What is left open; the kernel that is found is one for these operands."""
        kernel, opened = self.kernels.find("op", memories, is_elementwise=elementwise, is_fixed=fixed)
        values = {} if opened is None else opened.values
        for mine, of in zip(kernel, memories, strict=True):
            shape = concrete(mine.type.shape, values)
            assert not is_open(shape)
            if opened is None or opened.packed is None:
                assert (shape, mine.axes, mine.steps) == (of.type.shape, of.axes, of.steps)
            elif of.type.shape:
                assert np.prod(shape) == np.prod(of.type.shape) == np.prod(opened.packed)
        return opened


@pytest.mark.parametrize("seed", range(6))
def test_extents_of_any_kind_have_few_kernels_each_for_its_operands(seed: int) -> None:
    """Some for each extent that is open in turn, and then one for all."""
    rng, made = np.random.default_rng(seed), Made()
    for _ in range(200):
        m, k, n = (int(extent) for extent in rng.choice(np.arange(2, 90), 3, replace=False))
        made.find(memory(m, k), memory(k, n))
    assert len(made.made) <= 3 * MOST_KEPT + 1


def test_a_batch_is_open_with_its_second_value_and_rows_stay_as_they_are() -> None:
    made = Made()
    for rows in (4, 7, 9, 100):
        opened = made.find(memory(rows, 784), memory(784, 10))
    assert len(made.made) == 2 and opened is not None
    assert [len(m.type.shape) - sum(map(is_open, ((n,) for n in m.type.shape))) for m in opened.memories] == [1, 2]


def test_layers_of_a_few_widths_keep_them() -> None:
    made = Made()
    for rows in (4, 7, 9, 100):
        for width, to in ((784, 512), (512, 256), (256, 10)):
            made.find(memory(rows, width), memory(width, to))
    assert len(made.made) == 3 * 2


def test_another_extent_is_open_with_its_fourth_value() -> None:
    made = Made()
    opened = [made.find(memory(4, width)) for width in (10, 20, 30, 40, 50)]
    assert [found is not None for found in opened] == [False, False, False, True, True]
    assert len(made.made) == 4


def test_ones_and_nothing_are_extents_of_their_own() -> None:
    made = Made()
    for rows in (1, 0, 5, 6, 1, 0, 7):
        opened = made.find(memory(rows, 3))
        assert opened is None or rows > 1
    assert len(made.made) == 4


def test_elements_that_are_alike_are_a_line_of_any_length_from_the_first_call_on() -> None:
    made = Made()
    for shape in ((4, 6), (3, 3), (5,), (2, 3, 4), (100, 7), (8, 8, 8)):
        opened = made.find(memory(*shape), memory(*shape), memory(), elementwise=True)
        assert opened is not None and opened.packed == shape
    turned = made.find(memory(4, 6, axes=(1, 0)), memory(4, 6, axes=(1, 0)), memory(), elementwise=True)
    assert turned is not None and (turned.packed, turned.axes) == ((6, 4), (1, 0))
    assert len(made.made) == 2


def test_what_needs_sizes_is_made_for_each_and_open_ones_are_asked_once() -> None:
    made = Made(refuses=True)
    for rows in (4, 5, 6, 7, 8):
        assert made.find(memory(rows, 3)) is None
    assert len(made.made) == 5
    assert made.find(memory(9, 3), fixed=True) is None


def test_gaps_and_parameters_with_extents_fix_sizes() -> None:
    made = Made()
    for rows in (4, 5, 6):
        assert made.find(Memory(TensorType((rows, 3), float32, CUDA), None, (6, 2)), elementwise=True) is None
        assert made.find(memory(rows, 3), elementwise=True, fixed=True) is None


def test_the_kernel_that_was_asked_for_the_longest_ago_goes() -> None:
    made = Made(kept=2)
    for rows in (1, 0, 1):
        made.find(memory(rows, 2), fixed=True)
    made.find(memory(7, 2), fixed=True)
    assert len(made.kernels.kernels()) == 2
    made.find(memory(1, 2), fixed=True)
    assert len(made.made) == 3
