"""``__torch_dispatch__`` is nowhere called, so no tensor is made of a class that counts on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit._C import _disabled_torch_dispatch_impl
from autojit.core.errors import UnsupportedError
from autojit.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass


class Shown(aj.Tensor):
    """Wants to see operators."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError("it is never called")


class Quiet(aj.Tensor):
    """Says that it wants to see none."""

    __torch_dispatch__ = _disabled_torch_dispatch_impl


MADE: dict[str, Callable[[Any], Any]] = {
    "as a subclass": lambda kind: aj.ones(2).as_subclass(kind),
    "of a leaf": lambda kind: kind._make_subclass(kind, aj.ones(2)),
    "of numbers": lambda kind: kind([1.0, 1.0]),
}


@pytest.mark.parametrize("way", MADE)
def test_only_classes_without_it_have_tensors(way: str) -> None:
    assert type(MADE[way](Quiet)) is Quiet
    with pytest.raises(UnsupportedError, match=r"Shown\.__torch_dispatch__: autojit has no __torch_dispatch__"):
        MADE[way](Shown)


def test_wrappers_and_modes_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"Tensor\._make_wrapper_subclass: autojit has no __torch_dispatch__"):
        aj.Tensor._make_wrapper_subclass(Shown, (2,), dtype=aj.float32)
    with pytest.raises(UnsupportedError, match="TorchDispatchMode"), TorchDispatchMode():
        pass
    assert not is_traceable_wrapper_subclass(aj.ones(2).as_subclass(Quiet))
