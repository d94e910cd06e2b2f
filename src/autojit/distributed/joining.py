"""How a process that no launcher of MPI's has started becomes a rank: torchrun's variables, and `process_manager`."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Mapping
from typing import Any

from autojit.core.errors import UsageError
from autojit.distributed import process_manager

AGENT = "TORCHELASTIC_USE_AGENT_STORE"  # torchrun's own server has the port; the next one is free, mostly
_LIBRARIES = ("MPICH", "Intel(R) MPI", "MVAPICH")
_HERE = ("localhost", "127.0.0.1")

Address = tuple[str, int]


def _start_manager(size: int, listener: socket.socket) -> None:
    listener.set_inheritable(True)
    line = [sys.executable, "-P", process_manager.__file__, str(size), str(listener.fileno())]
    os.posix_spawn(sys.executable, line, os.environ)


def connected(rank: int, size: int, address: Address, timeout_s: float) -> socket.socket:
    """A connection to the manager of a job, which rank 0 starts.

    Raises:
        UsageError: rank 0 does not come, or the port is taken.
    """
    host, port = address
    facts = {"rank": rank, "world_size": size, "MASTER_ADDR": host, "MASTER_PORT": port}
    if rank == 0:
        try:
            with socket.create_server((host if host in _HERE else "", port), backlog=max(size, 16)) as listener:
                _start_manager(size, listener)
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
    descriptor = connected(
        rank, size, address, timeout_s
    ).detach()  # MPI's own end comes after that of Python's objects
    given = {"PMI_FD": descriptor, "PMI_RANK": rank, "PMI_SIZE": size}
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
