"""Collectives inside of a captured step: ops of the step, whose results are written to the tensors.

The results are cut off from history, as torch's are: a derivative goes through the ops themselves
(`autojit.distributed.nn.functional`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from autojit.autograd.grad_mode import no_grad
from autojit.core.communicator import Combination
from autojit.core.dtypes import DType, float32, float64, int32, int64
from autojit.core.errors import UnsupportedError, UsageError
from autojit.dispatch.dispatch import apply
from autojit.dispatch.inplace import copy_into
from autojit.distributed.groups import ProcessGroup
from autojit.functions.factories import arange
from autojit.functions.namespace import iinfo
from autojit.functions.shape import stack
from autojit.ops.collectives import (
    COMBINATIONS,
    AllGather,
    AllReduce,
    AllToAll,
    Beginning,
    Broadcast,
    ReduceScatter,
    SendRecv,
    Wait,
)
from autojit.ops.rank_arithmetic import sums_wrongly
from autojit.ops.ranks import OwnPart, own_rank
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor


def refuse(name: str) -> None:
    """What cannot be part of a step, as ranks would record different ones.

    Raises:
        UnsupportedError: a step is being captured.
    """
    if state.trace is not None:
        raise UnsupportedError(f"{name} is no part of a compiled step", {}, "call it outside of the step")


def _group(member: ProcessGroup) -> tuple[str, int]:
    return member.group_name, member.size()


def _combination(how: str) -> Combination:
    combine: Any = "sum" if how == "avg" else how
    if combine not in COMBINATIONS:
        raise UnsupportedError(f"all_reduce: {how} is no part of a compiled step", {}, "call it outside of the step")
    found: Combination = combine
    return found


def _wide(x: Tensor) -> Tensor:
    """Halves as float32, so that an average is rounded once, as outside of a step."""
    is_half = x.dtype.is_floating_point and x.dtype.itemsize == 2
    return x.float() if is_half else x


End = Callable[[], None]
"""Ends what was begun: the tensors have the results afterwards. It is called in the step that has begun it."""


def _nothing() -> None:
    pass


def _happens(op: Beginning, sent: Tensor, finish: Callable[[Tensor], object], is_begun: bool) -> End:
    """Let a collective happen, or begin it: ``finish`` is given its result, now or at the end."""
    if not is_begun:
        finish(apply(op, sent))
        return _nothing
    known: Any = op
    pending, trace = apply(replace(known, manner="begun"), sent), state.trace

    def end() -> None:
        if state.trace is not trace:
            raise UsageError(
                f"{op.shown_name}: it was begun in a compiled step, and is waited for outside of it",
                {"group": op.group},
                "call wait() in the function that has begun it",
            )
        with no_grad():
            finish(apply(Wait(op.group, op.size, not op.varies(True)), pending, sent))

    return end


def _combined(x: Tensor, how: str, member: ProcessGroup, finish: Callable[[Tensor], object], is_begun: bool) -> End:
    """``finish`` is given the combination of all ranks, in the dtype of ``x``."""
    combine = _combination(how)

    def found(total: Tensor) -> None:
        total = _from_numbers(total, x.dtype) if is_begun else total
        total = total / member.size() if how == "avg" else total
        finish(total.to(x.dtype))

    sent = _numbers(x, combine) if is_begun else _wide(x) if how == "avg" else x
    return _happens(AllReduce(*_group(member), combine, True), sent, found, is_begun)


def all_reduce(tensor: Tensor, how: str, member: ProcessGroup, is_begun: bool) -> End:
    """Combine every element over the ranks; all have the result. Of one rank nothing is left to do."""
    if member.size() == 1:
        return _nothing
    with no_grad():
        return _combined(tensor, how, member, lambda found: copy_into(tensor, found, "all_reduce"), is_begun)


def _numbers(x: Tensor, combine: Combination) -> Tensor:
    """What ranks that run line by line send too (`ops.rank_arithmetic`): whole numbers for the largest and smallest."""
    x = _wide(x)
    if sums_wrongly(x.dtype.numpy, combine):
        return x.to(int32)
    if combine not in ("max", "min") or not x.dtype.is_floating_point:
        return x
    bits = x.view(int64 if x.dtype.itemsize == 8 else int32)
    limits = iinfo(bits.dtype)
    keys = (bits ^ limits.max).where(bits < 0, bits)
    return keys.masked_fill(x.isnan(), limits.max if combine == "max" else limits.min)


def _from_numbers(found: Tensor, dtype: DType) -> Tensor:
    if not dtype.is_floating_point or found.dtype.is_floating_point:
        return found
    bits = (found ^ iinfo(found.dtype).max).where(found < 0, found)
    return bits.view(float64 if bits.dtype.itemsize == 8 else float32)


def reduce(tensor: Tensor, how: str, root: int, member: ProcessGroup, is_begun: bool) -> End:
    """Combine every element over the ranks; one has the result."""
    if member.size() == 1:
        return _nothing

    def finish(total: Tensor) -> None:
        is_root = own_rank(tensor, *_group(member)) == root
        copy_into(tensor, total.where(is_root, tensor), "reduce")

    with no_grad():
        return _combined(tensor, how, member, finish, is_begun)


def broadcast(tensor: Tensor, root: int, member: ProcessGroup, is_begun: bool) -> End:
    """The tensor becomes that of one rank."""
    if member.size() == 1:
        return _nothing
    op = Broadcast(*_group(member), root, True)
    with no_grad():
        return _happens(op, tensor, lambda found: copy_into(tensor, found, "broadcast"), is_begun)


def _gathered(tensor: Tensor, member: ProcessGroup, finish: Callable[[Tensor], object], is_begun: bool) -> End:
    with no_grad():
        return _happens(AllGather(*_group(member), True), tensor, finish, is_begun)


def all_gather(output: Tensor, tensor: Tensor, member: ProcessGroup, is_begun: bool) -> End:
    """The ranks' tensors in one."""

    def finish(rows: Tensor) -> None:
        copy_into(output, rows.reshape(output.shape), "all_gather_into_tensor")

    return _gathered(tensor, member, finish, is_begun)


def all_gather_list(outputs: Sequence[Tensor], tensor: Tensor, member: ProcessGroup, is_begun: bool) -> End:
    """The ranks' tensors in a list."""

    def finish(rows: Tensor) -> None:
        for k, output in enumerate(outputs):
            copy_into(output, rows[k].reshape(output.shape), "all_gather")

    return _gathered(tensor, member, finish, is_begun)


def reduce_scatter(output: Tensor, parts: Tensor, how: str, member: ProcessGroup, is_begun: bool) -> End:
    """Each rank's part of what all combine."""

    def finish(made: Tensor) -> None:
        made = made / member.size() if how == "avg" else made
        copy_into(output, made.to(parts.dtype), "reduce_scatter")

    with no_grad():
        rows = parts.reshape(member.size(), *output.shape)
        if how in ("sum", "avg"):
            sent = _wide(rows) if how == "avg" or is_begun else rows
            return _happens(ReduceScatter(*_group(member)), sent, finish, is_begun)

        def own_part(found: Tensor) -> None:
            finish(apply(OwnPart(*_group(member)), found))

        return _combined(rows, how, member, own_part, is_begun)


def reduce_scatter_list(output: Tensor, parts: Sequence[Tensor], how: str, member: ProcessGroup, is_begun: bool) -> End:
    """The same of a list."""
    with no_grad():
        stacked: Any = parts[0].new_empty((len(parts), *output.shape))
        for k, part in enumerate(parts):
            stacked[k] = part.reshape(output.shape)
        return reduce_scatter(output, stacked, how, member, is_begun)


def all_to_all(
    output: Tensor,
    parts: Tensor,
    rows: Sequence[Sequence[int]],
    are_given: bool,
    member: ProcessGroup,
    is_begun: bool,
) -> End:
    """Equal pieces of the first axis go to the ranks. ``are_given``: the caller has named their sizes."""
    if len({*rows[0], *rows[1]}) > 1:
        raise UnsupportedError("all_to_all_single: uneven pieces are no part of a compiled step", {"rows": rows})

    def finish(found: Tensor) -> None:
        copy_into(output, found.reshape(output.shape), "all_to_all_single")

    with no_grad():
        pieces = parts.reshape(member.size(), rows[1][0], *parts.shape[1:])
        if are_given:
            finish(_by_pairs(pieces, member))
            return _nothing
        return _happens(AllToAll(*_group(member)), pieces, finish, is_begun)


def all_to_all_list(outputs: Sequence[Tensor], parts: Sequence[Tensor], member: ProcessGroup) -> End:
    """The same of lists of tensors of one size."""
    if len({tuple(t.shape) for t in (*outputs, *parts)}) > 1:
        raise UnsupportedError("all_to_all: tensors of several sizes are no part of a compiled step")
    with no_grad():
        rows = _by_pairs(stack(tuple(parts)), member)
        for k, output in enumerate(outputs):
            copy_into(output, rows[k], "all_to_all")
    return _nothing


def _by_pairs(parts: Tensor, member: ProcessGroup) -> Tensor:
    """`AllToAll` by the messages of a communicator's ``exchange``.

    Where sizes may differ a rank cannot know whether those of the others do, nor which of them run line by line: so
    all of them send the same messages, whatever their own sizes are.
    """
    name, size = _group(member)
    me, steps = own_rank(parts, name, size), arange(size, device=parts.device)
    sent = parts.index_select(0, (me + steps) % size)
    found = [sent[0]]
    for step in range(1, size):
        pairs = tuple([(rank, (rank + step) % size) for rank in range(size)])
        found.append(apply(SendRecv(name, size, pairs), sent[step]))
    return stack(tuple(found)).index_select(0, (me - steps) % size)
