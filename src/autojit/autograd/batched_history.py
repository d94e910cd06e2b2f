"""Reverse mode inside batches: what ``grad`` and ``backward`` do with elements of a batch (`dispatch.batch_layer`).

The history of a batched tensor is that of its full tensor, below the batch. So the request goes below: one pass over
the full tensors serves all elements, because no element depends on another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from autojit.core.errors import DifferentiationError
from autojit.dispatch.batch_layer import BatchLayer
from autojit.tensor import Tensor
from autojit.tensor.state import below, state
from autojit.tensor.tensor import type_of


def batch_of(tensors: Sequence[Any]) -> BatchLayer | None:
    """The innermost batch that one of the tensors is an element of."""
    for layer in reversed(state.layers):
        if isinstance(layer, BatchLayer) and any(isinstance(t, Tensor) and layer.full(t) is not None for t in tensors):
            return layer
    return None


def grad_in_batch(
    batch: BatchLayer,
    grad: Callable[..., Any],
    outputs: Sequence[Any],
    inputs: Sequence[Any],
    bars: Sequence[Any] | None,
    is_batched: bool,
    **options: Any,
) -> list[Any]:
    """``grad`` of tensors some of which are elements of ``batch``; None for inputs that were not used.

    Raises:
        RuntimeError: an input is the same tensor for all elements: then its gradient is not an element of a batch.
    """
    grad, vectors = partial(grad, allow_unused=True, **options), _vectors(outputs, bars)
    if state.layers[-1] is not batch:
        return _with_outer_vectors(grad, outputs, inputs, vectors, is_batched)
    for place, x in enumerate(inputs):
        if not isinstance(x, Tensor) or batch.full(x) is None:
            raise DifferentiationError(
                "vmap: grad with respect to a tensor that all elements of the batch share",
                {f"input {place}": x},
                "use func.grad, or expand the tensor and give it a batch axis",
            )
    live = [
        (y, bar) for y, bar in zip(outputs, vectors, strict=True)
        if isinstance(y, Tensor) and batch.full(y) is not None and y.requires_grad
    ]  # fmt: skip
    if not live:
        return [None] * len(inputs)
    with below(batch):
        vectors = _each(batch.repeated, [bar for _, bar in live])
        fulls = [batch.repeated(y) for y, _ in live], [batch.repeated(x) for x in inputs]
        if is_batched:
            vectors = _each(lambda t: t.movedim(1, 0), vectors)
        found = grad(*fulls, vectors, is_grads_batched=is_batched)
        if is_batched:
            found = _each(lambda t: t.movedim(1, 0), found)
    return _each(batch.element, found)


def _each(function: Callable[[Tensor], Tensor], given: Sequence[Any]) -> list[Any]:
    return [None if t is None else function(t) for t in given]


def _vectors(outputs: Sequence[Any], bars: Sequence[Any] | None) -> list[Any]:
    """Per output its vector: as given, ones for an output of one element, or None."""
    given = [None] * len(outputs) if bars is None else bars
    return [
        Tensor._literal_of(1, type_of(y)) if bar is None and isinstance(y, Tensor) and type_of(y).size == 1 else bar
        for y, bar in zip(outputs, given, strict=True)
    ]


def _with_outer_vectors(
    grad: Callable[..., Any], outputs: Sequence[Any], inputs: Sequence[Any], given: Sequence[Any], is_batched: bool
) -> list[Any]:
    """Only the vectors belong to the innermost batch: below it they are vectors with a leading axis."""
    top = state.layers[-1]
    if not isinstance(top, BatchLayer):
        raise DifferentiationError(
            "vmap: reverse mode of batched tensors inside a forward-mode level that was entered in the batch",
            {"outputs": [str(type_of(y)) for y in outputs]},
            "use func.jvp, or enter the level outside of the batch",
        )
    with below(top):
        vectors = _each(top.repeated, given)
        shape = next(type_of(bar).shape[:2] for bar in vectors if bar is not None)
        if is_batched:
            vectors = _each(lambda t: t.flatten(0, 1), vectors)
        found = grad(outputs, inputs, vectors, is_grads_batched=True)
        if is_batched:
            found = _each(lambda t: t.unflatten(0, shape), found)
    return _each(top.element, found)


def backward_in_batch(
    batch: BatchLayer,
    outputs: Sequence[Any],
    bars: Any,
    inputs: Any,
    backward: Callable[..., None],
    retain_graph: bool | None,
    create_graph: bool,
) -> None:
    """``backward`` of elements of a batch: leaves outside of it accumulate the sum over the batch.

    Raises:
        RuntimeError: the outputs belong to an outer batch, or only some inputs are to accumulate.
    """
    if state.layers[-1] is not batch or inputs is not None:
        raise DifferentiationError(
            "vmap: backward() of a batched tensor accumulates in all leaves, for the innermost batch only",
            {"outputs": [str(type_of(y)) for y in outputs]},
            "use autograd.grad, which gives the gradients of single elements",
        )
    vectors = _vectors(outputs, bars)
    with below(batch):
        fulls = [batch.repeated(y) for y in outputs]
        backward(fulls, _each(batch.repeated, vectors), retain_graph, create_graph)
