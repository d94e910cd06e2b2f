"""Bands and batches: which kernels run slice by slice, which side by side, and what stays whole."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autojit.core.sizes import typical
from autojit.ir.index import Index, LoopVariable
from autojit.schedule.bands import Band, local_grains
from autojit.schedule.schedule import Schedule
from autojit.schedule.scheduler import schedule
from tests.fuzz_graphs import graph_case
from tests.on_cpu import cpu_with, optimize
from tests.schedule.shown import expected, kernels, machine, scheduled

FINE = cpu_with(least_bytes=1, slice_bytes=1024, least_slices=2)

LAYERS = """(x: f32[64, 8], w: f32[8, 16], v: f32[16, 4]) {{
    h: f32[64, 16] = matmul(x, w); a: f32[64, 16] = tanh(h); y: f32[64, 4] = matmul(a, v); return {}
}}"""

WHOLE = expected("""
    matmul f32[64, 8] @ f32[8, 16] (x, w) -> h {matmul}
    loops 1024, 0 accumulators (h) -> a {tanh}
    matmul f32[64, 16] @ f32[16, 4] (a, v) -> y {matmul}
""")


def bands(found: Schedule) -> list[Band]:
    return [item for item in found.kernels if isinstance(item, Band)]


def in_band(head: str, whole: str) -> str:
    return f"{head}\n{whole}\nend of band"


# -- when there is one


def test_kernels_over_the_same_rows_run_slice_by_slice() -> None:
    found = scheduled(LAYERS.format("y"), FINE)
    assert kernels(found) == in_band("band of 3 kernels, 8 slices, 1024 bytes per worker", WHOLE)
    assert found.memory.peak_bytes == 0  # what is inside takes memory for a slice alone


def test_without_numbers_for_bands_every_kernel_is_whole() -> None:
    found = scheduled(LAYERS.format("y"), machine(bands=None))
    assert kernels(found) == WHOLE
    assert found.memory.peak_bytes == 2 * 64 * 16 * 4


def test_what_fits_the_cache_anyway_is_not_sliced() -> None:
    inside = 2 * 64 * 16 * 4  # h and a
    assert bands(scheduled(LAYERS.format("y"), cpu_with(least_bytes=inside, slice_bytes=1024, least_slices=2)))
    assert not bands(scheduled(LAYERS.format("y"), cpu_with(least_bytes=inside + 1, slice_bytes=1024, least_slices=2)))


def test_slices_are_the_fewest_that_fit_the_cache() -> None:
    (large,) = bands(scheduled(LAYERS.format("y"), cpu_with(least_bytes=1, slice_bytes=1 << 20, least_slices=2)))
    assert (large.slices.count, large.local_bytes) == (2, 4096)
    (small,) = bands(scheduled(LAYERS.format("y"), cpu_with(least_bytes=1, slice_bytes=1, least_slices=2)))
    assert (small.slices.count, small.local_bytes) == (64, 128)  # no more slices than rows


def test_too_few_rows_are_one_slice() -> None:
    assert bands(scheduled(LAYERS.format("y"), cpu_with(least_bytes=1, slice_bytes=1024, least_slices=64)))
    assert not bands(scheduled(LAYERS.format("y"), cpu_with(least_bytes=1, slice_bytes=1024, least_slices=65)))


def test_a_value_that_is_read_after_the_band_is_stored_whole() -> None:
    (band,) = bands(scheduled(LAYERS.format("y, a"), FINE))
    assert {v.name for v in band.offsets} == {"h"}
    assert {v.name for v in band.writes()} == {"a", "y"}


# -- what a slice may read


READER = """(x: f32[64, 64]) {{
    a: f32[64, 64] = exp(x); m: f32[64, 64] = {}(a); d: f32[64, 64] = mul(a, m); return d
}}"""


def test_a_slice_reads_of_the_bands_values_what_the_same_slice_wrote() -> None:
    columns = scheduled(READER.format("flip[axes=(1,)]"), FINE)
    assert kernels(columns) == expected("""
        band of 2 kernels, 16 slices, 1024 bytes per worker
        loops 4096, 0 accumulators (x) -> a {exp}
        loops 64x64, 0 accumulators (a) -> d {mul}
        end of band
    """)
    for elsewhere in ("flip[axes=(0,)]", "permute[axes=(1, 0)]"):
        assert kernels(scheduled(READER.format(elsewhere), FINE)) == expected("""
            loops 4096, 0 accumulators (x) -> a {exp}
            loops 64x64, 0 accumulators (a) -> d {mul}
        """)


def _places(loops: list[LoopVariable]) -> Iterator[dict[LoopVariable, int]]:
    for places in product(*(range(v.extent) for v in loops)):
        yield dict(zip(loops, places, strict=True))


@given(st.data())
def test_slices_read_their_own_share_of_a_buffer(data: st.DataObject) -> None:
    """The law behind `local_grains`: cut into that many slices, slice s reads positions of slice s alone."""
    rows = [
        LoopVariable(f"r{k}", n) for k, n in enumerate(data.draw(st.lists(st.integers(2, 4), min_size=1, max_size=2)))
    ]
    inner = LoopVariable("i", data.draw(st.integers(1, 4)))
    loops = [*rows, inner]
    position = Index((), data.draw(st.integers(0, 3)))
    for variable in loops:
        position = position + Index.of(variable) * data.draw(st.integers(0, 12))
    total = prod(v.extent for v in rows)
    width = data.draw(st.integers(1, 16))
    grains = local_grains(rows, position, total * width)
    assert total % grains == 0
    if grains == 1:
        return
    for at in _places(loops):
        row = 0
        for variable in rows:
            row = row * variable.extent + at[variable]
        read = position.offset + sum(c * at[t] for t, c in position.terms if isinstance(t, LoopVariable))
        share = total * width // grains
        assert read // share == row // (total // grains)


# -- kernels that stay outside


def test_random_numbers_are_drawn_whole() -> None:
    found = scheduled(
        """(x: f32[64, 8], w: f32[8, 16], k: i64[2]) {
        h: f32[64, 16] = matmul(x, w); r: u32[64, 16] = random_bits[shape=(64, 16)](k);
        f: f32[64, 16] = cast[dtype=f32](r); a: f32[64, 16] = mul(h, f); return a
    }""",
        FINE,
    )
    assert kernels(found) == expected("""
        matmul f32[64, 8] @ f32[8, 16] (x, w) -> h {matmul}
        loops 1024, 0 accumulators (k, h) -> a {random_bits cast mul}
    """)


UPDATE = """(x: f32[64, 8], w: f32[8, 16], u: f32[64, 16]) {
    h: f32[64, 16] = matmul(x, w); a: f32[64, 16] = add(h, u); return a
}"""


def test_an_update_in_place_stays_outside() -> None:
    """It overwrites what others may still read."""
    assert bands(scheduled(UPDATE, FINE))
    assert not bands(scheduled(UPDATE, FINE, donated={0: 2}))


RUNNING = """(x: f32[64, 8], w: f32[8, 16], u: f32[64, 16]) {{
    h: f32[64, 16] = matmul(x, w); s: f32[64, 16] = cumulative[kind='sum', axis=0](u); a: f32[64, 16] = {}; return a, s
}}"""


def test_a_kernel_that_cannot_be_sliced_is_passed_over_with_what_depends_on_it() -> None:
    assert kernels(scheduled(RUNNING.format("tanh(h)"), FINE)) == expected("""
        band of 2 kernels, 4 slices, 1024 bytes per worker
        matmul f32[64, 8] @ f32[8, 16] (x, w) -> h {matmul}
        loops 1024, 0 accumulators (h) -> a {tanh}
        end of band
        cumulative (u) -> s {cumulative}
    """)
    assert not bands(scheduled(RUNNING.format("mul(h, s)"), FINE))


def test_a_product_packs_a_large_right_operand_for_enough_rows() -> None:
    """Every slice packs it again, so slices have at least so many rows."""
    sizes = {"least_bytes": 1, "slice_bytes": 1024, "least_slices": 2, "resident_bytes": 16}
    (band,) = bands(scheduled(LAYERS.format("y"), cpu_with(**sizes, rows_per_packing=16)))
    assert band.slices.count == 64 // 16
    assert not bands(scheduled(LAYERS.format("y"), cpu_with(**sizes, rows_per_packing=64)))


# -- sums over the rows


def test_column_sums_leave_a_partial_result_for_each_slice() -> None:
    found = scheduled(
        """(x: f32[64, 8], w: f32[8, 16]) {
        h: f32[64, 16] = matmul(x, w); a: f32[64, 16] = tanh(h); s: f32[16] = sum[axes=(0,)](a); t: f32[16] = neg(s);
        return t
    }""",
        FINE,
    )
    assert kernels(found) == expected("""
        band of 2 kernels, 4 slices, 1024 bytes per worker
        matmul f32[64, 8] @ f32[8, 16] (x, w) -> h {matmul}
        loops rows 64 inner 16, 0 row phases, 1 accumulators (h) -> s {tanh sum}
        end of band
        loops 16, 0 accumulators (s) -> t {neg}
    """)


WEIGHT = """(x: f32[640, 8], w: f32[8, 16]) {
    h: f32[640, 16] = matmul(x, w); a: f32[640, 16] = tanh(h); t: f32[8, 640] = permute[axes=(1, 0)](x);
    g: f32[8, 16] = matmul(t, a); return g
}"""


def test_a_small_product_over_the_rows_joins_what_makes_its_operand() -> None:
    assert kernels(scheduled(WEIGHT, FINE)) == expected("""
        band of 3 kernels, 80 slices, 1024 bytes per worker
        matmul f32[640, 8] @ f32[8, 16] (x, w) -> h {matmul}
        loops 10240, 0 accumulators (h) -> a {tanh}
        matmul f32[8, 640] @ f32[640, 16] (x, a) -> g {matmul}
        end of band
    """)
    smaller = cpu_with(least_bytes=1, slice_bytes=1024, least_slices=2, contracted_bytes=8 * 16 * 4 - 1)
    assert kernels(scheduled(WEIGHT, smaller)) == expected("""
        band of 2 kernels, 40 slices, 1024 bytes per worker
        matmul f32[640, 8] @ f32[8, 16] (x, w) -> h {matmul}
        loops 10240, 0 accumulators (h) -> a {tanh}
        end of band
        matmul f32[8, 640] @ f32[640, 16] (x, a) -> g {matmul}
    """)


def test_a_product_over_the_rows_of_an_argument_runs_by_itself() -> None:
    """Nothing of it is in cache."""
    found = scheduled(
        """(x: f32[640, 8], a: f32[640, 16]) {
        t: f32[8, 640] = permute[axes=(1, 0)](x); g: f32[8, 16] = matmul(t, a); n: f32[640, 16] = neg(a); return g, n
    }""",
        FINE,
    )
    assert not bands(found)


# -- open sizes


OPEN = LAYERS.format("y").replace("64", "n")


def test_slices_of_an_open_number_of_rows_follow_from_it() -> None:
    rows = cpu_with(least_bytes=1, slice_bytes=1024, least_slices=2, least_open_kernels=3, least_grains=16)
    (band,) = bands(scheduled(OPEN, rows))
    assert str(band.slices.grains) == "n"
    assert not band.slices.is_even
    assert typical(band.slices.size) % 16 == 0  # they begin at a cache line
    assert not bands(scheduled(OPEN, cpu_with(least_bytes=1, slice_bytes=1024, least_slices=2, least_open_kernels=4)))


# -- laws, on random graphs


@pytest.mark.parametrize("seed", range(0, 60, 2))
def test_values_inside_a_band_never_overlap_while_both_are_live(seed: int) -> None:
    graph, _ = graph_case(seed)
    for band in bands(schedule(optimize(graph), FINE)):
        span: dict[object, list[int]] = {}
        for time, kernel in enumerate(band.kernels):
            for value in (*kernel.writes(), *kernel.reads()):
                if value in band.offsets:
                    span.setdefault(value, []).append(time)
        for v, start in band.offsets.items():
            assert start + band.slice_bytes(v) <= band.local_bytes
            for w, other in band.offsets.items():
                if v is not w and span[v][0] <= span[w][-1] and span[w][0] <= span[v][-1]:
                    assert start + band.slice_bytes(v) <= other or other + band.slice_bytes(w) <= start


# -- batches


UPDATES = """(p: f32[300], g: f32[300], q: f32[200], h: f32[200]) {
    a: f32[300] = sub(p, g); b: f32[200] = sub(q, h); return a, b
}"""

TOGETHER = expected("""
    batch of 2 independent kernels
    loops 300, 0 accumulators (p, g) -> a {sub}
    loops 200, 0 accumulators (q, h) -> b {sub}
    end of batch
""")

SIDE_BY_SIDE = machine(batch_bytes=0, bands=None)


def test_independent_kernels_are_started_together_where_there_is_enough_to_do() -> None:
    touched = (3 * 300 + 3 * 200) * 4
    assert kernels(scheduled(UPDATES, machine(batch_bytes=touched))) == TOGETHER
    assert kernels(scheduled(UPDATES, machine(batch_bytes=touched + 1))) == expected("""
        loops 300, 0 accumulators (p, g) -> a {sub}
        loops 200, 0 accumulators (q, h) -> b {sub}
    """)


def test_updates_in_place_of_different_state_are_independent() -> None:
    assert kernels(scheduled(UPDATES, SIDE_BY_SIDE, donated={0: 0, 1: 2})) == TOGETHER


ALONE = {
    "reads what the other writes": """(p: f32[300]) {
        a: f32[300] = exp(p); f: f32[300] = flip[axes=(0,)](a); b: f32[300] = mul(f, a); return a, b
    }""",
    "leaves partial results to be combined": """(p: f32[300], q: f32[20]) {
        a: f32[] = sum[axes=(0,)](p); b: f32[20] = exp(q); return a, b
    }""",
    "is no loop nest": """(p: f32[9, 9], q: f32[20]) {
        a: f32[9, 9] = matmul(p, p); b: f32[20] = exp(q); return a, b
    }""",
}


@pytest.mark.parametrize("why", ALONE)
def test_a_kernel_runs_alone_that(why: str) -> None:
    assert "batch" not in kernels(scheduled(ALONE[why], SIDE_BY_SIDE))


def test_column_sums_that_keep_leading_rows_have_no_partial_results() -> None:
    found = scheduled(
        """(p: f32[3, 4, 5], q: f32[20]) { a: f32[3, 5] = sum[axes=(1,)](p); b: f32[20] = exp(q); return a, b }""",
        SIDE_BY_SIDE,
    )
    assert kernels(found) == expected("""
        batch of 2 independent kernels
        loops rows 3x4 inner 5, 0 row phases, 1 accumulators (p) -> a {sum}
        loops 20, 0 accumulators (q) -> b {exp}
        end of batch
    """)


def test_a_kernel_does_not_overwrite_what_another_of_the_batch_reads() -> None:
    """``b`` reads ``p``, in whose place ``a`` is written."""
    text = """(p: f32[300], g: f32[150]) {
        s: f32[150] = slice[starts=(0,), stops=(150,), steps=(1,)](p); b: f32[150] = mul(s, g); a: f32[300] = exp(p);
        return a, b
    }"""
    assert "batch of 2" in kernels(scheduled(text, SIDE_BY_SIDE))
    assert kernels(scheduled(text, SIDE_BY_SIDE, donated={0: 0})) == expected("""
        loops 150, 0 accumulators (p, g) -> b {mul}
        loops 300, 0 accumulators (p) -> a {exp}
    """)
