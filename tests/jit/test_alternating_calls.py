"""Calls whose arguments take turns (a last partial batch, validation) find their steps natively."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.runtime.object_layout import layout_is_known

pytestmark = pytest.mark.skipif(not layout_is_known(), reason="no native entry here")
Make = Callable[[int], Any]


def _of(*shape: int, dtype: Any = aj.float32) -> aj.Tensor:
    return aj.arange(int(np.prod(shape)), dtype=aj.float32).reshape(shape).to(dtype).contiguous()


TURNS: dict[str, list[tuple[Any, ...]]] = {
    "two batches": [(_of(8, 3),), (_of(5, 3),)],
    "five batches": [(_of(n, 3),) for n in (8, 5, 7, 2, 9)],
    "two lengths": [(_of(2, n),) for n in (3, 6)],
    "ranks": [(_of(8, 3),), (_of(3),), (_of(2, 2, 3),)],
    "dtypes": [(_of(4, 3),), (_of(4, 3, dtype=aj.float64),)],
    "a flag": [(_of(4, 3), True), (_of(4, 3), False)],
    "numbers of arguments": [(_of(4, 3),), (_of(4, 3), True)],
    "empty ones": [(_of(4, 3),), (_of(0, 3),), (_of(1, 3),)],
}


def _function(x: aj.Tensor, flag: bool = True) -> Any:
    y = (x * 2).sin() if flag else x - 1
    return y, y.sum(-1)


@pytest.mark.parametrize("turns", TURNS.values(), ids=TURNS)
def test_calls_in_turn_agree_with_eager_mode_and_stay_native(turns: list[tuple[Any, ...]]) -> None:
    step = aj.jit(_function)
    held: list[tuple[Any, Any]] = []
    for turn in range(12):
        if turn == 6:
            before = step.stats()
        for arguments in turns:
            found, wanted = step(*arguments), _function(*arguments)
            for a, b in zip(found, wanted, strict=True):
                np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)
                held.append((a, b))
            del found, a
    after = step.stats()
    assert after["captures"] == before["captures"]
    assert after["python_calls"] == before["python_calls"]
    for a, b in held:  # nothing that was handed out has been written again
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)


def test_state_is_shared_by_steps_that_take_turns() -> None:
    w = aj.zeros(3)

    def body(x: aj.Tensor) -> aj.Tensor:
        w.add_(x.reshape(-1, 3).sum(0))
        return w * 1

    step = aj.jit(body)
    total = np.zeros(3, np.float32)
    for turn in range(9):
        x = (_of(3), _of(2, 3), _of(2, 2, 3))[turn % 3]
        total += x.numpy().reshape(-1, 3).sum(0)
        assert step(x).tolist() == total.tolist()
        if turn == 5:
            w.data = w.data.clone()  # other memory: every step has to notice


def test_a_global_that_changes_is_seen_by_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    scale = {"by": 2.0}
    step = aj.jit(lambda x: x * scale["by"])
    xs = [_of(3), _of(2, 3)]
    for number in (2.0, 3.0, 2.0, 5.0):
        scale["by"] = number
        for x in (*xs, *xs):
            assert step(x).tolist() == (x * number).tolist()


class Momentum(aj.optim.Optimizer):
    """A user's own algorithm, around the base class."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})

    @aj.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["momentum"] = aj.zeros_like(p)
                state["momentum"].mul_(0.9).add_(p.grad)
                p.add_(state["momentum"], alpha=-group["lr"])


def test_steps_of_users_optimisers_do_not_disturb_each_other() -> None:
    """What the base class counts of them is no state of theirs that a step takes along and others have to look at."""

    def steps(jit: Any) -> list[Any]:
        def made() -> Any:
            w = aj.nn.Parameter(aj.ones(2))
            optimizer = Momentum([w])

            def step(x: aj.Tensor) -> float:
                optimizer.zero_grad()
                loss = (w * x).square().sum()
                loss.backward()
                optimizer.step()
                return float(loss.item())

            return jit(step)

        return [made() for _ in range(2)]

    compiled, eager = steps(aj.jit), steps(lambda function: function)
    xs = [aj.tensor([0.1 * k, 0.2]) for k in range(6)]
    found, expected = [[step(x) for x in xs for step in some] for some in (compiled, eager)]
    assert found == pytest.approx(expected)
    for step in compiled:
        stats = step.stats()
        assert stats["captures"] == 2  # without state, and with it
        assert stats["native_calls"] >= 3
        assert "assigned" not in step.explain()
