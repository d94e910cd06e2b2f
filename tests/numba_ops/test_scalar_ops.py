"""Ops made from functions of numbers: values, derivatives of every order, batches, eager and compiled alike."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest

import autojit as aj

numba = pytest.importorskip("numba")

from tests.numba_ops.functions import CASES, Case, recursive  # noqa: E402

COUNT = 17


def operands_of(case: Case, count: int = COUNT, dtype: Any = np.float64) -> list[aj.Tensor]:
    generator = np.random.default_rng(3)
    drawn = [generator.uniform(low, high, count).astype(dtype) for low, high in case.domains]
    return [aj.tensor(x, requires_grad=True) for x in drawn]


def expected_of(case: Case, operands: list[aj.Tensor]) -> Any:
    """Numba's own results, one by one."""
    columns = [x.detach().numpy().ravel().tolist() for x in operands]
    return np.array([case.function(*row) for row in zip(*columns, strict=True)])


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_the_function(name: str) -> None:
    case = CASES[name]
    op, operands = aj.op(case.function), operands_of(case)
    expected = expected_of(case, operands)
    np.testing.assert_allclose(op(*operands).detach().numpy(), expected, rtol=1e-13)
    jitted = aj.jit(lambda *xs: op(*[x * 1.0 for x in xs]) + 0.0)
    np.testing.assert_allclose(jitted(*operands).detach().numpy(), expected, rtol=1e-13)
    assert jitted.stats()["kernels"] == 1
    assert jitted.stats()["fallbacks"] == 0


@pytest.mark.parametrize("name", CASES)
def test_derivatives_to_second_order(name: str) -> None:
    case = CASES[name]
    op, operands = aj.op(case.function), operands_of(case, 7)
    assert aj.autograd.gradcheck(op, operands)
    assert aj.autograd.gradgradcheck(op, operands)


@pytest.mark.parametrize("name", ["branch_loop_exp", "series", "calls_another", "local_table", "of_powers"])
def test_compiled_derivatives_to_second_order(name: str) -> None:
    case = CASES[name]
    op, operands = aj.op(case.function), operands_of(case, 7)
    jitted = aj.jit(lambda *xs: aj.sin(op(*[x * 1.1 for x in xs])))
    assert aj.autograd.gradcheck(jitted, operands)
    assert aj.autograd.gradgradcheck(jitted, operands)
    assert jitted.stats()["fallbacks"] == 0


def test_a_recursive_function() -> None:
    op, n = aj.op(recursive), aj.tensor(3)
    (x,) = operands_of(CASES["polynomial"], 5)
    run = aj.jit(lambda x: op(x, n) + 1.0)
    np.testing.assert_allclose(run(x).detach().numpy(), [recursive(v, 3) + 1.0 for v in x.tolist()], rtol=1e-13)
    assert aj.autograd.gradcheck(run, (x,))
    assert aj.autograd.gradgradcheck(run, (x,))


def test_third_derivative() -> None:
    op = aj.op(CASES["polynomial"].function)
    x = aj.tensor([0.5, -1.0], dtype=aj.float64, requires_grad=True)
    first = aj.autograd.grad(op(x).sum(), x, create_graph=True)[0]
    second = aj.autograd.grad(first.sum(), x, create_graph=True)[0]
    (third,) = aj.autograd.grad(second.sum(), x)
    np.testing.assert_allclose(third.numpy(), 6.0)


def test_forward_mode_and_batches_agree_with_reverse_mode() -> None:
    case = CASES["branch_loop_exp"]
    op = aj.op(case.function)
    x, y = (t.detach() for t in operands_of(case))
    _, along = aj.func.jvp(op, (x, y), (aj.ones_like(x), aj.zeros_like(y)))
    (wanted,) = aj.autograd.grad(op(x.requires_grad_(), y).sum(), x)
    np.testing.assert_allclose(along.numpy(), wanted.numpy(), rtol=1e-12)
    x = x.detach()
    np.testing.assert_array_equal(aj.func.vmap(op)(x, y).numpy(), op(x, y).numpy())
    np.testing.assert_array_equal(aj.func.vmap(op, (0, None))(x, y[0]).numpy(), op(x, y[0]).numpy())
    slopes = aj.func.vmap(aj.func.grad(lambda a, b: op(a, b)))(x, y)
    np.testing.assert_allclose(slopes.numpy(), wanted.numpy(), rtol=1e-12)
    bends = aj.jit(aj.func.vmap(aj.func.hessian(lambda a: op(a, y[0]))))(x)
    assert bends.shape == x.shape


def test_operands_broadcast_and_may_be_views() -> None:
    op = aj.op(CASES["plain"].function)
    x = aj.arange(12.0, dtype=aj.float64).reshape(3, 4).t() + 0.5
    y = aj.tensor([1.0, 2.0, 3.0], dtype=aj.float64)
    a, b = np.broadcast_arrays(x.numpy(), y.numpy())
    expected = np.where(a < b, a * b, a / b)
    np.testing.assert_array_equal(op(x, y).numpy(), expected)
    np.testing.assert_array_equal(aj.jit(op)(x, y).numpy(), expected)
    np.testing.assert_array_equal(op(x, 2.0).numpy(), np.where(x.numpy() < 2, x.numpy() * 2, x.numpy() / 2))
    assert op(aj.zeros(0, 3), 1.0).shape == (0, 3)
    assert op(aj.tensor(1.0), 2.0).shape == ()


@pytest.mark.parametrize("dtype", [aj.float32, aj.float16, aj.bfloat16])
def test_results_have_the_dtype_of_the_operands(dtype: Any) -> None:
    op = aj.op(CASES["polynomial"].function)
    x = aj.tensor([0.5, -1.0, 1.5]).to(dtype).requires_grad_()
    y = op(x)
    assert y.dtype is dtype
    (slope,) = aj.autograd.grad(y.sum(), x)
    assert slope.dtype is dtype
    values = x.detach().to(aj.float64).numpy()
    np.testing.assert_allclose(slope.to(aj.float64).numpy(), 3 * values**2 - values + 0.25, rtol=1e-2)
    np.testing.assert_array_equal(aj.jit(op)(x).to(aj.float64).detach().numpy(), y.to(aj.float64).detach().numpy())


def test_integers_and_bools() -> None:
    @aj.op
    def chosen(flag: bool, n: int, x: float) -> float:
        return x**n if flag else -x

    @aj.op
    def counted(n: int) -> int:
        total = 0
        for k in range(n):
            total += k
        return total

    @aj.op
    def compared(x: float, n: int) -> bool:
        return x > n

    flag, n = aj.tensor([True, False, True]), aj.tensor([1, 2, 3])
    x = aj.tensor([2.0, 3.0, 4.0], dtype=aj.float64, requires_grad=True)
    for run in (chosen, aj.jit(chosen)):
        np.testing.assert_array_equal(run(flag, n, x).detach().numpy(), [2.0, -3.0, 64.0])
    (slope,) = aj.autograd.grad(chosen(flag, n, x).sum(), x)
    np.testing.assert_allclose(slope.numpy(), [1.0, -1.0, 48.0])
    for run in (counted, aj.jit(counted)):
        assert run(n).tolist() == [0, 1, 3]
        assert run(n).dtype is aj.int64
    for run in (compared, aj.jit(compared)):
        assert run(x, n).tolist() == [True, True, True]
        assert run(x, n).dtype is aj.bool
    assert counted(aj.tensor([4, 5], dtype=aj.int32)).tolist() == [6, 10]


def test_several_results() -> None:
    @aj.op
    @numba.njit
    def polar(x: float, y: float) -> tuple[float, float]:
        return math.hypot(x, y), math.atan2(y, x)

    x = aj.tensor([3.0, 1.0], dtype=aj.float64, requires_grad=True)
    y = aj.tensor([4.0, -1.0], dtype=aj.float64, requires_grad=True)
    jitted = aj.jit(lambda x, y: sum(polar(x, y)))
    for run in (lambda x, y: sum(polar(x, y)), jitted):
        np.testing.assert_allclose(run(x, y).detach().numpy(), [5 + math.atan2(4, 3), math.sqrt(2) - math.pi / 4])
        assert aj.autograd.gradcheck(run, (x, y))
        assert aj.autograd.gradgradcheck(run, (x, y))
    assert jitted.stats()["kernels"] == 1


def test_given_derivatives_are_used_and_differentiated_in_turn() -> None:
    calls = numba.njit(lambda x, y: 2.0 * x * y)

    @aj.op(derivatives=(calls, lambda x, y: x * x))
    @numba.njit
    def product(x: float, y: float) -> float:
        return x * x * y

    x = aj.tensor([1.0, 2.0], dtype=aj.float64, requires_grad=True)
    y = aj.tensor([3.0, -1.0], dtype=aj.float64, requires_grad=True)
    for run in (product, aj.jit(product)):
        assert aj.autograd.gradcheck(run, (x, y))
        assert aj.autograd.gradgradcheck(run, (x, y))
    wrong = aj.op(product.function, derivatives=(lambda x, y: x * 0.0 + 7.0, None))
    (slope,) = aj.autograd.grad(wrong(x, y).sum(), x)
    np.testing.assert_array_equal(slope.numpy(), 7.0)
    np.testing.assert_array_equal(aj.autograd.grad(wrong(x, y).sum(), y)[0].numpy(), 0.0)


def test_the_gradient_is_zero_where_the_cotangent_is() -> None:
    root = aj.op(numba.njit(lambda x: math.sqrt(x)))
    x = aj.tensor([0.0, 4.0], dtype=aj.float64, requires_grad=True)
    y = aj.where(x > 1.0, root(x), aj.zeros_like(x))
    (slope,) = aj.autograd.grad(y.sum(), x)
    np.testing.assert_array_equal(slope.numpy(), [0.0, 0.25])


def test_zeros_that_no_mask_made_meet_slopes_as_in_other_ops() -> None:
    root = aj.op(numba.njit(lambda x: math.sqrt(x)))
    x = aj.tensor([0.0, 4.0], dtype=aj.float64, requires_grad=True)
    for function in (root, aj.sqrt):
        slope_of = lambda x, function=function: aj.autograd.grad((function(x) * 0.0).sum(), x)[0]
        for run in (slope_of, aj.jit(slope_of)):
            np.testing.assert_array_equal(run(x).numpy(), [math.nan, 0.0])


def test_it_fuses_with_what_stands_around_it_and_with_reductions() -> None:
    op = aj.op(CASES["branch_loop_exp"].function)

    @aj.jit
    def step(x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
        x = x.detach().requires_grad_()
        loss = (aj.sin(op(aj.exp(x), y)) * 2.0).sum()
        return aj.autograd.grad(loss, x)[0]

    x, y = (t.detach() for t in operands_of(CASES["branch_loop_exp"], 300))
    plain = x.clone().requires_grad_()
    (wanted,) = aj.autograd.grad((aj.sin(op(aj.exp(plain), y)) * 2.0).sum(), plain)
    np.testing.assert_allclose(step(x, y).numpy(), wanted.numpy(), rtol=1e-10)
    assert step.stats()["kernels"] == 1


def test_single_precision_computes_in_float32() -> None:
    def counted(x: float) -> float:
        return (x + 16777216.0) - 16777216.0  # 2^24: float32 has no odd numbers above

    wide, narrow = aj.op(counted), aj.op(counted, single_precision=True)
    x = aj.tensor([1.0, 2.0])
    assert wide(x).tolist() == [1.0, 2.0]
    assert narrow(x).tolist() == [0.0, 2.0]
    assert aj.jit(narrow)(x).tolist() == [0.0, 2.0]
    assert narrow(x.double()).tolist() == [1.0, 2.0]
    for name in list(CASES)[::3]:  # each costs four compilations by Numba
        if name == "newton_root":
            continue  # its tolerance is below float32's
        case = CASES[name]
        operands = operands_of(case, 7, np.float32)
        narrow = aj.op(case.function, single_precision=True)
        found = narrow(*operands)
        np.testing.assert_allclose(found.detach().numpy(), expected_of(case, operands), rtol=2e-5)
        slopes = aj.autograd.grad(found.sum(), operands)
        wanted = aj.autograd.grad(aj.op(case.function)(*operands).sum(), operands)
        for slope, reference in zip(slopes, wanted, strict=True):
            np.testing.assert_allclose(slope.numpy(), reference.numpy(), rtol=2e-4, atol=2e-4)


def test_equal_functions_are_one_kernel_and_differently_named_ones_keep_their_names() -> None:
    case = CASES["polynomial"]
    first, second = aj.op(case.function), aj.op(case.function)
    x = aj.tensor([1.0, 2.0], dtype=aj.float64)
    graph = aj.jit(lambda x: (first(x), second(x)))
    graph(x)
    assert graph.show("schedule").count("linked_scalar") == 1  # found by common subexpressions
    assert repr(first) == "<op polynomial>"
    assert first.__name__ == "polynomial"


@aj.op
def of_this_module(x: float) -> float:
    return x * x + 1.0


def test_an_op_is_copied_and_pickled_like_a_function() -> None:
    assert copy.deepcopy([of_this_module])[0] is of_this_module
    assert copy.copy(of_this_module) is of_this_module
    assert pickle.loads(pickle.dumps(of_this_module)) is of_this_module


def test_functions_of_every_kind_that_numba_makes() -> None:
    x = aj.tensor([1.0, 2.0], requires_grad=True)
    locked = aj.op(numba.njit("f8(f8)")(lambda x: x * x + 1.0))
    vectorized = aj.op(numba.vectorize(lambda x: x * x + 1.0))
    kept = aj.op(numba.njit(cache=False)(lambda x: x * x + 1.0))
    for op in (locked, vectorized, kept):
        y = op(x)
        assert y.dtype is aj.float32
        assert y.tolist() == [2.0, 5.0]
        assert aj.autograd.grad(y.sum(), x)[0].tolist() == [2.0, 4.0]


def test_one_compiled_step_serves_many_sizes_and_loops_hold_ops() -> None:
    op = aj.op(CASES["polynomial"].function)
    jitted = aj.jit(lambda x: aj.autograd.grad(op(2.0 * x).sum(), x)[0])
    for n in (3, 5, 7, 9, 12):
        x = aj.rand(n, dtype=aj.float64, requires_grad=True)
        expected = 2.0 * (3 * (2 * x) ** 2 - 2 * x + 0.25)
        np.testing.assert_allclose(jitted(x).numpy(), expected.detach().numpy(), rtol=1e-12)
    assert jitted.stats()["captures"] <= 3

    def repeated(x: aj.Tensor) -> Any:
        return aj.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, op(0.1 * v)), (aj.tensor(0), x))[1]

    x = aj.rand(4, dtype=aj.float64)
    np.testing.assert_allclose(aj.jit(repeated)(x).numpy(), repeated(x).numpy(), rtol=1e-12)
