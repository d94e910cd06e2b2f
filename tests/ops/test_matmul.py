from __future__ import annotations

from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import autojit as aj
from autojit.ops import (
    addbmm,
    addmm,
    baddbmm,
    dot,
    einsum,
    inner,
    kron,
    matmul,
    outer,
    tensordot,
    vdot,
)  # fmt: skip
from autojit.ops.matmul import MATMUL
from tests.ops.running import integers, normal, record, run

SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((5, 2, 3), (3,)),
    ((2, 3), (5, 3, 4)), ((3,), (5, 3, 4)), ((5, 1, 2, 3), (6, 3, 4)), ((0, 2, 3), (3, 4)), ((2, 0), (0, 4)),
]  # fmt: skip


@pytest.mark.parametrize(("x_shape", "w_shape"), SHAPES)
def test_matmul_agrees_with_numpy_in_every_rank(x_shape: tuple[int, ...], w_shape: tuple[int, ...]) -> None:
    x, w = normal(*x_shape), normal(*w_shape, seed=1)
    found = run(matmul, x, w)
    assert found.shape == (x @ w).shape
    np.testing.assert_allclose(found, x @ w, rtol=1e-12, atol=1e-14)


def test_a_matrix_is_applied_to_a_batch_in_one_product() -> None:
    graph = record(matmul, normal(5, 2, 3), normal(3, 4))
    assert [node.op.name for node in graph.nodes] == ["reshape", "matmul", "reshape"]


def test_halves_are_accumulated_in_float32() -> None:
    x = normal(4, 300).astype(ml_dtypes.bfloat16)
    exact = x.astype(np.float64) @ x.T.astype(np.float64)
    np.testing.assert_allclose(run(matmul, x, x.T).astype(np.float64), exact, rtol=2**-8, atol=2**-8)


def test_unequal_inner_axes_are_explained() -> None:
    with pytest.raises(RuntimeError) as caught:
        record(matmul, normal(64, 784), normal(128, 784))
    assert "matmul: inner axes differ" in str(caught.value)
    assert "x axis -1 (784) == w axis -2 (128)" in str(caught.value)
    assert "x @ w.mT" in str(caught.value)


def test_scalars_and_unequal_dtypes_are_refused() -> None:
    with pytest.raises(RuntimeError, match="at least 1D"):
        record(matmul, normal(), normal(3))
    with pytest.raises(RuntimeError, match="same dtype"):
        record(matmul, normal(2, 3), normal(3, 2).astype(np.float32))


def test_products_of_other_names_agree_with_numpy() -> None:
    x, y, m = normal(4), normal(4, seed=1), normal(3, 4, seed=2)
    np.testing.assert_allclose(run(dot, x, y), x @ y)
    np.testing.assert_allclose(run(outer, x, y), np.outer(x, y))
    np.testing.assert_allclose(run(inner, m, m), m @ m.T)
    np.testing.assert_allclose(run(kron, m, x), np.kron(m, x))
    z = x + 1j * y
    np.testing.assert_allclose(run(vdot, z, 1j * z), np.vdot(z, 1j * z))
    a, b = normal(2, 3, 4), normal(4, 5, 3)
    np.testing.assert_allclose(
        run(lambda a, b: tensordot(a, b, ((1, 2), (2, 0))), a, b), np.tensordot(a, b, ((1, 2), (2, 0)))
    )
    c = normal(2, 4, 5)
    np.testing.assert_allclose(
        run(lambda s, a, c: addbmm(s, a, c, 0.5, 2.0), normal(3, 5), a, c), 0.5 * normal(3, 5) + 2 * (a @ c).sum(0)
    )
    np.testing.assert_allclose(run(baddbmm, normal(2, 3, 5), a, c), normal(2, 3, 5) + a @ c)


def test_addmm_with_beta_zero_does_not_read_the_base() -> None:
    nan = np.full((3, 3), np.nan)
    x = normal(3, 3)
    np.testing.assert_allclose(run(lambda n, x: addmm(n, x, x, beta=0), nan, x), x @ x)


@pytest.mark.parametrize(
    ("formula", "shapes"),
    [
        ("ij,jk->ik", ((2, 3), (3, 4))),
        ("ij,jk", ((2, 3), (3, 4))),
        ("bhqd,bhkd->bhqk", ((2, 3, 4, 5), (2, 3, 6, 5))),
        ("...ij,...jk->...ik", ((2, 1, 3, 4), (5, 4, 2))),
        ("ii->i", ((3, 3),)),
        ("ii", ((3, 3),)),
        ("ijk->kji", ((2, 3, 4),)),
        ("ij->", ((2, 3),)),
        ("i,j->ij", ((2,), (3,))),
        ("ij,ij->ij", ((2, 3), (2, 3))),
        ("ij,jk,kl->il", ((2, 3), (3, 4), (4, 5))),
        ("bij,bj,b->bi", ((2, 3, 4), (2, 4), (2,))),
        ("iji,jk->ik", ((3, 4, 3), (4, 2))),
        ("ij,kl->jl", ((2, 3), (4, 5))),
        ("i...->...", ((2, 3, 4),)),
        (",ij->ij", ((), (2, 3))),
        ("ab,ab", ((2, 3), (2, 3))),
    ],
)
def test_einsum_agrees_with_numpy(formula: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    operands = [normal(*shape, seed=k) for k, shape in enumerate(shapes)]
    found = run(lambda *xs: einsum(formula, *xs), *operands)
    np.testing.assert_allclose(found, np.einsum(formula, *operands), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("formula", ["ij,jk->iz", "ij->ij", "i1,jk->ik", "ijk,jk->i", "ij,jk->ii"])
def test_einsum_refuses_formulas_that_do_not_fit(formula: str) -> None:
    with pytest.raises((RuntimeError, ValueError)):
        record(lambda x, y: einsum(formula, x, y), normal(2, 3), normal(3, 4))


def test_integer_products_are_exact() -> None:
    x: Any = integers(-5, 5, 4, 4)
    np.testing.assert_array_equal(run(matmul, x, x), x @ x)


@pytest.mark.parametrize("dtype", ["f", "d"])
def test_matrices_by_the_short_way_have_the_bits_of_matmul(dtype: str) -> None:
    """``dot`` makes the same call of BLAS, whichever way the operands lie."""
    for m, k, n in product((0, 1, 2, 3, 8, 17, 64), repeat=3):
        for left, right in product((False, True), repeat=2):
            x: Any = normal(*((k, m) if left else (m, k)), seed=1).astype(dtype)
            w: Any = normal(*((n, k) if right else (k, n)), seed=2).astype(dtype)
            x, w = x.T if left else x, w.T if right else w
            found = MATMUL.eager(x, w)
            assert found.flags.c_contiguous
            assert found.tobytes() == np.matmul(x, w).tobytes(), (m, k, n, left, right)


SAID = [
    ((4, 5), (1, 1), "mat1 and mat2 shapes cannot be multiplied (4x5 and 1x1)"),
    ((4, 5), (3,), "size mismatch, got input (4), mat (4x5), vec (3)"),
    ((3,), (4,), "inconsistent tensor size, expected tensor [3] and src [4] to have the same number of elements"),
    ((2, 4, 5), (3, 3), "mat1 and mat2 shapes cannot be multiplied (8x5 and 3x3)"),
    (
        (2, 2, 3, 4),
        (2, 2, 5, 6),
        "Expected size for first two dimensions of batch2 tensor to be: [4, 4] but got: [4, 5].",
    ),
]


@pytest.mark.parametrize(("x", "w", "said"), SAID)
def test_shapes_that_do_not_fit_are_told_in_torchs_words_too(x: tuple[int, ...], w: tuple[int, ...], said: str) -> None:
    with pytest.raises(RuntimeError) as caught:
        aj.matmul(aj.ones(x), aj.ones(w))
    assert said in str(caught.value)
