"""Sequences of different lengths: padded, and packed without their padding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import autojit as aj
from autojit.tensor import Tensor


class PackedSequence(NamedTuple):
    """Sequences sorted by falling length, stored time step by time step without padding.

    ``data`` f[total, ...]; ``batch_sizes`` i64[time]: how many sequences are alive at each step; the indices sort the
    caller's order and undo it.
    """

    data: Tensor
    batch_sizes: Tensor = None  # type: ignore[assignment]
    sorted_indices: Tensor | None = None
    unsorted_indices: Tensor | None = None

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same with ``data.to(...)``."""
        return self._replace(data=self.data.to(*args, **kwargs))

    def cpu(self) -> PackedSequence:
        """The same on the CPU."""
        return self.to("cpu")

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same on a CUDA device."""
        return self._replace(data=self.data.cuda(*args, **kwargs))

    def double(self) -> PackedSequence:
        """The same in float64."""
        return self.to(aj.float64)

    def float(self) -> PackedSequence:
        """The same in float32."""
        return self.to(aj.float32)

    def half(self) -> PackedSequence:
        """The same in float16."""
        return self.to(aj.float16)

    def long(self) -> PackedSequence:
        """The same in int64."""
        return self.to(aj.int64)

    def int(self) -> PackedSequence:
        """The same in int32."""
        return self.to(aj.int32)

    @property
    def is_cuda(self) -> bool:
        """Whether the data lie on a CUDA device."""
        return bool(self.data.is_cuda)

    def is_pinned(self) -> bool:
        """Whether the data lie in pinned memory."""
        return bool(self.data.is_pinned())

    def pin_memory(self) -> PackedSequence:
        """The same in pinned memory."""
        return self._replace(data=self.data.pin_memory())


def pack_padded_sequence(
    input: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Drop the padding of ``f[time, n, ...]``; ``lengths`` must fall unless ``enforce_sorted`` is False."""
    sizes = [int(size) for size in (lengths.tolist() if isinstance(lengths, Tensor) else lengths)]
    order = None
    if not enforce_sorted:
        order = sorted(range(len(sizes)), key=lambda place: -sizes[place])
        sizes = [sizes[place] for place in order]
    x = input.transpose(0, 1) if batch_first else input
    if not sizes or min(sizes) <= 0:
        raise RuntimeError("Length of all samples has to be greater than 0, but found an element in 'lengths' that is"
                           " <= 0")  # fmt: skip
    if len(sizes) != x.shape[1]:
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(sizes)} (batch_size={x.shape[1]})"
        )
    if any(a < b for a, b in pairwise(sizes)):
        raise RuntimeError("`lengths` array must be sorted in decreasing order when `enforce_sorted` is True.")
    sorted_indices = unsorted_indices = None
    if order is not None:
        sorted_indices = aj.tensor(order, dtype=aj.int64)
        unsorted_indices = invert_permutation(sorted_indices)
        x = x.index_select(1, sorted_indices)
    batch_sizes = [sum(size > time for size in sizes) for time in range(sizes[0])]
    data = aj.cat([x[time, :alive] for time, alive in enumerate(batch_sizes)])
    return PackedSequence(data, aj.tensor(batch_sizes, dtype=aj.int64), sorted_indices, unsorted_indices)


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes ``permutation``."""
    return None if permutation is None else permutation.argsort()


def _padded(packed: PackedSequence, fill: float, steps: int) -> tuple[Tensor, list[int]]:
    """``f[steps, n, ...]`` in sorted order with ``fill`` past the ends, and the number alive at each step."""
    alive = [int(count) for count in packed.batch_sizes.tolist()]
    batch = alive[0]
    rows, start = [], 0
    rest = tuple(packed.data.shape[1:])
    for count in alive + [0] * (steps - len(alive)):
        parts = [packed.data[start : start + count]] if count else []
        if count < batch:
            parts.append(aj.full((batch - count, *rest), fill, dtype=packed.data.dtype, device=packed.data.device))
        rows.append(parts[0] if len(parts) == 1 else aj.cat(parts))
        start += count
    return aj.stack(rows), alive


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """The inverse of ``pack_padded_sequence``: padded sequences and their lengths in the caller's order."""
    steps = sequence.batch_sizes.shape[0]
    if total_length is not None:
        if total_length < steps:
            raise ValueError(
                "Expected total_length to be at least the length of the longest sequence in input, but got "
                f"total_length={total_length} and max sequence length being {steps}"
            )
        steps = total_length
    padded, alive = _padded(sequence, padding_value, steps)
    lengths = aj.tensor([sum(count > place for count in alive) for place in range(alive[0])], dtype=aj.int64)
    if sequence.unsorted_indices is not None:
        padded = padded.index_select(1, sequence.unsorted_indices)
        lengths = lengths[sequence.unsorted_indices]
    return (padded.transpose(0, 1) if batch_first else padded), lengths


def unpacked(packed: PackedSequence) -> tuple[Tensor, Tensor]:
    """Zero-padded ``f[time, n, ...]`` and lengths, both in the packed (sorted) order."""
    padded, alive = _padded(packed, 0.0, packed.batch_sizes.shape[0])
    lengths = aj.tensor([sum(count > place for count in alive) for place in range(alive[0])], dtype=aj.int64)
    return padded, lengths


def pack_like(padded: Tensor, packed: PackedSequence) -> PackedSequence:
    """Pack ``f[time, n, ...]`` in sorted order the way ``packed`` is."""
    alive = [int(count) for count in packed.batch_sizes.tolist()]
    return packed._replace(data=aj.cat([padded[time, :count] for time, count in enumerate(alive)]))


def pad_sequence(
    sequences: Iterable[Tensor], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Stack tensors of different first extents, padded to the longest. ``f[time, n, ...]``."""
    if padding_side not in ("left", "right"):
        raise ValueError("padding_side should be either 'left' or 'right'")
    found = list(sequences)
    longest = max(sequence.shape[0] for sequence in found)
    rows = []
    for sequence in found:
        missing = longest - sequence.shape[0]
        if missing:
            shape = (missing, *sequence.shape[1:])
            block = aj.full(shape, padding_value, dtype=sequence.dtype, device=sequence.device)
            sequence = aj.cat([block, sequence] if padding_side == "left" else [sequence, block])
        rows.append(sequence)
    return aj.stack(rows, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """The inverse of ``pad_sequence``."""
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [row[: int(size)] for row, size in zip(rows, lengths.tolist(), strict=True)]


def pack_sequence(sequences: Iterable[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack tensors of different first extents."""
    found = list(sequences)
    lengths = [sequence.shape[0] for sequence in found]
    return pack_padded_sequence(pad_sequence(found), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The inverse of ``pack_sequence``."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
