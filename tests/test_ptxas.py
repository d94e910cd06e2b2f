"""The assembler of the tests: what it says of a kernel, and how a text that is wrong is told."""

from __future__ import annotations

import pytest

from tests.ptxas import ARCHITECTURES, Rejected, assemble, needs_ptxas, ptx_of

ADDING = """
define ptx_kernel void @kernel(ptr addrspace(1) noalias %x, ptr addrspace(1) noalias %y) {{
  %i = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %p = getelementptr float, ptr addrspace(1) %x, i32 %i
  %v = load float, ptr addrspace(1) %p
  %w = fadd float %v, {by}
  %q = getelementptr float, ptr addrspace(1) %y, i32 %i
  store float %w, ptr addrspace(1) %q
  ret void
}}
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
"""
ONE, TWO = ADDING.format(by="1.0"), ADDING.format(by="2.0")

UNKNOWN_BEFORE_AMPERE = """
define ptx_kernel void @kernel(ptr addrspace(1) %x) {
  %v = load i32, ptr addrspace(1) %x
  %w = call i32 @llvm.nvvm.redux.sync.add(i32 %v, i32 -1)
  store i32 %w, ptr addrspace(1) %x
  ret void
}
declare i32 @llvm.nvvm.redux.sync.add(i32, i32)
"""


@needs_ptxas
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_what_a_kernel_takes_of_a_gpu(architecture: str) -> None:
    texts = ptx_of([ONE, TWO], architecture)
    assert texts[0] != texts[1]
    for found in assemble(texts, architecture):
        assert 4 <= found.registers <= 16
        assert (found.stack_bytes, found.spilled_bytes, found.shared_bytes) == (0, 0, 0)


def test_what_llvm_cannot_select_is_told_with_its_text() -> None:
    assert "redux.sync" in ptx_of([UNKNOWN_BEFORE_AMPERE], "sm_80")[0]
    with pytest.raises(Rejected, match=r"(?s)sm_75: .*in text 1:.*redux"):
        ptx_of([ONE, UNKNOWN_BEFORE_AMPERE], "sm_75")


@needs_ptxas
def test_what_the_assembler_refuses_is_told_with_its_line() -> None:
    (text,) = ptx_of([ONE], "sm_90")
    with pytest.raises(Rejected, match=r"(?s)sm_90: .*in text 1, line \d+: .*add\.rn\.f99"):
        assemble([text, text.replace("add.rn.f32", "add.rn.f99")], "sm_90")
