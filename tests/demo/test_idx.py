"""What is written as idx reads back; what is damaged is refused by name."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from autojit.core.errors import ArgumentError
from autojit.demo.idx import find, read_idx

CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}


def idx_bytes(array: NDArray[np.generic]) -> bytes:
    extents = b"".join(extent.to_bytes(4, "big") for extent in array.shape)
    code = CODES[array.dtype.str[1:]]
    return bytes([0, 0, code, array.ndim]) + extents + array.astype(array.dtype.newbyteorder(">")).tobytes()


@pytest.mark.parametrize("dtype", CODES)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3, 4)])
def test_reads_back_what_was_written(dtype: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    array = (np.arange(np.prod(shape)) - 3).astype(dtype).reshape(shape)
    path = tmp_path / "a"
    path.write_bytes(idx_bytes(array))
    found = read_idx(path)
    assert found.dtype == array.dtype
    assert found.dtype.isnative
    np.testing.assert_array_equal(found, array)


def test_reads_compressed_files(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(idx_bytes(np.arange(4, dtype=np.uint8))))
    assert find(tmp_path, "a") == path
    assert read_idx(path).tolist() == [0, 1, 2, 3]


GOOD = idx_bytes(np.arange(12, dtype=np.uint8).reshape(3, 4))


@pytest.mark.parametrize("content", [*(GOOD[:cut] for cut in range(len(GOOD))), GOOD + b"x", b"PNG" + GOOD], ids=len)
def test_refuses_damaged_files(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(content)
    with pytest.raises(ArgumentError, match="idx file"):
        read_idx(path)


@pytest.mark.parametrize("content", [b"", b"no gzip", gzip.compress(GOOD)[:-5]], ids=["empty", "plain", "cut short"])
def test_refuses_damaged_compression(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(content)
    with pytest.raises(ArgumentError):
        read_idx(path)
