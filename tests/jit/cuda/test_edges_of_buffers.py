"""LLVM merges accesses, also with places between and behind them: never with what no buffer has."""

from __future__ import annotations

import pytest

import autojit as aj

DTYPES = [aj.bool, aj.int8, aj.float16, aj.int32, aj.float32, aj.float64]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_single_elements_are_read_of_buffers_of_any_size(dtype: aj.dtype) -> None:
    """Each of a few elements, the last ones too, is read by every thread: reads that LLVM would like to widen."""
    for n in (1, 3, 5, 6, 7, 11):
        chosen = range(n)[-3:]
        step = aj.jit(lambda x, line, chosen=chosen: sum((line < x[k]).float() for k in chosen))
        values = aj.arange(n).to(dtype)
        line = aj.arange(5).to(dtype)
        assert step(values.cuda(), line.cuda()).tolist() == step.__wrapped__(values, line).tolist()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_views_that_begin_and_end_anywhere_are_read_and_written(dtype: aj.dtype) -> None:
    step = aj.jit(lambda x: (x.flip(0), x.repeat_interleave(2), aj.cat([x, x[:1]])))
    whole = aj.arange(40).to(dtype)
    there = whole.cuda()
    for first, last in ((0, 7), (1, 8), (3, 20), (4, 20), (5, 40), (39, 40)):
        for got, expected in zip(step(there[first:last]), step.__wrapped__(whole[first:last]), strict=True):
            assert got.tolist() == expected.tolist()
