"""Replays: what a capture records from an earlier recording is what the rule or the update would have recorded."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import nn, optim
from autojit.core.dtypes import complex64, float32
from autojit.dispatch import replay
from autojit.ir.interpreter import evaluate
from autojit.ir.op import Op
from autojit.jit.calls import Call
from autojit.jit.step import Capture
from autojit.jit.trace import Trace
from autojit.ops import mul, ones_like
from autojit.ops.elementwise_base import Pointwise
from autojit.optim import replayed_updates
from tests.shares import every_case

Program = Callable[..., Any]


class _Forgetful(dict[Any, Any]):
    """Recordings of which none is ever found."""

    def get(self, key: Any, default: Any = None) -> Any:
        return replay.NEVER


class _Count:
    """How often something was recorded again, per kind."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rules = self.updates = 0
        for module, name in ((replay, "rules"), (replayed_updates, "updates")):
            monkeypatch.setattr(module, "_again", self._counted(name, module._again))  # type: ignore[attr-defined]

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any) -> Any:
            setattr(self, name, getattr(self, name) + 1)
            return function(*arguments)

        return called


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> _Count:
    return _Count(monkeypatch)


def _captured(function: Program, arguments: tuple[Any, ...], with_replays: bool, **options: Any) -> Capture:
    jitted = aj.jit(function, **options)
    call = Call(arguments, {})
    jitted._root(call)
    with pytest.MonkeyPatch.context() as patch:
        if not with_replays:
            made = Trace.__init__

            def forgetful(self: Trace, *arguments: Any) -> None:
                made(self, *arguments)
                self.recordings = _Forgetful()

            patch.setattr(Trace, "__init__", forgetful)
        return jitted._trace(call)  # type: ignore[no-any-return]


def _shown(capture: Capture) -> Iterator[str]:
    """Everything that a capture recorded, values by number."""
    trace = capture.trace
    numbers = {v: k for k, v in enumerate(trace.builder.inputs)}
    yield f"inputs {[str(v.type) for v in trace.builder.inputs]}"
    for node in trace.builder.nodes:
        operands = [numbers[v] for v in node.inputs]
        numbers.update((v, len(numbers) + k) for k, v in enumerate(node.outputs))
        yield f"{node.op} {operands} {[str(v.type) for v in node.outputs]} {node.source}"
    yield f"results {[numbers[v] for v in capture.results.values]}"
    for entry in trace.state.values():
        version = entry.storage.version if entry.input.type.dtype.is_differentiable else "of the seed"
        changed = f"{version} {entry.storage.changed_by} {entry.storage.changed_at}"
        yield f"state {entry.input.type} {numbers[entry.value]} {entry.requires_grad} {changed}"
    for grad in capture.effects.gradients.all:
        yield f"grad {None if grad.value is None else numbers[grad.value]}"


def _check_same(make: Callable[[], tuple[Program, tuple[Any, ...]]], **options: Any) -> None:
    """Recorded with and without replays, a program gives the same graph, node by node."""
    found = [list(_shown(_captured(*make(), with_replays=again, **options))) for again in (False, True)]
    for without, with_replays in zip(*found, strict=True):
        assert with_replays == without


def _thrice(op: Op, arrays: tuple[Any, ...]) -> tuple[Program, tuple[Any, ...]]:
    """An op on three sets of operands; in the third, operands of one type are one tensor."""
    sets = [[aj.tensor(np.array(a)) for a in arrays] for _ in range(3)]
    for t in (t for operands in sets for t in operands):
        t.requires_grad_(t.is_floating_point() or t.is_complex())
    sets[2] = [next(t for t in sets[2] if t.spec == operand.spec) for operand in sets[2]]

    def program() -> Any:
        loss: Any = 0
        for operands in sets:
            found = aj.Tensor._apply(op, *operands)
            for y in found if isinstance(found, tuple) else (found,):
                if y.requires_grad:
                    loss = loss + (y * 2).abs().sum()
        return aj.autograd.grad(loss, [t for o in sets for t in o if t.requires_grad], allow_unused=True)

    return program, ()


@pytest.mark.parametrize("dtype", [float32, complex64], ids=str)
def test_rules_of_every_op_are_replayed_as_they_are_recorded(
    dtype: Any, count: _Count, request: pytest.FixtureRequest
) -> None:
    tried, most = 0, None if every_case(request.config) else 2
    for name, cls in sorted(Op.registry.load().items()):
        if not hasattr(cls, "samples") or not hasattr(cls, "vjp") or hasattr(cls.vjp, "not_differentiable"):
            continue
        for op, arrays in list(cls.samples(dtype))[:most]:
            wanted = [a for a in arrays if np.asarray(a).dtype.kind in "fc"]
            types = [aj.tensor(np.array(a)).spec for a in arrays]
            if not wanted or op.n_outputs == 0 or name in ("cond", "scan", "while_loop"):
                continue
            results = op.result_type(*types)
            if any(t.dtype.is_differentiable for t in (results if isinstance(results, tuple) else (results,))):
                _check_same(lambda op=op, arrays=arrays: _thrice(op, arrays))  # type: ignore[misc]
                tried += 1
    assert tried > 100
    assert count.rules > tried


@pytest.fixture
def own_op() -> Iterator[Op]:
    """An op whose rules are written here, outside of the package."""

    class OwnDouble(Pointwise):
        ufunc = staticmethod(lambda x: x + x)

        def partials(self, primals: Any, y: Any) -> Any:
            return (mul(ones_like(y), 2),)

        def lower(self, emit: Any, x: Any) -> Any:
            return emit.add(x, x)

    yield OwnDouble()
    del Op.registry[OwnDouble.name]


def test_rules_of_the_users_own_keep_their_lines(own_op: Op, count: _Count) -> None:
    _check_same(lambda: _thrice(own_op, (np.ones(3, np.float32),)))
    assert count.rules > 0  # of the ops around it


def test_numbers_that_are_equal_but_not_the_same_are_told_apart() -> None:
    x = aj.ones(4, requires_grad=True)

    def program() -> Any:
        return aj.autograd.grad(
            ((x * 0.0) / (x * -0.0) + x**2 + x**2.0 + x.clamp(min=-0.0) + x.clamp(min=0.0)).sum(), x
        )

    _check_same(lambda: (program, ()))


def _layers() -> tuple[Program, tuple[Any, ...]]:
    aj.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)

    def step(x: aj.Tensor) -> aj.Tensor:
        loss = model(x).square().mean()
        loss.backward()
        return loss.detach()

    return step, (aj.tensor(np.random.default_rng(0).normal(size=(3, 5, 8)).astype(np.float32)),)


def test_layers_are_replayed_from_the_first_of_their_kind(count: _Count) -> None:
    _check_same(_layers)
    assert count.rules > 100


def test_open_sizes_are_replayed_too(count: _Count) -> None:
    def make() -> tuple[Program, tuple[Any, ...]]:
        w = [aj.full((), 0.5, requires_grad=True) for _ in range(4)]

        def step(x: aj.Tensor) -> Any:
            for each in w:
                x = (x * each).tanh().reshape(-1).view(x.shape) + x.mean(0)
            return aj.autograd.grad(x.sum(), w)

        return step, (aj.ones(3, 4),)

    _check_same(make, dynamic=True)
    assert count.rules > 8  # three of each layer but the first


def test_gradients_that_are_views_stay_views_and_shared_ones_shared() -> None:
    def make() -> tuple[Program, tuple[Any, ...]]:
        x = [aj.ones(2, 3, requires_grad=True) for _ in range(3)]

        def step() -> Any:
            hidden = [(t.T + t.T).reshape(6).view(3, 2).transpose(0, 1) for t in x]
            gradients = aj.autograd.grad(sum((h * h).sum() for h in hidden), x)
            gradients[1].mul_(2)  # where gradients share memory, the others change
            return [g + 1 for g in gradients]

        return step, ()

    _check_same(make)


def test_second_derivatives_run_the_rules() -> None:
    def make() -> tuple[Program, tuple[Any, ...]]:
        x = [aj.full((3,), 0.5, requires_grad=True) for _ in range(3)]

        def step() -> Any:
            loss = sum((t.sin() * t.exp()).sum() for t in x)
            first = aj.autograd.grad(loss, x, create_graph=True)
            return aj.autograd.grad(sum((g * g).sum() for g in first), x)

        return step, ()

    _check_same(make)


def test_a_saved_tensor_that_was_changed_is_still_refused() -> None:
    x = aj.ones(3, requires_grad=True)

    @aj.jit
    def step() -> Any:
        saved = [(x * 1).exp() for _ in range(3)]
        loss = sum(s.sum() for s in saved)
        saved[0].add_(1)
        return aj.autograd.grad(loss, x)

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        step()


OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1}), ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}), ("Adam", {"lr": 0.1}),
    ("Adam", {"lr": 0.1, "amsgrad": True, "weight_decay": 0.1}), ("AdamW", {"lr": 0.1, "maximize": True}),
    ("Adamax", {}), ("NAdam", {}), ("RAdam", {}), ("RMSprop", {"momentum": 0.5, "centered": True}), ("RMSprop", {}),
    ("Adagrad", {"lr_decay": 0.1}), ("Adadelta", {}), ("Rprop", {}), ("ASGD", {}), ("Adafactor", {}), ("Muon", {}),
]  # fmt: skip


def _updates(name: str, options: dict[str, Any], steps: int = 1) -> tuple[Program, tuple[Any, ...], list[Any]]:
    shape = (3, 2)
    values = np.random.default_rng(1).normal(size=(2, 6, *shape)).astype(np.float32)
    params = [nn.Parameter(aj.tensor(v)) for v in values[0]]
    groups = [{"params": params[:4]}, {"params": params[4:], "lr": 0.05}]
    optimizer = getattr(optim, name)(groups, **options)
    targets = [aj.tensor(v) for v in values[1]]

    def step() -> Any:
        for _ in range(steps):
            optimizer.zero_grad()
            loss = sum(((p - t) ** 2).sum() for p, t in zip(params, targets, strict=True))
            loss.backward()
            optimizer.step()
        return loss.detach()

    return step, (), params


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
@pytest.mark.parametrize("steps", [1, 2])
def test_replayed_updates_leave_what_recorded_ones_leave(name: str, options: dict[str, Any], steps: int) -> None:
    found = []
    for again in (False, True):
        capture = _captured(*_updates(name, options, steps)[:2], with_replays=again)
        entries = list(capture.trace.state.values())
        builder = capture.trace.builder
        left = evaluate(builder.finish([e.value for e in entries]), [e.array for e in entries])
        marks = [(e.storage.version, e.storage.changed_by, str(e.storage.changed_at)) for e in entries]
        found.append((left, marks))
    np.testing.assert_equal(found[1], found[0])  # to the last bit


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
def test_replayed_updates_do_what_eager_ones_do(name: str, options: dict[str, Any]) -> None:
    step, _, params = _updates(name, options)
    expected = [float(step()) for _ in range(4)], [p.detach().numpy() for p in params]
    step, _, params = _updates(name, options)
    compiled = aj.jit(step)
    found = [float(compiled()) for _ in range(4)], [p.detach().numpy() for p in params]
    np.testing.assert_allclose(found[0], expected[0], rtol=2e-5)
    np.testing.assert_allclose(found[1], expected[1], rtol=2e-5, atol=1e-6)
    assert compiled.stats()["fallbacks"] == 0


def test_updates_of_one_kind_are_recorded_once(count: _Count) -> None:
    _captured(*_updates("Adam", {"lr": 0.1})[:2], with_replays=True)
    assert count.updates == 2  # of each group one begins the numbers that all share, the next is learnt


def test_an_algorithm_of_the_users_runs_for_every_parameter() -> None:
    seen: deque[Any] = deque()
    note = seen.append  # not as a list, whose growth the capture would follow

    class Mine(optim.SGD):
        def _update(self, p: Any, grad: Any, state: Any, group: Any) -> None:
            note(p)
            super()._update(p, grad, state, group)

    params = [nn.Parameter(aj.ones(2)) for _ in range(5)]
    optimizer = Mine(params, lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        sum((p * p).sum() for p in params).backward()
        optimizer.step()

    aj.jit(step)()
    assert list(map(id, seen)) == list(map(id, params)) * (len(seen) // 5)
