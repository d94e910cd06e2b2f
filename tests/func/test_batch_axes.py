"""Where the batch axis is in arguments and results of ``vmap``: nests of axes, keyword arguments, what is no tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit.func import vmap

X = aj.arange(6.0).reshape(2, 3)
W = aj.tensor([1.0, 10.0])


def by_loop(function: Callable[..., Any], x: Any) -> Any:
    return aj.stack([function(row) for row in x])


@pytest.mark.parametrize("mode", [aj.jit, lambda function: function], ids=["jit", "eager"])
def test_arguments_by_name_are_the_same_for_all_elements(mode: Any) -> None:
    def weighted(x: Any, *, w: Any, power: int = 1, kind: str = "sum") -> Any:
        return getattr(w[:, None] * x**power, kind)(0)

    found = mode(lambda x: vmap(weighted)(x, w=W, power=2, kind="mean"))(X)
    assert aj.equal(found, by_loop(lambda row: weighted(row, w=W, power=2, kind="mean"), X))


@pytest.mark.parametrize("chunk_size", [None, 1])
def test_axes_of_results_are_a_nest_like_them_or_stop_above(chunk_size: int | None) -> None:
    def several(x: Any) -> Any:
        return x, {"two": (x * 2, [x * 3]), "text": "kept", "shared": W}

    nested = (1, {"two": (0, 1), "text": None, "shared": None})
    first, rest = vmap(several, out_dims=nested, chunk_size=chunk_size)(X)
    assert aj.equal(first, X.mT) and aj.equal(rest["two"][0], 2 * X) and aj.equal(rest["two"][1][0], 3 * X.mT)
    assert rest["text"] == "kept" and aj.equal(rest["shared"], W)
    assert vmap(lambda x: "said", out_dims=None, chunk_size=chunk_size)(X) == "said"
    assert aj.equal(vmap(lambda x: x, out_dims=(1,), chunk_size=chunk_size)(X), X.mT)


def test_axes_of_arguments_are_a_nest_like_them_or_stop_above() -> None:
    def product(pair: Any, named: Any) -> Any:
        return pair[0] * pair[1] * named["a"] + named["b"]

    expected = aj.stack([X[i] * X[i] * W[i] + 1 for i in range(2)])
    for in_dims in ((0, {"b": None, "a": 0}), ([0, -2], {"a": -1, "b": None}), [(0, 0), {"a": 0, "b": None}]):
        pair = [X, X] if not isinstance(in_dims[0], tuple) else (X, X)
        assert aj.equal(vmap(product, in_dims)(pair, {"a": W, "b": 1}), expected)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "no inputs": (lambda: vmap(lambda: X)(), "got no inputs"),
    "no tensors": (lambda: vmap(lambda x: x, None)(X), "at least one Tensor"),
    "a number with an axis": (lambda: vmap(aj.mul)(X, 2.0), "Got in_dim=0 for an input but the input is of type float"),
    "an axis of another kind": (lambda: vmap(aj.mul, (0, 0.0))(X, X), "in_dim must be either an integer"),
    "in_dims of another kind": (lambda: vmap(aj.sin, "0")(X), "expected `in_dims` to be int or a tuple"),
    "too few axes": (lambda: vmap(aj.mul, (0,))(X, X), "in_dims is not compatible with the structure of `inputs`"),
    "another nest": (lambda: vmap(aj.mul, ((0,), 0))(X, X), "in_dims is not compatible"),
    "too many axes of results": (lambda: vmap(aj.sin, 0, (0, 0))(X), "out_dims is not compatible"),
    "axes of results of another kind": (lambda: vmap(aj.sin, 0, "0"), "`out_dims` must be an int, None"),
    "what differs as the same": (lambda: vmap(aj.sin, 0, None)(X), "can not return a BatchedTensor"),
    "a result that is no tensor": (
        lambda: vmap(lambda x: 1.0)(X),
        "must only return Tensors, got type <class 'float'>",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_axes_that_do_not_fit_are_refused(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("mode", [aj.jit, lambda function: function], ids=["jit", "eager"])
def test_statistics_that_elements_share_are_not_written_by_each(mode: Any) -> None:
    """They stay what they were; with statistics of their own, or none, each element's layer is a layer."""
    layer, batch = aj.nn.BatchNorm1d(3), aj.randn(2, 5, 3)
    with pytest.raises(RuntimeError, match="Batch norm got a batched tensor as input while the running_mean"):
        mode(vmap(layer))(batch)
    assert layer.running_mean.tolist() == [0.0] * 3 and layer.running_var.tolist() == [1.0] * 3
    own = {name: aj.stack([t, t]) for name, t in layer.named_buffers()}
    found = mode(lambda own, x: vmap(lambda b, x: aj.func.functional_call(layer, b, (x,)))(own, x))(own, batch)
    expected = aj.stack([aj.nn.functional.batch_norm(x, None, None, training=True) for x in batch])
    assert aj.allclose(found, expected, atol=1e-6)
    assert aj.allclose(vmap(aj.func.replace_all_batch_norm_modules_(layer))(batch), expected, atol=1e-6)
