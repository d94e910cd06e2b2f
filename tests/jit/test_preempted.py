"""What an object gets when it is first asked for is the same for all threads: another one comes in at every line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj

from . import racing
from .preempting import lines_of, try_at

Work = tuple[Callable[[], Any], Callable[[], Any], Callable[[], None]]
GIVEN = (np.linspace(-1, 1, 4), np.linspace(2, 3, 4))


def leaf() -> Any:
    return aj.tensor([1.0, 2.0, 3.0, 4.0], dtype=aj.float64, requires_grad=True)


def both(act: Callable[[int], Any], check: Callable[[list[Any]], None]) -> Work:
    """The same by two threads."""
    found: list[Any] = [None, None]

    def by(k: int) -> Callable[[], None]:
        def work() -> None:
            found[k] = act(k)

        return work

    return by(0), by(1), lambda: check(found)


def differentiated(y: Any, w: Any) -> tuple[Any, Any]:
    """The result too: its history stays, and is asked again when both threads have ended."""
    return y, aj.autograd.grad(y, [w], retain_graph=True)[0]


def check_gradients(found: list[Any], w: Any, wanted: Any) -> None:
    for (y, grad), values in zip(found, wanted, strict=True):
        (again,) = aj.autograd.grad(y, [w])
        assert np.allclose(grad.numpy(), values, rtol=1e-12) and np.allclose(again.numpy(), values, rtol=1e-12)


def slopes(w: Any) -> list[Any]:
    return [np.cos(w.detach().numpy() * values) * values for values in GIVEN]


def first_gradients() -> Work:
    w, xs = leaf(), [aj.tensor(values) for values in GIVEN]

    return both(lambda k: differentiated((w * xs[k]).sum(), w), lambda found: check_gradients(found, w, GIVEN))


def first_views() -> Work:
    w = aj.tensor([1.0, 2.0, 3.0, 4.0])

    def check(found: list[Any]) -> None:
        w.add_(1)
        assert [t._version for t in (w, *found)] == [1, 1, 1]

    return both(lambda k: (w[1:], w.detach())[k], check)


def first_hooks_of_leaves() -> Work:
    w, heard = leaf(), []

    def act(k: int) -> None:
        w.register_hook(lambda grad: heard.append(k))
        w.register_post_accumulate_grad_hook(lambda t: heard.append(k + 2))

    def check(found: list[Any]) -> None:
        w.sum().backward()
        assert sorted(heard) == [0, 1, 2, 3]

    return both(act, check)


def first_hooks_of_nodes() -> Work:
    w, heard = leaf(), []
    y = w * 2
    total = y.sum()

    def act(k: int) -> None:
        y.register_hook(lambda grad: heard.append(k))
        y.grad_fn.register_hook(lambda grads, outputs: heard.append(k + 2))
        y.grad_fn.register_prehook(lambda grads: heard.append(k + 4))

    def check(found: list[Any]) -> None:
        total.backward()
        assert sorted(heard) == [0, 1, 2, 3, 4, 5]

    return both(act, check)


def first_backward_passes() -> Work:
    w, xs = leaf(), [aj.tensor(values) for values in GIVEN]

    def check(found: list[Any]) -> None:
        assert np.array_equal(w.grad.numpy(), sum(GIVEN))

    return both(lambda k: (w * xs[k]).sum().backward(), check)


EAGER = (first_gradients, first_views, first_hooks_of_leaves, first_hooks_of_nodes, first_backward_passes)


@pytest.mark.parametrize("make", EAGER, ids=lambda make: make.__name__)
def test_first_uses_agree_wherever_the_other_thread_comes_in(make: Callable[[], Work]) -> None:
    count = lines_of(make()[0])
    assert count > 3
    try_at(range(1, count + 1), make)


def one_step() -> Work:
    w, xs = leaf(), [aj.tensor(values) for values in GIVEN]
    step = aj.jit(lambda x: (w * x).sin().sum())

    return both(lambda k: differentiated(step(xs[k]), w), lambda found: check_gradients(found, w, slopes(w)))


def two_steps() -> Work:
    w, xs = leaf(), [aj.tensor(values) for values in GIVEN]
    steps = [aj.jit(lambda x, k=k: (w * x).sin().sum() + k) for k in range(2)]

    return both(lambda k: differentiated(steps[k](xs[k]), w), lambda found: check_gradients(found, w, slopes(w)))


def a_step_and_eager_mode() -> Work:
    w, xs, heard = leaf(), [aj.tensor(values) for values in GIVEN], []
    w.register_hook(lambda grad: heard.append(grad.numpy().copy()))
    step = aj.jit(lambda x: (w * x).sum())

    def check(found: list[Any]) -> None:
        assert np.allclose(w.grad.numpy(), sum(GIVEN), rtol=1e-12)
        assert np.allclose(sorted(h.sum() for h in heard), sorted(values.sum() for values in GIVEN), atol=1e-12)

    return both(lambda k: (step, lambda x: (w * x).sum())[k](xs[k]).backward(), check)


COMPILED = (one_step, two_steps, a_step_and_eager_mode)


@pytest.mark.parametrize("make", COMPILED, ids=lambda make: make.__name__)
def test_first_calls_agree_wherever_the_other_thread_comes_in(make: Callable[[], Work]) -> None:
    count = lines_of(make()[0])
    try_at(np.random.default_rng(5).integers(1, count, 12), make)


@pytest.mark.slow
@pytest.mark.parametrize("make", COMPILED, ids=lambda make: make.__name__)
def test_first_calls_agree_wherever_the_other_thread_comes_in_at_length(make: Callable[[], Work]) -> None:
    count = lines_of(make()[0])
    try_at(np.random.default_rng(6).integers(1, count, 2000), make)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(400))
def test_any_two_things_may_come_between_each_other(seed: int) -> None:
    """Of what threads do in races; both have done it before or not."""
    rng = np.random.default_rng(seed)
    actors = [a for a in racing.ACTORS if a is not racing.fork]
    makers = [actors[k] for k in rng.integers(0, len(actors), 2)]
    rounds = int(rng.integers(0, 3))

    def make() -> Work:
        shared = racing.Shared()
        acts = [maker(shared) for maker in makers]
        for k in range(rounds):
            for act in acts:
                act(k)

        def check() -> None:
            racing.expect(shared.count, np.full(3, shared.counted))

        return lambda: acts[0](rounds), lambda: acts[1](rounds + int(seed % 2)), check

    count = lines_of(make()[0])
    try_at(rng.integers(1, count, min(count, 10)), make)
