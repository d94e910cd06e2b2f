"""Sequences of different lengths: padded, and packed without their padding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import autojit as aj
from autojit.functions.argument_errors import name_arguments_in_errors
from autojit.tensor import Tensor
from autojit.tensor.state import state as thread


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
        return self._with(self.data.to(*args, **kwargs))

    def _with(self, data: Tensor) -> PackedSequence:
        """The same with other data; itself where they are no others."""
        return self if data is self.data else self._replace(data=data)

    def cpu(self) -> PackedSequence:
        """The same on the CPU."""
        return self.to("cpu")

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same on a CUDA device."""
        return self._with(self.data.cuda(*args, **kwargs))

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

    def short(self) -> PackedSequence:
        """The same in int16."""
        return self.to(aj.int16)

    def char(self) -> PackedSequence:
        """The same in int8."""
        return self.to(aj.int8)

    def byte(self) -> PackedSequence:
        """The same in uint8."""
        return self.to(aj.uint8)

    @property
    def is_cuda(self) -> bool:
        """Whether the data are on a CUDA device."""
        return bool(self.data.is_cuda)

    def is_pinned(self) -> bool:
        """Whether the data are in pinned memory."""
        return bool(self.data.is_pinned())

    def pin_memory(self) -> PackedSequence:
        """The same in pinned memory."""
        return self._replace(data=self.data.pin_memory())


def pack_padded_sequence(
    input: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Drop the padding of ``f[time, n, ...]``; ``lengths`` i64[n] must fall unless ``enforce_sorted`` is False.

    In a compiled step a tensor of lengths stays a value of the step; that all are positive, that they fall and that the
    longest fills the time axis are questions that split it.

    Raises:
        RuntimeError: a length is not positive or larger than the time axis, they do not fall, or are not ``n``.

    Example:
        >>> import autojit as aj
        >>> packed = pack_padded_sequence(aj.tensor([[1, 4], [2, 5], [3, 0]]), [3, 2])
        >>> packed.data, packed.batch_sizes
        (tensor([1, 4, 2, 5, 3]), tensor([2, 2, 1]))
    """
    if input.numel() == 0:
        raise RuntimeError("Cannot pack empty tensors.")
    x = input.transpose(0, 1) if batch_first else input
    counts: list[int] | None = None  # of a step that keeps the lengths open
    if isinstance(lengths, Tensor) and thread.trace is not None:
        sizes = lengths
    else:
        counts = lengths.tolist() if isinstance(lengths, Tensor) else [int(size) for size in lengths]
        sizes = aj.tensor(counts, dtype=aj.int64, device=input.device)
    sorted_indices = None
    if not enforce_sorted:
        sizes, sorted_indices = aj.sort(sizes, descending=True, stable=True)
        x = x.index_select(1, sorted_indices)
    if sizes.shape[0] != x.shape[1]:
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {sizes.shape[0]} (batch_size={x.shape[1]})"
        )
    steps = _steps(sizes, x.shape[0])
    alive = aj.arange(steps, device=sizes.device).unsqueeze(1) < sizes
    batch_sizes = alive.sum(1)
    data = x[:steps][alive] if counts is None else _rows(x[:steps], batch_sizes, sum(counts))
    return PackedSequence(data, batch_sizes, sorted_indices, invert_permutation(sorted_indices))


def _steps(sizes: Tensor, extent: int) -> int:
    """The longest of sorted lengths, checked: in a compiled step the extent of the time axis where it fills that."""
    if sizes.shape[0] and bool(sizes[0].eq(extent) & (sizes[-1] > 0) & (sizes[1:] <= sizes[:-1]).all()):
        return extent
    if not sizes.shape[0] or bool((sizes <= 0).any()):
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0"
        )
    if bool((sizes[1:] > sizes[:-1]).any()):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
            "`enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this requirement."
        )
    longest = int(sizes[0])
    if longest > extent:
        raise RuntimeError(
            f"lengths must not be larger than the time axis, but got {longest} for an extent of {extent}"
        )
    return longest


def _rows(padded: Tensor, batch_sizes: Tensor, total: int) -> Tensor:
    """The ``total`` rows ``f[total, ...]`` of ``f[time, n, ...]`` that are not padding, step by step."""
    ends = batch_sizes.cumsum(0)
    row = aj.arange(total, device=ends.device)
    step = aj.searchsorted(ends, row, right=True)
    return padded.flatten(0, 1).index_select(0, step * padded.shape[1] + row - (ends - batch_sizes)[step])


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes ``permutation``."""
    return None if permutation is None else permutation.argsort()


def unpacked(packed: PackedSequence, fill: float = 0.0) -> tuple[Tensor, Tensor]:
    """(``f[time, n, ...]`` with ``fill`` past the ends, b[time, n] that is true before them), both in sorted order."""
    batch_sizes, data = packed.batch_sizes, packed.data
    batch = int(batch_sizes[0]) if packed.sorted_indices is None else packed.sorted_indices.shape[0]
    place = aj.arange(batch, device=batch_sizes.device)
    alive = place < batch_sizes.unsqueeze(1)
    starts = (batch_sizes.cumsum(0) - batch_sizes).unsqueeze(1)
    rows = data.index_select(0, aj.where(alive, starts + place, 0).flatten()).unflatten(0, alive.shape)
    mask = alive.reshape(*alive.shape, *(1 for _ in data.shape[1:]))
    return aj.where(mask, rows, rows.new_full((), fill)), alive


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """The inverse of ``pack_padded_sequence``: padded sequences and their lengths in the caller's order."""
    steps = sequence.batch_sizes.shape[0]
    if total_length is not None and total_length < steps:
        raise ValueError(
            "Expected total_length to be at least the length of the longest sequence in input, but got "
            f"total_length={total_length} and max sequence length being {steps}"
        )
    padded, alive = unpacked(sequence, padding_value)
    if total_length is not None and total_length > steps:
        padded = aj.cat([padded, padded.new_full((total_length - steps, *padded.shape[1:]), padding_value)])
    lengths = alive.sum(0)
    if sequence.unsorted_indices is not None:
        padded = padded.index_select(1, sequence.unsorted_indices)
        lengths = lengths[sequence.unsorted_indices]
    return (padded.transpose(0, 1) if batch_first else padded), lengths


def pack_like(padded: Tensor, packed: PackedSequence) -> PackedSequence:
    """Pack ``f[time, n, ...]`` in sorted order the way ``packed`` is."""
    return packed._replace(data=_rows(padded, packed.batch_sizes, packed.data.shape[0]))


def pad_sequence(
    sequences: Iterable[Tensor], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Stack tensors of different first extents, padded to the longest. ``f[time, n, ...]``."""
    if padding_side not in ("left", "right"):
        raise ValueError("padding_side should be either 'left' or 'right'")
    if not isinstance(sequences, Iterable):
        raise RuntimeError(
            f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}"
        )
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


_PUBLIC = (
    "invert_permutation", "pack_like", "pack_padded_sequence", "pack_sequence", "pad_packed_sequence",
    "unpack_sequence", "unpacked", "unpad_sequence",
)  # fmt: skip
name_arguments_in_errors(globals(), _PUBLIC)
