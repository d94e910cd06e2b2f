"""A compiled step, loaded and callable with arrays.

The native function is ``void aj_step(void **table)``. The table is the whole interface between generated code and its
caller; its entries, in order (see `TableLayout`):

| entries | meaning |
|---|---|
| one per input | address of the input's first element |
| one per output | address of the output's first element; an input's address where the input is donated |
| one | the arena for temporaries, 64-byte aligned |
| one | `aj_parallel_for`, for code that does not import it by name |

`Executable.run` fills the table from Python: the portable path, and what tests call. `runtime.entry` fills the same
table natively.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from autojit.core.errors import ArgumentError
from autojit.runtime.loader import load_all
from autojit.runtime.memory import Arena, allocate_array
from autojit.runtime.pool import parallel_for_address

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]

STEP_SYMBOL = "aj_step"
POINTER_BYTES = 8


@dataclass(frozen=True)
class TableLayout:
    """Index of every entry of the pointer table."""

    n_inputs: int
    n_outputs: int

    def input(self, index: int) -> int:
        return index

    def output(self, index: int) -> int:
        return self.n_inputs + index

    @property
    def arena(self) -> int:
        return self.n_inputs + self.n_outputs

    @property
    def parallel_for(self) -> int:
        return self.n_inputs + self.n_outputs + 1

    @property
    def size(self) -> int:
        return self.n_inputs + self.n_outputs + 2


@dataclass(frozen=True)
class OutputSpec:
    """An output's shape and NumPy dtype."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class Executable:
    """Loaded code with its table and arena. One call runs at a time; others wait.

    Args:
        objects: compiled objects; one of them defines `symbol`, later ones may call earlier ones.
        n_inputs: number of input entries of the table.
        outputs: what `run` allocates for outputs it is not given.
        arena_bytes: size of the arena.
        imports: addresses of names the objects use besides ``aj_parallel_for``; `keep` holds their owners.
        symbol: name of the step function.

    Raises:
        CompileError: an object cannot be loaded or `symbol` is missing.
    """

    def __new__(cls, *_: Any, **__: Any) -> Self:
        made = super().__new__(cls)
        _executables.add(made)
        return made

    def __init__(
        self,
        objects: Sequence[bytes],
        *,
        n_inputs: int,
        outputs: Sequence[OutputSpec],
        arena_bytes: int,
        imports: Mapping[str, int] | None = None,
        keep: object = None,
        symbol: str = STEP_SYMBOL,
    ) -> None:
        pool = parallel_for_address()
        self._code = load_all(objects, {"aj_parallel_for": pool, **(imports or {})})
        self._keep = keep
        self.outputs = tuple(outputs)
        self.layout = TableLayout(n_inputs, len(self.outputs))
        self.arena = Arena(arena_bytes)
        self.step_address = self._code.address(symbol)
        self._table = (ctypes.c_void_p * self.layout.size)()
        self._table[self.layout.arena] = self.arena.address
        self._table[self.layout.parallel_for] = pool
        self.table_address = ctypes.addressof(self._table)
        self._busy = ctypes.c_int64(0)
        self.busy_address = ctypes.addressof(self._busy)
        self._step = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.step_address)  # releases the GIL while it runs
        self._lock = threading.Lock()

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array] | None = None) -> list[Array]:
        """Run the step on C-contiguous arrays; gives `outputs`, or fresh arrays by the specs.

        Thread-safe: a call that finds the step running waits for it.

        Raises:
            ArgumentError: a wrong number of arrays, an array that is not C-contiguous and aligned, or an output that
                does not fit its spec.
        """
        results = [allocate_array(spec.shape, spec.dtype) for spec in self.outputs] if outputs is None else [*outputs]
        self._check(inputs, results)
        with self._lock:
            self._acquire_busy()
            try:
                for index, array in enumerate(inputs):
                    self._table[self.layout.input(index)] = data_address(array)
                for index, array in enumerate(results):
                    self._table[self.layout.output(index)] = data_address(array)
                self._step(self.table_address)
            finally:
                self._busy.value = 0
        return results

    def set_pointer(self, entry: int, address: int) -> None:
        """Set a table entry that calls do not change: state whose memory stays in place. Not during a call."""
        self._table[entry] = address

    def call(self) -> None:
        """Run the step on the table as it is."""
        with self._lock:
            self._acquire_busy()
            try:
                self._step(self.table_address)
            finally:
                self._busy.value = 0

    def _acquire_busy(self) -> None:
        """Take the word the native entry point takes too; the GIL makes look and store one action."""
        while self._busy.value:
            time.sleep(20e-6)
        self._busy.value = 1

    def _check(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        expected = (self.layout.n_inputs, self.layout.n_outputs)
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
        for index, (array, spec) in enumerate(zip(outputs, self.outputs, strict=True)):
            if array.shape != spec.shape or array.dtype != spec.dtype or not array.flags.writeable:
                raise ArgumentError(
                    f"compiled step: output {index} does not fit",
                    facts={
                        "output": f"{array.dtype}{list(array.shape)}",
                        "expected": f"{spec.dtype}{list(spec.shape)}",
                    },
                )


def _free_after_fork() -> None:
    """In a forked child: a step that another thread of the parent was running does not run here."""
    for executable in tuple(_executables):
        executable._busy.value = 0
        executable._lock = threading.Lock()


_executables: weakref.WeakSet[Executable] = weakref.WeakSet()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_after_fork)


def data_address(array: Array) -> int:
    """Address of an array's first element."""
    address: int = array.__array_interface__["data"][0]
    return address
