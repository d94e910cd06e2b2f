"""What tests of old programs share."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from autojit.autograd import variable
from autojit.tensor.state import set_layers


@pytest.fixture(autouse=True)
def variable_warns_again() -> Iterator[None]:
    """Once per process is once per test here."""
    before = variable._warned
    variable._warned = True
    yield
    variable._warned = before
    gc.collect()
    set_layers(())  # a failed test's traceback keeps its Variables
