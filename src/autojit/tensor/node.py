"""Nodes of the recorded history: what ``Tensor.grad_fn`` shows and the engine walks.

A node is one application of an op whose result requires gradients. ``edges`` point to the nodes (and output numbers)
that made its inputs; a leaf's node is its AccumulateGrad, which the leaf itself knows only weakly, so that history is
freed by reference counting alone.
"""

from __future__ import annotations

import itertools
import weakref
from collections import OrderedDict
from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar, cast

from autojit.core.dtypes import dtype_of_numpy
from autojit.core.once import first_use
from autojit.core.source import UNKNOWN, Place, SourceLocation
from autojit.core.types import TensorType
from autojit.ir.op import Op
from autojit.tensor.size import Size
from autojit.tensor.state import bump_guard_epoch, state

if TYPE_CHECKING:
    import numpy as np

    from autojit.tensor.tensor import Tensor

Edge = tuple["Node", int]
Meta: TypeAlias = "TensorType | tuple[tuple[int, ...], np.dtype[Any]]"
"""A type as a node keeps it: shape and NumPy dtype are cheaper to make."""


class SymbolicZero:
    """The cotangent of something that was used, but through a derivative that is zero everywhere."""

    def __repr__(self) -> str:
        return "ZERO"


FREED = object()
ZERO = SymbolicZero()
_sequence = itertools.count()
next_sequence = _sequence.__next__
LAST = 1 << 62


def next_number() -> int:
    """The number that the next node will get: nodes made so far have smaller ones."""
    return int(repr(_sequence)[6:-1])  # "count(7)": the one way to look at a counter without moving it


sequence_mark = next_number


TYPES: dict[tuple[tuple[int, ...], np.dtype[Any]], TensorType] = {}
"""Types by (shape, NumPy dtype): making one takes six times as long as finding it."""
_TYPE_LIMIT = 4096


def new_type(key: tuple[tuple[int, ...], np.dtype[Any]]) -> TensorType:
    """The TensorType of a shape and a NumPy dtype that is not in ``TYPES`` yet."""
    if len(TYPES) >= _TYPE_LIMIT:
        TYPES.clear()
    made = TYPES[key] = TensorType(key[0], dtype_of_numpy(key[1]))
    return made


def type_of_meta(meta: Meta) -> TensorType:
    """The TensorType of a meta entry."""
    if type(meta) is TensorType:
        return meta
    found = TYPES.get(meta)
    return new_type(meta) if found is None else found


class InputMetadata:
    """What a node takes at one place in backward: the shape, dtype and device of the output that it made there."""

    __slots__ = ("device", "dtype", "shape")
    is_nested_tensor = False
    is_cpp_nested_tensor = False

    def __init__(self, type: TensorType) -> None:
        self.shape = Size(type.shape)
        self.dtype = type.dtype
        self.device = type.device

    def __repr__(self) -> str:
        return f"InputMetadata({self.shape}, {self.dtype}, {self.device})"


class RemovableHandle:
    """Removes a hook: ``remove()``, or leaving a ``with`` block. Removing twice is harmless."""

    __slots__ = ("__weakref__", "_hooks", "id")
    _next = itertools.count()

    def __init__(self, hooks: Any) -> None:
        self._hooks = weakref.ref(hooks)
        self.id = new_number()

    @property
    def hooks_dict_ref(self) -> Callable[[], Any]:
        """torch's name for what gives the table of hooks; None when that is gone."""
        return self._hooks

    def remove(self) -> None:
        """Take the hook out; nothing happens when it is gone already."""
        hooks = self._hooks()
        if hooks is not None and take_out(hooks, self.id) and isinstance(hooks, Hooks) and hooks.is_counted:
            bump_guard_epoch()

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()


def new_number() -> int:
    """The number of a hook that is registered; a capture takes note of it."""
    number = next(RemovableHandle._next)
    if state.hook_changes is not None:
        state.hook_changes.added.add(number)
    return number


def take_out(hooks: dict[Any, Any], number: int) -> bool:
    """Remove a hook from its table, if it is there; a capture takes note of it."""
    if number not in hooks:
        return False
    if state.hook_changes is not None:
        state.hook_changes.removed.append((hooks, number, dict(hooks)))
    del hooks[number]
    return True


class Hooks(OrderedDict[Any, Any]):
    """Hooks in registration order, by handle id; a dict that can be referred to weakly.

    ``is_counted``: compiled steps may have baked them in, so changes are counted in the guard epoch.
    """

    is_counted = False

    def add(self, hook: Callable[..., Any]) -> RemovableHandle:
        if self.is_counted:
            bump_guard_epoch()
        handle = RemovableHandle(self)
        self[handle.id] = hook
        return handle


class LeafHooks(Hooks):
    """Hooks of a leaf, which compiled steps bake in."""

    is_counted = True


class Node:
    """One step of the recorded history.

    ``edges`` has one entry per input: (node, output number), or None where no gradient flows. ``tensor_hooks`` maps an
    output number to the hooks of the tensor there; ``retained`` to a weak reference to a tensor that keeps its
    ``.grad``.
    """

    __slots__ = (
        "__dict__", "__weakref__", "edges", "out_metas", "place", "sequence",
    )  # fmt: skip
    edges: Sequence[Edge | None]
    out_metas: Sequence[Any]  # a Meta, or None where a function gave no tensor
    place: Place | SourceLocation  # of eager ops what ``source`` is made of, when somebody asks
    renumbered: ClassVar[set[weakref.ref[Node]]] = set()  # living: edges may lead to them from nodes of lesser number
    takes_reward = False  # whether it is the node of a stochastic function of 0.3
    hands_on = False  # whether cotangents of its inputs are those of its outputs, number for number
    _is_pure_view = False  # whether a write through the result replaces the node by the view it stands for

    pre_hooks: Hooks | None = None  # in the class, as few nodes have any
    post_hooks: Hooks | None = None
    tensor_hooks: dict[int, Any] | None = None
    counts_hooks = False  # whether a compiled step's backward goes through it
    retained: dict[int, weakref.ref[Tensor]] | None = None

    @property
    def source(self) -> SourceLocation:
        """The user's line that recorded the node."""
        place = self.place
        if type(place) is tuple:
            place = self.place = SourceLocation(*place)
        return cast("SourceLocation", place)

    @source.setter
    def source(self, source: SourceLocation) -> None:
        self.place = source

    def is_behind_mask(self, found: Container[Node]) -> bool:
        """Whether cotangents of its inputs may hold zeros of a masked branch; those of nodes in ``found`` do."""
        return self in found or not self.hands_on

    def __init__(self, sequence: int | None = None) -> None:
        self.edges = ()
        self.out_metas = ()
        self.sequence = next(_sequence) if sequence is None else sequence
        self.place = UNKNOWN

    def name(self) -> str:
        """torch's name of the node, e.g. ``MulBackward0``; those of its engine have their namespace."""
        name = type(self).__name__
        return f"torch::autograd::{name}" if name in ("CopyBackwards", "CopySlices") else name

    def name_of(self, number: int) -> str:
        """What a tensor shows that is one of its outputs: of a compiled call, the node that eager mode would show."""
        return self.name()

    def rename(self, name: str) -> None:
        """Be called after the function that the user called, where a node can."""

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """Per input, the node that made it and which of its outputs it is; ``(None, 0)`` where no gradient flows."""
        return tuple([(None, 0) if e is None else e for e in self.edges])

    @property
    def metadata(self) -> dict[Any, Any]:
        """A dictionary for users."""
        found: dict[Any, Any] = self.__dict__.setdefault("_user_metadata", {})
        return found

    def _sequence_nr(self) -> int:
        """The node's number: of the nodes that could run next in a backward pass, the greatest runs."""
        return self.sequence

    def _set_sequence_nr(self, sequence_nr: int) -> None:
        """Give the node another number; it still runs after all nodes that use its outputs."""
        self.sequence = sequence_nr
        Node.renumbered.add(weakref.ref(self, Node.renumbered.discard))

    @property
    def _input_metadata(self) -> tuple[InputMetadata | None, ...]:
        return tuple([None if m is None else InputMetadata(type_of_meta(m)) for m in self.out_metas])

    def __call__(self, *grads: Tensor | None) -> Any:
        """The gradients of the inputs from those of the outputs, without hooks: a tensor, or a tuple of them.

        Raises:
            TypeError: not one gradient (or None) per output.
        """
        expected = max(len(self.out_metas), 1)
        if len(grads) != expected:
            raise TypeError(f"{self.name()}: expected {expected} arguments, got {len(grads)} instead")
        results = self.run(list(grads), tuple([e is not None for e in self.edges]))
        shown = tuple([None if r is ZERO else r for r in results])
        return shown[0] if len(shown) == 1 else shown

    def register_hook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Call ``fn(grad_inputs, grad_outputs)`` after the node ran; a returned tuple replaces the grad_inputs."""
        with first_use:
            if self.post_hooks is None:
                self.post_hooks = self._new_hooks()
        return self.post_hooks.add(fn)

    def register_prehook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Call ``fn(grad_outputs)`` before the node runs; a returned tuple replaces them."""
        with first_use:
            if self.pre_hooks is None:
                self.pre_hooks = self._new_hooks()
        return self.pre_hooks.add(fn)

    def _register_hook_dict(self, tensor: Tensor) -> None:
        """Let the hooks in ``tensor._backward_hooks`` run when the gradient of ``tensor`` arrives here."""
        if tensor._backward_hooks is not None:
            self._hooks_by_output()[tensor._output_nr] = tensor._backward_hooks

    def hooks_of_output(self, number: int) -> Any:
        """The (mutable) hooks of the tensor at one output."""
        return self._hooks_by_output().setdefault(number, self._new_hooks())

    def _hooks_by_output(self) -> dict[int, Any]:
        with first_use:
            if self.tensor_hooks is None:
                self.tensor_hooks = {}
        return self.tensor_hooks

    def _new_hooks(self) -> Hooks:
        hooks = Hooks()
        hooks.is_counted = self.counts_hooks
        return hooks

    def hook_tables(self) -> tuple[dict[Any, Any] | None, ...]:
        """Where the hooks of the node and of the tensors that it made are."""
        return self.pre_hooks, self.post_hooks, *(self.tensor_hooks or {}).values()

    def count_hooks(self) -> None:
        """Let changes of its hooks be counted from now on: a compiled step runs them."""
        self.counts_hooks = True
        for table in self.hook_tables():
            if isinstance(table, Hooks):
                table.is_counted = True

    def run(self, grads: list[Any], wanted: tuple[bool, ...]) -> Sequence[Any]:
        """Cotangents of the inputs (None where not wanted, None or ZERO where zero) from those of the outputs.

        Entries of ``grads`` are None where nothing arrived and ZERO where only symbolic zeros did.
        """
        raise NotImplementedError

    def backward_alone(self, number: int, gradient: Any, keep: bool) -> bool:
        """Do the backward pass from output ``number``, if the node can do it at once; ``gradient`` is None for 1.

        ``keep``: it may be asked for another one. False: the engine has to do it.
        """
        return False

    def grad_alone(self, number: int, gradient: Any, inputs: Any, keep: bool) -> tuple[Tensor, ...] | None:
        """The gradients of output ``number`` by some tensors, as ``backward_alone``; None: the engine has to do it."""
        return None

    def release(self) -> None:
        """Forget what was saved for ``run``."""

    def _kept(self) -> Any:
        """What ``release`` forgets, for ``_keep_again``."""

    def _keep_again(self, kept: Any) -> None:
        """Take ``release`` back."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object at {id(self):#x}>"


class AccumulateGrad(Node):
    """The end of a path: adds what arrives to ``variable.grad``. The engine does the adding.

    ``is_private``: the leaf is an input that a transform made for itself, and has given its results for.
    """

    __slots__ = ("is_private", "variable")
    counts_hooks = True

    def __init__(self, variable: Tensor) -> None:
        self.edges = self.out_metas = ()
        self.sequence = LAST  # as early as possible, so that gradients can be freed
        self.place = UNKNOWN
        self.variable = variable
        self.is_private = False

    def name(self) -> str:
        """torch's name of the node, which has its namespace."""
        return "torch::autograd::AccumulateGrad"

    def register_hook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Call ``fn((), grad_outputs)`` after the gradient was accumulated."""
        return super().register_hook(fn)

    def register_prehook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Call ``fn(grad_outputs)`` before the gradient is accumulated; a returned tuple replaces it."""
        return super().register_prehook(fn)

    def hook_tables(self) -> tuple[dict[Any, Any] | None, ...]:
        """Those of the leaf as well."""
        return *(self.variable._leaf_hooks or ()), self.pre_hooks, self.post_hooks

    @property
    def _input_metadata(self) -> tuple[InputMetadata | None, ...]:
        return (InputMetadata(self.variable.spec),)


_Kind = TypeVar("_Kind", bound=Node)
_NODE_TYPES: dict[tuple[type[Node], str], Any] = {}


def node_type(kind: type[_Kind], name: str) -> type[_Kind]:
    """The class of nodes of a kind that users see as ``name``, which is torch's name: ``kind`` under that name."""
    found: type[_Kind] | None = _NODE_TYPES.get((kind, name))
    if found is None:
        fields = {"__slots__": (), "__module__": kind.__module__, "__doc__": kind.__doc__}
        found = _NODE_TYPES.setdefault((kind, name), type(name, (kind,), fields))  # one, whichever thread is first
    return found


def move_retained(x: Tensor, node: Node) -> None:
    """``retain_grad`` follows a tensor to its new node, of which it is to be output 0."""
    before = x._grad_fn
    if not x._retains_grad or before is None or before.retained is None:
        return
    reference = before.retained.pop(x._output_nr, None)
    if reference is not None:
        node.retained = {**(node.retained or {}), 0: reference}


_NAMES: dict[str, str] = {}


def backward_name(op_name: str) -> str:
    """torch's class name for an op's node: ``mul`` gives ``MulBackward0``."""
    found = _NAMES.get(op_name)
    if found is None:
        op = Op.registry.get(op_name)
        camel = "".join(part.capitalize() for part in op_name.split("_"))
        found = _NAMES[op_name] = (op.node_class if op is not None else "") or f"{camel}Backward0"
    return found
