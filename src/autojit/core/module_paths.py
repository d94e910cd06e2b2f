"""Modules under further import paths: ``autojit.nn.modules.conv`` for what lives in ``autojit.nn.convolution``.

torch's file layout is part of many programs (``from torch.nn.modules.batchnorm import _BatchNorm``). A table in the
package says which of our modules hold the names of such a path; the names are looked up there when they are asked for.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any


def provide(package: str, homes: Mapping[str, str], others: Mapping[str, Mapping[str, str]] | None = None) -> None:
    """Make ``package.path`` importable for every path of a table.

    Args:
        homes: by path, the modules (separated by spaces) whose names it shows; of equal names the first module's.
        others: by path, names that stand for others: ``{"conv": {"_ConvNd": "_Convolution"}}``.

    Example:
        >>> from autojit.core.module_paths import provide
        >>> provide("autojit.core", {"kinds": "autojit.core.dtypes"})
        >>> from autojit.core.kinds import float32
        >>> float32
        autojit.float32
    """
    for path, modules in homes.items():
        made = ModuleType(f"{package}.{path}", f"The names of {modules.replace(' ', ', ')} under torch's path.")
        made.__dict__["__getattr__"] = _Lookup(made.__name__, modules.split(), (others or {}).get(path, {}))
        sys.modules[made.__name__] = made
        parent, _, name = made.__name__.rpartition(".")
        if parent in sys.modules and name not in vars(sys.modules[parent]):
            setattr(sys.modules[parent], name, made)


class _Lookup:
    """The ``__getattr__`` of a module that shows the names of others."""

    def __init__(self, module: str, homes: list[str], others: Mapping[str, str]) -> None:
        self.module = module
        self.homes = homes
        self.others = others

    def __call__(self, name: str) -> Any:
        if name == "__all__":
            return self.names()
        if name.startswith("__"):
            raise AttributeError(f"module {self.module!r} has no attribute {name!r}")
        for home in self.homes:
            found = getattr(importlib.import_module(home), self.others.get(name, name), self)
            if found is not self:
                return found
        raise AttributeError(f"module {self.module!r} has no attribute {name!r}")

    def names(self) -> list[str]:
        """The public classes and functions that the homes define, and those of their own lists."""
        found: dict[str, None] = {name: None for name in self.others if not name.startswith("_")}
        for home in self.homes:
            module = importlib.import_module(home)
            for name, value in vars(module).items():
                if not name.startswith("_") and getattr(value, "__module__", None) == home:
                    found[name] = None
            found.update(dict.fromkeys(getattr(module, "__all__", ())))
        return list(found)
