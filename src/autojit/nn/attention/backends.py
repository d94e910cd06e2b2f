"""Which implementation of attention is used: there is one, and every choice of torch's is taken for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum

from autojit.core.errors import ArgumentError

__all__ = ["SDPBackend", "sdpa_kernel"]


class SDPBackend(IntEnum):
    """Torch's implementations of ``scaled_dot_product_attention``."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextmanager
def sdpa_kernel(backends: SDPBackend | Sequence[SDPBackend], set_priority: bool = False) -> Iterator[None]:
    """Inside, attention may be computed by these implementations. Results and memory do not depend on the choice.

    Raises:
        ArgumentError: something else than members of `SDPBackend` is given, or none.

    Example:
        >>> import autojit as aj
        >>> from autojit.nn.attention import SDPBackend, sdpa_kernel
        >>> q = aj.ones(1, 2, 4, 8)
        >>> with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        ...     aj.nn.functional.scaled_dot_product_attention(q, q, q).shape
        autojit.Size([1, 2, 4, 8])
    """
    given = [backends] if isinstance(backends, SDPBackend) else [*backends]
    if not given or not all(isinstance(one, SDPBackend) for one in given):
        raise ArgumentError(
            "sdpa_kernel: Backend must be an instance of SDPBackend or a list of SDPBackend instances",
            {"backends": backends},
            "pass SDPBackend.MATH or another member",
        )
    yield
