"""Ints that change from call to call: what Python computes of them is exact, however large it gets."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj

QUESTIONS: dict[str, Callable[[int, int], Any]] = {
    "k << 2": lambda k, m: k << 2,
    "k << 40": lambda k, m: k << 40,
    "k << 70": lambda k, m: k << 70,
    "k >> 1": lambda k, m: k >> 1,
    "1 << k": lambda k, m: 1 << abs(k) % 5,
    "k & 1": lambda k, m: k & 1,
    "k & 12": lambda k, m: k & 12,
    "k & 7": lambda k, m: k & 7,
    "6 & k": lambda k, m: 6 & k,
    "k | 3": lambda k, m: k | 3,
    "k ^ m": lambda k, m: k ^ m,
    "~k": lambda k, m: ~k,
    "divmod": lambda k, m: divmod(k, 3)[0] * 10 + divmod(k, 3)[1],
    "rdivmod": lambda k, m: divmod(100, abs(k) + 1)[1],
    "floor": lambda k, m: k // 3,
    "negative floor": lambda k, m: -k // 3,
    "remainder": lambda k, m: k % 7 + k % -7,
    "square": lambda k, m: k * k,
    "cube": lambda k, m: k * k * k,
    "cube again": lambda k, m: k**3,
    "k * m * k": lambda k, m: k * m * k,
    "times large": lambda k, m: k * 2**40,
    "plus large": lambda k, m: (k + 2**62) + 2**62,
    "bit_length": lambda k, m: k.bit_length(),
    "bit_count": lambda k, m: abs(k).bit_count(),
    "ratio": lambda k, m: k.as_integer_ratio()[0],
    "real": lambda k, m: k.real + k.imag,
    "abs": lambda k, m: abs(k) - abs(m),
    "k < m": lambda k, m: 2.0 if k < m else 3.0,
    "text": lambda k, m: len(str(k)),
    "range": lambda k, m: sum(range(abs(k) % 9)),
    "set": lambda k, m: k in {3, 5},
    "halves": lambda k, m: k / 2 + m / 4,
    "difference": lambda k, m: (k * k - m * m) // (abs(k + m) + 1),
}
OF_ANY = {
    "k << 2", "k >> 1", "k & 1", "k & 7", "~k", "divmod", "floor", "negative floor", "remainder", "square", "abs",
    "halves", "k < m",
}  # fmt: skip
"""What a step computes for ints of any value; for others it is captured for each value."""
VALUES = [7, -7, 5, 3, 10, 12, -1, 0, 64, 10**6, 10**7, 2**31 - 1, 2**31 + 5, -(2**33), 2**40 + 1]


def check(function: Callable[..., Any], pairs: list[tuple[int, int]]) -> None:
    compiled = aj.jit(function)
    x = aj.ones(1, dtype=aj.float64)
    for k, m in pairs:
        expected = function(x, k, m).item()
        assert compiled(x, k, m).item() == pytest.approx(expected, rel=1e-12), (k, m, compiled.explain())


@pytest.mark.parametrize("name", QUESTIONS)
def test_ints_of_python_are_exact(name: str) -> None:
    rng = random.Random(name)
    question = QUESTIONS[name]
    small = [(k, rng.choice(VALUES[:9])) for k in (7, -7, 5, 3, 10, 12, 0)]
    large = [(rng.choice(VALUES), rng.choice(VALUES)) for _ in range(4)]
    check(lambda x, k, m: x * float(question(k, m)) if isinstance(question(k, m), int) else x * question(k, m), small)
    check(lambda x, k, m: x * question(k, m), small[:6] + large)


@pytest.mark.parametrize("name", QUESTIONS)
def test_what_arithmetic_tells_is_captured_for_ints_of_any_value(name: str) -> None:
    question = QUESTIONS[name]
    compiled = aj.jit(lambda x, k, m: x * question(k, m))
    for k, m in zip(VALUES, reversed(VALUES), strict=True):
        compiled(aj.ones(1, dtype=aj.float64), k, m)
    assert (compiled.stats()["native_calls"] >= 5) == (name in OF_ANY), compiled.stats()


@pytest.mark.parametrize("seed", range(10))
def test_random_arithmetic_of_changing_ints(seed: int) -> None:
    rng = random.Random(f"ints {seed}")
    chosen = [rng.choice([*QUESTIONS.values()]) for _ in range(3)]

    def function(x: aj.Tensor, k: int, m: int) -> aj.Tensor:
        for question in chosen:
            x = x * 0.5 + question(k, m) + question(m, k + 1) * 1e-3
        return x

    check(function, [(k, rng.choice(VALUES[:10])) for k in rng.sample(VALUES[:10], 8)])


@pytest.mark.parametrize("axis", [0, 1])
def test_an_index_error_names_the_number_of_its_call(axis: int) -> None:
    x = aj.arange(36.0).reshape(6, 6)
    take = (lambda k: x[k], lambda k: x[..., k])[axis]
    step = aj.jit(lambda n: take(n))
    for n in (0, 1, 2, 3, 4, 5, 6, -6, -7, 9, -100, 2**40, -(2**40), 1):
        told = []
        for run in (take, step):
            try:
                told.append(str(run(n).tolist()))
            except IndexError as error:
                told.append(str(error).partition("\n")[0])
        assert told[0] == told[1]
