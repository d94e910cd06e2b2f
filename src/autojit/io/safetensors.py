"""The safetensors format: named tensors behind a JSON header.

``[u64 header size, little endian][header: JSON][data]``; the header maps each name to dtype, shape and the half-open
range of its bytes in the data, and ``__metadata__`` to a dict of strings. Everything is checked before any tensor is
made: the header is at most 100 MB, ranges tile the data exactly (no gap, no overlap), every range has the size its
dtype and shape ask for. Source: https://github.com/huggingface/safetensors, section "Format".
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from math import prod
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

import autojit as aj
from autojit.core.dtypes import DType
from autojit.io.load_errors import LoadError, reading
from autojit.tensor import Tensor

MAX_HEADER_BYTES = 100_000_000  # the format's own limit
_LIMIT = 1 << 59  # elements or bytes: far above any memory, far below what a 64-bit product overflows
_METADATA = "__metadata__"
_DTYPES: dict[str, DType] = {
    "BOOL": aj.bool, "U8": aj.uint8, "U16": aj.uint16, "U32": aj.uint32, "U64": aj.uint64, "I8": aj.int8,
    "I16": aj.int16, "I32": aj.int32, "I64": aj.int64, "F16": aj.float16, "BF16": aj.bfloat16, "F32": aj.float32,
    "F64": aj.float64, "C64": aj.complex64, "F8_E4M3": aj.float8_e4m3fn, "F8_E5M2": aj.float8_e5m2,
    "F8_E8M0": aj.float8_e8m0fnu,
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}

Path = str | os.PathLike[str]


class SafetensorsError(LoadError, ValueError):
    """A file that is not a valid safetensors file, or values that cannot become one."""


def _refuse(is_wrong: bool, what: str) -> None:
    if is_wrong:
        raise SafetensorsError(f"safetensors: {what}")


class Entry(NamedTuple):
    """One tensor of a header: where its bytes are in the data."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    begin: int
    end: int


# ---- writing


def save_file(tensors: Mapping[str, Tensor], filename: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors to a file, which appears complete or not at all.

    Raises:
        SafetensorsError: a dtype the format lacks, a name that is not a string, or a header above the limit.
    """
    with written_whole(filename) as file:
        write(tensors, file, metadata)


@contextlib.contextmanager
def written_whole(filename: Path) -> Iterator[BinaryIO]:
    """A file to write, which appears under its name when it is complete, or not at all."""
    path = os.fspath(filename)
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, "save: the path is a folder: give the name of a file in it", path)
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=".aj-", dir=os.path.dirname(path) or ".")
    except OSError as error:  # which names the temporary file, and nobody knows that
        raise type(error)(error.errno, f"save: {error.strerror}: the folder of the path", path) from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def save(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """The bytes of the file ``save_file`` writes."""
    buffer = io.BytesIO()
    write(tensors, buffer, metadata)
    return buffer.getvalue()


def write(tensors: Mapping[str, Tensor], file: BinaryIO, metadata: Mapping[str, str] | None = None) -> None:
    """Write to an open binary file, widest dtypes first so that all data is aligned."""
    arrays = {name: _array_of(name, tensor) for name, tensor in tensors.items()}
    order = sorted(arrays, key=lambda name: (-arrays[name][1].itemsize, name))
    header: dict[str, Any] = {}
    if metadata:
        header[_METADATA] = _checked_metadata(metadata)
    offset = 0
    for name in order:
        code, array = arrays[name]
        header[name] = {"dtype": code, "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    text += b" " * (-len(text) % 8)
    _refuse(len(text) > MAX_HEADER_BYTES, f"the header has {len(text)} bytes, more than {MAX_HEADER_BYTES}")
    file.write(len(text).to_bytes(8, "little"))
    file.write(text)
    for name in order:
        file.write(_as_bytes(arrays[name][1]))


def _array_of(name: object, tensor: object) -> tuple[str, NDArray[Any]]:
    _refuse(not isinstance(name, str) or name == _METADATA, f"a tensor cannot be called {name!r}")
    if not isinstance(tensor, Tensor):
        raise SafetensorsError(f"safetensors: {name!r} is no tensor but {type(tensor).__name__}")
    array = np.asarray(tensor.detach().cpu().numpy(), order="C")
    code = _NAMES.get(tensor.dtype)
    if code is None:
        raise SafetensorsError(f"safetensors: the format has no dtype {tensor.dtype} (tensor {name!r})")
    return code, array.astype(array.dtype.newbyteorder("<"), copy=False)


def _as_bytes(array: NDArray[Any]) -> memoryview:
    found: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return memoryview(found)


def _checked_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    pairs: Iterable[tuple[object, object]] = metadata.items()
    for key, value in pairs:
        if not isinstance(key, str) or not isinstance(value, str):
            raise SafetensorsError(f"safetensors: metadata must map strings to strings, got {key!r}: {value!r}")
    return dict(metadata)


# ---- reading


def load_file(filename: Path, device: Any = "cpu", *, mmap: bool = False) -> dict[str, Tensor]:
    """The tensors of a file by name; ``mmap`` maps them, so that they are read when they are looked at.

    Raises:
        SafetensorsError: the file is not valid.
    """
    found = load_file_with_metadata(filename, mmap=mmap)[0]
    return found if str(device) == "cpu" else {name: tensor.to(device) for name, tensor in found.items()}


def load_file_with_metadata(filename: Path, *, mmap: bool = False) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a file and its metadata."""
    with open(filename, "rb") as file, reading(filename):
        return read(file, os.fstat(file.fileno()).st_size, filename if mmap else None)


def load(data: bytes) -> dict[str, Tensor]:
    """The tensors in the bytes of a file."""
    with reading(None):
        return read(io.BytesIO(data), len(data))[0]


def read(file: BinaryIO, size_bytes: int, mapped: Path | None = None) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of an open file of ``size_bytes`` from its present position on.

    ``mapped`` is the path of the file if its tensors are to be mapped (copy-on-write) instead of read.
    """
    _refuse(size_bytes < 8, f"the file has {size_bytes} bytes, too few for a header size")
    header_size = int.from_bytes(_read_exactly(file, 8), "little")
    _refuse(header_size > MAX_HEADER_BYTES, f"the header claims {header_size} bytes, more than {MAX_HEADER_BYTES}")
    if header_size > size_bytes - 8:
        raise SafetensorsError(
            f"safetensors: the header claims {header_size} bytes, the file has {size_bytes - 8} left"
        )
    entries, metadata = parse_header(_read_exactly(file, header_size), size_bytes - 8 - header_size)
    tensors = {}
    for entry in entries:  # in the order of their bytes
        kind = entry.dtype.numpy.newbyteorder("<")
        if mapped is not None and entry.end > entry.begin:
            array = np.asarray(np.memmap(mapped, kind, "c", 8 + header_size + entry.begin, entry.shape or (1,)))
            array = array.reshape(entry.shape)
            array = array if array.flags.aligned else array.copy()
        else:
            array = np.empty(entry.shape, kind)
            _read_into(file, _as_bytes(array))
        if entry.dtype is aj.bool and array.size and int(array.view(np.uint8).max()) > 1:
            raise SafetensorsError(f"safetensors: tensor {entry.name!r} is BOOL but has bytes other than 0 and 1")
        tensors[entry.name] = aj.from_numpy(array.astype(entry.dtype.numpy, copy=False))
    return tensors, metadata


def _read_exactly(file: BinaryIO, count: int) -> bytes:
    found = file.read(count)
    _refuse(len(found) != count, f"the file ended early ({len(found)} of {count} bytes)")
    return found


def _read_into(file: BinaryIO, target: memoryview) -> None:
    done = filled(file, target)
    _refuse(done < len(target), f"the file ended early ({done} of {len(target)} bytes of a tensor)")


def filled(file: Any, target: Any) -> int:
    """Read up to as many bytes as ``target`` has; how many there were."""
    count, view = 0, memoryview(target)
    while count < len(view):
        if hasattr(file, "readinto"):
            more = file.readinto(view[count:])
        else:
            part = file.read(min(len(view) - count, 1 << 24))
            view[count : count + len(part)] = part
            more = len(part)
        if not more:
            break
        count += more
    return count


def parse_header(text: bytes, data_bytes: int) -> tuple[list[Entry], dict[str, str]]:
    """Entries in the order of their bytes, and the metadata; checks that they tile ``data_bytes`` exactly."""
    header = parse_json(text, "header")
    _refuse(not isinstance(header, dict), "the header is no JSON object")
    metadata = header.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise SafetensorsError("safetensors: __metadata__ must map strings to strings")
    entries = sorted((_entry(name, fields) for name, fields in header.items()), key=lambda e: (e.begin, e.end))
    position = 0
    for entry in entries:
        if entry.begin != position:
            what = "overlaps the one before" if entry.begin < position else "leaves a gap before it"
            raise SafetensorsError(f"safetensors: tensor {entry.name!r} at bytes {entry.begin}:{entry.end} {what}")
        position = entry.end
    _refuse(position != data_bytes, f"tensors cover {position} bytes, the file holds {data_bytes}")
    return entries, metadata


def parse_json(text: bytes, what: str) -> Any:
    """JSON without duplicate keys, NaN and unreasonable nesting; SafetensorsError otherwise."""
    try:
        return json.loads(text.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except SafetensorsError:
        raise
    except RecursionError:
        raise SafetensorsError(f"safetensors: the {what} is nested too deeply") from None
    except ValueError as error:
        raise SafetensorsError(f"safetensors: the {what} is no valid JSON: {error}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    _refuse(len(found) != len(pairs), "a key occurs twice in the header")
    return found


def _no_constant(name: str) -> Any:
    raise SafetensorsError(f"safetensors: {name} is not allowed in the header")


def _entry(name: str, fields: Any) -> Entry:
    """Check one header entry by itself."""
    if not isinstance(fields, dict) or set(fields) != {"dtype", "shape", "data_offsets"}:
        raise SafetensorsError(f"safetensors: tensor {name!r} must have exactly dtype, shape and data_offsets")
    code = fields["dtype"]
    dtype = _DTYPES.get(code) if isinstance(code, str) else None
    if dtype is None:
        raise SafetensorsError(f"safetensors: tensor {name!r} has the unknown dtype {code!r}")
    shape = _sizes(name, "shape", fields["shape"])
    offsets = _sizes(name, "data_offsets", fields["data_offsets"])
    _refuse(len(shape) > 64, f"tensor {name!r} has {len(shape)} axes, more than 64")
    _refuse(len(offsets) != 2 or offsets[0] > offsets[1], f"tensor {name!r} has the offsets {list(offsets)}")
    if prod(max(extent, 1) for extent in shape) >= _LIMIT:
        raise SafetensorsError(f"safetensors: tensor {name!r} has the impossible shape {list(shape)}")
    wanted = dtype.size_bytes * prod(shape)
    if wanted != offsets[1] - offsets[0]:
        raise SafetensorsError(
            f"safetensors: tensor {name!r} of {code} and shape {list(shape)} needs {wanted} bytes, "
            f"its offsets give {offsets[1] - offsets[0]}"
        )
    return Entry(name, dtype, shape, offsets[0], offsets[1])


def _sizes(name: str, what: str, values: Any) -> tuple[int, ...]:
    _refuse(not isinstance(values, list), f"{what} of tensor {name!r} is no list")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _LIMIT:
            raise SafetensorsError(f"safetensors: {what} of tensor {name!r} holds {value!r}")
    return tuple(values)
