"""Each instruction is what NVIDIA's documents say, over many values: against NumPy and Python's whole numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.runtime.gpu.emulator.emulation import elementwise

WIDTHS = (16, 32, 64)


def integers(width: int, is_signed: bool, seed: int = 0) -> np.ndarray:
    """Random ones of every size, and the ends of the range."""
    chance = np.random.default_rng(seed)
    bits = chance.integers(0, 2**63, 120, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    bits >>= chance.integers(0, 64, 120, dtype=np.uint64)
    ends = np.array([0, 1, 2, 2 ** (width - 1) - 1, 2 ** (width - 1), 2**width - 1, 2**width - 2, 3], np.uint64)
    return np.concatenate([bits, ends]).astype(f"u{width // 8}").view(f"{'i' if is_signed else 'u'}{width // 8}")


def wrapped(value: int, like: np.ndarray) -> int:
    width = 8 * like.dtype.itemsize
    value %= 1 << width
    return value - (1 << width) if like.dtype.kind == "i" and value >> (width - 1) else value


def cut_quotient(x: int, y: int) -> int:
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


BINARY: dict[str, Callable[[int, int, int], int]] = {
    "add.{t}": lambda x, y, w: x + y,
    "sub.{t}": lambda x, y, w: x - y,
    "mul.lo.{t}": lambda x, y, w: x * y,
    "mul.hi.{t}": lambda x, y, w: (x * y) >> w,
    "min.{t}": lambda x, y, w: min(x, y),
    "max.{t}": lambda x, y, w: max(x, y),
    "div.{t}": lambda x, y, w: cut_quotient(x, y),
    "rem.{t}": lambda x, y, w: x - y * cut_quotient(x, y),
    "and.b{w}": lambda x, y, w: x & y,
    "or.b{w}": lambda x, y, w: x | y,
    "xor.b{w}": lambda x, y, w: x ^ y,
}


@pytest.mark.parametrize("is_signed", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", BINARY)
def test_integer_arithmetic_is_that_of_whole_numbers(name: str, width: int, is_signed: bool) -> None:
    x, y = integers(width, is_signed), integers(width, is_signed, 1)[::-1].copy()
    y[y == 0] = 7
    opcode = name.format(t=f"{'s' if is_signed else 'u'}{width}", w=width)
    found = elementwise(f"{opcode} %y, %x0, %x1;", [x, y], x.dtype.str[1:])
    assert [int(v) for v in found] == [wrapped(BINARY[name](int(a), int(b), width), x) for a, b in zip(x, y)]


@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("word", ["add", "sub", "mul", "div.rn"])
def test_float_arithmetic_is_rounded_to_nearest(word: str, kind: str) -> None:
    chance = np.random.default_rng(0)
    width = np.dtype(kind).itemsize
    x, y = (np.frombuffer(chance.bytes(128 * width), kind).copy() for _ in range(2))
    function = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div.rn": np.divide}[word]
    found = elementwise(f"{word}.f{8 * width} %y, %x0, %x1;", [x, y], kind)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found, function(x, y))
