"""Which code writes the texts: long texts that nothing else decides need not be written to find their objects."""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import sha256

from autojit.core.once import once

_PRODUCTS = ("core", "codegen", "codegen/cpu", "codegen/cpu/plan", "codegen/cpu/products")
"""What writes the matrix products and the bodies around them. Other rooms write nothing of them."""
_COMPILER = ("", "core", "ir", "ops", "transforms", "passes", "schedule", "codegen")
"""What makes a lowered step of a graph, with the rooms inside; the first is the compiler's one door."""
_OF_DEVICES = "codegen/cuda"
"""Writes nothing of a step of the host."""


@once
def writers_identity() -> str | None:
    """Names the sources by sizes and times, which Python itself trusts for its bytecode; None: there are no files.

    Example:
        >>> writers_identity() == writers_identity()
        True
    """
    return _identity(_PRODUCTS)


@once
def compilers_identity(kind: str) -> str | None:
    """The same for everything that a lowered step for this kind of device depends on."""
    return _identity(_COMPILER, inside=True, but="" if kind != "cpu" else _OF_DEVICES)


def _identity(rooms: Sequence[str], inside: bool = False, but: str = "") -> str | None:
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    seen = []
    waiting = list(rooms)
    try:
        for room in waiting:
            with os.scandir(os.path.join(package, room)) as entries:
                for entry in entries:
                    name = entry.name
                    if name.endswith(".py"):
                        status = entry.stat()
                        seen.append((room, name, status.st_size, status.st_mtime_ns))
                    elif inside and room and "." not in name and name[0] != "_" and f"{room}/{name}" != but:
                        waiting.append(f"{room}/{name}")
    except OSError:  # the package is in an archive
        return None
    return sha256(repr(sorted(seen)).encode()).hexdigest()
