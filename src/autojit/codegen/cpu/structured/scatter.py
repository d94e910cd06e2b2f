"""Scatters: ``result = base`` with elements of ``src`` set or added at run-time places, in the order of ``src``.

The loops are those of ``src`` (`schedule.scatter_loops`), whose inner ones vectorise. Rows run in order in one chunk,
which makes the result deterministic; chunks cut the columns of one wide inner loop. ``result`` may be ``base`` itself:
then nothing is copied.
"""

from __future__ import annotations

from autojit.codegen.cpu.chunks import CHUNK_NS, ChunkPlan
from autojit.codegen.cpu.kernel_text import KernelText
from autojit.codegen.cpu.loops.kernel import LoopPrinter
from autojit.codegen.scalar import memory_type
from autojit.core.sizes import size_max, size_min, surely_less, typical
from autojit.ir.graph import Node
from autojit.schedule.scatter_loops import scatter_program

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
