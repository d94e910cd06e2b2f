"""What transforms take and give: results beside the output, argument numbers, nests, and refusals that say why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit.func import grad, grad_and_value, jacfwd, jacrev, jvp, vjp, vmap

X = aj.tensor([0.5, -1.0, 2.0], dtype=aj.float64)


def with_more(x: Any) -> Any:
    return x**2, {"sum": x.sum(), "text": "kept", "several": (x * 2, None)}


@pytest.mark.parametrize("transform", [jacrev, jacfwd])
@pytest.mark.parametrize("argnums", [0, (0,)])
def test_what_a_function_returns_besides_is_what_it_computed(transform: Any, argnums: Any) -> None:
    jacobian, more = transform(with_more, argnums, has_aux=True)(X)
    found = jacobian[0] if isinstance(argnums, tuple) else jacobian
    assert aj.equal(found, aj.diag(2 * X))
    assert aj.equal(more["sum"], X.sum()) and aj.equal(more["several"][0], X * 2)
    assert more["text"] == "kept" and more["several"][1] is None


def test_what_is_returned_besides_goes_through_nested_transforms() -> None:
    def squared(x: Any) -> Any:
        return x**2, x.sum()

    nested = jacfwd(jacrev(squared, has_aux=True), has_aux=True)
    batch = aj.stack([X, 2 * X])
    for function in (vmap(nested), aj.jit(vmap(nested))):
        second, sums = function(batch)
        assert second.shape == (2, 3, 3, 3) and aj.equal(sums, batch.sum(1))


def test_a_jacobian_by_single_rows_needs_no_batches() -> None:
    class Picked(aj.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 3

        @staticmethod
        def backward(ctx: Any, y_bar: Any) -> Any:
            return 3 * y_bar if y_bar.nonzero().numel() else y_bar  # of a result whose size depends on values

    for outputs in (lambda x: Picked.apply(x), lambda x: (Picked.apply(x), x.sum())):
        found = jacrev(outputs, chunk_size=1)(X)
        first = found[0] if isinstance(found, tuple) else found
        assert aj.equal(first, aj.diag(aj.full_like(X, 3)))
    assert jacrev(lambda x: x[:0], chunk_size=1)(X).shape == (0, 3)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "argnums twice": (lambda: grad(aj.mul, (0, -2))(X, X), "argnums elements must be unique"),
    "no argnums": (lambda: jacfwd(aj.sin, ())(X), "argnums must be non-empty"),
    "argnums of floats": (lambda: jacrev(aj.sin, 0.0)(X), "argnums must be int or Tuple"),
    "argnums out of range": (lambda: jacrev(aj.sin, (1,))(X), "only 1 positional inputs"),
    "no pair": (lambda: grad(lambda x: x.sum(), has_aux=True)(X), "should be a tuple: .output, aux."),
    "value and no pair": (lambda: grad_and_value(lambda x: [x, x], has_aux=True)(X), "should be a tuple"),
    "vjp of no pair": (lambda: vjp(aj.sin, X, has_aux=True), "should be a tuple"),
    "jvp of no pair": (lambda: jvp(aj.sin, (X,), (X,), has_aux=True), "should be a tuple"),
    "nothing": (lambda: jacrev(lambda x: None)(X), "non-empty output"),
    "forward of nothing": (lambda: jacfwd(lambda x: ())(X), "non-empty output"),
    "a number": (lambda: jvp(lambda x: 2.0, (X,), (X,)), "return only tensors"),
    "primals alone": (lambda: jvp(aj.sin, X, (X,)), "Expected primals to be a tuple"),
    "tangents alone": (lambda: jvp(aj.sin, (X,), X), "same python structure"),
    "no primals": (lambda: jvp(aj.sin, (), ()), "at least one Tensor"),
    "a number as primal": (lambda: jvp(aj.mul, (X, 2), (X, X)), "only contain Tensors"),
    "cotangents": (lambda: vjp(aj.sin, X)[1]((X, X)), "Expected pytree structure of cotangents"),
    "complex input": (lambda: jacrev(aj.sin)(X + 1j), "jacrev: Expected all inputs to be real"),
    "complex output": (lambda: jacrev(lambda x: x * 1j)(X), "jacrev: Expected all outputs to be real"),
    "forward of complex input": (lambda: jacfwd(aj.sin)(X + 1j), "jacfwd: Expected all inputs to be real"),
    "forward of complex output": (lambda: jacfwd(lambda x: x * 1j)(X), "jacfwd: Expected all outputs to be real"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_meaning_is_refused(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(RuntimeError, match=message):
        call()


def test_no_rows_at_once_are_refused() -> None:
    with pytest.raises(ValueError, match="jacrev: `chunk_size` should be greater than 0"):
        jacrev(aj.sin, chunk_size=0)


def test_an_element_of_a_batch_shows_the_values_of_all() -> None:
    shown = []

    def look(x: Any) -> Any:
        shown.append(repr(x))
        return x

    vmap(vmap(look))(aj.tensor([[1.0, 2.0]]))
    inner = "BatchedTensor(lvl=1, bdim=0, value=\n        tensor([[1., 2.]])\n    )"
    assert shown == [f"BatchedTensor(lvl=2, bdim=0, value=\n    {inner}\n)"]
