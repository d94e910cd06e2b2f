"""Complex numbers become pairs of reals: nothing complex is computed with, and results are those of NumPy's loops."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import autojit as aj
from autojit.core.dtypes import complex64, complex128
from autojit.ir import Graph, Op, evaluate, parse_graph, verify
from autojit.passes.complex_parts import split_complex
from autojit.passes.dead_code import eliminate_dead_code
from autojit.passes.expand import expand
from autojit.transforms.adjoint import adjoint
from tests.codegen.agreement import check_compiled, disagreement
from tests.on_cpu import CPU_MACHINE
from tests.ops.laws import graph_of, random_like

OPS = Op.registry.load()
ON_PARTS = (
    "abs", "acos", "acosh", "add", "angle", "as_strided", "asin", "asinh", "atan", "atanh", "broadcast_to", "cast",
    "concatenate", "conj", "constant", "convolution", "convolution_input", "convolution_weight", "cos", "cosh",
    "diagonal", "div", "eq", "exp", "exp2", "expm1", "flip", "full", "gather", "gather_nd", "guarded_div",
    "guarded_mul", "imag", "index_put", "index_select", "index_update", "iota", "is_finite", "is_inf", "is_nan", "log",
    "log10", "log1p", "log2", "masked_mul", "matmul", "matmul_add", "mul", "ne", "neg", "pad", "permute", "pow",
    "pow_number", "prod", "real", "reciprocal", "reshape", "rsqrt", "scatter", "sigmoid", "sign", "sin", "sinh",
    "slice", "slice_update", "sqrt", "square", "stop_gradient", "sub", "sum", "tan", "tanh", "unfold", "view_as_real",
    "where",
)  # fmt: skip
MOVING = {"broadcast_to", "flip", "gather", "gather_nd", "index_select", "permute", "reshape", "slice"}
BETWEEN = {"real", "imag", "complex", *MOVING}
"""Ops between numbers in memory and their parts, and those that only say which number is where."""

FUNCTIONS = (
    "abs", "acos", "acosh", "angle", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "expm1", "log", "log10",
    "reciprocal", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh",
)  # fmt: skip
EDGES = (0.0, -0.0, 1.0, -1.0, 0.5, -2.0, np.inf, -np.inf, np.nan, 1e-3, -30.0, 1e-12, 3e9)


def samples(name: str) -> Iterator[tuple[Graph, list[np.ndarray]]]:
    for dtype in (complex64, complex128):
        for op, inputs in OPS[name].samples(dtype):  # type: ignore[attr-defined]
            yield graph_of(op, inputs), [np.ascontiguousarray(x).reshape(np.shape(x)) for x in inputs]


def split(graph: Graph) -> Graph:
    return verify(eliminate_dead_code(expand(graph, CPU_MACHINE)))


def computed_with(graph: Graph) -> set[str]:
    """The ops that read or give complex numbers and do not only part, join or move them."""
    nodes = [n for n in graph.nodes if any(v.type.dtype.is_complex for v in (*n.inputs, *n.outputs))]
    return {n.op.name for n in nodes} - BETWEEN


@pytest.mark.parametrize("name", ON_PARTS)
def test_nothing_complex_is_computed_with_and_results_stay(name: str) -> None:
    for graph, inputs in samples(name):
        changed = split(graph)
        assert not computed_with(changed)
        with np.errstate(all="ignore"):
            pairs = zip(evaluate(changed, inputs), evaluate(graph, inputs), strict=True)
            wrong = [disagreement(found, expected, 64.0) for found, expected in pairs]
        assert not any(wrong), f"{graph}\n{wrong}"


@pytest.mark.parametrize("name", ("exp", "div", "matmul", "prod", "sqrt", "where"))
def test_derivatives_are_on_parts_too(name: str) -> None:
    for graph, inputs in samples(name):
        if not all(v.type.dtype.is_complex for v in graph.outputs):
            continue
        backward = adjoint(graph)
        given = [*inputs, *random_like(evaluate(graph, inputs), 3)]
        changed = split(backward)
        assert not computed_with(changed)
        for found, expected in zip(evaluate(changed, given), evaluate(backward, given), strict=True):
            assert not disagreement(found, expected, 256.0)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values_are_those_of_numpy(name: str) -> None:
    """Infinite and NaN parts, both zeros, cuts from both sides; a finite part is close, others are equal."""
    z = np.array([complex(a, b) for a in EDGES for b in EDGES])
    with np.errstate(all="ignore"):
        graph = graph_of(OPS[name](), [z])
        (found,), (expected,) = evaluate(split(graph), [z]), evaluate(graph, [z])
        for a, b in zip(parts(found), parts(expected), strict=True):
            near = np.abs(a - b) <= 1e-13 * np.maximum(np.abs(b), np.where(np.isfinite(expected), np.abs(expected), 0))
            wrong = ~((a == b) | (np.isnan(a) & np.isnan(b)) | near)
            assert not wrong.any(), [(z[k], found[k], expected[k]) for k in np.flatnonzero(wrong)]


def parts(x: np.ndarray) -> tuple[np.ndarray, ...]:
    return (x.real, x.imag) if np.iscomplexobj(x) else (x,)


def test_what_is_done_to_pairs_is_done_to_parts() -> None:
    """An optimiser's arithmetic on ``view_as_real``: no pair is put together on the way."""
    graph = parse_graph(
        "(p: c64[3, 4], g: c64[3, 4], s: f32[], w: f32[4, 1]) { a: f32[3, 4, 2] = view_as_real(p);"
        " b: f32[3, 4, 2] = view_as_real(g); c: f32[3, 4, 2] = mul(b, s); d: f32[3, 4, 2] = mul(c, w);"
        " e: f32[3, 4, 2] = sub(a, d); f: c64[3, 4] = view_as_complex(e); return f }"
    )
    changed = split(graph)
    assert not {n.op.name for n in changed.nodes} & {"concatenate", "slice", "view_as_real", "view_as_complex"}
    draws = np.random.default_rng(0)
    x = random_like([np.zeros(v.type.shape, v.type.dtype.numpy) for v in graph.inputs], 1)
    for found, expected in zip(evaluate(changed, x), evaluate(graph, x), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    pairs = parse_graph("(x: f32[5, 2]) { y: c64[5] = view_as_complex(x); z: f32[5, 2] = view_as_real(y); return z }")
    given = [draws.standard_normal((5, 2)).astype(np.float32)]
    np.testing.assert_array_equal(evaluate(split(pairs), given)[0], given[0])


def test_an_op_without_a_rule_reads_and_gives_numbers_in_memory() -> None:
    graph = parse_graph(
        "(x: c128[3, 4], y: c128[s0]) { a: c128[3, 4] = exp(x); b: c128[3, 4] = cumulative[kind='prod', axis=1](a);"
        " c: c128[3, 4] = add(a, b); d: c128[] = prod[axes=(0,)](y); e: c128[s0] = mul(y, d); return c, e }"
    )
    changed = split(graph)
    assert computed_with(changed) == {"cumulative", "prod"}
    draws = np.random.default_rng(4)
    x, y = draws.standard_normal((3, 4)) + 1j, draws.standard_normal(5) - 1j
    fixed = parse_graph(str(graph).replace("s0", "5"))
    again = parse_graph(str(changed).replace("s0", "5"))
    for found, expected in zip(evaluate(again, [x, y]), evaluate(fixed, [x, y]), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_graph_without_complex_numbers_is_left_alone() -> None:
    graph = parse_graph("(x: f32[3]) { y: f32[3] = tanh(x); return y }")
    assert split_complex(graph) is graph


def test_compiled_loops_part_and_join_numbers_in_memory() -> None:
    """One kernel reads and writes interleaved numbers, also where it overwrites what it read, at an odd extent."""
    graph = parse_graph(
        "(x: c64[7, 5], y: c64[5], i: i64[3]) { a: c64[7, 5] = mul(x, y); b: c64[7, 5] = exp(a);"
        " c: c64[5] = sum[axes=(0,)](b); d: c64[5, 7] = permute[axes=(1, 0)](b);"
        " e: c64[3, 7] = index_select[axis=0](d, i); return b, c, e }"
    )
    draws = np.random.default_rng(2)
    x, y = (random_like([np.zeros(shape, np.complex64)], k)[0] for k, shape in enumerate([(7, 5), (5,)]))
    compiled = check_compiled(graph, [x, y, draws.integers(-5, 5, 3)], 64)
    assert compiled.lowered.fallbacks == ()


def test_a_step_of_complex_parameters_needs_no_call_back() -> None:
    """Adam on a complex weight, whose step is that of eager mode; sizes may be open."""
    start = np.random.default_rng(3).standard_normal((4, 3, 2))

    def trained(jit: bool) -> np.ndarray:
        w = aj.nn.Parameter(aj.tensor(start[..., 0] + 1j * start[..., 1]))
        opt = aj.optim.Adam([w], lr=0.1)

        def step(x: aj.Tensor) -> aj.Tensor:
            opt.zero_grad()
            loss = ((x @ w).abs() ** 2).mean() + (x @ w).exp().real.mean()
            loss.backward()
            opt.step()
            return loss

        run = aj.jit(step) if jit else step
        for rows in (2, 5, 3):
            run(aj.tensor(np.random.default_rng(rows).standard_normal((rows, 4)) * (1 + 0.5j)))
        if jit:
            assert run.stats()["fallbacks"] == 0
        return w.detach().numpy()

    np.testing.assert_allclose(trained(True), trained(False), rtol=1e-10)
