"""What a library does once in a process: look at the processor, set the pool up, hear of forks.

The first caller does it, others wait. It is also where the number of threads is kept.
"""

from __future__ import annotations

from autojit.codegen.module_text import Signature
from autojit.codegen.native_function import Junction, NativeFunction
from autojit.codegen.records import Field
from autojit.runtime.library.interface import ABI_VERSION, Code, Description
from autojit.runtime.pool_ir import PoolWords

READY = Signature("aj_export_ready", "", "i32")
"""OK, or why the library cannot run here."""

_CHECK = Signature("aj_export_check_processor", "", "i32")
_PAUSE = Signature("aj_pool_pause", "i64 count")
_CLOCK = Signature("clock_gettime", "i32 clock, ptr time", "i32")
_AFFINITY = Signature("sched_getaffinity", "i32 process, i64 bytes, ptr mask", "i32")
_AT_FORK = Signature("__register_atfork", "ptr prepare, ptr parent, ptr child, ptr library", "i32")
_RESET = Signature("aj_pool_reset")
_SET_THREADS = Signature("aj_export_set_threads", "i32 count", "i32")
_THREADS = Signature("aj_export_threads", "", "i32")

_SPIN_NS = 40_000  # as the pool of a process spins
_PAUSES = 1000
_LEAST_SPINS = 16
_MASK_BYTES = 128
_MONOTONIC = 1
_UNTOUCHED, _WORKING, _DONE = 0, 1, 2

_GLOBALS = """
; 2 when all is done; then what `aj_export_ready` gives
@aj_export_stage = internal global i32 0
@aj_export_status = internal global i32 0
@aj_pool = external global i8
"""


def write_ready(f: NativeFunction) -> None:
    """``aj_export_ready``, with the functions beside it."""
    module = f.module
    module.definitions["aj_export_stage"] = _GLOBALS
    module.declarations[_AT_FORK.symbol] = _AT_FORK.declaration.replace("declare ", "declare extern_weak ")
    module.declarations[_RESET.symbol] = _RESET.declaration
    NativeFunction.define(module, _CHECK, _write_check, linkage="internal")
    NativeFunction.define(module, _SET_THREADS, _write_set_threads)
    NativeFunction.define(module, _THREADS, _write_threads)
    NativeFunction.define(module, Signature("aj_export_abi_version", "", "i32"), lambda g: g.ret(ABI_VERSION))
    NativeFunction.define(module, Signature("aj_export_manifest", "", "ptr"), lambda g: g.ret("@aj_manifest"))
    module.definitions["aj_manifest"] = "@aj_manifest = external constant i8"
    wait = f.junction(stem="wait")
    f.return_when(
        f.test("eq", f.load("i32", "@aj_export_stage", "acquire"), _DONE, "i32"), f.load("i32", "@aj_export_status")
    )
    _, is_first = f.exchange("@aj_export_stage", _UNTOUCHED, _WORKING, "acq_rel acquire", "i32")
    f.go_unless(is_first, wait)
    status = f.call(_CHECK)
    with f.when(f.is_zero(status, "i32")):
        _prepare_pool(f)
        with f.when(f.is_set(f"@{_AT_FORK.symbol}", "ptr")):
            f.call(_AT_FORK, "null", "null", f"@{_RESET.symbol}", "null")
    f.store("i32", status, "@aj_export_status")
    f.store("i32", _DONE, "@aj_export_stage", "release")
    f.ret(status)
    f.begin(wait)
    f.call(_PAUSE, 100)
    again = f.test("ne", f.load("i32", "@aj_export_stage", "acquire"), _DONE, "i32")
    f.go_when(again, wait)
    f.ret(f.load("i32", "@aj_export_status"))


def _prepare_pool(f: NativeFunction) -> None:
    """How long a worker spins, in pauses of this processor; as many threads as cores, unless somebody has said."""
    time = f.local("[2 x i64]", 16)
    best = f.local("i64", 8)
    f.store("i64", 1 << 40, best)
    with f.loop(0, 3):
        start = _now(f, time)
        f.call(_PAUSE, _PAUSES)
        f.store("i64", f.least(f.load("i64", best), f.sub(_now(f, time), start)), best)
    elapsed = f.most(f.load("i64", best), 1)
    spins = f.most(f.quotient(_SPIN_NS * _PAUSES, elapsed), _LEAST_SPINS)
    f.store("i32", f.convert("trunc", spins, "i64", "i32"), _pool_word(PoolWords.spins.offset_bytes))
    mask = f.local(f"[{_MASK_BYTES // 8} x i64]", 16)
    count = f.local("i64", 8)
    f.fill_bytes(mask, 0, _MASK_BYTES)
    f.store("i64", 0, count)
    f.call(_AFFINITY, 0, _MASK_BYTES, mask)
    with f.loop(0, _MASK_BYTES // 8) as k:
        bits = f.value(f"call i64 @llvm.ctpop.i64(i64 {f.load('i64', f.element(mask, 'i64', k))})")
        f.store("i64", f.add(f.load("i64", count), bits), count)
    most = f.get("@aj_description", Description.most_threads)
    threads = f.convert("trunc", f.most(f.least(f.load("i64", count), most), 1), "i64", "i32")
    f.exchange(_pool_word(PoolWords.threads.offset_bytes), 0, threads, "seq_cst seq_cst", "i32")


def _now(f: NativeFunction, time: str) -> str:
    """Nanoseconds."""
    f.call(_CLOCK, _MONOTONIC, time)
    return f.add(f.mul(f.load("i64", time), 1_000_000_000), f.load("i64", f.element(time, "i64", 1)))


def _pool_word(offset_bytes: int) -> str:
    return f"getelementptr (i8, ptr @aj_pool, i64 {offset_bytes})"


def _write_set_threads(f: NativeFunction) -> None:
    """How many threads instances of the library use together, the caller's included."""
    (count,) = f.parameters
    most = f.convert("trunc", f.get("@aj_description", Description.most_threads), "i64", "i32")
    is_impossible = f.either(f.test("slt", count, 1, "i32"), f.test("sgt", count, most, "i32"))
    f.return_when(is_impossible, Code.THREADS.value)
    f.store("i32", count, _pool_word(PoolWords.threads.offset_bytes), "seq_cst")
    f.ret(Code.OK.value)


def _write_threads(f: NativeFunction) -> None:
    f.call(READY)
    f.ret(f.load("i32", _pool_word(PoolWords.threads.offset_bytes), "monotonic"))


def _write_check(f: NativeFunction) -> None:
    """Whether the processor has the instructions that the library was compiled to."""
    refused = f.junction(stem="refused")
    highest = _cpuid(f, 0, 0)[0]
    basic = _cpuid(f, 1, 0)[2]
    _require(f, basic, Description.leaf1_ecx, refused)
    wanted = f.get("@aj_description", Description.xcr0)
    with f.when(f.is_set(wanted)):
        f.go_when(f.is_zero(f.binary("and", basic, 1 << 27)), refused)  # the system saves the registers
        pair = f.value('call { i32, i32 } asm sideeffect "xgetbv", "={ax},={dx},{cx}"(i32 0)')
        saved = f.convert("zext", f.value(f"extractvalue {{ i32, i32 }} {pair}, 0"), "i32")
        f.go_when(f.is_set(f.binary("and", f.binary("xor", saved, -1), wanted)), refused)
    with f.when(f.test("sge", highest, 7)):
        _, ebx, ecx, edx = _cpuid(f, 7, 0)
        _require(f, ebx, Description.leaf7_ebx, refused)
        _require(f, ecx, Description.leaf7_ecx, refused)
        _require(f, edx, Description.leaf7_edx, refused)
        _require(f, _cpuid(f, 7, 1)[0], Description.leaf7_1_eax, refused)
    with f.otherwise():
        f.go_when(f.is_set(f.get("@aj_description", Description.leaf7_ebx)), refused)
    _require(f, _cpuid(f, -(1 << 31) + 1, 0)[2], Description.extended_ecx, refused)
    f.ret(Code.OK.value)
    f.begin(refused)
    f.ret(Code.PROCESSOR.value)


def _cpuid(f: NativeFunction, leaf: int, part: int) -> list[str]:
    """eax, ebx, ecx and edx."""
    four = "{ i32, i32, i32, i32 }"
    found = f.value(
        f'call {four} asm sideeffect "cpuid", "={{ax}},={{bx}},={{cx}},={{dx}},{{ax}},{{cx}}"(i32 {leaf}, i32 {part})'
    )
    return [f.convert("zext", f.value(f"extractvalue {four} {found}, {k}"), "i32") for k in range(4)]


def _require(f: NativeFunction, bits: str, word: Field[int], refused: Junction) -> None:
    wanted = f.get("@aj_description", word)
    missing = f.binary("and", f.binary("xor", bits, -1), wanted)
    f.go_when(f.is_set(missing), refused)
