"""State: updates in place, what must be read before, what must not change when a step fails."""

from __future__ import annotations

import pytest

from tests.schedule.shown import expected, kernels, scheduled

# -- updates in place


def test_an_input_that_is_given_away_is_overwritten_by_its_new_value() -> None:
    text = "(p: f32[300], g: f32[300]) { q: f32[300] = sub(p, g); return q }"
    found = scheduled(text, donated={0: 0})
    assert kernels(found) == "loops 300, 0 accumulators (p, g) -> q {sub}"
    (kernel,) = found.kernels
    assert kernel.program.in_place == {found.outputs[0]: 0}  # type: ignore[union-attr]
    (other,) = scheduled(text).kernels
    assert other.program.in_place == {}  # type: ignore[union-attr]


def test_whoever_reads_the_old_value_runs_before() -> None:
    found = scheduled(
        """(p: f32[8, 8], g: f32[8, 8]) {
        q: f32[8, 8] = sub(p, g); m: f32[8, 8] = matmul(p, g); return q, m
    }""",
        donated={0: 0},
    )
    assert kernels(found) == expected("""
        matmul f32[8, 8] @ f32[8, 8] (p, g) -> m {matmul}
        loops 64, 0 accumulators (p, g) -> q {sub}
    """)


COPIED = {
    "a reader of the old value needs the new one": (
        """(p: f32[8], g: f32[8]) {
        q: f32[8] = add(p, g); f: f32[8] = flip[axes=(0,)](q); r: f32[8] = mul(f, p); return q, r
    }""",
        """
        loops 8, 0 accumulators (p, g) -> q {add}
        loops 8, 0 accumulators (q, p) -> r {mul}
        copy (q) -> new0 {}
    """,
    ),
    "its kernel reads the old value elsewhere": (
        "(p: f32[8]) { f: f32[8] = flip[axes=(0,)](p); q: f32[8] = add(p, f); return q }",
        """
        loops 8, 0 accumulators (p) -> q {add}
        copy (q) -> new0 {}
    """,
    ),
    "its kernel goes over the row once before": (
        """(p: f32[8, 8]) {
        s: f32[8] = sum[axes=(1,)](p); r: f32[8, 1] = reshape[shape=(8, 1)](s); q: f32[8, 8] = sub(p, r); return q
    }""",
        """
        loops rows 8 inner 8, 1 row phases, 0 accumulators (p) -> q {sum sub}
        copy (q) -> new0 {}
    """,
    ),
    "a product reads it in tiles": (
        "(p: f32[8, 8], g: f32[8, 8]) { q: f32[8, 8] = matmul(p, g); return q }",
        """
        matmul f32[8, 8] @ f32[8, 8] (p, g) -> q {matmul}
        copy (q) -> new0 {}
    """,
    ),
    "a scatter reads it for its elements": (
        """(p: f32[3], i: i64[3], s: f32[3]) {
        q: f32[3] = index_update[axis=0, combine='set'](s, p, i); return q
    }""",
        """
        index_update (s, p, i) -> q {index_update}
        copy (q) -> new0 {}
    """,
    ),
}


@pytest.mark.parametrize("why", COPIED)
def test_a_new_value_is_copied_at_the_end_where(why: str) -> None:
    text, schedule = COPIED[why]
    assert kernels(scheduled(text, donated={0: 0})) == expected(schedule)


def test_a_scatter_writes_into_its_base() -> None:
    text = """(p: f32[5], i: i64[3], s: f32[3]) {
        q: f32[5] = index_update[axis=0, combine='set'](p, s, i); return q
    }"""
    assert kernels(scheduled(text, donated={0: 0})) == "index_update (p, s, i) -> q {index_update}"


def test_two_values_that_change_places_are_not_lost() -> None:
    swapped = scheduled(
        "(p: f32[8], q: f32[8]) { a: f32[8] = neg(q); b: f32[8] = neg(p); return a, b }", donated={0: 0, 1: 1}
    )
    assert kernels(swapped) == expected("""
        loops 8, 0 accumulators (p) -> b {neg}
        loops 8, 0 accumulators (q) -> a {neg}
        copy (b) -> new1 {}
    """)


# -- outputs


def test_an_output_that_is_an_input_or_another_output_is_copied() -> None:
    found = scheduled("""(p: f32[8]) {
        q: f32[8] = exp(p); r: f32[4, 2] = reshape[shape=(4, 2)](q); return p, q, r
    }""")
    assert kernels(found) == expected("""
        loops 8, 0 accumulators (p) -> q {exp}
        copy (p) -> out0 {}
        copy (q) -> out2 {}
    """)


def test_an_output_that_nothing_computes_is_stored() -> None:
    assert kernels(scheduled("() { f: f32[4] = full[value=2, dtype=f32, shape=(4,)](); return f }")) == (
        "loops 4, 0 accumulators () -> f {full}"
    )


# -- operands that need storage


def test_products_read_transposed_and_sliced_operands_in_place() -> None:
    found = scheduled("""(x: f32[8, 6], w: f32[8, 10]) {
        t: f32[6, 8] = permute[axes=(1, 0)](x);
        s: f32[8, 4] = slice[starts=(0, 2), stops=(8, 10), steps=(1, 2)](w); y: f32[6, 4] = matmul(t, s); return y
    }""")
    assert kernels(found) == "matmul f32[6, 8] @ f32[8, 4] (x, w) -> y {matmul}"
    flipped = scheduled("""(x: f32[6, 8], w: f32[8, 4]) {
        f: f32[6, 8] = flip[axes=(1,)](x); y: f32[6, 4] = matmul(f, w); return y
    }""")
    assert kernels(flipped) == expected("""
        loops 6x8, 0 accumulators (x) -> f {flip}
        matmul f32[6, 8] @ f32[8, 4] (f, w) -> y {matmul}
    """)


def test_a_scatter_into_zeros_takes_no_base() -> None:
    scatter = """(i: i64[3], s: f32[3]) {{
        z: f32[8] = full[value={}, dtype=f32, shape=(8,)](); y: f32[8] = index_update[axis=0, combine='add'](z, s, i);
        return y
    }}"""
    assert kernels(scheduled(scatter.format(0))) == "index_update (s, i) -> y {index_update}"
    assert kernels(scheduled(scatter.format(1))) == expected("""
        loops 8, 0 accumulators () -> z {full}
        index_update (z, s, i) -> y {index_update}
    """)


def test_a_sum_of_products_is_accumulated_where_it_is_read_last() -> None:
    last = scheduled("""(a: f32[4, 4], b: f32[4, 4], c: f32[4, 4]) {
        p: f32[4, 4] = matmul(a, b); q: f32[4, 4] = matmul_add(b, c, p); return q
    }""")
    assert [(str(before), str(after)) for before, after in last.memory.aliases.items()] == [
        ("p: f32[4, 4]", "q: f32[4, 4]")
    ]
    read_later = scheduled("""(a: f32[4, 4], b: f32[4, 4], c: f32[4, 4]) {
        p: f32[4, 4] = matmul(a, b); q: f32[4, 4] = matmul_add(b, c, p); r: f32[4, 4] = add(q, p); return r
    }""")
    assert read_later.memory.aliases == {}


# -- steps that may fail

LOOKED_UP = """(p: f32[8], x: f32[5], i: i64[8]) {
    q: f32[8] = neg(p); y: f32[8] = index_select[axis=0](x, i); z: f32[8] = exp(y); return q, z
}"""


def test_what_lasts_is_written_behind_all_that_may_fail() -> None:
    assert kernels(scheduled(LOOKED_UP, donated={0: 0}, lasting=(0,))) == expected("""
        loops 8, 0 accumulators (i, x) -> z {exp}
        loops 8, 0 accumulators (p) -> q {neg}
    """)
    assert kernels(scheduled(LOOKED_UP, donated={0: 0})) == expected("""
        loops 8, 0 accumulators (p) -> q {neg}
        loops 8, 0 accumulators (i, x) -> z {exp}
    """)


def test_a_look_up_in_what_is_written_is_checked_before() -> None:
    """The check needs the indices alone; behind it the look-up cannot fail."""
    found = scheduled(
        """(p: f32[8], i: i64[8]) {
        q: f32[8] = exp(p); y: f32[8] = index_select[axis=0](q, i); z: f32[8] = exp(y); return q, z
    }""",
        donated={0: 0},
        lasting=(0,),
    )
    assert kernels(found) == expected("""
        loops 8, 0 accumulators (i) -> v0 {in_range}
        loops 8, 0 accumulators (p) -> q {exp}
        loops 8, 0 accumulators (i, q) -> z {exp}
    """)
    assert [kernel.nodes[0].op.name for kernel in found.failing] == ["in_range"]


def test_a_scatter_into_state_is_checked_before() -> None:
    text = """(p: f32[5], i: i64[3], s: f32[3]) {
        q: f32[5] = index_update[axis=0, combine='add'](p, s, i); return q
    }"""
    assert kernels(scheduled(text, donated={0: 0}, lasting=(0,))) == expected("""
        loops 3, 0 accumulators (i) -> v0 {in_range}
        index_update (p, s, i) -> q {index_update}
    """)
    assert kernels(scheduled(text, donated={0: 0})) == "index_update (p, s, i) -> q {index_update}"


def test_what_may_fail_and_lasts_in_one_kernel_goes_through_a_copy() -> None:
    found = scheduled(
        """(p: f32[8], x: f32[5], i: i64[8]) {
        y: f32[8] = index_select[axis=0](x, i); q: f32[8] = sub(p, y); return q
    }""",
        donated={0: 0},
        lasting=(0,),
    )
    assert kernels(found) == expected("""
        loops 8, 0 accumulators (p, i, x) -> q {sub}
        copy (q) -> new0 {}
    """)


def test_what_lasts_and_is_needed_by_what_may_fail_goes_through_a_copy() -> None:
    found = scheduled(
        """(p: i64[8], d: i64[8]) {
        q: i64[8] = add(p, d); f: i64[8] = flip[axes=(0,)](q); r: i64[8] = floor_divide(d, f); return q, r
    }""",
        donated={0: 0},
        lasting=(0,),
    )
    assert kernels(found) == expected("""
        loops 8, 0 accumulators (p, d) -> q {add}
        loops 8, 0 accumulators (d, q) -> r {floor_divide}
        copy (q) -> new0 {}
    """)


DIVIDED = "n: i64[] = full[value={}, dtype=i64, shape=()](); r: i64[3] = floor_divide(i, n); return r"
WRAPPED = """n: i64[] = full[value={}, dtype=i64, shape=()](); j: i64[3] = remainder(i, n);
    r: f32[3] = index_select[axis=0](x, j); return r"""


@pytest.mark.parametrize(
    ("nodes", "fails"),
    [
        (DIVIDED.format(2), False),
        (DIVIDED.format(0), True),
        ("r: i64[3] = floor_divide(i, i); return r", True),
        (WRAPPED.format(5), False),
        (WRAPPED.format(6), True),
        ("r: f32[3] = index_select[axis=0](x, i); return r", True),
    ],
)
def test_a_node_whose_operands_are_known_to_be_right_does_not_fail(nodes: str, fails: bool) -> None:
    found = scheduled(f"(x: f32[5], i: i64[3]) {{ {nodes} }}")
    assert bool(found.failing) == fails


# -- sizes that the step counts


def test_kernels_whose_loops_are_counted_run_behind_what_counts() -> None:
    """``f`` reads nothing of the mask, but has as many elements as it counts."""
    found = scheduled("""(x: f32[8], m: bool[8]) {
        f: f32[c] = full[value=1, dtype=f32, shape=(c,)]();
        i: i64[c] = positions[count=c, is_given=False](m); y: f32[c] = index_select[axis=0](x, i);
        z: f32[c] = add(y, f); e: f32[8] = exp(x); return z, e
    }""")
    assert kernels(found) == expected("""
        positions (m) -> i {positions}
        loops 8, 0 accumulators (x) -> e {exp}
        loops c, 0 accumulators (i, x) -> z {add}
    """)


def test_memory_for_counted_elements_is_planned_for_the_most_there_can_be() -> None:
    found = scheduled("""(x: f32[40], m: bool[40]) {
        i: i64[c] = positions[count=c, is_given=False](m); y: f32[c] = index_select[axis=0](x, i);
        t: f32[] = sum[axes=(0,)](y); return t
    }""")
    assert found.memory.arena_bytes == 40 * 8
    assert found.memory.regions == ()


# -- memory


def test_memory_is_used_again_when_its_value_is_dead() -> None:
    text = """(x: f32[{0}]) {{
        a: f32[{0}] = exp(x); f: f32[{0}] = flip[axes=(0,)](a); b: f32[{0}] = exp(f); g: f32[{0}] = flip[axes=(0,)](b);
        c: f32[{0}] = exp(g); h: f32[{0}] = flip[axes=(0,)](c); d: f32[{0}] = exp(h); return d
    }}"""
    fixed = scheduled(text.format(160)).memory
    assert {v.name: offset for v, offset in fixed.offsets.items()} == {"a": 0, "b": 640, "c": 0}
    assert fixed.arena_bytes == 2 * 640
    opened = scheduled(text.format("n")).memory
    assert {v.name: region for v, region in opened.region_of.items()} == {"a": 0, "b": 1, "c": 0}
    assert opened.arena_bytes == 0
