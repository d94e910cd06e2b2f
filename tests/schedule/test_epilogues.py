"""Epilogues: which loops a product's kernel goes on with, and which it must not."""

from __future__ import annotations

from typing import Any

import pytest

from autojit.schedule.kernels import MatmulKernel
from tests.schedule.shown import expected, kernels, machine, scheduled

MACHINE = machine(bands=None, epilogue_expressions=96)

FUSED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "a bias and an activation": (
        """(x: f32[8, 6], w: f32[6, 5], b: f32[5]) {
        p: f32[8, 5] = matmul(x, w); s: f32[1, 5] = reshape[shape=(1, 5)](b);
        t: f32[8, 5] = broadcast_to[shape=(8, 5)](s); y: f32[8, 5] = add(p, t); z: f32[8, 5] = tanh(y); return z
    }""",
        "matmul f32[8, 6] @ f32[6, 5], then loops 8x5 (x, w, b) -> z {matmul add tanh}",
        {},
    ),
    "values before and after, both of which are wanted": (
        """(x: f32[8, 6], w: f32[6, 5]) {
        p: f32[8, 5] = matmul(x, w); y: f32[8, 5] = exp(p); z: f32[8, 5] = tanh(y); return y, z
    }""",
        "matmul f32[8, 6] @ f32[6, 5], then loops 40 (x, w) -> y, z {matmul exp tanh}",
        {},
    ),
    "an update of what the product is the gradient of": (
        """(x: f32[8, 6], g: f32[6, 5], w: f32[8, 5]) {
        p: f32[8, 5] = matmul(x, g); v: f32[8, 5] = sub(w, p); return v
    }""",
        "matmul f32[8, 6] @ f32[6, 5], then loops 40 (x, g, w) -> v {matmul sub}",
        {"donated": {0: 2}},
    ),
    "the product itself, where it is wanted": (
        "(x: f32[8, 8]) { p: f32[8, 8] = matmul(x, x); y: f32[8, 8] = tanh(p); return p, y }",
        "matmul f32[8, 8] @ f32[8, 8], then loops 64 (x, x) -> y, p {matmul tanh}",
        {},
    ),
    "a gradient in memory of its own, and an update": (
        """(x: f32[8, 6], g: f32[6, 5], w: f32[8, 5], old: f32[8, 5]) {
        p: f32[8, 5] = matmul(x, g); v: f32[8, 5] = sub(w, p); return v, p
    }""",
        "matmul f32[8, 6] @ f32[6, 5], then loops 40 (x, g, w) -> v, p {matmul sub}",
        {"donated": {0: 2, 1: 3}},
    ),
    "one of two products": (
        """(x: f32[8, 8], w: f32[8, 8]) {
        p: f32[8, 8] = matmul(x, w); q: f32[8, 8] = matmul(w, x); y: f32[8, 8] = add(p, q); return y
    }""",
        """
        matmul f32[8, 8] @ f32[8, 8] (w, x) -> q {matmul}
        matmul f32[8, 8] @ f32[8, 8], then loops 64 (x, w, q) -> y {matmul add}
    """,
        {},
    ),
}


@pytest.mark.parametrize("name", FUSED)
def test_a_product_goes_on_with(name: str) -> None:
    text, shown, options = FUSED[name]
    found = scheduled(text, MACHINE, **options)
    assert kernels(found) == expected(shown)
    products = {k.node.outputs[0] for k in found.kernels if isinstance(k, MatmulKernel) and k.epilogue is not None}
    assert products.isdisjoint(found.memory.offsets), "a product that stays in registers is no temporary"
    assert scheduled(text, **options).kernels != found.kernels, "no machine asked for it"


APART: dict[str, tuple[str, dict[str, Any]]] = {
    "it is read elsewhere than at its own position": (
        """(x: f32[8, 8]) {
        p: f32[8, 8] = matmul(x, x); t: f32[8, 8] = permute[axes=(1, 0)](p); y: f32[8, 8] = tanh(t); return y
    }""",
        {},
    ),
    "it is read there and elsewhere": (
        """(x: f32[8, 8]) {
        p: f32[8, 8] = matmul(x, x); t: f32[8, 8] = permute[axes=(1, 0)](p); y: f32[8, 8] = add(p, t); return y
    }""",
        {},
    ),
    "the loops fold": (
        """(x: f32[8, 8]) {
        p: f32[8, 8] = matmul(x, x); y: f32[8, 8] = tanh(p); s: f32[8] = sum[axes=(1,)](y); return s
    }""",
        {},
    ),
    "the loops have more points than the product": (
        """(x: f32[8, 8], z: f32[2, 8, 8]) {
        p: f32[8, 8] = matmul(x, x); r: f32[1, 8, 8] = reshape[shape=(1, 8, 8)](p);
        b: f32[2, 8, 8] = broadcast_to[shape=(2, 8, 8)](r); y: f32[2, 8, 8] = add(b, z); return y
    }""",
        {},
    ),
    "the loops overwrite an operand": (
        """(x: f32[8, 8], w: f32[8, 8]) {
        p: f32[8, 8] = matmul(w, x); v: f32[8, 8] = sub(w, p); return v
    }""",
        {"donated": {0: 1}},
    ),
    "an operand is overwritten before the loops": (
        """(x: f32[8, 8], w: f32[8, 8], g: f32[8, 8]) {
        p: f32[8, 8] = matmul(x, w); v: f32[8, 8] = sub(w, g);
        f: f32[8, 8] = flip[axes=(0,)](v); y: f32[8, 8] = add(p, f); return v, y
    }""",
        {"donated": {0: 1}},
    ),
    "the loops are too long a text": (
        "(x: f32[8, 8]) {\n p: f32[8, 8] = matmul(x, x); "
        + " ".join(f"y{k}: f32[8, 8] = mul({f'y{k - 1}' if k else 'p'}, x);" for k in range(100))
        + " return y99\n}",
        {},
    ),
    "the loops may fail": (
        """(x: f32[8, 8], t: f32[9, 8], i: i64[8]) {
        p: f32[8, 8] = matmul(x, x); r: f32[8, 8] = index_select[axis=0](t, i); y: f32[8, 8] = add(p, r); return y
    }""",
        {},
    ),
}


@pytest.mark.parametrize("name", APART)
def test_a_product_is_stored_where(name: str) -> None:
    text, options = APART[name]
    found = scheduled(text, MACHINE, **options)
    assert "then" not in kernels(found)
    assert kernels(found) == kernels(scheduled(text, machine(bands=None), **options))
