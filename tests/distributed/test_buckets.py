"""Buckets: every tensor is in one, in the order of the backward pass; joining is for small ones."""

from __future__ import annotations

import numpy as np
import pytest

import autojit as aj
from autojit.distributed.buckets import ALONE_MB, MEGABYTE, assigned, flattened, taken_apart


@pytest.mark.parametrize("seed", range(5))
def test_every_tensor_is_in_one_bucket_and_large_ones_are_alone(seed: int) -> None:
    drawn = np.random.default_rng(seed)
    limit = float(drawn.choice([0.01, 0.5, 25.0]))
    kinds = [aj.float32, aj.float64, aj.bfloat16]
    tensors = [
        aj.empty(int(10 ** drawn.uniform(0, 6)), dtype=kinds[int(drawn.integers(3))])
        for _ in range(int(drawn.integers(1, 12)))
    ]
    found = assigned(tensors, [limit])
    assert sorted(k for bucket in found for k in bucket) == list(range(len(tensors)))
    assert [max(bucket) for bucket in found] == sorted(max(bucket) for bucket in found)
    for bucket in found:
        sizes = [tensors[k].numel() * tensors[k].element_size() for k in bucket]
        assert bucket == sorted(bucket)
        assert len({tensors[k].dtype for k in bucket}) == 1
        assert len(bucket) == 1 or max(sizes) < ALONE_MB * MEGABYTE
        assert sum(sizes[:-1]) < limit * MEGABYTE


def test_a_bucket_is_its_tensors() -> None:
    for shapes in ([(2, 3)], [(2, 3), (), (4,)]):
        tensors = [aj.rand(*shape) for shape in shapes]
        pieces = taken_apart(flattened(tensors), tensors)
        assert all(bool((p == t).all()) and p.shape == t.shape for p, t in zip(pieces, tensors, strict=True))
