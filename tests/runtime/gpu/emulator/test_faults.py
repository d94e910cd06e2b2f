"""Planted faults are found in every order of lanes, and right kernels are not blamed."""

from __future__ import annotations

import numpy as np
import pytest

from autojit.runtime.gpu.emulator.findings import EmulatedFault
from tests.runtime.gpu.emulator.emulation import ORDERS, device, entry, launch, put

REVERSE = """
    mov.u32 %r1, %tid.x;
    cvt.u64.u32 %rd1, %r1;
    shl.b64 %rd2, %rd1, 2;
    ld.param.u64 %rd3, [p0];
    add.s64 %rd4, %rd3, %rd2;
    ld.global.b32 %r2, [%rd4];
    mov.u64 %rd5, tile;
    add.s64 %rd6, %rd5, %rd2;
    st.shared.b32 [%rd6], %r2;
    bar.sync 0;
    sub.s64 %rd7, 127, %rd1;
    shl.b64 %rd7, %rd7, 2;
    add.s64 %rd8, %rd5, %rd7;
    ld.shared.b32 %r3, [%rd8];
    ld.param.u64 %rd9, [p1];
    add.s64 %rd10, %rd9, %rd2;
    st.global.b32 [%rd10], %r3;
"""
TWO = ".param .u64 p0, .param .u64 p1"
TILE = ".shared .align 4 .b8 tile[512];"


def reverse(text: str, order: int | None) -> np.ndarray:
    driver = device(order)
    values = np.arange(128, dtype="u4")
    source, target = put(driver, values), driver.allocate(512)
    try:
        launch(driver, entry(text, TWO, TILE), source, target, threads=128)
        return driver.read(target, "u4", (128,))
    finally:
        driver.release(source)
        driver.release(target)


@pytest.mark.parametrize("order", ORDERS)
def test_a_right_kernel_is_right_and_not_blamed(order: int | None) -> None:
    np.testing.assert_array_equal(reverse(REVERSE, order), np.arange(128)[::-1])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        (("bar.sync 0;", ""), {"race within a block", "uninitialised read"}),
        (("ld.global.b32 %r2, [%rd4]", "ld.global.b32 %r2, [%rd4+4]"), {"out of bounds"}),
        (("st.global.b32 [%rd10]", "st.global.b32 [%rd10+512]"), {"out of bounds"}),
        (("st.global.b32 [%rd10]", "st.global.b32 [%rd10+2]"), {"misaligned"}),
        (("sub.s64 %rd7, 127", "sub.s64 %rd7, 128"), {"out of bounds"}),
    ],
)
def test_a_planted_fault_is_found(change: tuple[str, str], kinds: set[str], order: int | None) -> None:
    broken = REVERSE.replace(*change)
    assert broken != REVERSE
    with pytest.raises(EmulatedFault) as caught:
        reverse(broken, order)
    assert caught.value.kind in kinds
    assert caught.value.kernel == "kernel"
    assert caught.value.instruction
