"""What `NativeFunction` adds to `FunctionText` does what it says, checked by running it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pytest

from autojit.codegen.module_text import ModuleText, Signature
from autojit.codegen.native_function import NativeFunction
from autojit.runtime.host import cached_host_target
from autojit.runtime.llvm import compile_to_object
from autojit.runtime.loader import load


def answers(write: Callable[[NativeFunction], None], *numbers: int) -> list[int]:
    f = NativeFunction(ModuleText(), Signature("number", "i64 n", "i64"))
    write(f)
    f.finish()
    code = load(compile_to_object(f.module.text(), cached_host_target(), 1, 0))
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.address("number"))
    return [function(n) for n in numbers]


def test_a_junction_has_the_values_of_the_place_that_led_to_it() -> None:
    def write(f: NativeFunction) -> None:
        low, high = f.junction("i64", "i64"), f.junction("i64", "i64")
        f.go_when(f.test("slt", "%n", 0), low, "%n", 1)
        f.go_unless(f.test("slt", "%n", 100), high, "%n", 2)
        f.go(low, f.mul("%n", 10), 3)
        f.begin(high)
        f.go(low, 100, 4)
        f.ret(f.add(*f.begin(low)))

    assert answers(write, -5, 7, 1000) == [-4, 73, 104]


def test_a_junction_may_be_gone_back_to() -> None:
    def write(f: NativeFunction) -> None:
        again, done = f.junction("i64", "i64"), f.junction()
        f.go(again, "%n", 0)
        left, total = f.begin(again)
        f.go_unless(f.test("sgt", left, 0), done)
        f.go(again, f.sub(left, 1), f.add(total, left))
        f.begin(done)
        f.ret(total)

    assert answers(write, 0, 1, 4) == [0, 1, 10]


def test_a_loop_may_be_left_for_a_junction() -> None:
    def write(f: NativeFunction) -> None:
        found = f.junction("i64")
        with f.loop(0, 10) as k:
            f.go_when(f.test("eq", f.mul(k, k), "%n"), found, k)
        f.ret(-1)
        f.ret(*f.begin(found))

    assert answers(write, 0, 49, 50, 100) == [0, 7, -1, -1]


def test_a_function_may_return_unless_a_condition_holds() -> None:
    def write(f: NativeFunction) -> None:
        f.return_unless(f.is_set("%n"), 5)
        f.ret("%n")

    assert answers(write, 0, 3) == [5, 3]


def test_a_function_may_end_with_another() -> None:
    def write(f: NativeFunction) -> None:
        called = Signature("twice", "i64 n", "i64")
        g = NativeFunction(f.module, called, linkage="internal")
        g.ret(g.mul("%n", 2))
        g.finish()
        f.end_with(called, f.add("%n", 1))

    assert answers(write, 0, 3) == [2, 8]


def test_a_junction_takes_its_number_of_values() -> None:
    f = NativeFunction(ModuleText(), Signature("number", "i64 n", "i64"))
    with pytest.raises(AssertionError, match="as many values"):
        f.go(f.junction("i64"))
