"""The entry point looks behind a tensor that is a view: at a slot of its base."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from autojit.runtime.entry_spec import Behind, Refusal, TensorArgument

from .test_entry import CHECK, ENTRIES, MakeEntry, Subtensor, Tensor, filled, spec_of


class View:
    __slots__ = ("base",)

    def __init__(self, base: Any) -> None:
        self.base = base


class Viewing(Tensor):
    __slots__ = ("_view",)

    def __init__(self, view: Any) -> None:
        super().__init__(filled()._array)
        self._view = view


BEHIND = Behind("_view", View, "base", Tensor, "requires_grad", False)


def tracked(base: Tensor) -> Tensor:
    base.requires_grad = True
    return base


def without(slot: str, obj: Any) -> Any:
    delattr(obj, slot)
    return obj


FITTING: dict[str, Callable[[], Any]] = {
    "no view": lambda: None,
    "a view without a base": lambda: View(None),
    "of a plain base": lambda: View(filled()),
    "of a base of a subclass": lambda: View(Subtensor(filled()._array)),
}
OTHERS: dict[str, Callable[[], Any]] = {
    "of a base that requires gradients": lambda: View(tracked(filled())),
    "of one of a subclass": lambda: View(tracked(Subtensor(filled()._array))),
    "an empty base": lambda: without("base", View(None)),
    "an empty flag": lambda: View(without("requires_grad", filled())),
}


@pytest.mark.parametrize("entry_type", ENTRIES)
def test_the_base_of_a_view_is_looked_at(entry_type: MakeEntry) -> None:
    entry = entry_type(spec_of(arguments=(TensorArgument(Viewing, CHECK, 0, behind=BEHIND),)))
    for make in FITTING.values():
        assert type(entry.call(Viewing(make()))) is Tensor
    for make in (*OTHERS.values(), lambda: View(tracked(filled()))):
        assert entry.call(Viewing(make())) is Refusal.SLOW
        assert entry.last_failure() == ("argument", 0)
    assert entry.call(without("_view", Viewing(None))) is Refusal.SLOW


@pytest.mark.parametrize("entry_type", ENTRIES)
def test_a_base_is_looked_at_in_every_call(entry_type: MakeEntry) -> None:
    entry = entry_type(spec_of(arguments=(TensorArgument(Viewing, CHECK, 0, behind=BEHIND),)))
    given = Viewing(View(filled()))
    assert type(entry.call(given)) is Tensor
    tracked(given._view.base)
    assert entry.call(given) is Refusal.SLOW
