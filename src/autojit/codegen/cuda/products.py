"""The kernels of matrix products; of those whose elements go on into loops, too (`schedule.epilogues`).

An epilogue is printed on the elements that threads hold: each takes the place of the load that would have read it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from autojit.codegen.cuda.grid_expressions import GridExpressions, Point
from autojit.codegen.cuda.product_kernel import Element, ProductJob, ProductPrinter, Write, job_of, printed, shape_of
from autojit.codegen.cuda.target import CudaTarget
from autojit.codegen.grid_text import Buffer, GridText
from autojit.codegen.scalar import Scalar
from autojit.codegen.walk import Walk
from autojit.core.config import config
from autojit.schedule.expressions import Load
from autojit.schedule.kernels import Epilogue, MatmulKernel

__all__ = ["print_product", "product_key", "shape_of"]


def product_key(kernel: MatmulKernel) -> object:
    """What the text of a product depends on: kernels with equal keys are printed alike."""
    epilogue = kernel.epilogue
    more = None if epilogue is None else (epilogue.slot, epilogue.program.structure())
    return shape_of(kernel), kernel.node.outputs[0].type.dtype, kernel.init is None, more


def print_product(kernel: MatmulKernel, target: CudaTarget) -> GridText:
    """The kernel of a product whose sizes are known; its buffers are what it reads, then what it writes."""
    epilogue = kernel.epilogue
    if epilogue is None:
        return printed(job_of(kernel, target), ProductPrinter)
    return printed(job_of(kernel, target), lambda job: _EpiloguePrinter(job, epilogue))


class _EpiloguePrinter(ProductPrinter, GridExpressions):
    """Prints a product with an epilogue."""

    def __init__(self, job: ProductJob, epilogue: Epilogue) -> None:
        program = epilogue.program
        self.loops = (*program.rows, *program.inner)
        GridExpressions.__init__(self, job.grid, Walk(program, (), self.loops), is_checked=config.check)
        self.begin(job)
        self.slot_of_product = epilogue.slot
        self.product_reads = [e for e in program.exprs if isinstance(e, Load) and e.buffer == epilogue.slot]

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

    def results(self, element: Element, total: Scalar) -> list[Write]:
        """What the loops store at an element."""
        product = self.product_at(element, total)
        if self.loops and self.loops[-1].extent == self.shape.extents[1]:
            self.set_counters(self.loops[:-1], element.row)
            self.variables[self.loops[-1]] = element.column
        else:
            self.set_counters(self.loops, element.position)
        counters = {variable: self.variables[variable] for variable in self.loops}
        point = Point(0, counters, element.position, None, dict.fromkeys(self.product_reads, product))
        found: list[Write] = []
        with self._numbered_by_program():
            for slot, store in enumerate(self.program.stores, start=len(self.program.loads)):
                value = self.at_point(point, store.expr, store.expr.phase)
                self.read_overwritten(store, point.memo)
                found.append((self._own(slot), value, self.index(store.index, point.memo, store.expr.phase)))
        return found

    def roles(self) -> list[Buffer]:
        """What is done with each buffer."""
        program, size = self.program, self.dtype.size_bytes
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
        return [*[Buffer("reads", size)] * self.first_load, *loads, *stores]
