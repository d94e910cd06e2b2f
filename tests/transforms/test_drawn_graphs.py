"""Transforms of graphs with loops, branches and products: a batch is a loop over its rows, whatever is batched."""

from __future__ import annotations

import random

import numpy as np
import pytest

from autojit.ir import evaluate, verify
from autojit.transforms.adjoint import adjoint
from autojit.transforms.jvp import jvp
from autojit.transforms.vmap import vmap
from tests.codegen.agreement import disagreement
from tests.passes.drawn_graphs import KINDS, arrays_for, drawn

ULPS = 256.0  # of the largest magnitude: products of another shape sum in another order
SEEDS = range(200, 208)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_a_loop_over_its_rows(kind: str) -> None:
    for seed in SEEDS:
        draw = random.Random(seed)
        for graph in drawn(kind, seed)[:2]:
            arrays = arrays_for(graph)
            flags = [draw.random() < 0.4 for _ in arrays]
            flags[draw.randrange(len(flags))] = True
            rows = [
                [x if x.dtype.kind in "bi" else (x * scale).astype(x.dtype) for x in arrays] for scale in (1.0, 0.5)
            ]
            stacked = [np.stack([r[k] for r in rows]) if flag else arrays[k] for k, flag in enumerate(flags)]
            with np.errstate(all="ignore"):
                found = evaluate(verify(vmap(graph, flags, 2)), stacked)
                for number, row in enumerate(rows):
                    given = [row[k] if flag else arrays[k] for k, flag in enumerate(flags)]
                    for y, wanted in zip(found, evaluate(graph, given), strict=True):
                        wrong = disagreement(y[number], wanted, ULPS)
                        assert not wrong, f"{kind} {seed}, {flags}: {wrong}\n{graph}"


@pytest.mark.parametrize("kind", ["scans", "whiles", "branches", "products"])
def test_forward_mode_pairs_with_reverse_mode(kind: str) -> None:
    draws = np.random.default_rng(0)
    for seed in SEEDS:
        graph = drawn(kind, seed)[0]
        if any(v.type.dtype.short != "f64" and v.type.dtype.is_differentiable for v in graph.inputs):
            continue
        if not all(v.type.dtype.is_differentiable for v in graph.outputs):
            continue
        arrays = arrays_for(graph)
        moving = [x for x, v in zip(arrays, graph.inputs, strict=True) if v.type.dtype.is_differentiable]
        directions = [draws.standard_normal(x.shape) for x in moving]
        results = evaluate(graph, arrays)
        weights = [draws.standard_normal(y.shape) for y in results]
        pushed = evaluate(verify(jvp(graph)), [*arrays, *directions])[len(results) :]
        pulled = evaluate(verify(adjoint(graph)), [*arrays, *weights])
        left = [w * y for w, y in zip(weights, pushed, strict=True)]
        right = [x_bar * d for x_bar, d in zip(pulled, directions, strict=True)]
        scale = sum(float(np.abs(part).sum()) for part in (*left, *right))
        gap = sum(float(part.sum()) for part in left) - sum(float(part.sum()) for part in right)
        assert abs(gap) <= 1e-12 * max(1.0, scale), f"{kind} {seed}\n{graph}"
