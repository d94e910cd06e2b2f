"""The engine: passes within passes, callbacks, threads, depth, and what is freed when."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import pytest

import autojit as aj
from tests.autograd.functions import Square
from tests.autograd.steps import leaf, same

# -- passes within passes, callbacks, threads, depth


def test_callbacks_run_when_the_pass_ends() -> None:
    engine = aj.autograd.Variable._execution_engine
    order: list[str] = []

    class Calls(aj.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            engine.queue_callback(lambda: (order.append("end"), engine.queue_callback(lambda: order.append("last"))))
            return grad

    x = leaf(1.0)
    x.register_hook(lambda g: order.append("leaf"))
    Calls.apply(x).sum().backward()
    assert order == ["leaf", "end", "last"]
    with pytest.raises(RuntimeError, match="only be installed during backward pass"):
        engine.queue_callback(print)


class Nested(aj.autograd.Function):
    """Starts another backward pass in its own, as deep as its argument is large."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        with aj.enable_grad():
            ctx.x = x.detach().requires_grad_() - 1
        return ctx.x.detach()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        if ctx.x >= 0:
            with aj.enable_grad():
                Nested.apply(ctx.x).sum().backward()
        return grad


def test_passes_nest_deeper_than_pythons_stack() -> None:
    x = aj.tensor(500.0, requires_grad=True)
    Nested.apply(x).backward()
    assert x.grad.item() == 1


def test_an_error_in_a_nested_pass_arrives_and_leaves_the_modes_alone() -> None:
    class Failing(aj.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            raise KeyError("on purpose")

    x = leaf(1.0)
    inner = Failing.apply(x * 2).sum()
    outer = x.clone()
    outer.register_hook(lambda g: inner.backward())
    with pytest.raises(KeyError, match="on purpose"):
        outer.sum().backward()
    assert aj.is_grad_enabled()
    assert x.grad is None
    x.sum().backward()
    same(x.grad, [1.0])


def test_threads_may_share_leaves() -> None:
    x = aj.ones(5, 5, requires_grad=True)

    def train() -> None:
        for _ in range(20):
            ((x + 3) * (x + 4) * 0.5).sum().backward()

    threads = [threading.Thread(target=train) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (x.grad == 160 * 4.5).all()


def test_threads_may_share_a_part_of_the_graph_that_is_retained() -> None:
    x = leaf(1.0, 2.0)
    middle = x * x
    errors: list[BaseException] = []

    def train() -> None:
        try:
            (middle * 2).sum().backward(retain_graph=True)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=train) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    same(x.grad, [32.0, 64.0])


def test_graphs_may_be_deeper_than_pythons_stack() -> None:
    x = aj.ones(1, requires_grad=True)
    y = x.clone()
    for _ in range(20_000):
        y = y + y * 1e-6
    y.sum().backward()
    assert x.grad.item() == pytest.approx(1.0202, rel=1e-3)
    del y


@pytest.mark.slow
@pytest.mark.parametrize("function", [lambda y: y + y * 1e-6, lambda y: Square.apply(y)], ids=["op", "function"])
def test_graphs_of_150_000_steps_run_and_go(function: Any) -> None:
    x = aj.ones(1, requires_grad=True)
    y = x.clone()
    for _ in range(150_000):
        y = function(y)
    y.sum().backward(retain_graph=True)
    assert x.grad is not None
    del y


# -- what is freed, and when


@pytest.fixture
def no_collector() -> Any:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Marker:
    """Something whose end can be seen."""


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("passes", ["none", "freed", "retained"])
@pytest.mark.parametrize("hook", ["none", "tensor", "node", "leaf"])
@pytest.mark.parametrize("make", [lambda a: a * 2, lambda a: Square.apply(a)], ids=["op", "function"])
def test_history_and_hooks_go_without_the_collector(make: Any, hook: str, passes: str) -> None:
    x = leaf(1.0, 2.0)
    y = make(x)
    marker = Marker()
    seen = [weakref.ref(marker), weakref.ref(y.grad_fn)]
    watch = lambda *arguments, marker=marker: None
    if hook == "tensor":
        y.register_hook(watch)
    elif hook == "node":
        y.grad_fn.register_hook(watch)
    elif hook == "leaf":
        x.register_post_accumulate_grad_hook(watch)
    if passes != "none":
        y.sum().backward(retain_graph=passes == "retained")
    del x, y, marker, watch
    assert [reference() for reference in seen] == [None, None]


@pytest.mark.usefixtures("no_collector")
def test_saved_tensors_go_as_the_pass_consumes_them() -> None:
    x = leaf(1.0, 2.0)
    first = x * 2
    second = first + 1
    y = second**2
    saved = weakref.ref(second)
    alive: list[bool] = []
    first.register_hook(lambda g: alive.append(saved() is not None))
    del second
    total = y.sum()
    del y
    assert saved() is not None
    total.backward()
    assert alive == [False]


@pytest.mark.usefixtures("no_collector")
def test_saved_tensors_stay_in_a_retained_graph() -> None:
    x = leaf(1.0, 2.0)
    middle = x + 1
    saved = weakref.ref(middle)
    y = (middle**2).sum()
    del middle
    y.backward(retain_graph=True)
    assert saved() is not None
    del y
    assert saved() is None


def test_a_gradient_that_nobody_else_has_is_not_copied() -> None:
    pointers: list[int] = []

    class Both(aj.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            return a + b

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            pointers.append(grad.data_ptr())
            return grad, grad

    a, b = aj.ones(5, 6, requires_grad=True), aj.ones(5, 6, requires_grad=True)
    Both.apply(a, b)[1][0].backward()
    assert a.grad.data_ptr() != b.grad.data_ptr()
    assert pointers[0] in (a.grad.data_ptr(), b.grad.data_ptr())
    given = aj.ones(5, 6)
    a.grad = None
    (a * 1).backward(given)
    a.backward(given)
    assert given.sum().item() == 30


def test_the_derivative_of_unique_is_missing() -> None:
    x = leaf(1.0, 2.0)
    y = aj.unique(x)
    assert y.requires_grad
    with pytest.raises(NotImplementedError, match=r"the derivative for '.*' is not implemented"):
        y.sum().backward()
