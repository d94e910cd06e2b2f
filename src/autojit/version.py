"""Which version this is, and what it was built with.

Example:
    >>> import autojit as aj
    >>> aj.version.cuda is None
    True
"""

from __future__ import annotations

from importlib import metadata

__all__ = ["__version__", "cuda", "debug", "git_version", "hip", "rocm", "xpu"]

try:
    __version__ = metadata.version("autojit")
except metadata.PackageNotFoundError:  # the source folder on the path, not installed
    __version__ = "0+unknown"
cuda: str | None = None
hip: str | None = None
rocm: str | None = None
xpu: str | None = None
git_version = "Unknown"
debug = False
