"""Bytes that the text of a kernel reads from and writes to global memory, by the width of the access.

An access counts once where it stands alone and `TURNS` times for every loop around it: how often loops run is not in
the text. A loop is what is between a label and a branch back to it. What lanes have in
common and how many take part is not in it either: `tools.idle_device` runs blocks to know.
"""

from __future__ import annotations

import re
from collections import Counter

TURNS = 16
WIDEST = 16
"""Bytes: the widest access of a thread."""

_ACCESS = re.compile(r"\b(?:ld|st)(?:\.\w+)*?\.global(?:\.\w+)*?(?:\.v(\d))?\.[bfsu](\d+)\b")
_ASYNC = re.compile(r"\bcp\.async\.\w+\.shared(?:::\w+)?\.global(?:\.L2::\w+)?\s+\[[^\]]*\], *\[[^\]]*\], *(\d+)")
_LABEL = re.compile(r"^(\$\w+):")
_BRANCH = re.compile(r"\bbra(?:\.\w+)?\s+(\$\w+)\s*;")


def global_bytes(ptx: str) -> Counter[int]:
    """Bytes by the width of the access that they are part of."""
    found: Counter[int] = Counter()
    lines = ptx.splitlines()
    for line, depth in zip(lines, _depths(lines), strict=True):
        width = _width(line)
        if width:
            found[width] += width * TURNS**depth
    return found


def wide_share(widths: Counter[int]) -> float:
    """The part of the bytes that are accessed 16 at once; 1 where there are none."""
    total = sum(widths.values())
    return widths[WIDEST] / total if total else 1.0


def _width(line: str) -> int:
    found = _ACCESS.search(line)
    if found is not None:
        return int(found[1] or 1) * int(found[2]) // 8
    copied = _ASYNC.search(line)
    return int(copied[1]) if copied is not None else 0


def _depths(lines: list[str]) -> list[int]:
    """How many loops each line is in."""
    labels = {found[1]: number for number, line in enumerate(lines) if (found := _LABEL.match(line))}
    begins: dict[int, int] = {}  # where a loop begins -> its last branch back
    for number, line in enumerate(lines):
        found = _BRANCH.search(line)
        first = labels.get(found[1], number) if found else number
        if first < number:
            begins[first] = number
    depths = [0] * len(lines)
    for first, last in begins.items():
        for number in range(first, last + 1):
            depths[number] += 1
    return depths
