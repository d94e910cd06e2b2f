"""Classes of tensors that want operators shown to ``__torch_dispatch__``: no layer does that, so they are refused.

A class may define it as long as no tensor is made of it: libraries define many that a program never uses.
"""

from __future__ import annotations

from typing import NoReturn, TypeVar

from autojit.core.errors import UnsupportedError

T = TypeVar("T")


def disabled_dispatch(cls: type, func: object, types: object, args: object = (), kwargs: object = None) -> NoReturn:
    """The ``__torch_dispatch__`` of classes that say that they have none."""
    refuse_dispatch(cls, "__torch_dispatch__")


def checked_subclass(cls: type[T]) -> type[T]:
    """The class, of which tensors may be.

    Raises:
        UnsupportedError: it has a ``__torch_dispatch__``, which nothing would call.
    """
    if getattr(cls, "__torch_dispatch__", disabled_dispatch) is not disabled_dispatch:
        refuse_dispatch(cls, f"{cls.__name__}.__torch_dispatch__")
    return cls


def refuse_dispatch(cls: type, asked: str) -> NoReturn:
    """Say that calls do not reach ``__torch_dispatch__``."""
    raise UnsupportedError(
        f"{asked}: autojit has no __torch_dispatch__, which operators below torch's functions would call",
        {"class": cls.__name__},
        "define __torch_function__, which is asked for every public function, and keep inner tensors as attributes",
    )
