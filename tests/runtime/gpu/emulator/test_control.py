"""Lanes part and meet again: branches, loops, calls, jumps by number, grids of every shape, in any order of lanes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.runtime.gpu.emulator.emulation import ORDERS, Words, device, elementwise, entry, launch, put


@pytest.mark.parametrize("order", ORDERS)
def test_every_lane_takes_as_many_turns_as_it_needs(order: int | None) -> None:
    """Collatz: turns and branches differ from lane to lane."""
    x = np.arange(1, 200, dtype="u4")
    text = """
        mov.b32 %y, 0; mov.b32 %r20, %x0;
    $again:
        setp.eq.u32 %p1, %r20, 1;
        @%p1 bra $end;
        add.u32 %y, %y, 1; and.b32 %r21, %r20, 1; setp.eq.u32 %p2, %r21, 0;
        @%p2 bra $even;
        mad.lo.u32 %r20, %r20, 3, 1;
        bra.uni $again;
    $even:
        shr.u32 %r20, %r20, 1;
        bra.uni $again;
    $end:
    """

    def turns(value: int) -> int:
        count = 0
        while value != 1:
            value = value // 2 if value % 2 == 0 else 3 * value + 1
            count += 1
        return count

    assert elementwise(text, [x], "u4", order).tolist() == [turns(int(v)) for v in x]


@pytest.mark.parametrize("order", ORDERS)
def test_jumps_by_number_go_where_the_table_says(order: int | None) -> None:
    x = np.resize(np.arange(4, dtype="u4"), 64)
    text = """
        $table: .branchtargets $a, $b, $c, $b;
        brx.idx %x0, $table;
    $a: mov.b32 %y, 10; bra $end;
    $b: mov.b32 %y, 11; bra $end;
    $c: mov.b32 %y, 12;
    $end:
    """
    assert elementwise(text, [x], "u4", order).tolist() == np.resize([10, 11, 12, 11], 64).tolist()


@pytest.mark.parametrize("order", ORDERS)
def test_an_address_of_all_lanes_is_read_and_replaced_by_some(order: int | None) -> None:
    x = np.arange(64, dtype="u4")
    table = ".global .align 4 .b8 table[16] = {1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0};"
    text = """
        mov.u64 %rd21, table;
        and.b32 %r20, %x0, 1; setp.eq.u32 %p1, %r20, 0;
        @%p1 bra $even;
        ld.global.u32 %y, [%rd21]; add.s64 %rd21, %rd21, 8; bra $end;
    $even:
        ld.global.u32 %y, [%rd21+4];
    $end:
        setp.lt.u32 %p2, %x0, 40;
        @%p2 bra $done;
        ld.global.u32 %y, [%rd21];
    $done:
    """
    expected = [(1 if n % 2 == 0 else 3) if n >= 40 else (2 if n % 2 == 0 else 1) for n in range(64)]
    assert elementwise(text, [x], "u4", order, table).tolist() == expected


CALLS = """
.version 8.0
.target sm_90
.address_size 64
.func (.param .align 16 .b8 func_retval0[16]) pair(
    .param .b32 pair_param_0, .param .b64 pair_param_1, .param .b32 pair_param_2
);
.func (.param .b32 func_retval0) twice(.param .b32 twice_param_0)
{
    .reg .b32 %r<4>;
    ld.param.b32 %r1, [twice_param_0];
    add.u32 %r2, %r1, %r1;
    st.param.b32 [func_retval0], %r2;
    ret;
}
.func (.param .align 16 .b8 func_retval0[16]) pair(
    .param .b32 pair_param_0,
    .param .b64 pair_param_1,
    .param .b32 pair_param_2
)
{
    .local .align 8 .b8 __local_depot0[32];
    .reg .b64 %SP;
    .reg .b64 %SPL;
    .reg .pred %p<2>;
    .reg .b16 %rs<3>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<9>;
    mov.b64 %SPL, __local_depot0;
    cvta.local.u64 %SP, %SPL;
    ld.param.b8 %rs1, [pair_param_2];
    setp.eq.b16 %p1, %rs1, 0;
    ld.param.b32 %r1, [pair_param_0];
    ld.param.b64 %rd1, [pair_param_1];
    and.b64 %rd2, %rd1, 7;
    shl.b64 %rd2, %rd2, 2;
    add.u64 %rd3, %SP, %rd2;
    st.b32 [%rd3], %r1;
    ld.local.b32 %r2, [%SPL+4];
    @%p1 bra $L__BB0_2;
    { // callseq 0, 0
    .param .b32 param0;
    .param .b32 retval0;
    st.param.b32 [param0], %r1;
    call.uni (retval0), twice, (param0);
    ld.param.b32 %r1, [retval0];
    } // callseq 0
$L__BB0_2:
    add.s64 %rd4, %rd1, 1;
    st.param.b64 [func_retval0+8], %rd4;
    st.param.b32 [func_retval0], %r1;
    ret;
}
.visible .entry kernel(.param .u64 p0, .param .u64 p1)
{
    .reg .pred %p<3>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<9>;
    mov.u32 %r1, %tid.x;
    cvt.u64.u32 %rd1, %r1;
    and.b32 %r2, %r1, 1;
    setp.ge.u32 %p1, %r1, 60;
    @%p1 bra $L__BB1_2;
    { // callseq 1, 0
    .param .b32 param0;
    .param .b64 param1;
    .param .b32 param2;
    .param .align 16 .b8 retval0[16];
    st.param.b32 [param2], %r2;
    st.param.b64 [param1], %rd1;
    st.param.b32 [param0], %r1;
    call.uni (retval0), pair, (param0, param1, param2);
    ld.param.b32 %r3, [retval0];
    ld.param.b64 %rd2, [retval0+8];
    } // callseq 1
    ld.param.b64 %rd3, [p0];
    ld.param.b64 %rd4, [p1];
    mad.lo.s64 %rd5, %rd1, 4, %rd3;
    mad.lo.s64 %rd6, %rd1, 8, %rd4;
    st.global.b32 [%rd5], %r3;
    st.global.b64 [%rd6], %rd2;
$L__BB1_2:
    ret;
}
"""


@pytest.mark.parametrize("order", ORDERS)
def test_functions_get_arguments_and_give_results(order: int | None) -> None:
    driver = device(order)
    first, second = put(driver, np.full(64, 7, "u4")), put(driver, np.full(64, 7, "u8"))
    launch(driver, CALLS, first, second, threads=64)
    lanes = np.arange(64)
    inside = lanes < 60
    np.testing.assert_array_equal(
        driver.read(first, "u4", (64,)), np.where(inside, np.where(lanes % 2, 2 * lanes, lanes), 7)
    )
    np.testing.assert_array_equal(driver.read(second, "u8", (64,)), np.where(inside, lanes + 1, 7))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("blocks", [(1, 1, 1), (5, 1, 1), (3, 2, 4), (300, 1, 1)])
@pytest.mark.parametrize("threads", [(1, 1, 1), (40, 1, 1), (8, 4, 2)])
def test_every_thread_of_every_block_runs_once(
    threads: tuple[int, int, int], blocks: tuple[int, int, int], order: int | None
) -> None:
    names = {"tid": "ntid", "ctaid": "nctaid"}
    lines = ["mov.b32 %r1, 0;"]
    for word in ("ctaid", "tid"):
        for axis in "zyx":
            lines.append(
                f"mov.u32 %r2, %{names[word]}.{axis}; mov.u32 %r3, %{word}.{axis}; mad.lo.s32 %r1, %r1, %r2, %r3;"
            )
    lines.append(
        "ld.param.u64 %rd1, [p0]; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd1, %rd1, %rd2; red.global.add.u32 [%rd1], 1;"
    )
    driver = device(order)
    count = int(np.prod(threads) * np.prod(blocks))
    target = put(driver, np.zeros(count, "u4"))
    module = driver.load(driver.assemble(entry("\n".join(lines)), "sm_90"))
    words = Words(target)
    driver.launch_extents(driver.function(module, "kernel"), blocks, threads, 0, words.address, 0)
    np.testing.assert_array_equal(driver.read(target, "u4", (count,)), 1)
    driver.release(target)
    driver.unload(module)


def test_a_lane_knows_its_warp() -> None:
    x = np.arange(96, dtype="u4")
    lane = x % 32
    wanted = {
        "laneid": lane,
        "warpid": x // 32,
        "nwarpid": np.full(96, 3),
        "lanemask_eq": 1 << lane.astype("u8"),
        "lanemask_lt": (1 << lane.astype("u8")) - 1,
        "lanemask_le": (2 << lane.astype("u8")) - 1,
        "lanemask_gt": 2**32 - (2 << lane.astype("u8")),
        "lanemask_ge": 2**32 - (1 << lane.astype("u8")),
    }
    for name, values in wanted.items():
        np.testing.assert_array_equal(elementwise(f"mov.u32 %y, %{name};", [x], "u4"), values, name)


@pytest.mark.parametrize("order", ORDERS)
def test_who_spins_does_not_keep_others_from_running(order: int | None) -> None:
    """A lock: the lanes of a warp take it one after the other, though those that wait are at a lower block."""
    text = """
        ld.param.u64 %rd1, [p0];
    $try:
        atom.acquire.gpu.global.cas.b32 %r1, [%rd1], 0, 1;
        setp.ne.u32 %p1, %r1, 0;
        @%p1 bra $try;
        ld.relaxed.gpu.global.b32 %r2, [%rd1+4]; add.u32 %r2, %r2, 1; st.relaxed.gpu.global.b32 [%rd1+4], %r2;
        atom.release.gpu.global.exch.b32 %r3, [%rd1], 0;
    """
    driver = device(order)
    target = put(driver, np.zeros(2, "u4"))
    launch(driver, entry(text), target, threads=7, blocks=2)
    assert driver.read(target, "u4", (2,)).tolist() == [0, 14]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("word", ["popc.u32", "and.pred", "or.pred"])
def test_a_barrier_may_count(word: str, order: int | None) -> None:
    x = np.random.default_rng(0).integers(0, 2, 96, dtype=np.uint32)
    target = "%y" if word == "popc.u32" else "%p2"
    text = f"setp.ne.u32 %p1, %x0, 0; bar.red.{word} {target}, 0, %p1;"
    if word != "popc.u32":
        text += "selp.b32 %y, 1, 0, %p2;"
    wanted = {"popc.u32": x.sum(), "and.pred": x.all(), "or.pred": x.any()}[word]
    np.testing.assert_array_equal(elementwise(text, [x], "u4", order), np.full(96, wanted))


@pytest.mark.parametrize("order", ORDERS)
def test_a_barrier_may_be_for_some_warps(order: int | None) -> None:
    """Two halves of a block meet at barriers of their own."""
    text = """
        mov.u64 %rd1, tile; mul.wide.u32 %rd2, %r30, 4; add.s64 %rd3, %rd1, %rd2; st.shared.b32 [%rd3], %x0;
        shr.u32 %r20, %r30, 6; add.u32 %r20, %r20, 1;
        barrier.sync %r20, 64;
        xor.b32 %r21, %r30, 63; mul.wide.u32 %rd2, %r21, 4; add.s64 %rd3, %rd1, %rd2; ld.shared.b32 %y, [%rd3];
    """
    x = np.arange(128, dtype="u4")
    got = elementwise(text, [x], "u4", order, ".shared .align 4 .b8 tile[512];")
    np.testing.assert_array_equal(got, x ^ 63)
