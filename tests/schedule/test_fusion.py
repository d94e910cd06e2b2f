"""Each rule of fusion: a graph to which it applies, and one to which it must not."""

from __future__ import annotations

import pytest

from autojit.schedule import fusion
from tests.schedule.shown import expected, kernels, machine, scheduled

# -- pointwise nodes


def test_a_node_joins_the_nest_that_makes_what_it_reads() -> None:
    joined = scheduled("(x: f32[4, 6]) { a: f32[4, 6] = exp(x); b: f32[4, 6] = neg(a); return b }")
    assert kernels(joined) == "loops 24, 0 accumulators (x) -> b {exp neg}"
    apart = scheduled("(x: f32[6], y: f32[4, 6]) { a: f32[6] = exp(x); b: f32[4, 6] = mul(y, a); return b }")
    assert kernels(apart) == expected("""
        loops 6, 0 accumulators (x) -> a {exp}
        loops 4x6, 0 accumulators (y, a) -> b {mul}
    """)


def test_a_node_joins_the_nest_of_another_reader() -> None:
    joined = scheduled("(x: f32[4, 6]) { a: f32[4, 6] = exp(x); b: f32[4, 6] = neg(x); return a, b }")
    assert kernels(joined) == "loops 24, 0 accumulators (x) -> a, b {exp neg}"
    apart = scheduled("(x: f32[24], y: f32[24]) { a: f32[24] = exp(x); b: f32[24] = neg(y); return a, b }")
    assert kernels(apart) == expected("""
        loops 24, 0 accumulators (x) -> a {exp}
        loops 24, 0 accumulators (y) -> b {neg}
    """)


def test_another_shape_of_the_same_elements_is_the_same_position() -> None:
    joined = scheduled("""(x: f32[4, 6]) {
        a: f32[4, 6] = exp(x); r: f32[24] = reshape[shape=(24,)](a); b: f32[24] = neg(r); return b
    }""")
    assert kernels(joined) == "loops 24, 0 accumulators (x) -> b {exp neg}"
    apart = scheduled("""(x: f32[6, 6]) {
        a: f32[6, 6] = exp(x); t: f32[6, 6] = permute[axes=(1, 0)](a); b: f32[6, 6] = neg(t); return b
    }""")
    assert kernels(apart) == expected("""
        loops 36, 0 accumulators (x) -> a {exp}
        loops 6x6, 0 accumulators (a) -> b {neg}
    """)


def test_a_value_of_the_nest_is_read_at_its_own_position_or_from_memory() -> None:
    """A node that reads a value twice, once elsewhere, waits until all of it is stored."""
    apart = scheduled("""(x: f32[4, 6]) {
        a: f32[4, 6] = exp(x); f: f32[4, 6] = flip[axes=(1,)](a); b: f32[4, 6] = mul(a, f); return b
    }""")
    assert kernels(apart) == expected("""
        loops 24, 0 accumulators (x) -> a {exp}
        loops 4x6, 0 accumulators (a) -> b {mul}
    """)


def test_a_nest_is_not_left_and_entered_again() -> None:
    """``b`` reads ``a`` where it is made, but waits for a product of it: in one nest, each would wait for the other."""
    apart = scheduled("""(x: f32[4, 6], w: f32[6, 6]) {
        a: f32[4, 6] = exp(x); m: f32[4, 6] = matmul(a, w); b: f32[4, 6] = add(a, m); return b
    }""")
    assert kernels(apart) == expected("""
        loops 24, 0 accumulators (x) -> a {exp}
        matmul f32[4, 6] @ f32[6, 6] (a, w) -> m {matmul}
        loops 24, 0 accumulators (a, m) -> b {add}
    """)


CHAIN = """(x0: f32[9], x1: f32[9], x2: f32[9], x3: f32[9], x4: f32[9]) {
    a: f32[9] = mul(x0, x1); b: f32[9] = mul(a, x2); c: f32[9] = mul(b, x3); d: f32[9] = mul(c, x4); return d
}"""


def test_a_nest_touches_as_many_buffers_as_the_machine_allows() -> None:
    assert kernels(scheduled(CHAIN)) == "loops 9, 0 accumulators (x0, x1, x2, x3, x4) -> d {mul mul mul mul}"
    assert kernels(scheduled(CHAIN, machine(most_buffers=3))) == expected("""
        loops 9, 0 accumulators (x0, x1, x2) -> b {mul mul}
        loops 9, 0 accumulators (b, x3, x4) -> d {mul mul}
    """)


def test_a_nest_has_a_bounded_number_of_members() -> None:
    count = fusion.MOST_MEMBERS + 1
    nodes = " ".join(f"v{k + 1}: f32[9] = neg(v{k});" for k in range(count))
    found = scheduled(f"(v0: f32[9]) {{ {nodes} return v{count} }}")
    assert [len(kernel.nodes) for kernel in found.kernels] == [fusion.MOST_MEMBERS, 1]  # type: ignore[union-attr]


# -- waiting

WAITING = """(x: f32[8], y: f32[8, 8]) {
    a: f32[8] = exp(x);
    f: f32[8] = flip[axes=(0,)](a); n: f32[8] = neg(f);
    m: f32[8, 8] = matmul(y, y); s: f32[8] = sum[axes=(0,)](m);
    b: f32[8] = mul(a, s);
    return n, b
}"""


def test_what_others_read_does_not_wait_in_a_small_nest() -> None:
    """``n`` needs ``a`` alone: in one nest with ``b`` it would wait for the product. Large nests gain more by it."""
    assert kernels(scheduled(WAITING)) == expected("""
        loops 8, 0 accumulators (x) -> a {exp}
        loops 8, 0 accumulators (a) -> n {neg}
        matmul f32[8, 8] @ f32[8, 8] (y, y) -> m {matmul}
        loops rows 8 inner 8, 0 row phases, 1 accumulators (m) -> s {sum}
        loops 8, 0 accumulators (a, s) -> b {mul}
    """)
    assert kernels(scheduled(WAITING, machine(small_domain=0))) == expected("""
        loops 8, 0 accumulators (x) -> a {exp}
        matmul f32[8, 8] @ f32[8, 8] (y, y) -> m {matmul}
        loops rows 8 inner 8, 0 row phases, 1 accumulators (m) -> s {sum}
        loops 8, 0 accumulators (a, s) -> n, b {neg mul}
    """)


def test_a_node_that_reads_nothing_of_a_nest_does_not_take_on_what_the_nest_waits_for() -> None:
    apart = scheduled("""(x: f32[8], y: f32[8, 8]) {
        m: f32[8, 8] = matmul(y, y); s: f32[8] = sum[axes=(0,)](m); a: f32[8] = mul(x, s); b: f32[8] = exp(x);
        return a, b
    }""")
    assert kernels(apart) == expected("""
        matmul f32[8, 8] @ f32[8, 8] (y, y) -> m {matmul}
        loops rows 8 inner 8, 0 row phases, 1 accumulators (m) -> s {sum}
        loops 8, 0 accumulators (x, s) -> a {mul}
        loops 8, 0 accumulators (x) -> b {exp}
    """)


# -- reductions


def test_rows_are_reduced_and_read_again_in_one_nest() -> None:
    softmax = scheduled("""(x: f32[64, 128]) {
        m: f32[64] = amax[axes=(1,)](x); a: f32[64, 1] = reshape[shape=(64, 1)](m); d: f32[64, 128] = sub(x, a);
        e: f32[64, 128] = exp(d); s: f32[64] = sum[axes=(1,)](e); b: f32[64, 1] = reshape[shape=(64, 1)](s);
        y: f32[64, 128] = div(e, b); return y
    }""")
    assert kernels(softmax) == expected("""
        loops rows 64 inner 128, 2 row phases, 0 accumulators (x) -> y {amax sub exp sum div}
    """)
    assert softmax.memory.peak_bytes == 0


def test_rows_columns_and_everything_are_reduced_in_one_pass() -> None:
    found = scheduled("""(x: f32[4, 6]) {
        r: f32[4] = sum[axes=(1,)](x); c: f32[6] = sum[axes=(0,)](x); t: f32[] = sum[axes=(0, 1)](x); return r, c, t
    }""")
    assert kernels(found) == "loops rows 4 inner 6, 1 row phases, 2 accumulators (x) -> r, c, t {sum sum sum}"


def test_what_is_reduced_over_rows_is_read_by_another_nest() -> None:
    columns = scheduled("(x: f32[4, 6]) { c: f32[6] = sum[axes=(0,)](x); n: f32[6] = neg(c); return n }")
    assert kernels(columns) == expected("""
        loops rows 4 inner 6, 0 row phases, 1 accumulators (x) -> c {sum}
        loops 6, 0 accumulators (c) -> n {neg}
    """)
    total = scheduled("""(x: f32[4, 6]) {
        a: f32[4, 6] = exp(x); t: f32[] = sum[axes=(0, 1)](a); b: f32[4, 6] = mul(a, t); return b
    }""")
    assert kernels(total) == expected("""
        loops 24, 1 accumulators (x) -> a, t {exp sum}
        loops 24, 0 accumulators (a, t) -> b {mul}
    """)


def test_a_number_a_row_joins_the_nest_if_it_reads_from_it() -> None:
    joined = scheduled("(x: f32[4, 6], y: f32[4]) { s: f32[4] = sum[axes=(1,)](x); n: f32[4] = mul(y, s); return n }")
    assert kernels(joined) == "loops rows 4 inner 6, 1 row phases, 0 accumulators (x, y) -> n {sum mul}"
    apart = scheduled("""(x: f32[4, 6], y: f32[4]) {
        s: f32[4] = sum[axes=(1,)](x); n: f32[4] = mul(y, y); return s, n
    }""")
    assert kernels(apart) == expected("""
        loops rows 4 inner 6, 1 row phases, 0 accumulators (x) -> s {sum}
        loops 4, 0 accumulators (y) -> n {mul}
    """)


def test_sums_of_rows_are_summed_in_the_nest_that_makes_them() -> None:
    joined = scheduled("(x: f32[4, 6]) { r: f32[4] = sum[axes=(1,)](x); t: f32[] = sum[axes=(0,)](r); return t }")
    assert kernels(joined) == "loops rows 4 inner 6, 1 row phases, 1 accumulators (x) -> t {sum sum}"
    apart = scheduled("""(x: f32[4, 6], y: f32[4]) {
        r: f32[4] = sum[axes=(1,)](x); t: f32[] = sum[axes=(0,)](y); return r, t
    }""")
    assert kernels(apart) == expected("""
        loops rows 4 inner 6, 1 row phases, 0 accumulators (x) -> r {sum}
        loops 4, 1 accumulators (y) -> t {sum}
    """)


def test_a_nest_is_split_into_rows_and_inner_loops_once() -> None:
    joined = scheduled("""(x: f32[4, 5, 6]) {
        a: f32[4] = sum[axes=(1, 2)](x); r: f32[4, 30] = reshape[shape=(4, 30)](x); b: f32[4] = amax[axes=(1,)](r);
        return a, b
    }""")
    assert kernels(joined) == "loops rows 4 inner 30, 1 row phases, 0 accumulators (x) -> a, b {sum amax}"
    apart = scheduled("""(x: f32[4, 5, 6]) {
        a: f32[4, 5] = sum[axes=(2,)](x); b: f32[4] = amax[axes=(1, 2)](x); return a, b
    }""")
    assert kernels(apart) == expected("""
        loops rows 20 inner 6, 1 row phases, 0 accumulators (x) -> a {sum}
        loops rows 4 inner 30, 1 row phases, 0 accumulators (x) -> b {amax}
    """)


def test_column_sums_of_a_nest_keep_the_same_leading_rows() -> None:
    joined = scheduled("""(x: f32[4, 5, 6]) {
        a: f32[4, 6] = sum[axes=(1,)](x); b: f32[4, 6] = amax[axes=(1,)](x); return a, b
    }""")
    assert kernels(joined) == "loops rows 4x5 inner 6, 0 row phases, 2 accumulators (x) -> a, b {sum amax}"
    apart = scheduled("""(x: f32[4, 5, 6]) {
        a: f32[6] = sum[axes=(0, 1)](x); b: f32[4, 6] = amax[axes=(1,)](x); return a, b
    }""")
    assert kernels(apart) == expected("""
        loops rows 20 inner 6, 0 row phases, 1 accumulators (x) -> a {sum}
        loops rows 4x5 inner 6, 0 row phases, 1 accumulators (x) -> b {amax}
    """)


def test_a_reduction_to_positions_begins_a_nest() -> None:
    """It counts along the inner loops, so it says itself how the nest is split; others join it."""
    found = scheduled("""(x: f32[4, 6]) {
        a: i64[4] = argmax[axes=(1,)](x); n: i64[4] = neg(a); e: f32[4, 6] = exp(x); return n, e
    }""")
    assert kernels(found) == "loops rows 4 inner 6, 2 row phases, 0 accumulators (x) -> n, e {argmax neg exp}"
    along_rows = scheduled("""(x: f32[4, 6]) {
        s: f32[4] = sum[axes=(1,)](x); a: i64[6] = argmax[axes=(0,)](x); return s, a
    }""")
    assert kernels(along_rows) == expected("""
        loops rows 4 inner 6, 1 row phases, 0 accumulators (x) -> s {sum}
        loops rows 6 inner 4, 2 row phases, 0 accumulators (x) -> a {argmax}
    """)


# -- nests that grow towards each other


def test_a_nest_is_joined_to_one_that_it_reads_from() -> None:
    joined = scheduled("""(x: f32[9], y: f32[9]) {
        a: f32[9] = exp(x); b: f32[9] = exp(y); c: f32[9] = add(a, b); return c
    }""")
    assert kernels(joined) == "loops 9, 0 accumulators (x, y) -> c {exp exp add}"


def test_nests_between_which_something_runs_are_not_joined() -> None:
    apart = scheduled("""(x: f32[9], y: f32[9]) {
        a: f32[9] = exp(x); b: f32[9] = exp(y); f: f32[9] = flip[axes=(0,)](a); c: f32[9] = add(b, f);
        d: f32[9] = mul(c, a); return d
    }""")
    assert kernels(apart) == expected("""
        loops 9, 0 accumulators (x) -> a {exp}
        loops 9, 0 accumulators (y, a) -> d {exp add mul}
    """)


def test_nests_that_are_split_differently_are_not_joined() -> None:
    apart = scheduled("""(x: f32[5, 5], y: f32[5, 5]) {
        r: f32[5] = sum[axes=(1,)](x); i: f32[5, 1] = reshape[shape=(5, 1)](r); a: f32[5, 5] = sub(x, i);
        p: f32[5, 5] = permute[axes=(1, 0)](y);
        c: i64[5] = argmax[axes=(0,)](y); b: f32[5, 5] = mul(a, y); return b, c
    }""")
    assert kernels(apart) == expected("""
        loops rows 5 inner 5, 1 row phases, 0 accumulators (x, y) -> b {sum sub mul}
        loops rows 5 inner 5, 2 row phases, 0 accumulators (y) -> c {argmax}
    """)


# -- what is looked at elsewhere than at its own position


@pytest.mark.parametrize(
    ("node", "reads"),
    [
        ("c: f32[12] = concatenate[axis=0](a, y)", "y, a"),
        ("c: f32[8] = slice_update[starts=(2,), steps=(1,)](a, y)", "a, y"),
    ],
)
def test_pieces_are_read_from_memory_and_the_whole_joins_its_reader(node: str, reads: str) -> None:
    size = node[node.index("[") + 1 : node.index("]")]
    found = scheduled(f"""(x: f32[8], y: f32[4]) {{
        a: f32[8] = exp(x); {node}; d: f32[{size}] = neg(c); return d
    }}""")
    op = node.split(" = ")[1].partition("[")[0]
    assert kernels(found) == expected(f"""
        loops 8, 0 accumulators (x) -> a {{exp}}
        loops {size}, 0 accumulators ({reads}) -> d {{{op} neg}}
    """)


def test_random_numbers_are_drawn_where_they_are_read() -> None:
    found = scheduled("""(k: i64[2], x: f32[8]) {
        r: u32[8] = random_bits[shape=(8,)](k); f: f32[8] = cast[dtype=f32](r); y: f32[8] = mul(f, x); return y
    }""")
    assert kernels(found) == "loops 8, 0 accumulators (k, x) -> y {random_bits cast mul}"


def test_units_run_in_the_order_of_their_creation_where_they_are_free() -> None:
    found = scheduled("""(x: f32[3, 3], y: f32[5]) {
        a: f32[3, 3] = matmul(x, x); b: f32[5] = exp(y); c: f32[3, 3] = matmul(x, a); return a, b, c
    }""")
    assert kernels(found) == expected("""
        matmul f32[3, 3] @ f32[3, 3] (x, x) -> a {matmul}
        loops 5, 0 accumulators (y) -> b {exp}
        matmul f32[3, 3] @ f32[3, 3] (x, a) -> c {matmul}
    """)
