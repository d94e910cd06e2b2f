"""linearize, rearrange, batches in chunks, and torch's helpers around transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.func import rearrange


def test_linearize_gives_the_jacobian_vector_product_of_one_call() -> None:
    calls = []

    def f(x: aj.Tensor, y: aj.Tensor) -> Any:
        calls.append(1)
        return {"a": aj.sin(x) @ y, "b": x * 2}

    x, y = aj.randn(3, 2, dtype=aj.float64), aj.randn(2, dtype=aj.float64)
    value, push = aj.func.linearize(f, x, y)
    for _ in range(2):
        tangents = (aj.randn_like(x), aj.randn_like(y))
        found = push(*tangents)
        expected = aj.func.jvp(lambda x, y: f(x, y), (x, y), tangents)[1]
        assert aj.allclose(found["a"], expected["a"])
        assert aj.allclose(found["b"], expected["b"])
    assert len(calls) == 3
    assert aj.allclose(value["b"], x * 2)
    with pytest.raises(RuntimeError, match="structure"):
        push(x)
    with pytest.raises(RuntimeError, match="does not fit"):
        push(x, x)


@pytest.mark.parametrize("chunk_size", [1, 2, 3, 7])
def test_chunks_do_not_change_a_batch(chunk_size: int) -> None:
    x, y = aj.randn(3, 7), aj.randn(3)

    with pytest.raises(ValueError, match="chunk_size"):
        aj.vmap(aj.sin, chunk_size=0)
    whole = aj.vmap(lambda a, b: a * b, in_dims=(1, None), out_dims=1)
    parts = aj.vmap(lambda a, b: a * b, in_dims=(1, None), out_dims=1, chunk_size=chunk_size)
    assert aj.equal(whole(x, y), parts(x, y))
    g = aj.func.jacrev(lambda a: aj.sin(a) * a.sum(), chunk_size=chunk_size)
    assert aj.allclose(g(y), aj.func.jacrev(lambda a: aj.sin(a) * a.sum())(y))


@pytest.mark.parametrize(
    ("pattern", "lengths", "shape", "expected"),
    [
        ("a b -> b a", {}, (2, 3), lambda x: x.T),
        ("(a b) c -> c a b", {"a": 2}, (6, 3), lambda x: x.reshape(2, 3, 3).transpose(2, 0, 1)),
        ("b c h w -> b (h w) c", {}, (2, 3, 4, 5), lambda x: x.transpose(0, 2, 3, 1).reshape(2, 20, 3)),
        ("... a -> a ...", {}, (2, 3, 4), lambda x: x.transpose(2, 0, 1)),
        ("a ... -> (...) a", {}, (2, 3, 4), lambda x: x.transpose(1, 2, 0).reshape(12, 2)),
        ("a 1 b -> a b ()", {}, (2, 1, 3), lambda x: x.reshape(2, 3, 1)),
    ],
)
def test_rearrange_follows_its_pattern(pattern: str, lengths: Any, shape: Any, expected: Any) -> None:
    x = np.arange(float(np.prod(shape))).reshape(shape)
    np.testing.assert_array_equal(rearrange(aj.tensor(x), pattern, **lengths).numpy(), expected(x))
    assert rearrange([aj.ones(2), aj.ones(2)], "a b -> b a").shape == (2, 2)


@pytest.mark.parametrize(
    ("pattern", "match"),
    [
        ("a b", "exactly one"),
        ("a b -> a", "same axes"),
        ("a a -> a", "twice"),
        ("(a b -> a b", "unbalanced"),
        ("((a) b) -> a b", "nested"),
        ("a b c -> a b c", "names 3 axes"),
        ("(a b) c -> a b c", "all but one"),
        ("a-b c -> c", "no name"),
    ],
)
def test_wrong_patterns_are_refused(pattern: str, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        rearrange(aj.ones(2, 3), pattern)


def test_batch_norms_without_running_statistics_can_be_batched() -> None:
    model = aj.func.replace_all_batch_norm_modules_(aj.nn.Sequential(aj.nn.Linear(2, 3), aj.nn.BatchNorm1d(3)))
    parameters = dict(model.named_parameters())
    x = aj.randn(4, 5, 2)
    found = aj.vmap(lambda x: aj.func.functional_call(model, parameters, (x,)))(x)
    assert aj.allclose(found[2], model(x[2]), atol=1e-6)


def test_helpers_around_transforms() -> None:
    shapes = []

    def look(x: aj.Tensor) -> aj.Tensor:
        shapes.append(tuple(aj.func.debug_unwrap(x).shape))
        return x

    aj.vmap(look)(aj.ones(2, 3))
    assert shapes == [(2, 3)]
    assert aj.func.functionalize(lambda x: x.clone().add_(1), remove="mutations_and_views")(aj.zeros(1)).item() == 1
    with pytest.raises(RuntimeError, match="remove"):
        aj.func.functionalize(lambda x: x, remove="all")
