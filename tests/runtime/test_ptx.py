"""A target whose code comes as PTX: the same text, builder and passes, another emission.

LLVM ends the process where it cannot select an instruction, so the compilation runs in a child.
"""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

CHILD = """
from dataclasses import dataclass
from typing import ClassVar

from autojit.codegen.emitter import ScalarEmitter
from autojit.codegen.function_text import FunctionText
from autojit.codegen.module_text import ModuleText, Signature
from autojit.codegen.target import Emission
from autojit.core.dtypes import float32
from autojit.runtime.llvm import compile_to_object


@dataclass(frozen=True)
class Gpu:
    triple: str = "nvptx64-nvidia-cuda"
    cpu: str = "sm_90"
    features: str = "+ptx80"
    emit: ClassVar[Emission] = "ptx"


module = ModuleText()
f = FunctionText(module, Signature("halves", "ptr from, ptr to, ptr sums, i64 n"), linkage="ptx_kernel")
emit = ScalarEmitter(f.lines)
total = f.local("i64", 8)
f.store("i64", 0, total)
with f.loop(0, "%n") as i:
    value = emit.exp(emit.load(f.element("%from", "float", i), float32))
    emit.store(value, f.element("%to", "float", i))
    f.store("i64", f.add(f.load("i64", total), i), total)
    f.store("i64", f.load("i64", total), f.element("%sums", "i64", i))
module.definitions.update(emit.definitions)
f.finish()
print(compile_to_object(module.text(), Gpu()).decode())
"""


@pytest.fixture(scope="module")
def ptx() -> str:
    child = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, timeout=120)
    if "No available targets are compatible" in child.stderr:
        pytest.skip("this LLVM is built without NVPTX")
    assert child.returncode == 0, child.stderr
    return child.stdout


def test_a_text_becomes_ptx(ptx: str) -> None:
    assert ".target sm_90" in ptx
    assert ".visible .entry halves(" in ptx


def test_nothing_is_left_to_be_linked(ptx: str) -> None:
    assert ".extern" not in ptx


def test_the_layout_is_known_before_the_text_is_read(ptx: str) -> None:
    """Otherwise 64-bit numbers have the alignment of 4 bytes and are stored in halves."""
    stores = re.findall(r"st\.\S+", ptx)
    assert any(kind.endswith("64") for kind in stores), stores
    assert len(stores) == 2, stores
