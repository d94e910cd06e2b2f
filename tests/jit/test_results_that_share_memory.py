"""Results that look at one memory do so after a step as in eager mode, in whatever mode it runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj

SHOWN: dict[str, Callable[[Any], list[Any]]] = {
    "all and a view": lambda v: [v, v.t()],
    "all and a detached view": lambda v: [v, v.detach().t()],
    "a detached part and a view": lambda v: [v.detach()[1:], v.t()],
    "two views": lambda v: [v[0], v.t()],
    "two detached views": lambda v: [v.detach()[0], v.detach().t()],
    "gaps": lambda v: [v[:, ::2]],
    "interleaved": lambda v: [v[:, ::2], v[:, 1::2], v[0]],
    "a view of a detached view": lambda v: [v.t()[1:], v.t().detach()[1:][:, 1:], v.reshape(-1)],
    "a copy between": lambda v: [v.t()[1:], v.t().clone()[1:], v.t()[1:].detach()],
}
MODES = {"ordinary": contextlib.nullcontext, "no_grad": aj.no_grad, "inference": aj.inference_mode}
ARGUMENTS: tuple[Callable[[], Any], ...] = (
    lambda: aj.ones(3, 4),
    lambda: aj.ones(4, 6)[:, ::2].t(),
    lambda: aj.ones(4, 3).t(),
)


def seen(show: Callable[[Any], list[Any]], mode: Callable[[], Any], wrap: Callable[[Any], Any], grad: bool) -> Any:
    step, found = wrap(lambda x: show(x * 2)), list[Any]()
    for make in ARGUMENTS:
        x = make().detach().requires_grad_(grad)
        for _ in range(2):
            with mode():
                results = step(x)
            found += [(t.stride(), t.is_inference(), t.requires_grad, t.is_leaf) for t in results]
            with aj.inference_mode() if results[0].is_inference() else aj.no_grad():
                for k, t in enumerate(results):
                    t.add_(10**k)
            found.append([t.tolist() for t in results])
    return found


@pytest.mark.parametrize("grad", [False, True], ids=["constant", "differentiable"])
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES.keys())
@pytest.mark.parametrize("show", SHOWN.values(), ids=SHOWN.keys())
def test_a_write_to_one_result_is_seen_in_the_others(
    show: Callable[[Any], list[Any]], mode: Callable[[], Any], grad: bool
) -> None:
    assert seen(show, mode, aj.jit, grad) == seen(show, mode, lambda f: f, grad)


VIEWS: dict[str, Callable[[Any], Any]] = {
    "t": lambda v: v.t(),
    "unsqueeze(0)": lambda v: v.unsqueeze(0),
    "unsqueeze(1)": lambda v: v.unsqueeze(1),
    "[:1]": lambda v: v[:1],
    "[:, :1]": lambda v: v[:, :1],
    "[:, -1:].t()": lambda v: v[:, -1:].t(),
    "expand": lambda v: v.unsqueeze(1).expand(-1, 1, -1),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
@pytest.mark.parametrize("shape", [(1, 4), (4, 1), (3, 4), (1, 1)])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_axes_of_size_one_keep_their_strides(
    view: Callable[[Any], Any], shape: tuple[int, int], is_transposed: bool
) -> None:
    x = aj.ones(*reversed(shape)).t() if is_transposed else aj.ones(*shape)
    step = aj.jit(lambda x: view(x * 2))
    for _ in range(2):
        assert step(x).stride() == view(x * 2).stride()
