"""BlockMask: which blocks of keys a block of queries looks at, as lists of their numbers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice, product
from typing import Any

import autojit as aj
from autojit.core.errors import UsageError
from autojit.nn.attention.score_functions import noop_mask
from autojit.tensor import Tensor

DEFAULT_BLOCK = 128

TENSORS = (
    "kv_num_blocks",
    "kv_indices",
    "full_kv_num_blocks",
    "full_kv_indices",
    "q_num_blocks",
    "q_indices",
    "full_q_num_blocks",
    "full_q_indices",
)


def ordered(is_listed: Tensor) -> tuple[Tensor, Tensor]:
    """(how many, which come first) of the blocks of each row that are listed."""
    given = is_listed.to(aj.int32)
    return given.sum(-1).to(aj.int32), aj.argsort(given, dim=-1, descending=True, stable=True).to(aj.int32)


def dense(counts: Tensor, indices: Tensor, columns: int) -> Tensor:
    """``int32[..., rows, columns]``: 1 for blocks that are listed."""
    is_listed = aj.arange(indices.shape[-1], device=indices.device) < counts.unsqueeze(-1)
    where = aj.where(is_listed, indices, columns).to(aj.int64)  # the others go to a column of their own
    empty = aj.zeros((*indices.shape[:-1], columns + 1), dtype=aj.int32, device=indices.device)
    return empty.scatter(-1, where, aj.ones_like(where, dtype=aj.int32))[..., :columns]


def _turned(counts: Tensor | None, indices: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """The same blocks, listed by the other axis."""
    if counts is None or indices is None:
        return None, None
    return ordered(dense(counts, indices, indices.shape[-1]).transpose(-2, -1))


def sliced_mask_mod_error(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """Stands for the mask function of a part of a BlockMask, whose numbers begin elsewhere."""
    raise UsageError(
        "Cannot use mask_mod from a sliced BlockMask. When you slice a BlockMask using [], the mask_mod attribute is "
        "reset. You must set it from the original BlockMask's mask_mod.",
        fix="sliced_mask.mask_mod = shifted(base_mask.mask_mod, offset)",
    )


class BlockMask:
    """The blocks of a mask in which a query sees a key: for each block of queries how many blocks of keys, and which.

    ``kv_*`` list blocks that the mask leaves in part, ``full_kv_*`` those that it leaves whole; ``q_*`` the same by
    blocks of keys. ``mask_mod`` says which places a listed block leaves.
    """

    def __init__(
        self,
        seq_lengths: tuple[int, int],
        kv_num_blocks: Tensor,
        kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None,
        full_kv_indices: Tensor | None,
        q_num_blocks: Tensor | None,
        q_indices: Tensor | None,
        full_q_num_blocks: Tensor | None,
        full_q_indices: Tensor | None,
        BLOCK_SIZE: tuple[int, int] = (DEFAULT_BLOCK, DEFAULT_BLOCK),
        mask_mod: Callable[..., Tensor] | None = None,
    ) -> None:
        _check_lists(kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices)
        if (full_q_num_blocks is None) != (full_q_indices is None):
            raise AssertionError("full_q_num_blocks and full_q_indices must be both provided or omitted")
        self.seq_lengths = seq_lengths
        self.kv_num_blocks, self.kv_indices = kv_num_blocks, kv_indices
        self.full_kv_num_blocks, self.full_kv_indices = full_kv_num_blocks, full_kv_indices
        self.q_num_blocks, self.q_indices = q_num_blocks, q_indices
        self.full_q_num_blocks, self.full_q_indices = full_q_num_blocks, full_q_indices
        self.BLOCK_SIZE = BLOCK_SIZE
        self.mask_mod: Callable[..., Tensor] = noop_mask if mask_mod is None else mask_mod
        self._listed_for: Callable[..., Tensor] | None = None  # the function whose blocks are listed, if it is known

    @classmethod
    def from_kv_blocks(
        cls,
        kv_num_blocks: Tensor,
        kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None = None,
        full_kv_indices: Tensor | None = None,
        BLOCK_SIZE: int | tuple[int, int] = DEFAULT_BLOCK,
        mask_mod: Callable[..., Tensor] | None = None,
        seq_lengths: tuple[int, int] | None = None,
        compute_q_blocks: bool = True,
    ) -> BlockMask:
        """A BlockMask by the blocks of keys of each block of queries.

        Args:
            mask_mod: None: listed blocks are left whole.
            seq_lengths: queries and keys; by default as many as the blocks have.

        Raises:
            RuntimeError: the lists have no rows.
            AssertionError: one of the two lists of whole blocks is missing.
        """
        _check_lists(kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices)
        sizes = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
        turned: tuple[Tensor | None, ...] = (None,) * 4
        if compute_q_blocks:
            turned = (*_turned(kv_num_blocks, kv_indices), *_turned(full_kv_num_blocks, full_kv_indices))
        if seq_lengths is None:
            seq_lengths = kv_indices.shape[-2] * sizes[0], kv_indices.shape[-1] * sizes[1]
        lists = (kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices)
        given: Any = (seq_lengths, *lists, *turned, sizes, mask_mod)
        return cls(*given)

    # -- what it says

    @property
    def shape(self) -> tuple[int, ...]:
        """Batch axes, queries, keys."""
        return (*self.kv_indices.shape[:-2], *self.seq_lengths)

    def numel(self) -> int:
        """How many places there are, masked or not."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    def sparsity(self) -> float:
        """The percentage of places in blocks that are not looked at."""
        listed = self.kv_num_blocks.sum()
        if self.full_kv_num_blocks is not None:
            listed = listed + self.full_kv_num_blocks.sum()
        return 100 * (1 - float(listed.item()) * self.BLOCK_SIZE[0] * self.BLOCK_SIZE[1] / self.numel())

    def to_dense(self) -> Tensor:
        """``int32[..., blocks of queries, blocks of keys]``: 1 for blocks that are looked at."""
        found = dense(self.kv_num_blocks, self.kv_indices, self.kv_indices.shape[-1])
        if self.full_kv_num_blocks is None or self.full_kv_indices is None:
            return found
        return found | dense(self.full_kv_num_blocks, self.full_kv_indices, self.full_kv_indices.shape[-1])

    def listed_for(self, mask_mod: Callable[..., Tensor] | None) -> BlockMask:
        """Note that the lists are those of a function, which leaves nothing elsewhere."""
        self._listed_for = mask_mod
        return self

    def at_places(self) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
        """Whether a query sees a key, by the numbers of a place: where it is listed, and the function leaves it."""
        mask_mod = self.mask_mod
        if mask_mod is self._listed_for:
            return mask_mod
        table, (queries, keys) = self.to_dense().ne(0), self.BLOCK_SIZE
        batches, heads = table.shape[:2]

        def is_seen(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
            only = aj.zeros((), dtype=aj.int64, device=table.device)
            of = b if batches > 1 else only, h if heads > 1 else only
            return mask_mod(b, h, q_idx, kv_idx) & table[(*of, q_idx // queries, kv_idx // keys)]

        return is_seen

    def as_tuple(self, flatten: bool = True) -> tuple[Any, ...]:
        """Lengths, lists, sizes of blocks and the mask function; pairs as they are unless ``flatten``."""
        lists = [getattr(self, name) for name in TENSORS]
        if flatten:
            return (*self.seq_lengths, *lists, *self.BLOCK_SIZE, self.mask_mod)
        return (self.seq_lengths, *lists, self.BLOCK_SIZE, self.mask_mod)

    # -- others like it

    def __getitem__(self, index: Any) -> BlockMask:
        """The part at an index into batches, heads and blocks of queries; an integer leaves an axis of one.

        The mask function of a part must be set: see `sliced_mask_mod_error`.
        """
        given = index if isinstance(index, tuple) else (index,)
        padded = (*given, slice(None), slice(None), slice(None))[:3]
        sizes = self.kv_num_blocks.shape[:3]
        picked = tuple([_as_slice(i, n) for i, n in zip(padded, sizes, strict=True)])
        lists = [getattr(self, name) for name in TENSORS[:4]]
        return self._listing([None if x is None else x[picked] for x in lists], sliced_mask_mod_error, self.seq_lengths)

    def _listing(self, lists: list[Any], mask_mod: Callable[..., Tensor], seq_lengths: tuple[int, int]) -> BlockMask:
        """The same with other lists of blocks of keys."""
        counts, indices, full_counts, full_indices = lists
        return BlockMask.from_kv_blocks(
            counts,
            indices,
            full_counts,
            full_indices,
            BLOCK_SIZE=self.BLOCK_SIZE,
            mask_mod=mask_mod,
            seq_lengths=seq_lengths,
            compute_q_blocks=self.q_indices is not None,
        )

    def _adjust(self, new_q_len: int, new_kv_len: int) -> BlockMask:
        """The upper left part, for these lengths."""
        rows, columns = (-(-n // size) for n, size in zip((new_q_len, new_kv_len), self.BLOCK_SIZE, strict=True))
        lists: list[Any] = []
        for counts, indices in (
            (self.kv_num_blocks, self.kv_indices),
            (self.full_kv_num_blocks, self.full_kv_indices),
        ):
            if counts is None or indices is None:
                lists += [None, None]
            else:
                kept = dense(counts, indices, indices.shape[-1])[..., :rows, :columns]
                lists += ordered(kept)
        made = self._listing(lists, self.mask_mod, (new_q_len, new_kv_len))
        return made.listed_for(self._listed_for)

    def to(self, device: Any) -> BlockMask:
        """The same with its lists on a device."""
        lists = [None if x is None else x.to(device) for x in (getattr(self, name) for name in TENSORS)]
        given: Any = (self.seq_lengths, *lists, self.BLOCK_SIZE, self.mask_mod)
        return BlockMask(*given).listed_for(self._listed_for)

    # -- text

    def __repr__(self) -> str:
        shapes = [f"{n}={None if getattr(self, n) is None else getattr(self, n).shape}" for n in TENSORS]
        named = getattr(self.mask_mod, "__name__", self.mask_mod)
        lines = [*shapes, f"BLOCK_SIZE={self.BLOCK_SIZE}", f"shape={self.shape}", f"sparsity={self.sparsity():.2f}%"]
        return "BlockMask(\n" + "".join(f"    {line},\n" for line in lines) + f"    mask_mod={named}\n)"

    def __str__(self) -> str:
        head = f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%, \n"
        return head + self.to_string().strip() + "\n)"

    def to_string(self, grid_size: int | tuple[int, int] = (20, 20), limit: int = 4) -> str:
        """Pictures of the first ``limit`` tables of blocks, of at most this many lines and columns (-1: all)."""
        table = self.to_dense()
        rows, columns = table.shape[-2:]
        most = (grid_size, grid_size) if isinstance(grid_size, int) else grid_size
        steps = [1 if m == -1 else max(1, -(-n // m)) for n, m in zip((rows, columns), most, strict=True)]
        batches = product(*[range(n) for n in table.shape[:-2]])
        found = []
        for number in islice(batches, limit):
            lines = [
                "".join(_shade(table[(*number, slice(r, r + steps[0]), slice(c, c + steps[1]))]) * 2
                        for c in range(0, columns, steps[1]))
                for r in range(0, rows, steps[0])
            ]  # fmt: skip
            found.append(f"{number}\n" + "".join(f"{line}\n" for line in lines))
        if next(batches, None) is not None or len(found) < table[..., 0, 0].numel():
            found.append("...\nTo print out more, set BlockMask.to_string(limit=N)")
        return "\n".join(found)


def _check_lists(counts: Tensor, indices: Tensor, full_counts: Tensor | None, full_indices: Tensor | None) -> None:
    if indices.dim() < 2:
        raise UsageError("BlockMask must have at least 2 dimensions")
    if counts is None:
        raise AssertionError("kv_num_blocks must be provided")
    if (full_counts is None) != (full_indices is None):
        raise AssertionError("full_kv_num_blocks and full_kv_indices must be both provided or omitted")


def _as_slice(index: Any, extent: int) -> Any:
    if not isinstance(index, int):
        return index
    return slice(index + extent, index + extent + 1) if -extent <= index < 0 else slice(index, index + 1)


def _shade(part: Tensor) -> str:
    share = float(part.float().mean().item())
    return "█" if share == 1 else " " if share == 0 else "░"
