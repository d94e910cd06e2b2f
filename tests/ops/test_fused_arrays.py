"""Composites with reductions as one node: their values and derivatives are those of their parts."""

from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.core.types import TensorType
from autojit.dispatch import kernels
from autojit.dispatch.kernels import LARGE, in_one_step
from autojit.ir.graph import Graph
from autojit.ops.fused import COMPOSITES, Fused
from autojit.ops.fused_arrays import ARRAY_COMPOSITES, FusedArrays
from autojit.tensor.tensor import type_of

SIDE = 80
assert SIDE * SIDE > LARGE


def draws(*shape: int, seed: int = 3) -> Any:
    return aj.tensor(np.random.default_rng(seed).normal(size=shape))


def cases() -> dict[str, tuple[tuple[Any, ...], list[Any]]]:
    """By composite: options and operands, the latter large."""
    x, y, row = draws(SIDE, SIDE), draws(SIDE, SIDE, seed=4), draws(SIDE, seed=5)
    classes = aj.tensor(np.random.default_rng(6).integers(0, SIDE, SIDE))
    images, channels = draws(4, 6, 16, 16), draws(1, 6, 1, 1, seed=7)
    positive = channels * channels + 0.5
    labels = aj.tensor([[1, 2], [1, 1], [2, 0]])
    time, live = x[:6, :9].reshape(6, 3, 3), aj.arange(6).reshape(6, 1, 1) < aj.tensor([[6], [4], [1]])
    return {
        "class_losses": ((1, 0.1, "sum"), [x, classes]),
        "cosines": ((1, 1e-8), [x, y]),
        "cross": ((1,), [draws(40, 3, 50), draws(40, 3, 1, seed=4)]),
        "ctc_losses": ((0, "sum", True), [time.log_softmax(2), labels, aj.tensor([6, 4, 0]), aj.tensor([2, 0, 1])]),
        "diag_embed": ((1, -2, -1), [x[0]]),
        "distances": ((3.0,), [x[:, :3], y[:, 3:6]]),
        "distances_by_products": ((), [x, y]),
        "gru_cell": ((), [x[:, :60], x[:, 60:], y[:60, :20], row[:60]]),
        "gru_gates": ((), [x[:, :60], y[:, 20:], x[:, 60:]]),
        "gru_sequence": ((True, True, True), [time, x[:3, :4], y[:12, :3], y[:12, 4:8], row[:12], row[12:24], live]),
        "inner_product": ((), [x.reshape(-1), y.reshape(-1)]),
        "kron": ((), [x[:9, :8], y[:9, :8]]),
        "log_softmax_cotangent": ((1, False), [x.log_softmax(1), y]),
        "logsumexp": (((1,), False), [x]),
        "lstm_cell": ((), [x, x[:, :30], x[:, :20] * 2, y[:, :30], row]),
        "lstm_gates": ((), [x, y, x[:, :20] * 2]),
        "lstm_sequence": (
            (False, False, True, True),
            [time, x[:3, :2], y[:3, :4], y[:16, :3], y[:16, 4:6], y[:2, 8:12]],
        ),
        "nansum": (((0,), True), [x]),
        "norm": ((3.0, (1,), False), [x]),
        "normalized": (((1,), 1e-5, True, True), [x, row, row * 2]),
        "normalized_with_moments": (((0, 2, 3), 1e-5, True, False), [images, channels]),
        "outer": ((), [row, row * 2]),
        "pad": (((1, 0), (2, 3), 0.5), [x]),
        "pointwise_losses": (("huber", (0.7,), "mean"), [x, y]),
        "prod": (((1,), False), [x]),
        "rnn_cell": ((True,), [x, x * 0.1, y]),
        "rnn_sequence": ((True, True, False, True), [time, x[:3, :4], y[:4, :3], y[:4, 4:8], row[:4], row[4:8], live]),
        "rms_normalized": (((1,), 1e-5, True), [x, row]),
        "shifted_and_scaled": ((1e-5, False, True), [images, channels, positive, channels]),
        "softmax_cotangent": ((1, True), [x.softmax(1), y]),
        "squared_errors": (("mean",), [x, y]),
        "std": (((1,), 1, True), [x]),
        "tril": ((2,), [x]),
        "triu": ((-1,), [x]),
        "unit_vectors": ((2.0, 1, 1e-12), [x]),
        "var": (((0,), 0, False), [x]),
        "window_maxima": ((((3, 2, 1, 1, True), (2, 1, 0, 2, False)), -float("inf")), [images]),
        "window_means": ((((3, 2, 1, 1, True), (2, 1, 0, 2, False)), 6), [images]),
    }


RESULTS = {
    "gru_sequence": 2, "lstm_cell": 2, "lstm_gates": 2, "lstm_sequence": 3, "normalized_with_moments": 3,
    "rnn_sequence": 2
}  # of the composites that have several  # fmt: skip
WITHOUT_DERIVATIVES = {"bits_like", "integers_like", "normal_like", "one_hot", "uniform_like"}


def test_every_composite_has_a_case() -> None:
    assert cases().keys() | WITHOUT_DERIVATIVES == set(ARRAY_COMPOSITES)


@pytest.mark.parametrize("name", sorted(cases()))
def test_one_node_has_the_value_and_derivatives_of_the_parts(name: str) -> None:
    options, given = cases()[name]
    results = RESULTS.get(name, 1)

    def derivatives(function: Any) -> list[Any]:
        leaves = [x.clone().requires_grad_() if x.is_floating_point() else x for x in given]
        wanted = [x for x in leaves if x.requires_grad]
        found = function(*leaves)
        result = found if results == 1 else found[0]
        weight = draws(*result.shape, seed=8)
        first = aj.autograd.grad((result * weight).sum(), wanted, create_graph=True)
        again = [g for g in first if g.requires_grad]
        total = sum((g * draws(*g.shape, seed=9)).sum() for g in again)
        second = aj.autograd.grad(total, wanted, allow_unused=True) if again else ()
        return [result, *first, *second]

    one = derivatives(lambda *x: in_one_step(name, options, *x, node="OneBackward0", results=results))
    parts = derivatives(lambda *x: ARRAY_COMPOSITES[name](*x, *options))
    assert one[0].grad_fn.name() == "OneBackward0"
    for found, expected in zip(one, parts, strict=False):
        if expected is None:  # a derivative of zero has a graph in one form and none in the other
            assert found is None or not found.abs().max().item()
            continue
        scale = float(expected.detach().abs().max().item()) + 1e-300
        np.testing.assert_allclose(
            np.zeros(expected.shape) if found is None else found.detach().numpy() / scale,
            expected.detach().numpy() / scale,
            rtol=1e-9,
            atol=1e-9,
        )


def masking_ops(graph: Graph) -> list[str]:
    """The ops that may zero cotangents on the way from the results to the operands."""
    active, reached, found = set(graph.inputs), set(graph.outputs), []
    for node in graph.nodes:
        if node.op.is_differentiable and not active.isdisjoint(node.inputs):
            active.update(node.outputs)
    for node in reversed(graph.nodes):
        if not reached.isdisjoint(active.intersection(node.outputs)):
            reached.update(node.inputs)
            found += [node.op.name] if node.op.masks_cotangents else []
    return found


OTHER_OPTIONS: list[tuple[str, tuple[Any, ...]]] = [
    *[("norm", (p, (1,), False)) for p in (0.0, 1.0, 2.0, -1.0, float("inf"), -float("inf"))],
    ("distances", (1.0,)),
    ("softmax_cotangent", (1, False)),
    ("log_softmax_cotangent", (1, True)),
    ("rnn_cell", (False,)),
    ("window_maxima", (((1, 1, 0, 1, False),), 0.0)),
    ("window_means", (((1, 2, 0, 1, False),), None)),
    ("pointwise_losses", ("smooth_l1", (0.0,), "mean")),
    ("pointwise_losses", ("logit_loss", (), "sum")),
]


def test_a_composite_masks_where_its_parts_do() -> None:
    chosen = {name: case for name, case in cases().items() if name not in WITHOUT_DERIVATIVES}
    for name, options in [*((name, options) for name, (options, _) in chosen.items()), *OTHER_OPTIONS]:
        results = RESULTS.get(name, 1)
        op = FusedArrays(name, options, None, (), results)
        parts = masking_ops(op.graph_of([type_of(t) for t in chosen[name][1]]))
        assert op.masks_cotangents == bool(parts), (name, options, parts)


POINTWISE_OPTIONS: dict[str, tuple[Any, ...]] = {
    "clamp": (-1, 1), "hardtanh": (-1.0, 1.0), "huber": (0.5,), "lerp": (0.5,), "smooth_l1": (0.5,),
    "softplus": (1.0, 20.0), "threshold": (0.1, 0.2),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPOSITES)
def test_an_elementwise_composite_masks_where_its_parts_do(name: str) -> None:
    options, places = POINTWISE_OPTIONS.get(name, ()), signature(COMPOSITES[name]).parameters.values()
    count = max(1, sum(place.default is place.empty for place in places) - len(options))
    op = Fused(name, options)
    parts = masking_ops(op.graph_of([TensorType((), aj.float32)] * count))
    assert op.masks_cotangents == bool(parts), parts


def test_one_kernel_serves_every_size() -> None:
    before = kernels._kernel.cache_info().misses
    for rows in (70, 90, 110):
        in_one_step("logsumexp", ((1,), False), draws(rows, 71))
    assert kernels._kernel.cache_info().misses <= before + 1


def test_only_wanted_cotangents_are_computed() -> None:
    x, row = draws(SIDE, SIDE).requires_grad_(), draws(SIDE)
    found = in_one_step("normalized", ((1,), 1e-5, True, False), x, row)
    assert found.grad_fn.op == FusedArrays("normalized", ((1,), 1e-5, True, False), (0,))
    (gradient,) = aj.autograd.grad(found.sum(), (x,))
    assert gradient.shape == x.shape


def test_memory_of_large_temporaries_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "KEPT_BYTES", 0)
    x = draws(200, 200).requires_grad_()
    for _ in range(3):
        first = aj.autograd.grad(aj.cdist(x, x * 1.1).sum(), x)[0]
    np.testing.assert_allclose(first.numpy(), aj.autograd.grad(aj.cdist(x, x * 1.1).sum(), x)[0].numpy())


def test_vmap_and_forward_mode_use_the_parts() -> None:
    x = draws(3, SIDE, SIDE)
    rows = aj.func.vmap(lambda t: t.logsumexp(1))(x)
    np.testing.assert_allclose(rows.numpy(), x.logsumexp(2).numpy(), rtol=1e-12)
    primal, tangent = draws(SIDE, SIDE), draws(SIDE, SIDE, seed=4)
    value, moved = aj.func.jvp(lambda t: t.std(1), (primal,), (tangent,))
    step = 1e-6
    differences = ((primal + step * tangent).std(1) - (primal - step * tangent).std(1)) / (2 * step)
    np.testing.assert_allclose(moved.numpy(), differences.numpy(), rtol=1e-6, atol=1e-8)
    assert value.shape == (SIDE,)


@pytest.mark.parametrize("dtype", [aj.float32, aj.float64, aj.int64, aj.int32, aj.uint8], ids=str)
@pytest.mark.parametrize("largest", [True, False])
def test_the_first_few_of_a_long_line_are_those_of_the_whole_order(dtype: aj.dtype, largest: bool) -> None:
    draw = np.random.default_rng(11)
    x = aj.tensor(draw.normal(size=20_000) * 50).to(dtype)
    if dtype.is_floating_point:
        x[draw.integers(0, 20_000, 50)] = -0.0
    values, places = x.topk(7, largest=largest)
    order = x.sort(descending=largest, stable=True)
    assert aj.equal(values, order.values[:7])
    assert aj.equal(places, order.indices[:7])


def test_the_first_few_begin_with_nan() -> None:
    x = draws(20_000)
    x[[5, 19_999]] = float("nan")
    values, places = x.topk(3)
    assert places.tolist()[:2] == [5, 19_999]
    assert aj.isnan(values).tolist() == [True, True, False]


def test_sums_at_run_time_places_say_which_index_is_wrong() -> None:
    base, addends = aj.zeros(100, 100), aj.ones(80, 100)
    index = aj.arange(80)
    added = base.index_put((index - 100,), addends, accumulate=True)  # from the end
    np.testing.assert_array_equal(added.sum(1).numpy(), [100.0] * 80 + [0.0] * 20)
    index[3] = 100
    with pytest.raises(IndexError, match="100"):
        base.index_add(0, index, addends)


def test_many_random_numbers_continue_what_few_would_be() -> None:
    for draw in (aj.rand, aj.randn):
        aj.manual_seed(5)
        few = draw(LARGE - 1)
        aj.manual_seed(5)
        many = draw(2, LARGE)
        np.testing.assert_allclose(many.reshape(-1)[: LARGE - 1].numpy(), few.numpy(), rtol=1e-6, atol=1e-6)


def test_a_large_permutation_holds_every_place_once() -> None:
    aj.manual_seed(1)
    found = aj.randperm(10_000)
    aj.manual_seed(1)
    assert aj.equal(aj.jit(lambda: aj.randperm(10_000))(), found)
    assert found.sort().values.tolist() == list(range(10_000))


def test_long_rows_have_distances_by_products() -> None:
    x, y = draws(60, 100), draws(50, 100, seed=4)
    exact = np.sqrt(((x.numpy()[:, None] - y.numpy()[None]) ** 2).sum(-1))
    np.testing.assert_allclose(aj.cdist(x, y).numpy(), exact, rtol=1e-12)
    np.testing.assert_allclose(aj.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist").numpy(), exact, rtol=1e-13)
    with pytest.raises(RuntimeError, match="same number of columns"):
        aj.cdist(x, y[:, 1:])
    with pytest.raises(RuntimeError, match="at least 2D"):
        aj.cdist(x[0], y)


def test_cofactors_of_large_matrices() -> None:
    a = draws(60, 60) / 4
    expected = np.linalg.det(a.numpy()) * np.linalg.inv(a.numpy()).T
    leaf = a.clone().requires_grad_()
    aj.linalg.det(leaf).backward()
    np.testing.assert_allclose(leaf.grad.numpy(), expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())
    singular = a.clone()
    singular[1] = singular[0]
    leaf = singular.requires_grad_()
    aj.linalg.det(leaf).backward()
    assert aj.isfinite(leaf.grad).all()


@pytest.mark.parametrize("upper", [True, False])
def test_large_triangular_systems(upper: bool) -> None:
    a = draws(2, 130, 130) / 20 + aj.eye(130, dtype=aj.float64)
    a, b = (a.triu() if upper else a.tril()), draws(2, 130, 7, seed=4)
    x = aj.linalg.solve_triangular(a, b, upper=upper)
    np.testing.assert_allclose((a @ x).numpy(), b.numpy(), atol=1e-10)
