"""Segment: a part of a captured path, compiled and bound to the memory of the state it touches.

Table order: inputs are [arguments..., carried..., state...], outputs [free..., moving..., fixed...]: free outputs get
an address per call, moving ones (gradients) when their tensor is replaced, fixed ones (state, values carried to later
segments) once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from itertools import pairwise
from operator import is_
from typing import Any

import numpy as np

from autojit.compiler import PLAIN, Compiled, Options, compile
from autojit.core.device_array import Array, packed, share_memory, write_array
from autojit.core.memory_ranges import Range, range_of
from autojit.core.own_references import OwnList, OwnTuple, let_go
from autojit.core.records import record
from autojit.core.types import TensorType
from autojit.ir.calls_out import silent
from autojit.ir.graph import Graph, Node, Value
from autojit.ir.op import Ndarray
from autojit.jit.trace_entries import StateEntry
from autojit.runtime.build import build_executable, move_fixed
from autojit.runtime.executable import data_address
from autojit.runtime.gate import Gate
from autojit.runtime.memory import allocate_at
from autojit.tensor.memory_orders import order_of
from autojit.tensor.tensor import array_type, storage_of


def allocate(type: TensorType) -> Any:
    """A fresh array of a type, where values of the type are."""
    return allocate_at(type.device, type.shape, type.dtype.numpy)


@record(eq=False, frozen=False)
class Write:
    """A graph output with a destination: the memory of ``entry``, or ``array``."""

    value: Value
    array: Any = None
    entry: StateEntry | None = None


def needed_nodes(
    nodes: Sequence[Node], wanted: Sequence[Value], given: Mapping[Value, Any], first: int = 0
) -> tuple[Node, ...]:
    """The nodes that ``wanted`` needs when the values in ``given`` are there already, and those that stay unread.

    Nodes before the one of number ``first`` have run: what they may refuse they have not refused. A node of which only
    some values are given runs again for the others, which have names of their own then. Nor is a user's function called
    again that they have called.
    """
    live = {v for v in wanted if v not in given}
    kept: list[Node] = []
    for number in reversed(range(len(nodes))):
        node = nodes[number] if number >= first else silent(nodes[number])
        if node is None:
            continue
        is_done = (number < first or node.outputs[0] in given) and not (node.op.has_effect or node.op.calls_out)
        if (node.is_asked and not is_done) or not live.isdisjoint(node.outputs):
            kept.append(_for_the_others(node, given))
            live.update(v for v in node.inputs if v not in given)
    return tuple(reversed(kept))


def _for_the_others(node: Node, given: Mapping[Value, Any]) -> Node:
    if not any(v in given for v in node.outputs):
        return node
    return Node(node.op, node.inputs, tuple([Value(v.type) if v in given else v for v in node.outputs]), node.source)


class Segment:
    """Compiled code of ``wanted`` outputs over arguments, carried values and state.

    Args:
        nodes: recorded nodes to choose from, in order.
        arguments: graph inputs that get an address per call.
        carried: values computed by earlier segments -> where they are.
        entries: state; only what the segment reads or writes is bound.
        free: outputs with an address per call.
        moving: outputs whose address ``move`` sets.
        fixed: outputs with a lasting place.
        runs: whether calls run it; else it follows the state's memory, and is compiled when somebody asks for that.
        options: how it is compiled.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        arguments: Sequence[Value],
        carried: Mapping[Value, Any],
        entries: Sequence[StateEntry],
        free: Sequence[Value],
        moving: Sequence[Value] = (),
        fixed: Sequence[Write] = (),
        runs: bool = True,
        options: Options = PLAIN,
    ) -> None:
        outputs = (*free, *moving, *(w.value for w in fixed))
        kept = needed_nodes(nodes, outputs, carried)
        read = {v for node in kept for v in node.inputs} | set(outputs)
        self.carried = {v: array for v, array in carried.items() if v in read}
        written = {id(w.entry) for w in fixed}
        self.entries = [e for e in entries if e.input in read or id(e) in written]
        self.fixed = list(fixed)
        self.n_free, self.n_moving = len(free), len(moving)
        self.bound = OwnList()  # the arrays of the entries, as the code knows them
        self._addresses: list[int | None] = []  # of their memory; None: the code knows a copy
        self.graph = Graph((*arguments, *self.carried, *(e.input for e in self.entries)), kept, outputs)
        self._first_carried = len(arguments)
        self._first_state = len(arguments) + len(self.carried)
        self.is_careful = False
        self.moved: dict[int, Any] = {}
        self.scratch: dict[int, Any] = {}  # where a careful segment writes moving outputs
        self.bindings = np.ones(1, np.int64)  # how often memory was bound
        self.options = options
        self.gate = Gate()  # the right to run the segment and to touch its memory
        self._made: tuple[Compiled, Any] | None = None
        if runs:
            self._made = self._make()
        else:
            self._places()

    def __del__(self) -> None:
        let_go()

    # -- memory

    def _places(self) -> tuple[dict[int, int], dict[int, int], dict[int, int]]:
        """(donated, fixed inputs, fixed outputs) for ``compile``; sets what is copied in and out around the call."""
        before, known = self.bound, self._addresses
        self._addresses = []
        self.copies_in: list[tuple[Any, Any]] = []
        self.copies_out: list[tuple[Any, Any]] = []
        stand_ins: dict[int, Any] = {}
        inputs = {self._first_carried + k: data_address(a) for k, a in enumerate(self.carried.values())}
        for k, entry in enumerate(self.entries):
            array = entry.array
            address = known[k] if known and before[k] is array else data_address(array) if _is_plain(array) else None
            self._addresses.append(address)
            if address is None:
                packed_array = stand_ins[id(entry)] = packed(array)
                self.copies_in.append((array, packed_array))
                address = data_address(packed_array)
            inputs[self._first_state + k] = address
        let_go(before)
        self.bound = OwnList(e.array for e in self.entries)
        outputs: dict[int, int] = {}
        donated: dict[int, int] = {}
        place = {id(e): self._first_state + k for k, e in enumerate(self.entries)}
        for k, write in enumerate(self.fixed, self.n_free + self.n_moving):
            array = write.array if write.entry is None else write.entry.array
            if self.is_careful:
                scratch = _scratch(array)
                self.copies_out.append(OwnTuple((array, scratch)))
                array = scratch
            elif write.entry is not None:
                if id(write.entry) in stand_ins:
                    self.copies_out.append((array, stand_ins[id(write.entry)]))
                donated[k] = place[id(write.entry)]
                outputs[k] = inputs[donated[k]]
                continue
            outputs[k] = data_address(array)
        return donated, inputs, outputs

    @property
    def compiled(self) -> Compiled:
        """Every stage. Without the gate."""
        return self._at_hand()[0]

    @property
    def executable(self) -> Any:
        """What runs, bound to the state's present memory."""
        return self._at_hand()[1]

    def _at_hand(self) -> tuple[Compiled, Any]:
        if self._made is None:
            with self.gate.held():
                if self._made is None:  # no other thread was faster
                    self._made = self._make()  # to be shown: who did not compile it at once does not run it
        return self._made

    def adopt(self, compiled: Compiled, graph: Graph) -> None:
        """Run what was compiled for ``graph``, if that is the segment's own, bound to the state's memory."""
        mine = (*self.graph.inputs, *self.graph.outputs)
        theirs = (*graph.inputs, *graph.outputs)
        if len(mine) != len(theirs) or not all(map(is_, mine, theirs)):
            return
        with self.gate.held():
            if self._made is None:
                _, inputs, outputs = self._places()
                executable = build_executable(compiled.lowered, inputs, outputs, self._lasting())
                executable.gate = self.gate
                self._made = compiled, executable

    def _make(self) -> tuple[Compiled, Any]:
        compiled = self._compile()
        if (self.fixed or self.n_moving) and self._needs_care(compiled):
            self.is_careful = True
            compiled = self._compile()
        compiled.executable.gate = self.gate
        return compiled, compiled.executable

    def _compile(self) -> Compiled:
        donated, inputs, outputs = self._places()
        return compile(self.graph, donated, inputs, outputs, self._lasting(), self.options)

    def _needs_care(self, compiled: Compiled) -> bool:
        """Whether something may go wrong outside native code: what lasts is then written when all has succeeded.

        An op that is called back can raise, or a signal on the way to it; memory for results whose size is counted is
        had when native code has ended.
        """
        outputs = compiled.executable.outputs[: self.n_free]
        return bool(compiled.lowered.computed_back) or any(output.place is not None for output in outputs)

    def _lasting(self) -> tuple[int, ...]:
        """The outputs that native code writes to memory which is as it was when the step fails."""
        if self.is_careful:
            return ()
        first = self.n_free + self.n_moving
        return (*range(self.n_free, first), *(k for k, w in enumerate(self.fixed, first) if w.entry is not None))

    def rebind(self) -> None:
        """Point to the present memory of the state, with the gate; nothing is compiled."""
        self.gate.expect_mine()
        _, inputs, outputs = self._places()
        self.bindings[0] += 1  # native steps for the old memory compare it
        if self._made is None:
            return
        compiled, executable = self._made
        if move_fixed(executable, inputs, outputs):
            return
        made = build_executable(compiled.lowered, inputs, outputs, self._lasting())
        made.gate = self.gate
        self._made = compiled, made
        for index, array in self.moved.items():
            self.move(index, array)

    def failure(self, has_gate: bool = False) -> str | None:
        """Why the state no longer fits, or None; where only its memory was replaced, the new memory is bound.

        ``has_gate``: and looks itself at whether the state shares memory.
        """
        changed = False
        for k, entry in enumerate(self.entries):
            reason = _follow(entry)
            if reason is not None:
                return f"{reason} (first used at {entry.source})"
            changed = changed or entry.array is not self.bound[k]
        if changed:
            if not has_gate and overlapping([(e.array, e.is_modified) for e in self.entries]):
                return "tensors the step uses now share memory"
            with nullcontext() if has_gate else self.gate.held():
                self.rebind()
        return None

    def move(self, index: int, array: Ndarray) -> None:
        """Set the place of a moving output. Only with the gate."""
        self.moved[index] = array
        if self._made is None:
            return
        if self.is_careful:
            array = self.scratch.setdefault(index, _scratch(array))
        executable = self._made[1]
        executable.set_pointer(executable.n_inputs + self.n_free + index, data_address(array))

    # -- running

    def run(self, arguments: Sequence[Any]) -> list[Any]:
        """Run, with the gate; the free outputs. ``commit`` then brings into place what native code could not write.

        Raises:
            what an op that is called back raised; no state has changed then.
        """
        for original, stand_in in self.copies_in:
            write_array(stand_in, original)
        executable = self.executable
        sizes = executable.sizes_of([a.shape for a in arguments]) if executable.symbols else ()
        shapes = executable.storage_shapes(sizes, self.n_free)
        free = [executable.allocator(k, shape)() for k, shape in enumerate(shapes)]
        return list(executable.run_inside(arguments, free, sizes))

    def sizes(self) -> dict[str, int]:
        """The values that open sizes had in the last run, also those it counted."""
        executable = self.executable
        return dict(zip((*executable.symbols, *executable.counted), map(int, executable.sizes_table), strict=False))

    def commit(self) -> None:
        """Copy results to memory that native code cannot address, or must not write before all has succeeded."""
        for original, stand_in in self.copies_out:
            write_array(original, stand_in)
        for index, stand_in in self.scratch.items():
            write_array(self.moved[index], stand_in)


def _follow(entry: StateEntry) -> str | None:
    """Let an entry follow its owner to new memory of the same type; why that is impossible otherwise."""
    owner = entry.owner
    if owner is not None:
        if owner._requires_grad != entry.requires_grad:
            before, now = entry.requires_grad, owner._requires_grad
            return f"requires_grad of a tensor {entry.input.type}: {before} -> {now}"
        if owner._storage is not entry.storage:
            if owner._array is None or (owner._view is not None and owner._view.base is not None):
                return f"a view {entry.input.type} was replaced"
            # one by ``x.data = part`` shows the part that it showed, or `Following` says that it does not
            entry.storage = storage_of(owner)
    array = entry.storage.array
    if array is not entry.array:
        before_type, found = entry.input.type, array
        if found is None or array_type(found) != before_type:
            now_type = "nothing" if found is None else f"{found.dtype}{list(found.shape)}"
            return f"memory of a tensor: {before_type} -> {now_type}"
        if order_of(found) != order_of(entry.array):
            return f"strides of a tensor {before_type} changed"
        if entry.is_modified and not found.flags.writeable:
            return f"memory of a tensor {before_type} became read-only"
        entry.array = array
    return None


def _scratch(array: Array) -> Any:
    """Memory in row-major order for what is going to be written to an array."""
    return allocate_at(array_type(array).device, array.shape, array.dtype.newbyteorder("="))


def _is_plain(array: Array) -> bool:
    return bool(array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative)


def overlapping(arrays: Sequence[tuple[Any, bool]], known: Mapping[int, Range] | None = None) -> tuple[int, int] | None:
    """Positions of two distinct arrays that share memory, one of which (flag) is written; None if there are none.

    ``known``: addresses of some of them, by id.
    """
    bounds = []
    for k, (array, is_written) in enumerate(arrays):
        low, high = (known and known.get(id(array))) or range_of(array)
        if low < high:
            bounds.append((low, high, k, is_written))
    bounds.sort()
    if all(one[1] <= following[0] for one, following in pairwise(bounds)):
        return None
    active: list[tuple[int, int, bool]] = []
    for low, high, k, is_written in bounds:
        active = [item for item in active if item[0] > low]
        for _, other, other_is_written in active:
            if (is_written or other_is_written) and share_memory(arrays[k][0], arrays[other][0]):
                return other, k
        active.append((high, k, is_written))
    return None
