"""Checkpoints that keep the results of some ops, and torch's helpers beside them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.ops.matmul import Matmul
from autojit.utils.checkpoint import (
    CheckpointPolicy,
    check_backward_validity,
    checkpoint,
    create_selective_checkpoint_contexts,
    detach_variable,
    get_device_states,
    set_device_states,
)  # fmt: skip


def f(x: aj.Tensor, w: aj.Tensor) -> aj.Tensor:
    return aj.sigmoid((x @ w) @ w).sin() * w


def slopes(context_fn: Any = None, twice: bool = False) -> Any:
    aj.manual_seed(0)
    x, w = (aj.randn(3, 3, dtype=aj.float64).requires_grad_() for _ in range(2))
    options: dict[str, Any] = {} if context_fn is None else {"context_fn": context_fn}
    found = aj.autograd.grad(checkpoint(f, x, w, use_reentrant=False, **options).sum(), (x, w), create_graph=twice)
    return aj.autograd.grad(sum(g.square().sum() for g in found), (x, w)) if twice else found


POLICIES: list[Any] = [
    ["matmul"],
    [aj.matmul, aj.sin],
    lambda context, op, *operands: True,
    lambda context, op, *operands: CheckpointPolicy.PREFER_RECOMPUTE,
]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("twice", [False, True])
def test_what_is_kept_does_not_change_the_derivative(policy: Any, twice: bool) -> None:
    keep = functools.partial(create_selective_checkpoint_contexts, policy)
    for found, expected in zip(slopes(keep, twice), slopes(None, twice), strict=True):
        np.testing.assert_allclose(found.numpy(), expected.numpy())


@pytest.mark.parametrize(
    "named",
    ["matmul", aj.mm, aj.ops.aten.mm.default, aj.ops.aten.addmm, Matmul],
    ids=["a name", "a function", "an overload", "a packet", "an op"],
)
def test_kept_ops_are_not_computed_again(monkeypatch: pytest.MonkeyPatch, named: Any) -> None:
    counts = []
    original: Callable[..., Any] = Matmul.eager

    def counted(self: Any, *operands: Any) -> Any:
        counts.append(1)
        return original(self, *operands)

    monkeypatch.setattr(Matmul, "eager", counted)
    x = aj.ones(2, 2, requires_grad=True)
    run = functools.partial(checkpoint, lambda x: (x @ x).sin(), x, use_reentrant=False)
    run().sum().backward()
    usual = len(counts)
    counts.clear()
    run(context_fn=functools.partial(create_selective_checkpoint_contexts, [named])).sum().backward()
    assert len(counts) == usual - 1


def test_the_policy_sees_every_op_once_with_its_result() -> None:
    seen = []

    def policy(context: Any, op: Any, *operands: Any) -> CheckpointPolicy:
        seen.append((op.name, tuple(context.op_output.shape), context.is_recompute))
        return CheckpointPolicy.MUST_RECOMPUTE

    slopes(functools.partial(create_selective_checkpoint_contexts, policy))
    assert [name for name, _, _ in seen] == ["matmul", "matmul", "sigmoid", "sin", "mul"]
    assert all(shape == (3, 3) and not again for _, shape, again in seen)


def test_a_second_run_that_differs_is_an_error() -> None:
    runs = []

    def unsteady(x: aj.Tensor) -> aj.Tensor:
        runs.append(1)
        return x.sin() if len(runs) == 1 else x.cos()

    keep = functools.partial(create_selective_checkpoint_contexts, ["sin"])
    y = checkpoint(unsteady, aj.ones(2, requires_grad=True), use_reentrant=False, context_fn=keep)
    with pytest.raises(RuntimeError, match="applies cos where the first applied sin"):
        y.sum().backward()
    with pytest.raises(TypeError, match="policy_fn_or_list"):
        create_selective_checkpoint_contexts(3)  # type: ignore[arg-type]


def test_helpers() -> None:
    x = aj.ones(2, requires_grad=True) * 2
    detached, number = detach_variable((x, 3))
    assert (detached.requires_grad, detached.grad_fn, number) == (True, None, 3)
    with pytest.raises(RuntimeError, match="tuple"):
        detach_variable([x])  # type: ignore[arg-type]
    with pytest.warns(UserWarning, match="requires_grad"):
        check_backward_validity([aj.ones(1)])
    devices, states = get_device_states(x)
    set_device_states(devices, states)
    with pytest.raises(RuntimeError, match="random states"):
        set_device_states([0], [])
