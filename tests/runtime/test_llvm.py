"""IR text to object files."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from autojit.codegen.target import HostTarget, host_target, vector_bytes_of
from autojit.core.errors import ArgumentError, CompileError
from autojit.runtime.host import VECTOR_BYTES, _limited, cached_host_target
from autojit.runtime.llvm import assembly, compile_all, compile_to_object, llvm_identity, optimised_ir

from .programs import run_python

SUM = """
define void @add(ptr noalias %a, ptr noalias %b) nounwind {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %n, %loop ]
  %p = getelementptr float, ptr %a, i64 %i
  %q = getelementptr float, ptr %b, i64 %i
  %x = load float, ptr %p
  %y = load float, ptr %q
  %z = fadd float %x, %y
  store float %z, ptr %p
  %n = add nuw nsw i64 %i, 1
  %c = icmp ult i64 %n, 1024
  br i1 %c, label %loop, label %out
out:
  ret void
}
"""


def test_equal_text_gives_equal_bytes() -> None:
    assert compile_to_object(SUM, host_target()) == compile_to_object(SUM, host_target())


def test_many_threads_give_the_bytes_of_one() -> None:
    texts = [SUM.replace("1024", str(1000 + n)) for n in range(6)]
    assert compile_all(texts, host_target()) == [compile_to_object(text, host_target()) for text in texts]
    assert compile_all([], host_target()) == []
    with pytest.raises(CompileError) as caught:
        compile_all([*texts, "nonsense"], host_target())
    kept_text(caught.value).unlink()


def test_a_fork_waits_for_the_compiler() -> None:
    output = run_python("""
    import os, threading, warnings
    from autojit.codegen.target import host_target
    from autojit.runtime.llvm import compile_to_object
    from programs import ADD_ONE
    warnings.simplefilter("ignore", DeprecationWarning)
    target, stop = host_target(), []
    def background():
        while not stop:
            compile_to_object(ADD_ONE, target)
    thread = threading.Thread(target=background)
    thread.start()
    for _ in range(10):
        child = os.fork()
        if child == 0:
            compile_to_object(ADD_ONE, target)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    stop.append(1)
    thread.join()
    print("done")
    """)
    assert output.strip() == "done"


def kept_text(error: CompileError) -> Path:
    found = re.search(r"text\s+(\S+)", str(error))
    assert found is not None
    return Path(found[1])


def test_rejected_text_is_kept_in_the_file_the_error_names() -> None:
    bad = SUM.replace("fadd float", "fadd double")
    with pytest.raises(CompileError, match="LLVM rejects") as caught:
        compile_to_object(bad, host_target())
    path = kept_text(caught.value)
    assert path.read_text() == bad
    path.unlink()


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
@pytest.mark.parametrize("cpu", ["host", "znver5", "cascadelake", "sapphirerapids"])
def test_code_uses_the_registers_asked_for_and_none_wider(cpu: str, vector_bytes: int) -> None:
    """Assembled only, so for processors that this machine is not."""
    host = host_target()
    if not host.triple.startswith("x86_64"):
        pytest.skip("register names of x86")
    wide = ",".join(["+avx2", "+avx512bw", "+avx512dq", "+avx512f", "+avx512vl", "+fma", "+sha512"])
    target = host if cpu == "host" else HostTarget(host.triple, cpu, wide, 64)
    if vector_bytes > target.vector_bytes:
        pytest.skip("this machine has no such registers")
    text = assembly(SUM, target.using_all_of(vector_bytes))
    widths = {64: "zmm", 32: "ymm", 16: "xmm"}
    assert widths[vector_bytes] in text
    assert all(widths[wider] not in text for wider in widths if wider > vector_bytes)


def test_a_width_this_machine_lacks_is_refused() -> None:
    host = replace(host_target(), vector_bytes=32)
    assert _limited(host, "") == host
    for wrong in ("64", "8", "many"):
        with pytest.raises(ArgumentError, match="no register width"):
            _limited(host, wrong)


def test_vector_width_needs_every_feature() -> None:
    triple = "x86_64-unknown-linux-gnu"
    full = frozenset({"+avx512f", "+avx512vl", "+avx512bw", "+avx512dq", "+avx2", "+fma"})
    assert vector_bytes_of(triple, full) == 64
    assert vector_bytes_of(triple, full - {"+avx512bw"}) == 32
    assert vector_bytes_of(triple, full - {"+avx512bw", "+fma"}) == 16
    assert vector_bytes_of("aarch64-unknown-linux-gnu", frozenset()) == 16


def test_compiles_for_another_machine() -> None:
    arm = HostTarget("aarch64-unknown-linux-gnu", "neoverse-n1", "+neon", 16)
    assert compile_to_object(SUM, arm)[18:20] == b"\xb7\x00"  # ELF's machine number of AArch64
    assert "fadd\tv" in assembly(SUM, arm)


def test_optimised_text_is_vectorised() -> None:
    assert "x float>" in optimised_ir(SUM, host_target())


def test_cached_target_is_the_hosts() -> None:
    assert cached_host_target() == _limited(host_target(), os.environ.get(VECTOR_BYTES, ""))
    assert llvm_identity() == llvm_identity()
