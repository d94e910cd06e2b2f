"""Kernels that start while those before them end: each waits before it touches what these may write.

A kernel that a graph starts early (`KernelNode.starts_early`) has its blocks and its parameters in place when what it
waits for ends; to start an empty one takes 0.5 us instead of 0.8 on an H100. Before it waits it works out addresses,
and reads what is settled: buffers that none of the kernels right before it writes (`Start.settled`). All others in
front of it are complete by then, because those right before it let it start only once they have waited themselves.

Those behind a kernel may start when its last threads end; of a small kernel, whose blocks and theirs fit on a device
side by side, as soon as it has waited (`Start.lets_early`). Otherwise what waits would take room that others could
have. Launched without a graph a kernel waits for nothing.

The instructions are put into PTX: of LLVM's own loads of memory that nobody else writes some would move in front of a
wait that LLVM knows. The launch says what it knows in a comment of its module (`Start.line`), which LLVM hands on.
"""

from __future__ import annotations

import re

from autojit.codegen.cuda.early_reads import Parted, parted
from autojit.core.records import record

FROM_CAPABILITY = 90
"""Of the GPU; older ones have no such instruction."""

WAIT, LET_START = "griddepcontrol.wait", "griddepcontrol.launch_dependents"
_ENTRY = re.compile(
    r"(^\.visible \.entry [^{]*^\{\n(?:[ \t]*(?:\.reg |\.shared |\.local |//)[^\n]*\n|[ \t]*\n)*)(.*?)(?=^\}$)",
    re.M | re.S,
)
_END = re.compile(r"^\tret;$", re.M)
_SAID = re.compile(r"^// starts:(?P<early> lets others early,)? settled(?P<settled>[ \d]*)$", re.M)


@record
class Start:
    """What a launch knows of the beginning of its kernel.

    Args:
        settled: its parameters that are addresses of memory which no launch right before it writes.
        lets_early: those behind it may start as soon as it has waited.
    """

    settled: tuple[int, ...] = ()
    lets_early: bool = False

    def line(self) -> str:
        """A line of the module that says it; none where there is nothing to say."""
        if not self.settled and not self.lets_early:
            return ""
        early = " lets others early," if self.lets_early else ""
        return f'module asm "// starts:{early} settled{"".join(f" {k}" for k in self.settled)}"'


def with_early_start(ptx: str) -> str:
    """A module whose kernels wait as late as they may, and let others start.

    Raises:
        ValueError: it has no kernel.
    """
    said = _SAID.search(ptx)
    start = Start() if said is None else Start(tuple(map(int, said["settled"].split())), bool(said["early"]))
    found, count = _ENTRY.subn(lambda kernel: _waiting(kernel[1], kernel[2], start), ptx)
    if not count:
        raise ValueError("a module without a kernel")
    return found


def _waiting(head: str, body: str, start: Start) -> str:
    parts: Parted = parted(body, start.settled)
    first = f"\t{WAIT};\n" + f"\t{LET_START};\n" * start.lets_early
    rest = "".join(parts.after) + parts.rest
    end = f"\t{WAIT};\n" * parts.leaves + f"\t{LET_START};\n" * (not start.lets_early)
    if end:
        rest = _END.sub(lambda _: f"{end}\tret;", rest)
    return f"{head}{''.join(parts.before)}{first}{rest}"
