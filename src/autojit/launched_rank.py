"""Run as a program by MPI's launcher, one per rank: gives a program the variables that torchrun would, and becomes it.

It imports nothing of autojit, so that a rank costs one start of Python, and the program is `__main__` as without it.
"""

from __future__ import annotations

import os
import sys

_KNOWN = {
    "RANK": ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"),
    "WORLD_SIZE": ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"),
    "LOCAL_RANK": ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"),
    "LOCAL_WORLD_SIZE": ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"),
    "GROUP_RANK": (),
    "MASTER_ADDR": (),
    "MASTER_PORT": (),
}
_DEFAULTS = {"LOCAL_RANK": "0", "GROUP_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}

if __name__ == "__main__":
    for _name, _sources in _KNOWN.items():
        _found = next((os.environ[s] for s in _sources if s in os.environ), _DEFAULTS.get(_name))
        if _found is not None and (_sources or _name not in os.environ):
            os.environ[_name] = _found
    os.environ.setdefault("LOCAL_WORLD_SIZE", os.environ.get("WORLD_SIZE", "1"))
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
