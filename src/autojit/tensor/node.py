"""Nodes of the recorded history: what ``Tensor.grad_fn`` shows and the engine walks.

A node is one application of an op whose result requires gradients. ``edges`` point to the nodes (and output numbers)
that made its inputs; a leaf's node is its AccumulateGrad, which the leaf itself knows only weakly, so that history is
freed by reference counting alone.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from autojit.core.dtypes import dtype_of_numpy
from autojit.core.source import UNKNOWN, SourceLocation
from autojit.core.types import TensorType

if TYPE_CHECKING:
    from autojit.tensor.tensor import Tensor

Edge = tuple["Node", int]
Meta = Any  # a TensorType, or (shape, NumPy dtype), which is cheaper to make


class SymbolicZero:
    """The cotangent of something that was used, but through a derivative that is zero everywhere."""

    def __repr__(self) -> str:
        return "ZERO"


FREED = object()
ZERO = SymbolicZero()
_sequence = itertools.count()
next_sequence = _sequence.__next__
LAST = 1 << 62


def sequence_mark() -> int:
    """A number between the nodes made so far and those made from now on."""
    return next(_sequence)


def type_of_meta(meta: Meta) -> TensorType:
    """The TensorType of a meta entry."""
    if type(meta) is TensorType:
        return meta
    shape, dtype = meta
    return TensorType(shape, dtype_of_numpy(dtype))


class RemovableHandle:
    """Removes a hook: ``remove()``, or leaving a ``with`` block. Removing twice is harmless."""

    __slots__ = ("__weakref__", "_hooks", "id")
    _next = itertools.count()

    def __init__(self, hooks: dict[int, Any]) -> None:
        self._hooks = weakref.ref(hooks) if hasattr(hooks, "__weakref__") else lambda: hooks
        self.id = next(RemovableHandle._next)

    def remove(self) -> None:
        hooks = self._hooks()
        if hooks is not None:
            hooks.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()


class Hooks(dict[int, Any]):
    """Hooks in registration order, by handle id; a dict that can be referred to weakly."""

    __slots__ = ("__weakref__",)

    def add(self, hook: Callable[..., Any]) -> RemovableHandle:
        handle = RemovableHandle(self)
        self[handle.id] = hook
        return handle


class Node:
    """One step of the recorded history.

    ``edges`` has one entry per input: (node, output number), or None where no gradient flows. ``tensor_hooks`` maps an
    output number to the hooks of the tensor there; ``retained`` to a weak reference to a tensor that keeps its
    ``.grad``.
    """

    __slots__ = (
        "__dict__", "__weakref__", "edges", "out_metas", "post_hooks", "pre_hooks", "retained", "sequence", "source",
        "tensor_hooks",
    )  # fmt: skip
    edges: Sequence[Edge | None]
    out_metas: Sequence[Meta]
    source: SourceLocation

    def __init__(self) -> None:
        self.edges = ()
        self.out_metas = ()
        self.pre_hooks: Hooks | None = None
        self.post_hooks: Hooks | None = None
        self.tensor_hooks: dict[int, Hooks] | None = None
        self.retained: dict[int, weakref.ref[Tensor]] | None = None
        self.sequence = next(_sequence)
        self.source = UNKNOWN

    def name(self) -> str:
        """torch's name of the node, e.g. ``MulBackward0``."""
        return type(self).__name__

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        return tuple((None, 0) if e is None else e for e in self.edges)

    @property
    def metadata(self) -> dict[Any, Any]:
        """A dictionary for users."""
        found: dict[Any, Any] = self.__dict__.setdefault("_user_metadata", {})
        return found

    def _sequence_nr(self) -> int:
        return self.sequence

    @property
    def _input_metadata(self) -> tuple[TensorType, ...]:
        return tuple(type_of_meta(m) for m in self.out_metas)

    def register_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(grad_inputs, grad_outputs)`` after the node ran; a result replaces the grad_inputs."""
        if self.post_hooks is None:
            self.post_hooks = Hooks()
        return self.post_hooks.add(hook)

    def register_prehook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(grad_outputs)`` before the node runs; a result replaces them."""
        if self.pre_hooks is None:
            self.pre_hooks = Hooks()
        return self.pre_hooks.add(hook)

    def hooks_of_output(self, number: int) -> Hooks:
        """The (mutable) hooks of the tensor at one output."""
        if self.tensor_hooks is None:
            self.tensor_hooks = {}
        return self.tensor_hooks.setdefault(number, Hooks())

    def run(self, grads: list[Any], wanted: tuple[bool, ...]) -> Sequence[Any]:
        """Cotangents of the inputs (None where not wanted, None or ZERO where zero) from those of the outputs.

        Entries of ``grads`` are None where nothing arrived and ZERO where only symbolic zeros did.
        """
        raise NotImplementedError

    def release(self) -> None:
        """Forget what was saved for ``run``."""

    def __repr__(self) -> str:
        return f"<{self.name()} object at {id(self):#x}>"


class AccumulateGrad(Node):
    """The end of a path: adds what arrives to ``variable.grad``. The engine does the adding."""

    __slots__ = ("variable",)

    def __init__(self, variable: Tensor) -> None:
        super().__init__()
        self.variable = variable
        self.sequence = LAST  # as early as possible, so that gradients can be freed


_NAMES: dict[str, str] = {}
_SPELLED = {
    "permute": "PermuteBackward0", "matmul": "MmBackward0", "cast": "ToCopyBackward0", "broadcast_to":
    "ExpandBackward0",
    "reshape": "ViewBackward0", "view_update": "CopySlices", "concatenate": "CatBackward0",
}  # fmt: skip


def backward_name(op_name: str) -> str:
    """torch's class name for an op's node: ``mul`` gives ``MulBackward0``."""
    found = _NAMES.get(op_name)
    if found is None:
        camel = "".join(part.capitalize() for part in op_name.split("_"))
        found = _NAMES[op_name] = _SPELLED.get(op_name, f"{camel}Backward0")
    return found
