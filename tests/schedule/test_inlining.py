"""What has no storage: kinds of nodes, values that readers compute themselves, and the way to what is stored."""

from __future__ import annotations

import pytest

from autojit.codegen.cpu.machine import CPU_MACHINE
from autojit.core.dtypes import float16
from autojit.ir.index import Index, LoopVariable
from autojit.schedule.inlining import inline_values
from autojit.schedule.kinds import Kind, kinds_of
from autojit.schedule.pull import leaves, loop_indices
from tests.schedule.shown import expected, graph_of, kernels, machine, scheduled

# -- kinds

KINDS = {
    "y: f32[4] = tanh(x)": Kind.POINTWISE,
    "y: f32[4] = flip[axes=(0,)](x)": Kind.INLINE,
    "y: f32[4] = full[value=1, dtype=f32, shape=(4,)]()": Kind.INLINE,
    "y: f32[3] = index_select[axis=0](x, i)": Kind.INLINE,
    "y: f32[] = sum[axes=(0,)](x)": Kind.REDUCTION,
    "y: f32[2, 2] = matmul(m, m)": Kind.PRODUCT,
    "y: f32[8] = concatenate[axis=0](x, x)": Kind.POINTWISE,
    "y: f32[4] = cumulative[kind='sum', axis=0](x)": Kind.SINGLE,
    "y: f32[4] = zeta(x, x)": Kind.SINGLE,  # no lowering: it is called back
    "y: c64[4] = exp(c)": Kind.SINGLE,  # numbers of two parts
    "y: c64[4] = flip[axes=(0,)](c)": Kind.INLINE,  # moved, not computed with
    "y: f32[4] = real(c)": Kind.POINTWISE,
    "y: c64[4] = complex(x, x)": Kind.POINTWISE,
    "y: i64[2, 2] = matmul(j, j)": Kind.SINGLE,  # no tile code for these
}


@pytest.mark.parametrize("node", KINDS)
def test_the_kind_of_a_node(node: str) -> None:
    inputs = "x: f32[4], i: i64[3], m: f32[2, 2], j: i64[2, 2], c: c64[4]"
    graph = graph_of(f"({inputs}) {{ {node}; return y }}")
    assert list(kinds_of(graph, CPU_MACHINE).values()) == [KINDS[node]]


def test_a_machine_says_what_its_products_are_made_of() -> None:
    graph = graph_of("(x: f16[2, 2]) { y: f16[2, 2] = matmul(x, x); return y }")
    with_halves = machine(product_dtypes=CPU_MACHINE.product_dtypes | {float16})
    assert list(kinds_of(graph, CPU_MACHINE).values()) == [Kind.SINGLE]
    assert list(kinds_of(graph, with_halves).values()) == [Kind.PRODUCT]


def test_many_large_blocks_are_joined_by_copying_each() -> None:
    """They are asked for element by element where they are few, small, or pieces of rows."""
    blocks = "(x: f32[64], y: f32[64]) { z: f32[128] = concatenate[axis=0](x, y); return z }"
    rows = "(x: f32[2, 64], y: f32[2, 64]) { z: f32[2, 128] = concatenate[axis=1](x, y); return z }"
    copying = machine(many_blocks=2, block_bytes=256)
    assert kernels(scheduled(blocks)) == "loops 128, 0 accumulators (y, x) -> z {concatenate}"
    assert kernels(scheduled(blocks, copying)) == "concatenate (x, y) -> z {concatenate}"
    assert kernels(scheduled(blocks, machine(many_blocks=2, block_bytes=257))) == kernels(scheduled(blocks))
    assert kernels(scheduled(rows, copying)) == "loops 2x128, 0 accumulators (y, x) -> z {concatenate}"


# -- wholes whose parts products read


def test_what_products_read_part_by_part_is_stored_as_a_whole_where_that_is_no_more() -> None:
    part = (
        "{0}: f32[4, 8] = slice[starts=({1}, 0), stops=({2}, 8), steps=(1, 1)](rows); p{0}: f32[4, 3] = matmul({0}, w)"
    )
    head = "(x: f32[9, 8], i: i64[8], w: f32[8, 3]) { rows: f32[8, 8] = index_select[axis=0](x, i); "
    both = head + f"{part.format('a', 0, 4)}; {part.format('b', 4, 8)}; return pa, pb }}"
    assert "-> rows {index_select}" in kernels(scheduled(both))
    one = head + f"{part.format('a', 0, 4)}; return pa }}"
    assert "-> a {slice}" in kernels(scheduled(one))


# -- expansions


def _inline(text: str, expansion: int = CPU_MACHINE.expansion) -> list[str]:
    graph = graph_of(text)
    on = machine(expansion=expansion)
    return sorted(v.name for v in inline_values(graph, graph.definitions(), kinds_of(graph, on), on))


BIASES = "(x: f32[8, 1], y: f32[1, 8]) {{ s: f32[8, 8] = {}(x, y); e: f32[8, 8] = exp(s); return e }}"


def test_a_cheap_node_much_larger_than_what_it_reads_is_computed_where_it_is_read() -> None:
    """Sixteen numbers are read for sixty-four."""
    assert _inline(BIASES.format("add"), expansion=4) == ["s"]
    assert _inline(BIASES.format("add"), expansion=5) == []
    assert _inline(BIASES.format("atan2"), expansion=4) == []  # computing it twice costs more than storing it


def test_a_mask_of_positions_takes_no_memory() -> None:
    assert _inline("""() {
        i: i64[8, 8] = iota[axis=1, shape=(8, 8), dtype=i64](); j: i64[8, 8] = iota[axis=0, shape=(8, 8), dtype=i64]();
        m: bool[8, 8] = lt(i, j); n: bool[8, 8] = bitwise_not(m); return n
    }""") == ["i", "j", "m", "n"]


def test_a_reader_of_an_expansion_reads_what_is_behind_it() -> None:
    text = """(x: f32[8, 1], y: f32[1, 8], w: f32[8, 8]) {
        s: f32[8, 8] = add(x, y); e: f32[8, 8] = exp(s); p: f32[8, 8] = mul(s, w); r: f32[8, 8] = matmul(e, p); return r
    }"""
    assert kernels(scheduled(text, machine(expansion=4))) == expected("""
        loops 8x8, 0 accumulators (x, y, w) -> e, p {exp mul}
        matmul f32[8, 8] @ f32[8, 8] (e, p) -> r {matmul}
    """)


# -- parts

GATES = """(x: f32[8, 64], b: f32[64]) {{
    g: f32[8, 64] = add(x, b);
    i: f32[8, 32] = slice[starts=(0, {0}), stops=(8, {1}), steps=(1, 1)](g);
    o: f32[8, 32] = slice[starts=(0, {2}), stops=(8, {3}), steps=(1, 1)](g);
    s: f32[8, 32] = sigmoid(i); t: f32[8, 32] = tanh(o); y: f32[8, 32] = mul(s, t); return {4}
}}"""


def test_a_sum_whose_parts_are_read_apart_is_computed_where_they_are_read() -> None:
    joined = scheduled(GATES.format(0, 32, 32, 64, "y"))
    assert kernels(joined) == "loops 8x32, 0 accumulators (x, b) -> y {sigmoid tanh mul}"


@pytest.mark.parametrize("places", [(0, 32, 16, 48, "y"), (0, 32, 32, 64, "y, g"), (0, 32, 32, 64, "y, i")])
def test_a_sum_that_is_read_twice_or_whole_is_stored(places: tuple[object, ...]) -> None:
    first, *_ = kernels(scheduled(GATES.format(*places))).splitlines()
    assert first.startswith("loops 8x64, 0 accumulators (x, b) -> g")


def test_what_is_computed_for_the_parts_alone_goes_with_them() -> None:
    text = GATES.replace("g: f32[8, 64] = add(x, b)", "h: f32[8, 64] = mul(x, x); g: f32[8, 64] = add(h, b)")
    joined = scheduled(text.format(0, 32, 32, 64, "y"))
    assert kernels(joined) == "loops 8x32, 0 accumulators (x, b) -> y {sigmoid tanh mul}"
    apart = scheduled(text.format(0, 32, 32, 64, "y, h"))  # somebody else wants ``h``
    assert kernels(apart) == expected("""
        loops 512, 0 accumulators (x) -> h {mul}
        loops 8x32, 0 accumulators (h, b) -> y {sigmoid tanh mul}
    """)


def test_what_is_read_without_its_rim_is_computed_without_it_where_that_pays() -> None:
    text = """(x: f32[8, 8], b: f32[8, 8], w: f32[6, 6]) {
        g: f32[8, 8] = add(x, b); i: f32[6, 6] = slice[starts=(1, 1), stops=(7, 7), steps=(1, 1)](g);
        y: f32[6, 6] = mul(i, w); return y
    }"""
    assert kernels(scheduled(text, machine(least_parts=1))) == "loops 6x6, 0 accumulators (x, b, w) -> y {mul}"
    assert len(scheduled(text, machine(least_parts=2)).kernels) == 2
    shown = text.replace("return y", "return y, g")
    assert len(scheduled(shown, machine(least_parts=1)).kernels) == 2


# -- what is computed where its padding is read

STEP = """(u: f32[8, 8], c: f32[6, 6], w: f32[6, 6]) {{
    a: f32[6, 6] = slice[starts=(2, 1), stops=(8, 7), steps=(1, 1)](u);
    b: f32[6, 6] = slice[starts=(0, 1), stops=(6, 7), steps=(1, 1)](u);
    d: f32[6, 6] = sub(a, b); m: f32[6, 6] = mul(c, d);
    p: f32[8, 8] = pad[low=(1, 1), high=(1, 1), interior=(0, 0), value=0](m);
    y: f32[8, 8] = add(u, p); z: f32[6, 6] = {0}; return y, z
}}"""


def test_a_step_of_a_stencil_is_one_kernel_and_keeps_nothing_for_its_derivative() -> None:
    """The derivative reads the cells again; what a caller sees is stored."""
    kept = STEP.format("mul(w, d)")
    large = machine(small_domain=0)
    assert kernels(scheduled(kept, large)) == expected("""
        loops 8x8, 0 accumulators (u, c) -> y {add}
        loops 6x6, 0 accumulators (w, u) -> z {mul}
    """)
    assert "-> m, z" in kernels(scheduled(kept, machine(small_domain=0, computes_padded=False)))
    assert "-> m, z" in kernels(scheduled(kept))  # small
    assert "-> m" in kernels(scheduled(kept.replace("return y", "return m, y"), large))


def test_what_many_read_is_stored() -> None:
    """Two buffers, four readers: eight reads are no fewer than six and a write. With three readers, six are."""
    pads = ((1, 1, 1, 1), (2, 1, 0, 1), (0, 1, 2, 1), (1, 2, 1, 0))
    for number in (3, 4):
        nodes = [f"p{k}: f32[8, 8] = pad[low=({a}, {b}), high=({c}, {d}), interior=(0, 0), value=0](m)"
                 for k, (a, b, c, d) in enumerate(pads[:number])]  # fmt: skip
        nodes += [f"t{k}: f32[8, 8] = add({'u' if k == 0 else f't{k - 1}'}, p{k})" for k in range(number)]
        text = STEP.format("mul(w, w)").replace("return y", f"{'; '.join(nodes)}; return t{number - 1}")
        found = kernels(scheduled(text.replace("y: f32[8, 8] = add(u, p); ", ""), machine(small_domain=0)))
        assert ("-> m" in found) == (number == 4)


# -- the way to what is stored


def _leaves(text: str) -> dict[str, tuple[Index, ...]]:
    graph = graph_of(text)
    definitions = graph.definitions()
    inline = inline_values(graph, definitions, kinds_of(graph, CPU_MACHINE), CPU_MACHINE)
    (output,) = graph.outputs
    found = leaves(output, loop_indices(output.type.shape), definitions, inline)
    return {value.name: index for value, index in found}


i0, i1 = (Index.of(LoopVariable(f"i{axis}", n)) for axis, n in enumerate((4, 6)))


@pytest.mark.parametrize(
    ("nodes", "position"),
    [
        ("y: f32[4, 6] = permute[axes=(1, 0)](x)", (i1, i0)),
        ("f: f32[6, 4] = flip[axes=(0,)](x); y: f32[4, 6] = permute[axes=(1, 0)](f)", (i1 * -1 + 5, i0)),
        ("r: f32[24] = reshape[shape=(24,)](x); y: f32[4, 6] = reshape[shape=(4, 6)](r)", None),
    ],
)
def test_reindexing_is_followed_to_the_buffer(nodes: str, position: tuple[Index, ...] | None) -> None:
    found = _leaves(f"(x: f32[6, 4]) {{ {nodes}; return y }}")
    whole = i0 * 6 + i1
    assert found == {"x": position or (whole // 4, whole % 4)}


def test_a_gather_reads_its_indices_and_sources_read_nothing() -> None:
    assert set(_leaves("(x: f32[5, 6], i: i64[4]) { y: f32[4, 6] = index_select[axis=0](x, i); return y }")) == {
        "x",
        "i",
    }
    assert _leaves("() { y: f32[4, 6] = full[value=1, dtype=f32, shape=(4, 6)](); return y }") == {}
