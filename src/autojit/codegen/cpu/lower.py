"""Schedule -> LoweredStep: which bodies run on which buffers, for CPUs.

A ``LoweredStep`` is still data without addresses: entries name a body (the text of a kernel, or a built-in of the plan
runner) and list symbolic arguments; ``runtime.plan`` binds them to memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

from autojit.codegen.cpu.loops import CHUNK_NS, KernelText, print_loops
from autojit.codegen.cpu.structured import print_structured
from autojit.codegen.cpu import gemm
from autojit.core.dtypes import float32, float64
from autojit.core.errors import CompileError
from autojit.ir.graph import Value
from autojit.schedule.kernels import Access, CopyKernel, Kernel, LoopKernel, MatmulKernel, StructuredKernel
from autojit.schedule.loops import Expr, LoopProgram
from autojit.schedule.schedule import Schedule

GEMM_GFLOPS = {float32: 60.0, float64: 30.0}  # one thread, middling shapes; only cuts work into chunks
MAX_MATMUL_CHUNKS = 32
ROW_BLOCK_STEP = 48  # a multiple of every micro-kernel's rows


@dataclass(frozen=True)
class Words:
    """Constant 64-bit words passed by address."""

    words: tuple[int, ...]


@dataclass(frozen=True)
class Offset:
    """A buffer's address plus bytes."""

    value: Value
    offset_bytes: int


@dataclass(frozen=True, eq=False)
class Scratch:
    """Memory of one entry: ``size_bytes``, times the number of workers if ``per_worker``."""

    size_bytes: int
    per_worker: bool


@dataclass(frozen=True, eq=False)
class Immediate:
    """A 64-bit word in place of a pointer."""

    word: int


@dataclass(frozen=True, eq=False)
class Callback:
    """An op without native lowering: computed by its eager rule, called from the step; counted as a fallback."""

    kernel: StructuredKernel


Argument = Value | Words | Offset | Scratch | Immediate


@dataclass(frozen=True, eq=False)
class Entry:
    """One body run over chunks."""

    body: str | Callback  # kernel text, or "@name" of a built-in
    symbol: str
    arguments: tuple[Argument, ...]
    chunks: int
    estimate_ns: float
    label: str


@dataclass(frozen=True, eq=False)
class LoweredStep:
    """Entries in order, with what they need."""

    schedule: Schedule
    entries: tuple[Entry, ...]
    gemm_dtypes: frozenset[str]
    fallbacks: tuple[str, ...] = field(default=())


class _Lowering:
    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.entries: list[Entry] = []
        self.gemms: set[str] = set()
        self.fallbacks: list[str] = []
        self.printed: dict[Any, KernelText] = {}

    def run(self) -> LoweredStep:
        for kernel in self.schedule.kernels:
            try:
                self._lower(kernel)
            except CompileError:
                raise
            except Exception as error:
                raise _failed(kernel, self.schedule, error) from error
        return LoweredStep(self.schedule, tuple(self.entries), frozenset(self.gemms), tuple(self.fallbacks))

    def _lower(self, kernel: Kernel) -> None:
        if isinstance(kernel, LoopKernel):
            self._loops(kernel)
        elif isinstance(kernel, MatmulKernel):
            self._matmul(kernel)
        elif isinstance(kernel, CopyKernel):
            size = kernel.source.type.size_bytes
            arguments = (kernel.target, kernel.source, Immediate(size))
            self.entries.append(Entry("@aj_copy", "", arguments, 1, size * 0.1, "copy"))
        else:
            self._structured(kernel)

    def _loops(self, kernel: LoopKernel) -> None:
        program = kernel.program
        if any(e.dtype.kind == "complex" for e in program.exprs):
            raise CompileError("complex numbers have no native lowering yet")
        key = program_key(program)
        text = self.printed.get(key)
        if text is None:
            text = self.printed[key] = print_loops(program, "kernel")
        label = "+".join(dict.fromkeys(n.op.name for n in kernel.nodes))
        arguments: list[Argument] = [*program.loads, *kernel.writes()]
        if text.partial_bytes:
            arguments.append(Scratch(text.partial_bytes * text.chunks, per_worker=False))
        self.entries.append(Entry(text.text, "kernel", tuple(arguments), text.chunks, text.estimate_ns, label))
        if text.partial_bytes:
            self.entries.append(Entry(text.text, "kernel_combine", tuple(arguments), 1, 500.0, "combine"))

    def _matmul(self, kernel: MatmulKernel) -> None:
        dtype = kernel.node.outputs[0].type.dtype
        if dtype not in GEMM_GFLOPS:
            self._structured(StructuredKernel(kernel.node, kernel.node.inputs))
            return
        words, chunks, estimate = matmul_words(kernel)
        self.gemms.add(dtype.short)
        size = dtype.size_bytes
        m, n, k = words["m"], words["n"], words["k"]
        scratch = -(-gemm.scratch_bytes(dtype, min(m, words["row_block"]), n, k) // 64) * 64
        words["scratch_bytes"] = scratch
        arguments = (
            Offset(kernel.a.value, kernel.a.offset * size),
            Offset(kernel.b.value, kernel.b.offset * size),
            kernel.node.outputs[0],
            Words(tuple(words.values())),
            Scratch(scratch, per_worker=True),
        )
        self.entries.append(Entry(f"@aj_matmul_{dtype.short}", "", arguments, chunks, estimate, f"matmul {m}x{k}x{n}"))

    def _structured(self, kernel: StructuredKernel) -> None:
        found = print_structured(kernel.node)
        arguments: tuple[Argument, ...] = (*kernel.operands, *kernel.node.outputs)
        name = kernel.node.op.name
        if found is None:
            self.fallbacks.append(name)
            self.entries.append(Entry(Callback(kernel), "", arguments, 1, 20_000.0, f"callback {name}"))
            return
        self.entries.append(Entry(found.text, "kernel", arguments, found.chunks, found.estimate_ns, name))


def matmul_words(kernel: MatmulKernel) -> tuple[dict[str, int], int, float]:
    """The words of ``aj_matmul``, the number of chunks and the estimated time."""
    a, b = kernel.node.inputs
    *batch, m, k = a.type.shape
    n = b.type.shape[-1]
    count = prod(batch)
    dtype = a.type.dtype
    estimate = 2.0 * m * n * k * count / GEMM_GFLOPS[dtype] + 200.0 * count
    wanted = max(1, min(MAX_MATMUL_CHUNKS, int(estimate / CHUNK_NS)))
    row_block, row_blocks, units_per_chunk = m, 1, 1
    if count >= wanted or m < 2 * ROW_BLOCK_STEP:
        units_per_chunk = max(1, -(-count // wanted))
    else:
        blocks = -(-wanted // max(count, 1))
        row_block = -(-(-(-m // blocks)) // ROW_BLOCK_STEP) * ROW_BLOCK_STEP
        row_blocks = -(-m // row_block)
    units = count * row_blocks
    (ao, ai), (bo, bi), (co, ci), inner = _batch_strides(kernel, batch, m * n)
    words = {
        "m": m, "n": n, "k": k,
        "rsa": kernel.a.strides[-2], "csa": kernel.a.strides[-1],
        "rsb": kernel.b.strides[-2], "csb": kernel.b.strides[-1],
        "rsc": n, "csc": 1, "accumulate": 0,
        "row_block": row_block, "row_blocks": row_blocks,
        "units_per_chunk": units_per_chunk, "units": units, "inner_batch": inner,
        "a_outer": ao, "a_inner": ai, "b_outer": bo, "b_inner": bi, "c_outer": co, "c_inner": ci,
        "scratch_bytes": 0,
    }  # fmt: skip
    chunks = -(-units // units_per_chunk) if units else 0
    return words, chunks, estimate


def _batch_strides(
    kernel: MatmulKernel, batch: list[int], matrix: int
) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int], int]:
    """(outer, inner) batch strides of a, b, c and the inner batch extent; axes of extent 1 vanish."""
    axes = [axis for axis, extent in enumerate(batch) if extent != 1]
    if not axes:
        return (0, 0), (0, 0), (0, 0), 1
    inner_axis = axes[-1]
    inner = batch[inner_axis]

    def pair(access: Access) -> tuple[int, int]:
        outer = access.strides[axes[0]] if len(axes) == 2 else 0
        return outer, access.strides[inner_axis]

    return pair(kernel.a), pair(kernel.b), (matrix * inner, matrix), inner


def program_key(program: LoopProgram) -> Any:
    """Structure of a program without its values: equal keys print equal kernels."""
    values = {r.value: f"r{i}" for i, r in enumerate(program.reductions)}
    return (
        tuple((v.name, v.extent) for v in program.rows),
        tuple((v.name, v.extent) for v in program.inner),
        program.prefix,
        tuple(_expr_key(e, values) for e in program.exprs),
        tuple((r.op, r.expr.serial, r.value.type.dtype.short) for r in program.reductions),
        tuple((s.expr.serial, s.index, s.value.type.dtype.short) for s in program.stores),
        tuple((a.op, a.expr.serial, a.kind, a.prefix, a.full, a.value.type.dtype.short) for a in program.accumulators),
        tuple(v.type.dtype.short for v in program.loads),
        tuple((n, e.serial) for n, e in program.lookups.items()),
    )


def _expr_key(expr: Expr, values: dict[Value, str]) -> Any:
    slot = values[expr.slot] if expr.kind == "row" else expr.slot
    return (expr.kind, expr.dtype.short, expr.op, tuple(a.serial for a in expr.args), expr.index, expr.guards, slot)


def _failed(kernel: Kernel, schedule: Schedule, error: Exception) -> CompileError:
    ops = ", ".join(dict.fromkeys(n.op.name for n in kernel.nodes))
    where = ", ".join(dict.fromkeys(str(n.source) for n in kernel.nodes))
    return CompileError(
        "lowering failed",
        {"ops": ops, "at": where, "reason": f"{type(error).__name__}: {error}", "graph": "\n" + str(schedule.graph)},
        "this is a defect of autojit: report it with the graph text",
    )


def lower(schedule: Schedule) -> LoweredStep:
    """Lower every kernel; CompileError names the op and carries the graph text."""
    return _Lowering(schedule).run()
