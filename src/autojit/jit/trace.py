"""Trace: the capture of one step.

The function runs once with traced arguments. Every op on a tensor is recorded in one graph; ``backward`` and optimisers
are plain Python whose ops are recorded like any other. Tensors reached from outside are *state*: their storage becomes
a graph input on first use; an in-place change replaces the storage's present value, and what differs at the end is
written back. Nothing outside the trace changes until the compiled step runs, so a failed capture leaves no trace.

Python control flow on values (``item``, ``bool``) asks ``concretize``: the interpreter computes the value from the
actual inputs, and the answer becomes a *split* of the trace: a condition under which the rest of this capture holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autojit.core.source import SourceLocation, here
from autojit.core.types import TensorType
from autojit.core.dtypes import dtype_of_numpy
from autojit.ir.builder import GraphBuilder
from autojit.ir.graph import Node, Value
from autojit.ir.op import Op
from autojit.tensor.storage import Storage
from autojit.tensor.tensor import Tensor, wrap


@dataclass(eq=False)
class StateEntry:
    """A storage reached from outside: its input value and the value it has at this point of the capture."""

    storage: Storage
    array: Any
    input: Value
    value: Value
    source: SourceLocation
    owner: Tensor | None = None
    requires_grad: bool = False

    def root_owner(self) -> Tensor:
        """A tensor that shows the whole storage, connected to the caller's history where there is one."""
        owner = self.owner
        if owner is not None and owner._view is not None and owner._view.base is not None:
            owner = owner._view.base
        return owner if owner is not None else wrap(self.array)

    @property
    def is_modified(self) -> bool:
        return self.value is not self.input


@dataclass(eq=False)
class GradEntry:
    """``.grad`` of an outside leaf: what it was when first read (``was_read``) and what it is now."""

    leaf: Tensor
    initial: Tensor | None
    was_read: bool
    current: Tensor | None
    is_written: bool = False


@dataclass(frozen=True, eq=False)
class Split:
    """Python asked for a value: the capture after this point holds for this outcome only."""

    value: Value
    outcome: Any
    source: SourceLocation
    position: int  # nodes recorded before


class Trace:
    """What ``tensor`` talks to while a step is captured (``core.ports.Trace``)."""

    def __init__(self) -> None:
        self.builder = GraphBuilder()
        self.state: dict[int, StateEntry] = {}
        self.grads: dict[int, GradEntry] = {}
        self.splits: list[Split] = []
        self.known: dict[Value, Any] = {}  # values the interpreter has computed
        self.definition: dict[Value, Node] = {}
        self.indexed = 0
        self.arguments: dict[int, Value] = {}

    # -- the protocol

    def apply(self, op: Op, values: Sequence[Value]) -> tuple[Value, ...]:
        return self.builder.apply(op, values, here())

    def lift(self, storage: Storage, owner: Tensor | None = None) -> Value:
        array = storage.array
        assert array is not None
        found = self.state.get(id(array))  # tensors that share memory without sharing a version share their state
        if found is None:
            value = self.builder.input(TensorType(array.shape, dtype_of_numpy(array.dtype)))
            self.known[value] = array
            found = self.state[id(array)] = StateEntry(storage, array, value, value, here(), owner)
            if owner is not None:
                found.requires_grad = owner._requires_grad
        return found.value

    def in_place(self, storage: Storage, value: Value) -> None:
        self.lift(storage)
        self.state[id(storage.array)].value = value

    def read_grad(self, leaf: Tensor) -> Tensor | None:
        entry = self._grad_entry(leaf)
        if not entry.is_written:
            entry.was_read = True
        return entry.current

    def write_grad(self, leaf: Tensor, grad: Tensor | None) -> None:
        entry = self._grad_entry(leaf)
        entry.current = grad
        entry.is_written = True

    def _grad_entry(self, leaf: Tensor) -> GradEntry:
        found = self.grads.get(id(leaf))
        if found is None:
            found = self.grads[id(leaf)] = GradEntry(leaf, leaf._grad, False, leaf._grad)
        return found

    def concretize(self, value: Value) -> Any:
        """The value's array for the actual inputs; recorded as a split unless it cannot depend on inputs."""
        array = self.evaluate(value)
        if self._depends_on_inputs(value):
            self.splits.append(Split(value, np.array(array), here(), len(self.builder.nodes)))
        return array

    # -- evaluation of what Python asks for

    def evaluate(self, value: Value) -> Any:
        """Compute a value with NumPy from the actual inputs; intermediate results are kept for later questions."""
        found = self.known.get(value)
        if found is not None:
            return found
        self._index()
        for node in self._needed(value):
            arrays = [self.known[v] for v in node.inputs]
            with np.errstate(all="ignore"):
                results = node.op.eager(*arrays)
            results = (results,) if node.op.n_outputs == 1 else results
            for output, result in zip(node.outputs, results, strict=True):
                self.known[output] = np.asarray(result, dtype=output.type.dtype.numpy)
        return self.known[value]

    def _index(self) -> None:
        nodes = self.builder.nodes
        while self.indexed < len(nodes):
            node = nodes[self.indexed]
            self.definition.update((v, node) for v in node.outputs)
            self.indexed += 1

    def _needed(self, value: Value) -> list[Node]:
        wanted: set[Node] = set()
        stack = [value]
        while stack:
            node = self.definition.get(stack.pop())
            if node is None or node in wanted or node.outputs[0] in self.known:
                continue
            wanted.add(node)
            stack.extend(v for v in node.inputs if v not in self.known)
        return [node for node in self.builder.nodes if node in wanted]

    def _depends_on_inputs(self, value: Value) -> bool:
        self._index()
        inputs = set(self.builder.inputs)
        seen: set[Value] = set()
        stack = [value]
        while stack:
            current = stack.pop()
            if current in inputs:
                return True
            if current in seen:
                continue
            seen.add(current)
            node = self.definition.get(current)
            if node is not None:
                stack.extend(node.inputs)
        return False
