"""Rules that passes with ``create_graph`` know leave the gradients and the history of the rules as they are written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.autograd import engine, known_rules, recorded_rules
from autojit.core.dtypes import complex64, float32
from autojit.ir.op import Op, bind_all
from tests.autograd.test_known_rules import GROUPS, LAYERS, OPS, check_alike, random_program


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Every rule is known from its first node on; how often one was."""
    monkeypatch.setattr(known_rules, "_OFTEN", 1)
    used: list[bool] = []
    first = recorded_rules.RecordedRule.cotangents

    def told(rule: Any, node: Any, grads: Any) -> Any:
        found = first(rule, node, grads)
        used.append(found is not None)
        return found

    monkeypatch.setattr(recorded_rules.RecordedRule, "cotangents", told)
    yield used


def as_written(function: Callable[[], Any]) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "records_here", lambda: False)
        return function()


def history(t: Any) -> list[Any]:
    """The nodes behind a tensor, in the order in which they are met, with what they lead to."""
    found: list[Any] = []
    numbers: dict[Any, int] = {}
    stack = [] if t is None or t.grad_fn is None else [t.grad_fn]
    while stack:
        node = stack.pop()
        if node is None or node in numbers:
            continue
        numbers[node] = len(numbers)
        later = node.next_functions
        found.append((node.name(), node.source.line, [(None if n is None else n.name(), k) for n, k in later]))
        stack += [n for n, _ in later]
    return found


@pytest.mark.parametrize("group", range(GROUPS))
@pytest.mark.parametrize("dtype", [float32, complex64])
def test_every_op(group: int, dtype: aj.dtype, at_once: list[bool]) -> None:
    for op_class in OPS[group::GROUPS]:
        for op, inputs in op_class.samples(dtype):  # type: ignore[attr-defined]
            if op.has_effect or op.is_random or op.calls_out or op.needs_elements or not inputs:
                continue
            leaves = [aj.tensor(np.asarray(x)) for x in inputs]
            mine = [t.requires_grad_() for t in leaves if t.dtype.is_floating_point or t.dtype.is_complex]
            for turned in (False, True) if mine else ():
                check_op(op, leaves, turned)
    assert any(at_once)


def check_op(op: Op, leaves: list[aj.Tensor], turned: bool) -> None:
    """Gradients, their histories and their own gradients."""

    def laid(t: aj.Tensor) -> aj.Tensor:
        return t.detach().mT.contiguous().mT if turned and t.ndim > 1 else t.detach()

    def gradients() -> Any:
        operands = [laid(t).requires_grad_(t.requires_grad) for t in leaves]
        results = bind_all(op, *operands)
        outputs = [y for y in (results if isinstance(results, tuple) else (results,)) if y.requires_grad]
        asked = [t for t in operands if t.requires_grad]
        if not outputs:
            return [], []
        given = [laid(aj.tensor(np.cos(np.arange(y.numel())).reshape(tuple(y.shape)), dtype=y.dtype)) for y in outputs]
        given = [t.requires_grad_() for t in given]
        found = list(aj.autograd.grad(outputs, asked, given, allow_unused=True, create_graph=True))
        histories = [history(t) for t in found]
        again = [t for t in found if t is not None and t.requires_grad]
        if again:
            weights = [aj.ones_like(t) for t in again]
            found += aj.autograd.grad(again, [*asked, *given], weights, allow_unused=True)
        return found, histories

    try:
        wanted, histories = as_written(gradients)
    except (RuntimeError, NotImplementedError, TypeError):
        return
    found, found_histories = gradients()
    for one, right in zip(found, wanted, strict=True):
        check_alike(one, right, (op, turned))
    for history_found, history_wanted in zip(found_histories, histories, strict=True):
        assert history_found == history_wanted, (op, turned)


@pytest.mark.parametrize("seed", range(20))
def test_random_programs(seed: int, at_once: list[bool]) -> None:
    """A penalty on gradients, three derivatives deep."""
    start = np.random.default_rng(seed).standard_normal((2, 4, 4))
    before = [aj.tensor(start[0]), aj.tensor(start[1]).t().contiguous().t()]

    def gradients() -> list[Any]:
        x, w = (t.clone().requires_grad_() for t in before)
        loss = random_program(np.random.default_rng(100 + seed), x, w)
        slopes = aj.autograd.grad(loss, [x, w], create_graph=True, allow_unused=True)
        size = sum(t.square().sum() for t in slopes if t is not None)
        curves = aj.autograd.grad(size, [x, w], create_graph=True, allow_unused=True)
        sum(t.sum() for t in curves if t is not None).backward()
        return [*slopes, *curves, x.grad, w.grad]

    wanted = as_written(gradients)
    for found, right in zip(gradients(), wanted, strict=True):
        check_alike(found, right, seed)
    assert any(at_once)


@pytest.mark.parametrize("name", LAYERS)
def test_rules_of_layers_are_known(name: str, at_once: list[bool]) -> None:
    x = aj.rand(4, 6).requires_grad_()

    def gradient() -> Any:
        (slope,) = aj.autograd.grad(LAYERS[name](x * 2).square().sum(), x, create_graph=True)
        return [slope, *aj.autograd.grad(slope.square().sum(), x)]

    for found, wanted in zip(gradient(), as_written(gradient), strict=True):
        check_alike(found, wanted, name)
    assert all(at_once)


def test_a_gradient_without_history_can_be_differentiated_again(at_once: list[bool]) -> None:
    """The derivative of a step function depends on what it was computed from, with derivative zero."""
    x = aj.tensor([-1.0, 2.0], requires_grad=True)
    (slope,) = aj.autograd.grad(aj.relu(x).sum(), x, create_graph=True)
    assert slope.requires_grad
    assert aj.autograd.grad(slope.sum(), x)[0].tolist() == [0, 0]
    assert any(at_once)


def test_what_was_changed_or_freed_is_said(at_once: list[bool]) -> None:
    x = aj.rand(3).requires_grad_()
    z = x.exp()
    total = (z * 2 + z.sin()).sum()
    z.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        aj.autograd.grad(total, x, create_graph=True)
    y = (x.exp() * x).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        aj.autograd.grad(y, x, create_graph=True)
    assert any(at_once)


def test_a_rule_that_cannot_be_traced_is_told(at_once: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs as it is written, and whoever asks is told why."""
    sinh = Op.registry["sinh"]
    rule = sinh.vjp

    def looks(op: Op, primals: Any, result: Any, y_bar: Any) -> Any:
        if not isinstance(y_bar, aj.Tensor):
            raise TypeError("a rule that looks at elements")
        return rule(op, primals, result, y_bar)

    monkeypatch.setattr(known_rules, "_as_written", {})
    x = aj.rand(2, 5, 3).requires_grad_()
    total = x.sinh().sum()
    monkeypatch.setattr(sinh, "vjp", looks)
    for create_graph in (False, True):
        (slope,) = aj.autograd.grad(total, x, create_graph=create_graph, retain_graph=True)
        assert aj.allclose(slope, x.cosh())
    said = aj.debug.explain_backward().splitlines()[-1]
    assert said == "rules of sinh run as they are written for 2 kinds of operands: a rule that looks at elements"
