"""Joins processes that no launcher of MPI's has started: those of torchrun, of ``multiprocessing``, of a scheduler.

What MPI's processes tell each other at the start, where each can be reached, goes by way of a *process manager*, which
is mostly the launcher. MPICH, and Intel MPI and MVAPICH, which are made of it, speak PMI-1 with theirs: lines of text
on a socket, to put and to get values and to wait for all. Here rank 0 answers them, at the address that torchrun's
variables name, and independent processes become one job. Open MPI speaks PMIx, which is no such small thing.

Source: MPICH, ``src/pmi/src/pmi_v1.c`` (the client), ``src/pm/hydra`` (a server).
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from autojit.core.errors import UsageError

AGENT = "TORCHELASTIC_USE_AGENT_STORE"  # torchrun's own server has the port; the next one is free, mostly
_MAXES = {"kvsname_max": 256, "keylen_max": 64, "vallen_max": 1024}
_SPACE = "kvs_autojit"
_LIBRARIES = ("MPICH", "Intel(R) MPI", "MVAPICH")
_kept: list[Any] = []  # connections and servers, which last as long as the process

Address = tuple[str, int]


class ProcessManager:
    """Answers the processes of a job, each on a thread of its own.

    Args:
        size: how many processes there are.
        address: where they come to; port 0 takes any.
    """

    def __init__(self, size: int, address: Address) -> None:
        self.size = size
        self.listener = socket.create_server(address, backlog=max(size, 16))
        self.address: Address = self.listener.getsockname()[:2]
        self.values: dict[str, str] = {}
        self.all_are_here = threading.Barrier(size)
        self.answers: dict[str, Callable[[Mapping[str, str]], dict[str, object]]] = {
            "init": lambda _: {"cmd": "response_to_init", "pmi_version": 1, "pmi_subversion": 1},
            "get_maxes": lambda _: {"cmd": "maxes", **_MAXES},
            "get_appnum": lambda _: {"cmd": "appnum", "appnum": 0},
            "get_my_kvsname": lambda _: {"cmd": "my_kvsname", "kvsname": _SPACE},
            "get_universe_size": lambda _: {"cmd": "universe_size", "size": size},
            "put": self._put,
            "get": self._get,
            "barrier_in": self._barrier,
            "finalize": lambda _: {"cmd": "finalize_ack"},
        }
        threading.Thread(target=self._accept, name="autojit-process-manager", daemon=True).start()

    def _accept(self) -> None:
        for _ in range(self.size):
            connection, _ = self.listener.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
        self.listener.close()

    def _serve(self, connection: socket.socket) -> None:
        """Answer one process until it leaves."""
        with connection, connection.makefile("r", encoding="utf-8", newline="\n") as lines:
            for line in lines:
                given = dict(pair.partition("=")[::2] for pair in line.split())
                answer = self.answers.get(given.get("cmd", ""))
                if answer is None:  # to start or to look up other jobs, or an abort, after which the process ends
                    told: dict[str, object] = {"cmd": given.get("cmd", "") + "_result", "rc": -1, "msg": "unknown"}
                else:
                    told = {"rc": 0, **answer(given)}
                words = " ".join(f"{name}={told[name]}" for name in ("cmd", *(k for k in told if k != "cmd")))
                connection.sendall(f"{words}\n".encode())

    def _put(self, given: Mapping[str, str]) -> dict[str, object]:
        self.values[given["key"]] = given["value"]
        return {"cmd": "put_result", "msg": "success"}

    def _get(self, given: Mapping[str, str]) -> dict[str, object]:
        found = self.values.get(given["key"])
        if found is None:
            return {"cmd": "get_result", "rc": -1, "msg": "key_not_found", "value": "unknown"}
        return {"cmd": "get_result", "msg": "success", "value": found}

    def _barrier(self, given: Mapping[str, str]) -> dict[str, object]:
        self.all_are_here.wait()
        return {"cmd": "barrier_out"}


def connected(rank: int, size: int, address: Address, timeout_s: float) -> socket.socket:
    """A connection to the manager of a job, which rank 0 starts.

    Raises:
        UsageError: rank 0 does not come, or the port is taken.
    """
    host, port = address
    facts = {"rank": rank, "world_size": size, "MASTER_ADDR": host, "MASTER_PORT": port}
    if rank == 0:
        try:
            _kept.append(ProcessManager(size, ("" if host not in ("localhost", "127.0.0.1") else host, port)))
        except OSError as error:
            facts["error"] = error
            raise UsageError("init_process_group: rank 0 cannot listen", facts, "set another MASTER_PORT") from None
    until = time.monotonic() + timeout_s
    while True:
        try:
            found = socket.create_connection((host, port), timeout=max(1.0, until - time.monotonic()))
            found.settimeout(None)
            return found
        except OSError as error:
            if time.monotonic() > until:
                facts["error"] = error
                fix = "start all ranks, rank 0 at MASTER_ADDR, or pass a longer timeout"
                raise UsageError("init_process_group: rank 0 does not answer", facts, fix) from None
            time.sleep(0.05)


def joined(rank: int, size: int, address: Address, timeout_s: float) -> bool:
    """Let this process be a rank of an MPI job; False where the MPI library has another protocol."""
    mpi = _uninitialised()
    if mpi is None or mpi.Is_initialized() or not any(name in mpi.Get_library_version() for name in _LIBRARIES):
        return False
    connection = connected(rank, size, address, timeout_s)
    _kept.append(connection)
    given = {"PMI_FD": connection.fileno(), "PMI_RANK": rank, "PMI_SIZE": size}
    os.environ.update({name: str(value) for name, value in given.items()})
    try:
        mpi.Init_thread(mpi.THREAD_MULTIPLE)
    finally:
        for name in given:  # processes that it starts are no ranks
            os.environ.pop(name, None)
    return True


def _uninitialised() -> Any:
    """``mpi4py.MPI`` before MPI has asked who its manager is; None where it is not installed."""
    try:
        import mpi4py

        if "mpi4py.MPI" not in sys.modules:
            mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
        from mpi4py import MPI
    except (ImportError, RuntimeError):
        return None
    return MPI


def address_of(init_method: str | None, environment: Mapping[str, str] = os.environ) -> Address | None:
    """Where rank 0 of the job is, as the program or torchrun's variables say; None where nobody does."""
    if init_method is not None and init_method.startswith("tcp://"):
        host, _, port = init_method.removeprefix("tcp://").partition(":")
        return (host.strip("[]"), int(port)) if port.isdigit() else None
    host, port = environment.get("MASTER_ADDR", ""), environment.get("MASTER_PORT", "")
    if not host or not port.isdigit() or init_method not in (None, "env://"):
        return None
    return host, int(port) + (environment.get(AGENT, "") == "True")
