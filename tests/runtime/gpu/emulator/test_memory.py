"""Memory as kernels see it: vectors, spaces, generic addresses, parameters, atomics, copies that land later."""

from __future__ import annotations

import itertools
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from autojit.runtime.gpu.emulator.findings import EmulatedFault
from tests.runtime.gpu.emulator.emulation import ORDERS, Words, device, elementwise, entry, launch, put

TWO = ".param .u64 p0, .param .u64 p1"
START = "mov.u32 %r30, %tid.x; cvt.u64.u32 %rd31, %r30; ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1];"


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("width", "parts"), [(8, 2), (8, 4), (16, 2), (16, 4), (32, 2), (32, 4), (64, 2), (32, 8)])
def test_vectors_are_elements_in_a_row(width: int, parts: int, order: int | None) -> None:
    driver = device(order)
    values = np.frombuffer(np.random.default_rng(0).bytes(32 * parts * width // 8), f"u{width // 8}")
    source, target = put(driver, values), driver.allocate(values.nbytes)
    name = {8: "%rs", 16: "%rs", 32: "%r", 64: "%rd"}[width]
    names = [f"{name}{10 + k}" for k in range(parts)]
    size = parts * width // 8
    text = f"""{START}
        mad.lo.s64 %rd3, %rd31, {size}, %rd1; mad.lo.s64 %rd4, %rd31, {size}, %rd2;
        ld.global.nc.v{parts}.b{width} {{{", ".join(names)}}}, [%rd3];
        st.global.v{parts}.b{width} [%rd4], {{{", ".join(names[::-1])}}};
    """
    launch(driver, entry(text, TWO), source, target)
    wanted = values.reshape(-1, parts)[:, ::-1]
    np.testing.assert_array_equal(driver.read(target, f"u{width // 8}", (32, parts)), wanted)


@pytest.mark.parametrize("order", ORDERS)
def test_generic_addresses_tell_their_space(order: int | None) -> None:
    """Every third lane reads its own local memory, shared memory, or global memory by one instruction."""
    text = """
        mov.u64 %rd1, mine; cvta.local.u64 %rd2, %rd1; mov.u64 %rd3, tile; cvta.shared.u64 %rd4, %rd3;
        mul.wide.u32 %rd5, %r30, 4; add.s64 %rd4, %rd4, %rd5;
        add.u32 %r20, %x0, 1000; st.local.b32 [%rd1+4], %r20; add.s64 %rd2, %rd2, 4;
        cvta.to.shared.u64 %rd7, %rd4; add.u32 %r20, %x0, 2000; st.shared.b32 [%rd7], %r20;
        rem.u32 %r21, %r30, 3; setp.eq.u32 %p1, %r21, 0; setp.eq.u32 %p2, %r21, 1;
        selp.b64 %rd6, %rd4, %rd20, %p1; selp.b64 %rd6, %rd2, %rd6, %p2;
        ld.b32 %y, [%rd6];
        st.b32 [%rd6], %y;
        isspacep.shared %p3, %rd6; isspacep.local %p4, %rd6;
        @%p3 add.u32 %y, %y, 10000; @%p4 add.u32 %y, %y, 20000;
    """
    x = np.arange(60, dtype="u4")
    got = elementwise(text, [x], "u4", order, ".shared .align 4 .b8 tile[240]; .local .align 4 .b8 mine[8];")
    wanted = np.choose(x % 3, [x + 12000, x + 21000, x])
    np.testing.assert_array_equal(got, wanted)


def test_constants_and_variables_are_the_module_s_own() -> None:
    variables = """
        .const .align 4 .b8 table[16] = {0, 0, 128, 63, 0, 0, 0, 64, 0, 0, 64, 64, 0, 0, 128, 64};
        .global .align 4 .u32 counter[2] = {5, 0x10};
        .global .align 8 .b8 zeros[64];
    """
    text = """
        and.b32 %r20, %r30, 3; mul.wide.u32 %rd1, %r20, 4; mov.u64 %rd2, table; add.s64 %rd2, %rd2, %rd1;
        ld.const.b32 %r21, [%rd2]; cvt.rzi.u32.f32 %y, %r21; ld.global.b32 %r22, [counter+4]; add.u32 %y, %y, %r22;
        mov.u64 %rd3, zeros; ld.global.b32 %r23, [%rd3+60]; add.u32 %y, %y, %r23;
    """
    x = np.arange(64, dtype="u4")
    np.testing.assert_array_equal(elementwise(text, [x], "u4", None, variables), x % 4 + 1 + 16)


@pytest.mark.parametrize("order", ORDERS)
def test_arguments_by_value_may_be_arrays(order: int | None) -> None:
    driver = device(order)
    words = np.random.default_rng(0).integers(0, 2**63, 32, dtype=np.int64)
    target = driver.allocate(520)
    text = """
        mov.u32 %r30, %tid.x; mul.wide.u32 %rd31, %r30, 8; ld.param.u64 %rd1, [p0]; add.s64 %rd1, %rd1, %rd31;
        mov.u64 %rd2, p2; add.s64 %rd3, %rd2, %rd31; ld.param.b64 %rd4, [%rd3];
        cvta.param.u64 %rd5, %rd3; ld.b64 %rd6, [%rd5]; setp.eq.b64 %p1, %rd4, %rd6; @!%p1 trap;
        ld.param.b64 %rd7, [p2+16]; ld.param.u8 %rs1, [p1]; cvt.u64.u16 %rd8, %rs1;
        add.s64 %rd4, %rd4, %rd7; add.s64 %rd4, %rd4, %rd8;
        st.global.b64 [%rd1], %rd4;
    """
    parameters = ".param .u64 .ptr .global .align 8 p0, .param .u8 p1, .param .align 8 .b8 p2[256]"
    launch(driver, entry(text, parameters), target, b"\x09", words.tobytes())
    np.testing.assert_array_equal(driver.read(target, "i8", (32,)), words + words[2] + 9)


def test_a_launch_may_add_shared_memory() -> None:
    driver = device()
    target = driver.allocate(128)
    text = """
        mov.u32 %r30, %tid.x; mul.wide.u32 %rd31, %r30, 4; mov.u64 %rd1, more; add.s64 %rd2, %rd1, %rd31;
        st.shared.b32 [%rd2], %r30; ld.shared.b32 %r1, [%rd2]; ld.param.u64 %rd3, [p0]; add.s64 %rd3, %rd3, %rd31;
        st.global.b32 [%rd3], %r1;
    """
    shared = ".extern .shared .align 16 .b8 more[]; .shared .align 4 .b8 other[20];"
    module = driver.load(driver.assemble(entry(text, shared=shared), "sm_90"))
    function, words = driver.function(module, "kernel"), Words(target)
    driver.launch_extents(function, (1, 1, 1), (32, 1, 1), 128, words.address, 0)
    np.testing.assert_array_equal(driver.read(target, "u4", (32,)), np.arange(32))
    with pytest.raises(EmulatedFault, match="out of bounds"):
        driver.launch_extents(function, (1, 1, 1), (32, 1, 1), 124, words.address, 0)


ATOMICS = {
    "add": (("u32", "s32", "u64", "f32", "f64", "f16", "bf16"), np.add),
    "min": (("u32", "s32", "u64", "s64"), np.minimum),
    "max": (("u32", "s32", "u64", "s64"), np.maximum),
    "and": (("b32", "b64"), np.bitwise_and),
    "or": (("b32", "b64"), np.bitwise_or),
    "xor": (("b32", "b64"), np.bitwise_xor),
}
DTYPES = {"u": "u", "b": "u", "s": "i", "f": "f"}


def dtype_of(name: str) -> np.dtype:
    if name == "bf16":
        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(f"{DTYPES[name[0]]}{int(name[1:]) // 8}")


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("word", "name"), [(word, name) for word, (names, _) in ATOMICS.items() for name in names])
def test_atomics_lose_no_lane(word: str, name: str, order: int | None) -> None:
    """Small whole numbers, so that sums do not depend on the order."""
    driver, dtype = device(order), dtype_of(name)
    values = np.random.default_rng(0).integers(0, 5, 96).astype(dtype)
    size = dtype.itemsize
    for space in ("global", "shared"):
        source, target = put(driver, values.view(f"u{size}")), put(driver, np.ones(4, dtype).view(f"u{size}"))
        register = {2: "%rs", 4: "%r", 8: "%rd"}[size] + "10"
        suffix = "noftz." if size == 2 else ""
        text = f"""{START}
            mad.lo.s64 %rd3, %rd31, {size}, %rd1; ld.global.b{8 * size} {register}, [%rd3]; and.b64 %rd4, %rd31, 3;
            mul.lo.s64 %rd4, %rd4, {size}; add.s64 %rd5, {"%rd2" if space == "global" else "%rd7"}, %rd4;
        """
        if space == "shared":
            text = text.replace("add.s64 %rd5", "mov.u64 %rd7, tile; add.s64 %rd5")
            text += f"""
                setp.lt.u32 %p1, %r30, 4; add.s64 %rd9, %rd2, %rd4; ld.global.b{8 * size} {register[:-2]}11, [%rd9];
                @%p1 st.shared.b{8 * size} [%rd5], {register[:-2]}11; bar.sync 0;
            """
        text += f"red.{space}.{word}.{suffix}{name} [%rd5], {register};"
        if space == "shared":
            text += f"""
                bar.sync 0; @!%p1 ret; ld.shared.b{8 * size} {register}, [%rd5];
                st.global.b{8 * size} [%rd9], {register};
            """
        launch(driver, entry(text, TWO, ".shared .align 8 .b8 tile[32];"), source, target, threads=96)
        got = driver.read(target, f"u{size}", (4,)).view(dtype)
        rows = values.reshape(-1, 4).astype("f8" if dtype.kind not in "ui" else dtype)
        wanted = ATOMICS[word][1].reduce(np.concatenate([np.ones((1, 4), rows.dtype), rows]), axis=0)
        np.testing.assert_array_equal(got.astype(rows.dtype), wanted)


@pytest.mark.parametrize("order", ORDERS)
def test_each_lane_sees_what_the_one_before_it_left(order: int | None) -> None:
    driver = device(order)
    counter, seen = put(driver, np.zeros(2, "u4")), driver.allocate(256)
    text = f"{START} atom.global.add.u32 %r1, [%rd1], 1; mad.lo.s64 %rd3, %rd31, 4, %rd2; st.global.b32 [%rd3], %r1;"
    launch(driver, entry(text, TWO), counter, seen, threads=64)
    found = driver.read(seen, "u4", (64,))
    assert sorted(found.tolist()) == list(range(64))
    assert (found.tolist() == list(range(64))) == (order is None)


def test_counters_wrap_and_exchanges_exchange() -> None:
    driver = device()
    for word, start, operands, wanted in (
        ("inc.u32", 0, "2", [0, 1, 2] * 10 + [0, 1]),
        ("dec.u32", 0, "2", [0, 2, 1] * 10 + [0, 2]),
        ("exch.b32", 5, "%r30", [5, *range(31)]),
        ("cas.b32", 0, "%r30, 7", [0, *[7] * 31]),
    ):
        counter, seen = put(driver, np.array([start], "u4")), driver.allocate(128)
        text = f"{START} atom.global.{word} %r1, [%rd1], {operands}; mad.lo.s64 %rd3, %rd31, 4, %rd2;"
        text += "st.global.b32 [%rd3], %r1;"
        launch(driver, entry(text, TWO), counter, seen)
        assert driver.read(seen, "u4", (32,)).tolist() == wanted


def test_vectors_and_pairs_are_added_part_by_part() -> None:
    driver = device()
    target = put(driver, np.zeros(2, "f4"))
    text = "ld.param.u64 %rd1, [p0]; red.global.v2.f32.add [%rd1], {%r1, %r2};"
    text = text.replace(".v2.f32.add", ".add.v2.f32").replace(
        "red", "mov.b32 %r1, 0f3F800000; mov.b32 %r2, 0f40000000; red"
    )
    launch(driver, entry(text), target)
    assert driver.read(target, "f4", (2,)).tolist() == [32.0, 64.0]
    halves = put(driver, np.zeros(2, "f2"))
    text = "ld.param.u64 %rd1, [p0]; mov.b32 %r1, 0x40003C00; red.global.add.noftz.f16x2 [%rd1], %r1;"
    launch(driver, entry(text), halves)
    assert driver.read(halves, "f2", (2,)).tolist() == [32.0, 64.0]


COPIES = """
    mov.u32 %r30, %tid.x; cvt.u64.u32 %rd31, %r30; ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1];
    shl.b64 %rd3, %rd31, 4; add.s64 %rd4, %rd1, %rd3; mov.u64 %rd5, tile; add.s64 %rd6, %rd5, %rd3;
    cp.async.cg.shared.global [%rd6], [%rd4], 16;
    cp.async.commit_group;
    and.b32 %r20, %r30, 1; shl.b32 %r20, %r20, 2;
    cp.async.ca.shared.global [%rd6+1024], [%rd4+4], 4, %r20;
    cp.async.commit_group;
    cp.async.wait_group 1;
    bar.sync 0;
    xor.b64 %rd7, %rd3, 16; add.s64 %rd8, %rd5, %rd7; ld.shared.v4.b32 {%r1, %r2, %r3, %r4}, [%rd8];
    cp.async.wait_all;
    bar.sync 0;
    ld.shared.b32 %r1, [%rd8+1024];
    add.s64 %rd9, %rd2, %rd3; st.global.v4.b32 [%rd9], {%r1, %r2, %r3, %r4};
"""
TILE = ".shared .align 16 .b8 tile[2048];"


def copied(text: str, order: int | None) -> tuple[np.ndarray, np.ndarray]:
    driver = device(order)
    values = np.arange(256, dtype="u4").reshape(64, 4)
    source, target = put(driver, values), driver.allocate(1024)
    launch(driver, entry(text, TWO, TILE), source, target, threads=64)
    wanted = values.copy()
    wanted[:, 0] = np.where(np.arange(64) % 2 == 1, values[:, 1], 0)
    return driver.read(target, "u4", (64, 4)), wanted[np.arange(64) ^ 1]


@pytest.mark.parametrize("order", ORDERS)
def test_copies_are_there_when_their_group_was_waited_for(order: int | None) -> None:
    np.testing.assert_array_equal(*copied(COPIES, order))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (("cp.async.wait_group 1;", ""), "uninitialised read"),
        (("cp.async.wait_group 1;", "cp.async.wait_group 2;"), "uninitialised read"),
        (("cp.async.wait_all;", ""), "uninitialised read"),
        (("cp.async.wait_all;\n    bar.sync 0;", "cp.async.wait_all;"), "race within a block"),
        (("[%rd4], 16", "[%rd4+16], 16"), "out of bounds"),
        (("[%rd6], [%rd4], 16", "[%rd6+8], [%rd4], 16"), "misaligned"),
    ],
)
def test_a_copy_that_is_not_waited_for_is_found(change: tuple[str, str], kind: str, order: int | None) -> None:
    broken = COPIES.replace(*change)
    assert broken != COPIES
    with pytest.raises(EmulatedFault) as caught:
        copied(broken, order)
    kinds = {kind, "uninitialised read"} if kind == "race within a block" else {kind}
    assert caught.value.kind in kinds


def test_what_a_load_may_say_besides_changes_nothing() -> None:
    x = np.arange(64, dtype="u4")
    hints = ["", ".ca", ".cg", ".cs", ".lu", ".volatile", ".relaxed.gpu", ".L1::no_allocate", ".L2::128B"]
    for hint, space in itertools.product(hints, (".global", "")):
        comes_first = hint in (".volatile", ".relaxed.gpu")
        opcode = f"ld{hint}{space}.b32" if comes_first else f"ld{space}{hint}.b32"
        np.testing.assert_array_equal(elementwise(f"{opcode} %y, [%rd20];", [x], "u4"), x)


_LIMITED = """
import resource, sys
limit = getattr(resource, sys.argv[1])
if sys.argv[2] != "none":
    resource.setrlimit(limit, (int(sys.argv[2]) << 20, resource.RLIM_INFINITY))
from autojit.runtime.gpu.emulator.driver import EmulatedDriver
driver = EmulatedDriver()
free, total = driver.free_and_total()
assert driver.allocate(total // 2)
print(total >> 20)
"""


@pytest.mark.parametrize("limit", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_the_device_fits_into_what_the_process_may_map(limit: str) -> None:
    def megabytes(most: str) -> int:
        command = [sys.executable, "-c", _LIMITED, limit, most]
        return int(subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout)

    assert 1 <= megabytes("2000") < megabytes("8000") < megabytes("none") == 4096
