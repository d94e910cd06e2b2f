"""scatter_reduce and index_reduce, statistics, decompositions and incomplete gamma functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce as fold_list
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.autograd import gradcheck, gradgradcheck

FOLDS: dict[str, Callable[[list[float]], float]] = {
    "sum": sum,
    "prod": lambda values: fold_list(lambda a, b: a * b, values, 1.0),
    "mean": lambda values: sum(values) / len(values),
    "amax": max,
    "amin": min,
}


def leaf(*shape: int) -> aj.Tensor:
    return aj.randn(*shape, dtype=aj.float64).requires_grad_()


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", FOLDS)
def test_scatter_reduce_folds_what_meets_in_a_place(reduce: str, include_self: bool) -> None:
    base, source = aj.randn(4, dtype=aj.float64), aj.randn(6, dtype=aj.float64)
    index = [0, 2, 2, 1, 0, 2]
    expected = []
    for place in range(4):
        met = [source[k].item() for k in range(6) if index[k] == place]
        own = [base[place].item()]
        expected.append(FOLDS[reduce](own + met if include_self or not met else met))
    found = base.scatter_reduce(0, aj.tensor(index), source, reduce, include_self=include_self)
    assert aj.allclose(found, aj.tensor(expected, dtype=aj.float64))
    column = base[:, None].index_reduce(0, aj.tensor(index), source[:, None], reduce, include_self=include_self)
    assert aj.allclose(column.squeeze(1), found)


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", FOLDS)
def test_scatter_reduce_is_differentiable_twice_and_compiles(reduce: str, include_self: bool) -> None:
    index = aj.tensor([0, 1, 0, 1, 2, 1])

    def folded(base: aj.Tensor, source: aj.Tensor) -> aj.Tensor:
        return base.scatter_reduce(0, index, source, reduce, include_self=include_self)

    operands = leaf(4), leaf(6)
    assert gradcheck(folded, operands)
    assert gradgradcheck(folded, operands)
    compiled = aj.jit(folded)
    for _ in range(3):
        assert aj.allclose(compiled(*operands), folded(*operands))
    assert compiled.stats()["fallbacks"] == 0


def test_an_index_smaller_than_the_base_leaves_the_rest() -> None:
    base, source = aj.ones(3, 4), aj.full((2, 2), 5.0)
    found = base.scatter_reduce(1, aj.tensor([[0, 0], [1, 3]]), source, "amax")
    assert found.tolist() == [[5, 1, 1, 1], [1, 5, 1, 5], [1, 1, 1, 1]]


def test_an_unknown_fold_is_refused() -> None:
    with pytest.raises(RuntimeError, match="must be one of"):
        aj.ones(2).scatter_reduce(0, aj.tensor([0]), aj.ones(1), "median")


@pytest.mark.parametrize("f", [aj.min, aj.max, aj.median, aj.nanmedian])
@pytest.mark.parametrize("values", [[1.0, 0.0, 1.0, 0.0, 1.0, 0.0], [math.nan] * 3])
def test_equal_extremes_and_medians_share_the_gradient(f: Callable[..., aj.Tensor], values: list[float]) -> None:
    x = aj.tensor(values, requires_grad=True)
    f(x).backward()
    assert x.grad is not None
    assert (x.grad == 1 / 3).sum().item() == 3
    assert x.grad.sum().item() == pytest.approx(1.0)


def test_nanmedian_along_an_axis_ignores_nan() -> None:
    x = aj.tensor([[math.nan, 3.0, 1.0, 2.0], [math.nan] * 4])
    values, places = aj.nanmedian(x, 1)
    assert values[0].item() == 2.0
    assert places[0].item() == 3
    assert math.isnan(values[1].item())


def test_mode_is_the_least_of_the_most_frequent() -> None:
    found = aj.mode(aj.tensor([[2, 1, 1, 2, 3], [5, 5, 5, 0, 0]]), 1)
    assert found.values.tolist() == [1, 5]
    assert found.indices.tolist() == [2, 2]


def test_histc_counts_every_element_once() -> None:
    x = aj.randn(1000)
    counts = aj.histc(x, 13)
    assert counts.sum().item() == 1000
    expected, _ = np.histogram(x.numpy(), 4, (-1.0, 1.0))
    assert aj.histc(x, 4, -1, 1).tolist() == expected.tolist()


def test_histc_of_elements_that_a_step_finds_takes_none_of_them() -> None:
    step = aj.jit(lambda x: aj.histc(x[x > 0], 4))
    for values in ([1.0, 2.0, 3.0], [-1.0, -2.0, -3.0], [1.0, -1.0, 1.0], [5.0, -1.0, 2.0]):
        x = aj.tensor(values)
        assert step(x).tolist() == aj.histc(x[x > 0], 4).tolist()


@pytest.mark.parametrize("edge_order", [1, 2])
def test_gradient_agrees_with_numpy_on_even_and_uneven_grids(edge_order: int) -> None:
    y = np.random.default_rng(0).standard_normal((4, 5))
    for spacing in ((2.0, 0.5), (2.0, np.array([0.0, 0.1, 0.4, 1.0, 1.1]))):
        expected = np.gradient(y, *spacing, edge_order=edge_order)  # type: ignore[arg-type]
        given = [aj.tensor(s) if isinstance(s, np.ndarray) else s for s in spacing]
        found = aj.gradient(aj.tensor(y), spacing=given, edge_order=edge_order)
        assert type(found) is tuple
        for a, b in zip(found, expected, strict=True):
            assert np.allclose(a.numpy(), b)


def test_cumulative_trapezoid_ends_in_the_trapezoid() -> None:
    y, x = aj.randn(3, 6), aj.rand(6).cumsum(0)
    assert aj.allclose(aj.cumulative_trapezoid(y, x)[:, -1], aj.trapezoid(y, x))


def test_matrix_exp_of_sums_of_commuting_matrices_multiplies() -> None:
    a = aj.randn(4, 4, dtype=aj.float64) * 3
    assert aj.allclose(aj.matrix_exp(a) @ aj.matrix_exp(-a), aj.eye(4, dtype=aj.float64), atol=1e-7)
    x = leaf(2, 3, 3)
    assert gradcheck(aj.linalg.matrix_exp, x)
    assert gradgradcheck(aj.linalg.matrix_exp, x)


def test_lobpcg_solves_the_generalised_eigenproblem() -> None:
    g = aj.randn(7, 7, dtype=aj.float64)
    a, b = g + g.mT, aj.eye(7, dtype=aj.float64) * 2 + g @ g.mT / 10
    for largest in (True, False):
        values, vectors = aj.lobpcg(a, 2, b, largest=largest)
        assert aj.allclose(a @ vectors, b @ vectors * values)
        ordered = values if largest else values.flip(0)
        assert ordered[0] > ordered[1]


def test_svd_rebuilds_the_matrix_and_can_leave_out_the_vectors() -> None:
    a = leaf(3, 5)
    u, s, v = aj.svd(a)
    assert aj.allclose(u @ s.diag() @ v.mT, a)
    assert gradcheck(lambda m: aj.svd(m)[1], a)
    bare = aj.svd(a, compute_uv=False)
    assert aj.allclose(bare.S, s)
    assert not bare.U.any()


@pytest.mark.parametrize("name", ["igamma", "igammac"])
def test_incomplete_gamma_functions_of_order_one_are_exponentials(name: str) -> None:
    function: Any = getattr(aj, name)
    x = (aj.rand(50, dtype=aj.float64) * 30).requires_grad_()
    lower = 1 - aj.exp(-x)
    assert aj.allclose(function(aj.ones(50, dtype=aj.float64), x), lower if name == "igamma" else 1 - lower)
    order = aj.rand(50, dtype=aj.float64) * 5 + 0.1
    assert aj.allclose(aj.igamma(order, x) + aj.igammac(order, x), aj.ones(50, dtype=aj.float64))
    assert gradcheck(function, (order, x))
    assert gradgradcheck(function, (order, x))
    with pytest.raises(NotImplementedError, match="derivative"):
        function(order.requires_grad_(), x).sum().backward()


def test_incomplete_gamma_functions_at_the_ends() -> None:
    a, x = aj.tensor([0.0, 1.0, 1.0, 0.0, -1.0]), aj.tensor([1.0, 0.0, math.inf, 0.0, 1.0])
    lower = aj.igamma(a, x).tolist()
    assert lower[:3] == [1.0, 0.0, 1.0]
    assert all(math.isnan(value) for value in lower[3:])


def test_the_zeroth_power_and_distance_belong_to_the_history() -> None:
    x = aj.zeros(3, requires_grad=True)
    x.pow(0).sum().backward()
    aj.cdist(x[None], aj.ones(1, 3), p=0).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 0.0, 0.0]


def test_distinct_values_require_grad_but_have_no_derivative() -> None:
    x = aj.rand(4, requires_grad=True)
    values, places, counts = aj.unique(x, return_inverse=True, return_counts=True)
    assert values.requires_grad
    assert not places.requires_grad
    assert not counts.requires_grad
    with pytest.raises(NotImplementedError, match="derivative"):
        values.sum().backward()


def test_an_empty_vector_joins_and_gets_an_empty_gradient() -> None:
    empty, matrix = aj.empty(0, requires_grad=True), aj.ones(2, 3, requires_grad=True)
    for axis in (0, 1):
        joined = aj.cat((empty, matrix), axis)
        assert joined.shape == (2, 3)
        joined.sum().backward()
    assert empty.grad is not None
    assert empty.grad.shape == (0,)
    assert aj.cat((empty, aj.ones(2))).requires_grad


def test_fillings_follow_their_distributions() -> None:
    aj.manual_seed(0)
    x = aj.empty(20_000, dtype=aj.float64)
    assert x.log_normal_(0.5, 0.2).log().mean().item() == pytest.approx(0.5, abs=0.01)
    assert x.cauchy_(3.0, 2.0).median().item() == pytest.approx(3.0, abs=0.1)
    assert x.geometric_(0.25).mean().item() == pytest.approx(4.0, abs=0.15)
    assert x.min().item() == 1.0


def test_restriding_keeps_the_tangent() -> None:
    x, x_dot = aj.arange(6.0), aj.arange(6.0) * 10
    with aj.autograd.forward_ad.dual_level():
        seen = aj.autograd.forward_ad.make_dual(x, x_dot).as_strided((2, 2), (1, 2), 1)
        tangent = aj.autograd.forward_ad.unpack_dual(seen).tangent
    assert tangent is not None
    assert tangent.tolist() == [[10.0, 30.0], [20.0, 40.0]]


def test_conversions_take_a_memory_format() -> None:
    x = aj.rand(2, 3, 4, 5)
    assert x.double(memory_format=aj.channels_last).is_contiguous(memory_format=aj.channels_last)
    assert x.byte(memory_format=aj.preserve_format).dtype is aj.uint8


@pytest.mark.parametrize("weights", [("fweights",), ("aweights",), ("fweights", "aweights")])
def test_weighted_covariances_agree_with_numpy(weights: tuple[str, ...]) -> None:
    x = np.random.default_rng(0).standard_normal((3, 5))
    given = {"fweights": np.array([1, 3, 2, 1, 4]), "aweights": np.array([0.5, 1.5, 1.0, 2.0, 0.1])}
    chosen = {name: given[name] for name in weights}
    expected = np.cov(x, **chosen)
    found = aj.cov(aj.tensor(x), **{name: aj.tensor(w) for name, w in chosen.items()})  # type: ignore[arg-type]
    assert np.allclose(found.numpy(), expected)


def test_the_zeroth_matrix_power_belongs_to_the_history() -> None:
    a = leaf(3, 3)
    aj.linalg.matrix_power(a, 0).sum().backward()
    assert a.grad is not None
    assert not a.grad.any()


def test_combinations_may_repeat_elements() -> None:
    found = aj.combinations(aj.tensor([1, 2]), 2, with_replacement=True)
    assert found.tolist() == [[1, 1], [1, 2], [2, 2]]


@pytest.mark.parametrize("dtype", [aj.float64, aj.complex128])
def test_eigenvectors_of_any_matrix_are_stretched_and_differentiable(dtype: aj.dtype) -> None:
    a = aj.randn(2, 4, 4, dtype=dtype).requires_grad_()
    values, vectors = aj.linalg.eig(a)
    assert aj.allclose(a.to(vectors.dtype) @ vectors, vectors * values.unsqueeze(-2))

    def without_phases(a: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        values, vectors = aj.linalg.eig(a)
        return aj.linalg.eigvals(a).sum(-1), (vectors.abs() * values.abs().unsqueeze(-2)).sum(-1)

    assert gradcheck(without_phases, a, check_forward_ad=True)
    assert gradgradcheck(lambda a: (aj.linalg.eigvals(a) ** 3).sum(-1), a)


def test_the_history_of_blocks_shows_the_extents_of_the_image() -> None:
    found = aj.nn.functional.unfold(aj.ones(1, 1, 3, 4, requires_grad=True), (3, 4))
    assert (found.grad_fn._saved_self_sym_argsize_minus_2, found.grad_fn._saved_self_sym_argsize_minus_1) == (3, 4)
