from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from autojit.core.dtypes import BY_NAME, float32, float64
from autojit.ops import (
    bernoulli,
    exponential,
    multinomial,
    normal,
    philox,
    randint,
    random_bits,
    randperm,
    uniform,
)  # fmt: skip
from tests.ops.running import record, run

KEY = np.array([1234, 0])


def key(seed: int, offset: int = 0) -> NDArray[np.int64]:
    return np.array([seed, offset])


def test_philox_gives_the_published_answer() -> None:
    # Random123's known answer test for Philox-4x32-10, counter and key zero
    words = philox(np.zeros(1, np.uint64), 0)
    assert [hex(w) for w in words[0]] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]


def test_any_division_of_the_work_gives_the_same_words() -> None:
    whole = run(lambda k: random_bits(k, (1000,)), KEY)
    for start in (4, 400, 996):
        part = run(lambda k, start=start: random_bits(k, (1000 - start,)), key(1234, start // 4))
        np.testing.assert_array_equal(part, whole[start:])
    np.testing.assert_array_equal(run(lambda k: random_bits(k, (10, 100)), KEY).reshape(-1), whole)


def test_seeds_and_offsets_matter() -> None:
    draws = [
        run(lambda k: random_bits(k, (64,)), k) for k in (KEY, key(1235), key(1234, 16), key(-1234), key(1234 << 32))
    ]
    for i, x in enumerate(draws):
        assert not any(np.array_equal(x, y) for y in draws[i + 1 :])


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_uniform_lies_in_the_half_open_interval(name: str) -> None:
    dtype = BY_NAME[name]
    x = run(lambda k: uniform(k, (20000,), dtype), KEY)
    assert x.dtype == dtype.numpy
    x = x.astype(np.float64)
    assert x.min() >= 0
    assert x.max() < 1
    assert abs(x.mean() - 0.5) < 0.01 + (0.002 if dtype.numpy == ml_dtypes.bfloat16 else 0)
    assert abs(x.var() - 1 / 12) < 0.003


@pytest.mark.parametrize("dtype", [float32, float64])
def test_normal_and_exponential_have_their_moments(dtype: Any) -> None:
    x = run(lambda k: normal(k, (40000,), dtype), KEY).astype(np.float64)
    assert np.isfinite(x).all()
    assert abs(x.mean()) < 0.02
    assert abs(x.var() - 1) < 0.03
    assert abs((x**4).mean() - 3) < 0.2
    e = run(lambda k: exponential(k, (40000,), dtype), KEY).astype(np.float64)
    assert e.min() >= 0
    assert abs(e.mean() - 1) < 0.02
    assert abs(e.var() - 1) < 0.06


def test_bernoulli_follows_the_probabilities() -> None:
    p = np.repeat([0.0, 0.2, 1.0], 10000)
    drawn = run(bernoulli, KEY, p).reshape(3, -1).mean(1)
    assert drawn[0] == 0
    assert abs(drawn[1] - 0.2) < 0.02
    assert drawn[2] == 1


@pytest.mark.parametrize(("low", "high"), [(-3, 4), (0, 2**32), (-(2**63), 2**63 - 1), (5, 6)])
def test_randint_stays_in_range(low: int, high: int) -> None:
    x = run(lambda k: randint(k, low, high, (5000,)), KEY)
    assert x.dtype == np.int64
    assert x.min() >= low
    assert x.max() < high
    assert abs(float(np.mean((x.astype(np.float64) - low) / (float(high) - low))) - 0.5) < 0.1 or high - low == 1


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(ValueError, match="from=3 >= to=3"):
        record(lambda k: randint(k, 3, 3, (2,)), KEY)


def test_randperm_is_a_permutation() -> None:
    x = run(lambda k: randperm(k, 100), KEY)
    assert sorted(x) == list(range(100))
    assert not np.array_equal(x, np.arange(100))


def test_multinomial_draws_in_proportion() -> None:
    weights = np.array([[0.0, 1.0, 3.0], [2.0, 0.0, 2.0]])
    drawn = run(lambda k, w: multinomial(k, w, 4000, replacement=True), KEY, weights)
    shares = np.stack([(drawn == i).mean(1) for i in range(3)], 1)
    np.testing.assert_allclose(shares, weights / weights.sum(1, keepdims=True), atol=0.03)
    without = run(lambda k, w: multinomial(k, w, 2), KEY, weights)
    assert [sorted(row) for row in without] == [[1, 2], [0, 2]]
    with pytest.raises(RuntimeError, match="without replacement"):
        record(lambda k, w: multinomial(k, w, 4), KEY, weights)


def test_a_key_is_two_int64() -> None:
    with pytest.raises(RuntimeError, match=r"int64\[2\]"):
        record(lambda k: random_bits(k, (2,)), np.zeros(3, np.int64))
