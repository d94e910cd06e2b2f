"""What the laws about sources share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.house.sources import forget_sources


@pytest.fixture(scope="package", autouse=True)
def what_is_parsed_is_kept_for_this_folder() -> Iterator[None]:
    """By whichever worker runs laws of it."""
    yield
    forget_sources()
