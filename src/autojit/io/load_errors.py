"""The errors of files, which name the file that is being read."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from autojit.core.errors import AutojitError


class _Reading(threading.local):
    """The name of the file that the thread reads."""

    name: str | None = None


_reading = _Reading()


class LoadError(AutojitError, RuntimeError):
    """A file is damaged, of another format, or would need more than it holds."""

    def __init__(self, what: str, facts: Mapping[str, object] | None = None, fix: str = "") -> None:
        named = {} if _reading.name is None else {"file": _reading.name}
        super().__init__(what, {**named, **(facts or {})}, fix)


class UnsafeGlobalError(LoadError, pickle.UnpicklingError):
    """A file names a class or function that was not allowed; it was not called."""

    general_fix = "if you trust it: autojit.serialization.add_safe_globals([it])"


def refuse(is_wrong: bool, what: str) -> None:
    """LoadError ``load: {what}`` if something is wrong with a file."""
    if is_wrong:
        raise LoadError(f"load: {what}")


@contextmanager
def reading(file: Any) -> Iterator[None]:
    """Inside, the file (a path, or an open one) is read: errors name it, and whatever its bytes lead to is a LoadError.

    What the system says of the file (``OSError``), memory that is not there, and errors that name their own fix pass.
    """
    before = _reading.name
    name = file if isinstance(file, str | bytes | os.PathLike) else getattr(file, "name", None)
    if isinstance(name, str | bytes | os.PathLike):
        _reading.name = os.fsdecode(name)
    try:
        yield
    except (AutojitError, OSError, MemoryError):
        raise
    except Exception as error:
        raise LoadError(f"load: the file is damaged: {type(error).__name__}: {error}") from error
    finally:
        _reading.name = before
