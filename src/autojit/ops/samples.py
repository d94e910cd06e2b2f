"""Sample inputs of ops for the law tests: small arrays of every dtype, away from points without a derivative."""

from __future__ import annotations

from math import prod

import numpy as np

from autojit.core.dtypes import DType
from autojit.core.types import Shape
from autojit.ir.op import Ndarray, Op

Sample = tuple[Op, tuple[Ndarray, ...]]
Samples = list[Sample]


def ramp(shape: Shape, dtype: DType) -> Ndarray:
    """Distinct small numbers of either sign (unsigned: small counts; bool: alternating; complex: both parts)."""
    count = np.arange(prod(shape), dtype=np.float64)
    if dtype.kind in ("bool", "uint"):
        return np.asarray((count % (2 if dtype.kind == "bool" else 7)).astype(dtype.numpy).reshape(shape))
    values = (count + 1) * np.where(count % 3 == 1, -0.5, 0.5)
    if dtype.kind == "complex":
        return np.asarray((values + 1j * values[::-1]).astype(dtype.numpy).reshape(shape))
    return np.asarray(values.astype(dtype.numpy).reshape(shape))


def draws(shape: Shape, dtype: DType, seed: int = 0) -> Ndarray:
    """Seeded normal numbers without structure; integers in [-4, 4] (unsigned [0, 4])."""
    generator = np.random.default_rng(seed)
    if dtype.kind in ("bool", "uint", "int"):
        low = -4 if dtype.kind == "int" else 0
        return np.asarray(generator.integers(low, 2 if dtype.kind == "bool" else 5, shape).astype(dtype.numpy))
    values = generator.standard_normal(shape)
    if dtype.kind == "complex":
        return np.asarray((values + 1j * generator.standard_normal(shape)).astype(dtype.numpy))
    return np.asarray(values.astype(dtype.numpy))


def positions(values: list[int] | list[list[int]]) -> Ndarray:
    """An int64 index array."""
    return np.asarray(values, dtype=np.int64)
