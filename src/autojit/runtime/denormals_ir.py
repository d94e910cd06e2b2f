"""Numbers smaller than the least normal one: whether a thread's processor keeps them or takes them for zero.

That is a few bits of a register that every thread has: FTZ and DAZ of x86's MXCSR, FZ of AArch64's FPCR. A thread of
the pool takes over the bits of the thread whose job it works on, so that a result does not depend on who computed it.
"""

from __future__ import annotations

from autojit.codegen.module_text import ModuleText, Signature

FLUSH_BITS = Signature("flush_bits", "", "i32")
"""The bits of the calling thread."""
SET_FLUSH_BITS = Signature("set_flush_bits", "i32 bits")
FLUSH_DENORMALS = Signature("aj_flush_denormals", "i32 wanted")
"""Zero: the calling thread keeps them; else it does not."""

_BITS = {"x86_64": 0x8040, "aarch64": 1 << 24}

_GET = {
    "x86_64": """define internal i32 @flush_bits() {{
  %place = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %place)
  %all = load i32, ptr %place
  %found = and i32 %all, {bits}
  ret i32 %found
}}""",
    "aarch64": """define internal i32 @flush_bits() {{
  %all = call i64 @llvm.aarch64.get.fpcr()
  %low = trunc i64 %all to i32
  %found = and i32 %low, {bits}
  ret i32 %found
}}""",
}
_SET = {
    "x86_64": """define internal void @set_flush_bits(i32 %bits) {{
  %place = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %place)
  %all = load i32, ptr %place
  %others = and i32 %all, {rest}
  %new = or i32 %others, %bits
  store i32 %new, ptr %place
  call void @llvm.x86.sse.ldmxcsr(ptr %place)
  ret void
}}""",
    "aarch64": """define internal void @set_flush_bits(i32 %bits) {{
  %all = call i64 @llvm.aarch64.get.fpcr()
  %others = and i64 %all, {rest}
  %wide = zext i32 %bits to i64
  %new = or i64 %others, %wide
  call void @llvm.aarch64.set.fpcr(i64 %new)
  ret void
}}""",
}
_FLUSH = """define void @aj_flush_denormals(i32 %wanted) {{
  %is_wanted = icmp ne i32 %wanted, 0
  %bits = select i1 %is_wanted, i32 {bits}, i32 0
  call void @set_flush_bits(i32 %bits)
  ret void
}}"""


def can_flush(machine: str) -> bool:
    """Whether there is code for the processors of this name."""
    return machine in _BITS


def add_denormals(module: ModuleText, machine: str) -> None:
    """Define the functions above for a machine that can."""
    bits = _BITS[machine]
    for signature, texts in ((FLUSH_BITS, _GET[machine]), (SET_FLUSH_BITS, _SET[machine]), (FLUSH_DENORMALS, _FLUSH)):
        module.functions[signature.symbol] = texts.format(bits=bits, rest=~bits)
