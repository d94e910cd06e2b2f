"""Epilogues: a product and the loops over its elements that alone read it become one kernel; so do convolutions.

The thread that holds an element goes on with it (a bias, an activation, a mask, an update of what the product is the
gradient of); what loops fold of each column (a bias's gradient) it folds of the rows that it has. That saves a launch,
and the product's way to memory and back; it is stored only if it is wanted for itself. It happens before memory is
planned, because other values are alive at a time then.

A product is computed where the loops were, later than it was. That is refused where something in between overwrites an
operand; so is whatever the loops overwrite of the operands themselves, for other threads still read them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from autojit.core.machine import Machine
from autojit.core.sizes import surely_equal
from autojit.ir.graph import Value
from autojit.ir.index import Index
from autojit.ops.convolution import Trilinear
from autojit.schedule.expressions import Load
from autojit.schedule.kernels import Epilogue, Kernel, LoopKernel, MatmulKernel, StructuredKernel, device_of
from autojit.schedule.loops import Form, LoopProgram, Store


def fuse_epilogues(
    kernels: Sequence[Kernel],
    kept: Collection[Value],
    overwritten: Mapping[Value, Value],
    failing: Collection[Kernel],
    machine: Machine,
) -> list[Kernel]:
    """The kernels with products that go on with the loops which read them.

    Preserves results: products of halves are rounded as they are when stored. Time O(reads and writes of kernels).

    Args:
        kept: values that are stored whoever reads them.
        overwritten: result -> the input whose memory it takes.
        failing: kernels that may fail, which stay as they are.
        machine: says how long an epilogue may be, of which every element of a thread's part has its own copy.
    """
    readers: dict[Value, list[int]] = {}
    for place, kernel in enumerate(kernels):
        for value in set(kernel.reads()):
            readers.setdefault(value, []).append(place)
    found: list[Kernel | None] = list(kernels)
    for place, kernel in enumerate(kernels):
        if not isinstance(kernel, MatmulKernel) and not _is_convolution(kernel, machine):
            continue
        assert isinstance(kernel, MatmulKernel | StructuredKernel)
        (product,) = kernel.node.outputs
        reading = readers.get(product, [])
        if len(reading) != 1:
            continue
        loops = found[reading[0]]
        if not isinstance(loops, LoopKernel) or loops in failing or not _suits(loops, kernel, machine):
            continue
        operands = kernel.reads()
        between = (k for k in found[place : reading[0] + 1] if k is not None)
        if overwritten_by(between, overwritten).isdisjoint(operands):
            program = _storing(loops.program, product) if product in kept else loops.program
            epilogue = Epilogue(program, program.loads.index(product), tuple(loops.nodes))
            found[reading[0]] = replace(kernel, epilogue=epilogue)
            found[place] = None
    return [kernel for kernel in found if kernel is not None]


def overwritten_by(kernels: Iterable[Kernel], overwritten: Mapping[Value, Value]) -> set[Value]:
    """The inputs whose memory kernels write."""
    return {overwritten[value] for kernel in kernels for value in kernel.writes() if value in overwritten}


def _is_convolution(kernel: Kernel, machine: Machine) -> bool:
    """Whether a kernel is a convolution, or a derivative of one, that the machine computes as products."""
    if not isinstance(kernel, StructuredKernel) or not isinstance(kernel.node.op, Trilinear):
        return False
    return all(value.type.dtype in machine.product_dtypes for value in (*kernel.node.inputs, *kernel.node.outputs))


def _suits(loops: LoopKernel, kernel: MatmulKernel | StructuredKernel, machine: Machine) -> bool:
    """Whether loops are over a product's elements, one by one, in its order."""
    program, (product,) = loops.program, kernel.node.outputs
    folds = isinstance(kernel, MatmulKernel) and _folds_columns(program, product)
    if program.reductions or program.lookups or not ((program.is_flat and not program.accumulators) or folds):
        return False
    if len(program.exprs) > machine.epilogue_expressions:
        return False
    if product.type.device.type != machine.kind or device_of(loops) != product.type.device:
        return False
    slot = program.loads.index(product)
    reads = [e for e in program.exprs if isinstance(e, Load) and e.buffer == slot]
    own = _own_position(program)
    return surely_equal(_points(program), product.type.size) and all(e.positions[0] == own for e in reads)


def _folds_columns(program: LoopProgram, product: Value) -> bool:
    """Whether loops fold, over all rows of all matrices, what they compute of each column of a product."""
    columns = 1
    for variable in program.inner:
        columns = columns * variable.extent
    are_columns = all(total.kind == "col" and total.full and not total.prefix for total in program.accumulators)
    return are_columns and bool(program.accumulators) and surely_equal(columns, product.type.shape[-1])


def _storing(program: LoopProgram, product: Value) -> LoopProgram:
    """The loops with the product among what they store."""
    slot = program.loads.index(product)
    element = next(e for e in program.exprs if isinstance(e, Load) and e.buffer == slot)
    store = Store(product, element, _own_position(program))
    return replace(program, stores=(*program.stores, store), form=Form())


def _points(program: LoopProgram) -> int:
    count: int = 1
    for variable in (*program.rows, *program.inner):
        count *= variable.extent
    return count


def _own_position(program: LoopProgram) -> Index:
    """The row-major position among all loops."""
    position = Index()
    for variable in (*program.rows, *program.inner):
        position = position * variable.extent + Index.of(variable)
    return position
