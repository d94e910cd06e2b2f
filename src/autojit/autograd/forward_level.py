"""ForwardLevel: tangents carried by tensors while a forward-mode level is entered.

How to read: the level is a *layer* (``state.Layer``). ``apply`` computes an op on the primals below the layer and
pushes the tangents through the op's own JVP rule, also below it, so both parts may be recorded for backward or captured
by ``jit``. The level owns the tangents, by tensor object; they are gone when it is left or the tensor dies.

Views share tangents as they share memory. A *link* says of which tensor another is a view as far as tangents go:
``make_dual`` and ``unpack_dual`` give aliases without a link, so writes through them leave each other's tangents alone.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from autojit.core.device_array import empty_as, zeros_beside
from autojit.core.errors import DTypeError, ShapeError, UsageError
from autojit.dispatch.batch_layer import BatchLayer
from autojit.dispatch.dispatch import apply
from autojit.dispatch.inplace import copy_into, replace
from autojit.functions.elementwise import clone
from autojit.functions.memory import laid_out, memory_base, storage_offset
from autojit.history.op_node import OpNode
from autojit.ir.op import Op
from autojit.tensor.memory_orders import outermost_first
from autojit.tensor.state import Layer, below, holders, made_like, set_layers, state
from autojit.tensor.tensor import Tensor, layout_of, relative_chain, storage_of, taken_back, type_of, wrap
from autojit.transforms.jvp import push_forward


class Part:
    """What a level knows of one tensor: its tangent, and its link (base, chain of view ops), if any."""

    __slots__ = ("base", "chain", "owner", "tangent")

    def __init__(self, owner: Any, tangent: Tensor | None, base: Tensor | None, chain: tuple[Op, ...]) -> None:
        self.owner = owner
        self.tangent = tangent
        self.base = base
        self.chain = chain


class ForwardLevel(Layer):
    """One forward-mode level of the running thread."""

    what = "a forward-mode level"

    def __init__(self) -> None:
        if state.mutation is not None:  # it keeps copies of what is saved, and those have no tangents
            raise UsageError(
                "forward mode is not possible inside allow_mutation_on_saved_tensors",
                fix="leave the context, or take second derivatives in reverse mode: jacrev(grad(f)), create_graph=True",
            )
        self.parts: dict[int, Part] = {}

    # -- the layer

    def apply(self, op: Op, operands: Sequence[Tensor]) -> Any:
        """The op on the primals; its results get the tangents that its JVP rule gives."""
        with below(self):
            tangents = [self.tangent(t) for t in operands]
            result: Any = apply(op, *operands)
            results = result if op.n_outputs != 1 else (result,)
            if op.is_view and result._view is not None and id(operands[0]) in self.parts:
                self._link(result, operands[0], (op,))
            if tangents.count(None) == len(tangents):
                return result
            pushed = push_forward(op, operands, results, tangents)
            for y, y_dot in zip(results, pushed, strict=True):
                if y_dot is None and type_of(y).dtype.is_differentiable:
                    y_dot = Tensor._literal_of(0, type_of(y)).clone()
                elif not op.is_view and any(_shares_memory(y_dot, t) for t in tangents):
                    y_dot = y_dot.clone()
                if y_dot is not None:
                    self.set(y, self.laid_out_like(y, y_dot))
            self._tell_node(op, results)
        return result

    def _tell_node(self, op: Op, results: Sequence[Tensor]) -> None:
        """Results that the history keeps for backward are objects of their own: they have the same tangents."""
        node = results[0]._grad_fn
        if isinstance(node, OpNode) and node.op is op:
            for kept, y in zip(node.results, results, strict=True):
                y_dot = self.tangent(y)
                if isinstance(kept, Tensor) and y_dot is not None:
                    self.set(kept, y_dot)

    def _tell_written(self, x: Tensor, new: Tensor) -> None:
        """A result that the history of ``new`` keeps is ``x`` from now on, where the write let them share memory."""
        node = new._grad_fn
        kept = node.results[new._output_nr] if isinstance(node, OpNode) else None
        if isinstance(kept, Tensor) and kept._storage is not None and kept._storage is x._storage:
            x_dot = self.tangent(x)
            if x_dot is not None:
                self.set(kept, x_dot)

    def carry(self, source: Tensor, made: Tensor, with_history: bool) -> None:
        """``made`` has the tangent that ``source`` has now, whatever is written to ``source`` later."""
        if not with_history:
            return
        with below(self):
            x_dot = self.tangent(source)
            if x_dot is not None:
                self.set(made, x_dot.clone())

    def replace(self, x: Tensor, new: Tensor, method: str, old: Tensor | None, mark: int) -> None:
        """Write in place; the tangent of ``x`` follows in its own memory, which views share."""
        with below(self):
            x_dot, new_dot = self.tangent(x), self.tangent(new)
            replace(x, new, method, old, mark)
            if x_dot is not None:
                copy_into(x_dot, x_dot.new_zeros(()) if new_dot is None else new_dot)
            elif new_dot is not None:
                self.give(x, new_dot.clone())  # ``new`` may be a tensor of the user (``copy_``)
            self._tell_written(x, new)

    def detached(self, x: Tensor) -> None:
        """Forget the tangent of ``x``, and what ``x`` is a view of as far as tangents go."""
        self.parts[id(x)] = Part(self._owner(x), None, None, ())

    def base_of(self, x: Tensor, base: Tensor) -> Tensor:
        """The tensor whose tangent that of ``x`` is a view of."""
        part = self.parts.get(id(x))
        if part is None:
            return base
        return x if part.base is None else part.base

    def restrided(
        self, restride: Callable[..., Tensor], x: Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None
    ) -> Tensor | None:
        """Of a dual tensor in memory that is larger than it: the tangent's memory is as large, and is seen likewise."""
        part = self.parts.get(id(x))
        if part is None or part.base is not None:
            return None
        with below(self):
            if type_of(memory_base(x)).size == type_of(x).size:
                return None
            found = restride(x, size, stride, offset)
            x_dot = None if part.tangent is None else restride(part.tangent, size, stride, offset)
            self.detached(found)
            if x_dot is not None:
                self.set(found, x_dot)
        return found

    def become(self, x: Tensor, seen: Tensor) -> None:
        """The tangent of ``x`` is seen as ``x`` is now; views of ``x`` go back to what it was."""
        mine, found = self.parts.get(id(x)), self.parts.get(id(seen))
        if mine is None or found is None:
            return
        if mine.base is not None:
            mine.base, mine.chain, mine.tangent = found.base, found.chain, found.tangent
            return
        mine.tangent = mine.tangent if mine.tangent is None else _seen(mine.tangent, found.chain)
        views = [part for part in self.parts.values() if part.base is x and part is not found]
        back = taken_back(x, type_of(x), found.chain) if views else ()
        for part in views:
            part.chain = (*back, *part.chain)

    def shown(self, x: Tensor) -> list[str]:
        """The tangent, as torch shows it."""
        with below(self):
            x_dot = self.tangent(x)
            return [] if x_dot is None else [f"tangent={x_dot!r}"]

    # -- tangents

    def tangent(self, t: Tensor) -> Tensor | None:
        """The tangent of a tensor, or None; that of a view whose base got one later is found through the base."""
        if not state.forward_enabled or state.inference:
            return None
        part = self.parts.get(id(t))
        if part is not None and part.tangent is not None:
            return part.tangent
        base, chain = _linked(t) if part is None else (part.base, part.chain)
        if base is None:
            return None
        base_dot = self.tangent(base)
        if base_dot is None:
            return None
        x_dot = _seen(base_dot, chain)
        self.set(t, x_dot)
        return x_dot

    def give(self, t: Tensor, x_dot: Tensor) -> None:
        """Set the first tangent of ``t``; where ``t`` is a view, its base gets one that is zero elsewhere."""
        check_tangent(t, x_dot)
        part = self.parts.get(id(t))
        base, chain = _linked(t) if part is None else (part.base, part.chain)
        if base is not None:
            base_dot = made_like(x_dot, self.laid_out_like(base, Tensor._literal_of(0, type_of(base))))
            self.give(base, base_dot)
            seen = _seen(base_dot, chain)
            copy_into(seen, x_dot)
            self.set(t, seen)
            return
        self.set(t, self.laid_out_like(t, x_dot))

    def _link(self, view: Tensor, operand: Tensor, ops: tuple[Op, ...]) -> None:
        part = self.parts[id(operand)]
        base, chain = (operand, ops) if part.base is None else (part.base, (*part.chain, *ops))
        self.parts[id(view)] = Part(self._owner(view), None, base, chain)

    def set(self, t: Tensor, x_dot: Tensor) -> None:
        """Replace the tangent of ``t``."""
        part = self.parts.get(id(t))
        if part is None:
            self.parts[id(t)] = Part(self._owner(t), x_dot, *_linked(t))
        else:
            part.tangent = x_dot

    def _owner(self, t: Tensor) -> Any:
        key, this = id(t), weakref.ref(self)

        def forget(reference: Any) -> None:
            level = this()
            found = None if level is None else level.parts.get(key)
            if level is not None and found is not None and found.owner is reference:
                del level.parts[key]

        return weakref.ref(t, forget)

    def laid_out_like(self, t: Tensor, x_dot: Tensor) -> Tensor:
        """The tangent in the memory layout of its primal, so that views of both pick the same elements."""
        array, like = x_dot._array, t._array
        if array is None:
            return _traced_like(t, x_dot)
        if like is None:
            return x_dot
        steps = zip(array.strides, like.strides, like.shape, strict=True)
        same_steps = all(n < 2 or a * like.itemsize == b * array.itemsize for a, b, n in steps)
        is_alike = same_steps and (not array.size or _place(x_dot) == _place(t))
        is_apart = all(n < 2 or step for step, n in zip(like.strides, like.shape, strict=True))  # not expanded
        is_narrow = is_apart and type(like) is type(array) and _room(x_dot) < _room(t)
        is_free = array.flags.writeable or not like.flags.writeable  # both expanded: each is written through its base
        if is_free and is_alike and not is_narrow:
            return x_dot
        if is_narrow:  # zero where the primal does not look: other views of its memory have tangents, too
            whole = wrap(zeros_beside(array, _room(t)))
            made = whole.as_strided(type_of(t).shape, t.stride(), storage_offset(t))
        else:
            made = wrap(empty_as(array, like))
        copy_into(made, x_dot)
        return made


def _room(t: Tensor) -> int:
    """How many elements the memory has that a tensor looks at."""
    memory = storage_of(t).array
    return 0 if memory is None else int(memory.size)


def _traced_like(t: Tensor, x_dot: Tensor) -> Tensor:
    """A traced tangent, fresh or not, laid out in memory like its primal."""
    like = layout_of(t)
    if state.trace is None or like.ndim < 2 or layout_of(x_dot).strides == like.strides or x_dot._storage is not None:
        return x_dot
    return laid_out(clone(x_dot), outermost_first(like))


# -- levels and duals, also from inside batches


def levels() -> list[ForwardLevel]:
    """The levels that the thread is in, the innermost last."""
    return [layer for layer in state.layers if isinstance(layer, ForwardLevel)]


@contextmanager
def new_level() -> Iterator[ForwardLevel]:
    """A level of its own, inside all others and outside of all batches: a batch of duals is a dual of batches."""
    level = ForwardLevel()
    layers = state.layers
    place = next((k for k, layer in enumerate(layers) if isinstance(layer, BatchLayer)), len(layers))
    set_layers((*layers[:place], level, *layers[place:]))
    try:
        yield level
    finally:
        leave_level(level)


def leave_level(level: ForwardLevel) -> None:
    """Take the level off; its tangents are gone."""
    level.parts.clear()
    set_layers(tuple(layer for layer in state.layers if layer is not level))


def make_dual(level: ForwardLevel, primal: Tensor, x_dot: Tensor) -> Tensor:
    """A view of ``primal`` with a tangent at a level; both may be batched."""
    check_tangent(primal, x_dot)
    layer = state.layers[-1]
    if layer is level:
        with below(level):
            dual: Tensor = primal.view(primal.shape)
            level.detached(dual)
            level.give(dual, x_dot)
        return dual
    with below(layer):
        if not isinstance(layer, BatchLayer) or (layer.full(primal) is None and layer.full(x_dot) is None):
            return make_dual(level, primal, x_dot)
        is_alike = layer.is_alike(primal)
        return layer.element(make_dual(level, layer.repeated(primal), layer.repeated(x_dot)), is_alike)


def unpack_dual(level: ForwardLevel, t: Tensor) -> tuple[Tensor, Tensor | None]:
    """(view of a tensor without its tangent, the tangent or None); the tensor may be batched."""
    layer = state.layers[-1]
    if layer is level:
        with below(level):
            x_dot = level.tangent(t)
            primal: Tensor = t.view(t.shape)
            level.detached(primal)
        return primal, x_dot
    with below(layer):
        full = layer.full(t) if isinstance(layer, BatchLayer) else None
        found, dot = unpack_dual(level, t if full is None else full)
        if full is None or not isinstance(layer, BatchLayer):
            return found, dot
        return layer.element(found, layer.is_alike(t)), None if dot is None else layer.element(dot)


def _linked(t: Tensor) -> tuple[Tensor | None, tuple[Op, ...]]:
    """What a tensor without a part is a view of, and how: as its memory is."""
    base = None if t._view is None else t._view.base
    return (None, ()) if base is None else (base, relative_chain(t))


def _shares_memory(a: Tensor | None, b: Tensor | None) -> bool:
    """Whether one tangent is the other, or a view of it: a rule may hand on what it was given."""
    if a is None or b is None:
        return False
    a, b = (a, *holders(a))[-1], (b, *holders(b))[-1]
    return a is b or (a._storage is not None and a._storage is b._storage)


def _place(t: Tensor) -> tuple[int, int]:
    """Where a tensor is in its memory: how many elements come before it, and how many there are."""
    storage = t._storage
    if storage is None or storage.array is None or storage.array is t._array:
        return 0, int(t._array.size)
    return storage_offset(t), storage.array.nbytes // int(t._array.itemsize)


def _seen(base_dot: Tensor, chain: Sequence[Op]) -> Tensor:
    for op in chain:
        base_dot = apply(op, base_dot)
    return base_dot


def check_tangent(t: Tensor, x_dot: Tensor) -> None:
    """Raise torch's error when a tangent does not fit its primal."""
    primal, tangent = type_of(t), type_of(x_dot)
    if primal.shape != tangent.shape:
        raise ShapeError(
            "Trying to set a forward gradient that has a different size than that of the original Tensor, this is not "
            f"supported. Tensor is of size {list(primal.shape)} while the given forward gradient is of size "
            f"{list(tangent.shape)}.",
            {"primal": t, "tangent": x_dot},
            "pass a tangent of the primal's shape",
        )
    if primal.dtype is not tangent.dtype:
        raise DTypeError(
            f"Expected primal and tangent to have the same dtype, but got: {primal.dtype} and {tangent.dtype}",
            {"primal": t, "tangent": x_dot},
            "convert the tangent: tangent.to(primal.dtype)",
        )
