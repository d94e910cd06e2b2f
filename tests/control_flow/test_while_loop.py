"""while_loop: a number of steps found while it runs, with derivatives of every order."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from tests.control_flow.agreement import F, agree, derivatives


def test_counts() -> None:
    x, n = aj.while_loop(lambda x, n: x < 100, lambda x, n: (x * 3, n + 1), (aj.tensor(1.0), 0))
    assert (x.item(), n) == (243, 5)


def test_to_second_order_with_an_outside_tensor() -> None:
    x, w = aj.tensor([0.5, -0.2, 1.0], dtype=F, requires_grad=True), aj.eye(3, dtype=F).requires_grad_()

    def run(x: aj.Tensor) -> Any:
        y, n = aj.while_loop(
            lambda y, n: (y**2).sum() < 50, lambda y, n: (y * 1.3 + aj.tanh(y @ w), n + 1), (x, aj.tensor(0))
        )
        return n, derivatives((y**3).sum(), x, w)

    agree(run, x)


def test_third_order_with_a_number_carried() -> None:
    x = aj.tensor([0.5, -0.2], dtype=F, requires_grad=True)

    def run(x: aj.Tensor) -> Any:
        y, n = aj.while_loop(lambda y, n: (y**2).sum() < 50, lambda y, n: (y * 2 + y.sin(), n + 1), (x, 0))
        (a,) = aj.autograd.grad((y**3).sum(), x, create_graph=True)
        (b,) = aj.autograd.grad(a.sum(), x, create_graph=True)
        return int(n) if isinstance(n, int) else n, b, aj.autograd.grad(b.sum(), x)

    agree(run, x)


def test_the_number_of_steps_changes_from_call_to_call() -> None:
    def root(a: aj.Tensor) -> Any:
        def newton(y: aj.Tensor, change: aj.Tensor) -> Any:
            new = y - (y * y - a) / (2 * y)
            return new, (new - y).abs()

        one = aj.ones((), dtype=F)
        y, _ = aj.while_loop(lambda y, change: change > 1e-12, newton, (one, one))
        return y, aj.autograd.grad(y, a)[0]

    compiled = aj.jit(root)
    for value in (2.0, 3.0, 1e8, 0.01):
        y, slope = compiled(aj.tensor(value, dtype=F, requires_grad=True))
        np.testing.assert_allclose(y.item(), value**0.5, rtol=1e-12)
        np.testing.assert_allclose(slope.item(), 0.5 / value**0.5, rtol=1e-9)
    assert compiled.stats()["captures"] == 1
    assert compiled.stats()["fallbacks"] == 0


@pytest.mark.parametrize("steps", [0, 1, 2, 17, 1000])
def test_the_tape_grows_as_needed(steps: int) -> None:
    x = aj.tensor([0.3, 0.7], dtype=F, requires_grad=True)

    def run(n: aj.Tensor) -> Any:
        y, _ = aj.while_loop(lambda y, k: k < n, lambda y, k: (y + 0.001 * y.sin(), k + 1), (x * 1, aj.tensor(0)))
        return y, aj.autograd.grad(y.sum(), x)

    agree(run, aj.tensor(steps), rtol=1e-8)


def test_elements_of_a_batch_end_apart() -> None:
    w = aj.full((3,), 0.4, dtype=F, requires_grad=True)
    batch = aj.tensor(np.random.default_rng(0).standard_normal((4, 3)), requires_grad=True)

    def grow(x: aj.Tensor) -> Any:
        return aj.while_loop(lambda y, n: (y**2).sum() < 30, lambda y, n: (y * (1.3 + w), n + 1), (x, aj.tensor(0)))

    def run(batch: aj.Tensor) -> Any:
        y, n = aj.vmap(grow)(batch)
        return n, derivatives((y**3).sum(), batch, w)

    agree(run, batch)
    rows = [grow(x) for x in batch]
    counts, (loss, *_) = run(batch)
    assert counts.tolist() == [n.item() for _, n in rows]
    assert len(set(counts.tolist())) > 1
    np.testing.assert_allclose(loss.item(), sum((y**3).sum().item() for y, _ in rows), rtol=1e-12)


@pytest.mark.parametrize("transform", ["grad", "vmap grad", "jvp", "hessian", "jacrev of vmap"])
def test_function_transforms(transform: str) -> None:
    def loss(x: aj.Tensor) -> aj.Tensor:
        (h,) = aj.while_loop(lambda h: (h**2).sum() < 20, lambda h: (h * 1.5 + (h * h.detach()).sin(),), (x,))
        return (h**2).sum()

    from autojit.func import grad, hessian, jacrev, jvp, vmap

    functions = {
        "grad": lambda b: grad(loss)(b[0]),
        "vmap grad": vmap(grad(loss)),
        "jvp": lambda b: jvp(loss, (b[0],), (b[1],)),
        "hessian": lambda b: hessian(loss)(b[0]),
        "jacrev of vmap": jacrev(vmap(loss)),
    }
    agree(functions[transform], aj.tensor(np.random.default_rng(1).standard_normal((4, 3))))


def test_forward_over_reverse_is_reverse_over_reverse() -> None:
    def loss(x: aj.Tensor) -> aj.Tensor:
        (h,) = aj.while_loop(lambda h: (h**2).sum() < 20, lambda h: (h * 1.5 + h.sin(),), (x,))
        return (h**3).sum()

    x = aj.tensor([0.3, -0.4], dtype=F)
    both = aj.jit(lambda x: (aj.func.hessian(loss)(x), aj.func.jacrev(aj.func.jacrev(loss))(x)))
    forward, reverse = both(x)
    np.testing.assert_allclose(forward.numpy(), reverse.numpy(), rtol=1e-10)


def test_the_carry_is_written_in_place() -> None:
    x = aj.tensor([0.3, -0.4], dtype=F, requires_grad=True)

    def run(x: aj.Tensor) -> Any:
        (y,) = aj.while_loop(lambda y: (y**2).sum() < 9, lambda y: (y.mul_(1.5),), (x * 1,))
        return y, aj.autograd.grad((y**2).sum(), x)

    agree(run, x)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # ctypes shows what the handler raised
def test_a_loop_that_never_ends_can_be_interrupted() -> None:
    if aj.ones(1).device.type != "cpu":
        pytest.skip("a device that turns the loop itself is not interrupted (docs/cuda.md)")
    endless = aj.jit(lambda x: aj.while_loop(lambda y: y.sum() > -1, lambda y: (y.sin().abs(),), (x,))[0])
    bounded = aj.jit(lambda x: aj.while_loop(lambda y: y.sum() > 1, lambda y: (y / 2,), (x,))[0])
    bounded(aj.ones(3))
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore the signal
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            endless(aj.ones(3))
    finally:
        signal.signal(signal.SIGINT, before)
    assert bounded(aj.ones(3)).sum().item() == 0.75


@pytest.mark.parametrize("is_compiled", [False, True])
def test_bad_bodies_name_the_leaf(is_compiled: bool) -> None:
    def run(body: Any) -> Any:
        def loop(x: aj.Tensor) -> Any:
            return aj.while_loop(lambda x: x.sum() < 5, body, (x,))

        return (aj.jit(loop) if is_compiled else loop)(aj.ones(2))

    with pytest.raises(RuntimeError, match=r"carried\[0\] after a step must have the dtype"):
        run(lambda x: (x.double(),))
    with pytest.raises(RuntimeError, match=r"carried\[0\] after a step must have the shape"):
        run(lambda x: (x[:1],))
    with pytest.raises(RuntimeError, match="must have the structure of"):
        run(lambda x: (x, x))
    with pytest.raises(RuntimeError, match="carried_inputs must be a tuple or list"):
        aj.while_loop(lambda x: x < 5, lambda x: x + 1, aj.ones(()))
    with pytest.raises(RuntimeError, match="single-element"):
        aj.while_loop(lambda x: x < 5, lambda x: (x + 1,), (aj.ones(2),))


def test_elements_may_come_apart_only_after_some_steps() -> None:
    def grow(x: aj.Tensor) -> Any:
        start = aj.ones(3, dtype=F)
        return aj.while_loop(
            lambda y, n: (y.sum() < 9) & (n < 9), lambda y, n: (y + x.abs(), n + 1), (start, aj.tensor(0))
        )

    batch = aj.tensor([[1.0, 2.0, 0.5], [0.2, 0.1, 0.5]], dtype=F)
    y, n = aj.vmap(grow)(batch)
    for row, (value, count) in enumerate(map(grow, batch)):
        assert n[row].item() == count.item()
        np.testing.assert_allclose(y[row].numpy(), value.numpy(), rtol=1e-12)
    agree(aj.vmap(grow), batch)


LAYOUTS: dict[str, Callable[[aj.Tensor], aj.Tensor]] = {
    "row-major": lambda x: x,
    "transposed": lambda x: x.mT,
    "columns": lambda x: x[:, 1:],
    "columns, transposed": lambda x: x[:, 1:].mT,
    "every second": lambda x: x[:, ::2].movedim(0, -1),
    "one column": lambda x: x[..., :1].mT,
    "reversed and transposed": lambda x: x.flip(0).mT,
    "expanded": lambda x: x[:, :1].expand(-1, 3, -1).mT,
    "one more axis, first": lambda x: x.mT.unsqueeze(0),
    "one more axis, inside": lambda x: x.mT.unsqueeze(1),
    "one more axis, last": lambda x: x[:, 1:].mT.unsqueeze(-1),
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("inside", (False, True))
def test_results_lie_in_memory_as_those_of_the_python_loop(name: str, inside: bool) -> None:
    """An op of the body closes the gaps that the carried argument or view has, and keeps the order of its axes."""
    lay = LAYOUTS[name]

    def run(x: aj.Tensor) -> tuple[Any, ...]:
        first = lay(x) if inside else x
        looped = aj.while_loop(lambda i, z: i < 3, lambda i, z: (i + 1, (z * 0.5).sin()), (aj.tensor(0), first))[1]
        scanned = aj.scan(lambda z, t: ((z * t).sin(), z.sum()), first, aj.arange(3.0))[0]
        return looped, scanned

    compiled = aj.jit(run)
    for shape in ((4, 5, 6), (3, 4, 2), (4, 1, 3)):
        given = aj.arange(float(np.prod(shape))).reshape(*shape)
        x = given if inside else lay(given)
        for found, wanted in zip(compiled(x), run(x), strict=True):
            steps = [t.stride()[k] for t in (found, wanted) for k, n in enumerate(t.shape) if n > 1]  # of one: none
            assert steps[: len(steps) // 2] == steps[len(steps) // 2 :], shape
            np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-6)
