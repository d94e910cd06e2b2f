"""Small native programs and helpers that the runtime's tests share."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from autojit.codegen.target import HostTarget
from autojit.runtime.host import cached_host_target
from autojit.runtime.object_cache import default_cache

TIMEOUT_S = 600  # only what hangs takes it: a busy machine is slow

ADD_ONE = """
define void @aj_step(ptr %table) nounwind {
entry:
  %in = load ptr, ptr %table
  %out.at = getelementptr ptr, ptr %table, i64 1
  %out = load ptr, ptr %out.at
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %x.at = getelementptr float, ptr %in, i64 %i
  %x = load float, ptr %x.at
  %y = fadd float %x, 1.0
  %y.at = getelementptr float, ptr %out, i64 %i
  store float %y, ptr %y.at
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, 16
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""
"""Table: a 16-element float32 input, an output; output = input + 1."""

COUNT_CHUNKS = """
declare void @aj_parallel_for(ptr, ptr, i64, i64)
define internal void @body(ptr %counts, i64 %chunk, i64 %worker) nounwind {
  %at = getelementptr i64, ptr %counts, i64 %chunk
  %old = atomicrmw add ptr %at, i64 1 monotonic
  %seen = getelementptr i64, ptr %counts, i64 64
  %worker.at = getelementptr i64, ptr %seen, i64 %worker
  store atomic i64 1, ptr %worker.at monotonic, align 8
  ret void
}
define void @count(ptr %counts, i64 %chunks, i64 %max) nounwind {
  call void @aj_parallel_for(ptr @body, ptr %counts, i64 %chunks, i64 %max)
  ret void
}
"""
"""Adds one to counts[chunk] per chunk (64 at most) and marks counts[64 + worker]."""


def compiled(ir_text: str) -> bytes:
    """The object of a module, from the test run's cache."""
    return default_cache().object(ir_text, target())


def target() -> HostTarget:
    return cached_host_target()


def run_python(code: str, **environment: str) -> str:
    """Standard output of a fresh interpreter running `code`; a crash or an error fails the test."""
    source = str(Path(__file__).resolve().parents[2] / "src")
    folder = str(Path(__file__).resolve().parent)
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join((source, folder)), **environment}
    command = [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
