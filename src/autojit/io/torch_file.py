"""torch's zip files: ``data.pkl`` lists the contents, ``data/0``, ``data/1``, ... are the bytes of the storages.

Only files whose records are stored (not compressed) are read, as torch writes them: so no file can need more memory
than it has bytes, and a record can be mapped instead of read.
Source: https://docs.pytorch.org/docs/stable/notes/serialization.html
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import zipfile
import zlib
from collections.abc import Mapping
from types import FunctionType
from typing import Any, BinaryIO, Literal, NamedTuple

import numpy as np

import autojit as aj
from autojit.core.dtypes import DType
from autojit.io.file_options import get_crc32_options, get_default_mmap_options, is_big_by_default, skips_data
from autojit.io.load_errors import LoadError, refuse
from autojit.io.pickle_reader import PickleReader, is_known, named_in
from autojit.io.pickle_writer import PickleWriter
from autojit.io.places import place_of
from autojit.io.safetensors import filled
from autojit.io.torch_names import LoadedStorage, StorageKind
from autojit.nn.jitted import JittedModule
from autojit.nn.utils.prune import BasePruningMethod

_ALIGNMENT = 64
_LOCAL_HEADER_BYTES = 30
_LONG_SIZES_BYTES = 20  # more in the header of a record above 2 GiB
_MOST_RECORDS = 1 << 22
_DAMAGED = (zipfile.BadZipFile, NotImplementedError, EOFError, struct.error, ValueError, OverflowError, zlib.error)


# ---- writing


def write_file(obj: Any, file: BinaryIO, name: str, protocol: int = 2, *, tells_order: bool = True) -> None:
    """Write an object; ``name`` is the folder inside of the file, as torch takes it from the file's own name.

    Raises:
        RecursionError: containers are nested too deeply.
    """
    writer = PickleWriter.into_memory(protocol)
    writer.dump(obj)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        out = _Records(archive, name)
        out.add("data.pkl", writer.text())
        out.add(".format_version", b"1")
        out.add(".storage_alignment", str(_ALIGNMENT).encode())
        if tells_order:
            out.add("byteorder", sys.byteorder.encode())
        for key, memory in writer.storages.items():
            out.add(f"data/{key}", memory, is_checked=not skips_data())  # what comes later has another checksum
        out.add("version", b"3\n")


class _Records:
    """The records of a zip file that is being written, each aligned for mapping."""

    def __init__(self, archive: zipfile.ZipFile, folder: str) -> None:
        self.archive = archive
        self.folder = folder

    def add(self, name: str, content: Any, *, is_checked: bool = True) -> None:
        """One more record, with its checksum unless it is not to be checked."""
        info = zipfile.ZipInfo(f"{self.folder}/{name}", (1980, 1, 1, 0, 0, 0))
        view = memoryview(content)
        info.file_size = info.compress_size = view.nbytes
        info.CRC = zlib.crc32(view) if is_checked and get_crc32_options() else 0
        sizes_bytes = _LONG_SIZES_BYTES if view.nbytes > zipfile.ZIP64_LIMIT else 0
        begin = self.archive.start_dir + _LOCAL_HEADER_BYTES + len(info.filename.encode()) + 4 + sizes_bytes
        padding = -begin % _ALIGNMENT
        info.extra = struct.pack("<2sH", b"FB", padding) + b"Z" * padding
        file: Any = self.archive.fp
        info.header_offset = file.tell()
        file.write(info.FileHeader())
        file.write(view)
        info.extra = b""  # the directory at the end needs no padding
        self.archive.filelist.append(info)
        self.archive.NameToInfo[info.filename] = info
        self.archive.start_dir = file.tell()


# ---- reading


class _Source(NamedTuple):
    """Where the bytes are: an open file, and its path when records are to be mapped."""

    archive: zipfile.ZipFile
    file: BinaryIO
    size_bytes: int
    path: str | None


def read_file(
    file: BinaryIO, map_location: Any, path: str | None = None, encoding: str = "utf-8", with_modules: bool = False
) -> Any:
    """The object of an open file.

    Args:
        map_location: where storages of other devices go: a device, a dict of them, or a function.
        path: the file's path, to map its storages copy-on-write instead of reading them.
        with_modules: whether the file may hold whole modules, of classes that the program has.

    Raises:
        LoadError: the file is damaged.
        UnsafeGlobalError: it names something that is not allowed.
    """
    return _reader(file, map_location, path).object(encoding, names_of_modules() if with_modules else {})


def names_of_modules() -> dict[str, Any]:
    """The classes of modules, pruning methods and tensors that the program has, autojit's own and others, and the
    functions of ``nn.functional``, by their full names. Of two classes of one name the one made last is meant.
    """
    kinds: list[Any] = [aj.nn.Module, BasePruningMethod, aj.Tensor]
    for kind in kinds:  # grows as it is walked: classes that follow from those before
        kinds += [k for k in kind.__subclasses__() if not issubclass(k, JittedModule)]  # which have the names of others
    functions = [f for f in vars(aj.nn.functional).values() if isinstance(f, FunctionType)]
    return {f"{found.__module__}.{found.__qualname__}": found for found in (*kinds, *functions)}


def unknown_names(file: BinaryIO) -> list[str]:
    """The classes and functions that an open file names and that are not allowed.

    Raises:
        LoadError: the file is damaged.
    """
    return _reader(file, "cpu", None).unknown_names()


def _reader(file: BinaryIO, map_location: Any, path: str | None) -> _Reader:
    size_bytes = file.seek(0, os.SEEK_END)
    file.seek(0)
    try:
        archive = zipfile.ZipFile(file)
    except _DAMAGED as error:
        raise LoadError(f"load: this is no zip file, or it is damaged: {error}") from None
    return _Reader(_Source(archive, file, size_bytes, path), map_location)


class _Reader:
    """Reads one file; storages are read when the pickle first refers to them."""

    def __init__(self, source: _Source, map_location: Any) -> None:
        self.source = source
        self.map_location = map_location
        self.storages: dict[str, LoadedStorage] = {}
        self.read_bytes = 0
        self.folder = self._folder()
        has_order = f"{self.folder}/byteorder" in source.archive.NameToInfo
        self.is_big = bytes(self._record("byteorder")) == b"big" if has_order else is_big_by_default()

    def _folder(self) -> str:
        names = self.source.archive.namelist()
        refuse(len(names) > _MOST_RECORDS, f"the file has {len(names)} records")
        found = [n for n in names if n.endswith("/data.pkl") and n.count("/") == 1]
        refuse(len(found) != 1, "the zip file holds no data.pkl, so torch did not write it")
        folder = found[0].removesuffix("/data.pkl")
        if f"{folder}/constants.pkl" in names or any(n.startswith(f"{folder}/code/") for n in names):
            raise LoadError(
                "load: this is a TorchScript program, not a file of tensors",
                fix="in torch: torch.save(torch.jit.load(file).state_dict(), file)",
            )
        return folder

    def _located(self, name: str) -> tuple[zipfile.ZipInfo, int]:
        """A record and where its bytes begin in the file."""
        try:
            info = self.source.archive.getinfo(f"{self.folder}/{name}")
        except KeyError:
            raise LoadError(f"load: the file has no record {name}") from None
        self._check(info)
        self.source.file.seek(info.header_offset)
        header = self.source.file.read(_LOCAL_HEADER_BYTES)
        refuse(len(header) != _LOCAL_HEADER_BYTES or header[:4] != b"PK\x03\x04", f"the record {name} is damaged")
        begin = info.header_offset + _LOCAL_HEADER_BYTES + sum(struct.unpack("<HH", header[26:30]))
        refuse(begin + info.file_size > self.source.size_bytes, f"the record {name} reaches beyond the file")
        return info, begin

    def _record(self, name: str) -> Any:
        """The bytes of a record in fresh memory; their checksum is verified, if there is one."""
        info, begin = self._located(name)
        found = np.empty(info.file_size, np.uint8)
        self.source.file.seek(begin)
        refuse(filled(self.source.file, found) != info.file_size, f"the record {name} ends early")
        is_damaged = info.CRC and zlib.crc32(found.data) != info.CRC  # 0: the writer made none
        refuse(bool(is_damaged), f"the record {name} is damaged: its checksum (CRC-32) is another")
        return found

    def _check(self, info: zipfile.ZipInfo) -> None:
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
            raise LoadError(f"load: the record {info.filename} is compressed or encrypted; torch stores records as is")
        if not 0 <= info.header_offset < self.source.size_bytes:
            raise LoadError(f"load: the record {info.filename} is outside of the file")
        self.read_bytes += info.file_size
        if info.file_size != info.compress_size or self.read_bytes > self.source.size_bytes:
            raise LoadError(f"load: the record {info.filename} claims more bytes than the file has")

    def _mapped(self, name: str) -> Any:
        """The bytes of a record, mapped copy-on-write; read only when they are looked at."""
        info, begin = self._located(name)
        if not info.file_size:
            return np.empty(0, np.uint8)
        assert self.source.path is not None
        mode: Literal["r+", "c"] = "r+" if get_default_mmap_options() == mmap.MAP_SHARED else "c"
        return np.asarray(np.memmap(self.source.path, np.uint8, mode, begin, (info.file_size,)))

    def object(self, encoding: str, modules: Mapping[str, Any]) -> Any:
        """What was saved."""
        return PickleReader(bytes(self._record("data.pkl")), self._persistent, encoding, modules).load()

    def unknown_names(self) -> list[str]:
        """The names in the file that ``object`` would refuse."""
        return sorted({name for name in named_in(bytes(self._record("data.pkl"))) if not is_known(name)})

    def _persistent(self, reference: Any) -> LoadedStorage:
        if not isinstance(reference, tuple) or len(reference) != 5 or reference[0] != "storage":
            raise LoadError("load: the pickle refers to something that is no storage")
        _, kind, key, location, count = reference
        if not isinstance(kind, StorageKind) or type(key) is not str or type(location) is not str:
            raise LoadError("load: the pickle refers to a storage in an unknown way")
        found = self.storages.get(key)
        if found is None:
            found = self.storages[key] = placed_storage(self._storage(key, kind.dtype), location, self.map_location)
        if type(count) is not int or found.array.nbytes != count * kind.dtype.size_bytes:
            raise LoadError(
                f"load: the storage {key} has {found.array.nbytes} bytes, {str(count)[:30]} elements wanted"
            )
        return found

    def _storage(self, key: str, dtype: DType) -> Any:
        memory = self._mapped(f"data/{key}") if self.source.path is not None else self._record(f"data/{key}")
        if memory.nbytes % dtype.size_bytes:
            raise LoadError(f"load: the storage {key} has {memory.nbytes} bytes, which are no elements of {dtype}")
        require_bools(key, dtype, memory)
        array = memory.view(dtype.numpy)
        array = array if array.flags.aligned else array.copy()  # mapped from a file that another program wrote
        return array.byteswap() if self.is_big != (sys.byteorder == "big") else array


def require_bools(key: str, dtype: DType, memory: Any) -> None:
    """LoadError for the bytes of a storage of bools that are none."""
    if dtype is aj.bool and memory.size and int(memory.max()) > 1:
        raise LoadError(f"load: the storage {key} is of bools but has bytes other than 0 and 1")


def placed_storage(array: Any, location: str, mapped: Any) -> LoadedStorage:
    """A storage, to be where ``map_location`` says, or where it was."""
    found = LoadedStorage(array)
    if callable(mapped):
        chosen = mapped(found, location)
        if isinstance(chosen, LoadedStorage):
            return chosen
        mapped = None
    return found.to(place_of(location, mapped))
