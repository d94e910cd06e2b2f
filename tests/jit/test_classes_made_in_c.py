"""What C made is no code of the user's, in whichever module it lies and whichever Python it is of."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from autojit.jit.observed_functions import is_user_class

MODULES = (
    "array", "collections", "collections.abc", "contextvars", "csv", "dataclasses", "decimal", "enum", "functools",
    "io", "itertools", "operator", "queue", "random", "re", "string", "struct", "threading", "types", "typing",
    "weakref",
)  # fmt: skip


def _is_made_in_c(cls: type) -> bool:
    """A class of Python code takes attributes; one of C's, as a rule, refuses them."""
    try:
        cls._autojit_probe = 1  # type: ignore[attr-defined]
    except TypeError:
        return True
    del cls._autojit_probe  # type: ignore[attr-defined]
    return False


def _classes(module: Any) -> list[type]:
    assert isinstance(module, ModuleType)
    return [value for value in vars(module).values() if isinstance(value, type)]


@pytest.mark.parametrize("name", MODULES)
def test_no_class_made_in_c_is_the_users(name: str) -> None:
    __import__(name)
    wrong = [cls for cls in _classes(sys.modules[name]) if is_user_class(cls) and _is_made_in_c(cls)]
    assert not wrong


def test_a_class_of_the_user_is() -> None:
    class Own:
        pass

    assert is_user_class(Own)
