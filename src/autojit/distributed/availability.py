"""What there is to connect processes, and what started this one."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

from autojit.core.errors import UsageError
from autojit.distributed import environment

__all__ = [
    "Backend", "get_node_local_rank", "is_available", "is_backend_available", "is_gloo_available", "is_mpi_available",
    "is_nccl_available", "is_torchelastic_launched", "is_ucc_available", "is_xccl_available",
]  # fmt: skip


class Backend(str):
    """The name of a backend, in lower case. Whichever a program names, MPI takes its place.

    Raises:
        ValueError: it is not a text.

    Example:
        >>> import autojit as aj
        >>> aj.distributed.Backend("GLOO") == aj.distributed.Backend.GLOO == "gloo"
        True
    """

    UNDEFINED, GLOO, NCCL, UCC, MPI, XCCL = "undefined", "gloo", "nccl", "ucc", "mpi", "xccl"
    backend_list = (UNDEFINED, GLOO, NCCL, XCCL, UCC, MPI)

    def __new__(cls, name: str) -> Backend:
        if not isinstance(name, str):
            raise ValueError(f"Backend constructor parameter must be string-ish, got {name!r}")
        return super().__new__(cls, name.lower())


def is_available() -> bool:
    """Whether processes can work together: mpi4py is installed. A group of one process is always possible."""
    return is_mpi_available()


def is_mpi_available() -> bool:
    """Whether mpi4py is installed."""
    return "mpi4py" in sys.modules or find_spec("mpi4py") is not None


def is_gloo_available() -> bool:
    """Whether a program may ask for ``gloo``: it gets MPI."""
    return is_mpi_available()


def is_nccl_available() -> bool:
    """Whether there is NCCL: no. A program that asks for it gets MPI, by way of the host's memory."""
    return False


is_ucc_available = is_xccl_available = is_nccl_available


def is_backend_available(backend: str) -> bool:
    """Whether there is such a backend."""
    return backend.lower() in ("mpi", "gloo") and is_mpi_available()


def is_torchelastic_launched() -> bool:
    """Whether torchrun has started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """This process's number on its machine.

    Raises:
        RuntimeError: the launcher has not said, and there is no fallback.
    """
    found = environment.number(("LOCAL_RANK", *environment.LOCAL_RANKS))
    found = fallback_rank if found is None else found
    if found is None:
        raise UsageError("LOCAL_RANK is not in the environment", fix="python -m autojit.launch sets it")
    return int(found)
