"""What LLVM's code generators do wrong does not reach kernels."""

from __future__ import annotations

import re

import numpy as np
import pytest

import autojit as aj
from autojit.codegen.cuda.target import CudaTarget
from autojit.runtime.llvm import assembly
from autojit.runtime.llvm_defects import mended
from tests.emulated import emulated_cuda

TWO_STRIDES = """
define ptx_kernel void @kernel(ptr addrspace(1) noalias readonly align 16 %p, ptr addrspace(1) noalias align 16 %q, i32 %n) {
  %four = shl nuw nsw i32 %n, 2
  %i = zext nneg i32 %four to i64
  %x = getelementptr float, ptr addrspace(1) %p, i64 %i
  %a = load float, ptr addrspace(1) %x, align 16
  %y = getelementptr i8, ptr addrspace(1) %p, i64 %i
  %b = load float, ptr addrspace(1) %y, align 4
  %c = fsub float %a, %b
  store float %c, ptr addrspace(1) %q, align 16
  ret void
}
"""  # noqa: E501


def test_loads_with_one_index_and_other_strides_stay_apart() -> None:
    ptx = assembly(TWO_STRIDES, CudaTarget("sm_90", 132))
    assert len(re.findall(r"ld\.global", ptx)) == 2, ptx


def test_what_has_one_stride_is_left_as_it_is() -> None:
    assert mended(TWO_STRIDES.replace("i8", "float")) is None


@pytest.mark.parametrize("rows", [4, 8, 16])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int8"])
def test_an_array_and_its_transpose_are_told_apart(rows: int, dtype: str) -> None:
    """The place in a line of vectors, and the row, are the same number up to a factor that bytes have, too."""
    a = (aj.arange(rows * 4) % 50).reshape(rows, 4).to(getattr(aj, dtype))
    step = aj.jit(lambda a: (aj.tril(a) + 2 * a.reshape(4, rows).T, a.reshape(4, rows).T - a))
    expected = [t.numpy() for t in (aj.tril(a) + 2 * a.reshape(4, rows).T, a.reshape(4, rows).T - a)]
    with emulated_cuda():
        for found, wanted in zip(step(a.to("cuda")), expected, strict=True):
            np.testing.assert_array_equal(found.cpu().numpy(), wanted)
