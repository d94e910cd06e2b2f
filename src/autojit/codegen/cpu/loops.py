"""A LoopProgram as one LLVM function for CPUs.

``void kernel(ptr args, i64 chunk, i64 worker)``: ``args`` is an array of buffer pointers (loads, then stores, then one
per accumulator, then one block of partial results when rows are cut into chunks). Chunks cut the rows, or the single
inner loop when there are no rows; their number depends on shapes alone, so results do not depend on threads. With
partial results a second function ``kernel_combine`` folds the chunks in order.

How to read: ``ChunkPlan`` (how work is cut), ``LoopPrinter`` (the function, top down: ``print`` -> ``_row`` ->
``_phase`` -> ``_expr``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

from autojit.codegen.emitter import Scalar, ScalarEmitter
from autojit.codegen.folding import FoldEmitter
from autojit.codegen.scalar import memory_type, register_type
from autojit.core.dtypes import DType, bool_, float16, float32, float64, bfloat16, int64, uint32, uint64
from autojit.ir.index import Index, LoopVariable, Quotient, Remainder
from autojit.schedule.loops import CACHE_BYTES, CACHE_COST, Accumulator, Expr, LoopProgram

STEP_NS = 0.07  # one vectorised arithmetic step per element, measured order of magnitude
BYTE_NS = 0.03  # one byte moved through a cache level
CHUNK_NS = 25_000.0  # least work of a chunk: facts of the thread pool
MAX_CHUNKS = 64
MAX_PARTIAL_CHUNKS = 16
INNER_ALIGN = 1024  # elements: chunk borders of a flat loop stay vector- and page-friendly


@dataclass(frozen=True)
class ChunkPlan:
    """How a kernel is cut: ``count`` chunks of ``size`` rows (or inner elements when ``over_inner``)."""

    count: int
    size: int
    over_inner: bool
    estimate_ns: float


@dataclass(frozen=True)
class KernelText:
    """A printed kernel: LLVM text without symbol-independent parts, and what the plan must pass."""

    text: str
    chunks: int
    partial_bytes: int  # per chunk; 0 when there is nothing to combine
    estimate_ns: float


def accumulator_dtype(dtype: DType) -> DType:
    """Halves accumulate in float32."""
    return float32 if dtype in (float16, bfloat16) else dtype


def plan_chunks(program: LoopProgram, slices: int | None = None) -> ChunkPlan:
    """Cut the work by its estimated time, or into the given slices of a band; depends on shapes only."""
    estimate = estimate_ns(program)
    most = MAX_PARTIAL_CHUNKS if _has_partials(program) else MAX_CHUNKS
    wanted = max(1, min(most, int(estimate / CHUNK_NS)))
    over_inner = not program.rows and len(program.inner) == 1 and not program.reductions
    if slices is not None:
        total = program.inner_count if over_inner else prod(v.extent for v in program.rows[: program.prefix or None])
        return ChunkPlan(slices, total // slices, over_inner, estimate)
    if over_inner:
        total = program.inner_count
        size = -(-total // wanted)
        size = min(total, -(-size // INNER_ALIGN) * INNER_ALIGN) if total else 1
    else:
        total = prod(v.extent for v in program.rows[: program.prefix]) if program.prefix else program.row_count
        size = -(-total // wanted) if total else 1
    return ChunkPlan(-(-total // size) if total else 1, size, over_inner, estimate)


def _has_partials(program: LoopProgram) -> bool:
    return any(not a.prefix for a in program.accumulators)


def estimate_ns(program: LoopProgram) -> float:
    """Rough single-thread time of the whole kernel."""
    per_point = per_row = 0.0
    for expr in program.exprs:
        cost = 0.0
        if expr.kind == "op":
            cost = STEP_NS * (1 if expr.op.is_cheap else 8)
        elif expr.kind in ("load", "guard"):
            cost = BYTE_NS * expr.dtype.size_bytes
        elif expr.kind == "random":
            cost = STEP_NS * 40
        if expr.inner:
            per_point += cost
        else:
            per_row += cost * 4
    for store in program.stores:
        if store.expr.inner:
            per_point += 2 * BYTE_NS * store.value.type.dtype.size_bytes
    per_point += STEP_NS * (len(program.reductions) + 2 * len(program.accumulators))
    rows = program.row_count
    return rows * (program.inner_count * per_point + per_row + 3.0 * (1 + len(program.reductions)))


class LoopPrinter:
    """Prints one kernel. All text goes to ``self.lines`` through the scalar emitter."""

    def __init__(self, program: LoopProgram, symbol: str, slices: int | None = None) -> None:
        self.program = program
        self.symbol = symbol
        self.slices = slices
        self.lines: list[str] = []
        self.entry: list[str] = []
        self.emit = ScalarEmitter(self.lines)
        self.fold = FoldEmitter(self.lines)
        self.plan = plan_chunks(program, slices)
        self.block = "entry"
        self.labels = 0
        self.variables: dict[LoopVariable, str] = {}
        self.row_memo: dict[Any, Any] = {}
        self.attrs = ""
        self.cached: dict[Expr, tuple[int, str]] = {}
        self.row_slots: dict[Any, list[tuple[str, DType]]] = {}
        self.loops_metadata: list[str] = []
        self.pointer_count = 0
        self.partials: dict[int, int] = {}  # accumulator position -> byte offset in a chunk's block
        self.partial_bytes = 0

    # -- small helpers

    def label(self, name: str) -> str:
        self.labels += 1
        return f"{name}{self.labels}"

    def start(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block = label

    def name(self) -> str:
        self.labels += 1
        return f"%t{self.labels}"

    def line(self, text: str) -> str:
        name = self.name()
        self.lines.append(f"  {name} = {text}")
        return name

    def alloca(self, dtype: DType, count: int = 1) -> str:
        name = self.name()
        what = register_type(dtype) if count == 1 else f"[{count} x {memory_type(dtype)}]"
        self.entry.append(f"  {name} = alloca {what}, align 64")
        return name

    # -- the function

    def print(self) -> KernelText:
        program = self.program
        self._layout_partials()
        self._plan_cache()
        self._pointers()
        single = self.plan.count == 1
        low, high = "0", str(self._chunk_total())
        if not single:
            low = self.line(f"mul i64 %chunk, {self.plan.size}")
            top = self.line(f"add i64 {low}, {self.plan.size}")
            high = self.line(f"call i64 @llvm.smin.i64(i64 {top}, i64 {self._chunk_total()})")
        self._start_accumulators()
        if self.plan.over_inner:
            self._row((low, high))
        elif program.prefix:
            self._prefix_loop(low, high)
        else:
            self._loop("row", low, high, self._row_at, parallel=False)
        self._finish_scalars()
        self.lines.append("  ret void")
        return KernelText(self._assemble(), self.plan.count, self.partial_bytes, self.plan.estimate_ns)

    def _chunk_total(self) -> int:
        program = self.program
        if self.plan.over_inner:
            return program.inner_count
        return prod(v.extent for v in program.rows[: program.prefix]) if program.prefix else program.row_count

    def _assemble(self) -> str:
        definitions = {**self.emit.definitions, **self.fold.definitions}
        body = "\n".join(["entry:", *self.entry, *self.lines])
        head = f"define void @{self.symbol}(ptr noalias readonly %args, i64 %chunk, i64 %worker) #0 {{"
        parts = [head, body, "}"]
        if self.partial_bytes:
            parts.append(self._combine_text())
        return "\n".join([*definitions.values(), *parts, *self._metadata()])

    def _metadata(self) -> list[str]:
        return ["attributes #0 = { nounwind }", "!0 = distinct !{}", *self.loops_metadata]

    def _pointers(self) -> None:
        program = self.program
        count = len(program.loads) + len(program.stores) + len(program.accumulators) + (1 if self.partial_bytes else 0)
        for k in range(count):
            at = self.line(f"getelementptr ptr, ptr %args, i64 {k}")
            self.lines.append(f"  %p{k} = load ptr, ptr {at}, align 8")
        self.pointer_count = count

    # -- accumulators over rows

    def _layout_partials(self) -> None:
        offset = 0
        for k, accumulator in enumerate(self.program.accumulators):
            if accumulator.prefix:
                continue
            if self.plan.count == 1 and self._direct(accumulator):
                continue
            self.partials[k] = offset
            count = self.program.inner_count if accumulator.kind == "col" else 1
            size = count * accumulator_dtype(accumulator.value.type.dtype).size_bytes
            offset += -(-size // 64) * 64
        self.partial_bytes = offset

    def _direct(self, accumulator: Accumulator) -> bool:
        dtype = accumulator.value.type.dtype
        return accumulator_dtype(dtype) is dtype

    def _accumulator_pointer(self, position: int) -> str:
        program = self.program
        if position in self.partials:
            chunk_base = self.line(f"mul i64 %chunk, {self.partial_bytes}")
            base = self.line(f"add i64 {chunk_base}, {self.partials[position]}")
            return self.line(f"getelementptr i8, ptr %p{self.pointer_count - 1}, i64 {base}")
        return f"%p{len(program.loads) + len(program.stores) + position}"

    def _start_accumulators(self) -> None:
        self.totals: dict[int, str] = {}
        self.bases: dict[int, str] = {}
        for k, accumulator in enumerate(self.program.accumulators):
            dtype = accumulator_dtype(accumulator.value.type.dtype)
            if accumulator.kind == "all":
                slot = self.alloca(dtype)
                identity, _ = accumulator.op.lower(self.fold, dtype)  # type: ignore[attr-defined]
                self.lines.append(f"  store {register_type(dtype)} {identity.text}, ptr {slot}")
                self.totals[k] = slot
            else:
                self.bases[k] = self._accumulator_pointer(k)
                if not accumulator.prefix:
                    self._fill(accumulator, self.bases[k])

    def _fill(self, accumulator: Accumulator, base: str) -> None:
        dtype = accumulator_dtype(accumulator.value.type.dtype)
        identity, _ = accumulator.op.lower(self.fold, dtype)  # type: ignore[attr-defined]

        def body(i: str) -> None:
            at = self.line(f"getelementptr {memory_type(dtype)}, ptr {base}, i64 {i}")
            self.fold.store(identity, at)

        self._loop("fill", "0", str(self.program.inner_count), body, parallel=False)

    def _finish_scalars(self) -> None:
        for k, slot in self.totals.items():
            accumulator = self.program.accumulators[k]
            dtype = accumulator_dtype(accumulator.value.type.dtype)
            value = Scalar(self.line(f"load {register_type(dtype)}, ptr {slot}"), dtype)
            self.emit.store(value, self._accumulator_pointer(k))

    def _prefix_loop(self, low: str, high: str) -> None:
        program = self.program
        folded = prod(v.extent for v in program.rows[program.prefix :])

        def block(position: str) -> None:
            for k, accumulator in enumerate(program.accumulators):
                if not accumulator.prefix:
                    continue
                if not self._direct(accumulator):
                    raise NotImplementedError("half-precision sums over middle axes are widened before scheduling")
                size = program.inner_count
                base = f"%p{len(program.loads) + len(program.stores) + k}"
                offset = self.line(f"mul i64 {position}, {size}")
                kind = memory_type(accumulator.value.type.dtype)
                self.bases[k] = self.line(f"getelementptr {kind}, ptr {base}, i64 {offset}")
                self._fill(accumulator, self.bases[k])
            start = self.line(f"mul i64 {position}, {folded}")
            stop = self.line(f"add i64 {start}, {folded}")
            self._loop("row", start, stop, self._row_at, parallel=False)

        self._loop("prefix", low, high, block, parallel=False)

    # -- loops

    def _loop(self, kind: str, low: str, high: str, body: Callable[[str], None], *, parallel: bool) -> None:
        """``for i in [low, high)``; parallel loops promise independent iterations to the vectoriser."""
        head, inside, done = self.label(f"{kind}.head"), self.label(f"{kind}.body"), self.label(f"{kind}.done")
        before = self.block
        counter = self.name()
        following = self.name()
        self.lines.append(f"  br label %{head}")
        self.start(head)
        position = len(self.lines)
        self.lines.append("")
        test = self.line(f"icmp slt i64 {counter}, {high}")
        self.lines.append(f"  br i1 {test}, label %{inside}, label %{done}")
        self.start(inside)
        body(counter)
        self.lines.append(f"  {following} = add nuw nsw i64 {counter}, 1")
        metadata = f", !llvm.loop !{self._loop_metadata()}" if parallel else ""
        self.lines.append(f"  br label %{head}{metadata}")
        self.lines[position] = f"  {counter} = phi i64 [ {low}, %{before} ], [ {following}, %{self.block} ]"
        self.start(done)

    def _loop_metadata(self) -> int:
        number = 1 + len(self.loops_metadata)
        if number == 1:
            self.loops_metadata.append('!1 = !{!"llvm.loop.parallel_accesses", !0}')
            number = 2
        self.loops_metadata.append(f"!{number} = distinct !{{!{number}, !1}}")
        return number

    def _row_at(self, row: str) -> None:
        """One row: digits of the row counter, then the phases."""
        rest = row
        rows = self.program.rows
        for variable in reversed(rows[1:]):
            self.variables[variable] = self.line(f"urem i64 {rest}, {variable.extent}")
            rest = self.line(f"udiv i64 {rest}, {variable.extent}")
        if rows:
            self.variables[rows[0]] = rest
        self._row(None)

    def _row(self, bounds: tuple[str, str] | None) -> None:
        self.row_memo = {}
        program = self.program
        last = max([r.expr.phase for r in program.reductions] + [e.phase for e in self._inner_roots()], default=-1)
        for phase in range(last + 1):
            self._phase(phase, bounds)
        self._row_results()

    def _inner_roots(self) -> list[Expr]:
        program = self.program
        return [s.expr for s in program.stores if self._is_full(s.expr, s.index)] + [
            a.expr for a in program.accumulators if self._accumulates_inside(a)
        ]

    def _is_full(self, expr: Expr, index: Index) -> bool:
        return expr.inner or any(self._varies(index, v) for v in self.program.inner)

    def _varies(self, index: Index, variable: LoopVariable) -> bool:
        for term, _ in index.terms:
            if term == variable:
                return True
            if isinstance(term, Quotient | Remainder) and self._varies(term.base, variable):
                return True
        return False

    def _accumulates_inside(self, accumulator: Accumulator) -> bool:
        return accumulator.kind == "col" or accumulator.expr.inner or accumulator.full

    def _phase(self, phase: int, bounds: tuple[str, str] | None) -> None:
        program = self.program
        reductions = [r for r in program.reductions if r.expr.phase == phase]
        stores = [s for s in program.stores if s.expr.phase == phase and self._is_full(s.expr, s.index)]
        sums = [
            (k, a)
            for k, a in enumerate(program.accumulators)
            if a.expr.phase == phase and self._accumulates_inside(a)
        ]
        kept = [e for e, (first, _) in self.cached.items() if first == phase]
        roots = [*(r.expr for r in reductions), *(s.expr for s in stores), *(a.expr for _, a in sums), *kept]
        if not roots:
            return
        seen: set[Expr] = set()
        for root in roots:
            self._hoist(root, phase, seen)
        for reduction in reductions:
            self._open_reduction(reduction)

        def body() -> None:
            memo: dict[Any, Any] = {}
            outside, self.attrs = self.attrs, ", !llvm.access.group !0"
            for expr in kept:
                self._keep(expr, self._expr(expr, memo, phase), memo)
            for reduction in reductions:
                self._accumulate_row(reduction, self._expr(reduction.expr, memo, phase), memo)
            for store in stores:
                slot = program.stores.index(store)
                value = self._expr(store.expr, memo, phase)
                self.emit.store(value, self._address(len(program.loads) + slot, store.value.type.dtype, store.index, memo), self.attrs)
            for k, accumulator in sums:
                self._accumulate(k, accumulator, self._expr(accumulator.expr, memo, phase), memo)
            self.attrs = outside

        self._inner_loops(list(program.inner), bounds, body)
        for reduction in reductions:
            self._close_reduction(reduction)

    def _inner_loops(self, loops: list[LoopVariable], bounds: tuple[str, str] | None, body: Callable[[], None]) -> None:
        if not loops:
            body()
            return
        variable, rest = loops[0], loops[1:]
        low, high = bounds or ("0", str(variable.extent))

        def inside(counter: str) -> None:
            self.variables[variable] = counter
            self._inner_loops(rest, None, body)

        self._loop("inner", low, high, inside, parallel=not rest)

    # -- row reductions

    def _open_reduction(self, reduction: Any) -> None:
        dtype = accumulator_dtype(reduction.expr.dtype)
        pair = getattr(reduction.op, "is_pair", False)
        if pair:
            best, where = self.alloca(dtype), self.alloca(int64)
            self.lines.append(f"  store {register_type(dtype)} {self.emit.zero(Scalar('', dtype)).text}, ptr {best}")
            self.lines.append(f"  store i64 -1, ptr {where}")
            self.row_slots[reduction.value] = [(best, dtype), (where, int64)]
            return
        slot = self.alloca(dtype)
        identity, _ = reduction.op.lower(self.fold, dtype)
        self.lines.append(f"  store {register_type(dtype)} {identity.text}, ptr {slot}")
        self.row_slots[reduction.value] = [(slot, dtype)]

    def _accumulate_row(self, reduction: Any, value: Scalar, memo: dict[Any, Any]) -> None:
        slots = self.row_slots[reduction.value]
        if len(slots) == 2:
            self._accumulate_pair(reduction, value, memo)
            return
        ((slot, dtype),) = slots
        _, combine = reduction.op.lower(self.fold, dtype)
        self._fold_into(slot, Scalar(value.text, dtype), combine)

    def _fold_into(self, slot: str, value: Scalar, combine: Callable[[Scalar, Scalar], Scalar]) -> None:
        kind = register_type(value.dtype)
        old = Scalar(self.line(f"load {kind}, ptr {slot}"), value.dtype)
        self.lines.append(f"  store {kind} {combine(old, value).text}, ptr {slot}")

    def _accumulate_pair(self, reduction: Any, value: Scalar, memo: dict[Any, Any]) -> None:
        (best, dtype), (where, _) = self.row_slots[reduction.value]
        emit = self.emit
        kind = register_type(dtype)
        old = Scalar(self.line(f"load {kind}, ptr {best}"), dtype)
        at = Scalar(self.line(f"load i64, ptr {where}"), int64)
        position = Index()
        for variable in self.program.inner:
            position = position * variable.extent + Index.of(variable)
        here = Scalar(self._index(position, memo), int64)
        new = Scalar(value.text, dtype)
        _, beats = reduction.op.lower(emit, dtype)
        wins = beats(new, old)
        first = emit.lt(at, emit.constant(0, int64))
        wins = emit.logical_or(wins, first)
        self.lines.append(f"  store {kind} {emit.select(wins, new, old).text}, ptr {best}")
        self.lines.append(f"  store i64 {emit.select(wins, here, at).text}, ptr {where}")

    def _close_reduction(self, reduction: Any) -> None:
        slots = self.row_slots[reduction.value]
        slot, dtype = slots[-1]
        value = Scalar(self.line(f"load {register_type(dtype)}, ptr {slot}"), dtype)
        result = reduction.value.type.dtype
        if result is not dtype:
            value = self.emit.rounded(value, result) if accumulator_dtype(result) is dtype else self.emit.cast(value, result)
            value = Scalar(value.text, result)
        self.row_memo[("row", reduction.value)] = value

    # -- accumulators over rows, inside the loops

    def _accumulate(self, position: int, accumulator: Accumulator, value: Scalar, memo: dict[Any, Any]) -> None:
        dtype = accumulator_dtype(accumulator.value.type.dtype)
        value = Scalar(value.text, dtype)
        _, combine = accumulator.op.lower(self.fold, dtype)  # type: ignore[attr-defined]
        if accumulator.kind == "all":
            self._fold_into(self.totals[position], value, combine)
            return
        index = Index()
        for variable in self.program.inner:
            index = index * variable.extent + Index.of(variable)
        where = self._index(index, memo)
        at = self.line(f"getelementptr {memory_type(dtype)}, ptr {self.bases[position]}, i64 {where}")
        old = self.emit.load(at, dtype, self.attrs)
        self.emit.store(combine(old, value), at, self.attrs)

    def _row_results(self) -> None:
        """Row-level stores and accumulators, after the last phase."""
        program = self.program
        for slot, store in enumerate(program.stores):
            if self._is_full(store.expr, store.index):
                continue
            value = self._expr(store.expr, self.row_memo, store.expr.phase)
            address = self._address(len(program.loads) + slot, store.value.type.dtype, store.index, self.row_memo)
            self.emit.store(value, address)
        for k, accumulator in enumerate(program.accumulators):
            if not self._accumulates_inside(accumulator):
                value = self._expr(accumulator.expr, self.row_memo, accumulator.expr.phase)
                self._accumulate(k, accumulator, value, self.row_memo)

    # -- the row cache

    def _plan_cache(self) -> None:
        """Expensive inner expressions read again in a later phase are kept in row scratch."""
        program = self.program
        roots: dict[int, list[Expr]] = {}
        for reduction in program.reductions:
            roots.setdefault(reduction.expr.phase, []).append(reduction.expr)
        for store in program.stores:
            roots.setdefault(store.expr.phase, []).append(store.expr)
        for accumulator in program.accumulators:
            roots.setdefault(accumulator.expr.phase, []).append(accumulator.expr)
        first_seen: dict[Expr, int] = {}
        room = CACHE_BYTES
        for phase in sorted(roots):
            fresh: list[Expr] = []
            stack = list(roots[phase])
            visited: set[Expr] = set()
            while stack:
                expr = stack.pop()
                if expr in visited:
                    continue
                visited.add(expr)
                size = program.inner_count * expr.dtype.size_bytes
                again = first_seen.get(expr)
                if again is not None and expr.inner and expr.cost >= CACHE_COST and expr.kind != "load":
                    if expr in self.cached:
                        continue
                    if size <= room:
                        self.cached[expr] = (again, "")
                        room -= size
                        continue
                if again is None:
                    fresh.append(expr)
                stack.extend(expr.args)
                stack.extend(self.program.lookups[n] for n in self._opaque_names(expr))
            for expr in fresh:
                first_seen[expr] = phase
        for expr, (phase, _) in list(self.cached.items()):
            self.cached[expr] = (phase, self.alloca(expr.dtype, max(program.inner_count, 2)))

    def _opaque_names(self, expr: Expr) -> list[str]:
        return [t.text for index in expr.index for t, _ in index.terms if not isinstance(t, LoopVariable | Quotient | Remainder)]

    def _cache_address(self, expr: Expr, memo: dict[Any, Any]) -> str:
        position = Index()
        for variable in self.program.inner:
            position = position * variable.extent + Index.of(variable)
        where = self._index(position, memo)
        return self.line(f"getelementptr {memory_type(expr.dtype)}, ptr {self.cached[expr][1]}, i64 {where}")

    def _keep(self, expr: Expr, value: Scalar, memo: dict[Any, Any]) -> None:
        self.emit.store(value, self._cache_address(expr, memo), self.attrs)

    # -- expressions

    def _hoist(self, expr: Expr, phase: int, seen: set[Expr]) -> None:
        """Compute what does not vary inside before the inner loops start."""
        if expr in seen:
            return
        seen.add(expr)
        if not expr.inner:
            self._expr(expr, self.row_memo, phase)
            return
        if expr in self.cached and self.cached[expr][0] < phase:
            return
        if expr.kind == "guard":
            return
        for arg in expr.args:
            self._hoist(arg, phase, seen)

    def _expr(self, expr: Expr, memo: dict[Any, Any], phase: int) -> Scalar:
        found = memo.get(expr)
        if found is None and not expr.inner:
            found = self.row_memo.get(expr)
        if found is not None:
            return found  # type: ignore[no-any-return]
        if expr.kind == "row":
            return self.row_memo[("row", expr.slot)]  # type: ignore[no-any-return]
        if expr in self.cached and self.cached[expr][0] < phase:
            value = self.emit.load(self._cache_address(expr, memo), expr.dtype, self.attrs)
        else:
            value = self._computed(expr, memo, phase)
        memo[expr] = value
        return value

    def _computed(self, expr: Expr, memo: dict[Any, Any], phase: int) -> Scalar:
        emit = self.emit
        if expr.kind == "load":
            address = self._address(expr.slot, expr.dtype, expr.index[0], memo, phase)
            return emit.load(address, expr.dtype, self.attrs)
        if expr.kind == "op":
            args = [self._expr(a, memo, phase) for a in expr.args]
            result = expr.op.lower(emit, *args)
            return Scalar(result.text, expr.dtype)
        if expr.kind == "const":
            kind, number = expr.slot
            return emit.constant(float(number) if kind == "float" else number, expr.dtype)
        if expr.kind == "source":
            index = tuple(Scalar(self._index(i, memo, phase), int64) for i in expr.index)
            return Scalar(expr.op.lower(emit, index).text, expr.dtype)
        if expr.kind == "guard":
            return self._guarded(expr, memo, phase)
        if expr.kind == "lookup":
            return self._lookup(expr, memo, phase)
        assert expr.kind == "random", expr.kind
        seed, offset = (self._expr(a, memo, phase) for a in expr.args)
        position = Scalar(self._index(expr.index[0], memo, phase), int64)
        return self._random_word(seed, offset, position)

    def _random_word(self, seed: Scalar, offset: Scalar, position: Scalar) -> Scalar:
        """Word ``position % 4`` of the Philox block of counter ``offset + position // 4`` (see ``ops.random``)."""
        emit = self.emit
        half = emit.constant(32, uint64)
        wide = Scalar(position.text, uint64)
        counter = emit.add(Scalar(offset.text, uint64), emit.shift_right(wide, emit.constant(2, uint64)))
        zero = emit.constant(0, uint32)
        counters = (emit.cast(counter, uint32), emit.cast(emit.shift_right(counter, half), uint32), zero, zero)
        key = Scalar(seed.text, uint64)
        keys = (emit.cast(key, uint32), emit.cast(emit.shift_right(key, half), uint32))
        words = emit.philox(counters, keys)
        which = emit.bitwise_and(emit.cast(wide, uint32), emit.constant(3, uint32))
        value = words[3]
        for k in (2, 1, 0):
            value = emit.select(emit.eq(which, emit.constant(k, uint32)), words[k], value)
        return value

    def _lookup(self, expr: Expr, memo: dict[Any, Any], phase: int) -> Scalar:
        """A run-time index: wrapped once if negative and kept inside the axis."""
        emit = self.emit
        index = emit.cast(self._expr(expr.args[0], memo, phase), int64)
        extent = emit.constant(expr.slot, int64)
        wrapped = emit.select(emit.lt(index, emit.constant(0, int64)), emit.add(index, extent), index)
        top = self.line(f"call i64 @llvm.umin.i64(i64 {wrapped.text}, i64 {max(expr.slot - 1, 0)})")
        return Scalar(top, int64)

    def _guarded(self, expr: Expr, memo: dict[Any, Any], phase: int) -> Scalar:
        inside, outside = expr.args
        condition = self._conditions(expr, memo, phase)
        otherwise = self._expr(outside, memo, phase)
        if not _reads_memory(inside):
            return self.emit.select(condition, self._expr(inside, memo, phase), otherwise)
        then, join = self.label("in"), self.label("join")
        before = self.block
        self.lines.append(f"  br i1 {condition.text}, label %{then}, label %{join}")
        self.start(then)
        kept = self.row_memo
        self.row_memo = dict(self.row_memo)
        value = self._expr(inside, dict(memo), phase)
        self.row_memo = kept
        end = self.block
        self.lines.append(f"  br label %{join}")
        self.start(join)
        kind = register_type(expr.dtype)
        name = self.line(f"phi {kind} [ {value.text}, %{end} ], [ {otherwise.text}, %{before} ]")
        return Scalar(name, expr.dtype)

    def _conditions(self, expr: Expr, memo: dict[Any, Any], phase: int) -> Scalar:
        parts: list[str] = []
        for index, low, high in expr.guards:
            at = self._index(index, memo, phase)
            least, greatest = index.bounds()
            if least < low:
                parts.append(self.line(f"icmp sge i64 {at}, {low}"))
            if greatest >= high or not parts:
                parts.append(self.line(f"icmp slt i64 {at}, {high}"))
        total = parts[0]
        for part in parts[1:]:
            total = self.line(f"and i1 {total}, {part}")
        return Scalar(total, bool_)

    # -- addresses

    def _address(self, pointer: int, dtype: DType, index: Index, memo: dict[Any, Any], phase: int = 0) -> str:
        at = self._index(index, memo, phase)
        return self.line(f"getelementptr {memory_type(dtype)}, ptr %p{pointer}, i64 {at}")

    def _index(self, index: Index, memo: dict[Any, Any], phase: int = 0) -> str:
        found = memo.get(index)
        if found is not None:
            return found  # type: ignore[no-any-return]
        total: str | None = None
        for term, coefficient in index.terms:
            part = self._term(term, memo, phase)
            if coefficient != 1:
                part = self.line(f"mul nsw i64 {part}, {coefficient}")
            total = part if total is None else self.line(f"add nsw i64 {total}, {part}")
        if total is None:
            total = str(index.offset)
        elif index.offset:
            total = self.line(f"add nsw i64 {total}, {index.offset}")
        memo[index] = total
        return total

    def _term(self, term: Any, memo: dict[Any, Any], phase: int) -> str:
        if isinstance(term, LoopVariable):
            return self.variables[term]
        if isinstance(term, Quotient | Remainder):
            found = memo.get(term)
            if found is None:
                base = self._index(term.base, memo, phase)
                opcode = "udiv" if isinstance(term, Quotient) else "urem"
                found = memo[term] = self.line(f"{opcode} i64 {base}, {term.divisor}")
            return found  # type: ignore[no-any-return]
        return self._expr(self.program.lookups[term.text], memo, phase).text

    # -- combining the chunks

    def _combine_text(self) -> str:
        printer = LoopPrinter.__new__(LoopPrinter)
        LoopPrinter.__init__(printer, self.program, self.symbol, self.slices)
        printer.partials, printer.partial_bytes = self.partials, self.partial_bytes
        printer._pointers()
        for k in self.partials:
            printer._combine_one(k, self.program.accumulators[k])
        printer.lines.append("  ret void")
        self.loops_metadata_extra = printer.loops_metadata
        body = "\n".join(["entry:", *printer.entry, *printer.lines])
        return f"define void @{self.symbol}_combine(ptr noalias readonly %args, i64 %chunk, i64 %worker) #0 {{\n{body}\n}}"

    def _combine_one(self, position: int, accumulator: Accumulator) -> None:
        program = self.program
        wide = accumulator_dtype(accumulator.value.type.dtype)
        partial = f"%p{self.pointer_count - 1}"
        target = f"%p{len(program.loads) + len(program.stores) + position}"
        _, combine = accumulator.op.lower(self.emit, wide)  # type: ignore[attr-defined]
        count = program.inner_count if accumulator.kind == "col" else 1

        identity, _ = accumulator.op.lower(self.emit, wide)  # type: ignore[attr-defined]
        kind = register_type(wide)
        total_slot = self.alloca(wide)

        def element(i: str) -> None:
            self.lines.append(f"  store {kind} {identity.text}, ptr {total_slot}")

            def chunk(c: str) -> None:
                skip = self.line(f"mul i64 {c}, {self.partial_bytes}")
                skip = self.line(f"add i64 {skip}, {self.partials[position]}")
                base = self.line(f"getelementptr i8, ptr {partial}, i64 {skip}")
                at = self.line(f"getelementptr {memory_type(wide)}, ptr {base}, i64 {i}")
                self._fold_into(total_slot, self.emit.load(at, wide), combine)

            self._loop("slot", "0", str(self.plan.count), chunk, parallel=False)
            total = Scalar(self.line(f"load {kind}, ptr {total_slot}"), wide)
            result = accumulator.value.type.dtype
            if result is not wide:
                total = Scalar(self.emit.rounded(total, result).text, result)
            at = self.line(f"getelementptr {memory_type(result)}, ptr {target}, i64 {i}")
            self.emit.store(total, at)

        self._loop("combine", "0", str(count), element, parallel=False)


def _reads_memory(expr: Expr) -> bool:
    if expr.kind in ("load", "lookup"):
        return True
    return any(_reads_memory(a) for a in expr.args)


def print_loops(program: LoopProgram, symbol: str, slices: int | None = None) -> KernelText:
    """The kernel's LLVM text and how it is cut (into ``slices`` in a band). ``program`` must be settled."""
    return LoopPrinter(program, symbol, slices).print()


__all__ = ["ChunkPlan", "KernelText", "LoopPrinter", "float64", "plan_chunks", "print_loops"]
