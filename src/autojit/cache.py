"""The object cache as users see it: compiled objects on disk, shared by all processes of a user.

The directory is ``AUTOJIT_CACHE_DIR``, else ``autojit`` in the user's XDG cache directory. What an entry is and why it
is safe to load is said in ``runtime/object_cache.py``.

Example:
    >>> import autojit as aj
    >>> import os, tempfile
    >>> double = aj.jit(lambda x: x * 2)
    >>> before = aj.cache.stats()
    >>> double(aj.ones(3))
    tensor([2., 2., 2.])
    >>> asked = aj.cache.stats() - before  # hits: objects found on disk; misses: compiled now
    >>> asked.rebuilt  # found but damaged, so compiled again
    0
    >>> with tempfile.TemporaryDirectory() as folder:  # warm up another machine of the same kind
    ...     archive = os.path.join(folder, "kernels")
    ...     aj.cache.export(archive) == aj.cache.load(archive)
    True
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from autojit.runtime.object_cache import default_cache
from autojit.runtime.precompile import compile_fixed

__all__ = ["CacheStats", "clear", "directory", "export", "load", "stats", "warm"]


@dataclass(frozen=True)
class CacheStats:
    """Objects asked for since the process started: found on disk, compiled, and found but refused as damaged."""

    hits: int = 0
    misses: int = 0
    rebuilt: int = 0

    def __sub__(self, earlier: CacheStats) -> CacheStats:
        return CacheStats(self.hits - earlier.hits, self.misses - earlier.misses, self.rebuilt - earlier.rebuilt)


def directory() -> str:
    """Where the entries are stored."""
    return default_cache().directory


def stats() -> CacheStats:
    """Counts of this process."""
    found = default_cache().stats()
    return CacheStats(found.hits, found.misses, found.rebuilt)


def clear() -> None:
    """Delete every entry. Code already loaded keeps running."""
    default_cache().clear()


def warm() -> CacheStats:
    """Have the modules of every program in the cache, matrix products among them: once per machine, 0.3 to 2 seconds.

    A first step then compiles its own kernels alone. ``python -m autojit warm`` does the same, for images of containers
    and after an installation. Gives what was found there and what was compiled (``misses``).
    """
    before = stats()
    compile_fixed()
    return stats() - before


def export(path: str | os.PathLike[str]) -> int:
    """Write all entries to one archive, to warm another machine of the same kind; gives their number."""
    return default_cache().export(path)


def load(path: str | os.PathLike[str]) -> int:
    """Add the entries of an archive made by `export`; gives their number.

    An archive is executable code: load only what you would run.

    Raises:
        ArgumentError: the file is not an archive, or is damaged; sound entries before the damage are kept.
    """
    return default_cache().load(path)
