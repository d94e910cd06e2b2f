from __future__ import annotations

import numpy as np
import pytest

from autojit.core.errors import ArgumentError, AxisError, ShapeError
from autojit.ir import Op
from autojit.ops import (
    Pad,
    Slice,
    broadcast_to,
    flip,
    pad,
    permute,
    reshape,
    slice_axis,
    slice_update,
    strided_slice,
)  # fmt: skip
from tests.ops.running import normal, record, run


def test_reshape_works_out_one_extent() -> None:
    x = normal(4, 6)
    np.testing.assert_array_equal(run(lambda x: reshape(x, (2, -1, 3)), x), x.reshape(2, 4, 3))


@pytest.mark.parametrize("shape", [(5, 5), (-1, 5), (-1, -1), (0, -1)])
def test_reshape_refuses_other_sizes(shape: tuple[int, ...]) -> None:
    with pytest.raises(RuntimeError):
        record(lambda x: reshape(x, shape), normal(4, 6))


def test_reshape_names_the_shape_and_the_size() -> None:
    with pytest.raises(ShapeError, match=r"shape '\[7\]' is invalid for input of size 24"):
        record(lambda x: reshape(x, (7,)), normal(4, 6))


def test_identities_record_nothing() -> None:
    def identity(x: object) -> object:
        x = permute(reshape(x, (4, 6)), (0, 1))  # type: ignore[arg-type]
        return broadcast_to(strided_slice(x, (0, 0), (None, 6)), (4, 6))

    assert len(record(identity, normal(4, 6))) == 0


def test_slices_clip_as_python_does_and_equal_ones_are_equal_ops() -> None:
    x = normal(5, 7)
    np.testing.assert_array_equal(run(lambda x: strided_slice(x, (-3, 1), (99, -1), (2, 3)), x), x[-3:99:2, 1:-1:3])
    first = record(lambda x: strided_slice(x, (0, 0), (5, 6), (1, 3)), x)
    second = record(lambda x: strided_slice(x, (0, 0), (None, 5), (1, 3)), x)
    assert first.nodes[0].op == second.nodes[0].op == Slice((0, 0), (5, 4), (1, 3))


def test_negative_steps_are_refused_with_a_fix() -> None:
    with pytest.raises(ArgumentError, match="flip"):
        record(lambda x: slice_axis(x, 0, 3, 0, -1), normal(5))


def test_permute_counts_negative_axes_from_the_end() -> None:
    x = normal(2, 3, 4)
    np.testing.assert_array_equal(run(lambda x: permute(x, (-1, 0, 1)), x), x.transpose(2, 0, 1))
    with pytest.raises(AxisError):
        record(lambda x: permute(x, (0, 1, 3)), x)


def test_views_alias_and_flip_copies() -> None:
    x = normal(4, 6)
    for op_class in Op.registry.values():
        if not getattr(op_class, "is_view", False) or op_class.name == "reshape":
            continue
        from autojit.core.dtypes import float64

        for op, (sample,) in op_class.samples(float64):  # type: ignore[attr-defined]
            assert sample.size == 0 or op.eager(sample).size == 0 or np.shares_memory(op.eager(sample), sample)
    assert np.shares_memory(run(lambda x: reshape(x, (24,)), x), x)
    assert not np.shares_memory(run(lambda x: flip(x, 0), x), x)


def test_pad_and_its_region_are_inverse() -> None:
    x = normal(3, 4)
    op = Pad((1, 2), (0, 3), (2, 0), 7.0)
    padded = op.eager(x)
    np.testing.assert_array_equal(op.region(x.shape).eager(padded), x)
    assert padded.shape == (1 + 7, 2 + 4 + 3)
    assert np.count_nonzero(padded == 7.0) == padded.size - x.size


def test_pad_refuses_negative_widths() -> None:
    with pytest.raises(ValueError, match="negative"):
        record(lambda x: pad(x, (-1,), (0,)), normal(3))


def test_slice_update_replaces_a_region() -> None:
    base, piece = normal(5, 6), normal(2, 3, seed=1)
    expected = base.copy()
    expected[1:4:2, 0:5:2] = piece
    np.testing.assert_array_equal(run(lambda b, p: slice_update(b, p, (1, 0), (2, 2)), base, piece), expected)
    with pytest.raises(ShapeError, match="does not fit"):
        record(lambda b, p: slice_update(b, p, (4, 0)), base, piece)


def test_broadcast_refuses_what_numpy_refuses() -> None:
    with pytest.raises(RuntimeError, match="broadcast"):
        record(lambda x: broadcast_to(x, (4, 3)), normal(4, 2))
