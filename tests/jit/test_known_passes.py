"""Backward passes that come often: native calls that give what the engine gives, for whatever they may do at all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import nn
from autojit.core.dtypes import float64
from autojit.core.ports import ports
from autojit.dispatch.awaited_kernels import AwaitedKernels, awaited
from autojit.history import op_node
from autojit.ir import Op
from autojit.ir.op import bind
from autojit.jit import known_passes
from autojit.jit.surveys import Survey, ops_behind
from autojit.nn import functional as F

OPS = sorted(
    (op for op in Op.registry.load().values() if op.__module__.startswith("autojit.ops.") and hasattr(op, "samples")),
    key=lambda op: op.name,
)
GROUPS = 12


class AtOnce(AwaitedKernels):
    """Whatever is asked for is made while the caller waits."""

    def find(self, kind: Any, make: Callable[[], Any]) -> Any:
        if kind not in self._known:
            self._known[kind] = make()
        return self._known[kind]

    @property
    def native(self) -> list[Any]:
        return [made for made in self._known.values() if not isinstance(made, str)]

    @property
    def refused(self) -> list[str]:
        return [made for made in self._known.values() if isinstance(made, str)]


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Iterator[AtOnce]:
    """Every pass is a known one, if it can be."""
    kernels = AtOnce()
    assert ports.passes  # imported first
    monkeypatch.setattr(op_node, "OFTEN", -1)
    monkeypatch.setattr(known_passes, "TIMES", -1000)
    monkeypatch.setattr(known_passes, "SURE", 0)
    monkeypatch.setattr(known_passes, "awaited", kernels)
    yield kernels


def by_the_engine(function: Callable[[], Any]) -> Any:
    with awaited.settled():
        before, known_passes.awaited = known_passes.awaited, awaited
        try:
            return function()
        finally:
            known_passes.awaited = before


def weighed(results: Any, seed: int) -> Any:
    """A number that depends on every element of an op's real results."""
    draws = np.random.default_rng(seed)
    total = aj.zeros((), dtype=float64)
    for y in results if isinstance(results, tuple) else (results,):
        if y.dtype is float64 and y.requires_grad:
            total = total + (y * aj.tensor(draws.standard_normal(tuple(y.shape)))).sum()
    return total


def has_derivative(part: Any, leaves: list[Any]) -> bool:
    try:
        by_the_engine(lambda: aj.autograd.grad(part, leaves, retain_graph=True, allow_unused=True))
    except (RuntimeError, NotImplementedError):
        return False
    return True


Part = tuple[Any, list[Any]]  # a number, and the leaves that it is computed from


def parts_of(group: int) -> Iterator[Part]:
    """The derivatives of one in GROUPS ops, on their samples."""
    for number, op_class in enumerate(OPS[group::GROUPS]):
        for op, inputs in list(op_class.samples(float64))[:2]:  # type: ignore[attr-defined]
            if op.has_effect or op.is_random or op.calls_out or op.needs_elements or not inputs:
                continue
            given = [aj.tensor(np.array(x)) for x in inputs]
            mine = [t.requires_grad_() for t in given if t.dtype is float64]
            part = weighed(bind(op, *given), number)
            if has_derivative(part, mine) and not Survey.of(ops_behind(part.grad_fn)).why:
                yield part, mine


def check_together(parts: list[Part], passes: AtOnce) -> int:
    """Compare the parts in one pass, or in several where some are no pass of native code; how many were compared."""
    total = sum((part for part, _ in parts), aj.zeros((), dtype=float64))
    leaves = [x for _, mine in parts for x in mine]
    wanted = by_the_engine(lambda: aj.autograd.grad(total, leaves, retain_graph=True, allow_unused=True))
    reached = [(x, g) for x, g in zip(leaves, wanted, strict=True) if g is not None]
    before = len(passes.native)
    found = aj.autograd.grad(total, [x for x, _ in reached], retain_graph=True)
    if len(passes.native) == before:
        if len(parts) > 1:
            middle = len(parts) // 2
            return check_together(parts[:middle], passes) + check_together(parts[middle:], passes)
        assert "'fallbacks': 0" not in passes.refused[-1] and "not native" in passes.refused[-1], passes.refused[-1]
        return 0
    for a, (_, b) in zip(found, reached, strict=True):
        scale = float(b.abs().nan_to_num(0.0, 0.0, 0.0).max()) if b.numel() else 0.0
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-9, atol=1e-9 * max(scale, 1e-3))
        assert a.stride() == b.stride()
    return len(parts)


@pytest.mark.parametrize("group", range(GROUPS))
def test_the_rules_of_all_ops(group: int, passes: AtOnce) -> None:
    """Many ops in one pass each, as every pass is compiled."""
    parts = list(parts_of(group))
    assert check_together(parts, passes) > len(parts) // 2


def network() -> tuple[Any, list[Any]]:
    aj.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3)).double()
    return model, list(model.parameters())


def trained(wait: Callable[[int], None] = lambda _: None, rounds: int = 6) -> list[Any]:
    """Parameters after some rounds of momentum, gradients cleared in every other round."""
    model, parameters = network()
    optimizer = aj.optim.SGD(parameters, lr=0.1, momentum=0.9)
    x, y = aj.randn(5, 4, dtype=float64), aj.randint(0, 3, (5,))
    for k in range(rounds):
        wait(k)
        if k % 2 == 0:
            optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return [p.detach().numpy().copy() for p in parameters]


def test_a_training_loop(passes: AtOnce) -> None:
    wanted = by_the_engine(trained)
    found = trained()
    assert len(passes.native) == 1
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def test_a_renumbered_node_stops_native_passes_while_it_lives_and_no_longer(passes: AtOnce) -> None:
    """What one history is treated like does not stay with the process."""
    a = aj.ones(2, requires_grad=True) * 2
    b = (a * 3).sum()
    a.grad_fn._set_sequence_nr(b.grad_fn._sequence_nr() + 1)
    trained()
    assert not passes.native
    del a, b
    trained()
    assert len(passes.native) == 1


def test_constants_and_options_are_no_others(passes: AtOnce) -> None:
    """Programs that differ in a number, or in an option of an op, have gradients of their own."""
    x = aj.tensor([-2.0, 0.5, 3.0], dtype=float64).requires_grad_()
    for slope in (0.0, -0.0, 0.1, 0.3):
        for factor in (2.0, 3.0):
            for power in (2, 3):

                def program(slope: float = slope, factor: float = factor, power: int = power) -> Any:
                    return aj.autograd.grad((F.leaky_relu(x, slope) ** power * factor).sum(), x)[0]

                wanted = by_the_engine(program).numpy()
                found = program().numpy()
                np.testing.assert_allclose(found, wanted, rtol=1e-12)
                assert (np.signbit(found) == np.signbit(wanted)).all()


def test_shapes_and_layouts_are_no_others(passes: AtOnce) -> None:
    for given in (aj.ones(3, 2), aj.ones(2, 3), aj.ones(2, 3).t(), aj.ones(1, 3), aj.ones(0, 3), aj.ones(4, 6)[::2]):
        x = given.double().detach().requires_grad_()
        weight = aj.arange(float(x.shape[1]), dtype=float64)

        def program(x: Any = x, weight: Any = weight) -> Any:
            return aj.autograd.grad(((x * weight).sigmoid() @ weight).sum(), x)[0]

        wanted, found = by_the_engine(program), program()
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-12)
        assert found.stride() == wanted.stride()


def test_what_is_shared_and_what_is_switched_off(passes: AtOnce) -> None:
    """A leaf used twice, one that is no longer asked, and a masked branch whose derivative is no number."""
    x = aj.tensor([0.0, 1.0, 4.0], dtype=float64).requires_grad_()
    w = aj.tensor([1.0, 2.0, 3.0], dtype=float64).requires_grad_()
    for is_asked in (True, False, True):
        w.requires_grad_(True)
        loss = aj.where(x > 0, x.sqrt(), x * w).sum() + (x * w * w).sum()
        w.requires_grad_(is_asked)
        x.grad = w.grad = None
        loss.backward(retain_graph=True)
        found = [None if t.grad is None else t.grad.tolist() for t in (x, w)]
        x.grad = w.grad = None
        by_the_engine(loss.backward)
        assert found == [None if t.grad is None else pytest.approx(t.grad.tolist()) for t in (x, w)]
    assert passes.native


SEEN: dict[str, Callable[[Any, Any, list[Any]], Any]] = {
    "a hook of a tensor": lambda x, y, log: y.register_hook(log.append),
    "a hook of a leaf": lambda x, y, log: x.register_hook(log.append),
    "a hook after the sum": lambda x, y, log: x.register_post_accumulate_grad_hook(log.append),
    "a hook of a node": lambda x, y, log: y.grad_fn.register_hook(lambda *given: log.append(given)),
    "a kept gradient": lambda x, y, log: y.retain_grad(),
}


@pytest.mark.parametrize("name", SEEN)
def test_what_somebody_sees_is_the_engines(name: str, passes: AtOnce) -> None:
    x = aj.ones(2).requires_grad_()
    y = x * 3
    log: list[Any] = []
    SEEN[name](x, y, log)
    (y * y).sum().backward()
    assert not passes.native
    assert log or y.grad.tolist() == [6.0, 6.0]
    assert x.grad.tolist() == [18.0, 18.0]


def test_errors_are_the_engines(passes: AtOnce) -> None:
    x = aj.ones(2).requires_grad_()
    loss = (x.exp() * 2).sum()
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
    y = x.exp()
    loss = (y * y).sum()
    with aj.no_grad():
        y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    with pytest.raises(RuntimeError, match="not have been used"):
        aj.autograd.grad((x * 2).sum(), [x, aj.ones(1).requires_grad_()])


@pytest.mark.parametrize("is_on", ["deterministic", "settled", "reference"])
def test_who_wants_equal_calls_to_be_equal_gets_the_engine(is_on: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from autojit.tensor.state import reference_only

    monkeypatch.setattr(op_node, "OFTEN", -1)
    monkeypatch.setattr(known_passes, "TIMES", -1000)
    monkeypatch.setattr(known_passes, "SURE", 0)
    before = len(awaited._known)
    x = aj.ones(7).requires_grad_()
    aj.use_deterministic_algorithms(is_on == "deterministic")
    try:
        with (
            awaited.settled() if is_on == "settled" else reference_only() if is_on == "reference" else aj.enable_grad()
        ):
            for _ in range(4):
                (x.exp() * x).sum().backward()
    finally:
        aj.use_deterministic_algorithms(False)
    assert len(awaited._known) == before


def test_in_a_loop_the_native_pass_comes_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a user's program, with a thread that compiles; results differ by rounding alone."""
    made = threading.Event()
    first = known_passes._made

    def told(*given: Any) -> Any:
        try:
            return first(*given)
        finally:
            made.set()

    monkeypatch.setattr(known_passes, "_made", told)
    rounds = 2 * (op_node.OFTEN + known_passes.TIMES) + 20
    found = trained(lambda k: (made.wait(60), None)[1] if k == rounds - 5 else None, rounds)
    assert made.is_set()
    for a, b in zip(found, by_the_engine(lambda: trained(rounds=rounds)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)


PIECES: dict[str, Callable[[Any, Any], Any]] = {
    "a loop over slices": lambda x, w: sum(((x[:, t] @ w).tanh().sum() for t in range(3)), aj.zeros((), dtype=float64)),
    "pieces of a projection": lambda x, w: (lambda a, b: (a.transpose(0, 1) @ b).exp().mean())(
        *(x[0] @ w).split(2, -1)
    ),
    "heads": lambda x, w: (x @ w).view(2, 3, 2, 2).transpose(1, 2).square().select(-1, 1).sum(),
    "every other row": lambda x, w: (x[:, ::2] * x[:, 1:]).sum() + (w[:, 1::2].exp() * w[:, ::2]).sum(),
    "a view of a view": lambda x, w: (x.permute(2, 0, 1)[1:3].flatten(1)[:, ::2].sin() ** 2).sum() + w.sum(),
}


@pytest.mark.parametrize("name", PIECES)
def test_pieces_of_tensors(name: str, passes: AtOnce) -> None:
    """What nodes have saved may have gaps in memory, and cotangents of pieces come together in the whole."""
    aj.manual_seed(0)
    x, w = (aj.randn(*shape, dtype=float64).requires_grad_() for shape in ((2, 3, 4), (4, 4)))
    wanted = by_the_engine(lambda: aj.autograd.grad(PIECES[name](x * 1, w * 1), [x, w]))
    found = aj.autograd.grad(PIECES[name](x * 1, w * 1), [x, w])
    assert len(passes.native) == 1
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12, atol=1e-12)


def test_second_derivatives_behind_masks(passes: AtOnce) -> None:
    """The pass after one with ``create_graph``, in whose history some derivatives are zero."""
    x = aj.tensor([-1.0, 0.5, 2.0], dtype=float64).requires_grad_()

    def program() -> Any:
        (slope,) = aj.autograd.grad((F.leaky_relu(x, 0.2) ** 3 * x.relu()).sum(), x, create_graph=True)
        return aj.autograd.grad((slope**2).sum(), x)[0]

    wanted = by_the_engine(program)
    np.testing.assert_allclose(program().numpy(), wanted.numpy(), rtol=1e-12)
    assert passes.native


def test_why_a_pass_is_the_engines(passes: AtOnce) -> None:
    x = aj.ones(2).requires_grad_()
    for _ in range(2):
        y = x * 3
        y.register_hook(lambda grad: None)
        y.sum().backward()
    report = [line for line in aj.debug.explain_backward().splitlines() if "test_known_passes.py" in line]
    assert any("0 of 2" in line and "MulBackward0" in line and "has hooks" in line for line in report)
