"""torch's older module for operators: names of `autojit.library`.

Example:
    >>> import autojit as aj
    >>> aj._custom_ops.get_ctx is aj.library.get_ctx
    True
"""

from __future__ import annotations

from autojit.library import get_ctx, impl_abstract

__all__ = ["get_ctx", "impl_abstract"]
