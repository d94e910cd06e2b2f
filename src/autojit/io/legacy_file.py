"""torch's files from before version 1.6, and of ``save(..., _use_new_zipfile_serialization=False)``: pickles in a row.

A number that says what the file is, a version, facts about the machine, the object, and the names of its storages, each
a pickle of its own; then each storage: how many elements (8 bytes), and their bytes. The pickles go through the reader
that executes nothing, the object's twice: first to see which storages it has. Memory is claimed only for elements
that the file has bytes for.
Source: https://github.com/pytorch/pytorch/blob/main/torch/serialization.py (``_legacy_load``, ``_legacy_save``)
"""

from __future__ import annotations

import os
import pickle
import pickletools
import struct
import sys
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from autojit.core.errors import UsageError
from autojit.io.file_options import skips_data
from autojit.io.load_errors import LoadError, refuse
from autojit.io.pickle_reader import PickleReader, is_known, named_in
from autojit.io.pickle_writer import PickleWriter
from autojit.io.safetensors import filled
from autojit.io.torch_file import names_of_modules, placed_storage, require_bools
from autojit.io.torch_names import VALUES, LoadedStorage, StorageKind

_MAGIC = 0x1950A86A20F9469CFC6C
_VERSION = 1001
_MACHINE = {"protocol_version": _VERSION, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}


def write_legacy(obj: Any, file: BinaryIO, protocol: int) -> None:
    """Write an object from where the file is.

    Raises:
        UsageError: inside of ``skip_data``: these files have no places that are written later.
    """
    if skips_data():
        raise UsageError("save: Cannot use skip_data=True with _use_new_zipfile_serialization=False")
    writer = PickleWriter.into_memory(protocol, is_legacy=True)
    writer.dump(obj)
    for value in (_MAGIC, _VERSION, _MACHINE):
        file.write(pickle.dumps(value, protocol))
    file.write(writer.text())
    keys = sorted(writer.storages)
    file.write(pickle.dumps(keys, protocol))
    for key in keys:
        memory = writer.storages[key]
        file.write(struct.pack("<q", writer.counts[key]))
        file.write(memory.data)


def is_legacy(start: bytes) -> bool:
    """Whether a file that begins so is one of these."""
    return start[:1] == b"\x80" and pickle.dumps(_MAGIC, 2)[2:] in start[2:32]  # behind the protocol, and a frame


def read_legacy(file: BinaryIO, map_location: Any, encoding: str, with_modules: bool) -> Any:
    """The object that begins where the file is; the file is behind it then.

    Raises:
        LoadError: the file is damaged.
        UnsafeGlobalError: it names something that is not allowed.
    """
    reader = _Legacy(file, map_location)
    refuse(reader.plain() != _MAGIC, "the magic number is another one; the file is damaged")
    version = reader.plain()
    refuse(version != _VERSION, f"the file is of version {str(version)[:20]}, not {_VERSION}")
    reader.plain()  # facts about the machine; elements are little endian on all
    return reader.object(encoding, names_of_modules() if with_modules else {})


def unknown_in_legacy(file: BinaryIO) -> list[str]:
    """The classes and functions that the object names and that are not allowed."""
    reader = _Legacy(file, "cpu")
    for _ in range(3):
        reader.pickle()
    return sorted({name for name in named_in(reader.pickle()) if not is_known(name)})


class _Survey(PickleReader):
    """Goes over a pickle without making anything, to see what it refers to outside of it."""

    def name(self, module: str, name: str) -> None:
        self.push(VALUES.get(f"{module}.{name}"))

    def call(self) -> None:
        self.two()
        self.push(None)

    new = call

    def build(self) -> None:
        self.stack.pop()

    def fill(self, kind: type, add: Any, more: Any) -> None:
        pass


class _Legacy:
    """Reads one object; its storages are behind it in the file, and are read before it."""

    def __init__(self, file: BinaryIO, map_location: Any) -> None:
        self.file = file
        self.map_location = map_location
        begin = file.tell()
        self.size_bytes = file.seek(0, os.SEEK_END)
        file.seek(begin)
        self.wanted: dict[str, tuple[StorageKind, int]] = {}
        self.arrays: dict[str, Any] = {}
        self.storages: dict[str, LoadedStorage] = {}

    def pickle(self) -> bytes:
        """The bytes of the next pickle."""
        begin = self.file.tell()
        try:
            for _ in pickletools.genops(self.file):
                pass
        except (ValueError, struct.error, UnicodeDecodeError) as error:
            raise LoadError(f"load: the pickle is damaged: {error}") from None
        end = self.file.tell()
        self.file.seek(begin)
        return self.file.read(end - begin)

    def plain(self) -> Any:
        """The next pickle, of plain data."""
        return PickleReader(self.pickle(), _no_storage).load()

    def object(self, encoding: str, modules: Mapping[str, Any]) -> Any:
        """The object, with its storages."""
        text = self.pickle()
        _Survey(text, self._want, encoding).load()
        keys = self.plain()
        is_list = isinstance(keys, list) and all(type(key) is str for key in keys)
        refuse(not is_list or sorted(keys) != sorted(self.wanted), "other storages than the object has")
        for key in keys:
            self.arrays[key] = self._read(key, *self.wanted[key])
        return PickleReader(text, self._persistent, encoding, modules).load()

    def _want(self, reference: Any) -> None:
        _, kind, key, _, count, _ = _checked(reference)
        known = self.wanted.setdefault(key, (kind, count))
        refuse(known != (kind, count), f"the storage {key} is of two kinds")

    def _read(self, key: str, kind: StorageKind, count: int) -> Any:
        refuse(self.file.read(8) != struct.pack("<q", count), f"the storage {key} is not of {count} elements")
        size_bytes = count * kind.dtype.size_bytes
        refuse(size_bytes > self.size_bytes - self.file.tell(), f"the storage {key} has more bytes than the file has")
        array = np.empty(size_bytes, np.uint8)
        refuse(filled(self.file, array) != size_bytes, f"the storage {key} ends early")
        require_bools(key, kind.dtype, array)
        found = array.view(kind.dtype.numpy)
        return found if sys.byteorder == "little" else found.byteswap()

    def _persistent(self, reference: Any) -> LoadedStorage:
        _, _, key, location, _, view = _checked(reference)
        whole = self.storages.get(key)
        if whole is None:
            whole = self.storages[key] = placed_storage(self.arrays[key], location, self.map_location)
        if view is None:
            return whole
        name, offset, count = view
        part = f"{key} {name}"
        if part not in self.storages:
            refuse(offset + count > whole.array.size, "a part of a storage reaches beyond it")
            self.storages[part] = LoadedStorage(whole.array[offset : offset + count], whole.place)
        return self.storages[part]


def _checked(reference: Any) -> tuple[Any, ...]:
    """What refers to a storage: ``("storage", kind, name, device, elements, which part it is or None)``."""
    if not isinstance(reference, tuple) or len(reference) not in (5, 6):
        raise LoadError("load: the pickle refers to something that is no storage")
    what, *about = (part.decode("ascii", "replace") if isinstance(part, bytes) else part for part in reference)
    reference = (what, *about)  # names are bytes where the text of Python 2 is
    refuse(what != "storage", "the pickle refers to something that is no storage")
    _, kind, key, location, count, *rest = reference
    if not isinstance(kind, StorageKind) or type(key) is not str or type(location) is not str or not _is_size(count):
        raise LoadError("load: the pickle refers to a storage in an unknown way")
    view = rest[0] if rest else None
    if view is not None and not (
        isinstance(view, tuple) and len(view) == 3 and type(view[0]) is str and all(map(_is_size, view[1:]))
    ):
        raise LoadError("load: a part of a storage is malformed")
    return (*reference[:5], view)


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 58


def _no_storage(reference: Any) -> Any:
    raise LoadError("load: the pickle refers to a storage where there is none")
