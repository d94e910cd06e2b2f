"""Where arrays of shared memory are, and what a launch asks for."""

from __future__ import annotations

import itertools

import numpy as np

from autojit.codegen.grid_text import STATIC_SHARED_BYTES, GridText, shared_alignment


def test_arrays_of_shared_memory_are_aligned_and_apart() -> None:
    generator = np.random.default_rng(3)
    for _ in range(200):
        sizes = tuple(int(n) for n in 2 ** generator.uniform(0, 16, generator.integers(0, 6)))
        text = GridText("", (), 32, (1, 1, 1), shared=sizes)
        places = text.shared_places
        assert all(place % shared_alignment(size) == 0 for place, size in zip(places, sizes, strict=False))
        assert all(
            after - place >= size for (place, after), size in zip(itertools.pairwise(places), sizes, strict=True)
        )
        assert text.asked_bytes == (places[-1] if places[-1] > STATIC_SHARED_BYTES else 0)
