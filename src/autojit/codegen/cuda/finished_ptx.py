"""What is done to the PTX that LLVM makes, which knows nothing of some things: all kernels go through here."""

from __future__ import annotations

from autojit.codegen.cuda.early_start import FROM_CAPABILITY, with_early_start
from autojit.codegen.cuda.product_groups import with_architecture
from autojit.codegen.cuda.target import CudaTarget


def finished_ptx(ptx: str, target: CudaTarget) -> str:
    """A module of LLVM's, as the driver's compiler is given it."""
    named = with_architecture(ptx)
    return with_early_start(named) if target.capability >= FROM_CAPABILITY else named
