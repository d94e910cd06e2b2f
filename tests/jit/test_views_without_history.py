"""Views whose base requires gradients and that have no history to say so, as arguments: compiled equals eager.

Unrecorded ones (made under ``no_grad``, or before the base required gradients) and stale ones (their memory has changed
since), from the first call on or after calls that ran natively.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit import func, nn

Make = Callable[[aj.Tensor], aj.Tensor]
MAKERS: dict[str, Make] = {
    "view": lambda w: w.view(w.shape),
    "row": lambda w: w[1],
    "transposed": lambda w: w.T,
    "column": lambda w: w[:, 1],
    "view of a view": lambda w: w[1:].view(-1),
    "chunk": lambda w: w.chunk(2)[0],
    "unbind": lambda w: w.unbind()[1],
    "split": lambda w: w.split(1, 1)[2],
    "whole numbers": lambda w: w.view(aj.int32),
}
FORMS = (aj.preserve_format, *[aj.contiguous_format] * 2)
MODES = {"no_grad": aj.no_grad, "inference": aj.inference_mode, "ordinary": contextlib.nullcontext}


def nothing(w: aj.Tensor, v: aj.Tensor) -> None:
    pass


def base_changed(w: aj.Tensor, v: aj.Tensor) -> None:
    with aj.no_grad():
        w.mul_(0.5)


def view_changed(w: aj.Tensor, v: aj.Tensor) -> None:
    with aj.no_grad():
        v.mul_(2)


def base_written_by_a_leaf(w: aj.Tensor, v: aj.Tensor) -> None:
    if w.is_leaf and w.requires_grad:
        base_changed(w, v)
    else:
        w.mul_(aj.full((), 3.0, requires_grad=True))


def flag_of_base(w: aj.Tensor, v: aj.Tensor) -> None:
    if w.is_leaf:
        w.requires_grad_(not w.requires_grad)


def own_flag(w: aj.Tensor, v: aj.Tensor) -> None:
    if v.is_leaf and v.dtype.is_floating_point:
        v.requires_grad_()


def own_flag_and_changed(w: aj.Tensor, v: aj.Tensor) -> None:
    own_flag(w, v)
    base_changed(w, v)


CHANGES = {
    change.__name__: change
    for change in (
        nothing,
        base_changed,
        view_changed,
        base_written_by_a_leaf,
        flag_of_base,
        own_flag,
        own_flag_and_changed,
    )
}


def bases(kind: str) -> aj.Tensor:
    w = aj.arange(6.0).reshape(2, 3).clone()
    if kind != "plain":
        w.requires_grad_()
    return w * 1.5 if kind == "made" else w


class Scaled(nn.Module):
    def __init__(self, v: aj.Tensor) -> None:
        super().__init__()
        self.v = v


def doubled(v: aj.Tensor) -> aj.Tensor:
    return v * 2


def sum_of_all(v: Any) -> Any:
    return v["a"][0] * v["b"]


# how the view is given, and what the step does with it
GIVEN: dict[str, tuple[Callable[[aj.Tensor], Any], Callable[[Any], Any]]] = {
    "alone": (lambda v: v, doubled),
    "in a list": (lambda v: [v, 3.0], lambda given: given[0] * given[1]),
    "in nests": (lambda v: {"a": (v,), "b": aj.ones(1)}, sum_of_all),
    "twice": (lambda v: [v, v], lambda given: given[0] + given[1]),
    "in a module": (Scaled, lambda module: module.v * 2),
}
USES: dict[str, Callable[[Any], Any]] = {
    "flag": lambda v: (v.detach() * 2, v.requires_grad, v.is_leaf),
    "history": lambda v: (v.detach() * 2, v.grad_fn is None),
    "of a view of it": lambda v: v.detach().sum() + 1.0 if v[..., :1].requires_grad else v.detach().sum(),
    "detached": lambda v: v.detach() * 2,
    "returned": lambda v: (v, v.detach() + 1),
    "in place": lambda v: v.mul_(2),
    "sum": lambda v: v.sum() * 2,
    "recorded inside": lambda v: aj.autograd.grad((z := aj.ones(1, requires_grad=True)).mul(v).sum(), z)[0],
    "enable_grad": lambda v: enabled(v),
    "vmap": func.vmap(lambda e: e * 2),
    "grad": func.grad(lambda z: (z * z).sum()),
    "grad by another": lambda v: func.grad(lambda z: (z * v).sum())(aj.ones(1)),
    "views": lambda v: [piece * 2 for piece in v.unbind()],
}


def enabled(v: aj.Tensor) -> Any:
    with aj.enable_grad():
        y = v * 2
    return y.detach(), y.requires_grad


def described(found: Any, leaf: aj.Tensor) -> list[Any]:
    if isinstance(found, list | tuple):
        return [described(item, leaf) for item in found]
    if not isinstance(found, aj.Tensor):
        return [found]
    try:
        flags = [found.requires_grad, found.grad_fn is None]
    except RuntimeError as error:
        return [str(error)]
    gradient = None
    if found.requires_grad and leaf.requires_grad and found.dtype.is_floating_point:
        try:
            (gradient,) = aj.autograd.grad(found.sum(), leaf, allow_unused=True, retain_graph=True)
        except RuntimeError as error:
            gradient = str(error)
    return [found.detach().tolist(), *flags, gradient.tolist() if isinstance(gradient, aj.Tensor) else gradient]


def outcomes(
    run: Callable[[Any], Any], base: str, make: Make, mode: str, change: str, caller: str, give: Any, warm: int
) -> list[Any]:
    """What calls give: ``warm`` with an ordinary tensor, two with the view, two after its state has changed."""
    w = bases(base)
    with MODES[mode]():
        v = make(w)
    plain = [v.detach().clone(memory_format=form) for form in FORMS[:warm]]
    found: list[Any] = []
    for k, given in enumerate((*plain, v, v, None, v, v)):
        if given is None:
            CHANGES[change](w, v)
            continue
        try:
            with MODES[caller]():
                y = run(give(given))
            found.append((k, *described(y, w)))
        except Exception as error:
            found.append((k, type(error), str(error).splitlines()[0]))
    found.append(w.detach().tolist())
    return found


def outcome(*arguments: Any) -> Any:
    try:
        return outcomes(*arguments)
    except RuntimeError as error:  # of the change itself
        return str(error).splitlines()[0]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("base", ("leaf", "made", "plain"))
def test_compiled_calls_are_as_eager_ones(base: str, change: str) -> None:
    step = aj.jit(doubled)
    for made_in in MODES:
        for name, make in MAKERS.items():
            arguments = base, make, made_in, change, "ordinary", lambda v: v, 3
            assert outcome(step, *arguments) == outcome(doubled, *arguments), (made_in, name)


@pytest.mark.parametrize("caller", MODES)
@pytest.mark.parametrize("use", USES)
def test_whatever_the_step_does(use: str, caller: str) -> None:
    step = aj.jit(USES[use])
    for base, made_in in (("leaf", "no_grad"), ("made", "inference")):
        for change in ("base_changed", "base_written_by_a_leaf"):
            arguments = base, MAKERS["transposed"], made_in, change, caller, lambda v: v, 3
            assert outcome(step, *arguments) == outcome(USES[use], *arguments), (base, change)


@pytest.mark.parametrize("given", GIVEN)
def test_wherever_it_stands_among_the_arguments(given: str) -> None:
    give, use = GIVEN[given]
    step = aj.jit(use)
    for base, changes in (
        ("leaf", ("base_changed", "own_flag")),
        ("plain", ("flag_of_base", "base_written_by_a_leaf")),
    ):
        for change in changes:
            for warm in (0, 3):
                arguments = base, MAKERS["chunk"], "no_grad", change, "ordinary", give, warm
                assert outcome(step, *arguments) == outcome(use, *arguments), (base, change, warm)
