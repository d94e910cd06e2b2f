"""What LLVM's code generators do wrong, kept away from them by rewriting optimised IR. For LLVM 22.

*Loads of a GPU that are one and the same to LLVM* (its load-store vectorizer). It takes two addresses with one base for
equal when their last indices are, and forgets that indices count elements of different sizes::

    %x = getelementptr float, ptr addrspace(1) %p, i64 %i       byte 4 i
    %y = getelementptr i8, ptr addrspace(1) %p, i64 %i          byte i: LLVM's own passes write this for (4 i >> 2) << 2

The second load is left out then. So where elements of several sizes are counted from one base, bytes are counted.
"""

from __future__ import annotations

import re
from collections import defaultdict

KNOWN = "loads of different strides by bytes"
"""Names what is mended here, for cache keys."""

_ADDRESS = re.compile(
    r"^(?P<head> +%[^ ]+ = getelementptr (?:[a-z]+ )*)(?P<kind>[^,]+), (?P<base>ptr(?: addrspace\(\d+\))? [^ ,]+)"
    r", (?P<width>i\d+) (?P<index>%[^ ,\n]+)(?P<rest>.*)$",
    re.MULTILINE,
)
_SHIFTS = {"i16": 1, "half": 1, "bfloat": 1, "i32": 2, "float": 2, "i64": 3, "double": 3, "ptr": 3, "<4 x i32>": 4}
"""Of an element's number to its first byte's."""


def mended(text: str) -> str | None:
    """The text of a module without what LLVM gets wrong; None where there is nothing of it."""
    kinds: defaultdict[str, set[str]] = defaultdict(set)
    for found in _ADDRESS.finditer(text):
        kinds[found["base"]].add(found["kind"])
    mixed = {base for base, of_base in kinds.items() if len(of_base) > 1}
    if not mixed:
        return None
    count = 0

    def by_bytes(found: re.Match[str]) -> str:
        nonlocal count
        shift = _SHIFTS.get(found["kind"])
        if found["base"] not in mixed or shift is None:
            return found[0]
        count += 1
        name, width = f"%byte.index.{count}", found["width"]
        address = f"{found['head']}i8, {found['base']}, {width} {name}{found['rest']}"
        return f"  {name} = shl {width} {found['index']}, {shift}\n{address}"

    return _ADDRESS.sub(by_bytes, text)
