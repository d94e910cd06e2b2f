"""Rules that backward passes know compute what they compute as they are written: bits, layouts, errors, memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.autograd import engine, known_rules
from autojit.core.dtypes import complex64, float32, float64
from autojit.ir.op import Op, bind_all

GROUPS = 12
OPS = sorted(
    (op for op in Op.registry.load().values() if op.is_differentiable and hasattr(op, "samples")),
    key=lambda op: op.name,
)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Every rule is known from its first node on; how often one was."""
    monkeypatch.setattr(known_rules, "_OFTEN", 1)
    used: list[bool] = []
    first = engine.Walk._run_known

    def told(walk: Any, node: Any) -> bool:
        used.append(first(walk, node))
        return used[-1]

    monkeypatch.setattr(engine.Walk, "_run_known", told)
    yield used


def as_written(function: Callable[[], Any]) -> Any:
    """With rules as they are written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "serves_here", lambda: False)
        return function()


def check_alike(found: Any, wanted: Any, what: object) -> None:
    assert (found is None) == (wanted is None), what
    if found is not None:
        assert found.dtype is wanted.dtype, what
        assert found.stride() == wanted.stride(), what
        assert np.array_equal(found.detach().numpy(), wanted.detach().numpy(), equal_nan=True), what


@pytest.mark.parametrize("group", range(GROUPS))
@pytest.mark.parametrize("dtype", [float32, complex64])
def test_every_op(group: int, dtype: aj.dtype, at_once: list[bool]) -> None:
    for op_class in OPS[group::GROUPS]:
        for op, inputs in op_class.samples(dtype):  # type: ignore[attr-defined]
            if op.has_effect or op.is_random or op.calls_out or op.needs_elements or not inputs:
                continue
            leaves = [aj.tensor(np.asarray(x)) for x in inputs]
            mine = [t.requires_grad_() for t in leaves if t.dtype.is_floating_point or t.dtype.is_complex]
            if not mine:
                continue
            for turned in (False, True):
                check_op(op, leaves, turned)
    assert 10 * sum(at_once) > 9 * len(at_once)  # views of a part are not, nor rules that look at elements


def check_op(op: Op, leaves: list[aj.Tensor], turned: bool) -> None:
    """Gradients of all leaves, operands and cotangents in row-major order, or with their axes turned in memory."""

    def laid(t: aj.Tensor) -> aj.Tensor:
        return t.detach().mT.contiguous().mT if turned and t.ndim > 1 else t.detach()

    def gradients(times: int) -> list[Any]:
        found: list[Any] = []
        for _ in range(times):
            operands = [laid(t).requires_grad_(t.requires_grad) for t in leaves]
            results = bind_all(op, *operands)
            outputs = [y for y in (results if isinstance(results, tuple) else (results,)) if y.requires_grad]
            if not outputs:
                return []
            given = [
                laid(aj.tensor(np.cos(np.arange(y.numel())).reshape(tuple(y.shape)), dtype=y.dtype)) for y in outputs
            ]
            asked = [t for t in operands if t.requires_grad]
            found = list(aj.autograd.grad(outputs, asked, given, allow_unused=True, retain_graph=True))
            aj.autograd.backward(outputs, given)
            found += [t.grad for t in asked]
        return found

    try:
        wanted = as_written(lambda: gradients(1))
    except (RuntimeError, NotImplementedError, TypeError):
        return
    for found, right in zip(gradients(2), wanted, strict=True):
        check_alike(found, right, (op, turned))


STEPS: tuple[Callable[[aj.Tensor, aj.Tensor], aj.Tensor], ...] = (
    lambda a, b: a + b,
    lambda a, b: a * b,
    lambda a, b: (a @ b.t()).tanh(),
    lambda a, b: a.t().sigmoid(),
    lambda a, b: aj.cat([a[1:], b[:1]]),
    lambda a, b: aj.where(a > b, a, b * 2),
    lambda a, b: a - b.sum(0, keepdim=True),
    lambda a, b: aj.softmax(a, -1) * b,
    lambda a, b: a.reshape(-1).flip(0).view(4, 4),
    lambda a, b: aj.stack(a.unbind(1), 1) + b.mean(),
)


def random_program(draws: np.random.Generator, x: aj.Tensor, w: aj.Tensor) -> aj.Tensor:
    """A number from a chain of ops on matrices of one shape, with values that are used several times."""
    values = [x, w, x * w]
    for _ in range(int(draws.integers(4, 12))):
        a, b = (values[k] for k in draws.integers(0, len(values), 2))
        values.append(STEPS[int(draws.integers(0, len(STEPS)))](a, b))
    return sum((v.square().mean() for v in values), aj.zeros((), dtype=x.dtype))


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed: int, at_once: list[bool]) -> None:
    start = np.random.default_rng(seed).standard_normal((2, 4, 4))
    before = [aj.tensor(start[0]), aj.tensor(start[1]).t().contiguous().t()]

    def gradients() -> list[Any]:
        x, w = (t.clone().requires_grad_() for t in before)
        random_program(np.random.default_rng(100 + seed), x, w).backward()
        found = aj.autograd.grad(random_program(np.random.default_rng(100 + seed), x, w), [x, w], allow_unused=True)
        return [x.grad, w.grad, *found]

    wanted = as_written(gradients)
    for found, right in zip(gradients(), wanted, strict=True):
        check_alike(found, right, seed)
    assert any(at_once)


LAYERS: dict[str, Callable[[aj.Tensor], aj.Tensor]] = {
    "layer norm": aj.nn.LayerNorm(6),
    "group norm": aj.nn.GroupNorm(2, 6),
    "batch norm": aj.nn.BatchNorm1d(6),
    "GELU": aj.nn.GELU(),
    "SiLU": aj.nn.SiLU(),
    "GRU": lambda x: CELL(x, x[:, :4]),
    "cross entropy": lambda x: aj.nn.functional.cross_entropy(x, aj.arange(4)),
}
CELL = aj.nn.GRUCell(6, 4)


@pytest.mark.parametrize("name", LAYERS)
def test_rules_of_layers_are_known(name: str, at_once: list[bool]) -> None:
    """Composites, which keep what their derivatives read alone."""
    x = aj.rand(4, 6).requires_grad_()

    def gradient() -> Any:
        return aj.autograd.grad(LAYERS[name](x * 2).square().sum(), x)[0]

    wanted = as_written(gradient)
    check_alike(gradient(), wanted, name)
    assert all(at_once) or name == "GRU"  # a slice is a piece


def test_gradients_share_no_memory(at_once: list[bool]) -> None:
    """A cotangent that goes to several leaves as it is, is theirs alone afterwards."""
    x, y, z = (aj.rand(3, 4).requires_grad_() for _ in range(3))
    for _ in range(3):
        for t in (x, y, z):
            t.grad = None
        inner = x + y
        (inner * 2 + z.t().reshape(4, 3).t().reshape(3, 4)).tanh().sum().backward()
        before = y.grad.clone()
        x.grad.zero_()
        z.grad.fill_(7)
        assert aj.equal(y.grad, before)
    assert any(at_once)


def test_what_cannot_be_differentiated_any_more_says_so(at_once: list[bool]) -> None:
    x = aj.rand(3).requires_grad_()
    y = (x.exp() * x).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()
    z = x.exp()
    total = (z * 2 + z.sin()).sum()
    z.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.backward()
    assert any(at_once)


def test_hooks_and_functions_see_tensors(at_once: list[bool]) -> None:
    x = aj.rand(3, 4).requires_grad_()
    seen: list[Any] = []

    class Twice(aj.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: aj.Tensor) -> aj.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            seen.append(grads[0])
            return grads[0] * 2

    def run() -> Any:
        a = x.tanh()
        a.register_hook(lambda grad: seen.append(grad))
        a.retain_grad()
        b: Any = Twice.apply(a.sin() * 3)
        b.exp().sum().backward()
        found, x.grad = x.grad, None
        return found, a.grad

    for _ in range(2):
        for found, wanted in zip(run(), as_written(run), strict=True):
            check_alike(found, wanted, "hooks")
    assert all(type(t) is aj.Tensor for t in seen)
    assert any(at_once)


def test_cotangents_of_other_types_than_the_rule_was_recorded_for(at_once: list[bool]) -> None:
    """A hook may not change the type, but a pass may come with a larger one: rules are known by types."""
    for shape in ((3,), (2, 3), (3, 3)):
        for dtype in (float32, float64):
            x = aj.rand(*shape, dtype=dtype).requires_grad_()
            wanted = as_written(lambda x=x: aj.autograd.grad((x.exp() * x.mean(0)).sum(), x)[0])
            check_alike(aj.autograd.grad((x.exp() * x.mean(0)).sum(), x)[0], wanted, (shape, dtype))
