"""Bytes that the text of a kernel reads from and writes to global memory, by the width of the access.

An access counts once where it stands alone and `TURNS` times for every loop around it: how often loops run is not in
the text. A loop is what is between a label and a branch back to it. Words that a step
keeps beside its data, addresses and reported errors, are not counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection

TURNS = 16
WIDEST = 16
"""Bytes: the widest access of a thread."""

_ACCESS = re.compile(r"\b(?:ld|st)(?:\.\w+)*?\.global(?:\.\w+)*?(?:\.v(\d))?\.[bfsu](\d+)\b")
_ASYNC = re.compile(r"\bcp\.async\.\w+\.shared(?:::\w+)?\.global(?:\.L2::\w+)?\s+\[[^\]]*\], *\[[^\]]*\], *(\d+)")
_LABEL = re.compile(r"^(\$\w+):")
_BRANCH = re.compile(r"\bbra(?:\.\w+)?\s+(\$\w+)\s*;")


_PARAMETER = re.compile(r"ld\.param\.b64\s+(%\w+), \[kernel_param_(\d+)\]")
_CONVERTED = re.compile(r"cvta\.to\.global\.u64\s+(%\w+), (%\w+)")
_OF_WORDS = re.compile(r"\bld\.global(?:\.\w+)*\s+\S+ \[(%\w+)")


def global_bytes(ptx: str, words: Collection[int] = ()) -> Counter[int]:
    """Bytes by the width of the access that they are part of.

    Args:
        words: parameters that are no buffers: a step's device table, its error words.
    """
    found: Counter[int] = Counter()
    lines = ptx.splitlines()
    apart = _registers_of(lines, words)
    for line, depth in zip(lines, _depths(lines), strict=True):
        width = _width(line)
        read = _OF_WORDS.search(line)
        if width and not (read and read[1] in apart):
            found[width] += width * TURNS**depth
    return found


def _registers_of(lines: list[str], parameters: Collection[int]) -> set[str]:
    """The registers that hold parameters, as they came and as addresses of global memory."""
    names = {found[1] for line in lines if (found := _PARAMETER.search(line)) and int(found[2]) in parameters}
    for line in lines:
        found = _CONVERTED.search(line)
        if found and found[2] in names:
            names.add(found[1])
    return names


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
