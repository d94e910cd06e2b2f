"""Reading idx files, the format MNIST is published in; plain or compressed with gzip.

A file is two zero bytes, a dtype code, the number of axes, each extent as a big-endian 32-bit number, then the values
in row-major order, big-endian. Source: Y. LeCun, "The MNIST database of handwritten digits".
"""

from __future__ import annotations

import gzip
import zlib
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.errors import ArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def find(directory: Path, stem: str) -> Path | None:
    """The file called ``stem`` in the directory, plain or with ``.gz``; also with a dot where MNIST has a dash."""
    for name in (stem, stem.replace("-idx", ".idx")):
        for path in (directory / name, directory / f"{name}.gz"):
            if path.is_file():
                return path
    return None


def read_idx(path: Path) -> NDArray[Any]:
    """The array in an idx file, in native byte order.

    Raises:
        ArgumentError: the file is not an idx file, or is damaged.
    """
    content = _content(path)
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _DTYPES:
        raise ArgumentError("demo: not an idx file", {"file": path, "first bytes": content[:4].hex(" ")})
    dtype, ndim = np.dtype(_DTYPES[content[2]]), content[3]
    start = 4 + 4 * ndim
    shape = tuple(int.from_bytes(content[k : k + 4], "big") for k in range(4, min(start, len(content)), 4))
    expected_bytes = start + prod(shape) * dtype.itemsize
    if len(shape) != ndim or len(content) != expected_bytes:
        raise ArgumentError(
            "demo: an idx file has the wrong size",
            {"file": path, "shape": shape, "expected bytes": expected_bytes, "found bytes": len(content)},
            "fetch the file again",
        )
    return np.frombuffer(content, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="))


def _content(path: Path) -> bytes:
    raw = path.read_bytes()
    if path.suffix != ".gz":
        return raw
    try:
        return gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as error:
        raise ArgumentError(
            "demo: a gzip file is damaged", {"file": path, "because": error}, "fetch it again"
        ) from None
