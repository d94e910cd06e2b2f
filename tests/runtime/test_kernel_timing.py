"""A step run kernel by kernel: the same code on the same memory, with a word about every kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from autojit.compiler import compile
from autojit.core.source import UNKNOWN
from autojit.ir.text import parse_graph
from autojit.runtime.kernel_timing import KernelRow, kernel_rows, shown_lines, watching

CHAIN = (
    "(x: f32[300,200], w: f32[200,100], b: f32[100]) { a: f32[300,100] = matmul(x, w); c: f32[300,100] = add(a, b); "
    "d: f32[300,100] = tanh(c); s: f32[100] = sum[axes=(0,)](d); e: f32[300,100] = mul(d, s); return e, s }"
)


class Noting:
    """Notes kernels and runs them."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.rows: list[KernelRow] = []

    def call(self, name: str, kind: str, function: Callable[..., Any], *arguments: Any) -> Any:
        self.calls.append(name)
        return function(*arguments)

    def kernel(self, row: KernelRow, function: Callable[..., Any], *arguments: Any) -> None:
        self.rows.append(row)
        function(*arguments)


@contextmanager
def noting() -> Iterator[Noting]:
    observer = Noting()
    watching.observer = observer
    try:
        yield observer
    finally:
        watching.observer = None


def test_every_kernel_runs_once_and_results_are_the_same() -> None:
    compiled = compile(parse_graph(CHAIN))
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(shape).astype(np.float32) for shape in ((300, 200), (200, 100), (100,))]
    expected = compiled.executable.run(inputs)
    with noting() as observer:
        found = compiled.executable.run(inputs)
    again = compiled.executable.run(inputs)
    for a, b, c in zip(expected, found, again, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)
    assert observer.rows == kernel_rows(compiled.lowered)
    assert observer.calls == [f"native call of {len(observer.rows)} kernels"]
    assert {"matmul", "tanh", "sum", "mul"} <= {op for row in observer.rows for op in row.ops}


def test_a_band_and_a_batch_are_one_row_each() -> None:
    compiled = compile(parse_graph(CHAIN))
    assert len(compiled.lowered.origins) == len(compiled.lowered.entries)


def test_no_place_is_no_text() -> None:
    assert shown_lines([]) == ""
    assert shown_lines([UNKNOWN]) == "<unknown>:0"


def test_an_error_of_the_observer_leaves_the_step_whole() -> None:
    compiled = compile(parse_graph(CHAIN))
    inputs = [np.ones(shape, np.float32) for shape in ((300, 200), (200, 100), (100,))]
    expected = compiled.executable.run(inputs)

    class Failing(Noting):
        def kernel(self, row: KernelRow, function: Callable[..., Any], *arguments: Any) -> None:
            raise ZeroDivisionError

    watching.observer = Failing()
    try:
        with pytest.raises(ZeroDivisionError):
            compiled.executable.run(inputs)
    finally:
        watching.observer = None
    np.testing.assert_array_equal(compiled.executable.run(inputs)[0], expected[0])
