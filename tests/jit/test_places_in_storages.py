"""Where a tensor lies in its storage, and with which steps, is as in eager mode: also of views, and after writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj

LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "whole": lambda t: t,
    "columns": lambda t: t[:, 1:],
    "transposed": lambda t: t.t(),
    "steps": lambda t: t[1::2, ::2],
    "rows": lambda t: t[1:].detach(),
    "a leaf": lambda t: t[2:, 1:4].detach().requires_grad_(),
}
WRITES: dict[str, Callable[[Any], Any]] = {
    "none": lambda x: None,
    "mul_": lambda x: x.mul_(2),
    "normal_": lambda x: x.normal_(),
    "copy_": lambda x: x.copy_(aj.ones_like(x)),
    "zero_": lambda x: x.zero_(),
    "an item": lambda x: x.__setitem__((0, 0), 1.0),
    "a part": lambda x: x[0].fill_(3),
    "data": lambda x: x.data.mul_(2),
    "new data": lambda x: setattr(x, "data", x.data * 2),
    "twice": lambda x: x.add_(1).sin_(),
}
SEEN: dict[str, Callable[[Any], Any]] = {
    "itself": lambda x: x,
    "rows": lambda x: x[1:],
    "part": lambda x: x[1:, 1:],
    "transposed": lambda x: x.t(),
    "part of transposed": lambda x: x.t()[1:, 1:],
    "steps": lambda x: x[:, ::2],
    "element": lambda x: x[1, 1],
    "turned": lambda x: x.unsqueeze(0).transpose(0, 2),
    "detached": lambda x: x.detach()[1:],
    "copied": lambda x: x.clone()[1:],
}


def _made(layout: str) -> Any:
    return LAYOUTS[layout](aj.tensor(np.arange(1.0, 31).reshape(5, 6) / 40))


@pytest.mark.parametrize("is_argument", [True, False], ids=["argument", "state"])
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_places_are_those_of_eager_mode(layout: str, write: str, is_argument: bool) -> None:
    def ask(x: Any) -> Any:
        with aj.no_grad():
            WRITES[write](x)
        return [(seen(x).storage_offset(), seen(x).stride(), seen(x).is_contiguous()) for seen in SEEN.values()]

    expected = ask(_made(layout))
    state = _made(layout)
    jitted = aj.jit(ask if is_argument else lambda: ask(state))
    for _ in range(3):
        found = jitted(*[_made(layout)] * is_argument)
        assert dict(zip(SEEN, found, strict=True)) == dict(zip(SEEN, expected, strict=True))


@pytest.mark.parametrize("is_argument", [True, False], ids=["argument", "state"])
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_bases_and_storages_are_those_of_eager_mode(layout: str, write: str, is_argument: bool) -> None:
    for question in (
        lambda x: x._is_view(),
        lambda x: x._base is None,
        lambda x: x[1:]._base is x,
        lambda x: (x.untyped_storage().nbytes(), x.storage().size(), len((x * 2)[1:].untyped_storage())),
    ):

        def ask(x: Any, question: Any = question) -> Any:
            with aj.no_grad():
                WRITES[write](x)
            return question(x)

        expected, state = ask(_made(layout)), _made(layout)
        jitted = aj.jit(ask if is_argument else lambda ask=ask, state=state: ask(state))
        for _ in range(3):
            assert jitted(*[_made(layout)] * is_argument) == expected


def test_elements_of_a_storage_are_those_of_this_call() -> None:
    weight = aj.ones(2, 2)

    def ask(x: Any) -> Any:
        return x.storage().tolist(), (x * weight)[1:].storage()[1], weight.storage().tolist()

    jitted = aj.jit(ask)
    for k in range(4):
        x = aj.tensor([[1.0, 2.0], [3.0, 4.0 + k]])
        assert jitted(x) == ask(x)
        weight.mul_(2)
    assert "the elements of the storage" in str(jitted.explain())


def test_arguments_that_begin_elsewhere_are_told_apart() -> None:
    @aj.jit
    def step(x: Any) -> Any:
        x.mul_(2)
        return x.storage_offset(), x[1:].storage_offset()

    for layout in LAYOUTS:
        x = _made(layout).detach()
        assert step(x) == (x.storage_offset(), x[1:].storage_offset())
