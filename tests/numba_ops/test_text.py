"""The text of linked functions: equal in every process, free of names and addresses, and vectorised by LLVM."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import autojit as aj
from autojit.codegen.numba_text.instruction_text import read_call, read_instruction, split, take_type, typed
from autojit.codegen.numba_text.module_text import linked, read_module
from autojit.codegen.numba_text.scalar_function import result_layout, scalar_function
from autojit.codegen.numba_text.tangents import partial as partial_derivative
from autojit.codegen.numba_text.unrolling import unrolled_latches
from autojit.ir.interpreter import evaluate
from autojit.ir.text import parse_graph
from autojit.runtime.host import cached_host_target
from autojit.runtime.llvm import optimised_ir

numba = pytest.importorskip("numba")

from tests.numba_ops.functions import CASES  # noqa: E402

MODULE = """
@.const.picklebuf.0a1b = internal constant { ptr, i32 } { ptr null, i32 3 }
@table = internal constant [2 x double] [double 1.0, double 2.0]

; Function Attrs: nounwind
define range(i32 0, 2) i32 @"user f"(ptr noalias writeonly captures(none) %retptr, ptr %excinfo, double %"arg x") #0 {
entry:
  %.1 = fmul fast double %"arg x", %"arg x", !dbg !4
  %ok = fcmp ogt double %.1, 0.000000e+00
  br i1 %ok, label %good, label %"bad one", !prof !0

good:                                             ; preds = %entry
  %.2 = tail call noundef double @llvm.exp.f64(double noundef %.1) #1
  store double %.2, ptr %retptr, align 8
  ret i32 0

"bad one":                                        ; preds = %entry
  store ptr @.const.picklebuf.0a1b, ptr %excinfo, align 8, !numba_exception_output !1
  ret i32 1
}

declare double @llvm.exp.f64(double) #1
"""


def test_a_module_is_read_into_functions_of_canonical_names() -> None:
    code = linked(read_module(MODULE), '"user f"')
    (function,) = code.functions
    assert re.fullmatch(r"aj\.op\.[0-9a-f]{16}\.f0", function.name)
    assert function.parameters == [("ptr", "%a0"), ("ptr", "%a1"), ("double", "%a2")]
    assert function.blocks[0][1] == [
        "%v3 = fmul fast double %a2, %a2",
        "%v4 = fcmp ogt double %v3, 0.000000e+00",
        "br i1 %v4, label %b1, label %b2",
    ]
    assert function.blocks[2][1] == ["store ptr inttoptr (i64 1 to ptr), ptr %a1, align 8", "ret i32 1"]
    assert code.failures == (".const.picklebuf.0a1b",)
    assert code.globals == {}


def test_every_instruction_is_followed_by_that_of_its_tangent() -> None:
    function = scalar_function(linked(read_module(MODULE), '"user f"'), ("double",))
    assert function.may_fail
    slope = partial_derivative(function, 0)
    assert slope is not None
    lines = slope.code.functions[1].lines()
    assert [line.split(" = ")[1] for line in lines if " = f" in line] == [
        "fmul fast double %a3, %a3",
        "fmul double %a3, %a4",
        "fmul double %a3, %a4",
        "fadd double %v6, %v7",
        "fcmp ogt double %v5, 0.000000e+00",
        "fmul double %v10, %v8",
    ]


def test_lines_are_taken_apart() -> None:
    assert split('double %x, { i32, ptr } %y, i8 "a,b"') == ["double %x", "{ i32, ptr } %y", 'i8 "a,b"']
    assert take_type("<2 x double> %x, %y") == ("<2 x double>", "%x, %y")
    assert typed("ptr noalias align 8 captures(none) %p") == ("ptr", "%p")
    assert typed("double noundef 1.000000e+00") == ("double", "1.000000e+00")
    call = read_call(read_instruction("%r = tail call fast noundef double @pow(double %a, double noundef 2.0) #3").rest)
    assert (call.flags, call.type, call.callee) == ("fast ", "double", "pow")
    assert call.operands == [("double", "%a"), ("double", "2.0")]
    assert result_layout(("i8", "double", "float")) == ((0, "i8"), (8, "double"), (16, "float"))


@pytest.mark.parametrize("name", ["branch_loop_exp", "polynomial", "piecewise", "calls_another", "long_loop"])
def test_loops_around_functions_are_vectorised_with_branches_loops_and_failures(name: str) -> None:
    case = CASES[name]
    op = aj.op(case.function)
    jitted = aj.jit(lambda *xs: op(*[x * 2.0 for x in xs]) + 1.0)
    jitted(*[aj.tensor(np.linspace(low, high, 4096)) for low, high in case.domains])
    optimised = optimised_ir(jitted.show("llvm"), cached_host_target())
    assert re.search(r"store <\d+ x double>", optimised)
    assert "call double @exp" not in optimised


def test_loops_that_data_can_end_are_not_unrolled() -> None:
    counts = {}
    for name in ("long_loop", "polynomial", "newton_root", "series"):
        case = CASES[name]
        made, _ = aj.op(case.function).made((aj.float64,) * len(case.domains))
        counts[name] = len(unrolled_latches(made.code.code.functions[0]))
    assert counts == {"long_loop": 1, "polynomial": 0, "newton_root": 0, "series": 0}


def test_two_processes_print_the_same_kernel() -> None:
    """The key of the object cache is the text: it may not depend on what else a process compiled before."""
    code = (
        "import hashlib, sys, math, numba, autojit as aj\n"
        "def f(x):\n"
        "    if x < 0.0: raise ValueError('negative')\n"
        "    return math.exp(x) * x\n"
        "for k in range(int(sys.argv[1])):\n"
        "    numba.njit(lambda x: x + k)(1.0)\n"
        "op = aj.op(f)\n"
        "step = aj.jit(lambda x: aj.autograd.grad(op(x).sum(), x)[0])\n"
        "step(aj.ones(5, requires_grad=True))\n"
        "print(hashlib.sha256(step.show('llvm').encode()).hexdigest())\n"
    )
    root = Path(__file__).resolve().parents[2]
    run = partial(subprocess.run, capture_output=True, text=True, check=True, cwd=root / "src")
    assert len({run([sys.executable, "-c", code, n]).stdout for n in ("0", "3")}) == 1


def test_a_graph_with_linked_functions_prints_and_parses() -> None:
    op = aj.op(CASES["plain"].function)
    jitted = aj.jit(lambda x, y: op(x, y) * 2.0)
    x = aj.tensor([1.0, 2.0], dtype=aj.float64)
    y = aj.tensor([0.5, 3.0], dtype=aj.float64)
    jitted(x, y)
    graph = parse_graph(jitted.show("graph"))
    (found,) = evaluate(graph, [x.numpy(), y.numpy()])
    np.testing.assert_array_equal(found, jitted(x, y).numpy())
