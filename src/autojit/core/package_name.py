"""What the names of dtypes, sizes and functions begin with when they are shown.

``autojit``, or ``torch`` to a program that imports torch and gets autojit: such programs compare them with texts
(``str(x.dtype) == "torch.float32"``).
"""

from __future__ import annotations

PACKAGE = ["autojit"]
"""The names that are in force, the last one now."""


def full_name(name: str) -> str:
    """``autojit.float32`` of ``float32``."""
    return f"{PACKAGE[-1]}.{name}"
