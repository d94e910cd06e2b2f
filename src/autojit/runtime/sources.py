"""Which code writes the texts: long texts that nothing else decides need not be written to find their objects."""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import sha256

from autojit.core.once import once

_PRODUCTS = ("core", "codegen", "codegen/cpu", "codegen/cpu/products")
"""What writes the matrix products. Other rooms write nothing of them."""
_COMPILER = ("", "core", "ir", "ops", "transforms", "passes", "schedule", "codegen", "runtime")
"""What makes a lowered step of a graph, with all rooms inside; the first is the compiler's one door."""


@once
def writers_identity() -> str | None:
    """Names the sources by sizes and times, which Python itself trusts for its bytecode; None: there are no files.

    Example:
        >>> writers_identity() == writers_identity()
        True
    """
    return _identity(_PRODUCTS, inside=False)


@once
def compilers_identity() -> str | None:
    """The same for everything that a lowered step depends on."""
    return _identity(_COMPILER, inside=True)


def _identity(rooms: Sequence[str], inside: bool) -> str | None:
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    digest = sha256()
    waiting = list(rooms)
    try:
        for room in waiting:
            with os.scandir(os.path.join(package, room)) as entries:
                for entry in sorted(entries, key=lambda entry: entry.name):
                    if entry.name.endswith(".py"):
                        status = entry.stat()
                        digest.update(f"{room}/{entry.name} {status.st_size} {status.st_mtime_ns}\n".encode())
                    elif inside and room and "." not in entry.name and not entry.name.startswith("_"):
                        waiting.append(f"{room}/{entry.name}")
    except OSError:  # the package is in an archive
        return None
    return digest.hexdigest()
