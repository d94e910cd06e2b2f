"""A compiled step: one capture, compiled and bound to the state it reads and updates.

How to read: ``Capture`` is what tracing leaves; ``CompiledStep`` compiles it, lays out its pointer table and runs it;
``entry_spec`` describes the same call to the native entry point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autojit.compiler import Compiled, compile
from autojit.ir.graph import Graph, Value
from autojit.jit.guards import Guard
from autojit.jit.pytree import TreeSpec
from autojit.jit.trace import GradEntry, Split, StateEntry, Trace
from autojit.runtime.entry_spec import (
    Argument, ArrayCheck, CellGuard, Constant, DictGuard, EntrySpec, FloatArgument, ObjectArgument, Output, OutputRing,
    SlotGuard, TensorArgument, WordGuard,
)  # fmt: skip
from autojit.runtime.memory import allocate_array
from autojit.tensor.state import guard_epoch
from autojit.tensor.tensor import Tensor, wrap

GIL_RELEASE_NS = 50_000.0  # estimated step time above which other Python threads may run meanwhile


@dataclass(eq=False)
class ArgumentLeaf:
    """One leaf of the call's arguments: a traced tensor (``value`` set), a dynamic float, or a baked-in object."""

    original: Any
    value: Value | None = None
    shell: Tensor | None = None
    cell: Any = None  # 0-d float64 of a dynamic float


@dataclass(eq=False)
class Capture:
    """Everything one run with traced arguments produced."""

    trace: Trace
    arguments: list[ArgumentLeaf]
    argument_tree: TreeSpec
    outputs: list[Any]  # leaves: traced Tensors, concrete Tensors, or Python objects
    output_tree: TreeSpec
    guards: list[Guard]
    kept: list[Any]


@dataclass(eq=False)
class GradResult:
    """A leaf's ``.grad`` after the step: a tensor with a fixed place, or None."""

    leaf: Tensor
    tensor: Tensor | None


@dataclass(eq=False)
class _Write:
    """A graph output with a fixed destination array."""

    value: Value
    array: Any
    donates: Value | None = None


class CompiledStep:
    """One capture, compiled.

    Table order: graph inputs are [arguments..., state...]; graph outputs are [results..., state and gradients...].
    """

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.trace = capture.trace
        self.entries = list(self.trace.state.values())
        self.grad_results: list[GradResult] = []
        self.results: list[Value] = []
        self.result_of_leaf: list[Any] = []
        self._layout_results()
        writes = self._writes()
        self.graph = self._graph(writes)
        self.compiled: Compiled = self._compile(writes)
        self.executable = self.compiled.executable
        self._bind_state()
        self.calls = 0
        self.entry: Any = None
        self.call: Any = None
        self.guard_epoch = int(guard_epoch[0])

    @property
    def is_differentiable(self) -> bool:
        """Whether results carry gradients to the caller: they need them and no state was updated meanwhile."""
        if self.argument_writes or self.grad_results or any(e.is_modified for e in self.entries):
            return False
        return any(place is not None and place[1]._requires_grad for place in self.result_of_leaf)

    def state_failure(self, leaves: Sequence[Any]) -> str | None:
        """Whether the outside tensors are still the ones the step is bound to."""
        for entry in self.entries:
            if entry.storage.array is not entry.array:
                return f"state {entry.input.type} first used at {entry.source} has new storage"
            owner = entry.owner
            if owner is not None and (owner._storage is not entry.storage or owner._requires_grad != entry.requires_grad):
                return f"a tensor first used at {entry.source} was replaced or changed requires_grad"
        for grad in self.trace.grads.values():
            if grad.was_read and grad.leaf._grad is not grad.initial:
                return "a gradient the step reads was replaced (None or another tensor)"
        return None

    def refresh_entry(self) -> None:
        """Python has verified every guard: the native ones get their present values."""
        self.entry.set_expected(0, int(guard_epoch[0]))
        for guard in self.capture.guards:
            if guard.position >= 0:
                self.entry.set_expected(guard.position, guard.read())

    # -- graph

    def _layout_results(self) -> None:
        position: dict[Value, int] = {}
        for leaf in self.capture.outputs:
            if isinstance(leaf, Tensor) and leaf._array is None:
                value = self._value_of(leaf)
                if value not in position:
                    position[value] = len(self.results)
                    self.results.append(value)
                self.result_of_leaf.append((position[value], leaf))
            else:
                self.result_of_leaf.append(None)

    def _value_of(self, t: Tensor) -> Value:
        from autojit.tensor.dispatch import value_of
        from autojit.tensor.state import state

        before, state.trace = state.trace, self.trace
        try:
            return value_of(t)
        finally:
            state.trace = before

    def _writes(self) -> list[_Write]:
        writes = [_Write(e.value, e.array, e.input) for e in self.entries if e.is_modified]
        for grad in self.trace.grads.values():
            if grad.is_written:
                writes.extend(self._grad_write(grad))
        for leaf in self.capture.arguments:
            shell = leaf.shell
            if shell is None:
                continue
            if shell._grad is not None and isinstance(leaf.original, Tensor):
                writes.extend(self._grad_write(GradEntry(leaf.original, None, False, shell._grad, True)))
        self.argument_writes = [
            (k, leaf) for k, leaf in enumerate(self.capture.arguments) if self._argument_changed(leaf)
        ]
        return writes

    def _argument_changed(self, leaf: ArgumentLeaf) -> bool:
        if leaf.shell is None or leaf.shell._storage is None:
            return False
        return leaf.shell._storage.value is not leaf.value

    def _grad_write(self, grad: GradEntry) -> list[_Write]:
        current = grad.current
        if current is None:
            self.grad_results.append(GradResult(grad.leaf, None))
            return []
        if current._array is not None:  # the same concrete tensor, changed in place: its storage is state
            self.grad_results.append(GradResult(grad.leaf, current))
            return []
        value = self._value_of(current)
        array = allocate_array(value.type.shape, value.type.dtype.numpy)
        tensor = wrap(array)
        self.grad_results.append(GradResult(grad.leaf, tensor))
        return [_Write(value, array)]

    def _graph(self, writes: list[_Write]) -> Graph:
        arguments = [leaf.value for leaf in self.capture.arguments if leaf.value is not None]
        inputs = [*arguments, *(e.input for e in self.entries)]
        changed = [leaf.shell._storage.value for _, leaf in self.argument_writes]  # type: ignore[union-attr]
        outputs = [*self.results, *changed, *(w.value for w in writes)]
        self.n_arguments = len(arguments)
        self.n_results = len(self.results)
        self.n_changed = len(changed)
        return Graph(tuple(inputs), tuple(self.trace.builder.nodes), tuple(outputs))  # type: ignore[arg-type]

    def _compile(self, writes: list[_Write]) -> Compiled:
        position = {v: k for k, v in enumerate(self.graph.inputs)}
        donated: dict[int, int] = {}
        fixed_outputs: dict[int, int] = {}
        first = self.n_results + self.n_changed
        self.copies_out: list[tuple[Any, Any]] = []
        for k, write in enumerate(writes):
            array = self._native_array(write.array, out=True)
            fixed_outputs[first + k] = _address(array)
            if write.donates is not None:
                donated[first + k] = position[write.donates]
        self.copies_in: list[tuple[Any, Any]] = []
        fixed_inputs: dict[int, int] = {}
        for entry in self.entries:
            array = self._native_array(entry.array, out=False)
            fixed_inputs[position[entry.input]] = _address(array)
        return compile(self.graph, donated, fixed_inputs, fixed_outputs)

    def _native_array(self, array: Any, *, out: bool) -> Any:
        """The array itself when native code can address it, else a contiguous stand-in copied at every call."""
        if array.flags.c_contiguous and array.flags.aligned:
            return array
        for original, stand_in in (*self.copies_out, *getattr(self, "copies_in", ())):
            if original is array:
                found = stand_in
                break
        else:
            found = np.ascontiguousarray(array)
        (self.copies_out if out else self.copies_in).append((array, found))
        return found

    def _bind_state(self) -> None:
        self.output_specs = [(v.type.shape, v.type.dtype.numpy) for v in self.results]

    # -- running from Python

    def run(self, leaves: Sequence[Any]) -> Any:
        """Run with the call's argument leaves: the portable path."""
        arrays = []
        for given, leaf in zip(leaves, self.capture.arguments, strict=True):
            if leaf.cell is not None:
                leaf.cell[...] = given
                arrays.append(leaf.cell)
            elif leaf.value is not None:
                arrays.append(np.ascontiguousarray(given._array if isinstance(given, Tensor) else given))
        results = [allocate_array(shape, dtype) for shape, dtype in self.output_specs]
        changed = [np.empty(leaf.value.type.shape, leaf.value.type.dtype.numpy) for _, leaf in self.argument_writes]  # type: ignore[union-attr]
        for original, stand_in in self.copies_in:
            stand_in[...] = original
        self.executable.run_with(arrays, [*results, *changed])
        for original, stand_in in self.copies_out:
            original[...] = stand_in
        for (k, _), array in zip(self.argument_writes, changed, strict=True):
            leaves[k]._array[...] = array
        self._publish()
        self.calls += 1
        return self._package(results)

    def _publish(self) -> None:
        """Python-visible effects: gradients and version counters."""
        for grad in self.grad_results:
            if grad.leaf._grad is not grad.tensor:
                grad.leaf._grad = grad.tensor
        for entry in self.entries:
            if entry.is_modified:
                entry.storage.version += 1

    def _package(self, results: list[Any]) -> Any:
        return self.package_tensors([wrap(array) for array in results])

    def package_tensors(self, tensors: Sequence[Tensor]) -> Any:
        """The call's result from one tensor per distinct result value."""
        leaves: list[Any] = []
        for leaf, place in zip(self.capture.outputs, self.result_of_leaf, strict=True):
            leaves.append(leaf if place is None else tensors[place[0]])
        return self.capture.output_tree.unflatten(leaves)

    # -- the native entry point

    def native_spec(self, fallback: Any) -> EntrySpec | None:
        """The call described for ``runtime.entry``; None when a call needs Python work."""
        if self.copies_in or self.copies_out or self.argument_writes or self.trace.splits:
            return None
        shape = self._result_shape()
        arguments = self._native_arguments()
        if shape is None or arguments is None:
            return None
        results, returns_tuple = shape
        layout = self.executable.layout
        rings = tuple(
            OutputRing(
                lambda spec=spec: wrap(allocate_array(*spec)),  # type: ignore[misc]
                layout.output(k),
                slot_equals=(("_requires_grad", False), ("_grad_fn", None), ("_grad", None), ("_storage", None)),
            )
            for k, spec in enumerate(self.output_specs)
        )
        return EntrySpec(
            step_address=self.executable.step_address,
            table_address=self.executable.table_address,
            busy_address=self.executable.busy_address,
            arguments=tuple(arguments),
            guards=tuple(self._native_guards()),
            rings=rings,
            results=results,
            returns_tuple=returns_tuple,
            releases_gil=self.estimate_ns() > GIL_RELEASE_NS,
            fallback=fallback,
            keep=self,
        )

    def estimate_ns(self) -> float:
        return sum(e.estimate_ns for e in self.compiled.lowered.entries)

    def _result_shape(self) -> tuple[tuple[Output | Constant, ...], bool] | None:
        tree = self.capture.output_tree
        leaves = list(zip(self.capture.outputs, self.result_of_leaf, strict=True))
        items = tuple(Constant(leaf) if place is None else Output(place[0]) for leaf, place in leaves)
        used = [place[0] for _, place in leaves if place is not None]
        if len(set(used)) != len(used) or any(place and place[1]._requires_grad for _, place in leaves):
            return None
        if tree.kind is None:
            return items, False
        flat = all(child.kind is None for child in tree.children)
        return (items, True) if tree.kind is tuple and flat else None

    def _native_arguments(self) -> list[Argument] | None:
        tree = self.capture.argument_tree
        args, kwargs = tree.children
        if kwargs.children or any(child.kind is not None for child in args.children):
            return None
        found: list[Argument] = []
        index = 0
        for leaf in self.capture.arguments:
            if leaf.cell is not None:
                found.append(FloatArgument(leaf.cell))
            elif leaf.value is None:
                if not isinstance(leaf.original, bool | None | str):
                    return None
                found.append(ObjectArgument(leaf.original))
                continue
            else:
                original = leaf.original
                if type(original) is not Tensor:
                    return None
                check = ArrayCheck(original._array.shape, original._array.dtype)
                flags = (("_requires_grad", original._requires_grad),)
                found.append(TensorArgument(Tensor, check, index, slot_equals=flags))
            if leaf.cell is not None:
                self.executable.set_pointer(index, _address(leaf.cell))
            index += 1
        return found

    def _native_guards(self) -> list[Any]:
        guards: list[Any] = [WordGuard(guard_epoch, int(guard_epoch[0]))]
        for entry in self.entries:
            if entry.owner is not None:
                guards.append(SlotGuard(entry.owner, "_array", entry.owner._array))
        for grad in self.grad_results:
            guards.append(SlotGuard(grad.leaf, "_grad", grad.tensor))
        for guard in self.capture.guards:
            if isinstance(guard.native, CellGuard | DictGuard):
                guard.position = len(guards)
                guards.append(guard.native)
        return guards


def _address(array: Any) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


__all__ = ["ArgumentLeaf", "Capture", "CompiledStep", "Split", "StateEntry", "field"]
