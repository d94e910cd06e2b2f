"""BodyTrace: what records the ops of a body while the capture of the program around it, if there is one, waits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from autojit.core.errors import TraceError, UsageError
from autojit.core.size_expressions import Expression
from autojit.core.sizes import expression_of, is_counted
from autojit.core.source import here
from autojit.ir.graph import Value
from autojit.jit.stepped_bodies import is_plain, place_of, run_turn_by_turn
from autojit.jit.trace import Trace
from autojit.jit.trace_entries import StateEntry
from autojit.tensor.lent_gradients import lent_gradient
from autojit.tensor.state import set_layers, set_trace, state
from autojit.tensor.storage import Storage
from autojit.tensor.tensor import Tensor, array_type


class BodyTrace(Trace):
    """The capture of a body. Memory from outside becomes an input of the graph; nothing in it may become a number."""

    runs_often = True

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.source = here()
        self.place = place_of(name, self.source)
        self.is_plain = is_plain()
        self.outer: Trace | None = state.trace  # type: ignore[assignment]
        self.outer_layers = state.layers
        if self.outer is not None:
            self.numbers, self.sizes = self.outer.numbers, self.outer.sizes
            self.met_outside, self.parts = self.outer.met_outside, self.outer.parts
            self.stepped = self.outer.stepped

    def owns(self, t: Tensor) -> bool:
        """Whether a tensor was made in this capture."""
        if t._array is not None:
            return False
        storage = t._storage
        is_kept_apart = t._view is not None and t._view.base is None and not t._view.chain  # see `counted_with`
        value = t._value if storage is None or storage.value is None or is_kept_apart else storage.value
        self._index()
        return value is not None and (value in self.definition or value in self.builder.inputs)

    def lift(self, storage: Storage, owner: Tensor | None = None) -> Value:
        array = storage.array
        assert array is not None
        found = self.state.get(id(array))
        if found is None:
            value = self.builder.input(array_type(array))
            found = self.state[id(array)] = StateEntry(storage, array, value, value, here(), owner)
        found.meet(storage)
        self._remember(storage, owner)
        return found.value

    def has_written(self, t: Tensor) -> bool:
        """Whether the body has changed the memory of a tensor from outside."""
        storage = t._storage
        entry = None if storage is None or storage.array is None else self.state.get(id(storage.array))
        return entry is not None and entry.is_modified

    def concretize(self, value: Value) -> Any:
        """The array of a constant; everything else has no value yet."""
        is_given, sizes = self._sources(value)
        if not is_given and not any(map(is_counted, value.type.shape)):
            for size in (*map(expression_of, value.type.shape), *sizes):
                self.size_digits(size)
            return self.evaluate(value)
        error = TraceError(
            f"{self.name}: Python asks for a value that is known only when the compiled body runs",
            {"value": value.type, "at": here()},
            "choose with aj.cond (or aj.where), repeat with aj.while_loop, and keep numbers in tensors",
        )
        return run_turn_by_turn(self, f"lets Python ask for a value, at {here()}", error)

    def decide_size(self, expression: Expression, relation: str) -> bool:
        """See ``core.size_recorder.Recorder``: sizes from outside are asked for there."""
        if self.outer is None or self._is_counted(expression):
            return super().decide_size(expression, relation)
        with self.outside():
            return self.outer.decide_size(expression, relation)

    def size_digits(self, expression: Expression) -> int:
        """See ``decide_size``."""
        if self.outer is None or self._is_counted(expression):
            return super().size_digits(expression)
        with self.outside():
            return self.outer.size_digits(expression)

    def note_error(self) -> None:
        """See ``decide_size``."""
        super().note_error()
        if self.outer is not None:
            self.outer.note_error()

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Ops inside are the outer program's."""
        before, layers = state.trace, state.layers
        set_trace(self.outer)
        set_layers(self.outer_layers)
        try:
            yield
        finally:
            set_trace(before)
            set_layers(layers)

    def read_grad(self, leaf: Tensor) -> Tensor | None:
        return lent_gradient(leaf) if self.outer is None else self.outer.read_grad(leaf)

    def write_grad(self, leaf: Tensor, grad: Tensor | None) -> None:
        self.refuse_gradient()

    def refuse_gradient(self) -> NoReturn:
        """A backward pass in the body changes a ``.grad`` outside."""
        error = UsageError(
            f"{self.name}: backward() in the body would accumulate into the .grad of a tensor outside",
            {"at": here()},
            "use autojit.autograd.grad and carry or return the gradients",
        )
        run_turn_by_turn(self, "changes the .grad of a tensor outside", error)

    def note_flag(self, t: Tensor, flag: bool, wanted: bool) -> None:
        if self.outer is not None:
            self.outer.note_flag(t, flag, wanted)

    def follow(self, holder: Any, moved: frozenset[int] | None = None) -> None:
        if self.outer is not None:
            self.outer.follow(holder, moved)

    def begin_again(self) -> None:
        if self.outer is not None:
            self.outer.begin_again()

    def lend(self, tensor: Tensor, owner: object) -> None:
        if self.outer is not None:
            self.outer.lend(tensor, owner)
