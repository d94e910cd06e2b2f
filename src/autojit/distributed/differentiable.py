"""torch's ``distributed.nn``: collectives that return new tensors and that derivatives go through.

Each rank has a loss of its own here, as in torch: what a rank has sent is answered by the sum of all ranks' gradients.
`functional` has the same collectives with values that all ranks share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autojit.core.errors import ArgumentError
from autojit.distributed import functional
from autojit.distributed.reductions import ReduceOp, operation
from autojit.functions.shape import stack
from autojit.tensor import Tensor

__all__ = ["all_gather", "all_reduce", "all_to_all", "broadcast", "reduce_scatter"]


def _group(group: Any) -> Any:
    return "world" if group is None else group


def _combination(op: Any, name: str) -> Any:
    found = operation(op, name)
    if found not in ("sum", "prod", "max", "min"):
        raise ArgumentError(f"{name}: {found!r} has no derivative here", fix="reduce by SUM, PRODUCT, MIN or MAX")
    return found


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """Every element combined over the ranks.

    Example:
        >>> import autojit as aj
        >>> from autojit.distributed import nn
        >>> aj.distributed.run_ranks(2, lambda world: nn.all_reduce(aj.tensor([1.0 + world.rank])))
        [tensor([3.]), tensor([3.])]
    """
    return functional.all_reduce(tensor, _combination(op, "all_reduce"), group=_group(group), replicated=False)


def all_gather(tensor: Tensor, group: Any = None) -> tuple[Tensor, ...]:
    """The tensors of all ranks."""
    return tuple(functional.all_gather(tensor, group=_group(group), replicated=False).unbind(0))


def broadcast(tensor: Tensor, src: int, group: Any = None) -> Tensor:
    """The tensor of one rank."""
    return functional.broadcast(tensor, src, group=_group(group), replicated=False)


def reduce_scatter(output: Tensor, input_list: Sequence[Tensor], op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The own part of what the ranks' lists add up to; ``output`` is only like it, as in torch."""
    return functional.reduce_scatter(stack(input_list), _combination(op, "reduce_scatter"), group=_group(group))


def all_to_all(
    output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: Any = None
) -> tuple[Tensor, ...]:
    """One tensor of each rank; those of the first list are only like them, as in torch."""
    return tuple(functional.all_to_all(stack(input_tensor_list), group=_group(group)).unbind(0))
