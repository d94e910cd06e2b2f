"""Composites against independent NumPy formulas, their derivatives by the laws, and what their adjoints cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special
from numpy.typing import NDArray

import autojit as aj
import autojit.nn.functional as F
from autojit import ops
from autojit.core.dtypes import float64
from autojit.ir import Graph, GraphBuilder, evaluate, verify
from autojit.ir.graph import Value
from autojit.transforms.adjoint import adjoint
from tests.ops.laws import check_derivatives, type_of

Function = Callable[..., Any]


def traced(function: Function, inputs: list[NDArray[Any]]) -> Graph:
    """The graph of a function of operands."""
    builder = GraphBuilder()
    y = function(*[builder.tracer(builder.input(type_of(x))) for x in inputs])
    outputs = y if isinstance(y, tuple) else (y,)
    return verify(builder.finish([v.value for v in outputs]))


def call(function: Function, *inputs: Any) -> NDArray[Any]:
    arrays = [np.asarray(x) for x in inputs]
    return evaluate(traced(function, arrays), arrays)[0]


def gradient(function: Function, *inputs: Any) -> list[NDArray[Any]]:
    """Cotangents of all inputs for a cotangent of ones."""
    arrays = [np.asarray(x) for x in inputs]
    graph = traced(function, arrays)
    ones = [np.ones(v.type.shape) for v in graph.outputs if v.type.dtype.is_differentiable]
    return evaluate(adjoint(graph), [*arrays, *ones])


def distinct(graph: Graph) -> Counter[str]:
    """How often each op remains after equal applications are merged and dead ones dropped."""
    known: dict[tuple[Any, ...], tuple[Value, ...]] = {}
    stands_for: dict[Value, Value] = {v: v for v in graph.inputs}
    kept: dict[Value, Any] = {}
    for node in graph.nodes:
        key = (node.op, *(stands_for[v] for v in node.inputs))
        outputs = known.setdefault(key, node.outputs)
        stands_for.update(zip(node.outputs, outputs, strict=True))
        if outputs is node.outputs:
            kept.update(dict.fromkeys(outputs, (node, key[1:])))
    live, stack = set(), [stands_for[v] for v in graph.outputs]
    while stack:
        value = stack.pop()
        if value in kept and value not in live:
            live.add(value)
            stack.extend(kept[value][1])
    return Counter(kept[v][0].op.name for v in live)


X = np.random.default_rng(0).standard_normal((4, 5))
SMOOTH: dict[str, tuple[Function, Callable[..., Any]]] = {
    "mean": (lambda x: ops.mean(x, 1), lambda x: x.mean(1)),
    "var": (lambda x: ops.var(x, 1), lambda x: x.var(1, ddof=1)),
    "var of all": (lambda x: ops.var(x, correction=0), np.var),
    "std": (lambda x: ops.std(x, 0, keep=True), lambda x: x.std(0, ddof=1, keepdims=True)),
    "norm 2": (lambda x: ops.norm(x, 2.0, 1), lambda x: np.linalg.norm(x, axis=1)),
    "norm 1": (lambda x: ops.norm(x, 1.0, 1), lambda x: np.abs(x).sum(1)),
    "norm 3": (lambda x: ops.norm(x, 3.0), lambda x: (np.abs(x) ** 3).sum() ** (1 / 3)),
    "norm 1/2": (lambda x: ops.norm(x, 0.5, 1), lambda x: (np.abs(x) ** 0.5).sum(1) ** 2),
    "norm -2": (lambda x: ops.norm(x, -2.0, 1), lambda x: (np.abs(x) ** -2.0).sum(1) ** -0.5),
    "norm inf": (lambda x: ops.norm(x, np.inf, 1), lambda x: np.abs(x).max(1)),
    "norm -inf": (lambda x: ops.norm(x, -np.inf, 1), lambda x: np.abs(x).min(1)),
    "logsumexp": (lambda x: ops.logsumexp(x, 1), lambda x: scipy.special.logsumexp(x, 1)),
    "max_with_index": (lambda x: ops.max_with_index(x, 1)[0], lambda x: x.max(1)),
    "min_with_index": (lambda x: ops.min_with_index(x, 0, keep=True)[0], lambda x: x.min(0, keepdims=True)),
    "softmax": (lambda x: ops.softmax(x, 0), lambda x: scipy.special.softmax(x, 0)),
    "log_softmax": (ops.log_softmax, lambda x: scipy.special.log_softmax(x, 1)),
    "layer_norm": (ops.layer_norm, lambda x: (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)),
    "rms_norm": (ops.rms_norm, lambda x: x / np.sqrt((x**2).mean(1, keepdims=True) + 1e-6)),
    "gelu": (ops.gelu, lambda x: x * scipy.special.ndtr(x)),
    "gelu tanh": (
        lambda x: ops.gelu(x, "tanh"),
        lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    ),
    "silu": (ops.silu, lambda x: x / (1 + np.exp(-x))),
    "mish": (ops.mish, lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    "softplus": (lambda x: ops.softplus(x, 2.0), lambda x: np.log1p(np.exp(2 * x)) / 2),
    "logsigmoid": (ops.logsigmoid, lambda x: np.log(1 / (1 + np.exp(-x)))),
    "leaky_relu": (ops.leaky_relu, lambda x: np.where(x > 0, x, 0.01 * x)),
    "elu": (lambda x: ops.elu(x, 1.5), lambda x: np.where(x > 0, x, 1.5 * np.expm1(x))),
    "celu": (lambda x: ops.celu(x, 1.5), lambda x: np.where(x > 0, x, 1.5 * np.expm1(x / 1.5))),
    "selu": (ops.selu, lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x))),
    "hardtanh": (ops.hardtanh, lambda x: np.clip(x, -1, 1)),
    "relu6": (lambda x: ops.relu6(ops.mul(x, 5)), lambda x: np.clip(5 * x, 0, 6)),
    "hardsigmoid": (lambda x: ops.hardsigmoid(ops.mul(x, 3)), lambda x: np.clip(3 * x / 6 + 0.5, 0, 1)),
    "hardswish": (lambda x: ops.hardswish(ops.mul(x, 3)), lambda x: 3 * x * np.clip(3 * x / 6 + 0.5, 0, 1)),
    "softsign": (ops.softsign, lambda x: x / (1 + np.abs(x))),
    "tanhshrink": (ops.tanhshrink, lambda x: x - np.tanh(x)),
    "softshrink": (ops.softshrink, lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.5, 0)),
    "hardshrink": (ops.hardshrink, lambda x: np.where(np.abs(x) > 0.5, x, 0)),
    "threshold": (lambda x: ops.threshold(x, 0.3, 7.0), lambda x: np.where(x > 0.3, x, 7)),
    "clamp": (lambda x: ops.clamp(x, -0.5, 0.7), lambda x: np.clip(x, -0.5, 0.7)),
    "frac": (ops.frac, lambda x: x - np.trunc(x)),
    "pow 7": (lambda x: ops.pow(x, 7), lambda x: x**7),
    "lerp": (lambda x: ops.lerp(x, ops.square(x), 0.7), lambda x: x + 0.7 * (x**2 - x)),
    "lerp by operands": (
        lambda x: ops.lerp(x, ops.square(x), ops.sigmoid(x)),
        lambda x: x + (x**2 - x) / (1 + np.exp(-x)),
    ),
    "angle of reals": (ops.angle, np.angle),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_composite_agrees_with_its_formula_and_its_derivatives_with_differences(name: str) -> None:
    function, formula = SMOOTH[name]
    np.testing.assert_allclose(call(function, X), formula(X), rtol=1e-12, atol=1e-14)
    graph = traced(function, [X])
    check_derivatives(graph, [X])
    w = np.random.default_rng(1).standard_normal(graph.outputs[0].type.shape)
    check_derivatives(adjoint(graph), [X, np.asarray(w)])


TARGET = np.random.default_rng(2).random((4, 5))
LABELS = np.array([1, 4, 0, 2])
LOSSES: dict[str, tuple[Function, Callable[..., Any]]] = {
    "huber": (lambda x, t: ops.huber(x, t, 0.7), lambda x, t: scipy.special.huber(0.7, x - t)),
    "smooth_l1": (lambda x, t: ops.smooth_l1(x, t, 0.7), lambda x, t: scipy.special.huber(0.7, x - t) / 0.7),
    "bce with logits": (
        ops.binary_cross_entropy_with_logits,
        lambda x, t: -t * np.log(scipy.special.expit(x)) - (1 - t) * np.log(scipy.special.expit(-x)),
    ),
    "bce": (
        lambda x, t: ops.binary_cross_entropy(ops.sigmoid(x), t),
        lambda x, t: -t * np.log(scipy.special.expit(x)) - (1 - t) * np.log(scipy.special.expit(-x)),
    ),
    "kl_div": (lambda x, t: ops.kl_div(x, t), lambda x, t: t * (np.log(t) - x)),
    "soft_cross_entropy": (ops.soft_cross_entropy, lambda x, t: -(t * scipy.special.log_softmax(x, 1)).sum(1)),
    "xlogy": (lambda x, t: ops.xlogy(x, t), scipy.special.xlogy),
    "addcmul": (lambda x, t: ops.addcmul(x, x, t, 0.3), lambda x, t: x + 0.3 * x * t),
    "addcdiv": (lambda x, t: ops.addcdiv(x, x, t, 0.3), lambda x, t: x + 0.3 * x / t),
    "hypot": (ops.hypot, np.hypot),
    "logaddexp": (ops.logaddexp, np.logaddexp),
}


@pytest.mark.parametrize("name", LOSSES)
def test_loss_agrees_with_its_formula_and_its_derivatives_with_differences(name: str) -> None:
    function, formula = LOSSES[name]
    np.testing.assert_allclose(call(function, X, TARGET), formula(X, TARGET), rtol=1e-12, atol=1e-14)
    check_derivatives(traced(function, [X, TARGET]), [X, TARGET])


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_cross_entropy_is_minus_the_log_probability_of_the_label(smoothing: float) -> None:
    def function(x: Any, t: Any) -> Any:
        return ops.cross_entropy(x, t, 1, smoothing)

    log_p = scipy.special.log_softmax(X, 1)
    expected = -(1 - smoothing) * log_p[np.arange(4), LABELS] - smoothing * log_p.mean(1)
    np.testing.assert_allclose(call(function, X, LABELS), expected, rtol=1e-13)
    check_derivatives(traced(function, [X, LABELS]), [X, LABELS])


def test_one_hot_marks_the_label() -> None:
    np.testing.assert_array_equal(call(lambda t: ops.one_hot(t, 5), LABELS), np.eye(5, dtype=np.int64)[LABELS])
    assert call(lambda t: ops.one_hot(t, 5, float64), LABELS).dtype == np.float64


def test_adjoints_of_the_softmax_family_take_one_exponential_and_no_division_by_element() -> None:
    assert distinct(adjoint(traced(ops.softmax, [X])))["exp"] == 1
    assert distinct(adjoint(traced(ops.log_softmax, [X])))["exp"] == 1
    counted = distinct(adjoint(traced(lambda x, t: ops.cross_entropy(x, t), [X, LABELS])))
    assert counted["exp"] == 1
    assert counted["sum"] == 1  # of the exponentials: the adjoint itself folds nothing
    assert distinct(adjoint(traced(ops.softmax, [X])))["div"] == 0


def test_the_adjoint_of_a_layer_norm_adds_two_independent_reductions() -> None:
    forward = distinct(traced(ops.layer_norm, [X]))["sum"]
    assert distinct(adjoint(traced(ops.layer_norm, [X])))["sum"] == forward + 2
    assert distinct(adjoint(traced(lambda x: ops.var(x, 1), [X])))["sum"] == 1  # the mean, nothing else


def test_extreme_inputs_do_not_overflow() -> None:
    x = np.array([[1000.0, 1000.0], [-1000.0, 0.0], [-np.inf, 3.0]])
    np.testing.assert_allclose(call(lambda x: ops.logsumexp(x, 1), x), [1000 + np.log(2), 0, 3])
    np.testing.assert_allclose(call(ops.softmax, x), [[0.5, 0.5], [0, 1], [0, 1]])
    assert call(lambda x: ops.logsumexp(x, 0), np.array([-np.inf, -np.inf])) == -np.inf
    assert call(lambda x: ops.logsumexp(x, 0), np.zeros(0)) == -np.inf
    np.testing.assert_array_equal(call(ops.softplus, np.array([1e4, -1e4])), [1e4, 0])
    np.testing.assert_array_equal(call(ops.logsigmoid, np.array([1e4, -1e4])), [0, -1e4])
    tail = np.array([-30.0, -7.0, 30.0])
    np.testing.assert_allclose(call(ops.gelu, tail), tail * scipy.special.ndtr(tail), rtol=1e-15, atol=30 * 2.0**-52)


@pytest.mark.parametrize(
    ("function", "x", "expected"),
    [
        (lambda x: ops.where(ops.gt(x, 0), ops.sqrt(x), 0), [0.0, 4.0], [0, 0.25]),
        (lambda x: ops.where(ops.gt(x, 0), ops.log(x), 0), [0.0, -1.0, 4.0], [0, 0, 0.25]),
        (lambda x: ops.where(ops.gt(x, 0), ops.div(1, x), 0), [0.0, 2.0], [0, -0.25]),
        (lambda x: ops.where(ops.lt(x, 10), ops.exp(x), 0), [1e4, 0.0], [0, 1]),
        (lambda x: ops.where(ops.gt(x, 0), ops.pow(x, 0.25), 0), [0.0, 1.0], [0, 0.25]),
        (lambda x: ops.elu(x), [1e4, 0.5], [1, 1]),
        (lambda x: ops.norm(x), [0.0, 0.0], [0, 0]),
        (lambda x: ops.std(x), [2.0, 2.0], [0, 0]),
        (ops.abs, [0.0, -2.0], [0, -1]),
        (ops.relu, [0.0, 2.0, -1.0], [0, 1, 0]),
        (ops.sqrt, [0.0, 1.0], [np.inf, 0.5]),
        (lambda x: ops.pow(x, 2.0), [0.0, 3.0], [0, 6]),
        (lambda x: ops.pow(x, 1.0), [0.0, 3.0], [1, 1]),
        (lambda x: ops.maximum(x, 0), [0.0, 1.0, -1.0], [0.5, 1, 0]),
        (lambda x: ops.clamp(x, 0, 1), [0.0, 1.0, 2.0, 0.5], [0, 0, 0, 1]),
        (lambda x: ops.amax(x), [3.0, 3.0, 1.0], [0.5, 0.5, 0]),
        (lambda x: ops.max_with_index(x, 0)[0], [3.0, 3.0, 1.0], [1, 0, 0]),
        (lambda x: ops.prod(x), [0.0, 2.0, 3.0], [6, 0, 0]),
        (lambda x: ops.prod(x), [0.0, 0.0, 3.0], [0, 0, 0]),
        (lambda x: ops.hardtanh(x), [-1.0, 0.0, 1.0], [0, 1, 0]),
        (lambda x: ops.binary_cross_entropy_with_logits(x, ops.full_like(x, 0.25)), [0.0], [0.25]),
        (lambda x: ops.logaddexp(x, 0), [0.0], [0.5]),
    ],
)
def test_derivatives_at_special_points(function: Function, x: list[float], expected: list[float]) -> None:
    with np.errstate(all="ignore"):
        (found,) = gradient(function, np.array(x))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_second_derivatives_at_special_points() -> None:
    def hessian(function: Function, x: list[float]) -> NDArray[Any]:
        point = np.array(x)
        twice = adjoint(adjoint(traced(function, [point])), [0])
        one = np.ones(())
        return np.stack([evaluate(twice, [point, one, row])[0] for row in np.eye(len(x))])

    np.testing.assert_allclose(hessian(lambda x: ops.prod(x), [0.0, 0.0, 3.0]), [[0, 3, 0], [3, 0, 0], [0, 0, 0]])
    np.testing.assert_allclose(hessian(lambda x: ops.sum(ops.logaddexp(x, 0)), [0.0]), [[0.25]])
    expected = 2 * (np.eye(3) - 1 / 3) / 2
    np.testing.assert_allclose(hessian(lambda x: ops.var(x), [1.0, 2.0, 5.0]), expected, atol=1e-15)

    def masked(x: Any) -> Any:  # the cotangent of the logarithm is zero here, its derivative is not
        return ops.mul(ops.log(ops.slice_axis(x, 0, 0, 1)), ops.slice_axis(x, 0, 1, 2))

    np.testing.assert_allclose(hessian(lambda x: ops.sum(masked(x)), [2.0, 0.0]), [[0, 0.5], [0.5, 0]])


HALVES_ONCE: dict[str, Callable[..., Any]] = {
    "softmax": lambda x, y: aj.softmax(x, 1),
    "log_softmax": lambda x, y: aj.log_softmax(x, 1),
    "gelu": lambda x, y: F.gelu(x),
    "gelu of tanh": lambda x, y: F.gelu(x, approximate="tanh"),
    "silu": lambda x, y: F.silu(x),
    "softplus": lambda x, y: F.softplus(x),
    "mish": lambda x, y: F.mish(x),
    "logsigmoid": lambda x, y: F.logsigmoid(x),
    "leaky_relu": lambda x, y: F.leaky_relu(x),
    "elu": lambda x, y: F.elu(x, 1.3),
    "celu": lambda x, y: F.celu(x, 1.3),
    "selu": lambda x, y: F.selu(x),
    "hardsigmoid": lambda x, y: F.hardsigmoid(x),
    "hardswish": lambda x, y: F.hardswish(x),
    "glu": lambda x, y: F.glu(x),
    "mean": lambda x, y: x.mean(1),
    "var": lambda x, y: x.var(1),
    "std": lambda x, y: x.std(0),
    "logsumexp": lambda x, y: x.logsumexp(1),
    "avg_pool1d": lambda x, y: F.avg_pool1d(x, 3, padding=1, count_include_pad=False),
    "adaptive_avg_pool1d": lambda x, y: F.adaptive_avg_pool1d(x, 4),
    "addcmul": lambda x, y: aj.addcmul(x, y, y, value=0.3),
    "addcdiv": lambda x, y: aj.addcdiv(x, y, y.abs().clamp(0.5), value=0.3),
    "smooth_l1": lambda x, y: F.smooth_l1_loss(x, y, reduction="none", beta=0.7),
    "huber": lambda x, y: F.huber_loss(x, y, reduction="none", delta=0.7),
    "times a number": lambda x, y: x * 0.3,
    "a number divides": lambda x, y: x / 0.7,
    "times a tensor of rank 0": lambda x, y: x * aj.tensor(0.3),
    "add with a factor": lambda x, y: aj.add(x, y, alpha=0.75),
    "sub with a factor": lambda x, y: aj.sub(x, y, alpha=0.75),
    "lerp": lambda x, y: aj.lerp(x, y, 0.3),
    "lerp by tensors": lambda x, y: aj.lerp(x, y, y.abs()),
    "logaddexp2": lambda x, y: aj.logaddexp2(x, y),
    "rad2deg": lambda x, y: aj.rad2deg(x),
    "linear": lambda x, y: F.linear(x, y, y[:, 0]),
    "linear of a batch": lambda x, y: F.linear(x.view(2, 2, 6), y, y[:, 0]),
    "addmm": lambda x, y: aj.addmm(y[:, :4], x, y.mT, beta=0.3),
    "conv1d": lambda x, y: F.conv1d(x, y[:2].view(1, 4, 3), y[0, :1]),
    "conv_transpose1d": lambda x, y: F.conv_transpose1d(x, y.view(4, 2, 3), y[0, :2]),
    "interpolate": lambda x, y: F.interpolate(x[None], 9, mode="linear"),
    "area": lambda x, y: F.interpolate(x[None], 4, mode="area"),
}


def half_units(x: NDArray[Any], dtype: aj.dtype) -> NDArray[Any]:
    """Half the distance of the numbers of a dtype around ``x``: what one rounding may change."""
    limits = aj.finfo(dtype)
    powers = 2.0 ** (np.frexp(np.maximum(np.abs(x), limits.smallest_normal))[1] - 1)
    return np.asarray(powers * limits.eps / 2)


@pytest.mark.parametrize("dtype", [aj.float16, aj.bfloat16])
@pytest.mark.parametrize("compiled", [False, True])
def test_bounds_of_halves_keep_their_digits(dtype: aj.dtype, compiled: bool) -> None:
    """The half nearest to a bound is on the side of the bound on which the number is, not on both."""
    for bound in (0.1, 0.3, -0.7, 1.3):
        x = aj.tensor([bound, bound], dtype=aj.float64).to(dtype)
        step = aj.jit(lambda x, bound=bound: F.threshold(x, bound, 20.0))
        found = step(x) if compiled else F.threshold(x, bound, 20.0)
        assert (found == x).all() == (x.double() > bound).all()


@pytest.mark.parametrize("dtype", [aj.float16, aj.bfloat16])
def test_composites_of_halves_are_rounded_once(dtype: aj.dtype) -> None:
    """They and their derivatives are half a unit from what float32 makes of the same numbers: also in a step."""
    aj.manual_seed(0)
    given = [aj.randn(4, 6).to(dtype) for _ in range(2)]
    weight = aj.randn(48).to(dtype)

    def made(x: Any, y: Any, names: tuple[str, ...]) -> list[Any]:
        found = []
        for name in names:
            own = x.detach().requires_grad_()
            z = HALVES_ONCE[name](own, y)
            (slope,) = aj.autograd.grad(z, (own,), weight[: z.numel()].view(z.shape).to(z.dtype))
            found += [z.detach(), slope]
        return found

    some = ("gelu", "mean", "times a number", "linear of a batch")
    for way, names in ((made, tuple(HALVES_ONCE)), (aj.jit(made), some)):
        wide = made(*[t.float() for t in given], names)
        for k, (found, wanted) in enumerate(zip(way(*given, names), wide, strict=True)):
            assert found.dtype is dtype
            error = np.abs(found.float().numpy() - wanted.numpy())
            allowed = half_units(wanted.numpy(), dtype) * 1.01 + 2.0**-20  # what float32 itself may err by
            assert (error <= allowed).all(), names[k // 2]
