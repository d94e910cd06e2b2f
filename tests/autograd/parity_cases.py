"""One small program per row of the page S0, written for PyTorch and autojit alike: ``T`` is the library.

``tools/record_parity.py`` runs them with PyTorch and records what they return; the tests run them with autojit and
compare. A program returns tensors, numbers, strings and lists of them. It imports neither library.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

Case = Callable[[Any], Any]


def exp_function(T: Any) -> Any:
    class Exp(T.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx: Any, y_bar: Any) -> Any:
            (y,) = ctx.saved_tensors
            return y_bar * y

    return Exp


def leaf(T: Any, *values: float) -> Any:
    return T.tensor(list(values), dtype=T.float64, requires_grad=True)


def raised(function: Callable[[], Any]) -> list[str]:
    """The kinds of error a call raises, and the start of what it says."""
    try:
        function()
    except Exception as error:
        kind = next(k for k in (TypeError, ValueError, RuntimeError, NotImplementedError) if isinstance(error, k))
        return [kind.__name__, str(error).splitlines()[0][:60]]
    return ["nothing", ""]


def s0_01_names(T: Any) -> Any:
    names = (
        "Function", "backward", "grad", "no_grad", "enable_grad", "set_grad_enabled", "Variable", "gradcheck",
        "gradgradcheck", "detect_anomaly", "set_detect_anomaly", "functional", "graph", "profiler", "inference_mode",
    )  # fmt: skip
    return [hasattr(T.autograd, name) for name in names]


def s0_02_function(T: Any) -> Any:
    x = leaf(T, 0.5, -1.0)
    y = exp_function(T).apply(x)
    y.sum().backward()
    return [y.detach(), x.grad, y.grad_fn.name()]


def s0_03_call_rule(T: Any) -> Any:
    class Context:
        def save_for_backward(self, *tensors: Any) -> None: ...

    x = leaf(T, 0.5)
    with T.no_grad():
        by_hand = exp_function(T).forward(Context(), x)
    return [by_hand.grad_fn is None, exp_function(T).apply(x).grad_fn is not None]


def s0_04_example(T: Any) -> Any:
    x = leaf(T, 0.5, -1.0)
    (first,) = T.autograd.grad(exp_function(T).apply(x).sum(), x, create_graph=True)
    (second,) = T.autograd.grad(first.sum(), x)
    return [first.detach(), second]


def s0_06_apply(T: Any) -> Any:
    x, constant = leaf(T, 0.5), T.tensor([0.5], dtype=T.float64)
    with T.no_grad():
        silent = exp_function(T).apply(x)
    return [exp_function(T).apply(t).grad_fn is None for t in (x, constant)] + [silent.grad_fn is None]


def s0_07_backward_forms(T: Any) -> Any:
    found = []
    for call in (
        lambda y, v: T.autograd.backward(y, v),
        lambda y, v: T.autograd.backward([y], [v]),
        lambda y, v: T.autograd.backward(tensors=(y,), grad_tensors=(v,)),
        lambda y, v: T.autograd.backward((y * v).sum()),
    ):
        x = leaf(T, 1.0, 2.0)
        found.append(call(x * x, T.tensor([1.0, 3.0], dtype=T.float64)) is None)
        found.append(x.grad)
    return found


def s0_08_sum(T: Any) -> Any:
    x = leaf(T, 1.0, 2.0)
    T.autograd.backward([(x * x).sum(), (x * x * x).sum()])
    return x.grad


def s0_09_vector(T: Any) -> Any:
    x = leaf(T, 1.0, 2.0)
    (x * x).backward(T.tensor([1.0, 10.0], dtype=T.float64))
    return [x.grad, raised(lambda: (x * x).backward())]


def s0_10_grad_tensors(T: Any) -> Any:
    x = leaf(T, 1.0, 2.0)
    T.autograd.backward([x.sum(), x * x], [None, T.tensor([1.0, 1.0], dtype=T.float64)])
    return [x.grad.clone(), raised(lambda: T.autograd.backward([x.sum(), x.sum()], [None]))]


def s0_11_accumulation(T: Any) -> Any:
    x = leaf(T, 1.0, 2.0)
    for _ in range(2):
        (x * x).sum().backward()
    twice = x.grad.clone()
    x.grad = None
    (x * x).sum().backward()
    return [twice, x.grad]


def s0_12_cycle(T: Any) -> Any:
    x = leaf(T, 1.0, 2.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        (x * x * x).sum().backward(create_graph=True)
    found = [x.grad.requires_grad, x.grad.detach().clone(), [w.category.__name__ for w in caught]]
    x.grad = None
    return found


def s0_13_retain_graph(T: Any) -> Any:
    x = leaf(T, 1.0, 2.0)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    return [x.grad.clone(), raised(lambda: y.backward())]


def s0_14_create_graph(T: Any) -> Any:
    x = leaf(T, 1.0, 2.0)
    (with_graph,) = T.autograd.grad((x**4).sum(), x, create_graph=True)
    (without,) = T.autograd.grad((x**4).sum(), x)
    (second,) = T.autograd.grad(with_graph.sum(), x)
    return [with_graph.requires_grad, without.requires_grad, with_graph.detach(), without, second]


def s0_15_signature(T: Any) -> Any:
    names = list(inspect.signature(T.autograd.grad).parameters)
    return names[: names.index("create_graph") + 1]


def s0_16_grad(T: Any) -> Any:
    x, w = leaf(T, 1.0, 2.0), leaf(T, 3.0, 4.0)
    found = T.autograd.grad([(x * w).sum(), (x * x).sum()], [x, w])
    return [*found, x.grad is None, w.grad is None]


def s0_17_grad_outputs(T: Any) -> Any:
    x = leaf(T, 1.0, 2.0)
    found = T.autograd.grad([x.sum(), x * x], [x], [None, T.tensor([1.0, 10.0], dtype=T.float64)])
    return [*found, raised(lambda: T.autograd.grad([x * x], [x]))]


def s0_18_single(T: Any) -> Any:
    x = leaf(T, 1.0, 2.0)
    found = T.autograd.grad(x * x, x, T.tensor([1.0, 10.0], dtype=T.float64))
    return [type(found).__name__, *found]


CASES: dict[str, Case] = {name: value for name, value in dict(globals()).items() if name.startswith("s0_")}


def plain(found: Any) -> Any:
    """What a program returned as what JSON can hold."""
    if hasattr(found, "tolist"):
        return found.tolist()
    return [plain(entry) for entry in found] if isinstance(found, list | tuple) else found
