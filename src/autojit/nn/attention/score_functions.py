"""Functions of single places (a score, the numbers of batch, head, query and key), and what they are at all places."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import autojit as aj
from autojit.func.batches import vmap
from autojit.tensor import Tensor

ScoreMod = Callable[..., Tensor]
"""(score, batch, head, number of the query, number of the key) to another score."""
MaskMod = Callable[..., Tensor]
"""(batch, head, number of the query, number of the key) to whether the query sees the key."""

Numbers = tuple[Tensor, Tensor, Tensor, Tensor]

OF_PLACES = ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None))
"""Which number varies, from the innermost axis to the outermost."""


def noop_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """Every query sees every key."""
    return aj.ones((), dtype=aj.bool, device=batch.device)


def takes_score(function: Callable[..., Any]) -> bool:
    """Whether a function is one of scores, by the number of its arguments.

    Raises:
        AssertionError: it takes neither four nor five.
    """
    given = inspect.signature(function).parameters.values()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    count = sum(p.kind in positional and p.default is inspect.Parameter.empty for p in given)
    if count not in (4, 5):
        raise AssertionError(f"Expected 4 or 5 positional args, got {count}")
    return count == 5


def places(extents: tuple[Any, Any, Any, Any], device: Any) -> Numbers:
    """The numbers of batches, heads, queries and keys."""
    b, h, q, k = (aj.arange(n, device=device) for n in extents)
    return b, h, q, k


def as_tensor(what: str, found: Any) -> Tensor:
    """What a function of one place returned.

    Raises:
        ValueError: it is no tensor.
    """
    if not isinstance(found, Tensor):
        raise ValueError(
            f"flex_attention: `{what}` must only return Tensors, got type {type(found)}. "
            "Make a tensor of the number: score * 0 + number, or kv_idx >= 0"
        )
    return found


def mask_of_all(mask_mod: MaskMod, numbers: Numbers) -> Tensor:
    """A mask function at all places."""
    function: Callable[..., Any] = mask_mod
    for dims in OF_PLACES:
        function = vmap(function, in_dims=dims)
    found: Tensor = function(*numbers)
    return found


def modified_scores(score_mod: ScoreMod, scores: Tensor, numbers: Numbers) -> Tensor:
    """A score function at all places."""
    function: Callable[..., Any] = score_mod
    for dims in OF_PLACES:
        function = vmap(function, in_dims=(0, *dims))
    found: Tensor = function(scores, *numbers)
    return found
