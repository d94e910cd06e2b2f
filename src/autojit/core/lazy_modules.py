"""Names of modules that are imported when somebody first asks for them.

A package that offers more than every program needs says where the rest is::

    __getattr__ = LazyNames(__name__, {"Function": "autojit.autograd.function"}, modules="forward_ad graph")

``provide`` makes whole modules of that kind: ``autojit.nn.modules.conv`` for what ``autojit.nn.convolution`` defines.
torch's file layout is part of many programs (``from torch.nn.modules.batchnorm import _BatchNorm``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from autojit.core.collector_pause import uncollected
from autojit.core.undivided_work import undivided


class LazyNames:
    """The ``__getattr__`` of a module.

    Args:
        module: its name.
        names: by name, the module that has it; ``module:attribute`` where it has another name there.
        modules: submodules, separated by spaces.
        others: further modules, separated by spaces, which are asked in this order for all other names.
        listed: whether these offer only what their ``__all__`` lists.
        get: how a value of ``names`` is had from its module.
    """

    def __init__(
        self,
        module: str,
        names: Mapping[str, str] | None = None,
        *,
        modules: str = "",
        others: str = "",
        listed: bool = False,
        get: Callable[[ModuleType, str], Any] = getattr,
    ) -> None:
        self.module = module
        self.names = names or {}
        self.modules = frozenset(modules.split())
        self.others = others.split()
        self.listed = listed
        self.get = get

    def __call__(self, name: str) -> Any:
        with undivided, uncollected():  # modules stay; the collector took a fifth of their import
            found = vars(sys.modules[self.module])[name] = self._found(name)
        return found

    def _found(self, name: str) -> Any:
        if name in self.modules:
            return import_module(f"{self.module}.{name}")
        if name in self.names:
            return self._named(name)
        if name == "__all__" and self.others:
            return self._public()
        for other in self.others if not name.startswith("__") else ():
            module = import_module(other)
            if hasattr(module, name) and (not self.listed or name in module.__all__):
                return getattr(module, name)
        raise AttributeError(f"module {self.module!r} has no attribute {name!r}")

    def _named(self, name: str) -> Any:
        home, _, attribute = self.names[name].partition(":")
        return self.get(import_module(home), attribute or name)

    def _public(self) -> list[str]:
        """The public classes and functions that the other modules define, and those of their own lists."""
        found: dict[str, None] = {name: None for name in self.names if not name.startswith("_")}
        for other in self.others:
            module = import_module(other)
            for name, value in vars(module).items():
                if not name.startswith("_") and getattr(value, "__module__", None) == other:
                    found[name] = None
            found.update(dict.fromkeys(getattr(module, "__all__", ())))
        return list(found)

    def all_names(self) -> list[str]:
        """The module's ``__dir__``: what it has, and what its tables name."""
        return sorted({*vars(sys.modules[self.module]), *self.names, *self.modules} - {"annotations"})


def list_names(namespace: dict[str, Any], modules: str = "") -> list[str]:
    """``__all__`` of a package that takes its names by ``import *``: its functions and classes, and these modules.

    An assignment in the package itself would hide from type checkers every name that it does not write out.
    """
    names = [name for name, value in namespace.items() if callable(value) and not name.startswith("_")]
    namespace["__all__"] = found = sorted([*names, *modules.split()])
    return found


def provide(package: str, homes: Mapping[str, str], names: Mapping[str, Mapping[str, str]] | None = None) -> None:
    """Make ``package.path`` importable for every path of a table.

    Args:
        homes: by path, the modules of the package (separated by spaces) whose names it shows; of equal names the
            first module's.
        names: by path, names that are called otherwise there: ``{"conv": {"_ConvNd": "convolution:_Convolution"}}``.

    Example:
        >>> from autojit.core.lazy_modules import provide
        >>> provide("autojit.core", {"kinds": "dtypes"})
        >>> from autojit.core.kinds import float32
        >>> float32
        autojit.float32
    """

    def full(home: str) -> str:
        return home if home.startswith("autojit.") else f"{package}.{home}"

    for path, modules in homes.items():
        others = " ".join(full(home) for home in modules.split())
        made = ModuleType(f"{package}.{path}", f"The names of {others.replace(' ', ', ')} under torch's path.")
        renamed = {name: full(home) for name, home in (names or {}).get(path, {}).items()}
        made.__dict__["__getattr__"] = LazyNames(made.__name__, renamed, others=others)
        if any(other.startswith(f"{path}.") for other in homes):
            made.__dict__["__path__"] = []  # a package, as programs that import what is in it see
        sys.modules[made.__name__] = made
        parent, _, name = made.__name__.rpartition(".")
        known = vars(sys.modules[parent]) if parent in sys.modules else {name: made}
        if parent in sys.modules and "__path__" not in known:
            sys.modules[parent].__path__ = []  # imports under other names ask the parent whether it is a package
        if name not in known and name not in getattr(known.get("__getattr__"), "names", ()):
            setattr(sys.modules[parent], name, made)
