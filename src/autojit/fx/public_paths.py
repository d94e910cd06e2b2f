"""The paths by which programs have public functions, whatever modules they are defined in."""

from __future__ import annotations

import operator
from typing import Any

import autojit as aj
from autojit.core.package_name import full_name

_OWNERS: dict[str, Any] = {"autojit": aj, "autojit.nn.functional": aj.nn.functional, "operator": operator}


def shown_path(value: object) -> str | None:
    """The `public_path` as the program calls the package: ``torch.relu`` where it imports torch."""
    path = public_path(value)
    return path and (full_name(path.removeprefix("autojit.")) if path.startswith("autojit.") else path)


def function_at(path: str) -> Any:
    """The function of a `public_path`."""
    owner, _, name = path.rpartition(".")
    return getattr(_OWNERS[owner], name)


def public_path(value: object) -> str | None:
    """``autojit.relu``: the path by which programs have a function of autojit's or of ``operator``; None: another."""
    name = getattr(value, "__name__", "")
    if not str(getattr(value, "__module__", "")).startswith(("autojit", "_operator")):
        return None
    for path, owner in _OWNERS.items():
        if getattr(owner, name, None) is value:
            return f"{path}.{name}"
    return None
