"""Where what a derivative rule records was called for: where its backward pass was, some twenty frames out."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autojit.core.source import Place, SourceLocation

__all__ = ["in_rule"]


class _InRule(threading.local):
    """Places that the thread has found already."""

    of_pass: Place | SourceLocation | None = None  # of the innermost pass
    place: Place | SourceLocation | None = None  # the same while a rule runs


in_rule = _InRule()
