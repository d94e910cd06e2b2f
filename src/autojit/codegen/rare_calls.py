"""Functions for rare operands, called from loops that LLVM vectorises: a branch per vector instead of per element.

A vectorised loop cannot branch, and computing a costly case for every element would slow the usual one. So the scalar
body calls a function that LLVM does not inline, and the call names vector variants of it (the vector function ABI,
``vector-function-abi-variant``). A variant tests its whole vector at once; only if some lane is rare does it run the
scalar function lane by lane. The caller selects the returned lanes it needs; the others are zero.

The variants are ``alwaysinline``: a compiler pipeline that inlines once more after vectorising saves the call.
"""

from __future__ import annotations

from collections.abc import Sequence

from autojit.codegen.instructions import InstructionEmitter
from autojit.codegen.scalar import Scalar, literal, register_type, suffix
from autojit.core.dtypes import DType

ATTRIBUTES = "nounwind willreturn memory(none)"
LANES = {"f32": (4, 8, 16), "f64": (2, 4, 8)}  # each variant costs 1 ms to compile


def call_text(symbol: str, operands: Sequence[Scalar]) -> str:
    """The call instruction with its vector variants."""
    dtype = operands[0].dtype
    kind, name = register_type(dtype), symbol.removeprefix("@")
    shape = "v" * len(operands)
    variants = ",".join(f"_ZGV_LLVM_N{n}{shape}_{name}({name}.v{n})" for n in LANES[dtype.short])
    arguments = ", ".join(f"{kind} {x.text}" for x in operands)
    return f'call {kind} {symbol}({arguments}) {ATTRIBUTES} "vector-function-abi-variant"="{variants}"'


def definitions(
    symbol: str, operands: Sequence[Scalar], limit: float, body: InstructionEmitter, result: Scalar
) -> dict[str, str]:
    """Texts of the scalar function (zero where |operands[0]| <= limit, else ``body``) and of its variants."""
    dtype = operands[0].dtype
    kind, bound, count = register_type(dtype), literal(limit, dtype), len(operands)
    scalar = [
        f"define internal {kind} {symbol}({_parameters(kind, count)}) noinline optnone {ATTRIBUTES} {{",
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
    texts = {**body.definitions, symbol: "\n".join(scalar), f"{symbol}.each": _each_lane(symbol, kind, count)}
    for lanes in LANES[dtype.short]:
        texts[f"{symbol}.v{lanes}"] = _variant(symbol, dtype, bound, lanes, count)
    return texts


def _parameters(kind: str, count: int) -> str:
    return ", ".join(f"{kind} %x{i}" for i in range(count))


def _each_lane(symbol: str, kind: str, count: int) -> str:
    """Applies the scalar function to ``%lanes`` elements of ``count`` arrays in memory; results replace the first."""
    loads = []
    for i in range(count):
        loads += [f"  %p{i} = getelementptr {kind}, ptr %data{i}, i64 %i", f"  %x{i} = load {kind}, ptr %p{i}"]
    pointers = ", ".join(f"ptr %data{i}" for i in range(count))
    return "\n".join(
        [
            f"define internal void {symbol}.each(i64 %lanes, {pointers}) noinline optnone cold nounwind willreturn {{",
            "entry:",
            "  br label %lane",
            "lane:",
            "  %i = phi i64 [ 0, %entry ], [ %next, %lane ]",
            *loads,
            f"  %value = call {kind} {symbol}({_parameters(kind, count)})",
            f"  store {kind} %value, ptr %p0",
            "  %next = add i64 %i, 1",
            "  %again = icmp ult i64 %next, %lanes",
            "  br i1 %again, label %lane, label %done",
            "done:",
            "  ret void",
            "}",
        ]
    )


def _variant(symbol: str, dtype: DType, bound: str, lanes: int, count: int) -> str:
    """One vector variant. Weak linkage, because only the vectoriser, later, refers to it."""
    kind = register_type(dtype)
    vector = f"<{lanes} x {kind}>"
    pointers = ", ".join(f"ptr %data{i}" for i in range(count))
    return "\n".join(
        [
            f"define weak_odr hidden {vector} {symbol}.v{lanes}({_parameters(vector, count)}) "
            f"alwaysinline {ATTRIBUTES} {{",
            "entry:",
            *(f"  %data{i} = alloca {vector}" for i in range(count)),
            f"  %magnitude = call {vector} @llvm.fabs.v{lanes}{suffix(dtype)}({vector} %x0)",
            f"  %rare = fcmp ogt {vector} %magnitude, splat ({kind} {bound})",
            f"  %any = call i1 @llvm.vector.reduce.or.v{lanes}i1(<{lanes} x i1> %rare)",
            '  br i1 %any, label %slow, label %done, !prof !{!"branch_weights", i32 1, i32 100000}',
            "slow:",
            *(f"  store {vector} %x{i}, ptr %data{i}" for i in range(count)),
            f"  call void {symbol}.each(i64 {lanes}, {pointers})",
            f"  %filled = load {vector}, ptr %data0",
            "  br label %done",
            "done:",
            f"  %result = phi {vector} [ zeroinitializer, %entry ], [ %filled, %slow ]",
            f"  ret {vector} %result",
            "}",
        ]
    )
