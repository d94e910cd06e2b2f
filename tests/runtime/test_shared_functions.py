"""Functions that several written-out modules have are one object each; modules in parts do what whole ones do."""

from __future__ import annotations

import ctypes

import pytest

from autojit.codegen.module_text import WRITTEN_OUT
from autojit.runtime.bodies import load_kernels
from autojit.runtime.shared_functions import taken_apart


def module(start: int, step: int) -> str:
    """``kernel(x) = twice(x) + start``, where ``twice`` calls ``add``, which adds ``step`` by a table."""
    return f"""{WRITTEN_OUT}
define void @kernel(ptr noalias readonly %args, i64 %chunk, i64 %worker) #0 {{
entry:
  %word = load ptr, ptr %args
  store i64 {start}, ptr %word
  call void @twice(ptr %word)
  ret void
}}
define internal void @twice(ptr noalias %x) nounwind noinline {{
  call void @add(ptr %x, i64 1)
  call void @add(ptr %x, i64 1)
  ret void
}}
define internal void @add(ptr %x, i64 %times) nounwind noinline {{
  %step = load i64, ptr @step
  %product = call i64 @times(i64 %step, i64 %times)
  %old = load i64, ptr %x
  %new = add i64 %old, %product
  store i64 %new, ptr %x
  ret void
}}
define internal i64 @times(i64 %a, i64 %b) alwaysinline nounwind {{
  %c = mul i64 %a, %b
  ret i64 %c
}}
@step = internal constant [1 x i64] [i64 {step}], align 16
attributes #0 = {{ nounwind }}"""


@pytest.mark.parametrize(("start", "step"), [(1, 10), (2, 10), (1, 100)])
def test_a_module_in_parts_does_what_it_says(start: int, step: int) -> None:
    (code,) = load_kernels((module(start, step),))
    word = ctypes.c_int64(0)
    args = (ctypes.c_void_p * 1)(ctypes.addressof(word))
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(code.address("kernel"))(args, 0, 0)
    assert word.value == start + 2 * step


def test_equal_names_are_equal_code() -> None:
    first, other_start, other_step = (
        taken_apart(module(*numbers)).functions for numbers in ((1, 10), (2, 10), (1, 100))
    )
    assert len(first) == 2
    assert first == other_start
    assert first.keys().isdisjoint(other_step)  # `twice` calls another `add`, so it is another `twice`


def test_what_is_not_written_out_stays_whole() -> None:
    text = module(1, 10).removeprefix(WRITTEN_OUT + "\n")
    assert taken_apart(text) == (text, {})
