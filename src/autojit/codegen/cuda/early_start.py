"""Kernels that start while those before them end: each waits first of all, and lets others start as its last act.

A kernel that a graph starts early (`KernelNode.starts_early`) has its blocks and its parameters in place when what it
waits for ends; to start an empty one takes 0.5 us instead of 0.8 on an H100. It waits until all that it comes after is
complete and visible. Those behind it may start when its last threads end: what is complete for it is complete for them,
and what waits takes no room that others could have. Launched otherwise it waits for nothing.

The instructions are put into PTX, in front of all others: of LLVM's own loads of memory that nobody else writes some
would move in front of a wait that LLVM knows.
"""

from __future__ import annotations

import re

FROM_CAPABILITY = 90
"""Of the GPU; older ones have no such instruction."""

WAIT, LET_START = "griddepcontrol.wait", "griddepcontrol.launch_dependents"
_ENTRY = re.compile(
    r"(^\.visible \.entry [^{]*^\{\n(?:[ \t]*(?:\.reg |\.shared |\.local |//)[^\n]*\n|[ \t]*\n)*)(.*?)(?=^\}$)",
    re.M | re.S,
)
_END = re.compile(r"^\tret;$", re.M)


def with_early_start(ptx: str) -> str:
    """A module whose kernels wait first, and at their end let others start.

    Raises:
        ValueError: it has no kernel.
    """
    found, count = _ENTRY.subn(_waiting, ptx)
    if not count:
        raise ValueError("a module without a kernel")
    return found


def _waiting(kernel: re.Match[str]) -> str:
    head, body = kernel.groups()
    body = _END.sub(f"\t{LET_START};\n\tret;", body)
    return f"{head}\t{WAIT};\n{body}"
