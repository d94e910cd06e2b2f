"""Utilities beside the tensor API: ``data`` loads batches, ``checkpoint`` computes again what backward needs, ``hooks``
has the handles of hooks, ``dlpack`` lends memory to other libraries.

They are imported on first use.
"""

from importlib import import_module as _import_module
from typing import Any


def __getattr__(name: str) -> Any:
    """Import a part when it is first used."""
    if name in ("_pytree", "checkpoint", "data", "dlpack", "hooks"):
        return _import_module(f"autojit.utils.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
