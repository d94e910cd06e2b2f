"""Zeros of both signs, infinities, NaN and the least numbers: kernels give what the eager rules give, sign included."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.compiler import compile
from autojit.core.types import TensorType
from autojit.ir import evaluate
from autojit.ir.builder import GraphBuilder
from autojit.ir.op import Op
from autojit.ops.base import Elementwise

REALS = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, -2.0, 3.0, 1e-310, -1e-310]
WHOLE, TRUTHS = [0, 1, -1, 3], [True, False]
MANY = 3
"""Operands above which all combinations would be too many."""
TOGETHER = 8
"""Ops of one compiled step."""
EITHER_ZERO = {"maximum", "minimum", "fmax", "fmin", "guarded_mul", "guarded_div", "masked_mul"}
"""Which of two zeros they take is not said; NumPy takes one by the machine and the dtype, guards keep none's sign."""
COMPLEX = {"complex"}
"""They make complex numbers, which are not compared part by part."""


def type_of(array: Any) -> TensorType:
    dtype = aj.bfloat16 if array.dtype.name == "bfloat16" else aj.from_numpy(np.zeros(1, array.dtype)).dtype
    return TensorType(array.shape, dtype)


def cases(dtype: aj.dtype) -> Iterator[tuple[Op, list[Any]]]:
    """Each elementwise op with the combinations of special operands."""
    for name, cls in sorted(Op.registry.load().items()):
        if not issubclass(cls, Elementwise) or name in COMPLEX or not hasattr(cls, "samples"):
            continue
        seen: set[Op] = set()
        for op, arrays in cls.samples(dtype):
            if op in seen or len(arrays) > MANY or op.may_refuse(*map(type_of, arrays)):
                continue
            seen.add(op)
            values: list[Any] = [
                TRUTHS if a.dtype == bool else WHOLE if a.dtype.kind in "iu" else REALS for a in arrays
            ]
            grid = list(itertools.product(*values))
            yield op, [np.array([row[k] for row in grid], a.dtype) for k, a in enumerate(arrays)]


def batched(given: Iterator[Any], count: int) -> Iterator[list[Any]]:
    while group := list(itertools.islice(given, count)):
        yield group


def differences(op: Op, found: Any, expected: Any) -> Any:
    if found.dtype.kind not in "fV":
        return found != expected
    zeros = (found == 0) & (expected == 0) & (op.name not in EITHER_ZERO)
    return (
        (np.isnan(found) != np.isnan(expected))
        | (np.isinf(found) != np.isinf(expected))
        | (zeros & (np.signbit(found) != np.signbit(expected)))
    )


@pytest.mark.parametrize("dtype", [aj.float64, aj.float32, aj.bfloat16], ids=str)
def test_kernels_agree_with_eager_rules_on_special_operands(dtype: aj.dtype) -> None:
    for group in batched(cases(dtype), TOGETHER):
        builder = GraphBuilder()
        inputs = [[builder.input(type_of(a)) for a in arrays] for _, arrays in group]
        results = [builder.apply(op, values) for (op, _), values in zip(group, inputs, strict=True)]
        graph = builder.finish([value for values in results for value in values])
        given = [a for _, arrays in group for a in arrays]
        with np.errstate(all="ignore"):
            expected = evaluate(graph, given)
        for (op, arrays), found, value in zip(group, compile(graph).executable.run(given), expected, strict=True):
            bad = np.flatnonzero(differences(op, found, np.asarray(value)))
            shown = [([a[k] for a in arrays], found[k], np.asarray(value)[k]) for k in bad[:4]]
            assert not len(bad), f"{op} {dtype}: operands, compiled, eager: {shown}"


def test_a_guarded_product_has_the_sign_of_the_product() -> None:
    x, y = np.array([0.0, -0.0, 0.0, -0.0, 0.0]), np.array([-1.0, -1.0, np.inf, np.nan, 2.0])
    for name in ("guarded_mul", "guarded_div", "masked_mul"):
        eager = Op.registry[name]().eager
        with np.errstate(all="ignore"):
            plain = (np.divide if name == "guarded_div" else np.multiply)(x, y)
        mended = np.where(np.isnan(plain), 0.0, plain)
        for part in (slice(None), slice(2), slice(2, 4)):  # with elements that need the guard, without, and only those
            with np.errstate(all="ignore"):  # as everybody calls the rules
                found = eager(x[part], y[part])
            assert found.tobytes() == mended[part].tobytes()
