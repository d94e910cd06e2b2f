"""The kernels of matrix products; of those whose elements go on into loops, too (`schedule.epilogues`).

An epilogue is printed on the elements that threads hold: each takes the place of the load that would have read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from autojit.codegen.cuda.combine import print_combine
from autojit.codegen.cuda.grid_expressions import GridExpressions, Point
from autojit.codegen.cuda.grid_folds import GridFolds, Partials
from autojit.codegen.cuda.lane_folds import LaneFolds, State
from autojit.codegen.cuda.product_fragments import Places
from autojit.codegen.cuda.product_job import ProductJob, job_of, shape_of
from autojit.codegen.cuda.product_kernel import Element, ProductPrinter, Vector, Write, printed
from autojit.codegen.cuda.product_results import Results
from autojit.codegen.cuda.target import CudaTarget
from autojit.codegen.folding import fold_dtype, partial_dtype, rounded_to
from autojit.codegen.grid_text import Buffer, GridText
from autojit.codegen.scalar import Scalar
from autojit.codegen.walk import Walk
from autojit.core.config import config
from autojit.core.sizes import surely_divides
from autojit.schedule.expressions import Expr, Load
from autojit.schedule.kernels import Epilogue, MatmulKernel
from autojit.schedule.loops import Accumulator

MOST_AHEAD = 32
"""Words of a lane that are read before the product is there: as many as registers of totals and operands leave."""

__all__ = ["print_product", "product_key", "shape_of"]


def product_key(kernel: MatmulKernel) -> object:
    """What the text of a product depends on: kernels with equal keys are printed alike."""
    epilogue = kernel.epilogue
    more = None if epilogue is None else (epilogue.slot, epilogue.program.structure())
    dtypes = kernel.node.inputs[0].type.dtype, kernel.node.outputs[0].type.dtype
    return shape_of(kernel), dtypes, kernel.init is None, more


def print_product(kernel: MatmulKernel, target: CudaTarget) -> GridText:
    """The kernel of a product whose sizes are known; its buffers are what it reads, then what it writes."""
    epilogue = kernel.epilogue
    if epilogue is None:
        return printed(job_of(kernel, target), ProductPrinter)
    return printed(job_of(kernel, target), lambda job: EpiloguePrinter(job, epilogue))


class EpiloguePrinter(ProductPrinter, LaneFolds, GridExpressions):
    """Prints a product with an epilogue.

    What the loops fold of each column, a lane folds of its rows in their order, the lanes of a warp by shuffles; each
    warp leaves what it has, which a second kernel folds in the order of rows, unless there is one warp to a column.
    """

    def __init__(self, job: ProductJob, epilogue: Epilogue) -> None:
        program = epilogue.program
        self.loops = (*program.rows, *program.inner)
        GridExpressions.__init__(self, job.grid, Walk(program, (), self.loops), is_checked=config.check)
        self.begin(job)
        self.slot_of_product = epilogue.slot
        self.columns: dict[int, list[str]] = {}  # accumulator -> the variables of the lane's columns
        self.partial_results: dict[int, Partials] = {}
        self._place_partials()
        self.ahead: Iterator[list[dict[Expr, str]]] = iter(())  # of each run in turn, what was read ahead
        self.product_reads = [e for e in program.exprs if isinstance(e, Load) and e.buffer == epilogue.slot]

    def _place_partials(self) -> None:
        count = self.job.tiles[0] * self.tile.warps[0] * self.shape.count
        for number, accumulator in enumerate(self.program.accumulators):
            if count != 1:
                where = Partials(self.partial_bytes, count, self.shape.extents[1])
                self.partial_results[number] = where
                size = where.count * where.columns * partial_dtype(accumulator).size_bytes
                self.partial_bytes = GridFolds.round_up_bytes(self.partial_bytes + size)

    @property
    def first_result(self) -> int:
        """The buffer of the first accumulator."""
        return self.first_load + len(self.program.loads) - 1 + len(self.program.stores)

    def read_ahead(self, places: Places) -> None:
        """What the loops read at a lane's elements, into variables, if these are few and all are in the result."""
        reads = [e for e in self.program.exprs if isinstance(e, Load) and e.buffer != self.slot_of_product]
        words = len(places.of_lane()) * sum(-(-e.dtype.size_bytes // 4) for e in reads)
        m, n, _ = self.shape.extents
        is_whole = surely_divides(self.tile.rows, m) and surely_divides(self.tile.columns, n)
        if not is_whole or words > MOST_AHEAD or self.job.part != "whole":
            return
        blank = Scalar("", self.job.result)
        ahead: list[list[dict[Expr, str]]] = []
        with self.where(places.finishes(self)):
            for elements in self.elements(self.results_of(places)):
                ahead.append(self._read_at(self._points(elements, [blank] * len(elements))))
        self.ahead = iter(ahead)

    def _read_at(self, points: Sequence[Point]) -> list[dict[Expr, str]]:
        """The variables of what is read at each point, whatever the product is."""
        with self._numbered_by_program():
            reads = self.read_first(points, self._roots(), 0)
        found: list[dict[Expr, str]] = []
        for point in points:
            slots = {expr: self.slot(expr.dtype) for expr in reads}
            for expr, slot in slots.items():
                self.put(slot, point.memo[expr])
            found.append(slots)
        return found

    def _roots(self) -> list[Expr]:
        program = self.program
        return [*(store.expr for store in program.stores), *(total.expr for total in program.accumulators)]

    def open_columns(self, results: Results) -> None:
        """A variable for each column of the lane's elements."""
        offsets = results.columns
        self.column_numbers = {offset: k for k, offset in enumerate(offsets)}
        for number, accumulator in enumerate(self.program.accumulators):
            within = fold_dtype(accumulator.value.type.dtype)
            self.columns[number] = [self.slot(within) for _ in offsets]
            for slot in self.columns[number]:
                self.put(slot, self.identity(accumulator.op, within))

    def close_columns(self, places: Places, results: Results) -> None:
        """The lanes of a warp that have the same columns fold them; the first leaves the result."""
        first_column = self.offset(self.column, results.column)
        n, before = self.shape.extents[1], self.job.tiles[0] * self.tile.warps[0]
        down = self.quotient(self.offset(self.row, places.first_row), self.tile.warp_rows)
        part = self.offset(self.scaled(self.matrix, before), down)
        for number, accumulator in enumerate(self.program.accumulators):
            within = fold_dtype(accumulator.value.type.dtype)
            states: list[State] = [(self.get(slot, within),) for slot in self.columns[number]]
            for low, high in results.folded:
                states = self.over_lanes(states, [self.plain(accumulator.op)] * len(states), low, high)
            for offset, (total,) in zip(self.column_numbers, states, strict=True):
                column = self.offset(first_column, offset)
                inside = None if surely_divides(self.tile.columns, n) else self.test("ult", column, n)
                with self.perhaps(self.all_of(results.is_first, inside)):
                    self._leave_column(number, total, part, column)

    def _leave_column(self, number: int, total: Scalar, part: str, column: str) -> None:
        accumulator = self.program.accumulators[number]
        where = self.partial_results.get(number)
        if where is None:
            result = rounded_to(self.emit, total, accumulator.value.type.dtype)
            self.write(self.first_result + number, result, column)
            return
        at = self.offset(self.scaled(part, where.columns), column)
        start = self.at(self.partials, where.offset)
        self.emit.store(total, self.address(start, partial_dtype(accumulator), at))

    def combining(self, roles: Sequence[Buffer]) -> GridText | None:
        """The kernel that folds what warps leave."""
        return print_combine(self, roles) if self.partial_results else None

    @property
    def first_load(self) -> int:
        """The first buffer of the epilogue."""
        return 3 if self.adds else 2

    def _own(self, slot: int) -> int:
        """Which buffer a load or store of the program has; of the product, which has none, any."""
        return self.first_load + slot - (slot > self.slot_of_product)

    @contextmanager
    def _numbered_by_program(self) -> Iterator[None]:
        """Loads are buffers by their places in the program."""
        buffers, sizes = self.buffers, self.sizes
        slots = [self._own(slot) for slot in range(len(self.program.loads))]
        self.buffers, self.sizes = [buffers[k] for k in slots], [sizes[k] for k in slots]
        yield
        self.buffers, self.sizes = buffers, sizes

    @contextmanager
    def where(self, inside: str | None) -> Iterator[None]:
        """As for every product; what is computed in a branch is not known outside."""
        known = self.row_memo
        self.row_memo = dict(known) if inside else known
        with super().where(inside):
            yield
        self.row_memo = known

    def results(self, vector: Vector) -> list[Write]:
        """What the loops store at neighbours; what they read is read at all of them first."""
        products = [self.product_at(*pair) for pair in vector]
        elements, phase = [element for element, _ in vector], 0
        points = self._points(elements, products)
        for point, slots in zip(points, next(self.ahead, ()), strict=False):
            point.memo.update({expr: self.get(slot, expr.dtype) for expr, slot in slots.items()})
        stores = list(enumerate(self.program.stores, start=len(self.program.loads)))
        found: list[Write] = []
        with self._numbered_by_program():
            folded = list(enumerate(self.program.accumulators))
            roots = self._roots()
            assert all(root.phase == phase for root in roots), "nothing is folded before it is used"
            self.compute(points, roots, phase)
            for slot, store in stores:  # LLVM merges no stores with one between them that may be to the same memory
                for point in points:
                    value = self.at_point(point, store.expr, phase)
                    self.read_overwritten(store, point.memo)
                    found.append((self._own(slot), value, self.index(store.index, point.memo, phase)))
            for point, element in zip(points, elements, strict=True):
                for number, accumulator in folded:
                    self._fold(number, accumulator, self.at_point(point, accumulator.expr, phase), element)
        return found

    def _points(self, elements: Sequence[Element], products: Sequence[Scalar]) -> list[Point]:
        """The points of the loops at neighbours, at which the product is known."""
        first, self.width = elements[0], len(elements)
        if self.loops and self.loops[-1].extent == self.shape.extents[1]:
            self.set_counters(self.loops[:-1], first.row)
            self.variables[self.loops[-1]] = first.column
        else:
            self.set_counters(self.loops, first.position)
        counters = {variable: self.variables[variable] for variable in self.loops}
        points: list[Point] = []
        for k, product in enumerate(products):
            point = self.neighbour(0, counters, first.position, None, k)
            point.memo.update(dict.fromkeys(self.product_reads, product))
            if k:
                point.base, point.shift, point.first, point.place = points[0], k, points[0], k
            points.append(point)
        return points

    def _fold(self, number: int, accumulator: Accumulator, value: Scalar, element: Element) -> None:
        """Fold a value of an element into its column."""
        slot = self.columns[number][self.column_numbers[element.offset]]
        within = fold_dtype(accumulator.value.type.dtype)
        self.put(slot, self.combine(accumulator.op, self.get(slot, within), Scalar(value.text, within)))

    def roles(self) -> list[Buffer]:
        """What is done with each buffer."""
        program, size = self.program, self.dtype.size_bytes
        read = [Buffer("reads", size)] * 2 + [Buffer("reads", self.job.result.size_bytes)] * self.adds
        overwritten = set(program.in_place.values())
        loads = [
            Buffer("updates" if slot in overwritten else "reads", value.type.dtype.size_bytes)
            for slot, value in enumerate(program.loads)
            if slot != self.slot_of_product
        ]
        stores = [
            Buffer("updates" if store.value in program.in_place else "writes", store.value.type.dtype.size_bytes)
            for store in program.stores
        ]
        folded = [
            Buffer("takes" if number in self.partial_results else "writes", total.value.type.dtype.size_bytes)
            for number, total in enumerate(program.accumulators)
        ]
        return [*read, *loads, *stores, *folded]
