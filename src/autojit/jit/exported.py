"""``JitFunction.export``: a step as a library, written by ``autojit.export``."""

from __future__ import annotations

import os
from typing import Any

from autojit.core.ports import ports


def export(self: Any, path: str | os.PathLike[str], *args: object, **kwargs: object) -> Any:
    """Write the step to a library that needs no Python: ``path.so``, and ``.h``, ``.json``, ``_numpy.py`` beside it.

    For these arguments, which do not run; without any, the step captured last. See ``autojit.export``.

    Raises:
        TraceError: no step serves the call.
        ExportError: something in it needs Python, or a device; the message names op and line.
    """
    return ports.export.write(self, path, args, kwargs)
