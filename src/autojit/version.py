"""Which version this is, and what it was built with.

Example:
    >>> import autojit as aj
    >>> aj.version.cuda is None
    True
"""

from __future__ import annotations

from importlib import metadata

__all__ = ["__version__", "cuda", "debug", "git_version", "hip", "rocm", "xpu"]

__version__ = metadata.version("autojit")
cuda: str | None = None
hip: str | None = None
rocm: str | None = None
xpu: str | None = None
git_version = "Unknown"
debug = False
