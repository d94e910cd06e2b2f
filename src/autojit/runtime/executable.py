"""A compiled step, loaded and callable with arrays.

The native function is ``void aj_step(void **table)``. The table is the whole interface between generated code and its
caller; its entries, in order:

| entries | meaning |
|---|---|
| one per input | address of the input's first element |
| one per output | address of the output's first element; an input's address where the input is donated |

The word before the table holds the address of the step's plan, which the plan runner walks (`runtime.plan`). An
`Executable` fills the table from Python: the portable path. `runtime.entry` fills the same table natively.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from autojit.core.device import CPU, Device
from autojit.core.device_array import first_address, layout_in_memory, on_layout, write_array
from autojit.core.dtypes import dtype_of_numpy
from autojit.core.errors import ArgumentError
from autojit.core.locks import in_forked_child
from autojit.core.records import record
from autojit.core.sizes import expression_of
from autojit.core.types import TensorType
from autojit.ir.concrete import concrete
from autojit.runtime.diagnosis import array_at
from autojit.runtime.entry_records import ARRAY_DATA_OFFSET
from autojit.runtime.failures import Failures
from autojit.runtime.gate import Gate
from autojit.runtime.kernel_timing import KernelRow, kernel_rows, run_entries, watching
from autojit.runtime.loader import LoadedObject
from autojit.runtime.memory import allocate_at, allocator_at
from autojit.runtime.object_layout import layout_is_known
from autojit.runtime.size_program import SizeProgram, sizes_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from autojit.codegen.lowered import LoweredStep
    from autojit.runtime.device_plans import DevicePlans
    from autojit.runtime.diagnosis import Diagnosis

    Array = npt.NDArray[Any]

STEP_SYMBOL = "aj_step"
POINTER_BYTES = 8


@record
class OutputSpec:
    """An output's shape and NumPy dtype, and the most elements it can have where the step counts them itself.

    ``place``: where there is no such bound, the slot of its address among the sizes; it is copied from there.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    most: int | None = None
    place: int | None = None
    device: Device = CPU


class DeviceCounts(NamedTuple):
    """Of the runs of a step on devices.

    Attributes:
        runs: how often they ran.
        graph_launches: by how many launches of graphs.
        graphs: how many were made.
        launches: kernels that one call launches, or nodes of its graphs, with those that write tables.
        bytes: of buffers that its kernels read and write.
    """

    runs: int = 0
    graph_launches: int = 0
    graphs: int = 0
    launches: int = 0
    bytes: int = 0


class Executable:
    """A step function with its table. One call runs at a time; others wait.

    Args:
        code: loaded code that defines ``aj_step``.
        n_inputs: number of input entries of the table.
        outputs: what `run` allocates for outputs it is not given.
        plan: address of the plan, for the plan runner.
        failures: what native code and the ops it calls back report to.
        sizes: what depends on symbolic sizes, if any are.
        lowered: the step the plan was written for; it names the kernels when somebody watches.
        keep: owner of everything the plan points to.
        devices: what devices do for the step, if they do anything.

    Raises:
        CompileError: ``aj_step`` is missing.
    """

    def __init__(
        self,
        code: LoadedObject,
        n_inputs: int,
        outputs: Sequence[OutputSpec],
        *,
        plan: int = 0,
        failures: Failures | None = None,
        sizes: SizeProgram | None = None,
        lowered: LoweredStep | None = None,
        keep: object = None,
        devices: DevicePlans | None = None,
    ) -> None:
        self._code = code
        self._devices = devices
        self.keep = keep
        self._failures = failures or Failures()
        self._lowered = lowered
        self._sizes = sizes
        self.symbols: tuple[str, ...] = sizes.symbols if sizes is not None else ()
        self.counted: tuple[str, ...] = sizes.counted if sizes is not None else ()
        self.sizes_address = sizes.table.ctypes.data if sizes is not None else 0
        self.diagnosis: Diagnosis | None = None
        self._rows: list[KernelRow] | None = None  # made when somebody watches
        self.error_address = self._failures.address
        self.raise_errors = self._failures.raise_errors
        self._fixed_shapes: list[tuple[int, ...]] | None = None  # of outputs, where no size is open
        self.outputs = tuple(outputs)
        self.n_inputs = n_inputs  # entries of the table before the first output's
        self.step_address = code.address(STEP_SYMBOL)
        size = n_inputs + len(self.outputs)
        self._words = (ctypes.c_void_p * (size + 1))()
        self._plan = plan
        self._words[0] = plan
        self._table = (ctypes.c_void_p * size).from_buffer(self._words, POINTER_BYTES)
        self.table_address = ctypes.addressof(self._words) + POINTER_BYTES
        self._pinned: dict[int, Array] = {}
        self.gate = Gate()
        self._native = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.step_address)  # releases the GIL while it runs
        _executables.add(self)

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array] | None = None) -> list[Array]:
        """Run the step on C-contiguous arrays; gives `outputs`, or fresh arrays by the specs.

        Thread-safe: a call that finds the step running waits for it.

        Raises:
            ArgumentError: a wrong number of arrays, an array that is not C-contiguous and aligned, or an output that
                does not fit its spec.
        """
        sizes = self.sizes_of([array.shape for array in inputs])
        if outputs is None:
            shapes = self.storage_shapes(sizes)
            outputs = [self.allocator(k, shape)() for k, shape in enumerate(shapes)]
        self._check(inputs, outputs, sizes)
        return [*self.run_with(inputs, outputs, sizes)]

    def allocator(self, output: int, shape: tuple[int, ...], order: Sequence[int] | None = None) -> Callable[[], Array]:
        """What gives an array for an output at every call; ``order`` as in `allocate_at`.

        It raises `OutOfMemoryError`, which names the op that makes the output, and its line.
        """
        make = allocator_at(self.outputs[output].device, shape, self.outputs[output].dtype, order)

        def allocate() -> Array:
            try:
                made: Array = make()
                return made
            except MemoryError as error:
                if self.diagnosis is None or self._lowered is None:
                    raise
                raise self.diagnosis.out_of_memory(error, self._lowered.schedule.outputs[output], shape) from None

        return allocate

    def _finished(self, outputs: Sequence[Array], sizes: SizeProgram) -> list[Array]:
        """The first results, in arrays that the call was given: those that it counted are cut to their size."""
        values = sizes.values()
        return [
            _counted_result(array, spec, concrete(spec.shape, values), sizes)
            for array, spec in zip(outputs, self.outputs, strict=False)
        ]

    @property
    def sizes_table(self) -> npt.NDArray[np.int64]:
        """The words that hold the values of `symbols`, then those of the sizes that a call has `counted`."""
        return self._sizes.table if self._sizes is not None else np.empty(0, np.int64)

    def sizes_of(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """The values of `symbols` in a call with arrays of these shapes."""
        return () if self._sizes is None else sizes_of(shapes, self._sizes.sources)

    def storage_shapes(self, sizes: Sequence[int] = (), count: int | None = None) -> list[tuple[int, ...]]:
        """Shapes of arrays that take the (first) outputs for values of `symbols`; flat where a call counts elements."""
        if not (self.symbols or self.counted or sizes):
            fixed = self._fixed_shapes
            if fixed is None:
                fixed = self._fixed_shapes = [self._storage_shape(spec, {}) for spec in self.outputs]
            return fixed[:count]
        values = dict(zip(self.symbols, sizes, strict=True))
        return [self._storage_shape(spec, values) for spec in self.outputs[:count]]

    def _storage_shape(self, spec: OutputSpec, values: dict[str, int]) -> tuple[int, ...]:
        names = {name for n in spec.shape for name in expression_of(n).symbols()}
        if names.isdisjoint(self.counted):
            found: tuple[int, ...] = concrete(spec.shape, values)
            return found
        return (concrete(spec.most, values) if spec.place is None else 0,)

    def run_with(self, inputs: Sequence[Array], outputs: Sequence[Array], sizes: Sequence[int] = ()) -> Sequence[Array]:
        """Run with the addresses of arrays known to fit for the first inputs and outputs; the others are fixed.

        Gives the outputs in their shapes, which differ from those of `storage_shapes` where the call counts elements.
        ``sizes`` are the values of `symbols`. Thread-safe, as `run`.

        Raises:
            IndexOutOfRangeError, or what an op that is called back raised; the outputs' contents are then undefined.
        """
        gate = self.gate
        with gate.lock:
            gate.check()
            try:
                gate.close()
                return self.run_inside(inputs, outputs, sizes)
            finally:
                gate.words[1] = 0

    def run_inside(
        self, inputs: Sequence[Array], outputs: Sequence[Array], sizes: Sequence[int] = ()
    ) -> Sequence[Array]:
        """`run_with` by the thread that has the gate."""
        self.gate.expect_mine()
        if self._sizes is not None:
            self._sizes.set_sizes(sizes)
        for index, array in enumerate(inputs):
            self._table[index] = data_address(array)
        for index, place in self._pinned.items():
            place[...] = inputs[index]
            self._table[index] = data_address(place)
        for index, array in enumerate(outputs, self.n_inputs):
            self._table[index] = data_address(array)
        self._step()
        return self._finished(outputs, self._sizes) if self._sizes is not None and self.counted else outputs

    def _step(self) -> None:
        observer = watching.observer
        if observer is None:
            self._native(self.table_address)
        else:
            if self._rows is None:
                assert self._lowered is not None
                self._rows = kernel_rows(self._lowered)
            find = {} if self._devices is None else {"apart": self._devices.run_at}
            run_entries(self._words, self._native, self.table_address, self._rows, observer, **find)
        self._failures.check()

    @property
    def table(self) -> Any:
        """The words of the table: addresses of inputs and outputs, those of the last call where calls change them."""
        return self._table

    def set_pointer(self, entry: int, address: int) -> None:
        """Set a table entry that calls do not change: state whose memory stays in place. Only with the gate."""
        self.gate.expect_mine()
        self._table[entry] = address

    def pin(self, index: int, place: Array) -> None:
        """From now on a call's input is copied to this place, where native calls store it. Only with the gate."""
        self.set_pointer(index, data_address(place))
        self._pinned[index] = place

    def device_counts(self) -> DeviceCounts:
        """What devices have done for the step since it was bound to memory."""
        return DeviceCounts() if self._devices is None else self._devices.counts()

    def device_lines(self) -> list[list[str]]:
        """Of each run of a device the launches and their kernels, for users."""
        return [] if self._devices is None else self._devices.lines()

    def device_texts(self, stage: str) -> list[str]:
        """The kernels that devices run, each once: as LLVM gets them ("llvm") or gives them ("ptx")."""
        return [] if self._devices is None else self._devices.texts(stage)

    @property
    def arena_bytes(self) -> int:
        """Bytes kept for temporaries whose sizes depend on the call."""
        return 0 if self._sizes is None else self._sizes.arena_bytes

    def release_arenas(self) -> None:
        """Give these bytes back; the next call maps what it needs. Waits for a call that runs."""
        if self._sizes is not None:
            with self.gate.held():
                self._sizes.release_arenas()

    def forget_others(self) -> None:
        """In a forked child: a call by another thread of the parent does not go on here, wherever it was."""
        if self.gate.forget_others():
            self._words[0] = self._plan
            self._failures.clear()
            if self._sizes is not None:
                self._sizes.forget()

    def _check(self, inputs: Sequence[Array], outputs: Sequence[Array], sizes: Sequence[int]) -> None:
        expected = (self.n_inputs, len(self.outputs))
        if (len(inputs), len(outputs)) != expected:
            raise ArgumentError(
                "compiled step: wrong number of arrays",
                facts={"inputs and outputs": (len(inputs), len(outputs)), "expected": expected},
            )
        for kind, arrays in (("input", inputs), ("output", outputs)):
            for index, array in enumerate(arrays):
                if not (array.flags.c_contiguous and array.flags.aligned):
                    raise ArgumentError(
                        f"compiled step: {kind} {index} is not contiguous", fix="pass np.ascontiguousarray(x)"
                    )
        shapes = self.storage_shapes(sizes)
        for index, (array, spec, shape) in enumerate(zip(outputs, self.outputs, shapes, strict=True)):
            if array.shape != shape or array.dtype != spec.dtype or not array.flags.writeable:
                raise ArgumentError(
                    f"compiled step: output {index} does not fit",
                    facts={
                        "output": f"{array.dtype}{list(array.shape)}",
                        "expected": f"{spec.dtype}{list(shape)}",
                    },
                )


def _counted_result(array: Array, spec: OutputSpec, shape: tuple[int, ...], sizes: SizeProgram) -> Array:
    """An output whose size the call has counted, from the memory that took it."""
    if array.shape == shape:
        return array
    count = math.prod(shape)
    if spec.place is None:
        cut: Array = on_layout(array, layout_in_memory(array).reshape(-1)[:count].reshape(shape))
        return cut
    made: Array = allocate_at(spec.device, shape, spec.dtype)
    if count:
        write_array(
            made, array_at(sizes.address(spec.place), TensorType(shape, dtype_of_numpy(spec.dtype), spec.device))
        )
    return made


@in_forked_child
def _forget_others() -> None:
    for executable in tuple(_executables):
        executable.forget_others()


def live_executables() -> list[Executable]:
    """All there are at present."""
    return list(_executables)


_executables: weakref.WeakSet[Executable] = weakref.WeakSet()


def data_address(array: Array) -> int:
    """Address of an array's first element."""
    array = layout_in_memory(array)
    return _word_at(id(array) + ARRAY_DATA_OFFSET).value if layout_is_known() else first_address(array)


_word_at = ctypes.c_uint64.from_address
