"""Kernels of structured ops on contiguous operands: scatters and scans, as LLVM text.

Arguments of a kernel: the operands' pointers, then the results'. What has no printer here is called back from the step
through its eager rule, and counted.
"""

from __future__ import annotations

from autojit.codegen.cpu.kernel_text import KernelText
from autojit.ir.graph import Node


def print_structured(node: Node) -> KernelText | None:
    """The kernel of a node, or None when the op has no native lowering."""
    return None
