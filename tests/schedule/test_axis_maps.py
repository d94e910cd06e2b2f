"""Axes of a shape as axes of a domain of the same elements: they tell the same elements apart, or there are none."""

from __future__ import annotations

import itertools
from math import prod

import numpy as np
import pytest

from autojit.core.types import Shape
from autojit.schedule.axis_maps import map_axes

SHAPES: list[Shape] = [
    (12,),
    (3, 4),
    (4, 3),
    (1, 12),
    (12, 1),
    (3, 1, 4),
    (2, 6),
    (2, 2, 3),
    (1, 3, 2, 2),
    (1, 1, 12, 1),
]


def _rows(shape: Shape, axes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Per element, in order, where it is along some axes."""
    places = np.indices(shape).reshape(len(shape), -1).T
    return [tuple(place[a] for a in axes) for place in places.tolist()]


@pytest.mark.parametrize("shape", SHAPES)
def test_mapped_axes_tell_the_same_elements_apart(shape: Shape) -> None:
    axes = [a for a, n in enumerate(shape) if n != 1]
    for domain, flags in itertools.product(SHAPES, itertools.product((True, False), repeat=len(axes))):
        kept = tuple(a for a, flag in zip(axes, flags, strict=True) if flag)
        folded = tuple(a for a in axes if a not in kept)
        if not kept:  # nothing to tell apart: nobody asks
            continue
        found = map_axes(shape, domain, kept, folded)
        if found is None:
            continue
        assert prod(domain[a] for a in found[0]) == prod(shape[a] for a in kept)
        for mine, theirs in zip((kept, folded), found, strict=True):
            pairs = set(zip(_rows(shape, mine), _rows(domain, theirs), strict=True))
            assert len(pairs) == prod(shape[a] for a in mine), (domain, kept, folded)
