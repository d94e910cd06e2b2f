"""Literal factors and signs: fewer nodes, the same numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import autojit.ops  # noqa: F401
from autojit.core.dtypes import DType, float32, float64
from autojit.core.types import TensorType
from autojit.ir import Graph, GraphBuilder, Value, evaluate, parse_graph, verify
from autojit.ir.op import Op
from autojit.ops.elementwise_arithmetic import MUL
from autojit.ops.sources import Full
from autojit.passes.constants import fold_constants
from autojit.passes.dead_code import eliminate_dead_code


def folded(graph: Graph) -> Graph:
    return eliminate_dead_code(verify(fold_constants(graph)))


def body(text: str) -> str:
    """The nodes of the folded graph of ``text``, whose operands are x, y: f32[4] and the literals c = 3 and d = 0.5."""
    literals = "".join(
        f"{name}: f32[] = full[value={v}, dtype=f32, shape=()](); " for name, v in (("c", 3.0), ("d", 0.5), ("m", -1.0))
    )
    return str(folded(parse_graph(f"(x: f32[4], y: f32[4]) {{ {literals}{text} }}")))


def ops_of(text: str) -> Counter[str]:
    return Counter(node.op.name for node in parse_graph(text).nodes)


def test_chained_literals_become_one() -> None:
    text = body("a: f32[4] = mul(x, c); b: f32[4] = mul(d, a); e: f32[4] = mul(b, c); return e")
    assert ops_of(text) == {"full": 1, "mul": 1}
    assert "value=4.5" in text


def test_a_literal_that_widens_the_shape_stays() -> None:
    literals = "c: f32[] = full[value=3.0, dtype=f32, shape=()](); d: f32[4] = full[value=2.0, dtype=f32, shape=(4,)]()"
    text = f"(x: f32[]) {{ {literals}; a: f32[] = mul(x, c); b: f32[4] = mul(a, d); return b }}"
    assert ops_of(str(folded(parse_graph(text)))) == {"full": 2, "mul": 2}
    wide = text.replace("(x: f32[])", "(x: f32[4])").replace("a: f32[]", "a: f32[4]")
    assert ops_of(str(folded(parse_graph(wide)))) == {"full": 1, "mul": 1}


def test_factors_that_cancel_leave_the_operand() -> None:
    text = body("a: f32[4] = mul(x, d); b: f32[4] = neg(a); e: f32[4] = mul(b, d); f: f32[4] = mul(e, c); return f")
    assert ops_of(text) == {"full": 1, "mul": 1}
    assert "value=-0.75" in text
    assert ops_of(body("a: f32[4] = mul(x, m); b: f32[4] = neg(a); return b")) == {}


def test_a_product_with_another_reader_stays() -> None:
    text = body("a: f32[4] = mul(x, c); b: f32[4] = mul(a, d); e: f32[4] = add(a, b); return e")
    assert ops_of(text) == {"full": 2, "mul": 2, "add": 1}
    assert ops_of(body("a: f32[4] = mul(x, c); b: f32[4] = mul(a, d); return a, b"))["mul"] == 2


def test_literals_whose_product_leaves_the_normal_range_stay() -> None:
    def chain(c: str, d: str) -> int:
        literals = (
            f"c: f32[] = full[value={c}, dtype=f32, shape=()](); d: f32[] = full[value={d}, dtype=f32, shape=()]()"
        )
        text = f"(x: f32[4]) {{ {literals}; a: f32[4] = mul(x, c); b: f32[4] = mul(a, d); return b }}"
        return ops_of(str(folded(parse_graph(text))))["mul"]

    assert chain("1e30", "1e30") == chain("1e-30", "1e-30") == chain("inf", "2.0") == chain("0.0", "2.0") == 2
    assert chain("1e30", "3e-30") == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n: f32[4] = neg(y); a: f32[4] = add(x, n)", "sub"),
        ("n: f32[4] = neg(x); a: f32[4] = add(n, y)", "sub"),
        ("n: f32[4] = neg(y); a: f32[4] = sub(x, n)", "add"),
        ("n: f32[4] = neg(y); k: f32[4] = neg(x); a: f32[4] = sub(k, n)", "sub"),
        ("n: f32[4] = neg(y); k: f32[4] = neg(x); a: f32[4] = mul(k, n)", "mul"),
        ("n: f32[4] = neg(y); k: f32[4] = neg(x); a: f32[4] = div(k, n)", "div"),
        ("n: f32[4] = mul(m, y); a: f32[4] = add(x, n)", "sub"),
        ("k: f32[4] = neg(x); a: f32[4] = neg(k)", ""),
    ],
)
def test_signs_are_taken_up_bit_for_bit(text: str, expected: str) -> None:
    minus_one = "m: f32[] = full[value=-1.0, dtype=f32, shape=()](); "
    graph = parse_graph(f"(x: f32[9], y: f32[9]) {{ {minus_one}{text.replace('[4]', '[9]')}; return a }}")
    changed = folded(graph)
    assert [node.op.name for node in changed.nodes] == [expected] * bool(expected)
    edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -2.0, 1e-45, 3e38], np.float32)
    for shift in range(9):
        inputs = [edges, np.roll(edges, shift)]
        with np.errstate(all="ignore"):
            (found,), (wanted,) = evaluate(changed, inputs), evaluate(graph, inputs)
        np.testing.assert_array_equal(found, wanted)
        kept = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(found)[kept], np.signbit(wanted)[kept])


def test_a_literal_numerator_needs_no_guard() -> None:
    assert ops_of(body("a: f32[4] = guarded_div(c, x); b: f32[4] = guarded_mul(a, y); return b")) == {
        "full": 1,
        "div": 1,
        "guarded_mul": 1,
    }


def test_integers_and_halves_stay_as_they_are() -> None:
    for dtype in ("f16", "bf16", "i32"):
        text = f"(x: {dtype}[4]) {{ a: {dtype}[4] = neg(x); b: {dtype}[4] = add(x, a); return b }}"
        graph = parse_graph(text)
        assert str(fold_constants(graph)) == str(graph)


def random_graph(seed: int, dtype: DType, literals: Sequence[float], ops: Sequence[str]) -> Graph:
    """Twelve nodes over two operands and their results, half of them products by a literal."""
    rng = np.random.default_rng(seed)
    builder = GraphBuilder()
    values = [builder.input(TensorType((16,), dtype)) for _ in range(2)]

    def pick() -> Value:
        return values[int(rng.integers(max(0, len(values) - 4), len(values)))]

    for _ in range(12):
        if rng.random() < 0.5:
            literal = builder.apply(Full(float(rng.choice(literals)), dtype, ()), ())[0]
            pair = (pick(), literal) if rng.random() < 0.7 else (literal, pick())
            values += builder.apply(Op.registry["mul"](), pair)
        else:
            op = Op.registry[str(rng.choice(ops))]()
            values += builder.apply(op, [pick() for _ in range(1 if op.name in ("neg", "square") else 2)])
    return builder.finish(values[-2:])


def evaluated(graph: Graph, seed: int) -> list[NDArray[Any]]:
    inputs = [np.random.default_rng(seed).uniform(0.5, 2.0, 16).astype(v.type.dtype.numpy) for v in graph.inputs]
    with np.errstate(all="ignore"):
        return list(evaluate(graph, inputs))


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_powers_of_two_fold_bit_for_bit(dtype: DType) -> None:
    shrunk = 0
    ops = ("neg", "add", "sub", "mul", "div", "guarded_mul", "guarded_div", "square")
    for seed in range(150):
        graph = random_graph(seed, dtype, (-1.0, 1.0, 0.5, -2.0, 4.0), ops)
        changed = folded(graph)
        assert len(parse_graph(str(changed)).nodes) == len(changed.nodes)
        shrunk += len(changed.nodes) < len(eliminate_dead_code(graph).nodes)
        for found, wanted in zip(evaluated(changed, seed), evaluated(graph, seed), strict=True):
            np.testing.assert_array_equal(found, wanted, err_msg=f"seed {seed}\n{graph}\n{changed}")
    assert shrunk > 75


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_products_move_by_their_roundings_only(dtype: DType) -> None:
    """Twelve nodes that round by half an ulp in either graph, and what they read may count more than once."""
    eps = float(np.finfo(dtype.numpy).eps)
    for seed in range(150):
        graph = random_graph(seed, dtype, (-1.0, 0.7, 3.0, -1.9, 0.1), ("neg", "mul", "div", "guarded_mul"))
        for found, wanted in zip(evaluated(folded(graph), seed), evaluated(graph, seed), strict=True):
            normal = np.isfinite(wanted) & (np.abs(wanted) > np.finfo(dtype.numpy).tiny)
            bound = 24 * eps * np.abs(wanted)
            assert (np.abs(found - wanted) <= bound)[normal].all(), f"seed {seed}\n{graph}"


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_a_chain_of_two_is_within_two_ulp(dtype: DType) -> None:
    rng = np.random.default_rng(3)
    x = rng.uniform(-2, 2, 4096).astype(dtype.numpy)
    for c, d in rng.uniform(-3, 3, (40, 2)):
        builder = GraphBuilder()
        value = builder.input(TensorType(x.shape, dtype))
        for number in (c, d):
            value = builder.apply(MUL, (value, builder.apply(Full(float(number), dtype, ()), ())[0]))[0]
        graph = builder.finish([value])
        (found,), (wanted,) = evaluate(folded(graph), [x]), evaluate(graph, [x])
        assert (np.abs(found - wanted) <= 2 * np.spacing(np.abs(wanted))).all()


def test_literals_meet_behind_a_product() -> None:
    text = body("a: f32[4] = mul(x, c); b: f32[4] = mul(y, d); e: f32[4] = mul(a, b); return e")
    assert ops_of(text) == {"full": 1, "mul": 2}
    assert "value=1.5" in text


def test_a_literal_moves_where_every_reader_has_one_to_meet() -> None:
    shared = "a: f32[4] = mul(x, d); b: f32[4] = mul(a, y); e: f32[4] = mul(b, c); f: f32[4] = mul(a, a); "
    assert ops_of(body(shared + "g: f32[4] = mul(f, c); return e, g"))["mul"] == 4
    assert ops_of(body(shared + "g: f32[4] = exp(f); return e, g"))["mul"] == 4  # nothing to meet: all as written
    returned = body("a: f32[4] = mul(x, d); b: f32[4] = mul(a, y); e: f32[4] = mul(b, c); return a, e")
    assert ops_of(returned)["mul"] == 3


def test_far_literals_stay_with_their_operands() -> None:
    far = "k: f32[] = full[value=1e20, dtype=f32, shape=()](); "
    text = body(far + "a: f32[4] = mul(x, k); b: f32[4] = mul(y, d); e: f32[4] = mul(a, b); return e")
    assert ops_of(text)["mul"] == 3


def test_a_sign_moves_out_of_a_product_into_the_sum_that_reads_it() -> None:
    text = body("n: f32[4] = neg(x); b: f32[4] = mul(n, y); e: f32[4] = add(x, b); return e")
    assert ops_of(text) == {"mul": 1, "sub": 1}


def test_a_product_that_was_collected_is_collected_further_by_each_of_its_readers() -> None:
    """Every reader of ``b`` = 1.5 x multiplies it by a literal: each of them multiplies x itself."""
    text = body(
        "a: f32[4] = mul(x, c); b: f32[4] = mul(a, d); e: f32[4] = mul(b, c); f: f32[4] = mul(b, d); return e, f"
    )
    assert ops_of(text) == {"full": 2, "mul": 2}
    assert "value=4.5" in text
    assert "value=0.75" in text


def test_a_multiple_that_is_read_by_products_of_values_is_made_once() -> None:
    """A literal that moved on to each product would be multiplied twice."""
    text = body(
        "a: f32[4] = mul(x, c); b: f32[4] = mul(a, y); e: f32[4] = mul(y, y); f: f32[4] = mul(a, e); return b, f"
    )
    assert ops_of(text) == {"full": 1, "mul": 4}
