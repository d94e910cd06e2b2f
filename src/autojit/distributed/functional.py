"""Collectives as functions of tensors: results are new tensors, and derivatives go through.

Every rank calls the same functions in the same order, in eager mode or in a compiled step. Over a group a tensor is
*replicated* (all ranks hold the same: parameters, a loss for all ranks) or *varying* (each rank holds its own: its
part of a batch, what is computed from it). The derivative depends on that, so functions that could mean both say it:
``replicated=True``, the default, is the one value that all ranks share. A gradient is that of what all ranks compute
together: a parameter enters varying computations by `pvary`, which sums its gradients over the ranks.

``group`` is a group's name, or an object that has one (`autojit.distributed.new_group`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autojit.core.communicator import Combination, communicator
from autojit.core.errors import ShapeError
from autojit.dispatch.dispatch import apply
from autojit.functions.reduction import amax, amin, prod
from autojit.functions.shape import cat
from autojit.ops.collectives import AllGather, AllReduce, AllToAll, Broadcast, ReduceScatter, SendRecv
from autojit.ops.ranks import OwnPart, Pvary, own_rank
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of

__all__ = [
    "all_gather", "all_reduce", "all_to_all", "broadcast", "own_part", "pvary", "rank", "reduce_scatter", "send_recv",
    "shift", "tree_all_reduce",
]  # fmt: skip


def _group(group: Any) -> tuple[str, int]:
    """A group's name, and the number of its ranks."""
    name = group if isinstance(group, str) else group.group_name
    return name, communicator(name).size


def all_reduce(x: Tensor, op: Combination = "sum", *, group: Any = "world", replicated: bool = True) -> Tensor:
    """Every element combined over the ranks.

    Args:
        op: "sum", "prod", "max" or "min"; the gradient of the last two goes to the lowest rank that has the number.
        replicated: the result is one value, as a loss of all ranks is. If not, every rank's result counts for itself,
            as if each had a loss of its own.

    Example:
        >>> import autojit as aj
        >>> from autojit.distributed import functional
        >>> aj.distributed.run_ranks(3, lambda world: functional.all_reduce(aj.tensor([1.0 + world.rank])))
        [tensor([6.]), tensor([6.]), tensor([6.])]
    """
    return apply(AllReduce(*_group(group), op, replicated), x)


def all_gather(x: Tensor, *, group: Any = "world", replicated: bool = True) -> Tensor:
    """All ranks' tensors along a new first axis; see `all_reduce` for ``replicated``."""
    return apply(AllGather(*_group(group), replicated), x)


def reduce_scatter(x: Tensor, op: Combination = "sum", *, group: Any = "world") -> Tensor:
    """The combination over the ranks of what they have for this one: ``x`` has a part for each along its first axis."""
    if op == "sum":
        return apply(ReduceScatter(*_group(group)), x)
    parts = all_to_all(x, group=group)
    return prod(parts, 0) if op == "prod" else {"max": amax, "min": amin}[op](parts, 0)


def all_to_all(x: Tensor, *, group: Any = "world") -> Tensor:
    """The ranks' parts for this one: ``x`` has a part for each of them along its first axis, and so has the result."""
    return apply(AllToAll(*_group(group)), x)


def broadcast(x: Tensor, root: int = 0, *, group: Any = "world", replicated: bool = True) -> Tensor:
    """What rank ``root`` has; see `all_reduce` for ``replicated``."""
    return apply(Broadcast(*_group(group), root, replicated), x)


def send_recv(x: Tensor, pairs: Sequence[tuple[int, int]], *, group: Any = "world") -> Tensor:
    """What another rank has, by ``pairs`` of (from, to) that all ranks give alike; zeros where nobody sends to."""
    return apply(SendRecv(*_group(group), tuple([(int(a), int(b)) for a, b in pairs])), x)


def shift(x: Tensor, by: int = 1, *, group: Any = "world") -> Tensor:
    """What the rank ``by`` places before this one has, around the ring."""
    size = _group(group)[1]
    return send_recv(x, [(r, (r + by) % size) for r in range(size)], group=group)


def pvary(x: Tensor, *, group: Any = "world") -> Tensor:
    """A replicated tensor for varying computations: itself. Its gradients are summed over the ranks.

    Example:
        >>> import autojit as aj
        >>> from autojit.distributed import functional
        >>> def gradient(world):
        ...     weight, data = aj.tensor(2.0, requires_grad=True), aj.tensor(1.0 + world.rank)
        ...     loss = functional.all_reduce((functional.pvary(weight) * data) ** 2)
        ...     loss.backward()
        ...     return weight.grad
        >>> aj.distributed.run_ranks(2, gradient)
        [tensor(20.), tensor(20.)]
    """
    return apply(Pvary(*_group(group)), x)


def own_part(x: Tensor, *, group: Any = "world") -> Tensor:
    """This rank's part of a replicated tensor, which has a part for each rank along its first axis."""
    return apply(OwnPart(*_group(group)), x)


def rank(like: Tensor, *, group: Any = "world") -> Tensor:
    """The number of this rank as a tensor; a compiled step does not depend on it then."""
    return own_rank(like, *_group(group))


def tree_all_reduce(parts: Tensor, *, group: Any = "world") -> Tensor:
    """The sum of all ranks' parts, whose bits do not depend on the number of ranks.

    The first axis of ``parts`` are this rank's shards of one sequence of shards, in order; all ranks have equally many,
    and their number is a power of two. They are added in pairs, the sums in pairs again, and so on: the same tree on 1,
    2 or 4 ranks for the same shards. Each rank adds up its share of the elements for all, so as much is sent as by an
    all-reduce.

    Example:
        >>> import autojit as aj
        >>> from autojit.distributed import functional
        >>> shards = aj.tensor([1e8, 1.0, -1e8, 1.0])
        >>> def program(world):
        ...     mine = shards.reshape(world.size, -1)[world.rank]
        ...     return functional.tree_all_reduce(mine)
        >>> {n: aj.distributed.run_ranks(n, program)[0] for n in (1, 2, 4)}
        {1: tensor(0.), 2: tensor(0.), 4: tensor(0.)}
    """
    count, *shape = type_of(parts).shape
    if count < 1 or count & (count - 1):
        raise ShapeError(
            "tree_all_reduce: the number of shards per rank must be a power of two",
            {"parts": parts},
            "cut the batch into more shards",
        )
    size = _group(group)[1]
    while count > 1:
        parts, count = parts[0::2] + parts[1::2], count // 2
    flat = parts.reshape(-1)
    length = type_of(flat).shape[0]
    each = -(-length // size)
    padded = cat((flat, flat.new_zeros(each * size - length))) if each * size != length else flat
    rows = all_to_all(padded.reshape(size, each), group=group)
    own = _pairs(rows)
    return all_gather(own, group=group).reshape(-1)[:length].reshape(shape)


def _pairs(rows: Tensor) -> Tensor:
    """The sum along the first axis by pairs of neighbours; one without a neighbour goes on as it is."""
    while (count := type_of(rows).shape[0]) > 1:
        made = rows[0 : count - 1 : 2] + rows[1::2]
        rows = made if count % 2 == 0 else cat((made, rows[count - 1 :]))
    return rows[0]
