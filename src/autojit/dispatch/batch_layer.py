"""BatchLayer: tensors with a hidden leading axis, carried through every op by its batching rule.

How to read: the layer is a *layer* (``state.Layer``). A batched tensor shows the type of one element and computes
nothing itself; its values for the whole batch are the layer's, in a *full* tensor with the batch axis first, on which
ops act below the layer. Their history is recorded there too: a batched tensor shows whether it requires gradients, but
only its full tensor has nodes. The layer owns the full tensors, by tensor object.

What is the same for all elements is not batched, and what is written to it has to be the same, too. Of a dual whose
tangent alone is batched (`func.jacfwd`) the values are repeated: they, and what is computed of them, are *alike*, and
may be written to what is not batched: it becomes batched then, with all views of it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autojit.core.errors import ShapeError, UsageError
from autojit.dispatch.dispatch import apply
from autojit.dispatch.inplace import at_present, replace
from autojit.dispatch.on_device import placed
from autojit.history.recording import wants_grad
from autojit.ir.op import Op
from autojit.tensor.state import Layer, below, carry, holders, made_like, state, with_layers
from autojit.tensor.tensor import Tensor, alias, relative_chain, type_of, wrap
from autojit.transforms.vmap import batch_node

_SEED_STEP = 0x9E3779B97F4A7C15  # 2**64 divided by the golden ratio: seeds of elements are far apart


class BatchLayer(Layer):
    """One batch of ``size`` elements that the running thread computes at once.

    ``randomness`` says what a draw in the batch is: "same" for all elements, "different", or an "error" ("refused": an
    error whose message does not speak of the choice, for callers who have none).
    """

    what = "a batch"

    def __init__(self, size: int, randomness: str = "same") -> None:
        self.size = size
        self.randomness = randomness
        self._full: dict[int, tuple[Any, Tensor]] = {}
        self._alike: set[int] = set()  # the batched tensors whose values are the same for all elements, by id
        self._is_mixed = False  # whether one of them was written to with values that differ: views of it are not known

    # -- in and out

    def element(self, full: Tensor, is_alike: bool = False) -> Tensor:
        """The batched tensor whose values are ``full``, which has the batch axis first.

        ``is_alike``: they are the same for all elements, of which layers below know different things (tangents).
        """
        t = wrap(None)
        whole = type_of(full)
        t._type = whole.with_shape(whole.shape[1:])
        t._requires_grad = full._requires_grad
        self._own(t, full)
        if is_alike:
            self._alike.add(id(t))
        return t

    def full(self, t: Tensor) -> Tensor | None:
        """The values of a batched tensor for the whole batch; None for a tensor that is the same for all elements."""
        found = self._full.get(id(t))
        if found is not None:
            return found[1]
        view = t._view
        if view is None or view.base is None or id(view.base) not in self._full:
            return None
        return self._seen(t, view.base)  # made before its base became batched

    def is_alike(self, t: Tensor) -> bool:
        """Whether the values of a tensor are the same for all elements."""
        return not self._is_mixed and (id(t) in self._alike or self.full(t) is None)

    def _seen(self, view: Tensor, base: Tensor) -> Tensor:
        """What a view of a tensor that is batched now shows of it."""
        whole = self._full[id(base)][1]
        for op in relative_chain(view):
            results, _ = batch_node(op, [whole], [True], whole)
            whole = results[0]
        self._own(view, whole)
        if id(base) in self._alike:
            self._alike.add(id(view))
        return whole

    def repeated(self, t: Tensor) -> Tensor:
        """``full``, of a tensor that is the same for all elements too; to be called below the layer."""
        found = self.full(t)
        if found is not None:
            return found
        return t.expand((self.size, *type_of(t).shape))

    def close(self) -> None:
        """Forget everything: batched tensors that outlive the layer have no values."""
        self._full.clear()
        self._alike.clear()

    def _own(self, t: Tensor, full: Tensor) -> None:
        key, this = id(t), weakref.ref(self)

        def forget(reference: object) -> None:
            layer = this()
            found = None if layer is None else layer._full.get(key)
            if layer is not None and found is not None and found[0] is reference:
                del layer._full[key]
                layer._alike.discard(key)

        self._full[key] = (weakref.ref(t, forget), full)

    # -- the layer

    def apply(self, op: Op, operands: Sequence[Tensor]) -> Any:
        """The op for the whole batch, by its batching rule; at once where no operand is batched."""
        with below(self):
            fulls = [self.full(t) for t in operands]
            flags = [f is not None for f in fulls]
            if not any(flags):
                if not op.is_random or self.randomness == "same":
                    return apply(op, *operands)
                return self._drawn(op, operands[0])
            args = [t if f is None else f for t, f in zip(operands, fulls, strict=True)]
            results, _ = batch_node(op, args, flags, args[0])
            is_alike = bool(self._alike) and not op.is_random and all([self.is_alike(t) for t in operands])  # noqa: C419
        elements = [self.element(y, is_alike) for y in results]
        return elements[0] if op.n_outputs == 1 else tuple(elements)

    def _drawn(self, op: Op, key: Tensor) -> Tensor:
        """Different random numbers per element: each has a seed of its own."""
        if self.randomness == "refused":
            raise UsageError(
                "vmap: We do not yet support calling random operations inside of vmap.",
                {"op": op.name, "batch": self.size},
                "draw the random numbers outside and pass them in",
            )
        if self.randomness == "error":
            raise UsageError(
                "vmap: called random operation while in randomness error mode. Please either use the 'same' or "
                "'different' randomness flags on vmap or perform the randomness operation out of vmap.",
                {"op": op.name, "batch": self.size},
                'vmap(f, randomness="different")',
            )
        seeds = np.zeros((self.size, 2), np.uint64)
        seeds[:, 0] = np.arange(1, self.size + 1, dtype=np.uint64) * np.uint64(_SEED_STEP)
        steps = placed(wrap(seeds.view(np.int64)), type_of(key).device)
        results, _ = batch_node(op, [key + steps], [True], key)
        return self.element(results[0])

    def carry(self, source: Tensor, made: Tensor, with_history: bool) -> None:
        """``made`` has the values that ``source`` has now; also their history, if so wanted."""
        full = self.full(source)
        if full is None:
            return
        kept = at_present(full) if with_history else alias(full)
        if with_history:
            wants_grad(full)  # a view whose base was written to gets its history again
            kept._requires_grad, kept._grad_fn, kept._output_nr = full._requires_grad, full._grad_fn, full._output_nr
            kept._accumulator = full._accumulator
        with below(self):
            carry(full, kept, with_history)
        self._own(made, kept)
        if id(source) in self._alike:
            self._alike.add(id(made))

    def like(self, source: Tensor, made: Tensor) -> Tensor:
        """``made`` for every element, where the likeness is batched: so it can be written to in place."""
        full_source = self.full(source)
        with below(self):
            if full_source is None:
                found: Tensor = made_like(source, made)
                return found
            full = self.repeated(made.detach()).contiguous()
            full.requires_grad_(made.requires_grad)
            full = made_like(full_source, full)
        return self.element(full, id(source) in self._alike)

    def replace(self, x: Tensor, new: Tensor, method: str, old: Tensor | None, mark: int) -> None:
        """Write in place, for the whole batch."""
        with below(self):
            full, new_full = self.full(x), self.full(new)
            is_alike = self.is_alike(new)
            if full is None and new_full is not None and is_alike and not _has_views_outside(x):
                full = self._batched_now(x)
                replace(x, new_full.detach().select(0, 0), method)  # the values, which are those of all elements
            self._is_mixed = self._is_mixed or (id(x) in self._alike and not is_alike)
            if full is not None:
                old_full = None if old is None else self.full(old)
                replace(full, self.repeated(new), method, old_full, mark)
                if full._requires_grad and not x._requires_grad:
                    self._show_gradients(full)
                x._requires_grad = full._requires_grad
            elif new_full is None:
                replace(x, new, method, old, mark)
            else:
                raise ShapeError(
                    f"vmap: inplace arithmetic {method} is not possible because the tensor that is written to is the "
                    "same for all elements of the batch while what is written is not",
                    {"written to": x, "batch": self.size},
                    "use the out-of-place form, or make the tensor from a batched one (x.new_zeros, zeros_like)",
                )

    def _show_gradients(self, full: Tensor) -> None:
        """All that looks at memory of which a part requires gradients now, its base and its views, says so."""
        for owner, other in list(self._full.values()):
            t = owner() if other._storage is full._storage else None
            if t is not None:
                t._requires_grad = wants_grad(other)

    def _batched_now(self, x: Tensor) -> Tensor:
        """The full tensor of one that was not batched: it, or what it is a view of, is batched from now on."""
        base = x if x._view is None or x._view.base is None else x._view.base
        whole = self.repeated(base).clone()
        self._own(base, whole)
        self._alike.add(id(base))
        found = self.full(x)
        assert found is not None
        return found

    def holder(self, x: Tensor) -> Tensor:
        """The full tensor of an element."""
        full = self.full(x)
        return x if full is None else full

    def detached(self, x: Tensor) -> None:
        """A batched tensor was cut off its history in place."""
        full = self.full(x)
        if full is not None:
            with below(self):
                full.detach_()

    def base_of(self, x: Tensor, base: Tensor) -> Tensor:
        """A batched tensor itself: its full tensor is the view."""
        return base if self.full(x) is None else x

    def restrided(
        self, restride: Callable[..., Tensor], x: Tensor, size: Any, stride: Any, offset: int | None
    ) -> Tensor | None:
        """A strided view of the memory of the whole batch, in which an element's neighbours may be another view's."""
        full = self.full(x)
        if full is None:
            return None
        with below(self):
            kept = full
            for layer in reversed(state.layers):
                kept = layer.holder(kept)
            step = kept.stride(kept.dim() - full.dim())
            return self.element(restride(full, (self.size, *size), (step, *stride), offset))

    def become(self, x: Tensor, seen: Tensor) -> None:
        """A batched tensor has the values of the view."""
        full = self.full(seen)
        if full is not None:
            self._own(x, full)
            (self._alike.add if id(seen) in self._alike else self._alike.discard)(id(x))


def _has_views_outside(x: Tensor) -> bool:
    """Whether other tensors look at memory that ``x`` has in an outer batch: which of its views they are is not known.

    To be called below the layer that asks.
    """
    lowest = (x, *holders(x))[-1]
    if lowest is x or lowest._storage is None:
        return False
    others = [owner() for layer in state.layers if isinstance(layer, BatchLayer) for owner, _ in layer._full.values()]
    return any(
        t is not None
        and t is not x
        and (t, *holders(t))[-1] is not lowest
        and (t, *holders(t))[-1]._storage is lowest._storage
        for t in others
    )


def over_batch(
    function: Callable[..., Sequence[Tensor | None]], fulls: Sequence[Tensor], randomness: str = "same"
) -> list[Tensor | None]:
    """``function`` of the elements of ``fulls`` along their first axis, computed for all of them at once.

    Its results gain the batch axis in front; None stays None.

    Example:
        >>> import autojit as aj
        >>> (y,) = over_batch(lambda row: [row.sum()], [aj.ones(2, 3)])
        >>> y
        tensor([3., 3.])
    """
    layer = BatchLayer(type_of(fulls[0]).shape[0], randomness)
    elements = [layer.element(t) for t in fulls]
    with with_layers((*state.layers, layer)):
        found = function(*elements)
    try:
        return [None if t is None else layer.repeated(t) for t in found]
    finally:
        layer.close()
