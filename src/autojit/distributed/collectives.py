"""torch's collectives on tensors, which they change in place.

How to read: outside of a captured step a collective is a call of the group's communicator on the elements
(`memory.py`), at once or, with ``async_op=True``, begun now and ended by ``wait``. Inside of one it is an op of the
step (`traced.py`). A process outside of the group is told so, and does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autojit.core.errors import ArgumentError, DTypeError, ShapeError
from autojit.core.user_warnings import warn
from autojit.distributed import traced
from autojit.distributed.groups import ProcessGroup, member_of
from autojit.distributed.memory import Target, elements
from autojit.distributed.reductions import ReduceOp, check_dtype, from_engine, operation, to_engine
from autojit.distributed.work import Recorded, Work, Works, begun
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor, type_of

__all__ = [
    "all_gather", "all_gather_into_tensor", "all_gather_single", "all_reduce", "all_reduce_coalesced", "all_to_all",
    "all_to_all_single", "barrier", "broadcast", "gather", "monitored_barrier", "reduce", "reduce_scatter",
    "reduce_scatter_single", "reduce_scatter_tensor", "scatter",
]  # fmt: skip


def group_for(group: Any, name: str) -> ProcessGroup | None:
    """The group of a call; None, and a warning, where this process is not in it."""
    found = member_of(group, name)
    if found is None:
        rank = member_of(None)
        number = -1 if rank is None else rank.rank()
        warn(f"Running {name} on global rank {number} which does not belong to the given group.", UserWarning)
    return found


def root_of(group: ProcessGroup, given: int | None, in_group: int | None, name: str, default: int | None = 0) -> int:
    """The number in the group of the rank that a call names by its number in the job, or in the group.

    Raises:
        ValueError: both are given, or there is no such rank.
    """
    if given is not None and in_group is not None:
        raise ArgumentError(f"{name}: a rank is named by its number in the job or in the group, not by both")
    if given is None and in_group is None:
        if default is None:
            raise ArgumentError(f"{name}: no rank is named", fix="give src or dst")
        in_group = default
    if given is not None:
        if given not in group.ranks:
            raise ArgumentError(f"{name}: Global rank {given} is not part of group {group}")
        return group.ranks.index(given)
    assert in_group is not None
    if not 0 <= in_group < group.size():
        raise ArgumentError(f"{name}: Group rank {in_group} is not part of group {group}")
    return in_group


def _ended(work: Work, async_op: bool) -> Work | None:
    if async_op:
        return work
    work.wait()
    return None


def _recorded(end: traced.End, tensors: Sequence[Tensor], async_op: bool) -> Work | None:
    """What a collective gives that a step is to make."""
    return Work(Recorded(), end, tensors) if async_op else None


def _nothing() -> None:
    pass


def _is_traced() -> bool:
    return state.trace is not None


def _same(name: str, dtype_of: Any, *others: Any) -> None:
    for other in others:
        if type_of(other).dtype is not type_of(dtype_of).dtype:
            raise DTypeError(f"{name}: tensors are of one dtype", {"tensors": (dtype_of, other)}, "convert one")


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """Combine every element over the ranks; all have the result.

    Example:
        >>> import autojit as aj
        >>> aj.distributed.init_process_group()  # a group of one, as no launcher has started this process
        >>> x = aj.tensor([1.0, 2.0])
        >>> aj.distributed.all_reduce(x)
        >>> x
        tensor([1., 2.])
        >>> aj.distributed.destroy_process_group()
    """
    member = group_for(group, "all_reduce")
    if member is None:
        return None
    how = operation(op, "all_reduce")
    if _is_traced():
        return _recorded(traced.all_reduce(tensor, how, member, async_op), [tensor], async_op)
    target = Target(tensor)
    check_dtype(target.array.dtype, how, "all_reduce")
    sent, engine_op = to_engine(target.array, how)
    pending = begun(member.communicator.all_reduce, async_op, sent, engine_op)

    def finish() -> None:
        found = from_engine(sent, target.array.dtype, how, member.size())
        target.put(found, "all_reduce")

    return _ended(Work(pending, finish, [tensor]), async_op)


def all_reduce_coalesced(
    tensors: Sequence[Tensor], op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """`all_reduce` of several tensors."""
    works = [all_reduce(t, op, group, async_op) for t in tensors]
    return Works([w for w in works if w is not None], list(tensors)) if async_op else None


def broadcast(
    tensor: Tensor, src: int | None = None, group: Any = None, async_op: bool = False, group_src: int | None = None
) -> Work | None:
    """The tensor becomes that of one rank."""
    member = group_for(group, "broadcast")
    if member is None:
        return None
    root = root_of(member, src, group_src, "broadcast", None)
    if _is_traced():
        return _recorded(traced.broadcast(tensor, root, member, async_op), [tensor], async_op)
    target = Target(tensor)
    pending = begun(member.communicator.broadcast, async_op, target.array, root)
    return _ended(Work(pending, lambda: target.put(target.array, "broadcast"), [tensor]), async_op)


def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: Any = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Combine every element over the ranks; one rank has the result, the others keep what they have."""
    member = group_for(group, "reduce")
    if member is None:
        return None
    root, how = root_of(member, dst, group_dst, "reduce", None), operation(op, "reduce")
    if _is_traced():
        return _recorded(traced.reduce(tensor, how, root, member, async_op), [tensor], async_op)
    mine = elements(tensor)
    check_dtype(mine.dtype, how, "reduce")
    sent, engine_op = to_engine(mine, how)
    sent = sent.copy() if np.may_share_memory(sent, mine) else sent
    pending = begun(member.communicator.all_reduce, async_op, sent, engine_op)

    def finish() -> None:
        if member.rank() == root:
            Target(tensor, is_read=False).put(from_engine(sent, mine.dtype, how, member.size()), "reduce")

    return _ended(Work(pending, finish, [tensor]), async_op)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """The ranks' tensors, joined along the first axis, or stacked where the output has one more.

    Raises:
        ShapeError: the output has another number of elements.
    """
    member = group_for(group, "all_gather_into_tensor")
    if member is None:
        return None
    _same("all_gather_into_tensor", input_tensor, output_tensor)
    shape = tuple(input_tensor.shape)
    if output_tensor.numel() != input_tensor.numel() * member.size():
        raise ShapeError(
            "output tensor size must be equal to world_size times input tensor size",
            {"output": output_tensor, "input": input_tensor, "world_size": member.size()},
        )
    if _is_traced():
        return _recorded(traced.all_gather(output_tensor, input_tensor, member, async_op), [output_tensor], async_op)
    target, part = Target(output_tensor, is_read=False), elements(input_tensor)
    pending = begun(member.communicator.all_gather, async_op, target.array.reshape(member.size(), *shape), part)
    return _ended(Work(pending, lambda: target.put(target.array, "all_gather_into_tensor"), [output_tensor]), async_op)


all_gather_single = all_gather_into_tensor


def all_gather(tensor_list: Sequence[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
    """``tensor_list[r]`` becomes the tensor of rank ``r``.

    Raises:
        ValueError: the list has another length.
    """
    member = group_for(group, "all_gather")
    if member is None:
        return None
    _check_list("all_gather", tensor_list, member.size(), tensor)
    if _is_traced():
        return _recorded(traced.all_gather_list(tensor_list, tensor, member, async_op), tensor_list, async_op)
    part = elements(tensor)
    beside = np.empty((member.size(), *part.shape), part.dtype)
    pending = begun(member.communicator.all_gather, async_op, beside, part)
    return _ended(Work(pending, _shared_out(tensor_list, beside, "all_gather"), tensor_list), async_op)


def _shared_out(tensors: Sequence[Tensor], rows: Any, name: str) -> Callable[[], None]:
    def finish() -> None:
        for t, row in zip(tensors, rows, strict=True):
            Target(t, is_read=False).put(row.reshape(t.shape), name)

    return finish


def _check_list(name: str, tensors: Sequence[Tensor], size: int, like: Tensor) -> None:
    if len(tensors) != size:
        raise ArgumentError(f"{name}: the list has a tensor per rank", {"tensors": len(tensors), "ranks": size})
    _same(name, like, *tensors)
    for t in tensors:
        if t.numel() != like.numel():
            raise ShapeError(f"{name}: tensors have one size", {"tensors": (like, t)})


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Combine over the ranks; each has its part of the result, along the first axis.

    Raises:
        ShapeError: the input is not as many times larger as there are ranks.
    """
    member = group_for(group, "reduce_scatter_tensor")
    if member is None:
        return None
    _same("reduce_scatter_tensor", input, output)
    if input.numel() != output.numel() * member.size():
        raise ShapeError(
            "input tensor must be the same size as output size times world size",
            {"input": input, "output": output, "world_size": member.size()},
        )
    how = operation(op, "reduce_scatter_tensor")
    if _is_traced():
        return _recorded(traced.reduce_scatter(output, input, how, member, async_op), [output], async_op)
    return _scattered(output, elements(input), how, member, async_op)


reduce_scatter_single = reduce_scatter_tensor


def reduce_scatter(
    output: Tensor, input_list: Sequence[Tensor], op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """``output`` becomes the combination of ``input_list[rank]`` over the ranks."""
    member = group_for(group, "reduce_scatter")
    if member is None:
        return None
    _check_list("reduce_scatter", input_list, member.size(), output)
    how = operation(op, "reduce_scatter")
    if _is_traced():
        return _recorded(traced.reduce_scatter_list(output, input_list, how, member, async_op), [output], async_op)
    return _scattered(output, np.stack([elements(t).reshape(-1) for t in input_list]), how, member, async_op)


def _scattered(output: Tensor, parts: Any, how: str, member: ProcessGroup, async_op: bool) -> Work | None:
    check_dtype(parts.dtype, how, "reduce_scatter")
    sent, engine_op = to_engine(parts.reshape(member.size(), -1), how)
    if engine_op == "sum":
        found = np.empty(sent.shape[1:], sent.dtype)
        pending = begun(member.communicator.reduce_scatter, async_op, found, sent, engine_op)
    else:  # the call that compiled steps make
        sent = sent.copy() if np.may_share_memory(sent, parts) else sent
        found = sent[member.rank()]
        pending = begun(member.communicator.all_reduce, async_op, sent, engine_op)

    def finish() -> None:
        made = from_engine(found, parts.dtype, how, member.size())
        Target(output, is_read=False).put(made.reshape(output.shape), "reduce_scatter")

    return _ended(Work(pending, finish, [output]), async_op)


def all_to_all(
    output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: Any = None, async_op: bool = False
) -> Work | None:
    """``output_tensor_list[r]`` becomes rank ``r``'s ``input_tensor_list[rank]``; sizes may differ."""
    member = group_for(group, "all_to_all")
    if member is None:
        return None
    for tensors in (output_tensor_list, input_tensor_list):
        if len(tensors) != member.size():
            raise ArgumentError("all_to_all: a list has a tensor per rank", {"tensors": len(tensors)})
    if not input_tensor_list:
        return None
    _same("all_to_all", input_tensor_list[0], *input_tensor_list, *output_tensor_list)
    if _is_traced():
        return _recorded(
            traced.all_to_all_list(output_tensor_list, input_tensor_list, member), output_tensor_list, async_op
        )
    targets = [Target(t, is_read=False) for t in output_tensor_list]
    _exchange("all_to_all", member, [t.array for t in targets], [elements(t) for t in input_tensor_list])
    for target in targets:
        target.put(target.array, "all_to_all")
    return _ended(Work(None, _nothing, output_tensor_list), async_op)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Pieces of the first axis go to the ranks, in order: equal ones, or of these sizes.

    Raises:
        ValueError: the sizes do not fit.
    """
    member = group_for(group, "all_to_all_single")
    if member is None:
        return None
    _same("all_to_all_single", input, output)
    size = member.size()
    rows = [_split_rows(t, sizes, size) for t, sizes in ((output, output_split_sizes), (input, input_split_sizes))]
    are_given = bool(output_split_sizes or input_split_sizes)
    if _is_traced():
        return _recorded(traced.all_to_all(output, input, rows, are_given, member, async_op), [output], async_op)
    target, parts = Target(output, is_read=False), elements(input)
    if are_given:
        _exchange("all_to_all_single", member, _cut(target.array, rows[0]), _cut(parts, rows[1]))
        pending = None
    else:
        shape = (size, rows[1][0], *parts.shape[1:])
        pending = begun(member.communicator.all_to_all, async_op, target.array.reshape(shape), parts.reshape(shape))
    return _ended(Work(pending, lambda: target.put(target.array, "all_to_all_single"), [output]), async_op)


def _exchange(name: str, member: ProcessGroup, results: Sequence[Any], parts: Sequence[Any]) -> None:
    """Piece by piece, as sizes may differ."""
    kept, given = results[member.rank()], parts[member.rank()]
    if kept.size != given.size:
        raise ArgumentError(
            f"{name}: the piece that rank {member.rank()} keeps has two sizes",
            {"to be received": list(kept.shape), "to be sent": list(given.shape)},
            "give what a rank sends itself the same size on both sides",
        )
    member.communicator.exchange(results, parts)


def _split_rows(t: Tensor, sizes: Sequence[int] | None, size: int) -> list[int]:
    if t.ndim == 0:
        raise ShapeError("all_to_all_single: there is no axis to cut", {"tensor": t})
    if not sizes:
        if t.shape[0] % size:
            raise ArgumentError("Tensor's dim 0 does not divide equally across group size", {"tensor": t})
        return [t.shape[0] // size] * size
    if len(sizes) != size or sum(sizes) != t.shape[0]:
        raise ArgumentError("Split sizes doesn't match total dim 0 size", {"sizes": list(sizes), "tensor": t})
    return list(sizes)


def _cut(array: Any, rows: Sequence[int]) -> list[Any]:
    ends = np.cumsum(rows)
    return [array[end - n : end] for n, end in zip(rows, ends, strict=True)]


def gather(
    tensor: Tensor,
    gather_list: Sequence[Tensor] | None = None,
    dst: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """On one rank, ``gather_list[r]`` becomes the tensor of rank ``r``.

    Raises:
        ValueError: the list is missing there, or given elsewhere.
    """
    member = group_for(group, "gather")
    if member is None:
        return None
    root = root_of(member, dst, group_dst, "gather")
    traced.refuse("gather")
    is_root = member.rank() == root
    if bool(gather_list) != is_root:
        raise ArgumentError("gather: gather_list is given on the destination rank, and only there", {"rank": root})
    part = elements(tensor)
    beside = np.empty((member.size(), *part.shape), part.dtype) if is_root else None
    if is_root and gather_list:
        _check_list("gather", gather_list, member.size(), tensor)
    member.communicator.gather(beside, part, root)
    finish = _shared_out(gather_list, beside, "gather") if is_root and gather_list else _nothing
    return _ended(Work(None, finish, gather_list or ()), async_op)


def scatter(
    tensor: Tensor,
    scatter_list: Sequence[Tensor] | None = None,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """The tensor becomes ``scatter_list[rank]`` of one rank.

    Raises:
        ValueError: the list is missing there, or given elsewhere.
    """
    member = group_for(group, "scatter")
    if member is None:
        return None
    root = root_of(member, src, group_src, "scatter")
    traced.refuse("scatter")
    is_root = member.rank() == root
    if bool(scatter_list) != is_root:
        raise ArgumentError("scatter: scatter_list is given on the source rank, and only there", {"rank": root})
    parts = None
    if is_root and scatter_list:
        _check_list("scatter", scatter_list, member.size(), tensor)
        parts = np.stack([elements(t) for t in scatter_list])
    target = Target(tensor, is_read=False)
    member.communicator.scatter(target.array, parts, root)
    return _ended(Work(None, lambda: target.put(target.array, "scatter"), [tensor]), async_op)


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None, timeout: Any = None) -> Work | None:
    """Wait until every rank is here. It is no part of compiled steps, whose collectives wait by themselves."""
    member = group_for(group, "barrier")
    if member is None:
        return None
    traced.refuse("barrier")
    return _ended(Work(begun(member.communicator.barrier, async_op), _nothing), async_op)


def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    """`barrier`: the watchdog names the ranks that are missing."""
    barrier(group)
