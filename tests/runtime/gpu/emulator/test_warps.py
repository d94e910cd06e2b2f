"""What a warp's lanes do together: shuffles, votes, matches, reductions, products of tiles, in any order of lanes."""

from __future__ import annotations

import numpy as np
import pytest

from autojit.runtime.gpu.emulator.findings import EmulatedFault
from tests.runtime.gpu.emulator.emulation import ORDERS, device, elementwise, entry, launch, put

LANES = np.arange(64)


def values(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**32, 64, dtype=np.uint32)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("width", [32, 16, 8, 2])
def test_shuffles_read_within_segments(mode: str, width: int, order: int | None) -> None:
    x = values()
    segment = (32 - width) << 8
    for distance in (0, 1, 3, 7, 16, 31):
        limits = segment | (0 if mode == "up" else 31)
        text = f"shfl.sync.{mode}.b32 %r20|%p1, %x0, {distance}, {limits}, -1;"
        got = elementwise(f"{text} mov.b32 %y, %r20;", [x], "u4", order)
        truth = elementwise(f"{text} selp.b32 %y, 1, 0, %p1;", [x], "u4", order).astype(bool)
        lane = LANES % 32
        begin = lane // width * width
        source = {
            "up": lane - distance,
            "down": lane + distance,
            "bfly": lane ^ distance,
            "idx": begin + distance % width,
        }[mode]
        inside = (source >= begin) & (source < begin + width)
        if mode == "bfly":  # a smaller segment may be read: NVIDIA's table compares with the upper end alone
            inside = source < begin + width
        source = np.where(inside, source, lane)
        np.testing.assert_array_equal(truth, inside)
        np.testing.assert_array_equal(got, x[LANES // 32 * 32 + source])


@pytest.mark.parametrize("order", ORDERS)
def test_a_distance_may_differ_from_lane_to_lane(order: int | None) -> None:
    x, source = values(), np.random.default_rng(1).integers(0, 32, 64, dtype=np.uint32)
    got = elementwise("shfl.sync.idx.b32 %y, %x0, %x1, 31, -1;", [x, source], "u4", order)
    np.testing.assert_array_equal(got, x[LANES // 32 * 32 + source])


@pytest.mark.parametrize("order", ORDERS)
def test_votes_are_of_all_lanes_that_the_mask_names(order: int | None) -> None:
    x = values() % np.uint32(2)
    x[32:] = 1
    test = "setp.ne.b32 %p1, %x0, 0;"
    rows = x.reshape(2, 32).astype(bool)
    ballots = [sum(int(b) << k for k, b in enumerate(row)) for row in rows]
    got = elementwise(f"{test} vote.sync.ballot.b32 %y, %p1, -1;", [x], "u4", order)
    np.testing.assert_array_equal(got, np.repeat(ballots, 32))
    for mode, function in (("all", np.all), ("any", np.any)):
        got = elementwise(f"{test} vote.sync.{mode}.pred %p2, %p1, -1; selp.b32 %y, 1, 0, %p2;", [x], "u4", order)
        np.testing.assert_array_equal(got, np.repeat(function(rows, axis=1), 32))
    got = elementwise(f"{test} vote.sync.any.pred %p2, !%p1, -1; selp.b32 %y, 1, 0, %p2;", [x], "u4", order)
    np.testing.assert_array_equal(got, np.repeat(~rows.all(axis=1), 32))


@pytest.mark.parametrize("order", ORDERS)
def test_matches_name_the_lanes_with_equal_values(order: int | None) -> None:
    x = values() % np.uint32(5)
    x[32:] = 3
    rows = x.reshape(2, 32)
    equal = [[sum(int(a == b) << k for k, b in enumerate(row)) for a in row] for row in rows]
    got = elementwise("match.any.sync.b32 %y, %x0, -1;", [x], "u4", order)
    np.testing.assert_array_equal(got, np.array(equal).reshape(-1))
    got = elementwise("match.all.sync.b32 %r20|%p1, %x0, -1; selp.b32 %y, %r20, 7, %p1;", [x], "u4", order)
    np.testing.assert_array_equal(got, np.repeat([7, 2**32 - 1], 32))


@pytest.mark.parametrize("word", ["add", "min", "max", "and", "or", "xor"])
def test_reductions_are_over_the_lanes_that_the_mask_names(word: str) -> None:
    functions = {
        "add": np.add,
        "min": np.minimum,
        "max": np.maximum,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }
    kinds = ("u32", "s32") if word in ("add", "min", "max") else ("b32",)
    for kind in kinds:
        x = values().view("i4" if kind == "s32" else "u4")
        got = elementwise(f"redux.sync.{word}.{kind} %y, %x0, -1;", [x], x.dtype.str[1:], 1)
        wanted = [functions[word].reduce(row.reshape(2, 16), axis=1, dtype=x.dtype) for row in x.reshape(2, 32)]
        whole = [functions[word].reduce(row, dtype=x.dtype) for row in x.reshape(2, 32)]
        np.testing.assert_array_equal(got, np.repeat(whole, 32))
        halves = "and.b32 %r20, %r30, 16; shl.b32 %r21, 65535, %r20;"
        got = elementwise(f"{halves} redux.sync.{word}.{kind} %y, %x0, %r21;", [x], x.dtype.str[1:], 1)
        np.testing.assert_array_equal(got, np.repeat(np.array(wanted).reshape(-1), 16))


@pytest.mark.parametrize("order", ORDERS)
def test_parts_of_a_warp_may_meet_in_a_branch(order: int | None) -> None:
    text = """
        and.b32 %r20, %r30, 1; setp.eq.b32 %p1, %r20, 0; mov.b32 %y, 0;
        @%p1 bra $even;
        shfl.sync.bfly.b32 %y, %x0, 2, 31, 0xaaaaaaaa;
        bra $end;
    $even:
        shfl.sync.bfly.b32 %y, %x0, 4, 31, 0x55555555;
    $end:
        bar.warp.sync -1;
    """
    x = values()
    got = elementwise(text, [x], "u4", order)
    np.testing.assert_array_equal(got, np.where(LANES % 2 == 1, x[LANES ^ 2], x[LANES ^ 4]))


@pytest.mark.parametrize("order", ORDERS)
def test_lanes_that_run_together_are_active(order: int | None) -> None:
    got = elementwise("activemask.b32 %y;", [values()], "u4", order)
    own = np.uint32(1) << (LANES % 32).astype("u4")
    assert (got & own == own).all()
    if order is None:
        assert (got == 2**32 - 1).all()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    "text",
    [
        "setp.lt.u32 %p1, %r30, 40; @!%p1 bra $out; shfl.sync.bfly.b32 %y, %x0, 1, 31, -1; $out:",
        "setp.lt.u32 %p1, %r30, 40; @!%p1 ret; shfl.sync.bfly.b32 %y, %x0, 1, 31, -1;",
        "shfl.sync.bfly.b32 %y, %x0, 1, 31, 0xffff;",
        "and.b32 %r20, %r30, 15; setp.eq.b32 %p1, %r20, 3; @%p1 bra $out; bar.warp.sync -1; $out: mov.b32 %y, 0;",
        "and.b32 %r20, %r30, 16; shl.b32 %r21, 65535, %r20; shfl.sync.bfly.b32 %y, %x0, 16, 31, %r21;",
    ],
)
def test_a_lane_that_is_missing_is_named(text: str, order: int | None) -> None:
    with pytest.raises(EmulatedFault) as caught:
        elementwise(f"mov.b32 %y, 0; {text}", [values()], "u4", order)
    assert caught.value.kind == "lane missing at a warp operation"
    assert caught.value.thread is not None
    assert "sync" in caught.value.instruction


def fragments(tile: np.ndarray, width: int, is_left: bool) -> np.ndarray:
    """Words of each lane, from the layout of NVIDIA's PTX ISA: group ``g``, lane ``t`` in it."""
    group, lane = np.arange(32) >> 2, np.arange(32) & 3
    words = []
    per = 4 // width if width < 8 else 1
    steps = tile.shape[1 if is_left else 0] // (4 * per)
    for k in range(steps):
        for half in range(tile.shape[0] // 8 if is_left else 1):
            columns = 4 * per * k + per * lane[:, None] + np.arange(per)
            rows = group[:, None] + 8 * half
            part = tile[rows, columns] if is_left else tile[columns, rows]
            words.append(np.ascontiguousarray(part).view("u8" if width == 8 else "u4")[:, 0])
    return np.stack(words, axis=1)


PRODUCTS = {
    "m16n8k8.row.col.f32.tf32.tf32.f32": ("f4", 16, 8, "f4"),
    "m16n8k4.row.col.f32.tf32.tf32.f32": ("f4", 16, 4, "f4"),
    "m16n8k16.row.col.f32.f16.f16.f32": ("f2", 16, 16, "f4"),
    "m16n8k8.row.col.f32.f16.f16.f32": ("f2", 16, 8, "f4"),
    "m16n8k16.row.col.f32.bf16.bf16.f32": ("bf", 16, 16, "f4"),
    "m16n8k16.row.col.f16.f16.f16.f16": ("f2", 16, 16, "f2"),
    "m8n8k4.row.col.f64.f64.f64.f64": ("f8", 8, 4, "f8"),
    "m16n8k16.row.col.f64.f64.f64.f64": ("f8", 16, 16, "f8"),
}


@pytest.mark.parametrize("opcode", PRODUCTS)
def test_a_product_of_tiles_is_that_of_matrices(opcode: str) -> None:
    kind, rows, depth, sums = PRODUCTS[opcode]
    chance = np.random.default_rng(0)
    a, b, c = (chance.integers(-8, 9, shape).astype("f8") for shape in ((rows, depth), (depth, 8), (rows, 8)))
    stored = {"bf": lambda x: (x.astype("f4").view("u4") >> 16).astype("u2")}.get(kind, lambda x: x.astype(kind))
    width = {"bf": 2}.get(kind) or int(kind[1])
    group, lane = np.arange(32) >> 2, np.arange(32) & 3
    x, y = fragments(stored(a), width, True), fragments(stored(b), width, False)
    spread = [c[group + 8 * h][:, None, :][np.arange(32), 0, 2 * lane + e] for h in range(rows // 8) for e in range(2)]
    z = np.stack(spread, axis=1).astype(sums)
    z = z.view("u4") if sums == "f2" else z.view(f"u{sums[1]}")
    driver = device(1)
    places = [put(driver, np.ascontiguousarray(v)) for v in (x, y, z)]
    target = driver.allocate(z.nbytes)
    lines, groups = ["mov.u32 %r30, %tid.x; cvt.u64.u32 %rd31, %r30;"], []
    register = 0
    bits = 8 * x.itemsize
    name = "%rd" if bits == 64 else "%r"
    for place, words in enumerate((x, y, z)):
        count = words.shape[1]
        lines.append(f"ld.param.u64 %rd30, [p{place}]; mad.lo.s64 %rd30, %rd31, {count * words.itemsize}, %rd30;")
        names = [f"{name}{register + k}" for k in range(count)]
        lines += [f"ld.global.b{bits} {each}, [%rd30+{k * words.itemsize}];" for k, each in enumerate(names)]
        groups.append("{" + ", ".join(names) + "}")
        register += count
    lines.append(f"mma.sync.aligned.{opcode} {groups[2]}, {groups[0]}, {groups[1]}, {groups[2]};")
    lines.append(f"ld.param.u64 %rd30, [p3]; mad.lo.s64 %rd30, %rd31, {z.shape[1] * z.itemsize}, %rd30;")
    results = groups[2].strip("{}").split(", ")
    lines += [f"st.global.b{bits} [%rd30+{k * z.itemsize}], {each};" for k, each in enumerate(results)]
    launch(driver, entry("\n".join(lines), ", ".join(f".param .u64 p{k}" for k in range(4))), *places, target)
    got = driver.read(target, sums, (32, z.nbytes // 32 // np.dtype(sums).itemsize)).astype("f8")
    wanted = a @ b + c
    expected = [wanted[group + 8 * h, 2 * lane + e] for h in range(rows // 8) for e in range(2)]
    np.testing.assert_array_equal(got, np.stack(expected, axis=1))


@pytest.mark.parametrize("trans", ["", ".trans"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_tiles_of_shared_memory_come_as_fragments(count: int, trans: str) -> None:
    tiles = np.random.default_rng(0).integers(0, 2**16, (count, 8, 8), dtype=np.uint16)
    names = ", ".join(f"%r{k}" for k in range(count))
    driver = device(1)
    source, target = put(driver, tiles.reshape(-1)), driver.allocate(128 * count)
    text = f"""
        mov.u32 %r30, %tid.x; cvt.u64.u32 %rd31, %r30; ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1];
        mov.u64 %rd3, tile; shl.b64 %rd4, %rd31, 4; setp.ge.u32 %p1, %r30, {8 * count};
        @%p1 bra $meet;
        add.s64 %rd5, %rd1, %rd4; add.s64 %rd6, %rd3, %rd4;
        ld.global.v4.b32 {{%r10, %r11, %r12, %r13}}, [%rd5]; st.shared.v4.b32 [%rd6], {{%r10, %r11, %r12, %r13}};
    $meet:
        bar.sync 0;
        rem.u32 %r20, %r30, {8 * count}; mul.wide.u32 %rd7, %r20, 16; add.s64 %rd8, %rd3, %rd7;
        ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{names}}}, [%rd8];
        mad.lo.s64 %rd9, %rd31, {4 * count}, %rd2;
    """
    text += "".join(f"st.global.b32 [%rd9+{4 * k}], %r{k};\n" for k in range(count))
    shared = ".shared .align 16 .b8 tile[512];"
    launch(driver, entry(text, ".param .u64 p0, .param .u64 p1", shared), source, target)
    got = driver.read(target, "u2", (32, count, 2))
    seen = tiles.transpose(0, 2, 1) if trans else tiles
    group, lane = np.arange(32) >> 2, np.arange(32) & 3
    for k in range(count):
        for e in range(2):
            np.testing.assert_array_equal(got[:, k, e], seen[k, group, 2 * lane + e])
