"""Backward adds to a ``.grad`` that somebody has given as ``grad.add_`` does, whatever that is: eager and compiled.

Gradients in memory of NumPy's are tensors of the CPU, wherever the tests' tensors are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj


def _in_inference_mode(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def given(v: Any) -> Any:
        with aj.inference_mode():
            return make(v.clone())

    return given


def _read_only(v: Any) -> Any:
    array = np.array(v.numpy())
    array.flags.writeable = False
    return aj.from_numpy(array)


GIVEN: dict[str, Callable[[Any], Any]] = {
    "plain": lambda v: v,
    "a leaf": lambda v: v.requires_grad_(),
    "with a history": lambda v: v.requires_grad_() * 1,
    "a view": lambda v: v.t().clone().t(),
    "with gaps": lambda v: v.repeat(2, 2)[::2, ::2],
    "a part": lambda v: v.repeat(2, 1).chunk(2)[0],
    "of inference mode": _in_inference_mode(lambda v: v),
    "a view of inference mode": _in_inference_mode(lambda v: v.t().contiguous().t()),
    "expanded": lambda v: v[:1].expand(2, 3),
}
OF_NUMPY: dict[str, Callable[[Any], Any]] = {
    "read-only": _read_only,
    "broadcast by NumPy": lambda v: aj.from_numpy(np.broadcast_to(v[0].numpy(), (2, 3))),
    "read-only and expanded": lambda v: _read_only(v[:1]).expand(2, 3),
}


@pytest.mark.parametrize("mode", [False, True])
@pytest.mark.parametrize("kind", [*GIVEN, *OF_NUMPY])
def test_a_given_gradient_is_added_to_as_by_add(kind: str, mode: bool) -> None:
    make, how = GIVEN.get(kind), {"dtype": aj.float64}
    if make is None:
        make, how = OF_NUMPY[kind], {**how, "device": "cpu"}

    def outcome(add: Callable[[Any, Any], Any]) -> list[Any]:
        leaf = aj.full((2, 3), 1.5, **how).requires_grad_()
        given = leaf.grad = make(aj.full((2, 3), 7.0, **how))
        found: list[Any] = []
        for _ in range(3):
            before = given._version if not given.is_inference() else None
            try:
                with aj.inference_mode(mode):
                    add(leaf, given)
                found.append("no error")
            except RuntimeError as error:
                found.append(str(error).split("\n", 1)[0])
            found.append(None if before is None else given._version - before)
            found.append((leaf.grad is given, given.tolist(), given.stride(), given.requires_grad))
        return found

    def loss(leaf: Any) -> Any:
        with aj.inference_mode(False), aj.enable_grad():
            return (leaf**2).sum()

    def by_add(leaf: Any, given: Any) -> None:
        with aj.no_grad():
            given.add_(leaf.detach() * 2)

    wanted = outcome(by_add)
    assert outcome(lambda leaf, given: loss(leaf).backward()) == wanted

    steps: dict[int, Any] = {}

    def compiled(leaf: Any, given: Any) -> None:
        steps.setdefault(0, aj.jit(lambda: loss(leaf).backward()))()

    assert outcome(compiled) == wanted
