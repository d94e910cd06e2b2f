"""Random programs over the public API, eager against compiled: ``python -m autojit.testing.fuzz --seconds 60``."""

from autojit.testing.fuzz.checking import check
from autojit.testing.fuzz.inputs import filled, sample, sample_array
from autojit.testing.fuzz.showing import show

__all__ = ["check", "filled", "sample", "sample_array", "show"]
