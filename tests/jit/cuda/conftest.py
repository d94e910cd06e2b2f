"""Every test here has an emulated device."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from autojit.runtime.gpu.emulator.driver import EmulatedDriver
from tests.emulated import emulated_cuda


@pytest.fixture(autouse=True)
def driver() -> Iterator[EmulatedDriver]:
    """The device's driver, which counts what it does."""
    with emulated_cuda() as found:
        yield found
