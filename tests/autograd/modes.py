"""The two ways every reference row is run: eagerly, and with the body under ``@aj.jit``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from tests.shares import every_case


class Mode:
    """How a test's body runs; calling it with a function gives the function to call instead."""

    def __init__(self, name: str, request: pytest.FixtureRequest) -> None:
        self.name = name
        self._request = request

    @property
    def is_jit(self) -> bool:
        return self.name == "jit"

    @property
    def one_of(self) -> int:
        """Of so many ops, laws over all ops look at one: compiling takes long, and ``--every-case`` has the time."""
        return 3 if self.is_jit and not every_case(self._request.config) else 1

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return aj.jit(function) if self.is_jit else function

    def does_not_apply(self, reason: str) -> None:
        """Say in one line why the row's body has no compiled form (the test goes on and checks what it can)."""
        if self.is_jit:
            self._request.node.user_properties.append(("does not apply under jit", reason))
