"""What is known when a function is written is worked out there, and means what LLVM would have computed."""

from __future__ import annotations

import ctypes
from itertools import product
from typing import Any

import numpy as np
import pytest

from autojit.codegen.cpu.vector_text import VectorKernel, VectorModule, literal
from autojit.codegen.function_text import Operand
from autojit.runtime.bodies import load_kernels

NUMBERS = (-3, 0, 1, 2, 5)
OPERATIONS = ("add", "sub", "mul", "quotient", "remainder", "least")


def run(kernel: VectorKernel, *arrays: np.ndarray[Any, Any]) -> None:
    kernel.finish()
    (code,) = load_kernels((kernel.module.text(),))
    args = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(code.address("kernel"))(args, 0, 0)


def test_numbers_that_are_known_are_those_that_are_computed() -> None:
    kernel = VectorKernel(VectorModule(), "kernel")
    numbers, results = kernel.pointers([0, 0])
    cases = [
        (name, a, b)
        for name, a, b in product(OPERATIONS, NUMBERS, NUMBERS)
        if name not in ("quotient", "remainder") or (a >= 0 and b > 0)
    ]
    for row, (name, a, b) in enumerate(cases):
        read = {n: kernel.load("i64", kernel.at(numbers, 8 * NUMBERS.index(n))) for n in (a, b)}
        write = getattr(kernel, name)
        found = write(a, b), write(read[a], b), write(a, read[b]), write(str(a), str(b)), write(read[a], read[b])
        assert literal(found[0]) is not None and found[0] == found[3]
        for column, value in enumerate(found):
            kernel.store("i64", value, kernel.at(results, 8 * (row * len(found) + column)))
    made = np.zeros((len(cases), 5), np.int64)
    run(kernel, np.array(NUMBERS), made)
    assert (made == made[:, -1:]).all()


@pytest.mark.parametrize("bounds", [(0, 1, 1), (2, 5, 3), (2, 5, 2), (0, 4, 1), (3, 3, 1), (4, 3, 1)])
def test_a_loop_has_the_turns_of_a_range(bounds: tuple[int, int, int]) -> None:
    kernel = VectorKernel(VectorModule(), "kernel")
    (totals,) = kernel.pointers([0])
    with kernel.loop(*bounds) as i:
        terms: tuple[Operand, ...] = (1, i)
        for k, term in enumerate(terms):
            place = kernel.at(totals, 8 * k)
            kernel.store("i64", kernel.add(kernel.load("i64", place), term), place)
    made = np.zeros(2, np.int64)
    run(kernel, made)
    assert made.tolist() == [len(range(*bounds)), sum(range(*bounds))]
