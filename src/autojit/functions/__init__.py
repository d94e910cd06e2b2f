"""Functions of the top level, and methods of Tensor, that not every program needs: imported when first named.

Each says so where it is defined (``declared``, ``top_level``); ``index.py`` is written from what they say.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import autojit.dispatch.fast_paths
from autojit.core.top_level import TOP_LEVEL
from autojit.dispatch.declared import declaration_of
from autojit.functions import index
from autojit.functions.factories import tensor as _factory
from autojit.functions.methods import attach, public_forms
from autojit.tensor.tensor import Tensor


def _places(modules: dict[str, str]) -> dict[str, str]:
    return {name: f"autojit.{module}" for module, names in modules.items() for name in names.split()}


PLACES = _places(index.FUNCTIONS)
METHODS = _places(index.METHODS)


def public_value(module: ModuleType, name: str) -> Any:
    """What the package has under a name that a module of ``PLACES`` has."""
    if name in TOP_LEVEL or name not in PLACES:
        return getattr(module, name)
    return public_forms(declaration_of(name))[name]


FUNCTIONS = attach()
import autojit.functions.public_functions  # noqa: E402, F401 (who may override them)


class _Package(ModuleType):
    """``autojit.tensor`` names this package and the factory: calling the package calls the factory.

    The public namespace binds the factory; tools that import submodules by path bind the package again.
    """

    def __call__(self, data: object, **options: Any) -> Tensor:
        return _factory(data, **options)


sys.modules["autojit.tensor"].__class__ = _Package
