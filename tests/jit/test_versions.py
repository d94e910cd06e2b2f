"""Version counters move with a compiled call where they move with an eager one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj

Wrap = Callable[[Callable[..., Any]], Any]


def _onto_itself(x: aj.Tensor, w: aj.Tensor) -> None:
    w.copy_(w)
    x.copy_(x)


def _through_data(x: aj.Tensor, w: aj.Tensor) -> aj.Tensor:
    w.data.add_(1)
    x.data.add_(1)
    x.data[0].mul_(2)
    return w.sum()


def _both(x: aj.Tensor, w: aj.Tensor) -> None:
    w.add_(1)
    w.data.mul_(2)
    x.data.add_(1)
    x.mul_(2)


def _form(x: aj.Tensor, w: aj.Tensor) -> None:
    x.t_()
    w[0].zero_()


def _detached(x: aj.Tensor, w: aj.Tensor) -> None:
    x.detach().add_(1)
    w.detach().copy_(w)


def _several_times(x: aj.Tensor, w: aj.Tensor) -> None:
    for _ in range(3):
        w.add_(x)
        w[0].mul_(2.0)
        x.sub_(1.0)


def _nothing(x: aj.Tensor, w: aj.Tensor) -> aj.Tensor:
    return x.data + w.data


BODIES = [_onto_itself, _through_data, _both, _form, _detached, _several_times, _nothing]


def _run(jit: Wrap, body: Callable[..., Any]) -> list[Any]:
    w = aj.ones(3, 3)
    step = jit(lambda x: body(x, w))
    found = []
    for _ in range(4):
        x = aj.ones(3, 3)
        before = x._version, w._version
        step(x)
        found.append([x._version - before[0], w._version - before[1], x.tolist(), w.tolist()])
    return found


def test_a_version_counts_the_calls_of_every_step_that_writes_the_tensor() -> None:
    def run(jit: Wrap) -> list[int]:
        w = aj.ones(3)
        once, twice = jit(lambda: w.add_(1)), jit(lambda: w.mul_(2).add_(1))
        seen = []
        for step in (*[once] * 4, *[twice] * 4, *[once, twice] * 2):  # by then both have native entries
            step()
            seen.append(w._version)
        return seen

    assert run(aj.jit) == run(lambda f: f)


@pytest.mark.parametrize("body", BODIES)
def test_versions_move_as_in_eager_mode(body: Callable[..., Any]) -> None:
    assert _run(aj.jit, body) == _run(lambda f: f, body)


FORMS: dict[str, Callable[[Any], Any]] = {
    "unsqueeze_": lambda y: y.unsqueeze_(0),
    "t_": lambda y: y.t_(),
    "as_strided_": lambda y: y.as_strided_((2, 2), (1, 2), 1),
    "squeeze_": lambda y: y.squeeze_(),
}
WRITES: dict[str, Callable[[Any], Any]] = {
    "none": lambda y: None,
    "data": lambda y: y.data.mul_(2),
    "an element through data": lambda y: y.data[0].fill_(5),
    "a view's data": lambda y: y[:1].data.mul_(3),
    "counted": lambda y: y.mul_(2),
    "both": lambda y: (y.mul_(2), y.data.add_(1)),
}


@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("form", FORMS)
def test_a_form_counts_once_beside_a_write_that_does_not(form: str, write: str, is_first: bool) -> None:
    def f(y: Any) -> Any:
        for change in (WRITES[write], FORMS[form]) if is_first else (FORMS[form], WRITES[write]):
            change(y)
        return y * 1

    def left(function: Any) -> Any:
        y = aj.arange(12.0).reshape(3, 4)
        function(y)
        return y._version, y.tolist()

    assert left(aj.jit(f)) == left(f)
