"""What LLVM's code generators do wrong, kept away from them by rewriting optimised IR. For LLVM 22.

*Loads of a GPU that are one and the same to LLVM* (its load-store vectorizer). It takes two addresses with one base for
equal when their last indices are, and forgets that indices count elements of different sizes::

    %x = getelementptr float, ptr addrspace(1) %p, i64 %i       byte 4 i
    %y = getelementptr i8, ptr addrspace(1) %p, i64 %i          byte i: LLVM's own passes write this for (4 i >> 2) << 2

The second load is left out then. It looks through extensions of indices only, so an index that is frozen keeps the two
apart, and costs nothing.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict

KNOWN = "loads of different strides"
"""Names what is mended here, for cache keys."""

_ADDRESS = re.compile(
    r"^(?P<head> +%[^ ]+ = getelementptr (?:[a-z]+ )*)(?P<kind>[^,]+), (?P<base>ptr(?: addrspace\(\d+\))? [^ ,]+)"
    r", (?P<width>i\d+) (?P<index>%[^ ,\n]+)(?P<rest>.*)$",
    re.MULTILINE,
)


def mended(text: str) -> str | None:
    """The text of a module without what LLVM gets wrong; None where there is nothing of it."""
    kinds: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for found in _ADDRESS.finditer(text):
        kinds[found["base"]][found["kind"]] += 1
    mixed = {base: counts.most_common(1)[0][0] for base, counts in kinds.items() if len(counts) > 1}
    if not mixed:
        return None
    count = 0

    def frozen(found: re.Match[str]) -> str:
        nonlocal count
        if mixed.get(found["base"], found["kind"]) == found["kind"]:
            return found[0]
        count += 1
        name, index = f"%frozen.index.{count}", f"{found['width']} {found['index']}"
        address = f"{found['head']}{found['kind']}, {found['base']}, {found['width']} {name}{found['rest']}"
        return f"  {name} = freeze {index}\n{address}"

    return _ADDRESS.sub(frozen, text)
