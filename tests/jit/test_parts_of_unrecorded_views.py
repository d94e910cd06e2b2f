"""Views that a step takes of an unrecorded view and returns have a node that leads nowhere, as in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj

from .test_views_without_history import MODES, bases, described

PARTS: dict[str, Callable[[aj.Tensor], Any]] = {
    "slice": lambda v: v[1:],
    "view": lambda v: v.view(3, 2),
    "two": lambda v: v[1:].view(3, 1),
    "chunk": lambda v: v.chunk(2)[1],
    "chunks": lambda v: v.chunk(2),
    "unbind": lambda v: v.unbind()[1],
    "split of a slice": lambda v: v[:, 1:].split(1, 1)[1],
    "view of a chunk": lambda v: v.chunk(2)[1].view(-1),
    "expanded": lambda v: v.expand(2, 2, 3),
    "itself, too": lambda v: (v[1:], v),
}


def parts(run: Callable[..., Any], w: aj.Tensor) -> list[Any]:
    """What parts of a view say when they have left a step, and after their memory has changed."""
    z = aj.ones(1, requires_grad=True)
    found = run(aj.ones(1))
    said: list[Any] = []
    for t in found if isinstance(found, tuple) else (found,):
        if t.grad_fn is not None:
            said += [type(t.grad_fn).__name__, t._output_nr, *described(t, w)]
            said.append(
                [g.tolist() for g in aj.autograd.grad((t * z).sum(), (w, z), allow_unused=True) if g is not None]
            )
    with aj.no_grad():
        w.mul_(2)
    return said + [described(t, w) for t in (found if isinstance(found, tuple) else (found,))]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("mode", ("no_grad", "inference"))
@pytest.mark.parametrize("is_inside", (True, False))
def test_parts_of_an_unrecorded_view_have_a_node_that_leads_nowhere(part: str, mode: str, is_inside: bool) -> None:
    for base in ("leaf", "made"):
        found = []
        for jit in (lambda f: f, aj.jit):
            w = bases(base)
            with MODES[mode]():
                outside = w.view(w.shape)

            def run(x: aj.Tensor, w: aj.Tensor = w, outside: aj.Tensor = outside) -> Any:
                with MODES[mode]():
                    v = w.view(w.shape)
                return PARTS[part](v if is_inside else outside)

            found.append(parts(jit(lambda x, run=run: run(x)), w))
        assert found[0] == found[1]
