"""Planted faults are found in every order of lanes, with the place; right kernels are not blamed."""

from __future__ import annotations

import re

import numpy as np
import pytest

from autojit.core.errors import CompileError
from autojit.runtime.gpu.emulator.driver import EmulatedDriver
from autojit.runtime.gpu.emulator.findings import EmulatedFault
from tests.runtime.gpu.emulator.emulation import ORDERS, Words, device, entry, launch, put

TWO = ".param .u64 p0, .param .u64 p1"
START = """
    mov.u32 %r1, %tid.x; mov.u32 %r28, %ctaid.x; mov.u32 %r29, %ntid.x; mad.lo.s32 %r30, %r28, %r29, %r1;
    cvt.u64.u32 %rd1, %r1; shl.b64 %rd2, %rd1, 2; mul.wide.u32 %rd31, %r30, 4;
    ld.param.u64 %rd3, [p0]; ld.param.u64 %rd9, [p1];
"""

# A row of 128 elements less its total: a block of four warps, shuffles, shared memory, three barriers.
ROW = f"""{START}
    add.s64 %rd4, %rd3, %rd31; ld.global.b32 %r2, [%rd4]; mov.b32 %r3, %r2;
    shfl.sync.bfly.b32 %r4, %r3, 16, 31, -1; add.u32 %r3, %r3, %r4;
    shfl.sync.bfly.b32 %r4, %r3, 8, 31, -1; add.u32 %r3, %r3, %r4;
    shfl.sync.bfly.b32 %r4, %r3, 4, 31, -1; add.u32 %r3, %r3, %r4;
    shfl.sync.bfly.b32 %r4, %r3, 2, 31, -1; add.u32 %r3, %r3, %r4;
    shfl.sync.bfly.b32 %r4, %r3, 1, 31, -1; add.u32 %r3, %r3, %r4;
    mov.u64 %rd5, parts; shr.u32 %r5, %r1, 5; mul.wide.u32 %rd6, %r5, 4; add.s64 %rd6, %rd5, %rd6;
    and.b32 %r6, %r1, 31; setp.eq.u32 %p1, %r6, 0;
    @%p1 st.shared.b32 [%rd6], %r3;
    bar.sync 0;
    ld.shared.v4.b32 {{%r10, %r11, %r12, %r13}}, [%rd5];
    add.u32 %r10, %r10, %r11; add.u32 %r12, %r12, %r13; add.u32 %r10, %r10, %r12;
    bar.sync 0;
    sub.u32 %r2, %r2, %r10;
    mov.u64 %rd7, tile; add.s64 %rd8, %rd7, %rd2; st.shared.b32 [%rd8], %r2;
    bar.sync 0;
    sub.s64 %rd11, 508, %rd2; add.s64 %rd12, %rd7, %rd11; ld.shared.b32 %r14, [%rd12];
    add.s64 %rd10, %rd9, %rd31; st.global.b32 [%rd10], %r14;
"""
SHARED = ".shared .align 16 .b8 parts[16]; .shared .align 4 .b8 tile[512];"


def rows(text: str, order: int | None, blocks: int = 3, shared: str = SHARED) -> tuple[np.ndarray, np.ndarray]:
    """What the kernel makes of rows, and what it should."""
    driver = device(order)
    values = np.random.default_rng(0).integers(0, 1000, (blocks, 128), dtype=np.uint32)
    source, target = put(driver, values), driver.allocate(values.nbytes)
    try:
        launch(driver, entry(text, TWO, shared), source, target, blocks=blocks, threads=128)
        found = driver.read(target, "u4", values.shape)
    finally:
        driver.release(source)
        driver.release(target)
    return found, (values - values.sum(1, dtype="u4", keepdims=True))[:, ::-1]


@pytest.mark.parametrize("order", ORDERS)
def test_a_right_kernel_is_right_and_not_blamed(order: int | None) -> None:
    np.testing.assert_array_equal(*rows(ROW, order))


BARRIER = "    bar.sync 0;\n"
FIRST, SECOND, THIRD = (tuple(k for k in range(3) if k != number) for number in range(3))


def without_barriers(*numbers: int) -> str:
    pieces = ROW.split(BARRIER)
    text = pieces[0]
    for number, piece in enumerate(pieces[1:]):
        text += ("" if number in numbers else BARRIER) + piece
    return text


RACES = {"race within a block", "uninitialised read"}
PLANTED: dict[str, tuple[str, set[str]]] = {
    "all barriers removed": (without_barriers(0, 1, 2), RACES),
    "the first barrier removed": (without_barriers(0), RACES),
    "the last barrier removed": (without_barriers(2), RACES),
    "loads one row too far": (
        ROW.replace("ld.global.b32 %r2, [%rd4]", "ld.global.b32 %r2, [%rd4+512]"),
        {"out of bounds"},
    ),
    "loads one element too far": (
        ROW.replace("ld.global.b32 %r2, [%rd4]", "ld.global.b32 %r2, [%rd4+4]"),
        {"out of bounds"},
    ),
    "stores one element too early": (
        ROW.replace("st.global.b32 [%rd10]", "st.global.b32 [%rd10+-4]"),
        {"out of bounds"},
    ),
    "stores 1 MiB too far": (ROW.replace("st.global.b32 [%rd10]", "st.global.b32 [%rd10+1048576]"), {"out of bounds"}),
    "misaligned": (ROW.replace("st.global.b32 [%rd10]", "st.global.b32 [%rd10+2]"), {"misaligned"}),
    "a vector that is misaligned": (ROW.replace("%r13}, [%rd5]", "%r13}, [%rd5+4]"), {"misaligned", "out of bounds"}),
    "reads what no warp wrote": (
        ROW.replace("setp.eq.u32 %p1, %r6, 0", "setp.eq.u32 %p1, %r1, 0"),
        {"uninitialised read"},
    ),
    "every lane writes the warp's word": (ROW.replace("@%p1 st.shared", "st.shared"), {"race within a block"}),
    "all warps write one word": (ROW.replace("st.shared.b32 [%rd6]", "st.shared.b32 [%rd5]"), {"race within a block"}),
    "blocks write the same row": (
        ROW.replace("add.s64 %rd10, %rd9, %rd31", "add.s64 %rd10, %rd9, %rd2"),
        {"race between blocks"},
    ),
    "in place, but all blocks of one row": (
        ROW.replace("add.s64 %rd10, %rd9, %rd31", "add.s64 %rd10, %rd3, %rd2"),
        {"race between blocks"},
    ),
    "a warp goes round the barrier": (
        ROW.replace("bar.sync 0;\n    ld", "setp.ge.u32 %p2, %r1, 96; @%p2 bra $over; bar.sync 0;\n$over:    ld", 1),
        {"divergent barrier", *RACES},
    ),
    "a warp ends before the barrier": (
        ROW.replace("bar.sync 0;\n    ld", "setp.ge.u32 %p2, %r1, 96; @%p2 ret; bar.sync 0;\n    ld", 1),
        {"divergent barrier"},
    ),
    "barriers of different numbers": (
        ROW.replace(
            "bar.sync 0;\n    ld", "setp.lt.u32 %p2, %r1, 96; selp.b32 %r20, 1, 0, %p2; bar.sync %r20;\n    ld", 1
        ),
        {"divergent barrier"},
    ),
    "a lane misses the shuffle": (
        ROW.replace("shfl", "setp.eq.u32 %p2, %r1, 33; @%p2 bra $over; shfl", 1).replace(
            "mov.u64 %rd5", "$over: mov.u64 %rd5"
        ),
        {"lane missing at a warp operation"},
    ),
    "a trap": (ROW.replace("mov.u64 %rd5", "setp.eq.u32 %p2, %r2, %r2; @%p2 trap; mov.u64 %rd5"), {"trap"}),
    "reads elements as if only read, and writes them": (
        ROW.replace("ld.global.b32", "ld.global.nc.b32").replace(
            "add.s64 %rd10, %rd9, %rd31", "add.s64 %rd10, %rd3, %rd31"
        ),
        {"read-only memory written"},
    ),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(name: str, order: int | None) -> None:
    text, kinds = PLANTED[name]
    assert text != ROW
    with pytest.raises(EmulatedFault) as caught:
        rows(text, order)
    fault = caught.value
    assert fault.kind in kinds
    assert fault.kernel == "kernel" and fault.function > 0
    assert fault.block is not None and 0 <= fault.block < 3
    assert fault.thread is not None and 0 <= fault.thread < 128
    assert fault.instruction.rstrip(";") in " ".join(text.split())
    for word in (fault.kind, "kernel", str(fault.block), str(fault.thread), fault.instruction):
        assert word in str(fault)


@pytest.mark.parametrize("order", ORDERS)
def test_a_shared_array_that_is_too_short_is_found(order: int | None) -> None:
    for shared in (SHARED.replace("512", "508"), SHARED.replace("parts[16]", "parts[12]")):
        with pytest.raises(EmulatedFault, match="out of bounds"):
            rows(ROW, order, shared=shared)


@pytest.mark.parametrize("order", ORDERS)
def test_a_barrier_that_is_not_needed_may_go(order: int | None) -> None:
    np.testing.assert_array_equal(*rows(without_barriers(1), order))


@pytest.mark.parametrize("order", ORDERS)
def test_rows_in_place_are_right(order: int | None) -> None:
    driver = device(order)
    values = np.arange(384, dtype="u4")
    source, other = put(driver, values), driver.allocate(4)
    text = (
        f"{START} add.s64 %rd4, %rd3, %rd31; ld.global.b32 %r2, [%rd4]; add.u32 %r2, %r2, 5; st.global.b32 [%rd4], %r2;"
    )
    launch(driver, entry(text, TWO), source, other, blocks=3, threads=128)
    np.testing.assert_array_equal(driver.read(source, "u4", (384,)), values + 5)


def test_a_fault_says_where_it_is_seen_from_the_blocks_around() -> None:
    driver = EmulatedDriver(memory_bytes=1 << 20, pinned_bytes=1 << 16)
    address = driver.allocate(100)
    text = "ld.param.u64 %rd1, [p0]; ld.global.b32 %r1, [%rd1+112];"
    with pytest.raises(EmulatedFault, match="12 bytes behind a block of 100 bytes"):
        launch(driver, entry(text), address)
    driver.close()


@pytest.mark.parametrize("order", ORDERS)
def test_what_nobody_wrote_is_not_read(order: int | None) -> None:
    driver = device(order)
    source, target = driver.allocate(512), driver.allocate(512)
    driver.write(source, np.zeros(127, "u4"))
    text = f"""{START}
        add.s64 %rd4, %rd3, %rd31; ld.global.b32 %r2, [%rd4]; add.s64 %rd5, %rd9, %rd31; st.global.b32 [%rd5], %r2;
    """
    with pytest.raises(EmulatedFault) as caught:
        launch(driver, entry(text, TWO), source, target, threads=128)
    assert (caught.value.kind, caught.value.thread, caught.value.address) == ("uninitialised read", 127, source + 508)


@pytest.mark.parametrize("order", ORDERS)
def test_what_was_released_is_not_used(order: int | None) -> None:
    driver = device(order)
    gone = put(driver, np.zeros(32, "u4"))
    driver.release(gone)
    for instruction in ("ld.global.b32 %r1, [%rd1];", "st.global.b32 [%rd1], 0;", "red.global.add.u32 [%rd1], 1;"):
        with pytest.raises(EmulatedFault) as caught:
            launch(driver, entry(f"ld.param.u64 %rd1, [p0]; {instruction}"), gone)
        assert caught.value.kind == "use after release"


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("address", [0, 16, 2**47, 2**63])
def test_addresses_of_nothing_are_found(address: int, order: int | None) -> None:
    for instruction in ("ld.global.b32 %r1, [%rd1];", "ld.b32 %r1, [%rd1];", "st.global.b32 [%rd1], 0;"):
        with pytest.raises(EmulatedFault, match="out of bounds"):
            launch(device(order), entry(f"ld.param.u64 %rd1, [p0]; {instruction}"), address)


@pytest.mark.parametrize("order", ORDERS)
def test_the_host_s_memory_is_not_the_device_s(order: int | None) -> None:
    values = np.zeros(64, "u4")
    with pytest.raises(EmulatedFault, match="out of bounds"):
        launch(device(order), entry("ld.param.u64 %rd1, [p0]; ld.global.b32 %r1, [%rd1];"), values.ctypes.data)


@pytest.mark.parametrize("order", ORDERS)
def test_atomics_race_with_what_is_not_atomic(order: int | None) -> None:
    driver = device(order)
    for instruction in ("st.global.b32 [%rd3], 1;", "ld.global.b32 %r2, [%rd3];"):
        target, other = put(driver, np.zeros(1, "u4")), put(driver, np.zeros(1, "u4"))
        text = f"{START} setp.eq.u32 %p1, %r30, 7; @%p1 bra $plain; red.global.add.u32 [%rd3], 1; ret;"
        text += f"$plain: {instruction}"
        with pytest.raises(EmulatedFault) as caught:
            launch(driver, entry(text, TWO), target, other, threads=32)
        assert caught.value.kind == "race within a block"


# Blocks leave partial results; the last one to count adds them up.
LAST = f"""{START}
    mul.wide.u32 %rd4, %r28, 4; add.s64 %rd5, %rd3, %rd4; setp.eq.u32 %p1, %r1, 0; mov.u64 %rd6, is_last;
    @!%p1 bra $wait;
    add.u32 %r2, %r28, 1; st.global.b32 [%rd5], %r2;
    fence.acq_rel.gpu;
    atom.global.add.u32 %r3, [%rd9], 1;
    fence.acq_rel.gpu;
    st.shared.b32 [%rd6], %r3;
$wait:
    bar.sync 0;
    ld.shared.b32 %r4, [%rd6]; setp.ne.u32 %p2, %r4, 4;
    @%p2 ret;
    setp.ge.u32 %p3, %r1, 5;
    @%p3 ret;
    add.s64 %rd7, %rd3, %rd2; ld.global.b32 %r5, [%rd7];
    add.s64 %rd8, %rd9, %rd2; st.global.b32 [%rd8+4], %r5;
"""
IS_LAST = ".shared .align 4 .b8 is_last[4];"


def last(text: str, order: int | None) -> list[int]:
    driver = device(order)
    partial, result = driver.allocate(20), driver.allocate(24)
    driver.write(result, np.zeros(1, "u4"))
    launch(driver, entry(text, TWO, IS_LAST), partial, result, blocks=5, threads=64)
    return driver.read(result, "u4", (6,)).tolist()


@pytest.mark.parametrize("order", ORDERS)
def test_the_last_block_may_read_what_the_others_published(order: int | None) -> None:
    for _ in range(5):  # every launch has an order of its own
        assert last(LAST, order) == [5, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    "change",
    [
        ("    fence.acq_rel.gpu;\n    atom", "    atom"),
        ("[%rd9], 1;\n    fence.acq_rel.gpu;", "[%rd9], 1;"),
        ("fence.acq_rel.gpu", "fence.acq_rel.cta"),
    ],
)
def test_the_last_block_may_not_read_what_was_not_published(change: tuple[str, str], order: int | None) -> None:
    broken = LAST.replace(*change)
    assert broken != LAST
    with pytest.raises(EmulatedFault) as caught:
        last(broken, order)
    assert caught.value.kind == "race between blocks"


@pytest.mark.parametrize("order", ORDERS)
def test_a_flag_passes_on_what_was_done_before_it(order: int | None) -> None:
    """One lane stores and releases a flag, another of another block acquires it in a loop."""
    driver = device(order)
    text = f"""{START}
        setp.eq.u32 %p1, %r28, 0;
        @%p1 bra $give;
    $again:
        ld.acquire.gpu.global.b32 %r2, [%rd9]; setp.eq.u32 %p2, %r2, 0;
        @%p2 bra $again;
        ld.global.b32 %r3, [%rd3]; st.global.b32 [%rd9+4], %r3;
        ret;
    $give:
        st.global.b32 [%rd3], 42; st.release.gpu.global.b32 [%rd9], 1;
    """
    for broken in (text, text.replace(".acquire", ".relaxed"), text.replace(".release", ".relaxed")):
        value, flag = driver.allocate(4), put(driver, np.zeros(2, "u4"))
        if broken == text:
            launch(driver, entry(broken, TWO), value, flag, blocks=2, threads=1)
            assert driver.read(flag, "u4", (2,)).tolist() == [1, 42]
        else:
            with pytest.raises(EmulatedFault, match="race between blocks"):
                launch(driver, entry(broken, TWO), value, flag, blocks=2, threads=1)


def test_a_kernel_without_end_is_a_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autojit.runtime.gpu.emulator.machine._MOST_STEPS", 500)
    driver = device()
    flag = put(driver, np.zeros(1, "u4"))
    text = (
        "ld.param.u64 %rd1, [p0]; $again: ld.volatile.global.b32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra $again;"
    )
    with pytest.raises(EmulatedFault) as caught:
        launch(driver, entry(text), flag)
    assert caught.value.kind == "deadlock"


def test_after_a_fault_the_device_works_on() -> None:
    driver = device()
    with pytest.raises(EmulatedFault):
        rows(without_barriers(0, 1, 2), None)
    np.testing.assert_array_equal(*rows(ROW, None))
    words = Words(1, 2)
    module = driver.load(driver.assemble(entry(ROW, TWO, SHARED), "sm_90"))
    with pytest.raises(EmulatedFault):
        driver.launch(driver.function(module, "kernel"), (1, 1, 1), 128, words.address, 0)
    np.testing.assert_array_equal(*rows(ROW, None))


def mutated(text: str, chance: np.random.Generator) -> str:
    """A text with one statement left out, moved, turned or spoilt."""
    statements = text.split(";")
    here, there = (int(k) for k in chance.integers(0, len(statements) - 1, 2))
    statement = statements[here]
    match chance.integers(0, 5):
        case 0:
            statements[here] = ""
        case 1:
            statements[here], statements[there] = statements[there], statement
        case 2:
            statements[here] = re.sub(r"\[(%rd\d+)", rf"[\1+{chance.choice([-8, 1, 2, 64, 4096])}", statement)
        case 3:
            statements[here] = re.sub(
                r"%(r|rd)\d+", lambda found: f"%{found[1]}{chance.integers(0, 32)}", statement, count=1
            )
        case _:
            added = ["bar.sync 0", "ret", "@%p1 ret", "shfl.sync.up.b32 %r1, %r1, 1, 0, -1", "exit", "trap", "nonsense"]
            statements[here] = f"\n{chance.choice(added)};{statement}"
    return ";".join(statements)


@pytest.mark.parametrize("order", ORDERS)
def test_a_spoilt_kernel_ends_in_numbers_or_in_an_error_of_ours(
    order: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autojit.runtime.gpu.emulator.machine._MOST_STEPS", 2000)
    chance = np.random.default_rng(0)
    outcomes = {"numbers": 0, "error": 0}
    for _ in range(80):
        text = mutated(ROW, chance)
        try:
            rows(text, order)
            outcomes["numbers"] += 1
        except (EmulatedFault, CompileError):
            outcomes["error"] += 1
    assert outcomes["error"] > 20 and outcomes["numbers"] > 10
