"""Functions for rare operands, called from loops that LLVM vectorises: a branch per vector instead of per element.

A vectorised loop cannot branch, and computing a costly case for every element would slow the usual one. So the scalar
body calls a function that LLVM does not inline, and the call names vector variants of it (the vector function ABI,
``vector-function-abi-variant``). A variant tests its whole vector at once; only if some lane is rare does it run the
scalar function lane by lane. The caller selects the returned lanes it needs; the others are zero.

The variants are ``alwaysinline``: a compiler pipeline that inlines once more after vectorising saves the call.
"""

from __future__ import annotations

from autojit.codegen.instructions import InstructionEmitter
from autojit.codegen.scalar import Scalar, literal, register_type, suffix
from autojit.core.dtypes import DType

ATTRIBUTES = "nounwind willreturn memory(none)"
LANES = {"f32": (4, 8, 16), "f64": (2, 4, 8)}  # each variant costs 1 ms to compile


def call_text(symbol: str, x: Scalar) -> str:
    """The call instruction with its vector variants."""
    kind, name = register_type(x.dtype), symbol.removeprefix("@")
    variants = ",".join(f"_ZGV_LLVM_N{n}v_{name}({name}.v{n})" for n in LANES[x.dtype.short])
    return f'call {kind} {symbol}({kind} {x.text}) {ATTRIBUTES} "vector-function-abi-variant"="{variants}"'


def definitions(symbol: str, dtype: DType, limit: float, body: InstructionEmitter, result: Scalar) -> dict[str, str]:
    """Texts of the scalar function of ``%x0`` (zero where |x| <= limit, else ``body``) and of its variants."""
    kind, bound = register_type(dtype), literal(limit, dtype)
    scalar = [
        f"define internal {kind} {symbol}({kind} %x0) noinline optnone {ATTRIBUTES} {{",
        "entry:",
        f"  %magnitude = call {kind} @llvm.fabs.{suffix(dtype)}({kind} %x0)",
        f"  %rare = fcmp ogt {kind} %magnitude, {bound}",
        "  br i1 %rare, label %compute, label %usual",
        "usual:",
        f"  ret {kind} {literal(0.0, dtype)}",
        "compute:",
        *body.lines,
        f"  ret {kind} {result.text}",
        "}",
    ]
    texts = {**body.definitions, symbol: "\n".join(scalar), f"{symbol}.each": _each_lane(symbol, dtype)}
    for lanes in LANES[dtype.short]:
        texts[f"{symbol}.v{lanes}"] = _variant(symbol, dtype, bound, lanes)
    return texts


def _each_lane(symbol: str, dtype: DType) -> str:
    """Replaces ``%count`` operands in memory by the results of the scalar function."""
    kind = register_type(dtype)
    return f"""\
define internal void {symbol}.each(ptr %data, i64 %count) noinline optnone cold nounwind willreturn {{
entry:
  br label %lane
lane:
  %i = phi i64 [ 0, %entry ], [ %next, %lane ]
  %place = getelementptr {kind}, ptr %data, i64 %i
  %x = load {kind}, ptr %place
  %value = call {kind} {symbol}({kind} %x)
  store {kind} %value, ptr %place
  %next = add i64 %i, 1
  %again = icmp ult i64 %next, %count
  br i1 %again, label %lane, label %done
done:
  ret void
}}"""


def _variant(symbol: str, dtype: DType, bound: str, lanes: int) -> str:
    """One vector variant. Weak linkage, because only the vectoriser, later, refers to it."""
    kind = register_type(dtype)
    vector = f"<{lanes} x {kind}>"
    return f"""\
define weak_odr hidden {vector} {symbol}.v{lanes}({vector} %x) alwaysinline {ATTRIBUTES} {{
entry:
  %data = alloca {vector}
  %magnitude = call {vector} @llvm.fabs.v{lanes}{suffix(dtype)}({vector} %x)
  %rare = fcmp ogt {vector} %magnitude, splat ({kind} {bound})
  %any = call i1 @llvm.vector.reduce.or.v{lanes}i1(<{lanes} x i1> %rare)
  br i1 %any, label %lanes, label %done, !prof !{{!"branch_weights", i32 1, i32 100000}}
lanes:
  store {vector} %x, ptr %data
  call void {symbol}.each(ptr %data, i64 {lanes})
  %filled = load {vector}, ptr %data
  br label %done
done:
  %result = phi {vector} [ zeroinitializer, %entry ], [ %filled, %lanes ]
  ret {vector} %result
}}"""
