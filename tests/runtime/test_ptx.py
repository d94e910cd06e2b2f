"""A target whose code comes as PTX: the same builder, ops and passes, other arguments and another emission.

LLVM ends the process where it cannot select an instruction, so the compilation runs in a child.
"""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

CHILD = """
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from autojit.codegen.kernel_function import KernelFunction
from autojit.codegen.module_text import ModuleText
from autojit.codegen.target import Emission
from autojit.core.dtypes import float32, float64
from autojit.runtime.llvm import compile_to_object


@dataclass(frozen=True)
class Gpu:
    triple: str = "nvptx64-nvidia-cuda"
    cpu: str = "sm_90"
    features: str = "+ptx80"
    emit: ClassVar[Emission] = "ptx"


class GpuKernel(KernelFunction):
    takes: ClassVar[str] = "ptr addrspace(1) x, ptr addrspace(1) y, i64 n"

    def pointers(self, sizes: Sequence[int]) -> list[str]:
        self.sizes, self.buffers = sizes, ["addrspace(1) %x", "addrspace(1) %y"]
        return self.buffers

    def argument(self, number: int, kind: str) -> str:
        raise AssertionError("all are parameters")

    def report(self, site: int, position: str) -> None:
        raise AssertionError("nothing can fail")


kernel = GpuKernel(ModuleText(), "kernel")
kernel.linkage = "ptx_kernel"
kernel.pointers([100, 100])
with kernel.parallel_loop(0, "%n", "element") as i:
    x = kernel.read(0, float32, i)
    kernel.write(1, kernel.emit.cast(kernel.emit.exp(x), float64), i)
kernel.finish()
print(compile_to_object(kernel.module.text(), Gpu()).decode())
"""


@pytest.fixture(scope="module")
def ptx() -> str:
    child = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, timeout=600)
    if "No available targets are compatible" in child.stderr:
        pytest.skip("this LLVM is built without NVPTX")
    assert child.returncode == 0, child.stderr
    return child.stdout


def test_a_kernel_becomes_ptx(ptx: str) -> None:
    assert ".target sm_90" in ptx
    assert ".visible .entry kernel(" in ptx


def test_nothing_is_left_to_be_linked(ptx: str) -> None:
    assert ".extern" not in ptx


def test_addresses_stay_in_the_space_of_their_buffers(ptx: str) -> None:
    """And whole: without the layout in front of the text, 8 bytes are aligned to 4 and stored in halves."""
    assert set(re.findall(r"ld\.(?!param)\S+", ptx)) == {"ld.global.b32"}
    assert set(re.findall(r"st\.\S+", ptx)) == {"st.global.b64"}
