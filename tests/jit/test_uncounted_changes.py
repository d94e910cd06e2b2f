"""Changes that no version counts (``.data``) are seen by whoever looks at the memory, and spoil no history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj

HANDLES: dict[str, Callable[[Any], Any]] = {
    "itself": lambda t: t,
    "data": lambda t: t.data,
    "detach": lambda t: t.detach(),
    "a view": lambda t: t[1:],
    "data of a view": lambda t: t[1:].data,
    "a view of data": lambda t: t.data[1:],
    "data of detach": lambda t: t.detach().data,
    "detach of data": lambda t: t.data.detach(),
    "data of data": lambda t: t.data.data,
}
ROOTS: dict[str, Callable[[Any], Any]] = {
    "a result": lambda x: x.sqrt(),
    "an operand": lambda x: x + 1,
    "an argument": lambda x: x,
}


def _spoilt(jit: Callable[[Any], Any], root: str, saved: str, changed: str) -> Any:
    """What a step finds that changes one handle of memory after a history has kept another."""
    weight = aj.ones(3).requires_grad_()

    @jit
    def step(x: Any) -> Any:
        t = ROOTS[root](x)
        kept, other = HANDLES[saved](t), HANDLES[changed](t)
        loss = (kept * weight[: len(kept)]).sum() + t.square().sum()
        with aj.no_grad():
            other.mul_(2)
        loss.backward()
        return t.detach().clone(), kept.detach().clone(), x.grad

    x = aj.tensor([1.0, 4.0, 16.0], dtype=aj.float64).requires_grad_()
    try:
        return [t.tolist() for t in step(x)], x._version, weight.grad.tolist()
    except RuntimeError as error:
        return str(error).splitlines()[0]


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("changed", ["itself", "data", "data of a view", "data of detach", "detach of data"])
def test_what_was_kept_is_spoilt_by_the_changes_that_its_version_counts(root: str, changed: str) -> None:
    for saved in HANDLES:
        assert _spoilt(aj.jit, root, saved, changed) == _spoilt(lambda f: f, root, saved, changed), saved


def _seen(jit: Callable[[Any], Any], root: str, first: str, second: str) -> Any:
    """What every handle of memory shows after changes through two of them, and how many each has counted."""

    @jit
    def step(x: Any) -> Any:
        t = ROOTS[root](x)
        handles = [make(t) for make in HANDLES.values()]
        before = [handle * 1 for handle in handles]
        HANDLES[first](t).mul_(2)
        between = [handle * 1 for handle in handles]
        with aj.autograd._unsafe_preserve_version_counter(t):
            HANDLES[second](t).add_(1)
        versions = [] if root == "an argument" else [handle._version for handle in handles]
        return before, between, [handle * 1 for handle in handles], versions

    x = aj.tensor([1.0, 4.0, 16.0], dtype=aj.float64)
    *shown, versions = step(x)
    return [[t.tolist() for t in ts] for ts in shown], versions, x.tolist(), x._version


@pytest.mark.parametrize("root", ROOTS)
def test_every_handle_shows_each_change_and_counts_those_of_its_own(root: str) -> None:
    names = list(HANDLES)
    for first, second in zip(names, names[4:] + names[:4], strict=True):
        assert _seen(aj.jit, root, first, second) == _seen(lambda f: f, root, first, second), (first, second)


COMPOSITES: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(0),
    "logsumexp": lambda x: x.logsumexp(-1),
    "std": lambda x: x.std(0),
    "prod": lambda x: x.prod(0),
    "layer_norm": lambda x: aj.nn.functional.layer_norm(x, (3,)),
    "gelu": lambda x: aj.nn.functional.gelu(x),
    "sigmoid": lambda x: x.sigmoid(),
}


@pytest.mark.parametrize("name", COMPOSITES)
def test_what_a_function_of_several_ops_keeps_follows_such_changes_or_the_step_is_refused(name: str) -> None:
    def gradient(jit: Callable[[Any], Any], which: int) -> Any:
        @jit
        def step(x: Any) -> None:
            operand = x * 2
            result = COMPOSITES[name](operand)
            (operand, result, x)[which].data.mul_(2)
            result.sum().backward()

        x = (aj.arange(6.0, dtype=aj.float64).reshape(2, 3) / 7).requires_grad_()
        step(x)
        return x.grad

    for which in range(3):
        try:
            compiled = gradient(aj.jit, which)
        except aj.core.errors.TraceError as error:
            assert "through .data" in str(error)
        else:
            aj.testing.assert_close(compiled, gradient(lambda f: f, which), rtol=1e-14, atol=1e-15)
