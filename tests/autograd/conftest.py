"""The ``mode`` fixture: each reference row runs eagerly and compiled."""

from __future__ import annotations

import pytest

from tests.autograd.modes import Mode


@pytest.fixture(params=["eager", "jit"])
def mode(request: pytest.FixtureRequest) -> Mode:
    return Mode(request.param, request)
