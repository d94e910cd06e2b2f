"""The tensors that an instance keeps: state that steps read and write, and gradients that they leave."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from autojit.core.device_array import packed
from autojit.core.dtypes import DType
from autojit.core.records import record
from autojit.export.captured_parts import Assigned
from autojit.export.names import identifier, unique
from autojit.jit.step_gradients import GradResult
from autojit.jit.trace_entries import StateEntry
from autojit.runtime.library.instance_image import ALIGNMENT_BYTES, Address, InstanceImage
from autojit.tensor.tensor import array_type

SAFETENSORS = {
    "bool": "BOOL", "uint8": "U8", "uint16": "U16", "uint32": "U32", "uint64": "U64", "int8": "I8", "int16": "I16",
    "int32": "I32", "int64": "I64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
    "complex64": "C64", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
}  # fmt: skip
"""Names of dtypes in the format; what it lacks is kept as bytes."""


@record(eq=False)
class StateTensor:
    """One of them.

    Attributes:
        name: the way to it from the function.
        field: its name in C.
        initial: its value when the library was written; row-major.
        place: where it is.
        is_output: a gradient that a step leaves and does not read: no part of the state in files.
    """

    name: str
    field: str
    dtype: DType
    shape: tuple[int, ...]
    initial: Any
    place: Address
    is_output: bool

    @property
    def size_bytes(self) -> int:
        return int(self.initial.nbytes)


class StepState:
    """Those of all steps of a library, each once."""

    def __init__(self, image: InstanceImage, names: dict[int, str]) -> None:
        self._image = image
        self._names = names
        self._fields: set[str] = set()
        self._taken: set[str] = set()
        self._known: dict[object, StateTensor] = {}
        self.tensors: list[StateTensor] = []

    def of_entry(self, entry: StateEntry) -> StateTensor:
        """The tensor of a step's state."""
        key = id(entry.array)
        name = self._names.get(key) or f"state{len(self.tensors)}"
        return self._known.get(key) or self._made(key, name, entry.array, is_output=False)

    def of_assigned(self, assigned: Assigned) -> StateTensor:
        """A value that the function assigns."""
        key = "assigned", assigned.name
        return self._known.get(key) or self._made(key, assigned.name, assigned.array, is_output=False)

    def of_gradient(self, grad: GradResult, array: Any) -> StateTensor:
        """The gradient that a step leaves for a leaf."""
        key = "grad", id(grad.leaf)
        leaf = self._names.get(id(grad.leaf._array), f"tensor{len(self.tensors)}")
        return self._known.get(key) or self._made(key, f"{leaf}.grad", array, is_output=True)

    def _made(self, key: object, name: str, array: Any, *, is_output: bool) -> StateTensor:
        name = unique(name, self._taken)
        initial = np.zeros(array.shape, array.dtype) if is_output else np.array(packed(array))
        kind = array_type(array)
        room = self._image.arena if is_output else self._image.state  # gradients need no first value
        place = room(initial.nbytes)
        field = identifier(name, self._fields)
        made = StateTensor(name, field, kind.dtype, tuple(kind.shape), initial, place, is_output)
        self._known[key] = made
        self.tensors.append(made)
        return made

    def kept(self) -> list[StateTensor]:
        """What a file holds, in its order."""
        return [t for t in self.tensors if not t.is_output]

    @property
    def size_bytes(self) -> int:
        """Of the state as it lies in an instance."""
        return self._image.state_bytes

    def initial(self) -> Iterator[bytes | memoryview]:
        """The state as it is at first, as it lies in an instance, piece by piece."""
        at = 0
        for t in self.kept():
            assert int(t.place) % ALIGNMENT_BYTES == 0
            yield bytes(int(t.place) - at)
            yield memoryview(t.initial.reshape(-1).view(np.uint8))
            at = int(t.place) + t.size_bytes
        yield bytes(self.size_bytes - at)

    def header(self) -> tuple[bytes, int]:
        """The beginning of a safetensors file with the state, and the size of the whole file."""
        rows: dict[str, Any] = {}
        at = 0
        for t in self.kept():
            code = SAFETENSORS.get(t.dtype.name)
            shape = list(t.shape) if code else [t.size_bytes]
            rows[t.name] = {"dtype": code or "U8", "shape": shape, "data_offsets": [at, at + t.size_bytes]}
            at += t.size_bytes
        text = json.dumps(rows, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text, 8 + len(text) + at
