"""Masks by functions of single places: tables of them, the blocks they leave, unions and intersections."""

from __future__ import annotations

from typing import Any

import autojit as aj
from autojit.core.errors import UsageError
from autojit.nn.attention.block_mask import DEFAULT_BLOCK, BlockMask, ordered
from autojit.nn.attention.score_functions import (
    MaskMod,
    ScoreMod,
    mask_of_all,
    modified_scores,
    places,
    takes_score,
)
from autojit.nn.functional.padding import pad
from autojit.tensor import Tensor


def or_masks(*mask_mods: MaskMod) -> MaskMod:
    """The mask that leaves what one of the masks leaves."""
    _require_functions(mask_mods)

    def or_mask(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        result = aj.zeros((), dtype=aj.bool, device=b.device)
        for mask in mask_mods:
            result = result | mask(b, h, q_idx, kv_idx)
        return result

    return or_mask


def and_masks(*mask_mods: MaskMod) -> MaskMod:
    """The mask that leaves what all of the masks leave."""
    _require_functions(mask_mods)

    def and_mask(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        result = aj.ones((), dtype=aj.bool, device=b.device)
        for mask in mask_mods:
            result = result & mask(b, h, q_idx, kv_idx)
        return result

    return and_mask


def _require_functions(mask_mods: tuple[Any, ...]) -> None:
    if not all(callable(arg) for arg in mask_mods):
        raise UsageError(f"All inputs should be callable mask_mods: {mask_mods}")


def create_mask(
    mod_fn: ScoreMod | MaskMod, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None
) -> Tensor:
    """``bool[B, H, Q_LEN, KV_LEN]``: what a mask function leaves, or where a score function is not -inf.

    Args:
        mod_fn: takes (batch, head, number of the query, number of the key), a score function a score before them.
        B, H: None: 1.
        device: None: the accelerator if there is one, else the CPU, as in torch.

    Example:
        >>> create_mask(lambda b, h, q, k: q >= k, None, None, 2, 3)
        tensor([[[[ True, False, False],
                  [ True,  True, False]]]])
    """
    extents = 1 if B is None else B, 1 if H is None else H, Q_LEN, KV_LEN
    if device is None:
        device = aj.accelerator.current_accelerator() or "cpu"
    numbers = places(extents, device)
    if takes_score(mod_fn):
        scores = aj.zeros(extents, device=numbers[0].device)
        return ~aj.isneginf(modified_scores(mod_fn, scores, numbers))
    return mask_of_all(mod_fn, numbers)


def create_block_mask(
    mask_mod: MaskMod,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
    BLOCK_SIZE: int | tuple[int, int] = DEFAULT_BLOCK,
    _compile: bool = False,
    separate_full_blocks: bool = True,
) -> BlockMask:
    """The blocks of queries and keys in which a mask function leaves something.

    Args:
        mask_mod: takes (batch, head, number of the query, number of the key), returns whether the query sees the key.
        B, H: None: the mask is the same for all.
        BLOCK_SIZE: of queries and keys, or (queries, keys).
        separate_full_blocks: blocks that the mask leaves whole are listed apart.

    Raises:
        AssertionError: the function does not take four arguments, or does not return bools.
    """
    if takes_score(mask_mod):
        raise AssertionError(f"create-block_mask requires a mask_mod function! Got {mask_mod}")
    sizes = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
    mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)
    if mask.dtype is not aj.bool:
        raise AssertionError(f"mask.dtype must be torch.bool, got {mask.dtype}")
    some, all_of_it = _blocks(mask, *sizes)
    is_partial = some & ~all_of_it if separate_full_blocks else some
    counts, indices = ordered(is_partial)
    full_counts, full_indices = ordered(all_of_it) if separate_full_blocks else (None, None)
    made = BlockMask.from_kv_blocks(
        counts, indices, full_counts, full_indices, BLOCK_SIZE=sizes, mask_mod=mask_mod, seq_lengths=(Q_LEN, KV_LEN)
    )
    return made.listed_for(mask_mod)


def _blocks(mask: Tensor, queries: int, keys: int) -> tuple[Tensor, Tensor]:
    """Whether blocks leave something, and whether they leave all: a block that sticks out does not."""
    padded = pad(mask, (0, -mask.shape[-1] % keys, 0, -mask.shape[-2] % queries))
    batch, heads, rows, columns = padded.shape
    tiles = padded.reshape(batch, heads, rows // queries, queries, columns // keys, keys)
    return tiles.any(-1).any(-2), tiles.all(-1).all(-2)
