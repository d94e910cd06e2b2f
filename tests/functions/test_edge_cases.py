"""Narrow integers, integrals, running sums of complex numbers, scattered products with zeros, bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
import autojit.nn.functional as F
from autojit.autograd import gradcheck, gradgradcheck


def test_ranges_count_as_torch_does() -> None:
    assert aj.arange(0.0, -8.000001, -4.0, dtype=aj.int32).tolist() == [0, -4, -8]  # counted in float64
    assert aj.arange(0, 4, 1.9, dtype=aj.int64).tolist() == [0, 1, 2]  # as torch does from 2.13 on; in int64 before
    for dtype in (aj.int64, aj.int32, aj.uint8):
        assert aj.arange(5, 0, -0.5, dtype=dtype).tolist() == [5] * 10
    assert aj.linspace(4.3, 50, 5, dtype=aj.uint8).tolist() == [4, 15, 27, 38, 50]
    assert aj.logspace(1, 1.2, 2, dtype=aj.int64).tolist() == [10, 10]
    with pytest.raises(ValueError, match="nonzero"):
        aj.arange(0, 4, 0.0, dtype=aj.int64)


def test_numbers_wrap_around_below_zero_and_overflow_is_an_error() -> None:
    assert aj.full((1,), -9, dtype=aj.uint8).tolist() == [247]
    assert aj.full_like(aj.ones(1, dtype=aj.uint8), -9).tolist() == [247]
    for call in (
        lambda: aj.full((1,), 300, dtype=aj.uint8),
        lambda: aj.full((1,), -300, dtype=aj.int8),
        lambda: aj.ones(1, dtype=aj.uint8).fill_(300),
    ):
        with pytest.raises(RuntimeError, match="overflow"):
            call()


def test_sums_of_narrow_integers_are_wide() -> None:
    x = aj.ones(2, 3, dtype=aj.int32)
    assert x.sum_to_size(1).dtype is aj.int64
    assert x.sum_to_size(2, 3).dtype is aj.int32
    assert aj.einsum("ij->i", x).dtype is aj.int64
    assert aj.einsum("ij,jk->ik", x, x.T).dtype is aj.int32
    assert aj.unravel_index(x[0], (2, 2))[0].dtype is aj.int64
    assert aj.linalg.vander(x[0]).dtype is aj.int64
    assert F.bilinear(x[0], x[0], aj.ones(2, 3, 3, dtype=aj.int32)).dtype is aj.int32
    assert aj.masked.cumsum(x, 0).dtype is aj.int32


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.reshape(-3, -2),
        lambda x: x.view(-2),
        lambda x: x.sum_to_size(3, 2),
        lambda x: aj.combinations(x),
        lambda x: aj.renorm(x, -1, 0, 1.0),
        lambda x: aj.mvlgamma(x, 0),
        lambda x: aj.tril_indices(-1, 2),
        lambda x: aj.meshgrid(x[0], indexing="zz"),
        lambda x: x.unfold(0, 2, -1),
        lambda x: x.as_strided((-1,), (1,)),
        lambda x: aj.masked_scatter(x, x > 0, aj.ones(2)),
        lambda x: x.index_put((aj.tensor([0]),), aj.ones(3).double()),
        lambda x: x - (x > 0),
        lambda x: aj.sub(aj.tensor([True]), 1.0),
        lambda x: F.interpolate(x[None], size=0),
        lambda x: F.layer_norm(x, (3,), aj.ones(3).double()),
        lambda x: aj.linalg.solve(aj.eye(2), aj.ones(2).double()),
        lambda x: aj.linalg.matrix_norm(x, "largest"),
        lambda x: aj.linalg.matrix_norm(x, dim=(0,)),
        lambda x: aj.linalg.multi_dot([x]),
        lambda x: aj.diff(aj.tensor(1.0)),
        lambda x: aj.trapezoid(x > 0),
    ],
)
def test_what_makes_no_sense_is_refused(call: Callable[[Any], Any]) -> None:
    x = aj.ones(2, 3)
    with pytest.raises(RuntimeError):
        call(x)


def test_positions_are_vectors_of_long_integers() -> None:
    x, index = aj.ones(4, 3), aj.tensor([[0, 1]])
    for call in (lambda: x.index_select(0, index), lambda: x.index_fill(0, index, 0.0)):
        with pytest.raises(IndexError, match="vector"):
            call()
    for call in (lambda: aj.take(x, index.int()), lambda: x.index_copy(0, index[0].int(), aj.ones(2, 3))):
        with pytest.raises(RuntimeError, match="long"):
            call()
    with pytest.raises(IndexError):
        aj.tensor(1.0).index_add(5, aj.tensor([0]), aj.ones(1))


def test_integrals_of_bytes_add_up_in_wide_integers() -> None:
    u = aj.tensor([[250, 3, 7], [200, 100, 9]], dtype=aj.uint8)
    assert aj.trapezoid(u).tolist() == [259.5, 204.5]
    assert aj.trapezoid(u, dx=2).tolist() == [519.0, 409.0]
    assert aj.trapezoid(u, u).tolist() == [134.5, 136.5]
    assert aj.cumulative_trapezoid(u, u).tolist() == [[114.5, 134.5], [104.0, 136.5]]
    y = aj.tensor([1.0, 4.0, 9.0, 16.0], dtype=aj.float64, requires_grad=True)
    x = aj.tensor([0.0, 1.0, 3.0, 4.0], dtype=aj.float64, requires_grad=True)
    np.testing.assert_allclose(aj.trapezoid(y, x).item(), np.trapezoid([1, 4, 9, 16], [0, 1, 3, 4]))
    assert gradgradcheck(aj.trapezoid, (y, x))


def test_a_running_sum_of_complex_exponentials() -> None:
    z = np.array([1 + 2j, 3 - 1j, 0.5 + 0.3j, -2 + 1j, 700 + 1j])
    found = aj.logcumsumexp(aj.tensor(z), 0).numpy()
    np.testing.assert_allclose(np.exp(found[:4]), np.cumsum(np.exp(z[:4])))
    np.testing.assert_allclose(found[4], z[4])
    assert gradcheck(lambda t: aj.logcumsumexp(t, 0), aj.tensor(z[:4], requires_grad=True))


def test_products_with_two_zeros_have_exact_second_derivatives() -> None:
    base = aj.tensor([0.0, 2.0, 3.0], dtype=aj.float64, requires_grad=True)
    src = aj.tensor([0.0, 0.0, 5.0, 0.0, 4.0], dtype=aj.float64, requires_grad=True)
    index = aj.tensor([0, 1, 1, 1, 2])
    assert gradgradcheck(lambda b, s: b.scatter_reduce(0, index, s, "prod"), (base, src))
    assert gradgradcheck(lambda b, s: b.index_reduce(0, index, s, "prod"), (base, src))


def test_bytes_are_resampled_and_rounded() -> None:
    u = (aj.arange(16).reshape(1, 1, 4, 4) * 7).to(aj.uint8)
    found = F.interpolate(u, size=(3, 3), mode="bilinear", align_corners=True)
    assert found.dtype is aj.uint8
    assert found[0, 0].tolist() == [[0, 11, 21], [42, 53, 63], [84, 95, 105]]
    assert F.interpolate(u, size=(3, 3), mode="bicubic")[0, 0].tolist() == [[5, 15, 24], [43, 53, 62], [81, 91, 100]]


def test_a_step_to_the_next_number_moves_with_its_start() -> None:
    x = aj.tensor([1.0, 2.0], requires_grad=True)
    y = aj.tensor([2.0, 2.0], requires_grad=True)
    of_x, of_y = aj.autograd.grad(aj.nextafter(x, y).sum(), (x, y), allow_unused=True)
    assert of_x.tolist() == [1.0, 0.0]
    assert of_y is None or of_y.tolist() == [0.0, 0.0]


ROUNDING = ("floor", "ceil", "round", "trunc", "fix", "nan_to_num", "clone")


@pytest.mark.parametrize("dtype", [aj.int64, aj.uint8, aj.float32, aj.complex64], ids=str)
@pytest.mark.parametrize("name", ROUNDING)
def test_what_is_computed_has_memory_of_its_own_also_where_nothing_changes(name: str, dtype: aj.dtype) -> None:
    if dtype is aj.complex64 and name not in ("nan_to_num", "clone"):
        pytest.skip("does not round complex numbers")
    x = aj.ones(3, dtype=dtype)
    getattr(aj, name)(x).add_(1)
    assert x.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.movedim(0, 0),
        lambda x: aj.moveaxis(x, (0, 1), (0, 1)),
        lambda x: x.unflatten(0, (2,)),
        lambda x: x.transpose(1, 1),
        lambda x: x.permute(0, 1),
        lambda x: x.expand(2, 3),
        lambda x: x.squeeze(0),
    ],
)
def test_a_view_is_a_tensor_of_its_own_also_where_nothing_moves(view: Callable[[aj.Tensor], aj.Tensor]) -> None:
    x = aj.ones(2, 3, requires_grad=True)
    found = view(x)
    assert not found.is_leaf
    found.detach().add_(1)
    assert x.sum() == 12


def test_whole_numbers_from_2_to_the_63_on_are_exact_or_an_error() -> None:
    largest = 2**64 - 1
    assert aj.tensor([largest, 0, 2**53 + 1], dtype=aj.uint64).tolist() == [largest, 0, 2**53 + 1]
    assert aj.tensor([[2**63 + 5, 1]], dtype=aj.uint64).tolist() == [[2**63 + 5, 1]]
    assert aj.tensor([1.5, 2**63]).dtype is aj.float32
    for data in ([2**63], [2**63, 1]):
        with pytest.raises(RuntimeError, match="Overflow when unpacking long"):
            aj.tensor(data)


def test_nan_has_a_mode_and_parts_of_complex_numbers_are_replaced() -> None:
    nan, inf = float("nan"), float("inf")
    values, places = aj.mode(aj.tensor([[nan], [2.0]]))
    np.testing.assert_array_equal(values.numpy(), [nan, 2.0])
    assert places.tolist() == [0, 0]
    x = aj.tensor([complex(nan, 1), complex(2, inf), complex(-inf, nan)])
    assert x.nan_to_num(1.0, 2.0, 3.0).tolist() == [1 + 1j, 2 + 2j, 3 + 1j]
    assert aj.vander(aj.tensor([3, 2], dtype=aj.uint8)).dtype is aj.int64


@pytest.mark.parametrize("is_compiled", [False, True], ids=["eager", "compiled"])
def test_parts_of_complex_numbers_are_restrided_in_their_own_dtype(is_compiled: bool) -> None:
    def step(x: aj.Tensor) -> aj.Tensor:
        return aj.view_as_real(x).as_strided((2,), (2,), 1)

    x = aj.tensor([1 + 2j, 3 + 4j], dtype=aj.complex128, requires_grad=True)
    found = (aj.jit(step) if is_compiled else step)(x)
    assert found.dtype is aj.float64
    assert found.tolist() == [2, 4]
    found.square().sum().backward()
    assert x.grad.tolist() == [4j, 8j]


def test_zero_to_a_power_in_the_right_half_plane_is_zero_eagerly_and_compiled() -> None:
    def powers(x: aj.Tensor, y: aj.Tensor) -> list[aj.Tensor]:
        return [x**y, 0.0**y, x.real**y, x ** (1 + 1j), x ** (-1 + 1j)]

    x, y = aj.zeros(3, dtype=aj.complex128), aj.tensor([1 + 1j, 0j, -1 + 1j], dtype=aj.complex128)
    for found in (powers(x, y), aj.jit(powers)(x, y)):
        for power in found[:3]:
            np.testing.assert_array_equal(power[:2].numpy(), [0, 1])
            assert power[2].isnan()
        assert not found[3].any()
        assert found[4].isnan().all()


@pytest.mark.parametrize(
    "shapes", [((), (1, 1, 1)), ((), (1,)), ((3,), ()), ((3,), (1, 1)), ((3, 2), (1, 2, 1)), ((3, 2), (2,))]
)
def test_slices_that_are_added_have_the_axes_of_those_they_change(shapes: tuple[tuple[int, ...], ...]) -> None:
    x, source = (aj.ones(shape) for shape in shapes)
    index = aj.tensor([0])
    for change in (
        lambda: x.index_add(0, index, source),
        lambda: x.clone().index_add_(0, index, source),
        lambda: x.index_reduce(0, index, source, "prod"),
        lambda: aj.jit(lambda x, source: x.index_add(0, index, source))(x, source),
    ):
        with pytest.raises(RuntimeError, match="source tensor shape must match self tensor shape"):
            change()
