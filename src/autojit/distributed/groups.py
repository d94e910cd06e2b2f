"""Process groups: the default one, further ones, and who has which number in them."""

from __future__ import annotations

import datetime
import itertools
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any

from autojit.core import communicator as named
from autojit.core.errors import ArgumentError, UsageError
from autojit.core.locks import in_forked_child
from autojit.core.rank_process import is_rank_itself
from autojit.distributed import environment, joining
from autojit.distributed.alone import Alone
from autojit.distributed.mpi import MpiCommunicator, forked

__all__ = [
    "GroupMember", "ProcessGroup", "abandon", "destroy_process_group", "get_backend", "get_global_rank",
    "get_group_rank", "get_pg_count", "get_process_group_ranks", "get_rank", "get_world_size", "group",
    "init_process_group", "is_initialized", "new_group", "new_subgroups", "new_subgroups_by_enumeration",
]  # fmt: skip

TIMEOUT = datetime.timedelta(minutes=5)
default_pg_timeout = TIMEOUT
WORLD_NAME = "world"
_KNOWN = frozenset({"mpi", "gloo", "nccl", "ucc", "xccl", "fake", "undefined"})
_NOT_INITIALIZED = "Default process group has not been initialized, please make sure to call init_process_group."


class ProcessGroup:
    """Some of the processes.

    Args:
        communicator: what connects them.
        ranks: their numbers in the whole job, in the group's order.
        backend: what the program asked for; the engine is the same.
    """

    def __init__(self, communicator: named.ProcessCommunicator, ranks: Sequence[int], backend: str) -> None:
        self.communicator = communicator
        self.ranks = list(ranks)
        self.backend = backend

    @property
    def group_name(self) -> str:
        """The name by which ops know the group."""
        return str(self.communicator.name)

    def rank(self) -> int:
        """This process's number in the group."""
        return int(self.communicator.rank)

    def size(self) -> int:
        """The number of processes in the group."""
        return int(self.communicator.size)

    def name(self) -> str:
        """The backend's name."""
        return self.backend

    def for_purpose(self, purpose: str) -> AbstractContextManager[None]:
        """What the collectives inside are for, which the watchdog says."""
        watch = getattr(self.communicator, "watch", None)
        return nullcontext() if watch is None else watch.for_purpose(purpose)

    def __repr__(self) -> str:
        return f"ProcessGroup({self.group_name!r}, rank {self.rank()} of {self.size()})"


class _NoMember:
    """What stands for a group that this process is not in."""

    def __repr__(self) -> str:
        return "GroupMember.NON_GROUP_MEMBER"


class _State:
    """The groups of this process."""

    default: ProcessGroup | None = None
    forked_from_member = False
    hook: Any = None

    def __init__(self) -> None:
        self.groups: list[ProcessGroup] = []
        self.count = itertools.count(1)


_state = _State()


class _WorldAsAttribute(type):
    @property
    def WORLD(cls) -> ProcessGroup | None:
        """The default group, None before `init_process_group`."""
        return _state.default


class GroupMember(metaclass=_WorldAsAttribute):
    """torch's constants for groups."""

    NON_GROUP_MEMBER = _NoMember()


class group(metaclass=_WorldAsAttribute):
    """torch's older name for `GroupMember`."""


@in_forked_child
def _left_in_child() -> None:
    """A forked child shares the parent's connections and must not use them."""
    if _state.default is not None and not isinstance(_state.default.communicator, Alone):
        for member in _state.groups:
            named.leave(member.group_name)
        _state.forked_from_member = True


# -- joining and leaving


def is_initialized() -> bool:
    """Whether `init_process_group` has been called."""
    return _state.default is not None


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: datetime.timedelta | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Any = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Join the other processes of the job: those that ``python -m autojit.launch``, mpiexec or srun has started.

    Processes that something else has started (torchrun, ``multiprocessing``) join by themselves where the MPI library
    is MPICH or made of it: rank 0 is at ``MASTER_ADDR`` and ``MASTER_PORT``, or where ``init_method`` says. Without
    others it is a group of one process. Every backend's name is understood; the engine is MPI.

    Args:
        backend: remembered for `get_backend`.
        init_method: "env://": the variables ``RANK`` and ``WORLD_SIZE`` hold, in place of the launcher's numbers; or
            "tcp://host:port".
        timeout: how long a rank waits in a collective before the watchdog ends the job; 5 minutes by default.
        world_size: how many processes there are. It has to be the launcher's number.
        rank: this process's number; a launcher's order is changed by it.
        store: of no use, as are ``pg_options`` and ``device_id``.

    Raises:
        ValueError: there is a group already; a number is not that of the job; the backend is unknown.
        UsageError: several processes were started that cannot join each other, or MPI is missing.
    """
    if _state.default is not None:
        raise ValueError("trying to initialize the default process group twice!")
    asked = _backend(backend)
    limit = TIMEOUT if timeout is None else timeout
    told = environment.job() if not environment.is_under_mpi() or init_method == "env://" else (-1, -1)
    number, wanted = rank if rank >= 0 else told[0], world_size if world_size > 0 else told[1]
    if environment.is_under_mpi() and not is_rank_itself():
        raise UsageError(
            "init_process_group: this process was started by a rank, and is none itself",
            {"rank": os.environ.get("RANK", "unknown"), "process": os.getpid()},
            "let the ranks join: mp.spawn of as many processes as there are ranks calls its function in them",
        )
    if environment.is_under_mpi() or (wanted > 1 and _joins_by_itself(number, wanted, init_method, limit)):
        made: named.ProcessCommunicator = MpiCommunicator.of_world(WORLD_NAME, limit.total_seconds(), number)
        os.environ.update({name: text for name, text in environment.as_torchrun().items() if name not in os.environ})
    elif wanted > 1:
        raise UsageError(
            "init_process_group: this process is told to be one of several, but no launcher of MPI's has started it",
            {"world_size": wanted, "rank": number if number >= 0 else "unknown"},
            f"start the program by: python -m autojit.launch -n {wanted} {os.path.basename(sys.argv[0]) or 'train.py'}",
        )
    else:
        made, number, wanted = Alone(WORLD_NAME), rank, world_size
    for name, given, found in (("world_size", wanted, made.size), ("rank", number, made.rank)):
        if given >= 0 and given != found:
            made.close()
            raise ArgumentError(f"init_process_group: {name} is not that of the job", {name: given, "job": found})
    become(made, asked)


def _joins_by_itself(rank: int, size: int, init_method: str | None, limit: datetime.timedelta) -> bool:
    """Whether this process, which no launcher of MPI's has started, is a rank of a job now."""
    address = joining.address_of(init_method)
    if rank < 0 or address is None:
        return False
    return joining.joined(rank, size, address, limit.total_seconds())


def become(made: named.ProcessCommunicator, backend: str) -> None:
    """Make a communicator the default group's."""
    _state.default = ProcessGroup(made, range(made.size), backend)
    _state.groups = [_state.default]
    _state.count = itertools.count(1)
    named.join(made)
    if made.size > 1 and _state.hook is None:
        _state.hook, sys.excepthook = sys.excepthook, _end_the_job


def _end_the_job(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """An error that nobody catches ends the other ranks too, which would wait for this one for ever."""
    (_state.hook or sys.__excepthook__)(kind, error, trace)
    made = None if _state.default is None else _state.default.communicator
    if isinstance(made, MpiCommunicator) and not _state.forked_from_member:
        sys.stdout.flush()
        sys.stderr.flush()
        made.abort(130 if issubclass(kind, KeyboardInterrupt) else 1)


def _backend(asked: str | None) -> str:
    if asked is None:
        return "mpi"
    parts = [part.partition(":")[2] or part for part in str(asked).lower().split(",")]
    if not set(parts) <= _KNOWN:
        raise ArgumentError("Invalid backend", {"backend": asked}, "one of mpi, gloo, nccl; the engine is MPI for all")
    return str(asked).lower()


def destroy_process_group(group: Any = None) -> None:
    """Leave a group; without one, all of them.

    Raises:
        ValueError: there is no such group.
    """
    if group is None or group is _state.default:
        default_group()
        for member in reversed(_state.groups):
            _leave(member)
        _state.groups, _state.default = [], None
        if _state.hook is not None and sys.excepthook is _end_the_job:
            sys.excepthook = _state.hook
        _state.hook = None
    elif group in _state.groups:
        _state.groups.remove(group)
        _leave(group)
    elif group is not GroupMember.NON_GROUP_MEMBER:
        raise ValueError("Invalid process group specified")


def abandon() -> None:
    """Leave all groups without a word, as after a `RankFailed`: nothing waits for ranks that are gone."""
    for member in _state.groups:
        named.leave(member.group_name)
        member.communicator.abandon()
    _state.groups, _state.default = [], None


def replace_world(made: named.ProcessCommunicator) -> None:
    """Let a communicator take the place of the default group's, whose ranks are not all there any more."""
    backend = default_group().backend
    abandon()
    become(made, backend)


def _leave(member: ProcessGroup) -> None:
    named.leave(member.group_name)
    if not _state.forked_from_member:
        member.communicator.close()


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: Any = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
    sort_ranks: bool = True,
) -> Any:
    """A group of some ranks. All ranks of the job call it, in the same order; those outside get `NON_GROUP_MEMBER`.

    Raises:
        ValueError: a rank is not one of the job, or is named twice.
    """
    world = default_group()
    found = list(range(world.size())) if ranks is None else [int(r) for r in ranks]
    if len(set(found)) != len(found) or not set(found) <= set(range(world.size())):
        raise ArgumentError("new_group: ranks are different numbers of the job", {"ranks": found, "size": world.size()})
    if sort_ranks:
        found.sort()
    me = world.rank()
    name = f"{WORLD_NAME}/{next(_state.count)}"
    made = world.communicator.split(0 if me in found else None, found.index(me) if me in found else 0, name)
    if made is None:
        return GroupMember.NON_GROUP_MEMBER
    joined = ProcessGroup(made, found, world.backend if backend is None else _backend(backend))
    _state.groups.append(joined)
    named.join(made)
    return joined


def new_subgroups(
    group_size: int | None = None,
    group: Any = None,
    timeout: Any = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:
    """Groups of consecutive ranks: this rank's, and all of them.

    Raises:
        ValueError: the size does not divide that of the job.
    """
    size = get_world_size(group)
    each = size if group_size is None else group_size
    if each <= 0 or size % each:
        raise ArgumentError("The world size must be divisible by 'group_size'", {"world": size, "group_size": each})
    ranks = get_process_group_ranks(group)
    return new_subgroups_by_enumeration([ranks[i : i + each] for i in range(0, size, each)], timeout, backend)


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Sequence[Sequence[int]],
    timeout: Any = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:
    """Groups of these ranks: this rank's (None if it is in none), and all of them."""
    mine, every = None, []
    for ranks in ranks_per_subgroup_list:
        made = new_group(ranks, timeout, backend)
        every.append(made)
        if default_group().rank() in ranks:
            mine = made
    return mine, every


# -- who has which number


def default_group() -> ProcessGroup:
    """The group of all.

    Raises:
        ValueError: there is none.
    """
    if _state.default is None:
        raise ArgumentError(_NOT_INITIALIZED)
    return _state.default


def member_of(group: Any, name: str = "collective") -> ProcessGroup | None:
    """The group that a function was given; None where this process is not in it.

    Raises:
        ValueError: there is no group.
    """
    if _state.forked_from_member:
        raise forked(name)
    world = default_group()
    if group is None:
        return world
    if group is GroupMember.NON_GROUP_MEMBER:
        return None
    if isinstance(group, ProcessGroup):
        return group
    made = getattr(group, "get_group", None)  # a mesh of one dimension
    if made is not None:
        return member_of(made(), name)
    raise ArgumentError("this is no process group", {"group": group}, "pass what new_group returned")


def get_rank(group: Any = None) -> int:
    """This process's number in a group; -1 where it is not in it.

    Raises:
        ValueError: there is no group.
    """
    found = member_of(group)
    return -1 if found is None else found.rank()


def get_world_size(group: Any = None) -> int:
    """The number of processes in a group; -1 where this one is not in it.

    Raises:
        ValueError: there is no group.
    """
    found = member_of(group)
    return -1 if found is None else found.size()


def get_backend(group: Any = None) -> str:
    """What the program has asked for.

    Raises:
        ValueError: there is no group.
    """
    found = member_of(group)
    if found is None:
        raise ArgumentError("Invalid process group specified")
    return found.backend


def get_pg_count() -> int:
    """How many groups this process is in."""
    return len(_state.groups)


def get_process_group_ranks(group: Any) -> list[int]:
    """The numbers in the job of a group's ranks, in the group's order."""
    found = member_of(group)
    return [] if found is None else list(found.ranks)


def get_group_rank(group: Any, global_rank: int) -> int:
    """The number in the group of a rank of the job.

    Raises:
        ValueError: it is not in it.
    """
    found = member_of(group)
    if found is None or global_rank not in found.ranks:
        raise ArgumentError(f"Global rank {global_rank} is not part of group {group}")
    return found.ranks.index(global_rank)


def get_global_rank(group: Any, group_rank: int) -> int:
    """The number in the job of a group's rank.

    Raises:
        ValueError: there is no such rank in it.
    """
    found = member_of(group)
    if found is None or not 0 <= group_rank < found.size():
        raise ArgumentError(f"Group rank {group_rank} is not part of group {group}")
    return found.ranks[group_rank]
