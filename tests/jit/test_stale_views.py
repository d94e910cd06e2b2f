"""A view that a step returns after its memory has changed may be used as eager mode lets it be used: one made together
with others, or where nothing is recorded, has lost its history.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj


def unrecorded(function: Callable[..., Any]) -> Any:
    with aj.no_grad():
        return function()


VIEWS: dict[str, Callable[[Any], Any]] = {
    "a chunk": lambda x: x.chunk(2)[0],
    "one of several": lambda x: x.unbind(0)[1],
    "split": lambda x: x.split([1, 1])[1],
    "a slice": lambda x: x[1:],
    "of a chunk": lambda x: x.chunk(2)[1][0],
    "unrecorded": lambda x: unrecorded(lambda: x[0]),
    "unrecorded, of a view": lambda x: (lambda v: unrecorded(lambda: v.t()))(x[:1]),
    "detached": lambda x: x.detach()[0],
}
CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "nothing": lambda x, v: None,
    "the base": lambda x, v: unrecorded(lambda: x.add_(1)),
    "the view": lambda x, v: unrecorded(lambda: v.add_(1)),
    "another view": lambda x, v: unrecorded(lambda: x[1].mul_(2)),
    "a detached view": lambda x, v: x.detach().mul_(2),
    "data": lambda x, v: x.data.mul_(2),
}
BASES: dict[str, Callable[[Any], Any]] = {
    "plain": lambda x: x,
    "a leaf": lambda x: x.requires_grad_(),
    "with a history": lambda x: x.requires_grad_() * 1,
}
QUESTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "flags": lambda x, v: [v.requires_grad, v.is_leaf, v.tolist(), v._base is x],
    "history": lambda x, v: v.grad_fn is None,
    "gradient": lambda x, v: aj.autograd.grad((v * v).sum(), x)[0].tolist(),
    "write": lambda x, v: v.mul_(3).tolist(),
    "unrecorded write": lambda x, v: unrecorded(lambda: v.mul_(3)).tolist(),
    "later": lambda x, v: [unrecorded(lambda: x.add_(1)).tolist(), v.tolist(), v.grad_fn is None],
}


@pytest.mark.parametrize("is_outside", [False, True])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_of_changed_memory_has_the_history_that_it_has_in_eager_mode(
    view: str, change: str, is_outside: bool
) -> None:
    def seen(jit: Callable[..., Any], base: str) -> list[Any]:
        found: list[Any] = []
        x = BASES[base](aj.arange(1.0, 7.0, dtype=aj.float64).reshape(2, 3))

        def step(given: Any) -> Any:
            made = VIEWS[view](x if is_outside else given)
            CHANGES[change](x if is_outside else given, made)
            return made

        compiled = jit(step)
        for question in QUESTIONS.values():
            x = x.detach().clone() if base == "plain" else BASES[base](x.detach().clone())
            try:
                made = compiled(None if is_outside else x)
                found.append(question(x, made))
            except RuntimeError as error:
                line = str(error).split("\n", 1)[0]
                found.append(line.split(" is a view", 1)[-1])  # whose node may have another name
        return found

    for base in BASES:
        eager, compiled = seen(lambda f: f, base), seen(aj.jit, base)
        assert compiled == eager, (base, list(QUESTIONS))


HANDLES: dict[str, Callable[[aj.Tensor], aj.Tensor]] = {  # ways to the memory of a tensor
    "itself": lambda s: s,
    "view": lambda s: s[:2],
    "item": lambda s: s[0],
    "detached": lambda s: s.detach(),
    "data": lambda s: s.data,
    "data of a view": lambda s: s[:2].data,
    "view of data": lambda s: s.data[1:],
    "detached view": lambda s: s[:3].detach(),
    "other form": lambda s: s.view(2, 2),
    "data of data": lambda s: s.data.view(-1).data,
}
OWNERS = ("outside", "argument", "made")


@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize("change", HANDLES)
def test_what_one_handle_changes_all_others_show(change: str, owner: str) -> None:
    def step(x: aj.Tensor, given: aj.Tensor) -> Any:
        s = given * 1 if owner == "made" else given
        before = {name: take(s) for name, take in HANDLES.items()}
        seen = [before["view"] * 1, before["data of a view"] * 1]
        before[change].add_(1)
        shown = [t * 1 for t in before.values()]
        HANDLES[change](s).mul_(x)
        return seen, shown, [t * 1 for t in before.values()], [take(s) * 1 for take in HANDLES.values()]

    found = []
    for jit in (lambda function: function, aj.jit):
        s = aj.arange(4.0)
        run = jit(step) if owner == "argument" else jit(lambda x, s=s: step(x, s))
        calls = [repr(run(aj.tensor(k), *([s] if owner == "argument" else []))) for k in (2.0, 3.0, 0.5)]
        found.append((calls, s.tolist()))
    assert found[0] == found[1]
