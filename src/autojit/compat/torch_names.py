"""``import torch`` that gives autojit: for programs that are not to be changed, with no torch installed.

Inside of `torch_names` every name of ``torch`` and of its submodules is autojit's of the same name: the modules are the
same objects. The top level alone is an object of its own, because programs ask it for ``torch.__version__``.
"""

from __future__ import annotations

import importlib
import multiprocessing.spawn
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution, DistributionFinder
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any

import autojit as aj
from autojit.compat.absent import IMPORTED, reason_of
from autojit.compat.registrations import KNOWN
from autojit.core.errors import UsageError
from autojit.core.package_name import PACKAGE

FOLLOWED = "2.13.0"
"""The version of PyTorch whose names and rules these are, which programs are told."""

_OURS, _THEIRS = "autojit", "torch"

PACKAGES = {_THEIRS: _OURS, "functorch": "autojit.compat.functorch"}
"""The packages that PyTorch installs, and what stands for each here."""


class TorchModule(ModuleType):
    """What ``import torch`` gives: autojit's names, with a version of PyTorch's."""

    def __init__(self) -> None:
        super().__init__(_THEIRS, aj.__doc__)
        self.__dict__.update(__version__=FOLLOWED, __path__=[], __file__=aj.__file__, torch=self)
        self.__spec__ = ModuleSpec(_THEIRS, None, is_package=True)

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(aj, name)
        except AttributeError:
            if name in IMPORTED:
                return importlib.import_module(f"{_THEIRS}.{name}")
            reason = reason_of(name) or "this torch is autojit's"
            raise AttributeError(f"module 'torch' has no attribute {name!r} here: {reason}") from None

    def __setattr__(self, name: str, value: object) -> None:
        if name.startswith("__") or isinstance(value, RefusingModule):
            super().__setattr__(name, value)
        else:
            setattr(aj, name, value)

    def __dir__(self) -> list[str]:
        return dir(aj)


class RefusingModule(ModuleType):
    """A module that is not here, for programs that import it and may never use it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self.__all__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        path = self.__name__.partition(".")[2]
        if f"{path}.{name}" in KNOWN:
            return KNOWN[f"{path}.{name}"]
        reason = reason_of(path)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r} here: {reason}")


class _Same(Loader):
    """Gives a module that is there already, and leaves it as it is."""

    def __init__(self, module: ModuleType) -> None:
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec
        _name_hidden_modules(module.__name__)


class TorchFinder(MetaPathFinder):
    """Finds ``torch`` and what is below it."""

    def __init__(self) -> None:
        self._top = TorchModule()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where a module comes from; None where it is not torch's."""
        if fullname == _THEIRS:
            return ModuleSpec(fullname, _Same(self._top), is_package=True)
        if fullname.partition(".")[0] not in PACKAGES:
            return None
        module = _counterpart(fullname)
        if module is None and fullname.partition(".")[2].partition(".")[0] in IMPORTED:
            module = RefusingModule(fullname)
        if module is None:
            return None  # the import system says that there is none
        return ModuleSpec(fullname, _Same(module), is_package=hasattr(module, "__path__"))

    def find_distributions(self, context: DistributionFinder.Context) -> Iterable[Distribution]:
        """What ``importlib.metadata`` tells of torch, which libraries ask for its version."""
        return [_TorchDistribution()] if context.name in (None, _THEIRS) else []


class _TorchDistribution(Distribution):
    """torch as a package that is installed, in the version that is followed."""

    def read_text(self, filename: str) -> str | None:
        """The metadata alone."""
        return f"Metadata-Version: 2.1\nName: {_THEIRS}\nVersion: {FOLLOWED}\n" if filename == "METADATA" else None

    def locate_file(self, path: str | PathLike[str]) -> Path:
        """A path beside autojit's own."""
        return Path(aj.__file__).parent.parent / path


def _name_hidden_modules(package: str) -> None:
    """Know modules of a package that a function of the same name hides: importing one would put it over the function.

    Such is ``torch.autograd.gradcheck``, which is a module in an import and the function everywhere else.
    """
    start = f"{package}."
    for name in [name for name in sys.modules if name.startswith(start) and "." not in name[len(start) :]]:
        child = name[len(start) :]
        if getattr(sys.modules[package], child, None) is not sys.modules[name]:
            sys.modules[_THEIRS + name.removeprefix(_OURS)] = sys.modules[name]


def _counterpart(name: str) -> ModuleType | None:
    """autojit's module of the name; None: there is none."""
    package = name.partition(".")[0]
    ours = PACKAGES[package] + name.removeprefix(package)
    try:
        return importlib.import_module(ours)
    except ModuleNotFoundError as error:
        if error.name is None or not ours.startswith(error.name):
            raise  # something that it needs
        return None


@contextmanager
def torch_names() -> Iterator[ModuleType]:
    """Inside, ``import torch`` gives autojit; a torch that is installed is not looked at. Gives that module.

    What was imported before under these names comes back at the end.

    Raises:
        UsageError: the program has imported torch itself, whose objects would meet autojit's.

    Example:
        >>> import autojit as aj
        >>> with aj.torch_names():
        ...     import torch
        ...     from torch import nn
        >>> torch.ones(2) + 1
        tensor([2., 2.])
        >>> nn is aj.nn
        True
    """
    present = sys.modules.get(_THEIRS)
    if present is not None and not isinstance(present, TorchModule):
        raise UsageError(
            "torch_names: torch itself is imported",
            {"torch": getattr(present, "__file__", None)},
            "start the program by python -m autojit run, or enter before anything imports torch",
        )
    before = _taken_out()
    tell = multiprocessing.spawn.get_preparation_data
    finder = _entered()
    try:
        yield importlib.import_module(_THEIRS)
    finally:
        vars(multiprocessing.spawn)["get_preparation_data"] = tell
        PACKAGE.remove(_THEIRS)
        sys.meta_path.remove(finder)
        _taken_out()
        sys.modules.update(before)


def _entered() -> TorchFinder:
    """Answer ``import torch`` from now on, in processes that this one spawns as well."""
    finder = TorchFinder()
    sys.meta_path.insert(0, finder)
    PACKAGE.append(_THEIRS)
    vars(multiprocessing.spawn)["get_preparation_data"] = _and_names(multiprocessing.spawn.get_preparation_data)
    return finder


class _Names:
    """What a spawned process is told first: to answer ``import torch`` before it imports the program, until it ends."""

    def __reduce__(self) -> tuple[Callable[[], TorchFinder], tuple[()]]:
        return _entered, ()


def _and_names(tell: Callable[[str], dict[str, Any]]) -> Callable[[str], dict[str, Any]]:
    """What multiprocessing tells a process that it spawns, and `_Names`."""
    return lambda name: {**tell(name), "torch_names": _Names()}


def _taken_out() -> dict[str, ModuleType]:
    """The modules under torch's names, which are known no more."""
    names = [name for name in sys.modules if name.partition(".")[0] in PACKAGES]
    return {name: sys.modules.pop(name) for name in names}
