"""Communicator: what collectives ask of whatever connects the processes, and the groups by their names.

Ops know a group by its name and size only, so a graph says nothing of one process's place in it, and all ranks record
the same one. Compiled steps read handles and addresses of functions from words that belong to the name
(`NativeCollectives`): nothing of a process is in compiled code, and steps compiled before use a group that is joined
again under its name.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from autojit.core.errors import UsageError
from autojit.core.records import record

if TYPE_CHECKING:
    from numpy.typing import NDArray

Ndarray: TypeAlias = "NDArray[Any]"
Combination: TypeAlias = Literal["sum", "prod", "max", "min"]
"""How a reduction combines the ranks' elements."""
Manner: TypeAlias = Literal["at once", "begun", "begun and ended"]
"""How a collective is called. Libraries do not let a call that is begun meet one that returns when it is done, so what
some ranks begin all begin, even where nothing is between it and its end."""

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv", "wait")
"""What compiled steps call."""

INT_MOST = 2**31 - 1
"""The largest count that C functions with ``int`` arguments take."""


class Communicator(Protocol):
    """A group of processes, as one of them, ``rank`` of ``size``, sees it.

    Every rank makes the same calls in the same order; they block. Where ``begins``, collectives also take
    ``later=True`` and return something to wait for (`Pending`). Arrays are NumPy's and C-contiguous; they may be empty
    and have any number of elements. Reductions get integers, float32, float64 and complex numbers alone ("max"
    and "min": no complex numbers): ops take care of the other dtypes. What only moves may have any dtype, bool and
    those of ml_dtypes too, and is moved as bytes.
    """

    name: str
    rank: int
    size: int

    def all_reduce(self, buffer: Ndarray, op: Combination) -> Pending | None:
        """Combine every element over the ranks, in place."""

    def all_gather(self, result: Ndarray, part: Ndarray) -> Pending | None:
        """``result[r]`` becomes the part of rank ``r``: shapes (size, *s) and s."""

    def reduce_scatter(self, result: Ndarray, parts: Ndarray, op: Combination) -> Pending | None:
        """``result`` becomes the combination of ``parts[rank]`` over the ranks: shapes s and (size, *s)."""

    def all_to_all(self, result: Ndarray, parts: Ndarray) -> Pending | None:
        """``result[r]`` becomes rank ``r``'s ``parts[rank]``: both of shape (size, *s)."""

    def broadcast(self, buffer: Ndarray, root: int) -> Pending | None:
        """``buffer`` becomes that of rank ``root``, in place."""

    def send_recv(self, result: Ndarray | None, buffer: Ndarray | None, to: int | None, source: int | None) -> None:
        """Send ``buffer`` to a rank and receive ``result`` from one, at the same time; None: nothing."""

    def barrier(self) -> Pending | None:
        """Wait until every rank is here."""

    def split(self, color: int | None, key: int, name: str) -> Communicator | None:
        """The group of the ranks with the same color, ordered by key, then rank; None for those without a color."""

    def native(self) -> NativeCollectives | None:
        """What compiled steps call; None: they call Python, which is counted."""


class ProcessCommunicator(Communicator, Protocol):
    """A group whose ranks are processes: what torch's functions ask beyond what ops do."""

    def gather(self, result: Ndarray | None, part: Ndarray, root: int) -> None:
        """On ``root``, ``result[r]`` becomes the part of rank ``r``."""

    def scatter(self, result: Ndarray, parts: Ndarray | None, root: int) -> None:
        """``result`` becomes ``parts[rank]`` of ``root``."""

    def exchange(self, results: Sequence[Ndarray], parts: Sequence[Ndarray]) -> None:
        """``results[r]`` becomes rank ``r``'s ``parts[rank]``; sizes differ, and both sides know them."""

    def point_to_point(self, name: str, buffer: Ndarray, peer: int | None, tag: int) -> Any:
        """Begin to send to a rank (``isend``) or to receive from one, or from any (``irecv``)."""

    def split(self, color: int | None, key: int, name: str) -> ProcessCommunicator | None:
        """See `Communicator`."""

    def shrunk(self) -> ProcessCommunicator | None:
        """The group of the ranks that are left; None where the engine cannot make one. All of them call it."""

    def abandon(self) -> None:
        """Use the group no more, without a word to the others."""

    def close(self) -> None:
        """Give the group back; no calls follow."""


class Pending(Protocol):
    """A collective that the engine works on while the program goes on."""

    def test(self) -> bool:
        """Whether it is done."""

    def wait(self) -> None:
        """Return when it is done."""


def begun(collective: Callable[..., Any], *arguments: Any) -> Pending | None:
    """Begin a communicator's collective: what to wait for, or None where it has been done at once."""
    if getattr(collective.__self__, "begins", False):  # type: ignore[attr-defined]
        found: Pending | None = collective(*arguments, later=True)
        return found
    collective(*arguments)
    return None


def called(manner: Manner, collective: Callable[..., Any], *arguments: Any) -> None:
    """Call a communicator's collective in this manner; it is done when this returns."""
    pending = collective(*arguments) if manner == "at once" else begun(collective, *arguments)
    if pending is not None:
        pending.wait()


@record
class NativeCollectives:
    """C functions with MPI's signatures, and what they are given; all of them as integers of one process.

    Handles are passed in 64-bit words, of which a library with 32-bit handles reads the lower half.
    """

    all_reduce: int  # int (const void *send, void *receive, int count, type, op, comm)
    all_gather: int  # int (const void *send, int, type, void *receive, int each, type, comm)
    reduce_scatter: int  # MPI_Reduce_scatter_block: int (const void *send, void *receive, int each, type, op, comm)
    all_to_all: int  # int (const void *send, int each, type, void *receive, int each, type, comm)
    broadcast: int  # int (void *buffer, int count, type, int root, comm)
    send_recv: int  # MPI_Sendrecv, its status argument last
    communicator: int  # handle
    datatypes: Mapping[str, int]  # handle by NumPy's name of the dtype; "uint8" is there, for what only moves
    operations: Mapping[str, int]  # handle by `Combination`
    in_place: int  # in place of ``send``
    no_process: int  # in place of a rank that nothing is sent to or received from
    no_status: int  # in place of an address for a status
    failure: Callable[[int, str], BaseException]  # (what a function returned, the op) -> what is raised after the step
    most: int = INT_MOST  # elements or bytes per call; more are moved in several
    # the same, and last where they write a request; 0: what is begun is done at once
    begin_all_reduce: int = 0
    begin_all_gather: int = 0
    begin_reduce_scatter: int = 0
    begin_all_to_all: int = 0
    begin_broadcast: int = 0
    wait: int = 0  # MPI_Wait: int (request, status)
    # for a watchdog, each 0 or the address of a word: how many collectives this rank has called in the group, and the
    # one that it is in, from 1 on in the order of `COLLECTIVES`, or 0
    counter: int = 0
    inside: int = 0


class _Groups:
    """The groups that this process has joined; a thread may stand for a rank of its own."""

    def __init__(self) -> None:
        self.by_name: dict[str, Communicator] = {}
        self.listeners: list[Callable[[str, Communicator | None], None]] = []


_groups = _Groups()


class _ThreadGroups(threading.local):
    by_name: dict[str, Communicator] | None = None


_own = _ThreadGroups()


def join(communicator: Communicator) -> None:
    """Let ops find a group by its name, in place of the one that had the name before."""
    _groups.by_name[communicator.name] = communicator
    for listener in _groups.listeners:
        listener(communicator.name, communicator)


def leave(name: str) -> None:
    """Forget a group; nothing where there is none of that name."""
    if _groups.by_name.pop(name, None) is not None:
        for listener in _groups.listeners:
            listener(name, None)


def communicator(name: str) -> Communicator:
    """The group of that name.

    Raises:
        UsageError: this process has not joined it.
    """
    found = joined(name)
    if found is None:
        raise UsageError(
            f"this process has not joined the group {name!r}",
            {"joined": ", ".join(sorted(_groups.by_name)) or "none"},
            "call autojit.distributed.init_process_group() first",
        )
    return found


def joined(name: str) -> Communicator | None:
    """The group of that name, or None."""
    own = _own.by_name
    if own is not None and name in own:
        return own[name]
    return _groups.by_name.get(name)


def is_any_joined() -> bool:
    """Whether this process, or thread, communicates with others."""
    return bool(_own.by_name or any(group.size > 1 for group in _groups.by_name.values()))


_uneven: set[str] = set()


@contextmanager
def uneven(name: str) -> Iterator[None]:
    """While inside, ranks of the group capture different numbers of steps, and do not compare what they capture."""
    _uneven.add(name)
    try:
        yield
    finally:
        _uneven.discard(name)


def is_uneven(name: str) -> bool:
    """Whether a group's ranks make different numbers of steps at present."""
    return name in _uneven


def listen(listener: Callable[[str, Communicator | None], None]) -> None:
    """Call ``listener(name, communicator)`` whenever a group is joined (None: left) from now on."""
    _groups.listeners.append(listener)


class ThreadAsRank:
    """While entered, the calling thread finds these groups by their names, and then those of the process."""

    def __init__(self, *communicators: Communicator) -> None:
        self.groups = {c.name: c for c in communicators}
        self.before: list[dict[str, Communicator] | None] = []

    def __enter__(self) -> ThreadAsRank:
        self.before.append(_own.by_name)
        _own.by_name = {**(_own.by_name or {}), **self.groups}
        return self

    def __exit__(self, *_: object) -> None:
        _own.by_name = self.before.pop()
