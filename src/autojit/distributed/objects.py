"""Python objects between ranks: pickled, and moved as bytes. The ranks of a job trust each other."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from autojit.core.errors import ArgumentError
from autojit.distributed import traced
from autojit.distributed.collectives import group_for, root_of
from autojit.distributed.groups import ProcessGroup

__all__ = [
    "all_gather_object", "broadcast_object_list", "gather_object", "recv_object_list", "scatter_object_list",
    "send_object_list",
]  # fmt: skip


def _dumped(obj: Any) -> Any:
    return np.frombuffer(pickle.dumps(obj), np.uint8)


def _loaded(data: Any) -> Any:
    return pickle.loads(data.tobytes())


def _gathered(obj: Any, member: ProcessGroup) -> list[Any]:
    """The objects of all ranks."""
    mine, size = _dumped(obj), member.size()
    sizes = np.empty((size, 1), np.int64)
    member.communicator.all_gather(sizes, np.array([mine.size]))
    rows = np.empty((size, int(sizes.max())), np.uint8)
    padded = np.zeros(rows.shape[1], np.uint8)
    padded[: mine.size] = mine
    member.communicator.all_gather(rows, padded)
    return [_loaded(row[: int(n)]) for row, (n,) in zip(rows, sizes, strict=True)]


def broadcast_object(obj: Any, member: ProcessGroup, root: int = 0) -> Any:
    """One rank's object, on all."""
    data = _dumped(obj) if member.rank() == root else None
    length = np.array([0 if data is None else data.size], np.int64)
    member.communicator.broadcast(length, root)
    moved = np.empty(int(length[0]), np.uint8) if data is None else data.copy()
    member.communicator.broadcast(moved, root)
    return _loaded(moved)


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """``object_list[r]`` becomes the object of rank ``r``.

    Raises:
        ValueError: the list has another length.
    """
    member = group_for(group, "all_gather_object")
    if member is None:
        return
    traced.refuse("all_gather_object")
    if len(object_list) != member.size():
        raise ArgumentError("all_gather_object: the list has a place per rank", {"places": len(object_list)})
    object_list[:] = _gathered(obj, member)


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: Any = None,
    group_dst: int | None = None,
) -> None:
    """On one rank, ``object_gather_list[r]`` becomes the object of rank ``r``.

    Raises:
        ValueError: the list is missing there, or given elsewhere.
    """
    member = group_for(group, "gather_object")
    if member is None:
        return
    traced.refuse("gather_object")
    is_root = member.rank() == root_of(member, dst, group_dst, "gather_object")
    if (object_gather_list is not None) != is_root:
        raise ArgumentError("gather_object: the list is given on the destination rank, and only there")
    found = _gathered(obj, member)
    if object_gather_list is not None:
        object_gather_list[:] = found


def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
) -> None:
    """The objects in the list become those of one rank."""
    member = group_for(group, "broadcast_object_list")
    if member is None:
        return
    traced.refuse("broadcast_object_list")
    root = root_of(member, src, group_src, "broadcast_object_list")
    object_list[:] = broadcast_object(list(object_list), member, root)


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: Any = None,
    group_src: int | None = None,
) -> None:
    """The first place of the output becomes the object that one rank has for this one.

    Raises:
        ValueError: the output has no place, or the input not one per rank.
    """
    member = group_for(group, "scatter_object_list")
    if member is None:
        return
    traced.refuse("scatter_object_list")
    root = root_of(member, src, group_src, "scatter_object_list")
    if not scatter_object_output_list:
        raise ArgumentError("Expected argument scatter_object_output_list to be a list of size at least 1.")
    is_root = member.rank() == root
    if is_root and len(scatter_object_input_list or ()) != member.size():
        raise ArgumentError("scatter_object_list: the input has an object per rank", {"ranks": member.size()})
    found = broadcast_object(scatter_object_input_list if is_root else None, member, root)
    scatter_object_output_list[0] = found[member.rank()]


def send_object_list(
    object_list: list[Any],
    dst: int | None = None,
    group: Any = None,
    device: Any = None,
    group_dst: int | None = None,
    use_batch: bool = False,
) -> None:
    """Send the objects of a list to one rank."""
    member = group_for(group, "send_object_list")
    if member is None:
        return
    traced.refuse("send_object_list")
    to, data = root_of(member, dst, group_dst, "send_object_list", None), _dumped(list(object_list))
    for part in (np.array([data.size], np.int64), data):
        member.communicator.point_to_point("isend", part, to, 0).wait()


def recv_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
    use_batch: bool = False,
) -> int:
    """Receive the objects that `send_object_list` has sent: the number in the job of the rank that sent them."""
    member = group_for(group, "recv_object_list")
    if member is None:
        return -1
    traced.refuse("recv_object_list")
    source = None if src is None and group_src is None else root_of(member, src, group_src, "recv_object_list")
    length = np.empty(1, np.int64)
    begun = member.communicator.point_to_point("irecv", length, source, 0)
    begun.wait()
    data = np.empty(int(length[0]), np.uint8)
    member.communicator.point_to_point("irecv", data, begun.source, 0).wait()
    object_list[:] = _loaded(data)
    return int(member.ranks[begun.source])
