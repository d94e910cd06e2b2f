"""Users' own functions as ops."""

from __future__ import annotations

from autojit.numba_ops.definition import op as op

__all__ = ["op"]
