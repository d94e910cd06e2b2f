"""Functions of the top level, and methods of Tensor, that not every program needs: imported when first named.

Each says so where it is defined (``declared``, ``top_level``); ``index.py`` is written from what they say.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from autojit.core.top_level import TOP_LEVEL
from autojit.functions import index
from autojit.tensor.argument_errors import with_argument_errors
from autojit.tensor.declared import declaration_of
from autojit.tensor.methods import public_forms


def _places(modules: dict[str, str]) -> dict[str, str]:
    return {name: f"autojit.{module}" for module, names in modules.items() for name in names.split()}


PLACES = _places(index.FUNCTIONS)
METHODS = _places(index.METHODS)


def public_value(module: ModuleType, name: str) -> Any:
    """What the package has under a name that a module of ``PLACES`` has."""
    if name in TOP_LEVEL or name not in PLACES:
        return getattr(module, name)
    d = declaration_of(name)
    found = public_forms(d)[name]
    return found if name in d.names else with_argument_errors(found)
