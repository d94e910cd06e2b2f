"""Scatters: ``result = base`` with elements of ``src`` set or added at run-time places, in the order of ``src``.

The loops are those of ``src``: rows over the axes that an index depends on, inner loops over the rest, where places are
neighbours and never meet, so they vectorise. Rows run in order in one chunk, which makes the result deterministic;
chunks cut the columns of one wide inner loop. ``result`` may be ``base`` itself: then nothing is copied.
"""

from __future__ import annotations

from autojit.codegen.cpu.chunks import CHUNK_NS, ChunkPlan
from autojit.codegen.cpu.kernel_text import KernelText
from autojit.codegen.cpu.loops.kernel import LoopPrinter
from autojit.codegen.scalar import Scalar, memory_type
from autojit.core.sizes import size_max, size_min, surely_less, typical
from autojit.ir.graph import Node
from autojit.ir.index import Index, LoopVariable, Opaque, linearize
from autojit.ops.scattering import Scattering
from autojit.schedule.expressions import Applied, Expr, Expressions, Load, LookUp
from autojit.schedule.loops import LoopProgram, Store
from autojit.schedule.pull import Indices, loop_indices
from autojit.schedule.refine import settle

# They only cut work into chunks; no measurement is recorded.
MAX_COLUMN_CHUNKS = 8
LEAST_COLUMNS = 32  # two cache lines of float32
ROW_NS = 4.0
ELEMENT_NS = 0.15
COPY_NS = 0.1  # per byte


def print_scatter(node: Node) -> KernelText:
    """The kernel of a scatter; sums of halves were widened by the passes."""
    return _ScatterPrinter(node).print()


class _ScatterPrinter(LoopPrinter):
    def __init__(self, node: Node) -> None:
        program = scatter_program(node)
        super().__init__(program, "kernel")
        self.base = node.inputs[0].type
        rows, elements = typical(self.walk.row_count), typical(self.walk.row_count * self.walk.inner_count)
        estimate = 50.0 + ROW_NS * rows + ELEMENT_NS * elements + COPY_NS * typical(self.base.size_bytes)
        self.columns = self._whole_columns()
        wanted = size_min(min(MAX_COLUMN_CHUNKS, int(estimate / CHUNK_NS)), self.columns // LEAST_COLUMNS)
        size = -(-self.columns // size_max(wanted, 1))
        size = size_max(1, size if wanted == 0 or wanted == 1 else -(-size // LEAST_COLUMNS) * LEAST_COLUMNS)
        count = size_max(1, -(-self.columns // size))
        self.plan = ChunkPlan(count, size, over_inner=False, estimate_ns=estimate)

    def _whole_columns(self) -> int:
        """The extent of the inner loop if it covers whole contiguous lines of the base, else 0."""
        if len(self.walk.inner) != 1:
            return 0
        (variable,) = self.walk.inner
        shape = list(self.base.shape)
        line = 1
        while shape and surely_less(line, variable.extent):
            line *= shape.pop()
        coefficient = dict(self.program.stores[0].index.terms).get(variable)
        return line if coefficient == 1 and line == variable.extent else 0

    def print(self) -> KernelText:
        program = self.program
        self.plan_cache()
        self.pointers([v.type.size for v in (*program.loads, program.stores[0].value)])
        bounds = None
        if self.plan.count != 1:
            bounds = self.chunk_bounds(self.plan.size, self.columns)
        result = self.buffers[len(program.loads)]
        with self.when(self.test("ne", result, "%p0", "ptr")):
            self._copy_base(result, bounds)
        with self.loop(0, self.walk.row_count, stem="row") as number:
            self.set_counters(self.walk.rows, number)
            self.row(bounds)
        return self.finished(self.plan.count, self.plan.estimate_ns)

    def _copy_base(self, result: str, bounds: tuple[str, str] | None) -> None:
        size = self.base.dtype.size_bytes
        if bounds is None:
            self.copy_bytes(result, "%p0", self.base.size_bytes)
            return
        low, high = bounds
        length = self.mul(self.sub(high, low), size)
        kind = memory_type(self.base.dtype)
        with self.loop(0, self.base.size // self.columns, stem="line") as number:
            start = self.add(self.mul(number, self.columns), low)
            target, source = (self.element(p, kind, start) for p in (result, "%p0"))
            self.copy_bytes(target, source, length)


class _Fold:
    """What an `Applied` expression needs to be printed: an element folded into what is there."""

    is_cheap = True

    def __init__(self, combine: str) -> None:
        self.name = {"max": "maximum", "min": "minimum"}.get(combine, combine)

    def lower(self, emit: object, old: Scalar, new: Scalar) -> Scalar:
        folded: Scalar = getattr(emit, self.name)(old, new)
        return folded


def scatter_program(node: Node) -> LoopProgram:
    """The scatter's loops. Loads: the operands, then the result itself when its elements are added to."""
    op = node.op
    assert isinstance(op, Scattering)
    src = node.inputs[1].type
    axes = loop_indices(src.shape)
    exprs = Expressions()
    looked: set[LoopVariable] = set()

    def fetch(operand: int, where: Indices, extent: int) -> Index:
        value = node.inputs[operand]
        looked.update(t for index in where for t, _ in index.terms if isinstance(t, LoopVariable))
        position = linearize(where, value.type.shape)
        index = exprs.make(Load, value.type.dtype, positions=(position,), buffer=operand)
        name = f"x{operand}"
        exprs.lookups[name] = exprs.make(LookUp, value.type.dtype, (index,), extent=extent)
        return Index.of(Opaque(name, extent))

    target = op.target_index_at(axes, [v.type for v in node.inputs], fetch)
    place = linearize(target, node.inputs[0].type.shape)
    variables = tuple([t for axis in axes for t, _ in axis.terms if isinstance(t, LoopVariable)])
    last = max((k for k, v in enumerate(variables) if v in looked), default=-1)
    element: Expr = exprs.make(Load, src.dtype, positions=(linearize(axes, src.shape),), buffer=1)
    result = node.outputs[0]
    if op.combine != "set":
        old = exprs.make(Load, result.type.dtype, positions=(place,), buffer=len(node.inputs))
        element = exprs.make(Applied, result.type.dtype, (old, element), op=_Fold(op.combine))
    return settle(
        LoopProgram(
            rows=variables[: last + 1],
            inner=variables[last + 1 :],
            prefix=0,
            is_flat=False,
            exprs=tuple(exprs.made),
            reductions=(),
            stores=(Store(result, element, place),),
            accumulators=(),
            loads=node.inputs,
            lookups=exprs.lookups,
            lookup_nodes=dict.fromkeys(exprs.lookups, node),
        )
    )
