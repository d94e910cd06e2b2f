"""What `FunctionText` writes does what it says, checked by running it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import llvmlite.binding as llvm
import numpy as np
import pytest

from autojit.codegen.function_text import FunctionText, State
from autojit.codegen.module_text import ModuleText, Signature
from autojit.core.sizes import named_size
from autojit.runtime.host import cached_host_target
from autojit.runtime.llvm import compile_to_object
from autojit.runtime.loader import load

NUMBER = Signature("number", "i64 n", "i64")


def run(write: Callable[[FunctionText], str | int | None], *numbers: int, signature: Signature = NUMBER) -> list[int]:
    """The answers of a function to some numbers."""
    f = FunctionText(ModuleText(), signature)
    value = write(f)
    if not f.is_ended:
        f.ret(value)
    f.finish()
    return evaluate(f.module, *numbers)


def evaluate(module: ModuleText, *numbers: int) -> list[int]:
    code = load(compile_to_object(module.text(), cached_host_target(), 1, 0))
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.address("number"))
    return [function(n) for n in numbers]


def test_a_branch_gives_the_value_of_the_side_that_ran() -> None:
    def write(f: FunctionText) -> str:
        with f.when(f.test("slt", "%n", 0)):
            below = f.mul("%n", -1)
        with f.otherwise():
            above = f.add("%n", 100)
        return f.merge("i64", below, above)

    assert run(write, -7, 7) == [7, 107]


def test_without_otherwise_the_value_before_is_kept() -> None:
    def write(f: FunctionText) -> str:
        with f.when(f.test("sgt", "%n", 3)):
            with f.when(f.test("sgt", "%n", 30)):
                f.ret(-1)
            inside = f.mul("%n", 2)
        return f.merge("i64", inside, "%n")

    assert run(write, 3, 4, 31) == [3, 8, -1]


def test_a_body_that_returns_does_not_go_on() -> None:
    def write(f: FunctionText) -> str:
        with f.when(f.test("eq", "%n", 1)):
            f.ret(10)
        with f.otherwise():
            doubled = f.add("%n", "%n")
        return f.merge("i64", doubled)

    assert run(write, 1, 2) == [10, 4]


def test_a_switch_runs_one_case() -> None:
    def write(f: FunctionText) -> str:
        with f.switch("%n") as case:
            with case(2):
                two = f.add("%n", 20)
            with case(5):
                f.ret(55)
            with case(7):
                seven = f.add("%n", 70)
        return f.merge("i64", two, seven, -1)

    assert run(write, 2, 5, 7, 6) == [22, 55, 77, -1]


def test_loops_count() -> None:
    def write(f: FunctionText) -> str:
        total = f.local("i64", 8)
        f.store("i64", 0, total)
        with f.loop(1, "%n", 2) as i, f.loop(0, i) as j:
            f.store("i64", f.add(f.load("i64", total), j), total)
        return f.load("i64", total)

    assert run(write, 0, 6, 100) == [sum(j for i in range(1, n, 2) for j in range(i)) for n in (0, 6, 100)]


def test_state_is_carried_from_turn_to_turn() -> None:
    def write(f: FunctionText) -> str:
        def fibonacci(state: State) -> State:
            left, a, b = state
            return [f.sub(left, 1), b, f.add(a, b)]

        kinds, first = ["i64"] * 3, ["%n", 0, 1]
        once = f.repeat(kinds, first, fibonacci)[1]
        plain = f.repeat_while(kinds, first, lambda state: f.test("sgt", state[0], 0), fibonacci)[1]
        return f.add(f.mul(once, 1000), plain)

    assert run(write, 0, 1, 10) == [1000, 1001, 55055]


def test_functions_call_each_other_and_what_they_are_given() -> None:
    module = ModuleText()
    double = Signature("double", "i64 n", "i64")
    f = FunctionText(module, NUMBER)
    through = f.choose(f.test("eq", "%n", 0), "@double", "@half", "ptr")
    f.ret(f.add(f.call(double, "%n"), f.mul(f.call(double, "%n", by=through), 100)))
    f.finish()
    for symbol, value in (("double", "shl"), ("half", "lshr")):
        g = FunctionText(module, Signature(symbol, "i64 n", "i64"), linkage="internal")
        g.ret(g.binary(value, "%n", 1))
        g.finish()
    assert evaluate(module, 0, 6) == [0, 312]
    assert "declare" not in module.text()


def test_what_a_module_lacks_is_declared_once() -> None:
    module = ModuleText()
    outside = Signature("outside", "ptr where, i64 n")
    f = FunctionText(module, Signature("inside", "ptr where"))
    f.call(outside, "%where", 1)
    f.call(outside, "%where", 2)
    f.finish()
    assert module.text().count("declare void @outside(ptr, i64)") == 1
    llvm.parse_assembly(module.text(), llvm.create_context()).verify()


def test_memory_changes_in_one_action() -> None:
    def write(f: FunctionText) -> str:
        word = f.local("i64", 8)
        f.store("i64", 5, word, "monotonic")
        before = f.update("add", word, "%n", "seq_cst")
        found, is_done = f.exchange(word, 12, 1000, "acq_rel acquire")
        parts = [before, found, f.convert("zext", is_done, "i1"), f.load("i64", word, "acquire")]
        total = f.add(0, 0)
        for part in parts:
            total = f.add(f.mul(total, 100), part)
        return total

    assert run(write, 7, 8) == [5_12_01_00 + 1000, 5_13_00_13]


@pytest.mark.parametrize("extent", [3, 40])
def test_a_symbolic_size_is_read_where_the_function_begins(extent: int) -> None:
    size = named_size("n", 8)
    module = ModuleText()
    f = FunctionText(module, Signature("number", "ptr z", "i64"))
    with f.when("false"):
        f.add(2 * size, 1)
    f.ret(f.add(size, f.number(size)))
    f.finish()
    code = load(compile_to_object(module.text(), cached_host_target(), 1, 0))
    words = np.array([extent if known == size else 2 * extent for known in module.sizes], np.int64)
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(code.address("number"))
    assert function(words.ctypes.data) == 2 * extent
    assert len(module.sizes) == 2
