"""Changed texts in place of modules: what ``record.py`` imports the product through."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, ModuleType

Code = Callable[[], CodeType]


class _Loader(importlib.machinery.SourceFileLoader):
    """Runs given code in place of a file's, over given globals."""

    def __init__(self, name: str, path: str, code: Code, given: Mapping[str, object]) -> None:
        super().__init__(name, path)
        self.code, self.given = code, given

    def get_code(self, fullname: str) -> CodeType:
        return self.code()

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(self.given)
        super().exec_module(module)


class Planting(importlib.abc.MetaPathFinder):
    """Finds one module, whose code is given."""

    def __init__(self, name: str, path: str, code: Code, given: Mapping[str, object] | None = None) -> None:
        self.name, self.path, self.code, self.given = name, path, code, given or {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        loader = _Loader(fullname, self.path, self.code, self.given)
        return importlib.util.spec_from_file_location(fullname, self.path, loader=loader)
