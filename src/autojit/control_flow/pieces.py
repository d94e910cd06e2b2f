"""Scans in pieces: of each piece only the carry at its beginning is kept, the rest is computed again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import isqrt
from typing import Any

from autojit.core.errors import UsageError
from autojit.functions.shape import cat
from autojit.jit.pytree import TreeSpec, flatten
from autojit.tensor import Tensor
from autojit.utils.checkpoint import checkpoint

ScanStacks = Callable[[Callable[..., Any], Any, Any], tuple[Any, Any]]
"""A scan along axis 0: takes ``combine_fn``, the first carry and the slices."""


def rounds_per_piece(remat: bool | int, length: int) -> int:
    """How many rounds a piece has; 0 where there are no pieces.

    Raises:
        RuntimeError: ``remat`` is neither a bool nor a number of rounds.
    """
    if type(remat) not in (bool, int) or remat < 0:
        raise UsageError(f"Remat must be a bool or the rounds of a piece, but got {remat!r}")
    if remat is True:  # as many rounds as pieces: what is kept at once is least
        return max(1, isqrt(max(int(length) - 1, 0)) + 1)
    return min(int(remat), int(length))


def scan_in_pieces(
    scan: ScanStacks,
    combine_fn: Callable[..., Any],
    init: Any,
    stacks: Sequence[Tensor],
    xs_tree: TreeSpec,
    rounds: int,
    reverse: bool,
) -> tuple[Any, Any]:
    """The scan over pieces of so many ``rounds``; those that are left over make a shorter one, which is the last."""
    length = int(stacks[0].shape[0])
    count, left = divmod(length, rounds)
    first, last = (left, length) if reverse else (0, length - left)

    def piece(carry: Any, part: Any) -> tuple[Any, Any]:
        return checkpoint(partial(scan, combine_fn), carry, part, use_reentrant=False)  # type: ignore[no-any-return]

    parts = [x[first:last].reshape(count, rounds, *x.shape[1:]) for x in stacks]
    carry, results = scan(piece, init, xs_tree.unflatten(parts))
    leaves, tree = flatten(results)
    leaves = [y.flatten(0, 1) if isinstance(y, Tensor) else y for y in leaves]
    if left:
        rest = [x[:first] if reverse else x[last:] for x in stacks]
        carry, more = piece(carry, xs_tree.unflatten(rest))
        pairs = zip(leaves, flatten(more)[0], strict=True)
        leaves = [(cat([b, a]) if reverse else cat([a, b])) if isinstance(a, Tensor) else a for a, b in pairs]
    return carry, tree.unflatten(leaves)
