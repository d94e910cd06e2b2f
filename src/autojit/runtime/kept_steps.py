"""Lowered steps on disk, found by the graphs they were made of: passes, schedule and code are made once per machine.

How to read this file: `StepKey` names a step, `found` and `keep` are all that the compiler calls. A second process
records the step again, since only its own Python knows what it does, and then finds what the first one made of the
same graph.

The key covers the graph to the last parameter, who made each node (line, module, phase), what the step is asked for,
the machine, the switches, and the sources of autojit itself. What is kept refers to the objects of the recorded graph
by their numbers, so values, ops and places are those of this process, and errors name the lines of today's file.

An entry is checked as every object of the cache is before a byte is looked at. It is a pickle that may name nothing
but classes of the compiler, and NumPy's arrays. A graph that holds anything else, a user's function or class, is not
kept, and compiled as ever.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from hashlib import sha256
from types import CodeType
from typing import Any

import numpy as np

from autojit.core.config import config
from autojit.core.program_parts import Part
from autojit.core.records import finish
from autojit.core.sizes import SymbolicSize, parts_of
from autojit.core.source import SourceLocation
from autojit.core.types import TensorType
from autojit.ir.graph import Graph, Node, Value
from autojit.ir.op import Op
from autojit.ops.graph_op import GraphOp
from autojit.runtime.llvm import llvm_identity
from autojit.runtime.object_cache import EMITTER_VERSION, default_cache
from autojit.runtime.sources import compilers_identity

_PROTOCOL = 5
_FORMAT = 1  # raised when this file writes steps otherwise
_ALLOWED = frozenset(
    {
        ("builtins", "set"), ("builtins", "frozenset"), ("builtins", "slice"), ("builtins", "complex"),
        ("builtins", "range"), ("collections", "OrderedDict"), ("collections", "deque"), ("numpy", "ndarray"),
        ("numpy", "dtype"), ("numpy._core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "scalar"),
        ("numpy._core.numeric", "_frombuffer"), ("numpy.core.multiarray", "_reconstruct"),
        ("numpy.core.multiarray", "scalar"), ("numpy.core.numeric", "_frombuffer"), ("ml_dtypes", "bfloat16"),
        *[("numpy", f"{kind}{bits}") for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64)],
        ("numpy", "bool"), ("numpy", "bool_"), ("numpy", "complex64"), ("numpy", "complex128"),
    }
)  # fmt: skip
"""What a kept step may name besides autojit's own modules."""


class NotKept(Exception):
    """Something that no other process could have: the step is compiled wherever it is met."""


class StepKey:
    """The name of what is made of a graph, and the objects of the graph by number.

    Args:
        graph: as it was recorded.
        kind: of the device that it is compiled for.
        facts: all else that the step depends on, as data.

    Raises:
        NotKept: the graph holds something that only this process has.
    """

    def __init__(self, graph: Graph, kind: str, facts: Sequence[object]) -> None:
        self.objects: list[Any] = []
        self.numbers: dict[int, int] = {}
        self._types: dict[TensorType, int] = {}
        self._parts: dict[int, str] = {}
        self._codes: dict[int, tuple[Any, ...]] = {}
        text = io.BytesIO()
        _KeyPickler(text, self).dump((self.flat(graph), tuple(facts), _switches(kind)))
        self.digest = sha256(text.getbuffer()).hexdigest()

    def flat(self, graph: Graph) -> tuple[Any, ...]:
        """Everything that the graph says, as numbers, ops and types.

        Its objects get numbers of their own. The key has these, too: where one op serves two nodes in one process and
        not in another, numbers differ from there on.
        """
        numbers = self.numbers
        inputs = [self._named(value) for value in graph.inputs]
        lines = []
        for node in graph.nodes:
            own = self._number(node), self._number(node.op)
            operands = [numbers[id(value)] for value in node.inputs]
            outputs = [self._named(value) for value in node.outputs]
            lines.append((own, node.op, operands, outputs, self._place(node.source)))
        return inputs, lines, [numbers[id(value)] for value in graph.outputs]

    def _number(self, thing: object) -> int:
        number = self.numbers.get(id(thing))
        if number is None:
            number = self.numbers[id(thing)] = len(self.objects)
            self.objects.append(thing)
        return number

    def _named(self, value: Value) -> Any:
        own = self._number(value)
        number = self._types.get(value.type)
        if number is None:
            number = self._types[value.type] = len(self._types)
            return own, number, value.name, value.type
        return own, number, value.name

    def _place(self, source: SourceLocation) -> Any:
        if id(source) in self.numbers:
            return self.numbers[id(source)]
        own = self._number(source)
        part, code = source.part, source.code
        text = self._parts.get(id(part))
        if text is None:
            text = self._parts[id(part)] = str(part)
        lines = None if code is None else self._codes.get(id(code))
        if code is not None and lines is None:
            self._codes[id(code)] = (len(self._codes),)
            lines = code.co_filename, code.co_qualname, code.co_firstlineno, code.co_linetable
        return own, lines, source.instruction, source.callee, text


class _KeyPickler(pickle.Pickler):
    """Writes what things say, not which of them are one object: that depends on what the process has done before."""

    def __init__(self, file: io.BytesIO, key: StepKey) -> None:
        super().__init__(file, _PROTOCOL)
        self.fast = True  # nothing is remembered
        self._flat = key.flat

    def reducer_override(self, thing: Any) -> Any:
        kind = type(thing)
        names = _fields_of(kind)
        if names is not None:
            return _made_of, (kind.__module__, kind.__qualname__, *[_in_order(getattr(thing, name)) for name in names])
        if kind is Graph:
            return _made_of, (self._flat(thing),)
        if kind is SymbolicSize:
            return _made_of, parts_of(thing)
        if isinstance(thing, GraphOp) and thing.opened_by == "open_bodies":  # the compiler sees through it
            return _made_of, (kind.__module__, kind.__qualname__, self._flat(thing.graph_of(())))
        if kind in _OF_PROCESS:
            raise NotKept(kind.__name__)
        return _plain(thing)


def _in_order(thing: Any) -> Any:
    """A set's elements in an order that every process has."""
    return sorted(thing, key=repr) if isinstance(thing, set | frozenset) else thing


def _made_of(*parts: object) -> object:
    """Stands in a key for how something is made again, which nobody does."""
    return parts


_OF_PROCESS = frozenset((Value, Node, SourceLocation, Part, CodeType))
_field_names: dict[type, tuple[str, ...] | None] = {}


def _fields_of(kind: type) -> tuple[str, ...] | None:
    """The fields of one of autojit's records: what makes it, not what it has worked out since; None of others."""
    if kind not in _field_names:
        is_record = kind.__module__.startswith("autojit.") and kind not in (*_OF_PROCESS, Graph, TensorType)
        if is_record:
            finish(kind)
        names = tuple([field.name for field in fields(kind)]) if is_record and is_dataclass(kind) else None
        _field_names[kind] = names
    return _field_names[kind]


def _plain(thing: Any) -> Any:
    """How pickle takes it, if another process has the class, or the function, too."""
    is_name = isinstance(thing, type) or callable(thing)
    owner = thing if is_name else type(thing)
    module, name = getattr(owner, "__module__", None) or "", getattr(owner, "__qualname__", "")
    if _is_ours(module, name):
        return NotImplemented
    raise NotKept(f"{module}.{name}")


def _is_ours(module: str, name: str) -> bool:
    return module.startswith("autojit.") or (module, name) in _ALLOWED or module == "numpy.dtypes"


class _StepPickler(pickle.Pickler):
    """Writes a step around the objects of its graph, which the next process has by the same numbers."""

    def __init__(self, file: io.BytesIO, key: StepKey) -> None:
        super().__init__(file, _PROTOCOL)
        self._numbers = key.numbers

    def reducer_override(self, thing: Any) -> Any:
        number = self._numbers.get(id(thing))
        if number is not None:
            return _recorded, (number,)
        kind = type(thing)
        if kind is Value:
            return Value, (thing.type, thing.name)
        if kind is Node:
            return Node, (thing.op, thing.inputs, thing.outputs, thing.source)
        if kind is Graph:
            return Graph, (thing.inputs, thing.nodes, thing.outputs)
        if kind is SymbolicSize:
            return SymbolicSize, parts_of(thing)
        if kind in _OF_PROCESS:
            raise NotKept(kind.__name__)
        if isinstance(thing, Op):
            names = _fields_of(kind) or ()
            return _bare, (kind,), {name: getattr(thing, name) for name in names}
        return _plain(thing)


def _recorded(number: int) -> Any:
    """Stands for an object of the recorded graph; who reads the pickle puts his own in its place."""
    raise AssertionError("read by `_StepReader` alone")


def _bare(kind: type) -> Any:
    return object.__new__(kind)


class _StepReader(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, key: StepKey) -> None:
        super().__init__(file)
        self._recorded = key.objects.__getitem__

    def find_class(self, module: str, name: str) -> Any:
        if module == __name__:
            return {"_recorded": self._recorded, "_bare": _bare}[name]
        if not _is_ours(module, name):
            raise NotKept(f"{module}.{name}")
        found = super().find_class(module, name)
        if module.startswith("autojit.") and found.__module__ != module:  # reached through what a module has imported
            raise NotKept(f"{module}.{name}")
        if isinstance(found, type):
            finish(found)
        return found


def key_of_step(graph: Graph, kind: str, facts: Sequence[object]) -> StepKey | None:
    """The name of what is made of a graph (see `StepKey`); None where nothing is kept of it.

    Example:
        >>> from autojit.ir import parse_graph
        >>> text = "(x: f32[3]) { y: f32[3] = tanh(x); return y }"
        >>> keys = [key_of_step(parse_graph(given), "cpu", ()) for given in (text, text.replace("tanh", "exp"), text)]
        >>> [key.digest == keys[0].digest for key in keys if key]  # none with AUTOJIT_KEEP_STEPS=0
        [...]
    """
    if not config.keep_steps or compilers_identity(kind) is None:
        return None
    try:
        return StepKey(graph, kind, facts)
    except (NotKept, pickle.PicklingError, RecursionError):
        return None


def found(key: StepKey) -> Any:
    """What an earlier process kept under the key; None where there is nothing."""
    content = default_cache().get_blob(key.digest, count_miss=False)
    try:
        return None if content is None else _StepReader(io.BytesIO(content), key).load()
    except (NotKept, pickle.UnpicklingError):  # not written by `keep`
        return None


def keep(key: StepKey, step: object) -> None:
    """Let later processes find a step; nothing happens where it holds what only this process has."""
    file = io.BytesIO()
    try:
        _StepPickler(file, key).dump(step)
    except (NotKept, pickle.PicklingError, RecursionError):
        return
    default_cache().put_blob(key.digest, file.getvalue())


_OF_RUNS = frozenset(
    f"AUTOJIT_{name}"
    for name in (
        "CACHE_DIR", "CUDA_LIBRARY", "DISABLE", "ELASTIC", "FULL_TRACEBACK", "ITT_LIBRARY", "KEEP_STEPS",
        "LAUNCH_REPORT", "MEMORY_CACHE_BYTES", "NOTICE", "NUM_THREADS", "NVTX_LIBRARY", "RANK_PROCESS", "REFERENCE",
        "RESTART", "TEST_CACHE",
    )
)  # fmt: skip
"""Variables that change how a process runs, and no step. All others of autojit's are in the key, also those that
nobody has heard of yet: what is tried behind a variable must not find what was made without it."""


def _variables() -> list[tuple[str, str]]:
    named = [(name, text) for name, text in os.environ.items() if name.startswith("AUTOJIT_")]
    return sorted(item for item in named if item[0] not in _OF_RUNS)


def _switches(kind: str) -> tuple[object, ...]:
    switches = config.opt_level, config.passes, config.check, EMITTER_VERSION
    return (
        *switches,
        _variables(),
        _FORMAT,
        compilers_identity(kind),
        llvm_identity(),
        np.__version__,
        np.__file__,
        sys.implementation.cache_tag,
    )
