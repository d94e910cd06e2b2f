"""Numbers before tensors, as torch took them until 2020 and still does: the calls of today in other words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj

V, W = aj.tensor([1.0, 2.0]), aj.tensor([3.0, 5.0])
M, A, B = aj.ones(2, 2), aj.tensor([[1.0, 2.0], [3.0, 4.0]]), aj.tensor([[0.0, 1.0], [2.0, 0.0]])
PRODUCTS: dict[str, tuple[Any, Any, Any]] = {
    "addmm": (M, A, B),
    "addmv": (V, A, W),
    "addr": (M, V, W),
    "addbmm": (M, A.unsqueeze(0), B.unsqueeze(0)),
    "baddbmm": (M.unsqueeze(0), A.unsqueeze(0), B.unsqueeze(0)),
}
JIT: list[Callable[[Any], Any]] = [lambda f: f, aj.jit]


@pytest.mark.parametrize("jit", JIT, ids=["eager", "compiled"])
@pytest.mark.parametrize(("name", "keyword"), [("add", "alpha"), ("sub", "alpha")])
def test_a_scale_before_the_second_operand(name: str, keyword: str, jit: Callable[[Any], Any]) -> None:
    function: Any = getattr(aj, name)
    want = function(V, W, **{keyword: 3})
    with pytest.warns(UserWarning, match=f"This overload of {name} is deprecated"):
        assert aj.equal(jit(lambda x, y: function(x, 3, y))(V, W), want)
    with pytest.warns(UserWarning, match="This overload"):
        assert aj.equal(jit(lambda x, y: getattr(x, name)(3, y))(V, W), want)
    with pytest.warns(UserWarning, match=f"This overload of {name}_ is deprecated"):
        assert aj.equal(jit(lambda x, y: getattr(x.clone(), f"{name}_")(3, y))(V, W), want)
    with pytest.warns(UserWarning, match="This overload"):
        out = aj.zeros(2)
        assert function(V, 3, W, out=out) is out and aj.equal(out, want)


@pytest.mark.parametrize("name", ["addcmul", "addcdiv"])
def test_a_scale_before_two_factors(name: str) -> None:
    want = getattr(aj, name)(V, V, W, value=-0.5)
    with pytest.warns(UserWarning, match="This overload"):
        found = (
            getattr(aj, name)(V, -0.5, V, W),
            getattr(V, name)(-0.5, V, W),
            getattr(V.clone(), f"{name}_")(-0.5, V, W),
        )
    assert all(aj.equal(one, want) for one in found)


@pytest.mark.parametrize(("name", "operands"), PRODUCTS.items(), ids=PRODUCTS)
def test_products_with_weights_before_the_operands(name: str, operands: tuple[Any, Any, Any]) -> None:
    x, a, b = operands
    function, method, in_place = getattr(aj, name), getattr(x, name), getattr(x.clone(), f"{name}_")
    want = function(x, a, b, beta=2, alpha=3)
    with pytest.warns(UserWarning, match="This overload"):
        assert all(aj.equal(one, want) for one in (function(2, x, 3, a, b), method(2, 3, a, b), in_place(2, 3, a, b)))
        assert aj.equal(function(2, x, a, b), function(x, a, b, beta=2))
        assert aj.equal(method(2, a, b), function(x, a, b, beta=2))


@pytest.mark.parametrize("call", [lambda: aj.add(V, W, 3), lambda: V.add_(W, 3), lambda: aj.mul(V, 3, W)])
def test_other_orders_are_refused(call: Callable[[], Any]) -> None:
    with pytest.raises(TypeError):
        call()
