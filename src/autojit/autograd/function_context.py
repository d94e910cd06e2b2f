"""The ctx of a custom function: what ``forward`` leaves for ``backward``, and the node of the call in the history.

``FunctionCtx`` holds what users call on a ctx; ``BackwardCFunction`` is the node. Every subclass of ``Function`` gets a
node class of its own, named after it, so that ``type(y.grad_fn).__name__`` tells which function made ``y``.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from autojit.autograd.edges import zeros_of
from autojit.core.errors import DifferentiationError, ShapeError, UsageError
from autojit.core.types import TensorType
from autojit.core.user_warnings import warn
from autojit.dispatch.promotion import cast
from autojit.history.saved import Packed, SavedTensor, changed_error, connected, freed_error
from autojit.history.view_rules import inference_saved
from autojit.ops.base import is_expandable, sum_to
from autojit.tensor import Tensor
from autojit.tensor.node import FREED, ZERO, AccumulateGrad, Node, type_of_meta
from autojit.tensor.state import state
from autojit.tensor.tensor import LIKE_LEAF, alias, storage_of, type_of


class FunctionCtx:
    """What ``forward`` or ``setup_context`` say about a call. Plain attributes may be added freely."""

    to_save: Any = None
    saved_for_forward: Any = None
    dirty_tensors: Any = None
    non_differentiable: Any = None
    materialize_grads: bool = True

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors (or None) for ``backward``; in-place changes of them are noticed.

        Raises:
            TypeError: one is neither a tensor nor None; raised when ``forward`` has ended and a gradient is wanted.
        """
        self.to_save = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Keep tensors (or None) for ``jvp``.

        Raises:
            AssertionError: one is neither a tensor nor None.
        """
        for t in tensors:
            if not (t is None or isinstance(t, Tensor)):
                raise AssertionError(
                    f"save_for_forward takes tensors and None, not {type(t).__name__}; keep other objects as "
                    "attributes of ctx"
                )
        self.saved_for_forward = tensors

    def mark_dirty(self, *tensors: Any) -> None:
        """Say which inputs ``forward`` changed in place; they must be returned."""
        self.dirty_tensors = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Say which outputs have no derivative."""
        self.non_differentiable = tensors

    def mark_shared_storage(self, *pairs: Any) -> None:
        """Nothing: shared memory is noticed without being told."""
        warn("mark_shared_storage is deprecated: shared memory is noticed", FutureWarning)

    def set_materialize_grads(self, value: bool) -> None:
        """Whether ``backward`` gets zeros (the default) or None for outputs that were not used."""
        self.materialize_grads = value


class BackwardCFunction(Node, FunctionCtx):
    """The node of one call of a custom function. ``_forward_cls`` is the function's class."""

    _forward_cls: Any = None
    _materialize_non_diff_grads = True
    _saved: Sequence[Any] = ()
    _versions: Sequence[int] = ()
    _is_freed = False
    _was_read = False  # whether reading the saved tensors freed them
    constants_of_call: frozenset[int] = frozenset()  # numbers of outputs without derivative
    num_inputs = 0
    fewest_gradients = 0  # gradients of keyword arguments may be left out
    requires_grad = False
    needs_input_grad: tuple[bool, ...] = ()
    slots: Sequence[int] = ()  # positions of the tensors among the inputs, one per edge
    input_metas: Sequence[Any] = ()
    input_forms: Mapping[int, Tensor] = {}  # sparse inputs, whose values the edges stand for, by number of the edge
    output_forms: Mapping[int, Tensor] = {}  # the same for outputs

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What ``save_for_backward`` kept (in ``jvp``: what ``save_for_forward`` kept).

        Raises:
            RuntimeError: it was freed, or one of the tensors was changed in place since.
        """
        if self.saved_for_forward is not None:
            return tuple(self.saved_for_forward)
        if self._was_read:
            raise UsageError(
                "saved_tensors can only be accessed once when clear_saved_tensors_on_access=True is set on a function",
                {"function": self.name()},
                "read them once into names of your own, or set clear_saved_tensors_on_access=False",
            )
        if self._is_freed:
            raise freed_error(self)
        found = tuple([self._unpack(entry, place) for place, entry in enumerate(self._saved)])
        if self._forward_cls.clear_saved_tensors_on_access:
            self.release()
            self._was_read = True
        return found

    @property
    def saved_variables(self) -> tuple[Any, ...]:
        """The old name of ``saved_tensors``."""
        warn("'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning)
        return self.saved_tensors

    @property
    def _raw_saved_tensors(self) -> tuple[SavedTensor, ...]:
        if self._was_read:
            return ()
        if self._is_freed:
            raise freed_error(self)
        return tuple([self._raw(place) for place in range(len(self._saved))])

    def _raw(self, place: int) -> SavedTensor:
        entry = self._saved[place]
        result = -1 if entry is None else entry[1]

        def get() -> Any:
            kept = self._saved[place]
            return kept if kept is None or kept is FREED else kept[0]

        def put(packed: Any) -> None:
            assert isinstance(self._saved, list)
            self._saved[place] = (packed, result)

        return SavedTensor.of(get, put, lambda: self._unpack(self._saved[place], place), result)

    @property
    def num_outputs(self) -> int:
        """How many outputs ``forward`` returned."""
        return len(self.out_metas)

    def _unpack(self, entry: Any, place: int) -> Any:
        if entry is None:
            return None
        if entry is FREED:
            raise freed_error(self)
        t, result = entry
        if type(t) is Packed or type(t) is _ChangedView:
            return t.unpack(self, result)
        storage = t._storage
        if storage is not None and storage.version != self._versions[place]:
            raise changed_error(self, t, self._versions[place], result)
        return t if result < 0 else t._with_part(connected(part_of(t), (self, result)))

    def save(self) -> None:
        """Keep what ``save_for_backward`` was given, now that the outputs are known.

        Raises:
            TypeError: something is neither a tensor nor None.
            RuntimeError: a tensor was made in inference mode.
        """
        hooks = state.recording_hooks
        saved: list[Any] = []
        versions: list[int] = []
        given, self.to_save = self._tuple_of("to_save"), None  # outputs among them would keep the node alive
        for place, t in enumerate(given):
            if t is None:
                saved.append(None)
                versions.append(0)
                continue
            if not isinstance(t, Tensor):
                raise TypeError(
                    f"save_for_backward can only save variables, but argument {place} is of type {type(t).__name__}"
                )
            storage = storage_of(t)
            if storage.inference and not state.transforming:
                raise inference_saved(t, self.name())
            part = part_of(t)
            is_result = part._grad_fn is self
            kept: Any = t._with_part(alias(part)) if is_result else t
            if hooks:
                kept = Packed(t, hooks[-1], is_result)
            elif not is_result and part._view is not None and part._grad_fn is not None and self._changed(part):
                kept = _ChangedView(t, part)
            saved.append((kept, part._output_nr if is_result else -1))
            versions.append(storage.version)
        self._saved, self._versions = saved, versions

    def _changed(self, part: Tensor) -> bool:
        return any(part_of(d) is part for d in self.dirty_tensors or ())

    def _tuple_of(self, attribute: str) -> tuple[Any, ...]:
        found = getattr(self, attribute)
        if not (found is None or isinstance(found, tuple)):
            raise RuntimeError(f"{attribute} of a ctx must be a tuple, not {type(found).__name__}")
        return found or ()

    def release(self) -> None:
        self._saved = [None if entry is None else FREED for entry in self._saved]
        self._is_freed = True

    maybe_clear_saved_tensors = release

    def _kept(self) -> Any:
        return self._saved, self._is_freed

    def _keep_again(self, kept: Any) -> None:
        self._saved, self._is_freed = kept

    # -- backward

    def apply(self, *grads: Any) -> Any:
        """Call the user's ``backward`` (or ``vjp``) as it was written."""
        function = self._forward_cls
        if getattr(function, "boxed_grads_call", False):
            return function.user_backward()(self, list(grads))
        return function.user_backward()(self, *grads)

    def run(self, grads: list[Any], wanted: tuple[bool, ...]) -> Sequence[Any]:
        given = [self._materialized(g, number) for number, g in enumerate(grads)]
        found = self.apply(*given)
        return self._validated(list(found) if isinstance(found, tuple) else [found])

    def _materialized(self, grad: Any, number: int) -> Any:
        if grad is not None and grad is not ZERO:
            return self.output_forms[number]._from_part(grad) if number in self.output_forms else grad
        if number >= len(self.out_metas) or self.out_metas[number] is None:
            return None  # this output is not a tensor
        if grad is None and not self.materialize_grads:
            return None
        if number in self.constants_of_call and not self._materialize_non_diff_grads:
            return None
        return zeros_of((self, number))

    def _validated(self, results: list[Any]) -> list[Any]:
        """One gradient per edge, in the type of the input."""
        count = self.num_inputs
        while len(results) > count and results[-1] is None:
            results.pop()
        if not self.fewest_gradients <= len(results) <= count:
            raise RuntimeError(
                f"function {self.name()} returned an incorrect number of gradients (expected {count}, got "
                f"{len(results)})"
            )
        tensors = set(self.slots)
        for place, grad in enumerate(results):
            if grad is not None and place not in tensors:
                raise RuntimeError(
                    f"function {self.name()} returned a gradient different than None at position {place + 1}, but the "
                    "corresponding forward input was not a Variable"
                )
            if not (grad is None or isinstance(grad, Tensor)):
                raise RuntimeError(f"expected Variable or None (got {type(grad).__name__})")
        found: list[Any] = []
        for number, place in enumerate(self.slots):
            grad = results[place] if place < len(results) else None
            if grad is None or self.edges[number] is None:
                found.append(None)
            else:
                if number in self.input_forms:
                    grad = self.input_forms[number]._part_of(grad)
                found.append(self._fitted(grad, self._wanted(number, grad), number))
        return found

    def _wanted(self, number: int, grad: Tensor) -> TensorType:
        """The type that the gradient of an input gets: the input's, in the leaf's ``grad_dtype`` if one was set."""
        wanted, edge = type_of_meta(self.input_metas[number]), self.edges[number]
        if edge is None or not isinstance(edge[0], AccumulateGrad) or edge[0].variable._grad_dtype is LIKE_LEAF:
            return wanted
        return wanted.with_dtype(edge[0].variable._grad_dtype or type_of(grad).dtype)

    def _fitted(self, grad: Tensor, wanted: TensorType, number: int) -> Tensor:
        found = type_of(grad)
        what = f"Function {self.name()} returned an invalid gradient at index {number}"
        if found.device != wanted.device:
            raise DifferentiationError(
                f"{what} - expected device {wanted.device} but got {found.device}",
                {"gradient": grad, "input": wanted},
                "return the gradient on the device of the input",
            )
        if found.shape != wanted.shape:
            if not is_expandable(wanted.shape, found.shape):
                raise ShapeError(
                    f"{what} - got {list(found.shape)} but expected shape compatible with {list(wanted.shape)}",
                    {"gradient": found, "input": wanted},
                    "return a gradient of the shape of the input",
                )
            grad = sum_to(grad, wanted.shape)
        if found.dtype is not wanted.dtype:
            if found.dtype.is_complex and not wanted.dtype.is_complex:
                raise DifferentiationError(
                    f"{what} - expected a real gradient for a real input but got {found.dtype}",
                    {"gradient": found, "input": wanted},
                    "return its real part (grad.real)",
                )
            grad = cast(grad, wanted.dtype)
        return grad


class _ChangedView:
    """A saved view that the call itself changed: its history contains the call, so it is not kept alive from here."""

    __slots__ = ("node", "number", "tensor", "version")

    def __init__(self, t: Tensor, part: Tensor) -> None:
        assert part._grad_fn is not None
        self.tensor = t._with_part(alias(part))
        self.node, self.number = weakref.ref(part._grad_fn), part._output_nr
        self.version = storage_of(t).version

    def unpack(self, call: Node, result: int) -> Tensor:
        """The view with its history, which ``call`` is part of."""
        node = self.node()
        if node is None or storage_of(self.tensor).version != self.version:
            raise changed_error(call, self.tensor, self.version, result)
        return self.tensor._with_part(connected(part_of(self.tensor), (node, self.number)))


def part_of(t: Any) -> Any:
    """What carries the history of an object: a tensor itself, or the values of a sparse one."""
    return t._differentiated() if isinstance(t, Tensor) and type(t) is not Tensor else t
