"""Body: a function of tensors captured as a graph while the program around it goes on.

How to read: ``BodyTrace`` (``body_trace.py``) records the ops, ``BodyLayer`` is between the function's ops and the
trace: a tensor from outside becomes an input of the graph when an op first meets it, so that its history stays outside.
``Body`` runs the function and knows the results.

State of the program (a generator, running statistics) that the function changes in place becomes an input and an
output too: ``written``. Tensors of the outer program that cannot be functionalised like this must be carried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from autojit.autograd.forward_level import ForwardLevel
from autojit.control_flow.body_trace import BodyTrace
from autojit.core.device_array import has_layout
from autojit.core.errors import UsageError
from autojit.core.size_recorder import recording
from autojit.core.source import SourceLocation, here
from autojit.core.types import TensorType
from autojit.dispatch.dispatch import apply, value_of
from autojit.dispatch.inplace import replace
from autojit.functions.memory import laid_out
from autojit.history.recording import edge_of, symbolic_node, wants_grad
from autojit.history.view_history import ViewChain
from autojit.ir.graph import Value
from autojit.ir.op import Op
from autojit.jit.body_effects import effects_refused
from autojit.jit.histories import has_history, nodes_from
from autojit.jit.stepped_bodies import run_turn_by_turn
from autojit.jit.trace_entries import StateEntry
from autojit.tensor.memory_orders import copied_order, lie_alike, order_of
from autojit.tensor.state import Layer, below, carry, grad_mode, holders, set_layers, set_trace, state
from autojit.tensor.storage import Storage
from autojit.tensor.tensor import Tensor, alias, layout_of, type_of, wrap_value


class BodyLayer(Layer):
    """Lets tensors from outside into the graph of a body: as inputs, without their history."""

    what = "a captured body"
    is_body = True

    def __init__(self, trace: BodyTrace) -> None:
        self.trace = trace
        self.outer_layers = state.layers
        self.takes_grad = state.grad_enabled
        self.inner: dict[int, tuple[Tensor, Tensor]] = {}  # id of a tensor from outside -> it, what stands for it

    def enter(self, t: Tensor) -> Tensor:
        """The tensor that stands for ``t`` inside: itself if it was made there or is plain memory."""
        if t._array is None and self.trace.owns(t):
            return t
        found = self.inner.get(id(t))
        if found is not None:
            return found[1]
        if self.trace.has_written(t):
            return t  # its memory is the body's by now, and so is its history
        kind = type_of(t)
        may_want = self.takes_grad and kind.dtype.is_differentiable
        wants = may_want and (wants_grad(t) or (bool(self.outer_layers) and self._has_part(t)))
        if has_layout(t._array) and not wants and not self._has_part(t):
            return t  # its memory is lifted
        made = wrap_value(self.trace.builder.input(kind))
        if t._array is None:
            with self.outside():
                layout = layout_of(t)
            self.trace.set_order(made._value, layout)  # type: ignore[arg-type]
        made._requires_grad = wants
        self.inner[id(t)] = (t, made)
        return made

    def _has_part(self, t: Tensor) -> bool:
        """Whether a layer outside may know more of a tensor than its memory."""
        for layer in self.outer_layers:
            if isinstance(layer, ForwardLevel):
                with self.outside(), below(layer):
                    if layer.tangent(t) is not None:
                        return True
            elif not isinstance(layer, BodyLayer) or layer.enter(t) is not t:
                return True
        return False

    def cut(self, tensors: Sequence[Tensor]) -> None:
        """Let the history of tensors end at what stands for tensors from outside.

        View functions record that they were given a tensor from outside, whatever their ops were given.
        """
        pairs = [(edge_of(t), standing) for t, standing in self.inner.values() if standing._requires_grad]
        ends: dict[Any, Any] = {edge: edge_of(standing) for edge, standing in pairs if edge is not None}
        for node in nodes_from([t._grad_fn for t in tensors if t._grad_fn is not None]):
            if any(edge in ends for edge in node.edges):
                node.edges = [ends.get(edge, edge) for edge in node.edges]

    def outside(self) -> AbstractContextManager[None]:
        """Ops inside are the outer program's."""
        return self.trace.outside()

    # -- the layer

    def apply(self, op: Op, operands: Sequence[Tensor]) -> Any:
        """The op in the body's graph."""
        given = [self.enter(t) for t in operands]
        with below(self):
            return apply(op, *given)

    def replace(self, x: Tensor, new: Tensor, method: str, old: Tensor | None, mark: int) -> None:
        """Write in place: to tensors of the body, and to memory of the program."""
        if self.enter(x) is not x:
            if method == "advance":
                raise UsageError(
                    f"{self.trace.name}: the body draws random numbers inside of vmap",
                    {"at": here()},
                    "draw them outside of the body, for all steps at once, and pass them in",
                )
            error = UsageError(
                f"{self.trace.name}: {method} in the body changes a tensor from outside",
                {"written to": x, "at": here()},
                "return the new value from the body: as a carry, or as a result",
            )
            run_turn_by_turn(self.trace, "changes a tensor outside that it does not carry", error)
        given = self.enter(new)
        with below(self):
            replace(x, given, method, old, mark)

    def carry(self, source: Tensor, made: Tensor, with_history: bool) -> None:
        """Another object for a tensor from outside is one from outside, with the same part in the layers there."""
        if self.outer_layers and not self.trace.owns(source):
            with self.outside():
                carry(source, made, with_history)

    def holder(self, x: Tensor) -> Tensor:
        """What stands for a tensor from outside."""
        found = self.inner.get(id(x))
        return x if found is None else found[1]

    def call_function(self, cls: Any, arguments: Sequence[Any], options: dict[str, Any], call: Any) -> Any:
        """Call a custom function on what stands for its arguments."""
        given = [self.enter(a) if isinstance(a, Tensor) else a for a in arguments]
        named = {k: self.enter(a) if isinstance(a, Tensor) else a for k, a in options.items()}
        with below(self):
            return call(cls, given, named)

    def around_compiled(self, compiled: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """A compiled function becomes part of the graph."""
        return compiled.function(*args, **kwargs)


class Body:
    """A function captured as a graph: its inputs, results, the tensors from outside that it reads, what it changes.

    ``name`` is what messages call it. ``inputs`` and ``outputs`` pair values with the tensors whose history leads to
    them (None: there is none); ``written`` lists what it changes outside.
    """

    written: list[Tensor]
    changed: list[Tensor]  # stand-ins for what it has changed, with the history that the changes gave
    memory: list[int]  # of the first tensors from outside: which array each shows

    def __init__(self, name: str) -> None:
        self.name = name
        self.trace = BodyTrace(name)
        self.source: SourceLocation = self.trace.source
        self.layer = BodyLayer(self.trace)
        self.inputs: list[tuple[Value, Tensor | None]] = []
        self.outputs: list[tuple[Value, Tensor | None]] = []
        self.versions: list[tuple[Storage, int]] = []  # of memory outside, when the capture ended

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Ops inside are the body's."""
        before, layers, hooks = state.trace, state.layers, state.recording_hooks
        set_trace(self.trace)
        set_layers((self.layer,))
        state.recording_hooks = None
        try:
            with recording(self.trace):
                yield
        finally:
            set_trace(before)
            set_layers(layers)
            state.recording_hooks = hooks

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """What happens inside (the recording of a derivative) leaves memory outside as it was.

        Raises:
            UsageError: it does not.
        """
        before = {key: entry.value for key, entry in self.trace.state.items()}
        moved = [(storage, storage.version, then) for storage, then in self.versions if storage.version != then]
        for storage, _, then in moved:
            storage.version = then  # what the body has read is a value: later changes are the business of its op
        try:
            yield
        finally:
            for storage, now, _ in moved:
                storage.version = now
            self.trace.restore_new()
        for key, entry in self.trace.state.items():
            if self.trace.copied_from(entry.value) is not self.trace.copied_from(before.get(key, entry.input)):
                error = UsageError(
                    f"{self.name}: the derivative of the body changes a tensor from outside",
                    {"changed": entry.input.type, "first used": entry.source},
                    "draw random numbers and keep statistics in the body itself",
                )
                run_turn_by_turn(self.trace, "has a derivative that changes a tensor outside", error)

    def input(self, kind: TensorType) -> Tensor:
        """A new input; its tensor is not a leaf, so that the function may change it in place."""
        value = self.trace.builder.input(kind)
        made = wrap_value(value)
        if not (self.layer.takes_grad and kind.dtype.is_differentiable):
            self.inputs.append((value, None))
            return made
        leaf = wrap_value(value)
        leaf._requires_grad = True
        self.inputs.append((value, leaf))
        made._requires_grad, made._grad_fn = True, symbolic_node(ViewChain(()), [edge_of(leaf)], [kind])
        return made

    def stand_in(self, given: Tensor) -> Tensor:
        """A new input for a tensor from outside, laid out in memory like it."""
        made = self.input(type_of(given))
        with self.layer.outside():
            layout = layout_of(given)
        assert made._value is not None
        self.trace.set_order(made._value, layout)
        return made

    def kept_order(self, given: Tensor, new: Tensor, result: Tensor) -> Tensor:
        """The ``result`` for a carry that was ``given``, then ``new``: laid out like copies of both, if these agree."""
        before = copied_order(layout_of(given), type_of(given))
        with self.entered():
            layout = layout_of(new)
        after = order_of(layout)
        return laid_out(result, after) if after is not None and lie_alike(before, after, layout.shape) else result

    def call(self, function: Callable[..., Any], arguments: Sequence[Any], users: Sequence[Any] = ()) -> Any:
        """Run the function; what it did to memory outside is taken back. ``users``: functions of the user's in it.

        Raises:
            Turned: it has changed Python state.
        """
        self.changed = []
        try:
            with effects_refused(self.trace, users or (function,)), self.entered():
                found = function(*arguments)
                entries = [entry for entry in self.trace.state.values() if entry.is_modified]
                self.changed = [_with_history(entry) for entry in entries]
                self.layer.cut(self.changed)
                return found
        finally:
            self.trace.restore()

    def output(self, t: Tensor) -> TensorType:
        """Let the present value of a tensor be a result; its type."""
        with self.entered():
            given = self.layer.enter(t)
            with below(self.layer):
                value = value_of(given)
            self.layer.cut([given])
            self.outputs.append((value, given if self.layer.takes_grad and has_history(given) else None))
        return value.type

    def check_changes(self, wants: Sequence[bool]) -> None:
        """Refuse changes of memory outside that a gradient would have to flow through.

        ``wants``: which inputs require gradients.

        Raises:
            UsageError: what was written depends on such an input.
        """
        for t in self.changed:
            if any(wants[k] for k in self.depends(t)):
                error = UsageError(
                    f"{self.name}: the body changes a tensor from outside to what requires gradients",
                    {"written to": type_of(t), "at": self.source},
                    "return the new value from the body: as a carry, or as a result (or change it under no_grad)",
                )
                run_turn_by_turn(self.trace, "changes a tensor outside to what requires gradients", error)

    # -- what it needs from outside

    def depends(self, t: Tensor | None) -> set[int]:
        """The inputs that the history of a tensor leads to, by position."""
        if t is None or t._grad_fn is None:
            return {k for k, (_, leaf) in enumerate(self.inputs) if leaf is t and t is not None}
        places = {edge_of(leaf): k for k, (_, leaf) in enumerate(self.inputs) if leaf is not None}
        return {places[edge] for node in nodes_from([t._grad_fn]) for edge in node.edges if edge in places}

    def close(self) -> list[Tensor]:
        """End the capture: the tensors from outside become inputs, in this order; what it changed becomes outputs.

        ``written`` lists the tensors that were changed; their inputs are the first, their outputs the last.
        """
        entries = list(self.trace.state.values())
        changed = [e for e in entries if e.is_modified]
        self.versions = [(e.storage, e.storage.version) for e in entries]
        self.written = [_root(e) for e in changed]
        self.memory = [id(e.array) for e in changed] + [id(e.array) for e in entries if not e.is_modified]
        for entry in changed:
            self.outputs.append((entry.value, None))
        found: list[Tensor] = []
        for entry in [*changed, *(e for e in entries if not e.is_modified)]:
            self.inputs.append((entry.input, None))
            root = _root(entry)
            with grad_mode(False):
                found.append(root.clone() if entry.is_modified else root)  # the derivative reads it as it was
        standing_in = [leaf for _, leaf in self.inputs] + [standing for _, standing in self.layer.inner.values()]
        if any(leaf is not None and leaf._grad is not None for leaf in standing_in):
            self.trace.refuse_gradient()
        for t, standing in self.layer.inner.values():
            assert standing._value is not None
            self.inputs.append((standing._value, standing if standing._requires_grad else None))
            found.append(t)
        self.trace.check()
        return found


def _with_history(entry: StateEntry) -> Tensor:
    """A stand-in for memory outside as the body has left it."""
    made, owner = wrap_value(entry.value), entry.root_owner()
    made._requires_grad, made._grad_fn, made._output_nr = wants_grad(owner), owner._grad_fn, owner._output_nr
    return made


def _root(entry: StateEntry) -> Tensor:
    """A tensor without history that shows the whole memory of an entry."""
    owner = entry.root_owner()
    return alias(owner) if owner._requires_grad else owner


def takes_grad(t: Tensor) -> bool:
    """Whether gradients flow into a tensor, or into what stands for it where the program is captured itself."""
    return wants_grad((t, *holders(t))[-1])


def forget_history(results: Sequence[Tensor], kept: Sequence[bool]) -> None:
    """Let fresh results that depend on nothing which requires gradients not require any."""
    for t, keep in zip(results, kept, strict=True):
        if not keep and t._requires_grad:
            t._requires_grad, t._grad_fn, t._output_nr = False, None, 0


def write_back(written: Sequence[Tensor], results: Sequence[Tensor]) -> None:
    """Bring what a body changed into place."""
    with grad_mode(False):
        for t, new in zip(written, results, strict=True):
            t.copy_(new)
