"""Steps that find other gradients in every call, as an optimiser's does: eager mode's results, by one native entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj

Leaves = list[aj.nn.Parameter]


def _clipped(opt: Any, leaves: Leaves) -> Any:
    aj.nn.utils.clip_grad_norm_(leaves, 0.5)
    opt.step()


def _shrunk(opt: Any, leaves: Leaves) -> Any:
    for p in leaves:
        assert p.grad is not None
        p.grad.mul_(0.5)
    opt.step()


def _cleared(opt: Any, leaves: Leaves) -> Any:
    opt.step()
    opt.zero_grad()


STEPS: dict[str, Callable[[Any, Leaves], Any]] = {
    "step": lambda opt, leaves: opt.step(),
    "clipped": _clipped,
    "changed in place": _shrunk,
    "cleared": _cleared,
    "norm": lambda opt, leaves: [p.grad.norm() for p in leaves if p.grad is not None],
    "returned": lambda opt, leaves: (opt.step(), leaves[0].grad)[1],
}


def _fresh(leaves: Leaves, grads: list[aj.Tensor], k: int) -> None:
    for p, g in zip(leaves, grads, strict=True):
        p.grad = g * (k + 1)


def _transposed(leaves: Leaves, grads: list[aj.Tensor], k: int) -> None:
    _fresh(leaves, grads, k)
    leaves[0].grad = (grads[0] + k).T.contiguous().T if k % 2 else grads[0] + k


def _one_for_two(leaves: Leaves, grads: list[aj.Tensor], k: int) -> None:
    _fresh(leaves, grads, k)
    if k % 3 == 2:
        leaves[1].grad = leaves[0].grad


def _parts_of_one(leaves: Leaves, grads: list[aj.Tensor], k: int) -> None:
    both = aj.stack(grads) * (k + 1)
    leaves[0].grad, leaves[1].grad = both[0], both[1]


def _the_leaf(leaves: Leaves, grads: list[aj.Tensor], k: int) -> None:
    _fresh(leaves, grads, k)
    if k == 3:
        leaves[1].grad = leaves[0].detach()


def _none(leaves: Leaves, grads: list[aj.Tensor], k: int) -> None:
    _fresh(leaves, grads, k)
    if k % 4 == 3:
        leaves[1].grad = None


def _one_of_them(leaves: Leaves, grads: list[aj.Tensor], k: int) -> None:
    if k == 0:
        _fresh(leaves, grads, k)
    leaves[k % 2].grad = grads[k % 2] * (k + 1)


GIVEN: dict[str, Callable[[Leaves, list[aj.Tensor], int], None]] = {
    "fresh": _fresh, "transposed": _transposed, "one for two": _one_for_two, "parts of one": _parts_of_one,
    "the leaf": _the_leaf, "none": _none, "one of them": _one_of_them,
}  # fmt: skip


def _run(kind: str, given: str, wrap: Callable[[Any], Any], calls: int = 8) -> tuple[list[Any], list[float], Any]:
    """Counts of changes and which gradients stay, by calls; all numbers; the step."""
    leaves = [aj.nn.Parameter(aj.arange(4.0).reshape(2, 2) + k) for k in range(2)]
    grads = [aj.tensor([[0.5, -1.0], [2.0, 0.25]]) * (k + 1) for k in range(2)]
    opt = aj.optim.SGD(leaves, 0.125, momentum=0.5)
    step, found, numbers = wrap(lambda: STEPS[kind](opt, leaves)), [], []
    for k in range(calls):
        GIVEN[given](leaves, grads, k)
        kept = [(p.grad, None if p.grad is None else p.grad._version) for p in leaves]
        result = step()
        results = result if isinstance(result, list) else [] if result is None else [result]
        shown = [t for t in (*results, *leaves, *(g for g, _ in kept)) if t is not None]
        numbers += [number for t in shown for number in t.reshape(-1).tolist()]
        moved = [None if g is None else g._version - version for g, version in kept]
        found.append((k, moved, [p.grad is g for p, (g, _) in zip(leaves, kept, strict=True)]))
    return found, numbers, step


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("kind", STEPS)
def test_gradients_given_outside_are_followed(kind: str, given: str) -> None:
    if given == "none" and kind == "changed in place":
        return
    wanted, numbers, _ = _run(kind, given, lambda f: f)
    found, compiled_numbers, _ = _run(kind, given, aj.jit)
    assert found == wanted
    assert compiled_numbers == pytest.approx(numbers, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("kind", ("step", "norm", "changed in place"))
@pytest.mark.parametrize("given", ("fresh", "one of them"))
def test_fresh_gradients_do_not_leave_the_native_entry(kind: str, given: str) -> None:
    *_, step = _run(kind, given, aj.jit, 12)
    stats = step.stats()
    assert stats["captures"] <= 2
    assert stats["native_calls"] >= 9
