"""torch's module of ``__torch_dispatch__``, for programs that import it: modes are refused where they are entered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from autojit.tensor.refused_dispatch import refuse_dispatch

__all__ = ["TorchDispatchMode", "is_traceable_wrapper_subclass"]


class TorchDispatchMode:
    """A base of modes; entering one is refused, since nothing would call it.

    Example:
        >>> from autojit.utils._python_dispatch import TorchDispatchMode
        >>> with TorchDispatchMode():
        ...     pass
        Traceback (most recent call last):
            ...
        autojit.core.errors.UnsupportedError: TorchDispatchMode: autojit has no __torch_dispatch__, ...
    """

    def __enter__(self) -> NoReturn:
        refuse_dispatch(type(self), type(self).__name__)

    def __exit__(self, *exception: object) -> None:
        """Nothing was entered."""


def is_traceable_wrapper_subclass(t: object) -> bool:
    """Whether a tensor wraps others by ``__torch_dispatch__``: none does."""
    return False


def _get_current_dispatch_mode() -> None:
    """The innermost mode: there is none."""


@contextmanager
def _disable_current_modes() -> Iterator[list[Any]]:
    """A context without modes, which is as outside."""
    yield []
