"""Python decisions on traced values: any Python gives what eager gives, with a capture per outcome and no more."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.jit import function
from tests.jit.agreement import Program, agree


def scalars(*values: float) -> list[tuple[aj.Tensor]]:
    return [(aj.tensor([v, v / 2]),) for v in values]


def test_if_on_a_tensor_captures_once_per_outcome() -> None:
    def make() -> Program:
        weight = aj.tensor([1.0, 2.0])

        def step(x: aj.Tensor) -> aj.Tensor:
            y = (x * weight).sum()
            if y > 1:
                weight.mul_(0.5)
                return y * 2
            weight.add_(1.0)
            return -y

        return Program(step, scalars(3.0, -1.0, 4.0, -2.0, 0.1, 9.0), [weight])

    step = agree(make, captures=2)
    assert step.stats()["splits"] == 1
    assert "split" in step.explain()


def test_while_on_a_tensor_shares_its_prefix() -> None:
    def make() -> Program:
        def newton(x: aj.Tensor) -> Any:
            root, count = x.abs() + 1, 0
            while ((root * root - x).abs() > 1e-3).any():
                root = 0.5 * (root + x / root)
                count += 1
            return root, count

        return Program(newton, scalars(4.0, 9.0, 100.0, 4.0, 100.0, 2.0))

    step = agree(make)
    assert step.stats()["captures"] <= 4


def test_item_that_is_only_returned_does_not_split() -> None:
    def make() -> Program:
        def step(x: aj.Tensor) -> dict[str, Any]:
            loss = (x**2).mean().item()
            count = (x > 0).sum().item()
            return {"loss": loss, "twice": loss * 2 + 1, "count": count, "rate": count / 4, "scaled": x * loss + count}

        return Program(step, scalars(1.0, 2.0, -3.0, 0.5))

    step = agree(make, captures=1)
    assert step.stats()["splits"] == 0
    assert step.stats()["native_calls"] >= 2


def test_comparison_of_an_item_splits_on_the_outcome_only() -> None:
    def make() -> Program:
        def step(x: aj.Tensor) -> Any:
            total = x.sum().item()
            if total > 2.0 and not total >= 9:
                return x * total
            return x - 1, total

        return Program(step, scalars(1.0, 2.0, 3.0, 3.5, 20.0, 30.0, 1.5))

    agree(make, captures=3)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * int(x.sum()),
        lambda x: x * float(x.sum()),
        lambda x: x[: int(x.abs().sum().item()) % 2 + 1],
        lambda x: (x * math.exp(x.sum().item() / 10), f"{x.sum().item():.3f}"),
        lambda x: [x + k for k in range(int(x.abs().max()))],
        lambda x: x.reshape((x > 0).sum().item() // 2 + 1, -1),
        lambda x: aj.arange((x > 0).sum().item() + 1),
        lambda x: aj.zeros((x > 0).sum().item()),
        lambda x: np.asarray(x.detach()).tolist(),
        lambda x: x.tolist(),
        lambda x: {round(x.sum().item()): x},
        lambda x: x.clamp(max=x.mean().item()),
        lambda x: x.add(x, alpha=x.mean().item()),
        lambda x: x[x.argmax().item()],
        lambda x: x.sum().item() ** 2,
        lambda x: (x.sum() > 0).item(),
        lambda x: bool(x.sum()) and not bool((x > 100).any()),
        lambda x: max(x.sum().item(), 1.0),
    ],
)
def test_any_use_of_a_number_agrees(function: Any) -> None:
    agree(lambda: Program(function, scalars(1.0, 2.0, -3.0, 2.0)))


def test_divergence_check_around_a_training_step() -> None:
    def make() -> Program:
        model = aj.nn.Linear(2, 1)
        optimiser = aj.optim.Adam(model.parameters(), lr=0.1)

        def step(x: aj.Tensor) -> Any:
            optimiser.zero_grad()
            loss = (model(x) ** 2).mean()
            if not loss.isfinite():
                return None
            loss.backward()
            norm = aj.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            return loss.item(), norm

        calls = [*scalars(1.0, 2.0), (aj.tensor([float("nan"), 1.0]),), *scalars(3.0, 4.0)]
        return Program(step, calls, list(model.parameters()))

    agree(make, captures=2)


@pytest.mark.parametrize("is_served", (False, True))
def test_of_too_many_outcomes_the_last_run_line_by_line_and_a_warning_says_so_once(
    is_served: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(function, "CAPTURE_LIMIT", 24)

    @aj.jit
    def step(x: aj.Tensor) -> aj.Tensor:
        return x * hash(x.sum().item())  # by which digits are seen

    with pytest.warns(UserWarning, match=r"(?s)test_splits\.py:\d+.*aj\.cond.*aj\.while_loop") as told:
        values = [float(k // (1 + is_served)) for k in range(50)]
        found = [step(aj.tensor([value])).item() for value in values]
    assert len(told) == 1
    assert told[0].filename == __file__
    assert found == [value * value for value in values]
    assert (step.stats()["captures"] == 24) is is_served
    assert ("other calls run line by line" if is_served else "served no second call") in step.explain()


def test_a_nested_decision_reuses_what_was_computed_before_it() -> None:
    def make() -> Program:
        def step(x: aj.Tensor) -> aj.Tensor:
            y = aj.tanh(x)
            if y.sum() > 0:
                y = y * 2
                if y.sum() > 1:
                    y = y + 10
                return y.exp()
            return y.exp() - x

        return Program(step, scalars(3.0, -1.0, 0.1, 5.0, -4.0, 0.2))

    step = agree(make, captures=3)
    assert step.stats()["splits"] == 2


def test_division_by_an_item_that_is_zero_raises_as_in_python() -> None:
    step = aj.jit(lambda x: 1.0 / x.sum().item())
    assert step(aj.tensor([2.0])) == 0.5
    with pytest.raises(ZeroDivisionError):
        step(aj.tensor([0.0]))
    assert step(aj.tensor([4.0])) == 0.25


def test_a_factorisation_whose_failure_is_caught() -> None:
    def factor(k: aj.Tensor) -> Any:
        for attempt in range(4):
            try:
                with aj.enable_grad():
                    return aj.linalg.cholesky(k + (1e-6 * attempt) * aj.eye(3, dtype=aj.float64)), attempt
            except RuntimeError:
                pass
        return k, -1

    def inverse(k: aj.Tensor) -> aj.Tensor:
        try:
            return aj.linalg.inv(k)
        except aj.linalg.LinAlgError:
            return aj.linalg.pinv(k)

    eye, flat = aj.eye(3, dtype=aj.float64), aj.ones(3, 3, dtype=aj.float64)
    agree(lambda: Program(factor, [(eye,), (flat,), (eye + flat,), (-eye,), (flat,)]), captures=3)
    agree(lambda: Program(inverse, [(eye,), (flat,), (2 * eye,)]), captures=2)
    uncaught = aj.jit(aj.linalg.cholesky)
    assert uncaught(eye).tolist() == eye.tolist()
    assert uncaught.stats()["splits"] == 0
    with pytest.raises(aj.linalg.LinAlgError, match="positive-definite"):
        uncaught(-eye)


def _replaced(t: aj.Tensor) -> None:
    t.data = t.data + 1


def _shared(t: aj.Tensor) -> None:
    t.data = aj.arange(6.0)[2:4]


def _written(t: aj.Tensor) -> None:
    with aj.no_grad():
        t.mul_(-1)


def _given_gradient(t: aj.Tensor) -> None:
    t.grad = aj.full((2,), 0.5)


CHANGES = {
    "other memory": _replaced,
    "a view": _shared,
    "written": _written,
    "a gradient": _given_gradient,
    "needs no gradient": lambda t: t.requires_grad_(False),
    "needs a gradient": lambda t: t.requires_grad_(True),
}


@pytest.mark.parametrize("at", range(3))
def test_what_any_decision_of_a_path_reads_may_change_between_calls(at: int) -> None:
    def function(x: aj.Tensor, weights: list[aj.Tensor]) -> tuple[aj.Tensor, int]:
        way = 0
        for w in weights:
            x = x * w
            way = 2 * way + bool(x.sum() > 0)
        if x.requires_grad:
            x.sum().backward()
        return x.detach(), way

    mine, others = ([aj.tensor([1.0, k], requires_grad=True) for k in (2, 3, 4)] for _ in range(2))
    step = aj.jit(lambda x: function(x, mine))
    for name in [*CHANGES, *reversed(CHANGES)]:
        for weights in (mine, others):
            CHANGES[name](weights[at])
        for _ in range(2):
            found, wanted = step(aj.tensor([1.0, -0.5])), function(aj.tensor([1.0, -0.5]), others)
            assert (found[0].tolist(), found[1]) == (wanted[0].tolist(), wanted[1]), name
            for a, b in zip(mine, others, strict=True):
                assert (a.grad is None) == (b.grad is None), name
                assert a.grad is None or b.grad is None or a.grad.tolist() == b.grad.tolist(), name
