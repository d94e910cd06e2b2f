"""Collectives inside of a captured step: ops of the step, whose results are written to the tensors.

The results are cut off from history, as torch's are: a derivative goes through the ops themselves
(`autojit.distributed.nn.functional`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autojit.autograd.grad_mode import no_grad
from autojit.core.communicator import Combination
from autojit.core.dtypes import DType, float32, float64, int32, int64
from autojit.core.errors import UnsupportedError, UsageError
from autojit.dispatch.dispatch import apply
from autojit.dispatch.inplace import copy_into
from autojit.distributed.groups import ProcessGroup
from autojit.functions.namespace import iinfo
from autojit.ops.collectives import COMBINATIONS, AllGather, AllReduce, AllToAll, Broadcast, ReduceScatter, Wait
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


def _combined(x: Tensor, how: str, member: ProcessGroup) -> Tensor:
    combine = _combination(how)
    if how != "avg":
        return apply(AllReduce(*_group(member), combine, True), x)
    return (apply(AllReduce(*_group(member), combine, True), _wide(x)) / member.size()).to(x.dtype)


def _wide(x: Tensor) -> Tensor:
    """Halves as float32, so that an average is rounded once, as outside of a step."""
    is_half = x.dtype.is_floating_point and x.dtype.itemsize == 2
    return x.float() if is_half else x


def all_reduce(tensor: Tensor, how: str, member: ProcessGroup) -> None:
    """Combine every element over the ranks; all have the result. Of one rank nothing is left to do."""
    if member.size() == 1:
        return
    with no_grad():
        copy_into(tensor, _combined(tensor, how, member), "all_reduce")


def begin_all_reduce(tensor: Tensor, how: str, member: ProcessGroup) -> Callable[[], None]:
    """The same, begun: the tensor has the result after a call of what is returned, which belongs to the same step."""
    if member.size() == 1:
        return lambda: None
    group, combine = _group(member), _combination(how)
    trace = state.trace
    with no_grad():
        sent = _numbers(tensor, combine)
        pending = apply(AllReduce(*group, combine, True, manner="begun"), sent)

    def end() -> None:
        if state.trace is not trace:
            raise UsageError(
                "all_reduce: it was begun in a compiled step, and is waited for outside of it",
                {"group": member.group_name},
                "call wait() in the function that has begun it",
            )
        with no_grad():
            found = _from_numbers(apply(Wait(*group, True), pending, sent), tensor.dtype)
            found = found / member.size() if how == "avg" else found
            copy_into(tensor, found.to(tensor.dtype), "all_reduce")

    return end


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


def reduce(tensor: Tensor, how: str, root: int, member: ProcessGroup) -> None:
    """Combine every element over the ranks; one has the result."""
    if member.size() == 1:
        return
    with no_grad():
        total = _combined(tensor, how, member)
        is_root = own_rank(tensor, *_group(member)) == root
        copy_into(tensor, total.where(is_root, tensor), "reduce")


def broadcast(tensor: Tensor, root: int, member: ProcessGroup) -> None:
    """The tensor becomes that of one rank."""
    if member.size() == 1:
        return
    with no_grad():
        copy_into(tensor, apply(Broadcast(*_group(member), root, True), tensor), "broadcast")


def _gathered(tensor: Tensor, member: ProcessGroup) -> Tensor:
    return apply(AllGather(*_group(member), True), tensor)


def all_gather(output: Tensor, tensor: Tensor, member: ProcessGroup) -> None:
    """The ranks' tensors in one."""
    with no_grad():
        copy_into(output, _gathered(tensor, member).reshape(output.shape), "all_gather_into_tensor")


def all_gather_list(outputs: Sequence[Tensor], tensor: Tensor, member: ProcessGroup) -> None:
    """The ranks' tensors in a list."""
    with no_grad():
        rows = _gathered(tensor, member)
        for k, output in enumerate(outputs):
            copy_into(output, rows[k].reshape(output.shape), "all_gather")


def reduce_scatter(output: Tensor, parts: Tensor, how: str, member: ProcessGroup) -> None:
    """Each rank's part of what all combine."""
    with no_grad():
        rows = parts.reshape(member.size(), *output.shape)
        if how in ("sum", "avg"):
            made = apply(ReduceScatter(*_group(member)), _wide(rows) if how == "avg" else rows)
            made = (made / member.size()).to(parts.dtype) if how == "avg" else made
        else:
            made = apply(OwnPart(*_group(member)), _combined(rows, how, member))
        copy_into(output, made, "reduce_scatter")


def reduce_scatter_list(output: Tensor, parts: Sequence[Tensor], how: str, member: ProcessGroup) -> None:
    """The same of a list."""
    with no_grad():
        stacked: Any = parts[0].new_empty((len(parts), *output.shape))
        for k, part in enumerate(parts):
            stacked[k] = part.reshape(output.shape)
        reduce_scatter(output, stacked, how, member)


def all_to_all(output: Tensor, parts: Tensor, rows: Sequence[Sequence[int]], member: ProcessGroup) -> None:
    """Equal pieces of the first axis go to the ranks."""
    if len({*rows[0], *rows[1]}) > 1:
        raise UnsupportedError("all_to_all_single: uneven pieces are no part of a compiled step", {"rows": rows})
    with no_grad():
        pieces = parts.reshape(member.size(), rows[1][0], *parts.shape[1:])
        copy_into(output, apply(AllToAll(*_group(member)), pieces).reshape(output.shape), "all_to_all_single")


def all_to_all_list(outputs: Sequence[Tensor], parts: Sequence[Tensor], member: ProcessGroup) -> None:
    """The same of lists of tensors of one size."""
    if len({tuple(t.shape) for t in (*outputs, *parts)}) > 1:
        raise UnsupportedError("all_to_all: tensors of several sizes are no part of a compiled step")
    with no_grad():
        stacked: Any = parts[0].new_empty((len(parts), *parts[0].shape))
        for k, part in enumerate(parts):
            stacked[k] = part
        rows = apply(AllToAll(*_group(member)), stacked)
        for k, output in enumerate(outputs):
            copy_into(output, rows[k], "all_to_all")
