"""What must vectorise: in LLVM's output for one fixed processor, the innermost loops compute vectors and nothing else.

Loop bodies are emitted as scalars and LLVM makes the vectors (docs/design/loops_and_tiles.md). It stops doing so
silently: for a promise that is missing on one access, a branch in a body, a function without a vector form.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

import autojit.ops  # noqa: F401
from autojit.codegen.lowered import BandEntry, BatchEntry, Entry
from autojit.codegen.target import HostTarget
from autojit.ir import parse_graph, verify
from autojit.runtime.llvm import optimised_ir
from tests.golden.printing import TARGET, lowered_for_target

_BLOCK = re.compile(r"\n(?=[\w.$-]+:)")
_VECTOR = re.compile(r"<\d+ x \w+>")
_CALL = r"(?:tail )?call (?:float|double|half)"
_ARITHMETIC = re.compile(rf"= (?:{_CALL}|f(?:add|sub|mul|div|rem|neg|cmp)|[su]itofp|fpto[su]i|fptrunc|fpext)\b")


@dataclass(frozen=True)
class Kind:
    """A kernel: its graph, the vectors that its loops write or fold, and whether the last elements have a loop."""

    graph: str
    vector: str
    has_rest: bool = False


def pointwise(ops: str, dtype: str = "f32", result: str | None = None, vector: str = "<8 x float>") -> Kind:
    """Of ``x``, ``y`` and a mask ``m`` of a thousand elements; the ops end in ``r``."""
    inputs = f"x: {dtype}[1000], y: {dtype}[1000], m: bool[1000]"
    return Kind(f"({inputs}) {{ {ops}; return r }}".replace("$", result or dtype), vector)


FUNCTIONS = (
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "digamma", "erf", "erfc", "erfinv",
    "exp", "exp2", "expm1", "floor", "lgamma", "log", "log10", "log1p", "log2", "neg", "reciprocal", "relu", "round",
    "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc",
)  # fmt: skip

OPERATORS = ("add", "sub", "mul", "div", "maximum", "minimum", "atan2", "hypot", "copysign", "pow", "fmod", "remainder")

IN_DOUBLE = ("acosh", "asinh", "atan2", "digamma", "erfinv", "lgamma", "pow")
"""Functions of float32 that are computed in float64."""


def _float32(name: str) -> str:
    return "<4 x double>" if name in IN_DOUBLE else "<8 x float>"


SOFTMAX = """(x: f32[64, {0}]) {{
    m: f32[64] = amax[axes=(1,)](x); a: f32[64, 1] = reshape[shape=(64, 1)](m); d: f32[64, {0}] = sub(x, a);
    e: f32[64, {0}] = exp(d); s: f32[64] = sum[axes=(1,)](e); b: f32[64, 1] = reshape[shape=(64, 1)](s);
    y: f32[64, {0}] = div(e, b); return y
}}"""

KINDS = {
    **{f"{name} of float32": pointwise(f"r: $[1000] = {name}(x)", vector=_float32(name)) for name in FUNCTIONS},
    **{f"{name} of float64": pointwise(f"r: $[1000] = {name}(x)", "f64", vector="<4 x double>") for name in FUNCTIONS},
    **{f"{name} of float32": pointwise(f"r: $[1000] = {name}(x, y)", vector=_float32(name)) for name in OPERATORS},
    "float16": pointwise("a: $[1000] = mul(x, y); r: $[1000] = exp(a)", "f16", vector="<8 x half>"),
    "bfloat16": pointwise("a: $[1000] = mul(x, y); r: $[1000] = tanh(a)", "bf16", vector="<8 x i16>"),
    "int32": pointwise("a: $[1000] = mul(x, y); r: $[1000] = add(a, x)", "i32", vector="<8 x i32>"),
    "int64": pointwise("a: $[1000] = sub(x, y); r: $[1000] = maximum(a, x)", "i64", vector="<4 x i64>"),
    "uint8": pointwise("a: $[1000] = bitwise_and(x, y); r: $[1000] = shift_left(a, x)", "u8", vector="<32 x i8>"),
    "a quotient of whole numbers": pointwise(
        "n: i32[] = full[value=7, dtype=i32, shape=()](); r: $[1000] = floor_divide(x, n)", "i32", vector="<8 x i32>"
    ),
    "a comparison": pointwise("r: $[1000] = lt(x, y)", result="bool", vector="<8 x i8>"),
    "a choice by a mask": pointwise(
        "a: bool[1000] = lt(x, y); b: bool[1000] = bitwise_or(a, m); r: $[1000] = where(b, x, y)"
    ),
    "whole numbers as float32": pointwise("r: $[1000] = cast[dtype=f32](x)", "i32", "f32"),
    "bytes as float32": pointwise("r: $[1000] = cast[dtype=f32](x)", "u8", "f32"),
    "float32 as float64": pointwise("r: $[1000] = cast[dtype=f64](x)", "f32", "f64", "<4 x double>"),
    "an update of state": pointwise(
        "l: f32[] = full[value=0.1, dtype=f32, shape=()](); a: $[1000] = mul(y, l); r: $[1000] = sub(x, a)"
    ),
    "random words": Kind("(k: i64[2]) { r: u32[1000] = random_bits[shape=(1000,)](k); return r }", "<8 x i32>"),
    "softmax of long rows": Kind(SOFTMAX.format(128), "<8 x float>"),
    "softmax of short rows": Kind(SOFTMAX.format(16), "<8 x float>"),
    "sums of rows": Kind("(x: f32[64, 128]) { y: f32[64] = sum[axes=(1,)](x); return y }", "<8 x float>"),
    "sums of columns": Kind("(x: f32[64, 128]) { y: f32[128] = sum[axes=(0,)](x); return y }", "<8 x float>"),
    "the sum of everything": Kind(
        "(x: f32[10000]) { y: f32[] = sum[axes=(0,)](x); return y }",
        "<8 x float>",
        has_rest=True,  # the last block is shorter
    ),
    "greatest of rows": Kind("(x: f32[64, 128]) { y: f32[64] = amax[axes=(1,)](x); return y }", "<8 x float>"),
    "products of columns": Kind("(x: f64[64, 128]) { y: f64[128] = prod[axes=(0,)](x); return y }", "<4 x double>"),
    "whether any": Kind(
        "(x: bool[10000]) { y: bool[] = any_true[axes=(0,)](x); return y }", "<32 x i8>", has_rest=True
    ),
    "a row added to rows": Kind(
        "(x: f32[64, 128], b: f32[128]) { s: f32[64, 128] = add(x, b); y: f32[64, 128] = relu(s); return y }",
        "<8 x float>",
    ),
    "a column times rows": Kind(
        "(x: f32[64, 128], b: f32[64, 1]) { y: f32[64, 128] = mul(x, b); return y }", "<8 x float>"
    ),
    "rows of an embedding": Kind(
        """(x: f32[50, 128], i: i64[64]) {
        y: f32[64, 128] = index_select[axis=0](x, i); z: f32[64, 128] = neg(y); return z
    }""",
        "<8 x float>",
    ),
    "elements that are looked up": Kind(
        """(x: f32[64, 50], i: i64[64, 128]) {
        y: f32[64, 128] = gather[axis=1](x, i); z: f32[64, 128] = exp(y); return z
    }""",
        "<4 x float>",  # as many as there are indices in a vector
    ),
    "rows that are scattered": Kind(
        """(p: f32[50, 128], i: i64[64], s: f32[64, 128]) {
        q: f32[50, 128] = index_update[axis=0, combine='add'](p, s, i); return q
    }""",
        "<8 x float>",
    ),
    "every second element": Kind(
        """(x: f32[64, 256]) {
        s: f32[64, 128] = slice[starts=(0, 0), stops=(64, 256), steps=(1, 2)](x); y: f32[64, 128] = exp(s); return y
    }""",
        "<8 x float>",
        has_rest=True,  # a vector would read past the last element
    ),
    "a transposed matrix": Kind(
        "(x: f32[128, 64]) { s: f32[64, 128] = permute[axes=(1, 0)](x); y: f32[64, 128] = exp(s); return y }",
        "<8 x float>",
    ),
    "backwards": Kind(
        "(x: f32[1000]) { s: f32[1000] = flip[axes=(0,)](x); y: f32[1000] = exp(s); return y }", "<8 x float>"
    ),
    "a causal mask": Kind(
        """(x: f32[64, 64]) {
        i: i64[64, 64] = iota[axis=1, shape=(64, 64), dtype=i64]();
        j: i64[64, 64] = iota[axis=0, shape=(64, 64), dtype=i64]();
        m: bool[64, 64] = le(i, j); z: f32[] = full[value=-1, dtype=f32, shape=()](); y: f32[64, 64] = where(m, x, z);
        return y
    }""",
        "<8 x float>",
    ),
    "a padded matrix": Kind(
        """(x: f32[64, 64]) {
        p: f32[66, 66] = pad[low=(1, 1), high=(1, 1), interior=(0, 0), value=0.0](x); y: f32[66, 66] = exp(p); return y
    }""",
        "<8 x float>",
    ),
    "joined pieces": Kind(
        """(x: f32[64, 64], z: f32[64, 64]) {
        p: f32[64, 128] = concatenate[axis=1](x, z); y: f32[64, 128] = exp(p); return y
    }""",
        "<8 x float>",
    ),
    "running sums of columns": Kind(
        "(x: f32[64, 128]) { y: f32[64, 128] = cumulative[kind='sum', axis=0](x); return y }", "<4 x double>"
    ),
    "extremes": Kind("(x: f32[64, 128]) { y: f32[64] = amin[axes=(1,)](x); return y }", "<8 x float>"),
    "positions of extremes": Kind("(x: f32[64, 128]) { y: i64[64] = argmax[axes=(1,)](x); return y }", "<8 x float>"),
    "open sizes": Kind(
        "(x: f32[n, m], b: f32[m]) { s: f32[n, m] = add(x, b); y: f32[n, m] = tanh(s); return y }",
        "<8 x float>",
        has_rest=True,  # a row may be shorter than a vector
    ),
}


HALVING = HostTarget(
    TARGET.triple, "skylake-avx512", f"{TARGET.features},+avx512bw,+avx512cd,+avx512dq,+avx512f,+avx512vl", 64
)
"""A processor for which LLVM takes half of a vector register."""


def optimised(graph: str, target: HostTarget = TARGET) -> list[str]:
    """LLVM's output for the kernels of a graph."""
    texts: dict[str, None] = {}
    for item in lowered_for_target(verify(parse_graph(graph))).entries:
        entries: tuple[Entry, ...] = item.entries if isinstance(item, BandEntry | BatchEntry) else (item,)
        texts |= dict.fromkeys(e.body for e in entries if isinstance(e.body, str) and "\n" in e.body)
    return [optimised_ir(text, target) for text in texts]


def innermost_loops(text: str) -> list[str]:
    """The blocks that branch to themselves, but for those that step over rare operands lane by lane."""
    found: list[str] = []
    for block in _BLOCK.split(text):
        name = block.partition(":")[0]
        if not name.startswith("lane") and re.search(rf"br i1 .*label %{re.escape(name)}\b", block):
            found.append(block)
    return found


def scalar_arithmetic(block: str) -> list[str]:
    """Arithmetic on single numbers; counting and addresses are not meant."""
    return [line.strip() for line in block.splitlines() if _ARITHMETIC.search(line) and not _VECTOR.search(line)]


@pytest.mark.parametrize("name", KINDS)
def test_innermost_loops_are_vectors(name: str) -> None:
    kind = KINDS[name]
    loops = [loop for text in optimised(kind.graph) for loop in innermost_loops(text)]
    vectors = [loop for loop in loops if kind.vector in loop]
    assert vectors, f"no loop has {kind.vector}"
    for loop in vectors if kind.has_rest else loops:
        assert not scalar_arithmetic(loop), loop


@pytest.mark.parametrize(
    ("op", "extent", "is_wide"),
    [("exp", "1000", True), ("exp", "n", True), ("exp", "24", False), ("neg", "1000", False)],
)
def test_long_loops_of_functions_take_whole_registers(op: str, extent: str, is_wide: bool) -> None:
    """Also where LLVM prefers half of one, which short loops and those that wait for memory keep."""
    (text,) = optimised(f"(x: f32[{extent}]) {{ y: f32[{extent}] = {op}(x); return y }}", HALVING)
    assert "<8 x float>" in text or is_wide
    assert ("<16 x float>" in text) == is_wide


def test_a_loop_that_is_not_vectorised_is_seen() -> None:
    """A running product is computed one element after the other."""
    (text,) = optimised("(x: f32[64, 128]) { y: f32[64, 128] = cumulative[kind='prod', axis=1](x); return y }")
    loops = innermost_loops(text)
    assert loops
    assert all(scalar_arithmetic(loop) for loop in loops)
