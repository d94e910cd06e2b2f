"""A group of one whose C functions are made here: what compiled steps call, without MPI; every call is noted."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from autojit.core.communicator import Communicator, NativeCollectives, ProcessCommunicator
from autojit.distributed.alone import Alone
from autojit.distributed.mpi import MpiCommunicator
from autojit.distributed.threads import ThreadRank, _Meeting

WIDTHS = {"int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8,
          "float32": 4, "float64": 8, "complex64": 8, "complex128": 16}  # fmt: skip
HANDLES = {name: 100 + k for k, name in enumerate(WIDTHS)}
_INT, _LONG, _POINTER = ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p
_REDUCE = ctypes.CFUNCTYPE(_INT, _POINTER, _POINTER, _INT, _LONG, _LONG, _LONG)
_MOVE = ctypes.CFUNCTYPE(_INT, _POINTER, _INT, _LONG, _POINTER, _INT, _LONG, _LONG)
_BROADCAST = ctypes.CFUNCTYPE(_INT, _POINTER, _INT, _LONG, _INT, _LONG)
_SEND_RECV = ctypes.CFUNCTYPE(
    _INT, _POINTER, _INT, _LONG, _INT, _INT, _POINTER, _INT, _LONG, _INT, _INT, _LONG, _POINTER
)
_REQUEST = ctypes.POINTER(_INT)
_BEGIN_REDUCE = ctypes.CFUNCTYPE(_INT, _POINTER, _POINTER, _INT, _LONG, _LONG, _LONG, _REQUEST)
_BEGIN_MOVE = ctypes.CFUNCTYPE(_INT, _POINTER, _INT, _LONG, _POINTER, _INT, _LONG, _LONG, _REQUEST)
_BEGIN_BROADCAST = ctypes.CFUNCTYPE(_INT, _POINTER, _INT, _LONG, _INT, _LONG, _REQUEST)
_WAIT = ctypes.CFUNCTYPE(_INT, ctypes.POINTER(_INT), _POINTER)
IN_PLACE = 2**64 - 1


class Failed(Exception):
    """What the group says of a number that a function has returned."""


class NativeAlone(ThreadRank):
    """A rank alone. ``returned``: what its functions return from now on; ``calls``: those that there were.

    What is begun reads its operand and writes its result in ``wait``, and has no sensible result before.
    """

    def __init__(self, most: int = 2**31 - 1, name: str = "world") -> None:
        super().__init__(name, 0, 1, _Meeting(1, 10.0))
        self.calls: list[tuple[str, int]] = []
        self.returned = 0
        self.watched = np.zeros(2, np.int64)  # calls, and the function that a step is in
        self.seen: list[tuple[int, int]] = []
        widths = {HANDLES[name]: width for name, width in WIDTHS.items()}

        def copied(what: str, send: Any, to: Any, count: int, type: int) -> int:
            self.calls.append((what, count))
            self.seen.append((int(self.watched[0]), int(self.watched[1])))
            if send not in (IN_PLACE, -1) and not self.returned:
                ctypes.memmove(to, send, count * widths[type])
            return self.returned

        def reduce(what: str) -> Any:
            return _REDUCE(lambda send, to, count, type, op, group: copied(what, send, to, count, type))

        def move(what: str) -> Any:
            return _MOVE(lambda send, count, type, to, each, same, group: copied(what, send, to, count, type))

        def broadcast(buffer: int, count: int, type: int, root: int, group: int) -> int:
            return copied("broadcast", IN_PLACE, buffer, count, type)

        def send_recv(*given: Any) -> int:
            send, count, type, to, _, receive = given[:6]
            return copied("send_recv", IN_PLACE if to < 0 else send, receive, count, type)

        self.begun: dict[int, tuple[Any, ...]] = {}  # by request

        def begin(what: str, send: Any, to: Any, count: int, type: int, request: Any) -> int:
            request[0] = 1 + max(self.begun, default=0)
            self.begun[request[0]] = f"begun {what}", send, to, count, type
            if send not in (IN_PLACE, -1):
                ctypes.memset(to, 0xA5, count * widths[type])
            return self.returned

        def begin_reduce(what: str) -> Any:
            return _BEGIN_REDUCE(lambda send, to, count, type, op, group, r: begin(what, send, to, count, type, r))

        def begin_move(what: str) -> Any:
            return _BEGIN_MOVE(
                lambda send, count, type, to, each, same, group, r: begin(what, send, to, count, type, r)
            )

        def begin_broadcast(buffer: int, count: int, type: int, root: int, group: int, request: Any) -> int:
            return begin("broadcast", IN_PLACE, buffer, count, type, request)

        def wait(request: Any, status: Any) -> int:
            return copied(*self.begun.pop(request[0]))

        self.functions = {
            "all_reduce": reduce("all_reduce"), "reduce_scatter": reduce("reduce_scatter"),
            "all_gather": move("all_gather"), "all_to_all": move("all_to_all"), "broadcast": _BROADCAST(broadcast),
            "send_recv": _SEND_RECV(send_recv), "wait": _WAIT(wait), "begin_all_reduce": begin_reduce("all_reduce"),
            "begin_reduce_scatter": begin_reduce("reduce_scatter"), "begin_all_gather": begin_move("all_gather"),
            "begin_all_to_all": begin_move("all_to_all"), "begin_broadcast": _BEGIN_BROADCAST(begin_broadcast),
        }  # fmt: skip
        addresses: Any = {name: ctypes.cast(f, ctypes.c_void_p).value for name, f in self.functions.items()}
        self.made = NativeCollectives(
            **addresses,
            communicator=7,
            datatypes=HANDLES,
            operations={"sum": 1, "prod": 2, "max": 3, "min": 4},
            in_place=IN_PLACE,
            no_process=-2,
            no_status=0,
            failure=lambda number, op: Failed(f"{op} returned {number}"),
            most=most,
            counter=int(self.watched.ctypes.data),
            inside=int(self.watched.ctypes.data) + 8,
        )

    def native(self) -> Any:
        """The functions."""
        return self.made


class Noting(ThreadRank):
    """A rank alone without native functions, which notes what it is called for."""

    def __init__(self, name: str = "world") -> None:
        super().__init__(name, 0, 1, _Meeting(1, 10.0))
        self.calls: list[tuple[str, float]] = []

    def _meet(self, call: str, given: Any) -> list[Any]:
        array = given[1] if isinstance(given, tuple) else given
        first = 0.0 if array is None or not np.size(array) else float(np.ravel(array)[0])
        self.calls.append((call, round(first, 9)))
        return super()._meet(call, given)


def as_communicators(rank: ThreadRank, alone: Alone, mpi: MpiCommunicator) -> tuple[Communicator, ...]:
    """For type checkers."""
    processes: tuple[ProcessCommunicator, ...] = alone, mpi
    return rank, *processes
