"""The MPI engine: a communicator over mpi4py, which is imported when the first group is made.

How to read: every collective goes through ``_call``, which refuses forked children, tells the watchdog what is waited
for and turns MPI's errors into `RankFailed`. Elements that only move are passed as bytes, so that every dtype of NumPy
and ml_dtypes can be moved; what is combined is passed with its MPI datatype. MPI counts in C ints: longer buffers go in
pieces (``MOST``).
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from autojit.core.communicator import INT_MOST, NativeCollectives, Ndarray
from autojit.core.errors import ArgumentError, UsageError
from autojit.core.locks import new_lock
from autojit.distributed.failures import rank_failed
from autojit.distributed.pending import Pending, Unwatched
from autojit.distributed.watch import Watch

MOST = INT_MOST  # tests make it small
lost_ranks: list[str] = []  # groups that went on without some of their ranks; see `launched_rank`
KNOWN_WITHIN_S = 2.0  # until news of a dead rank has reached all; MPI's own detector needs fractions of it
_OPERATIONS: Final = {
    "sum": "SUM", "prod": "PROD", "max": "MAX", "min": "MIN", "band": "BAND", "bor": "BOR", "bxor": "BXOR",
}  # fmt: skip
_NAMES = (
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "complex64",
    "complex128",
)  # fmt: skip
_FUNCTIONS = {
    "all_reduce": "MPI_Allreduce", "all_gather": "MPI_Allgather", "reduce_scatter": "MPI_Reduce_scatter_block",
    "all_to_all": "MPI_Alltoall", "broadcast": "MPI_Bcast", "send_recv": "MPI_Sendrecv",
    "begin_all_reduce": "MPI_Iallreduce", "begin_all_gather": "MPI_Iallgather",
    "begin_reduce_scatter": "MPI_Ireduce_scatter_block", "begin_all_to_all": "MPI_Ialltoall",
    "begin_broadcast": "MPI_Ibcast", "wait": "MPI_Wait",
}  # fmt: skip


def load() -> Any:
    """``mpi4py.MPI``, initialised for threads that take turns at least.

    Raises:
        UsageError: it is not installed, finds no MPI library, or the library allows one thread only.
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise UsageError(
            "the MPI engine needs mpi4py and an MPI library", {"error": error}, "pip install 'autojit[mpi]'"
        ) from None
    if not MPI.Is_initialized():  # as `joining` leaves it
        MPI.Init_thread(MPI.THREAD_MULTIPLE)
    if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
        raise UsageError(
            "this MPI allows calls from its main thread only",
            {"library": MPI.Get_library_version().split(",")[0].strip()},
            "do not lower mpi4py.rc.thread_level",
        )
    return MPI


class MpiCommunicator:
    """A group of MPI's. ``world``: the numbers of its ranks in the whole job; ``hosts``: where each of these runs."""

    begins = True  # collectives take ``later``: they can be begun, and waited for later

    def __init__(
        self, comm: Any, name: str, world: Sequence[int], hosts: Sequence[str], watch: Watch, family: list[Any]
    ) -> None:
        self.MPI = load()
        family.append(comm)
        self._family = family  # all communicators of the job, as none is of use when a rank is gone
        self.comm = comm
        self.name = name
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()
        self.world, self.hosts = tuple(world), tuple(hosts)
        self.watch = watch
        self.number = watch.new_group(self.world)
        self._pid = os.getpid()
        self._lock = new_lock() if self.MPI.Query_thread() < self.MPI.THREAD_MULTIPLE else None
        self._ops = {name: getattr(self.MPI, its) for name, its in _OPERATIONS.items()}
        self._scratch = np.zeros(16, np.int64)  # an MPI_Status of any library has room in it
        self._native: NativeCollectives | None = None
        self.unwatched = Unwatched()

    @classmethod
    def of_world(cls, name: str, timeout_s: float, rank: int = -1) -> MpiCommunicator:
        """The group of all processes of the job, in the launcher's order, or in that of the numbers that they give."""
        world = load().COMM_WORLD
        comm = world.Split(0, rank if rank >= 0 else world.Get_rank())
        return cls.of(comm, name, timeout_s)

    @classmethod
    def of(cls, comm: Any, name: str, timeout_s: float) -> MpiCommunicator:
        """The group of a communicator of mpi4py's, as the whole job."""
        mpi = load()
        comm.Set_errhandler(mpi.ERRORS_RETURN)
        hosts = comm.allgather(socket.gethostname())
        near = comm.Split_type(mpi.COMM_TYPE_SHARED)
        watch = Watch(near.allgather(comm.Get_rank()), comm.Get_rank(), comm.Get_size(), hosts, timeout_s)
        watch.open(near.bcast, near.Barrier)
        near.Free()
        made = cls(comm, name, range(comm.Get_size()), hosts, watch, [])
        if mpi.Query_thread() == mpi.THREAD_MULTIPLE:
            watch.interrupt = made.revoke
        return made

    # -- the way all calls go

    def call(self, name: str, function: Any, *arguments: Any, is_look: bool = False) -> Any:
        """Call MPI: what it returns. ``is_look``: it is no call that the other ranks make, too.

        Raises:
            UsageError: in a forked child.
            RankFailed: another rank is gone.
        """
        if os.getpid() != self._pid:
            raise forked(name)
        if self.watch.lost and (lost := self.watch.lost.intersection(self.world)):
            self.revoke()
            raise self._rank_failed(name, sorted(lost))
        try:
            with self.watch.waiting(self.number, name, is_look):
                if self._lock is None:
                    return function(*arguments)
                with self._lock:
                    return function(*arguments)
        except self.MPI.Exception as error:
            raise self.failure(error.Get_error_code(), name) from None

    def failure(self, code: int, name: str) -> BaseException:
        """What is raised for an error code of MPI's. The other ranks of the group are told that it is of no use."""
        mpi = self.MPI
        kind = mpi.Get_error_class(code)
        text = mpi.Get_error_string(code)
        if kind not in self._gone():
            return UsageError(f"{name}: MPI has refused the call", {"group": self.name, "MPI": text})
        self.revoke()
        return self._rank_failed(name, self._failed_ranks())

    def _rank_failed(self, name: str, failed: Sequence[int]) -> BaseException:
        me = self.world[self.rank]
        facts = {"group": self.name, "reported by": f"rank {me} on {self.hosts[me]}"}
        return rank_failed(name, failed, [self.hosts[rank] for rank in failed], facts)

    def _failed_ranks(self) -> list[int]:
        """Which ranks of the job are known to be gone; who was told by others may have to wait until it knows."""
        until = time.monotonic() + KNOWN_WITHIN_S
        while not (failed := self.watch.look() | self._known_to_mpi()) and time.monotonic() < until:
            time.sleep(0.01)
        return sorted(failed)

    def _known_to_mpi(self) -> frozenset[int]:
        """Which ranks of the group MPI knows to be gone; it hears of them in calls only."""
        try:
            self.MPI.COMM_SELF.Iprobe()
            failed = self.comm.Get_failed()
            found = failed.Translate_ranks(list(range(failed.Get_size())), self.comm.Get_group())
        except (self.MPI.Exception, NotImplementedError):
            return frozenset()
        return frozenset(self.world[rank] for rank in found)

    def revoke(self) -> None:
        """Let calls of all other ranks fail, those that wait now too, in every group."""
        for comm in list(self._family):
            try:
                comm.Revoke()
            except (self.MPI.Exception, NotImplementedError):
                continue

    def _collective(self, name: str, method: str, arguments: Sequence[Any], later: bool) -> Pending | None:
        if not later:
            self.call(name, getattr(self.comm, method), *arguments)
            return None
        self.unwatched.let_go(self.call)
        begin = getattr(self.comm, f"I{method[0].lower()}{method[1:]}")
        return Pending(self, name, self.call(name, begin, *arguments), arguments)

    # -- collectives

    def all_reduce(self, buffer: Ndarray, op: str, later: bool = False) -> Pending | None:
        """Combine every element over the ranks, in place."""
        flat, operation = _flat(buffer), self._operation(op)
        if flat.size <= MOST:
            return self._collective("all_reduce", "Allreduce", (self.MPI.IN_PLACE, flat, operation), later)
        for piece in _pieces(flat, MOST):
            self._collective("all_reduce", "Allreduce", (self.MPI.IN_PLACE, piece, operation), False)
        return None

    def all_gather(self, result: Ndarray, part: Ndarray, later: bool = False) -> Pending | None:
        """``result[r]`` becomes the part of rank ``r``."""
        sent, got = _bytes(part), _bytes(result)
        if sent.size <= MOST:
            return self._collective("all_gather", "Allgather", (sent, got), later)
        rows = got.reshape(self.size, -1)
        for start, piece in zip(range(0, sent.size, MOST), _pieces(sent, MOST), strict=True):
            beside = np.empty((self.size, piece.size), np.uint8)
            self._collective("all_gather", "Allgather", (piece, beside), False)
            rows[:, start : start + piece.size] = beside
        return None

    def reduce_scatter(self, result: Ndarray, parts: Ndarray, op: str, later: bool = False) -> Pending | None:
        """``result`` becomes the combination of ``parts[rank]`` over the ranks."""
        sent, got, operation = _flat(parts), _flat(result), self._operation(op)
        if got.size <= MOST:
            return self._collective("reduce_scatter", "Reduce_scatter_block", (sent, got, operation), later)
        rows = sent.reshape(self.size, -1)
        for start, piece in zip(range(0, got.size, MOST), _pieces(got, MOST), strict=True):
            beside = np.ascontiguousarray(rows[:, start : start + piece.size])
            self._collective("reduce_scatter", "Reduce_scatter_block", (beside, piece, operation), False)
        return None

    def all_to_all(self, result: Ndarray, parts: Ndarray, later: bool = False) -> Pending | None:
        """``result[r]`` becomes rank ``r``'s ``parts[rank]``."""
        sent, got = _bytes(parts), _bytes(result)
        each = sent.size // self.size
        if each <= MOST:
            return self._collective("all_to_all", "Alltoall", (sent, got), later)
        rows, made = sent.reshape(self.size, -1), got.reshape(self.size, -1)
        for start in range(0, each, MOST):
            beside = np.ascontiguousarray(rows[:, start : start + MOST])
            back = np.empty_like(beside)
            self._collective("all_to_all", "Alltoall", (beside, back), False)
            made[:, start : start + MOST] = back
        return None

    def broadcast(self, buffer: Ndarray, root: int, later: bool = False) -> Pending | None:
        """``buffer`` becomes that of rank ``root``, in place."""
        flat = _bytes(buffer)
        if flat.size <= MOST:
            return self._collective("broadcast", "Bcast", (flat, root), later)
        for piece in _pieces(flat, MOST):
            self._collective("broadcast", "Bcast", (piece, root), False)
        return None

    def send_recv(self, result: Ndarray | None, buffer: Ndarray | None, to: int | None, source: int | None) -> None:
        """Send ``buffer`` to a rank and receive ``result`` from one, at the same time."""
        nobody = self.MPI.PROC_NULL
        sent = np.empty(0, np.uint8) if buffer is None else _bytes(buffer)
        got = np.empty(0, np.uint8) if result is None else _bytes(result)
        for start in range(0, max(sent.size, got.size, 1), MOST):
            mine, other = sent[start : start + MOST], got[start : start + MOST]
            has_more, wants_more = start < max(sent.size, 1), start < max(got.size, 1)
            self.call(
                "send_recv",
                self.comm.Sendrecv,
                mine,
                to if to is not None and has_more else nobody,
                0,
                other,
                source if source is not None and wants_more else nobody,
                0,
            )

    def barrier(self, later: bool = False) -> Pending | None:
        """Wait until every rank is here."""
        return self._collective("barrier", "Barrier", (), later)

    def point_to_point(self, name: str, buffer: Ndarray, peer: int | None, tag: int) -> Pending:
        """Begin to send to a rank (``isend``) or to receive from one, or from any (``irecv``)."""
        flat = _bytes(buffer)
        if flat.size > MOST:
            raise ArgumentError(f"{name}: the tensor is too large", {"bytes": flat.size, "most": MOST}, "send pieces")
        other = self.MPI.ANY_SOURCE if peer is None else peer
        begin = self.comm.Isend if name == "isend" else self.comm.Irecv
        return Pending(self, name, self.call(name, begin, flat, other, tag), (flat,))

    # -- what ops do not need

    def gather(self, result: Ndarray | None, part: Ndarray, root: int) -> None:
        """On ``root``, ``result[r]`` becomes the part of rank ``r``."""
        sent = _bytes(part)
        rows = None if result is None else _bytes(result).reshape(self.size, -1)
        for start in range(0, max(sent.size, 1), MOST):
            piece = sent[start : start + MOST]
            beside = None if rows is None else np.empty((self.size, piece.size), np.uint8)
            self.call("gather", self.comm.Gather, piece, beside, root)
            if rows is not None:
                rows[:, start : start + MOST] = beside

    def scatter(self, result: Ndarray, parts: Ndarray | None, root: int) -> None:
        """``result`` becomes ``parts[rank]`` of ``root``."""
        got = _bytes(result)
        rows = None if parts is None else _bytes(parts).reshape(self.size, -1)
        for start in range(0, max(got.size, 1), MOST):
            beside = None if rows is None else np.ascontiguousarray(rows[:, start : start + MOST])
            self.call("scatter", self.comm.Scatter, beside, got[start : start + MOST], root)

    def exchange(self, results: Sequence[Ndarray], parts: Sequence[Ndarray]) -> None:
        """``results[r]`` becomes rank ``r``'s ``parts[rank]``; sizes differ, and both sides know them."""
        _flat(results[self.rank])[...] = _flat(parts[self.rank])
        for step in range(1, self.size):
            to, source = (self.rank + step) % self.size, (self.rank - step) % self.size
            self.send_recv(results[source], parts[to], to, source)

    # -- groups

    def split(self, color: int | None, key: int, name: str) -> MpiCommunicator | None:
        """The group of the ranks with the same color, ordered by key, then rank; None for those without a color."""
        mpi = self.MPI
        comm = self.call("split", self.comm.Split, mpi.UNDEFINED if color is None else color, key)
        if comm == mpi.COMM_NULL:
            self.watch.new_group(())  # groups are numbered alike on all ranks
            return None
        comm.Set_errhandler(mpi.ERRORS_RETURN)
        members = mpi.Group.Translate_ranks(comm.Get_group(), list(range(comm.Get_size())), self.comm.Get_group())
        return MpiCommunicator(comm, name, [self.world[r] for r in members], self.hosts, self.watch, self._family)

    def native(self) -> NativeCollectives:
        """Addresses of MPI's functions and its handles in this process."""
        if self._native is None:
            self._native = self._handles()
        return self._native

    def _handles(self) -> NativeCollectives:
        import ctypes

        mpi = self.MPI
        library = ctypes.CDLL(mpi.__file__)  # which has the MPI library among what it needs
        addresses = {name: _address(ctypes, library, symbol) for name, symbol in _FUNCTIONS.items()}
        kinds = {name: mpi._handleof(mpi._typedict[np.dtype(name).char]) for name in _NAMES}
        return NativeCollectives(
            **addresses,
            communicator=mpi._handleof(self.comm),
            datatypes=kinds,
            operations={name: mpi._handleof(self._ops[name]) for name in ("sum", "prod", "max", "min")},
            in_place=int(mpi.IN_PLACE) & (2**64 - 1),
            no_process=int(mpi.PROC_NULL),
            no_status=self._scratch.ctypes.data,
            failure=self.failure,
            most=MOST,
            **self.watch.words(self.number),
        )

    def abandon(self) -> None:
        """Use the group no more; it is not given back, as that would wait for all."""
        self.unwatched.keep()
        self.watch.close()

    def shrunk(self) -> MpiCommunicator | None:
        """The group of the ranks that are left; None where MPI cannot make one. All of them call it."""
        self.revoke()
        lost_ranks.append(self.name)
        while True:
            try:
                return self.of(self.comm.Shrink(), self.name, self.watch.timeout_s)
            except NotImplementedError:
                return None
            except self.MPI.Exception as error:
                if error.Get_error_class() not in self._gone():
                    return None

    def _gone(self) -> set[int]:
        """The classes of errors that say that a rank is gone."""
        mpi = self.MPI
        names = ("ERR_PROC_FAILED", "ERR_PROC_FAILED_PENDING", "ERR_REVOKED")
        return {getattr(mpi, name, mpi.ERR_UNKNOWN) for name in names} - {mpi.ERR_UNKNOWN}

    def abort(self, status: int) -> None:
        """End all processes of the job."""
        self.MPI.COMM_WORLD.Abort(status)

    def close(self) -> None:
        """Give the group back; no calls follow."""
        if os.getpid() == self._pid and not self.MPI.Is_finalized():
            try:
                self.unwatched.end()
                self._family.remove(self.comm)
                if not self._family:
                    self.watch.close(is_orderly=True)
                self.comm.Free()
            except self.MPI.Exception:
                return  # a group with dead ranks cannot be freed

    def _operation(self, op: str) -> Any:
        found = self._ops.get(op)
        if found is None:
            raise ArgumentError("this reduction is unknown", {"op": op}, f"one of {', '.join(self._ops)}")
        return found


def forked(name: str) -> UsageError:
    """A forked child of a process that uses MPI may not use it."""
    return UsageError(
        f"{name}: this process was forked from one that uses MPI, and shares its connections",
        {"process": os.getpid()},
        "start workers by spawn or forkserver, or let them leave collectives to their parent",
    )


def _address(ctypes: Any, library: Any, symbol: str) -> int:
    return int(ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value)


def _flat(array: Ndarray) -> Ndarray:
    assert array.flags.c_contiguous
    return array.reshape(-1)


def _bytes(array: Ndarray) -> Ndarray:
    return _flat(array).view(np.uint8)


def _pieces(flat: Ndarray, most: int) -> Iterator[Ndarray]:
    return (flat[start : start + most] for start in range(0, flat.size, most))
