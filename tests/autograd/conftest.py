"""The ``mode`` fixture: each reference row runs eagerly and compiled."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from autojit.tensor.state import state
from tests.autograd.modes import Mode


@pytest.fixture(params=["eager", "jit"])
def mode(request: pytest.FixtureRequest) -> Mode:
    return Mode(request.param, request)


@pytest.fixture(autouse=True)
def no_old_variable_is_left() -> Iterator[None]:
    """While a ``Variable`` lives, a thread records differently. One in a cycle (a jitted function is one) lives until
    the next collection; one that a collection leaves is kept by something of autojit's, and changes what comes after.
    """
    yield
    if state.layers:
        gc.collect()
        assert not state.layers
