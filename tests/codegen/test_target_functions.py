"""Functions that machines define differently, to the same bits."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from numpy.typing import NDArray

from autojit.codegen.target import HostTarget, host_target
from autojit.codegen.target_functions import DECLARATIONS, SCALED, with_definitions
from autojit.runtime.llvm import compile_to_object
from autojit.runtime.loader import load

COUNT = 1 << 12
LOOP = f"""
define void @kernel(ptr noalias %x, ptr noalias %n, ptr noalias %y) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %px = getelementptr float, ptr %x, i64 %i
  %pn = getelementptr i32, ptr %n, i64 %i
  %py = getelementptr float, ptr %y, i64 %i
  %a = load float, ptr %px
  %b = load i32, ptr %pn
  %c = call float {SCALED}(float %a, i32 %b)
  store float %c, ptr %py
  %next = add nuw nsw i64 %i, 1
  %more = icmp ult i64 %next, {COUNT + 3}
  br i1 %more, label %loop, label %out
out:
  ret void
}}
{DECLARATIONS[SCALED]}
"""


def scaled(target: HostTarget, x: NDArray[np.float32], n: NDArray[np.int32]) -> NDArray[np.float32]:
    result = np.empty_like(x)
    code = load(compile_to_object(LOOP, target))
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(code.address("kernel"))
    function(x.ctypes.data, n.ctypes.data, result.ctypes.data)
    return result


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
def test_scaling_rounds_once_on_every_machine(vector_bytes: int) -> None:
    rng = np.random.default_rng(1)
    edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, 1.9999999, -0.70710677], np.float32)
    x = np.resize(np.concatenate([edges, rng.uniform(0.7, 1.42, 64).astype(np.float32)]), COUNT + 3)
    n = rng.integers(-160, 131, COUNT + 3).astype(np.int32)
    with np.errstate(over="ignore", under="ignore"):
        wanted = np.ldexp(x, n)
    found = scaled(host_target().limited_to(vector_bytes), x, n)
    np.testing.assert_array_equal(found, wanted)
    kept = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found)[kept], np.signbit(wanted)[kept])


def test_a_module_that_declares_nothing_stays_as_it_is() -> None:
    text = "define void @f() {\n  ret void\n}"
    assert with_definitions(text, host_target()) == text
    assert DECLARATIONS[SCALED] not in with_definitions(LOOP, host_target())
