"""Buckets: tensors of one dtype and device that are combined in one call, as one vector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autojit.functions.shape import cat
from autojit.tensor.tensor import Tensor

__all__ = ["GradBucket"]

MEGABYTE = 1024 * 1024
FIRST_BUCKET_MB = 1.0  # torch's: small, so that the first call starts early in the backward pass
ALONE_MB = 1.0
"""From here on a tensor is a bucket of its own: joining it to others is two passes over memory more, of three that the
all-reduce makes. One call more is 2 us on one machine, 1 MB is 100 us there and as long on a network of 10 GB/s."""


def assigned(tensors: Sequence[Tensor], limits_mb: Sequence[float]) -> list[list[int]]:
    """Places of tensors, in their order, by bucket; large ones are alone, others until a bucket has reached its limit.

    Args:
        limits_mb: of a dtype's first bucket, of its second, …; the last one holds for all others.
    """
    done: list[list[int]] = []
    open_ones: dict[Any, tuple[list[int], int, int]] = {}  # by kind: places, bytes, buckets before
    for place, tensor in enumerate(tensors):
        kind = tensor.dtype, tensor.device
        places, size, before = open_ones.get(kind, ([], 0, 0))
        own = tensor.numel() * tensor.element_size()
        if own >= ALONE_MB * MEGABYTE:
            done.append([place])
            continue
        places, size = [*places, place], size + own
        if size >= limits_mb[min(before, len(limits_mb) - 1)] * MEGABYTE:
            done.append(places)
            open_ones[kind] = [], 0, before + 1
        else:
            open_ones[kind] = places, size, before
    done += [places for places, _, _ in open_ones.values() if places]
    return sorted(done, key=lambda places: places[-1])  # in the order in which they are complete


def flattened(tensors: Sequence[Tensor]) -> Tensor:
    """Their elements as one vector."""
    return tensors[0].reshape(-1) if len(tensors) == 1 else cat([t.reshape(-1) for t in tensors])


def taken_apart(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """The pieces of a vector, in the shapes of these tensors: views."""
    pieces = vector.split([t.numel() for t in like])
    return [piece.reshape(t.shape) for piece, t in zip(pieces, like, strict=True)]


class GradBucket:
    """What a communication hook is given: gradients of one bucket."""

    def __init__(self, index: int, buffer: Tensor, parameters: Sequence[Tensor], is_last: bool) -> None:
        self._index, self._buffer, self._parameters, self._is_last = index, buffer, list(parameters), is_last

    def index(self) -> int:
        """Its number in the order of the backward pass."""
        return self._index

    def buffer(self) -> Tensor:
        """The gradients as one vector."""
        return self._buffer

    def set_buffer(self, buffer: Tensor) -> None:
        """Let it have another vector."""
        self._buffer = buffer

    def gradients(self) -> list[Tensor]:
        """The gradients, as views of the vector."""
        return taken_apart(self._buffer, self._parameters)

    def parameters(self) -> list[Tensor]:
        """Whose gradients they are."""
        return list(self._parameters)

    def is_last(self) -> bool:
        """Whether no bucket follows in this pass."""
        return self._is_last
