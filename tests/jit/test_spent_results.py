"""What ``backward`` in a step leaves: results whose history is used up, gradients that have one, their strides."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import autojit as aj

Wrap = Callable[[Callable[..., Any]], Any]
CALLS = 4


def _seen(t: aj.Tensor) -> tuple[Any, ...]:
    return [round(v, 6) for v in t.detach().reshape(-1).tolist()], t.stride(), t.requires_grad, t.is_leaf


def _differentiated(t: aj.Tensor, leaf: aj.Tensor) -> Any:
    """What the caller gets who asks for a derivative: that, or the error."""
    if not t.requires_grad:
        return None
    try:
        (found,) = aj.autograd.grad(t.sum(), (leaf,), retain_graph=True)
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return _seen(found)[0]


def _run(jit: Wrap, body: Callable[..., Any], leaves: Callable[[], list[aj.Tensor]], are_arguments: bool) -> list[Any]:
    """Everything that callers can see of ``body(x, *leaves)``, its leaves arguments of the step or state."""
    found: list[Any] = []
    known = leaves()
    step = jit(lambda x, *given: body(x, *(given if are_arguments else known)))
    for k in range(CALLS):
        x = aj.arange(6.0).reshape(2, 3) * 0.1 + k
        result = step(x, *known) if are_arguments else step(x)
        shown = list(result) if isinstance(result, tuple) else [result] * (result is not None)
        for leaf in known:
            found.append([_differentiated(t, leaf) for t in shown])
            found.append(None if leaf.grad is None else [_seen(leaf.grad), _differentiated(leaf.grad, leaf)])
        found.append([_seen(t) for t in shown])
        found.append([any(t is leaf.grad for leaf in known) for t in shown])
        for t in shown:
            with aj.no_grad():
                t.add_(1)  # whose memory is whose
        found.append([None if leaf.grad is None else _seen(leaf.grad) for leaf in known])
        if k % 2:
            for leaf in known:
                leaf.grad = None
    return found


def _loss(x: aj.Tensor, w: aj.Tensor, v: aj.Tensor) -> aj.Tensor:
    loss = ((w * x).tanh() * v).sum()
    loss.backward()
    return loss


def _all_spent(x: aj.Tensor, w: aj.Tensor, v: aj.Tensor) -> tuple[aj.Tensor, ...]:
    y = (w * x).tanh() * v
    y.sum().backward()
    return y, y.detach(), y[:1], y


def _some_spent(x: aj.Tensor, w: aj.Tensor, v: aj.Tensor) -> tuple[aj.Tensor, ...]:
    y, z = (w * x).tanh(), (w * v).exp()
    y.sum().backward()
    return z, y, y.detach()


def _nothing_kept(x: aj.Tensor, w: aj.Tensor, v: aj.Tensor) -> aj.Tensor:
    y = w + v + x
    y.sum().backward()
    return y


def _with_graph(x: aj.Tensor, w: aj.Tensor, v: aj.Tensor) -> None:
    ((w * x).tanh() * v).pow(2).sum().backward(create_graph=True)


def _with_graph_returned(x: aj.Tensor, w: aj.Tensor, v: aj.Tensor) -> tuple[aj.Tensor | None, ...]:
    loss = ((w * x).tanh() * v).pow(2).sum()
    loss.backward(create_graph=True)
    return loss, w.grad


def _twice(x: aj.Tensor, w: aj.Tensor, v: aj.Tensor) -> None:
    (w * x * v).pow(3).sum().backward(create_graph=True)
    (w * x + v).pow(2).sum().backward()


def _gradients(x: aj.Tensor, w: aj.Tensor, v: aj.Tensor) -> tuple[aj.Tensor | None, ...]:
    ((w * x).tanh() * v).sum().backward()
    return w.grad, v.grad


def _given(x: aj.Tensor, w: aj.Tensor, v: aj.Tensor) -> aj.Tensor:
    z = x * 2
    (w + 0).backward(z)
    (v + 0).backward(z)
    return z


def _by_leaves_made_inside(x: aj.Tensor, w: aj.Tensor, v: aj.Tensor) -> aj.Tensor:
    a, b = x[:, :1].clone().requires_grad_(), x[:, 1:].clone().requires_grad_()
    u = (w * aj.cat([a, b], 1)).tanh() * v
    (slope,) = aj.autograd.grad(u.sum(), a, create_graph=True)
    (bend,) = aj.autograd.grad(slope.sum(), b, create_graph=True)
    loss = (u * slope.sum()).sum() + bend.pow(2).sum()
    loss.backward()
    return loss


def _some_by_leaves_made_inside(x: aj.Tensor, w: aj.Tensor, v: aj.Tensor) -> tuple[aj.Tensor, ...]:
    a = x.clone().requires_grad_()
    y, z = (w * a).tanh(), w + v
    y.sum().backward()
    return y, z, y.detach()


def _rows() -> list[aj.Tensor]:
    w = (aj.arange(6.0).reshape(2, 3) * 0.2).requires_grad_()
    return [w, aj.full((2, 3), 0.5, requires_grad=True)]


def _columns() -> list[aj.Tensor]:
    w = (aj.arange(6.0).reshape(3, 2) * 0.2).t().requires_grad_()
    return [w, aj.full((2, 3), 0.5, requires_grad=True)]


def _gaps() -> list[aj.Tensor]:
    w = (aj.arange(12.0).reshape(2, 6) * 0.1)[:, ::2].requires_grad_()
    return [w, (aj.ones(3, 2) * 0.5).t().requires_grad_()]


BODIES = [
    _loss, _all_spent, _some_spent, _nothing_kept, _with_graph, _with_graph_returned, _twice, _gradients, _given,
    _by_leaves_made_inside, _some_by_leaves_made_inside,
]  # fmt: skip


@pytest.fixture(autouse=True)
def _in_float64() -> Iterator[None]:
    aj.set_default_dtype(aj.float64)
    yield
    aj.set_default_dtype(aj.float32)


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("leaves", [_rows, _columns, _gaps])
@pytest.mark.parametrize("are_arguments", [False, True])
def test_what_backward_leaves_is_as_in_eager_mode(body: Any, leaves: Any, are_arguments: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # create_graph=True warns of cycles
        eager = _run(lambda f: f, body, leaves, are_arguments)
        compiled = _run(aj.jit, body, leaves, are_arguments)
    for place, (a, b) in enumerate(zip(eager, compiled, strict=True)):
        assert a == b, place


def test_a_loss_that_was_used_up_comes_from_native_calls() -> None:
    w = aj.ones(3, requires_grad=True)

    @aj.jit
    def step(x: aj.Tensor) -> aj.Tensor:
        loss = (w * x).tanh().sum()
        w.grad = None
        loss.backward()
        return loss

    kept = [step(aj.ones(3)) for _ in range(9)]
    assert step.stats()["native_calls"] == 8
    assert all(loss.requires_grad and not loss.is_leaf for loss in kept)
    kept[3].detach_()
    kept[4].requires_grad_().register_hook(lambda grad: grad)
    del kept
    for _ in range(9):
        with pytest.raises(RuntimeError, match="a second time"):
            step(aj.ones(3)).backward()


def test_a_loss_of_leaves_made_inside_comes_from_native_calls() -> None:
    """As equations are solved by networks: what is differentiated by is made of the batch."""
    net = aj.nn.Sequential(aj.nn.Linear(2, 4), aj.nn.Tanh(), aj.nn.Linear(4, 1)).double()
    optimizer = aj.optim.Adam(net.parameters())

    @aj.jit
    def step(points: aj.Tensor) -> aj.Tensor:
        optimizer.zero_grad()
        x, t = (points[:, k : k + 1].clone().requires_grad_() for k in (0, 1))
        u = net(aj.cat([x, t], 1))
        by_x, by_t = aj.autograd.grad(u.sum(), (x, t), create_graph=True)
        (by_xx,) = aj.autograd.grad(by_x.sum(), x, create_graph=True)
        loss = (by_t + u * by_x - by_xx).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    for k in range(5):
        step(aj.ones(3, 2) * k)
    assert step.stats()["native_calls"] == 4


def test_gradients_with_a_history_go_on_through_that_of_an_argument() -> None:
    def run(jit: Wrap) -> list[Any]:
        a = aj.tensor([0.5, 1.5], requires_grad=True)

        @jit
        def step(h: aj.Tensor) -> None:
            h.pow(3).sum().backward(create_graph=True)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            step(a * 2)
        assert a.grad is not None
        return [_seen(a.grad), _seen(aj.autograd.grad(a.grad.sum(), a)[0])]

    assert run(aj.jit) == run(lambda f: f)
