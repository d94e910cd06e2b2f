"""The keyword out=: results in given tensors."""

from __future__ import annotations

from typing import Any

import pytest

import autojit as aj


@pytest.mark.parametrize("name", ["sin", "exp", "neg", "add", "mul", "maximum", "matmul"])
def test_a_function_with_out_gives_that_tensor_with_the_plain_result(name: str) -> None:
    function: Any = getattr(aj, name)
    operands = (aj.rand(3, 3),) if name in ("sin", "exp", "neg") else (aj.rand(3, 3), aj.rand(3, 3))
    place = aj.zeros(3, 3)
    version = place._version
    assert function(*operands, out=place) is place
    assert aj.equal(place, function(*operands))
    assert place._version > version


def test_two_results_go_into_two_tensors() -> None:
    values, places = aj.empty(0), aj.empty(0, dtype=aj.int64)
    x = aj.tensor([[3.0, 1.0], [2.0, 5.0]])
    found = aj.max(x, 1, out=(values, places))
    assert found.values is values
    assert values.tolist() == [3.0, 5.0]
    assert places.tolist() == [0, 1]


def test_out_takes_the_shape_of_the_result_and_a_filled_one_warns() -> None:
    assert aj.add(aj.ones(3), 1, out=aj.empty(0)).shape == (3,)
    with pytest.warns(UserWarning, match="was resized since it had shape"):
        aj.add(aj.ones(3), 1, out=aj.empty(2))


def test_out_must_hold_the_kind_of_numbers() -> None:
    with pytest.raises(RuntimeError, match="can't be cast to the desired output type"):
        aj.add(aj.ones(2), 1, out=aj.empty(2, dtype=aj.int64))
    assert aj.add(aj.ones(2), 1, out=aj.empty(2, dtype=aj.float64)).dtype is aj.float64


def test_gradients_may_flow_neither_into_operands_nor_into_out() -> None:
    leaf, plain = aj.ones(2, requires_grad=True), aj.ones(2)
    for operand, place in ((leaf, aj.empty(2)), (plain, aj.empty(2, requires_grad=True))):
        with pytest.raises(RuntimeError, match=r"out=\.\.\. arguments don't support automatic differentiation"):
            aj.mul(operand, plain, out=place)
    with aj.no_grad():
        assert aj.mul(leaf, plain, out=aj.empty(2)).tolist() == [1.0, 1.0]


def test_factories_take_out_and_its_dtype() -> None:
    place = aj.empty(2, dtype=aj.float64)
    assert aj.ones(2, out=place) is place
    assert aj.zeros(size=(2, 3)).shape == (2, 3)
    assert aj.arange(3, out=aj.empty(0, dtype=aj.int64)).tolist() == [0, 1, 2]
    assert aj.randint(high=5, size=(4,)).shape == (4,)


def test_a_compiled_step_writes_into_out() -> None:
    @aj.jit
    def step(x: aj.Tensor, place: aj.Tensor) -> aj.Tensor:
        return aj.exp(x, out=place) + 1

    place = aj.zeros(3)
    for k in range(3):
        x = aj.full((3,), float(k))
        assert aj.allclose(step(x, place), x.exp() + 1)
        assert aj.allclose(place, x.exp())


def test_asarray_shares_or_copies() -> None:
    x = aj.ones(2, requires_grad=True)
    assert aj.asarray(x) is x
    assert aj.asarray(x, copy=True) is not x
    with pytest.raises(ValueError, match="can't alias"):
        aj.asarray(x, dtype=aj.float64, copy=False)


def test_errors_name_the_parameters_of_the_function() -> None:
    with pytest.raises(RuntimeError, match=r"condition +f32\[2\]"):
        aj.where(aj.ones(2), aj.ones(2), aj.ones(2))


WRITING = sorted(
    name for name in aj.linalg.__all__ if name not in ("LinAlgError", "diagonal", "lstsq", "matrix_exp", "vander")
)


@pytest.mark.parametrize("name", WRITING)
def test_functions_of_linalg_write_what_they_give(name: str) -> None:
    a = aj.tensor([[2.0, 0.5, 0.1], [0.5, 3.0, 0.2], [0.1, 0.2, 4.0]], dtype=aj.float64)
    pivots, options = aj.tensor([1, 2, 3], dtype=aj.int32), {"upper": True} if name == "solve_triangular" else {}
    others: dict[str, tuple[Any, ...]] = {
        "householder_product": (a, a[0]), "ldl_solve": (a, pivots, a), "lu_solve": (a, pivots, a),
        "matrix_power": (a, 3), "multi_dot": ([a, a],), "tensorinv": (a, 1),
        **dict.fromkeys(("solve", "solve_ex", "tensorsolve", "vecdot"), (a, a[0])),
        **dict.fromkeys(("cross", "matmul", "solve_triangular"), (a, a)),
    }  # fmt: skip
    operands = others.get(name, (a,))
    function: Any = getattr(aj.linalg, name)
    wanted = function(*operands, **options)
    if isinstance(wanted, tuple):
        places = tuple(aj.empty_like(w) for w in wanted)
        found = function(*operands, out=places, **options)
        assert type(found) is type(wanted)
        assert all(f is p and aj.equal(f, w) for f, p, w in zip(found, places, wanted, strict=True))
    else:
        place = aj.empty_like(wanted)
        assert function(*operands, out=place, **options) is place
        assert aj.equal(place, wanted)
