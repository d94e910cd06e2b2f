"""Compiled objects on disk, found by what they were compiled from.

How to read this file: `object_key` names an object, `ObjectCache.object` is the one call the compiler makes, `get_blob`
and `put_blob` are the store below it, and the rest keeps that store honest.

An entry is executable code, so three rules hold. Nothing is handed out before its SHA-256 was checked (a truncated
object crashes LLVM and a loader alike); the digest covers the key, so an entry under another's name is refused too.
Nothing is read from, or written to, a directory that somebody else could write. A writer makes a private temporary file
and renames it, so readers see whole entries or none, whoever is killed when. There is no fsync: an entry torn by a
power loss fails its digest and is rebuilt.

Whatever goes wrong with the disk costs time, never an answer: one warning, then the process goes on uncached.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from autojit.codegen.target import Target
from autojit.core.errors import ArgumentError
from autojit.core.locks import in_forked_child, new_lock
from autojit.core.once import once
from autojit.core.undivided_work import undivided
from autojit.core.user_warnings import warn
from autojit.runtime.llvm import USUAL, Levels, compile_all, compile_to_object, llvm_identity

EMITTER_VERSION = 2
"""Raised when the meaning of generated code changes while its text does not (the table layout, for
instance, or `codegen.target_functions`)."""

DEFAULT_LIMIT_BYTES = 1 << 30

_MAGIC = b"AJOBJ\x00\x00\x01"
_ARCHIVE_MAGIC = b"AJARC\x00\x00\x01"
_HEADER = struct.Struct("<8sQ32s")  # magic, payload bytes, SHA-256 of key and payload
_RECORD = struct.Struct("<32sQ")  # of an archive: key, entry bytes
_SUFFIX = ".ajo"
_TEMPORARY = ".tmp-"
_STALE_AFTER_S = 3600.0
_TOUCH_AFTER_S = 600.0  # a hit renews an entry's age at most this often, so most hits write nothing
_EVICT_TO = 0.9  # of the limit, so that a full cache is not swept at every store
_LOOKED_AT = 1024  # entries, to estimate the size of all
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # a FIFO in an entry's place must not block


def object_key(ir_text: str, target: Target, opt_level: int = 2, pass_level: int | None = None) -> str:
    """SHA-256 (64 hex digits) over everything the object depends on; equal on every process of equal machines."""
    return key_of(
        ir_text,
        llvm_identity(),
        str(EMITTER_VERSION),
        target.triple,
        target.cpu,
        target.features,
        str(opt_level),
        str(pass_level),
    )


def key_of(*parts: str) -> str:
    """SHA-256 (64 hex digits) over texts: the key of what is made of them."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


_instances: weakref.WeakSet[ObjectCache] = weakref.WeakSet()


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Counts since the process started: a rebuilt entry was there but refused, and counts as a miss too."""

    hits: int = 0
    misses: int = 0
    rebuilt: int = 0
    stored: int = 0
    evicted: int = 0


class ObjectCache:
    """A directory of entries, safe to share by threads, forks and unrelated processes.

    Args:
        directory: made with mode 0700 on the first store; its parents must exist or be makeable.
        limit_bytes: the least recently used entries go when the sum of sizes passes this.
    """

    def __init__(self, directory: str | os.PathLike[str], limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self.directory = os.path.abspath(directory)
        self.limit_bytes = limit_bytes
        self._counts = dict.fromkeys(("hits", "misses", "rebuilt", "stored", "evicted"), 0)
        self._size_bytes: int | None = None  # unknown until the first store sweeps the directory
        self._warned = False
        self._lock = new_lock()
        self._building: dict[str, Any] = {}  # a lock for every key that is being built
        _instances.add(self)

    def object(self, ir_text: str, target: Target, opt_level: int = 2, pass_level: int | None = None) -> bytes:
        """The object for a module: from disk when a sound entry is there, else compiled and stored.

        Threads asking for one object at a time share one compilation.

        Raises:
            CompileError: LLVM rejects the text.
        """
        key = object_key(ir_text, target, opt_level, pass_level)
        return self.blob(key, lambda: compile_to_object(ir_text, target, opt_level, pass_level))

    def objects(self, ir_texts: Sequence[str], target: Target, levels: Sequence[Levels] | None = None) -> list[bytes]:
        """The objects for several modules; those not on disk are compiled on all cores.

        ``levels`` gives each module's levels, as `compile_all` takes them.

        Raises:
            CompileError: LLVM rejects a text.
        """
        requests = list(zip(ir_texts, levels or [USUAL] * len(ir_texts), strict=True))
        keys = [object_key(text, target, *own) for text, own in requests]
        found = {key: self.get_blob(key) for key in set(keys)}
        missing = {key: request for key, request in zip(keys, requests, strict=True) if found[key] is None}
        made = compile_all([text for text, _ in missing.values()], target, [own for _, own in missing.values()])
        for key, content in zip(missing, made, strict=True):
            self.put_blob(key, content)
            found[key] = content
        return [found[key] or b"" for key in keys]

    def blob(self, key: str, build: Callable[[], bytes]) -> bytes:
        """The bytes under `key`, built and stored when absent; `build` runs once however many threads ask."""
        found = self.get_blob(key, count_miss=False)
        if found is not None:
            return found
        with self._lock:
            gate = self._building.setdefault(key, new_lock())
        try:
            with undivided, gate:
                found = self.get_blob(key)
                if found is None:
                    found = build()
                    self.put_blob(key, found)
                return found
        finally:
            with self._lock:
                self._building.pop(key, None)

    def get_blob(self, key: str, *, count_miss: bool = True) -> bytes | None:
        """The bytes stored under `key` (64 hex digits), or None when absent, damaged or not to be trusted."""
        entry = self._read_entry(key)
        payload = None if entry is None else _checked_payload(key, entry)
        if payload is not None:
            self._count(hits=1)
        else:
            self._count(misses=int(count_miss), rebuilt=int(count_miss and entry is not None))
        return payload

    def put_blob(self, key: str, payload: bytes) -> None:
        """Store `payload` under `key`; does nothing but warn (once) when the disk or the directory will not have it."""
        self._put_entry(key, _entry_of(key, payload))

    def __contains__(self, key: str) -> bool:
        """Whether there is an entry, which may turn out to be damaged."""
        return os.path.exists(self._path(key))

    def stats(self) -> CacheStats:
        """Counts of this process."""
        with self._lock:
            return CacheStats(**self._counts)

    def clear(self) -> None:
        """Delete every entry. Code already loaded keeps running."""
        for path, _ in self._entries():
            with suppress(OSError):
                os.unlink(path)
        self._size_bytes = None

    def export(self, path: str | os.PathLike[str]) -> int:
        """Write all sound entries to one archive file, to warm another machine; gives their number."""
        count = 0
        with open(path, "wb") as file:
            file.write(_ARCHIVE_MAGIC)
            for entry_path, _ in self._entries():
                key = os.path.basename(entry_path).removesuffix(_SUFFIX)
                entry = self._read_entry(key)
                if entry is not None and _checked_payload(key, entry) is not None:
                    file.write(_RECORD.pack(bytes.fromhex(key), len(entry)))
                    file.write(entry)
                    count += 1
        return count

    def load(self, path: str | os.PathLike[str]) -> int:
        """Add the entries of an archive made by `export`; gives their number.

        An archive is executable code: load only what you would run.

        Raises:
            ArgumentError: the file is not an archive, or is damaged; sound entries before the damage are kept.
        """
        count = 0
        for key, entry in _archive_records(path):
            if _checked_payload(key, entry) is None:
                raise ArgumentError("cache.load: an entry is damaged", facts={"file": path, "entry": key})
            self._put_entry(key, entry)
            count += 1
        return count

    def _read_entry(self, key: str) -> bytes | None:
        path = self._path(key)
        try:
            if not self._usable(make=False):
                return None
            handle = os.open(path, os.O_RDONLY | _NO_FOLLOW)
            with open(handle, "rb", buffering=0) as file:
                status = os.fstat(handle)
                if not stat.S_ISREG(status.st_mode) or not _only_ours(status):
                    self._warn(f"{path} is no file, belongs to somebody else or is open to others")
                    return b""
                data = file.read()
            if time.time() - status.st_mtime > _TOUCH_AFTER_S:
                os.utime(path)
            return data
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn(str(error))
            return None

    def _put_entry(self, key: str, entry: bytes) -> None:
        path = self._path(key)
        try:
            if not self._usable(make=True):
                return
            self._write(path, entry)
            self._count(stored=1)
            self._keep_within_limit(len(entry))
        except OSError as error:
            self._warn(str(error))

    def _write(self, path: str, entry: bytes) -> None:
        temporary = os.path.join(self.directory, f"{_TEMPORARY}{os.urandom(8).hex()}")
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW, 0o600)
        try:
            with open(handle, "wb", buffering=0) as file:
                if file.write(entry) != len(entry):
                    raise OSError("short write: the disk is full")
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise

    def _usable(self, make: bool) -> bool:
        """Whether the directory is there and only ours; raises OSError when it cannot be made."""
        try:
            status = os.lstat(self.directory)
        except FileNotFoundError:
            if not make:
                return False
            os.makedirs(os.path.dirname(self.directory), exist_ok=True)
            with suppress(FileExistsError):
                os.mkdir(self.directory, 0o700)
            status = os.lstat(self.directory)
        if not stat.S_ISDIR(status.st_mode):
            self._warn(f"{self.directory} is no directory (links are not followed)")
            return False
        if not _only_ours(status):
            self._warn(f"{self.directory} belongs to somebody else or others may write there")
            return False
        return True

    def _keep_within_limit(self, added_bytes: int) -> None:
        with self._lock:
            if self._size_bytes is not None:
                self._size_bytes += added_bytes
            else:
                self._size_bytes = self._first_look()
            if self._size_bytes > self.limit_bytes:
                self._size_bytes = self._sweep()

    def _first_look(self) -> int:
        """Delete stale temporaries; the bytes of all entries, of many estimated from some of them.

        Looking at 65,000 entries takes more than half a second; their names, which are digests, say nothing of size.
        """
        names = os.listdir(self.directory)
        self._delete_stale_temporaries([name for name in names if name.startswith(_TEMPORARY)])
        entries = [name for name in names if name.endswith(_SUFFIX)]
        step = max(1, len(entries) // _LOOKED_AT)
        sizes = []
        for name in entries[::step]:
            with suppress(OSError):
                sizes.append(os.lstat(os.path.join(self.directory, name)).st_size)
        return len(entries) * sum(sizes) // max(1, len(sizes))

    def _sweep(self) -> int:
        """Delete the oldest entries when over the limit; gives the bytes left."""
        entries = sorted(self._entries(), key=lambda item: item[1].st_mtime)
        size_bytes = sum(status.st_size for _, status in entries)
        if size_bytes <= self.limit_bytes:
            return size_bytes
        evicted = 0
        for path, status in entries:
            if size_bytes <= self.limit_bytes * _EVICT_TO:
                break
            with suppress(OSError):
                os.unlink(path)
            size_bytes -= status.st_size
            evicted += 1
        self._count(evicted=evicted)
        return size_bytes

    def _delete_stale_temporaries(self, names: Sequence[str]) -> None:
        oldest = time.time() - _STALE_AFTER_S
        for name in names:
            path = os.path.join(self.directory, name)
            with suppress(OSError):
                if os.lstat(path).st_mtime < oldest:
                    os.unlink(path)

    def _entries(self) -> Iterator[tuple[str, os.stat_result]]:
        try:
            if not self._usable(make=False):
                return
            with os.scandir(self.directory) as items:
                found = [item.path for item in items if item.name.endswith(_SUFFIX)]
        except OSError as error:
            self._warn(str(error))
            return
        for path in found:
            with suppress(OSError):
                yield path, os.lstat(path)

    def _path(self, key: str) -> str:
        if len(key) != 64 or not set(key) <= set("0123456789abcdef"):
            raise ArgumentError("object cache: a key is 64 lower-case hex digits", facts={"key": key})
        return os.path.join(self.directory, f"{key}{_SUFFIX}")

    def _count(self, **more: int) -> None:
        with self._lock:
            for name, number in more.items():
                self._counts[name] += number

    def _warn(self, reason: str) -> None:
        if not self._warned:
            self._warned = True
            message = f"autojit's object cache is not used: {reason}; set AUTOJIT_CACHE_DIR to a private directory"
            warn(message, RuntimeWarning, is_once=True)


def default_cache() -> ObjectCache:
    """The cache the compiler uses: ``AUTOJIT_CACHE_DIR``, else ``autojit`` in the user's XDG cache directory."""
    return _cache_at(os.environ.get("AUTOJIT_CACHE_DIR") or _xdg_directory())


def _xdg_directory() -> str:
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(root, "autojit")


@once
def _cache_at(directory: str) -> ObjectCache:
    return ObjectCache(directory)


@in_forked_child
def _forget_builders() -> None:
    for instance in tuple(_instances):
        instance._building = {}


def _only_ours(status: os.stat_result) -> bool:
    """Owned by this user and writable by nobody else; always true where the system has no such notion."""
    if not hasattr(os, "geteuid"):
        return True
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _digest(key: str, payload: bytes) -> bytes:
    digest = hashlib.sha256(bytes.fromhex(key))
    digest.update(payload)
    return digest.digest()


def _entry_of(key: str, payload: bytes) -> bytes:
    return _HEADER.pack(_MAGIC, len(payload), _digest(key, payload)) + payload


def _checked_payload(key: str, entry: bytes) -> bytes | None:
    if len(entry) < _HEADER.size:
        return None
    magic, size_bytes, digest = _HEADER.unpack_from(entry)
    payload = entry[_HEADER.size :]
    sound = magic == _MAGIC and size_bytes == len(payload) and digest == _digest(key, payload)
    return payload if sound else None


def _archive_records(path: str | os.PathLike[str]) -> Iterator[tuple[str, bytes]]:
    with open(path, "rb") as file:
        if file.read(len(_ARCHIVE_MAGIC)) != _ARCHIVE_MAGIC:
            raise ArgumentError("cache.load: the file is no archive of cache.export", facts={"file": path})
        left_bytes = os.fstat(file.fileno()).st_size - len(_ARCHIVE_MAGIC)
        while left_bytes:
            head = file.read(_RECORD.size)
            left_bytes -= _RECORD.size
            key, size_bytes = _RECORD.unpack(head) if len(head) == _RECORD.size else (b"", -1)
            if not 0 <= size_bytes <= left_bytes:
                raise ArgumentError("cache.load: the archive is cut short", facts={"file": path})
            left_bytes -= size_bytes
            yield key.hex(), file.read(size_bytes)
