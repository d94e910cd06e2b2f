"""A GPU that code is generated for, as LLVM names it."""

from __future__ import annotations

from typing import ClassVar

from autojit.codegen.target import Emission
from autojit.core.records import record


@record
class CudaTarget:
    """What LLVM and the printers of kernels need to know of one kind of GPU.

    Args:
        cpu: the architecture, such as ``sm_90``.
        processors: streaming multiprocessors, which a grid should keep busy.
        rounds_operands: matrix products of float32 may round their operands to 11 bits.
    """

    cpu: str
    processors: int
    rounds_operands: bool = False
    triple: ClassVar[str] = "nvptx64-nvidia-cuda"
    emit: ClassVar[Emission] = "ptx"

    @property
    def features(self) -> str:
        """None: the version of PTX is the lowest that LLVM chooses for the architecture."""
        return ""

    @property
    def capability(self) -> int:
        """Major and minor number of the compute capability as one: 90 for ``sm_90``."""
        return int("".join(c for c in self.cpu if c.isdigit()))
