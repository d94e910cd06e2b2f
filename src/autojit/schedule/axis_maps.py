"""Axes of a shape as axes of a loop nest's domain that holds the same elements in the same order."""

from __future__ import annotations

from math import prod

from autojit.core.types import Shape


def map_axes(
    shape: Shape, domain: Shape, kept: tuple[int, ...], folded: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Axes of ``shape`` expressed as axes of ``domain`` (the same elements in the same order), when they line up."""
    if shape == domain:
        return kept, folded
    target = [a for a, n in enumerate(domain) if n != 1]
    source = [a for a, n in enumerate(shape) if n != 1]
    # Axes of extent 1 hold no elements apart: shapes that differ in these alone map axis by axis.
    if [shape[a] for a in source] != [domain[a] for a in target]:
        return _map_blocks(shape, domain, kept, folded)
    to = dict(zip(source, target, strict=True))
    return tuple(to[a] for a in kept), tuple(to[a] for a in folded)


def _map_blocks(
    shape: Shape, domain: Shape, kept: tuple[int, ...], folded: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Leading/trailing blocks that cover whole domain axes: (16, 64 | 384) on (1024, 384)."""
    if not folded:  # axes of extent 1 alone
        return tuple(a for a, n in enumerate(domain) if n != 1), ()
    first, second = (kept, folded) if max(kept) < min(folded) else (folded, kept)
    if max(first) > min(second):
        return None
    size = prod(shape[a] for a in first)
    head: list[int] = []
    covered = 1
    for axis, extent in enumerate(domain):
        if covered == size:
            break
        covered *= extent
        head.append(axis)
    if covered != size:
        return None
    heads = tuple(a for a in head if domain[a] != 1)
    tails = tuple(a for a in range(len(head), len(domain)) if domain[a] != 1)
    return (heads, tails) if first is kept else (tails, heads)
