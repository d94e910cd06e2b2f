"""Tensors from one rank to another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autojit.core.errors import ArgumentError
from autojit.distributed import traced
from autojit.distributed.collectives import group_for, root_of
from autojit.distributed.memory import Target, elements
from autojit.distributed.work import Work
from autojit.tensor.tensor import Tensor

__all__ = ["P2POp", "batch_isend_irecv", "irecv", "isend", "recv", "send"]


def isend(
    tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None
) -> Work | None:
    """Begin to send a tensor; it is not to be changed before the handle's ``wait``.

    Raises:
        ValueError: to this very rank.
    """
    member = group_for(group, "isend")
    if member is None:
        return None
    traced.refuse("isend")
    to = root_of(member, dst, group_dst, "isend", None)
    if to == member.rank():
        raise ArgumentError(
            "Invalid destination rank: destination rank should not be the same as the rank of the current process."
        )
    pending = member.communicator.point_to_point("isend", elements(tensor), to, tag)
    return Work(pending, lambda: None, [tensor])


def irecv(
    tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None
) -> Work | None:
    """Begin to receive a tensor; from any rank, if none is named."""
    member = group_for(group, "irecv")
    if member is None:
        return None
    traced.refuse("irecv")
    source = None if src is None and group_src is None else root_of(member, src, group_src, "irecv")
    if source == member.rank():
        raise ArgumentError(
            "Invalid source rank: source rank should not be the same as the rank of the current process."
        )
    target = Target(tensor, is_read=False)
    pending = member.communicator.point_to_point("irecv", target.array, source, tag)
    return Work(pending, lambda: target.put(target.array, "recv"), [tensor])


def send(tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> None:
    """Send a tensor to a rank; returns when it may be changed.

    Raises:
        ValueError: to this very rank.
    """
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:
        work.wait()


def recv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> int:
    """Receive a tensor from a rank, or from any: the sender's number in the job; -1 outside the group."""
    work = irecv(tensor, src, group, tag, group_src)
    if work is None:
        return -1
    work.wait()
    member = group_for(group, "recv")
    assert member is not None
    return member.ranks[work.source_rank()]


class P2POp:
    """One of several sends and receives.

    Args:
        op: `isend` or `irecv`.
        peer: the other rank's number in the job.
    """

    def __init__(
        self,
        op: Callable[..., Work | None],
        tensor: Tensor,
        peer: int | None = None,
        group: Any = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        if op not in (isend, irecv):
            raise ArgumentError("Invalid ``op``. Expected ``op`` to be of type ``isend`` or ``irecv``.", {"op": op})
        self.op, self.tensor, self.peer, self.group, self.tag, self.group_peer = (
            op,
            tensor,
            peer,
            group,
            tag,
            group_peer,
        )


def batch_isend_irecv(p2p_op_list: Sequence[P2POp]) -> list[Work]:
    """Begin all of them.

    Raises:
        ValueError: there are none.
    """
    if not p2p_op_list:
        raise ArgumentError("batch_isend_irecv: there is nothing to do", fix="pass a list of P2POp")
    works = [p.op(p.tensor, p.peer, p.group, p.tag, p.group_peer) for p in p2p_op_list]
    return [work for work in works if work is not None]
