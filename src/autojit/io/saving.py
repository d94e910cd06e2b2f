"""``save`` and ``load``: torch's zip format, or safetensors by the name of the file; never plain pickle."""

from __future__ import annotations

import os
import pickle
from typing import Any, BinaryIO, NamedTuple

from autojit.core.errors import ArgumentError, UnsupportedError, UsageError
from autojit.core.top_level import top_level
from autojit.io.archive import load_archive, save_archive
from autojit.io.file_options import refuse_while_skipping, with_modules
from autojit.io.legacy_file import is_legacy, read_legacy, unknown_in_legacy, write_legacy
from autojit.io.load_errors import LoadError, reading
from autojit.io.safetensors import Path, written_whole
from autojit.io.torch_file import read_file, unknown_names, write_file

_TAR_NAME = slice(257, 262)  # where a tar file says "ustar"


@top_level
def save(
    obj: Any, f: Path | BinaryIO, pickle_module: Any = pickle, pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True, _disable_byteorder_record: bool = False,
) -> None:  # fmt: skip
    """Save tensors, parameters, state dicts and plain values, nested in containers, to a path or an open binary file.

    The file is torch's: ``torch.load`` reads it; with ``_use_new_zipfile_serialization=False`` it is one that versions
    before 1.6 read, too. A path that ends in ``.safetensors`` gets that format instead, which
    holds tensors, numbers, strings, None, and dicts, lists and tuples of them. A path appears complete or not at all.
    Tensors that share memory share it again after ``load``.

    Raises:
        TypeError: a value that cannot be saved.
        ValueError: ``pickle_protocol`` is none of 2 to 5.
        UnsupportedError: ``pickle_module`` is another than Python's.
        AttributeError: ``f`` cannot be written to.

    Example:
        >>> import autojit as aj, io
        >>> file = io.BytesIO()
        >>> aj.save({"weight": aj.ones(2), "epoch": 3}, file)
        >>> aj.load(file)
        {'weight': tensor([1., 1.]), 'epoch': 3}
    """
    _refuse_other_pickles("save", pickle_module)
    if pickle_protocol not in _PROTOCOLS:
        raise ArgumentError(f"save: pickle_protocol is one of {list(_PROTOCOLS)}", {"got": pickle_protocol})
    form = _Form(min(pickle_protocol, _LAST), _use_new_zipfile_serialization, not _disable_byteorder_record)
    if not isinstance(f, str | os.PathLike):
        if not hasattr(f, "write"):
            raise AttributeError("expected 'f' to be string, path, or a file-like object with a 'write' attribute")
        _written(obj, f, "archive", form)
        f.flush()
        return
    path = os.fspath(f)
    if str(path).endswith(".safetensors"):
        save_archive(obj, f)
        return
    name = os.path.basename(str(path)).rpartition(".")[0] or "archive"
    with written_whole(f) as file:
        _written(obj, file, name, form)


class _Form(NamedTuple):
    """How a file is written: the protocol of its pickle; whether it is a zip file, or pickles in a row."""

    protocol: int
    is_zip: bool
    tells_order: bool


_PROTOCOLS = (2, 3, 4, 5)
_LAST = 4  # 5 differs by buffers outside of the pickle, of which there are none


def _written(obj: Any, file: BinaryIO, name: str, form: _Form) -> None:
    try:
        if form.is_zip:
            write_file(obj, file, name, form.protocol, tells_order=form.tells_order)
        else:
            write_legacy(obj, file, form.protocol)
    except RecursionError:
        raise UsageError("save: the value is nested too deeply to be saved") from None
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise TypeError(
            f"save: a value cannot be saved: {error}; save state_dict() of modules and optimisers, and numbers, "
            "strings and containers"
        ) from error


@top_level
def load(
    f: Path | BinaryIO, map_location: Any = None, pickle_module: Any = None, *, weights_only: bool | None = None,
    mmap: bool | None = None, **pickle_load_args: Any,
) -> Any:  # fmt: skip
    """Read a file of ``save``, of ``torch.save`` or in the safetensors format (which gives a dict of tensors).

    Nothing in a file is ever executed, whatever ``weights_only`` says: a class of yours that is no module comes back
    only after ``serialization.add_safe_globals``. An open file is read from where it is, or, at its end, from its
    beginning.

    Args:
        map_location: where tensors go: a device, a dict of places by those they were at, or a function of a storage and
            its place, which returns it moved (``storage.cuda(1)``), as it is (on the CPU), or None for where it was.
        weights_only: False lets the file hold whole modules, of autojit's classes and of those that the program has
            imported: each is made without its initialiser and given its attributes. The environment variables
            ``TORCH_FORCE_WEIGHTS_ONLY_LOAD`` and ``TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD`` say it for programs that do not.
        mmap: map the tensors' memory, so that it is read from the file when it is looked at; needs a path.
        pickle_load_args: ``encoding`` of the text of files from Python 2, as of ``pickle.load``.

    Raises:
        LoadError: (a RuntimeError) the file is damaged, or in a format that can only be read by executing it.
        UnsafeGlobalError: (a pickle.UnpicklingError) the file names a class or function that was not allowed.
        SafetensorsError: (a LoadError and a ValueError) a damaged file in the safetensors format.
        UnsupportedError: ``pickle_module`` is another than Python's.

    Example:
        >>> import autojit as aj, io
        >>> file = io.BytesIO()
        >>> aj.save([aj.zeros(2), "text"], file)
        >>> aj.load(file)
        [tensor([0., 0.]), 'text']
    """
    refuse_while_skipping()
    _refuse_other_pickles("load", pickle_module)
    encoding = pickle_load_args.pop("encoding", "utf-8")
    if pickle_load_args:
        raise TypeError(f"load: unknown arguments {', '.join(pickle_load_args)}; of pickle.load's there is encoding")
    allows_modules = with_modules(weights_only)
    if isinstance(f, str | os.PathLike):
        path = os.fspath(f)
        with open(path, "rb") as file, reading(path):
            return _read(file, map_location, str(path) if mmap else None, encoding, allows_modules)
    if not hasattr(f, "read") or not hasattr(f, "seek"):
        raise AttributeError(
            f"{type(f).__name__!r} object has no attribute {'seek' if hasattr(f, 'read') else 'read'!r}. You can only "
            "torch.load from a file that is seekable. Please pre-load the data into a buffer like io.BytesIO and try "
            "to load from it instead."
        )
    if mmap:
        raise ArgumentError("load: mmap=True needs a path, not an open file", {"got": type(f).__name__})
    with reading(f):
        return _read(f, map_location, None, encoding, allows_modules)


def _refuse_other_pickles(what: str, module: Any) -> None:
    """Say that another module would not be asked: files are written and read by autojit, which executes nothing."""
    if module not in (None, pickle):
        raise UnsupportedError(
            f"{what}: autojit writes and reads pickles itself, and asks no other module",
            {"pickle_module": module},
            "leave pickle_module out; keep objects of your own beside the file, by that module",
        )


def get_unsafe_globals_in_checkpoint(f: Path | BinaryIO) -> list[str]:
    """The classes and functions that a torch file names and that ``load`` would refuse.

    Example:
        >>> import argparse, io
        >>> import autojit as aj
        >>> file = io.BytesIO()
        >>> aj.save([argparse.Namespace(lr=0.1), aj.ones(2)], file)
        >>> aj.serialization.get_unsafe_globals_in_checkpoint(file)
        ['argparse.Namespace']

    Raises:
        LoadError: the file is damaged, or not one of torch's.
    """
    if isinstance(f, str | os.PathLike):
        with open(f, "rb") as file, reading(f):
            return _unknown(file)
    with reading(f):
        return _unknown(f)


def _unknown(file: BinaryIO) -> list[str]:
    return unknown_in_legacy(file) if is_legacy(_start_of(file)) else unknown_names(file)


def _start_of(file: BinaryIO) -> bytes:
    """How the file begins that is read next: the open file where it is, or at its end from its beginning."""
    place = file.tell()
    start = file.read(512)
    if not start:
        place = file.seek(0)
        start = file.read(512)
    file.seek(place)
    return start


def _read(file: BinaryIO, map_location: Any, path: str | None, encoding: str, allows_modules: bool) -> Any:
    start = _start_of(file)
    if start[:2] == b"PK":
        return read_file(file, map_location, path, encoding, allows_modules)
    if is_legacy(start):
        if path is not None:
            raise LoadError("load: mmap=True maps torch's zip files; this one is older", fix="load(file)")
        return read_legacy(file, map_location, encoding, allows_modules)
    if start[_TAR_NAME] == b"ustar" or (start[:1] == b"\x80" and len(start) > 1 and 2 <= start[1] <= 5):
        raise LoadError(
            "load: this is a pickle of Python's, or a tar file as torch wrote before version 0.2",
            fix="load it with pickle, or in torch, if you trust it, and save what it is",
        )
    return load_archive(file, map_location, path)
