"""torch.xpu: GPUs of Intel's, of which there are none here; programs ask.

Example:
    >>> import autojit as aj
    >>> "xpu" if aj.xpu.is_available() else "cpu"
    'cpu'
"""

from __future__ import annotations

__all__ = ["device_count", "is_available"]


def is_available() -> bool:
    """Whether tensors can be placed there: no."""
    return False


def device_count() -> int:
    """How many there are: none."""
    return 0
