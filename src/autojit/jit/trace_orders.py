"""How tensors of a capture are laid out in memory: what eager mode would say of their strides.

The rule is ``tensor.memory_orders``. What it says of a graph's value depends on the layout of arguments and state, so
the capture notes which of them were asked: the step holds for calls in which these are laid out alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from operator import is_
from typing import Any

from autojit.core.device_array import layout_in_memory
from autojit.core.errors import out_of_memory_in_step
from autojit.core.source import here
from autojit.ir.graph import Node, Value
from autojit.ir.op import Ndarray
from autojit.jit.line_by_line import Uncompiled
from autojit.jit.trace_part import TracePart
from autojit.ops.shape import Reshape
from autojit.tensor.memory_orders import Order, laid_alike, order_of, result_order, row_major, stand_in
from autojit.tensor.storage import Storage
from autojit.tensor.tensor import Tensor, type_of


class TraceOrders(TracePart):
    """The part of a trace that knows how values are laid out in memory."""

    def __init__(self) -> None:
        self.orders: dict[Value, Any] = {}  # stand-ins; None: row-major
        self.given: dict[Value, Any] = {}  # of arguments: their (shape, strides, dtype) in this call
        self.relied_on: dict[Value, Order] = {}  # arguments and state whose order the capture depends on
        self._begins: dict[int, tuple[Value, int]] = {}  # by id of an argument: its value, where it is in its storage
        self._parts: list[Tensor] = []  # arguments that are views, or show parts of their memory
        self.offsets_asked: dict[Value, int] = {}  # those of arguments that the capture depends on
        self._memory: dict[int, tuple[Storage, Any]] = {}  # by id of a traced storage: what stands for its memory

    def give(self, value: Value, array: Any) -> None:
        """An argument's value is laid out like this array."""
        self.given[value] = *laid_alike(array, value.type), array.dtype

    def give_tensor(self, shell: Tensor, value: Value, given: Tensor, offset: int) -> None:
        """So does that of an argument which begins ``offset`` elements behind the beginning of its storage."""
        array = None if given._array is None else layout_in_memory(given._array)
        self.give(value, array)
        self.arguments.append(shell)
        self._begins[id(shell)] = value, offset
        memory = None if given._storage is None else given._storage.array
        if given._view is not None or (memory is not None and array is not None and memory.size != array.size):
            self._parts.append(shell)

    def asked_memory(self, t: Tensor, what: str, always: bool = False) -> None:
        """See `tensor.trace.Trace.asked_memory`."""
        storage = t._storage
        if always or any(t is x or (storage is not None and x._storage is storage) for x in self._parts):
            self.give_up(Uncompiled(f"the step asks for {what} of {type_of(t)} at {here()}: ran line by line"))

    def offset_of(self, storage: Storage) -> int:
        """Where an argument begins in the storage that it has outside; the step holds for such arguments."""
        for argument in self.arguments:
            own = argument._storage
            if own is not None and own.memory is storage.memory:
                value, offset = self._begins[id(argument)]
                self.offsets_asked[value] = offset
                return offset
        return 0

    def order_of(self, value: Value) -> Any:
        """A stand-in for a value: an array that is laid out as it is in eager mode; None for row-major order."""
        orders = self.orders
        if value in orders:
            return orders[value]
        self._index()
        stack = [value]
        while stack:
            current = stack[-1]
            node = self.definition.get(current)
            if current in orders:
                stack.pop()
            elif node is None:
                orders[stack.pop()] = self._order_of_input(current)
            elif not (node.op.keeps_order or node.op.is_view):
                orders.update(dict.fromkeys(node.outputs))
            else:
                missing = [v for v in node.inputs if v not in orders]
                stack.extend(missing)
                if not missing:
                    is_as_ever = not (node.op.is_view or node.op.is_call)
                    if is_as_ever and all(map(is_, map(orders.__getitem__, node.inputs), repeat(None))):
                        orders.update(dict.fromkeys(node.outputs))  # row-major, like all it reads
                    else:
                        orders.update(zip(node.outputs, self._result_orders(node), strict=True))
        return orders[value]

    def memory_of(self, storage: Storage) -> Any:
        storage = storage.memory
        if id(storage) not in self._memory:
            value = storage.value
            assert value is not None
            found = self.order_of(value)
            self._memory[id(storage)] = storage, row_major(value.type) if found is None else found
        return self._memory[id(storage)][1]

    def _result_orders(self, node: Node) -> Sequence[Any]:
        given, types = [self.orders[v] for v in node.inputs], [v.type for v in node.inputs]
        try:
            if node.op.is_call:
                arrays = [row_major(t) if a is None else a for a, t in zip(given, types, strict=True)]
                return [None if a.flags.c_contiguous else a for a in node.op.laid_out(arrays)]
            return [result_order(node.op, given, types, node.outputs[0].type)] * len(node.outputs)
        except MemoryError as error:
            raise out_of_memory_in_step(error, node.source, node.op.name, node.outputs[0].type) from None

    def _order_of_input(self, value: Value) -> Any:
        given = self.given.get(value)
        if given is not None:
            shape, strides, dtype = given
            found = stand_in(shape, strides, dtype)
            self.relied_on[value] = None if found is None else order_of(found)
            return found
        for entry in self.state.values():
            if entry.input is value:
                self.relied_on[value] = order_of(entry.array)
                return None if entry.array.flags.c_contiguous else layout_in_memory(entry.array)
        return None

    def set_order(self, value: Value, array: Ndarray | None) -> None:
        """From now on a value that nobody else has is laid out like an array; None: in row-major order."""
        self.orders[value] = None if array is None or array.flags.c_contiguous else array

    def laid_as(self, wanted: Ndarray | None, value: Value, is_own: bool = False) -> Value:
        """The same numbers in memory that is laid out like an array; None: in row-major order."""
        if wanted is not None and wanted.flags.c_contiguous:
            wanted = None
        if wanted is None and is_own:
            self.orders[value] = None
            return value
        found = self.order_of(value)
        if (wanted is None and found is None) or (
            wanted is not None and found is not None and wanted.strides == found.strides
        ):
            return value
        if not is_own:
            (value,) = self.apply(Reshape(value.type.shape), (value,))
        self.orders[value] = wanted
        return value
