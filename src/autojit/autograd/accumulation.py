"""Accumulation into ``.grad``: when the memory of a gradient is taken over, copied, or added to in place.

- The first gradient of a leaf is taken over when nothing else refers to it and it is laid out like the leaf; otherwise
  it is copied, so that no two ``.grad`` and no tensor of the user share memory.
- Later gradients are added in place; with ``create_graph`` a new tensor is made, which has a history.
- ``.grad`` is laid out like its leaf when the leaf is dense, else row by row; so are matrices of ``autograd.grad``.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from autojit.core.device_array import add_in_place, copied_as, is_held_once
from autojit.core.layout import strided
from autojit.core.locks import new_lock
from autojit.core.reference_counts import ARGUMENTS_ARE_COUNTED
from autojit.dispatch.promotion import cast
from autojit.functions.elementwise import add, clone
from autojit.functions.memory import laid_out
from autojit.history.gradients import accumulating
from autojit.history.recording import edge_of, symbolic_node
from autojit.history.view_history import Copied
from autojit.tensor import Tensor
from autojit.tensor.memory_orders import outermost_first
from autojit.tensor.node import AccumulateGrad
from autojit.tensor.state import quietly, state
from autojit.tensor.storage import Storage
from autojit.tensor.tensor import LIKE_LEAF, layout_of, storage_of, type_of, wrap

_LOCKS = [new_lock() for _ in range(16)]


def accumulate(node: AccumulateGrad, grads: list[Any]) -> None:
    """Add ``grads[0]``, unless it is None, to ``.grad`` of the node's leaf; then run its hooks in either case."""
    leaf = node.variable
    grad = grads[0]
    if grad is None:
        _run_hooks(leaf)
        return
    if not leaf._requires_grad:
        return  # switched off since it was used
    dtype = type_of(leaf).dtype if leaf._grad_dtype is LIKE_LEAF else _dtype_here(leaf)
    if dtype is not None and type_of(grad).dtype is not dtype:
        grads[0] = grad = cast(grad, dtype)
    with _LOCKS[id(leaf) >> 5 & 15]:  # threads that share a leaf take turns
        accumulating.now = True
        try:
            before = leaf.grad
            is_alone = ARGUMENTS_ARE_COUNTED and sys.getrefcount(grad) == 3  # the list, the name and the argument
            if before is not None:
                _add_to(leaf, before, grad)
            elif is_alone and _is_free(leaf, grad):
                leaf._set_grad(grad if grad._array is not None else _laid_as(grad, leaf))
            elif is_alone and (array := _turned_back(leaf, grad)) is not None:
                leaf._set_grad(wrap(array))
            elif is_alone and _is_free_sparse(grad):
                leaf._set_grad(grad.detach())
            else:
                leaf._set_grad(fresh(grad, leaf))
        finally:
            accumulating.now = False
    _run_hooks(leaf)


def _run_hooks(leaf: Tensor) -> None:
    hooks = leaf._leaf_hooks
    if hooks is None or not hooks[1]:
        return
    for hook in list(hooks[1].values()):
        returned = hook(leaf)
        if isinstance(returned, Tensor):
            raise RuntimeError("Tensor post accumulate grad hooks should return None.")
        if returned is not None:
            raise TypeError(f"post accumulate grad hooks must return None, not {type(returned).__name__}")


def _dtype_here(leaf: Tensor) -> Any:
    """The dtype that a gradient is converted to: what the user set, else that of the gradient it is added to."""
    before = leaf.grad if leaf._grad_dtype is None and not state.grad_enabled else None
    return leaf._grad_dtype if before is None else type_of(before).dtype


def _is_free(leaf: Tensor, grad: Tensor) -> bool:
    """Whether nobody else can see the memory of ``grad``, and it is laid out as ``.grad`` of the leaf should be."""
    array, like = grad._array, leaf._array
    if array is None and state.trace is not None:
        return type(grad) is Tensor and grad._storage is None and not grad._requires_grad and not state.layers
    return (
        type(grad) is Tensor
        and array is not None
        and like is not None
        and grad._storage is None
        and not grad._requires_grad
        and array.base is None
        and is_held_once(array, 3)  # the tensor, the name and the argument
        and array.strides == like.strides
        and array.flags.writeable
        and (like.flags.c_contiguous or like.flags.f_contiguous)
        and state.trace is None
        and not state.layers
    )


def _turned_back(leaf: Tensor, grad: Tensor) -> Any:
    """The array that a gradient shows as a whole and in its order, as a view of a tensor, if nothing else shows it.

    That is the transpose of a transpose, as products leave it for linear layers, laid out as ``.grad`` should be.
    """
    array, like, view, storage = grad._array, leaf._array, grad._view, grad._storage
    if view is None and storage is None:
        return _sole_base(grad, like)
    whole = None if view is None else view.base
    if type(array) is not np.ndarray or type(like) is not np.ndarray or type(whole) is not Tensor or storage is None:
        return None
    base = whole._array
    is_same = (
        type(storage) is Storage
        and whole._storage is storage
        and storage.array is base
        and array.base is base
        and _is_as_whole(array, base, like)
    )
    is_plain = not (grad._requires_grad or whole._requires_grad or state.trace is not None or state.layers)
    if not is_same or not is_plain or not ARGUMENTS_ARE_COUNTED:
        return None
    is_alone = (  # held by the gradient and what it shows, the name here and the argument
        is_held_once(array, 3)
        and is_held_once(view, 3)
        and is_held_once(whole, 3)
        and is_held_once(storage, 4)
        and is_held_once(base, 5)
    )
    return base if is_alone else None


def _sole_base(grad: Tensor, like: Any) -> Any:
    """The same of a gradient whose array shows another one without a tensor around it."""
    array = grad._array
    if type(array) is not np.ndarray or type(like) is not np.ndarray or not ARGUMENTS_ARE_COUNTED:
        return None
    base: Any = array.base
    if grad._requires_grad or state.trace is not None or state.layers or not _is_as_whole(array, base, like):
        return None
    # the tensor, the names here and in the caller, the argument; the view, the name here, the argument
    return base if is_held_once(array, 4) and is_held_once(base, 3) else None


def _is_as_whole(array: Any, base: Any, like: Any) -> bool:
    """Whether an array shows all of another one in its order, which is laid out as ``like`` and may be written."""
    return (
        type(base) is np.ndarray
        and base.base is None
        and base.shape == array.shape
        and base.strides == array.strides == like.strides
        and base.flags.c_contiguous
        and base.flags.writeable
    )


def _is_free_sparse(grad: Tensor) -> bool:
    """Whether a sparse gradient that nobody else refers to keeps its places and values without gaps."""
    if type(grad) is Tensor or grad.layout is strided or state.grad_enabled or state.trace is not None or state.layers:
        return False
    parts = (grad._index_part._array, grad._values_part._array)
    return all(array is not None and array.flags.c_contiguous for array in parts)


def _add_to(leaf: Tensor, before: Tensor, grad: Tensor) -> None:
    if state.grad_enabled or (before.layout is not strided and (grad.layout is strided or state.trace is not None)):
        leaf._set_grad(add(before, grad))
    elif before.layout is not strided:
        before._become(add(before, grad))
    elif state.trace is not None or state.layers or grad.layout is not strided or not _is_ordinary(before, grad):
        before.add_(grad)  # which refuses what must not be written: made in inference mode, expanded, read-only
    else:
        array = before._array
        if type(array) is np.ndarray:
            quietly(np.add, array, grad._array, array)  # a fraction of what ``np.errstate`` costs
        else:
            add_in_place(array, grad._array)
        storage_of(before).version += 1


def _is_ordinary(total: Tensor, grad: Tensor) -> bool:
    """Whether nothing can forbid to add to a gradient, which is not a view: inference tensors count as views."""
    array = total._array
    return total._view is None and array.flags.writeable and array.shape == grad._array.shape


def fresh(grad: Tensor, leaf: Tensor) -> Tensor:
    """The gradient in memory of its own, laid out like ``leaf``."""
    if state.grad_enabled and grad._requires_grad:
        return _copied(grad, leaf)
    if state.layers:
        return clone(grad)
    if type(grad) is not Tensor:
        copied: Tensor = clone(grad).detach()
        return copied
    array = grad._array
    if array is None:
        made = wrap(None)
        made._value, made._type = clone(grad)._value, type_of(grad)
        return _laid_as(made, leaf)
    return wrap(copied_as(array, _layout_for(leaf._array)))


def like_leaf(grad: Any, leaf: Any) -> Any:
    """What ``autograd.grad`` gives for a leaf: a matrix is laid out like it, as ``.grad`` is, where both are dense.

    So ``g.view(-1)`` of a layer's weight works, whose gradient comes out of a product as the transpose of a matrix.
    torch computes it in the order of the leaf; products of several matrices come out as they are there, too.
    """
    if not (type(grad) is Tensor and isinstance(leaf, Tensor)) or leaf._grad_fn is not None or state.layers:
        return grad
    array, like = grad._array, leaf._array
    if array is not None and like is not None and (array.strides == like.strides or array.ndim != 2):
        return grad
    if (array is None and state.trace is None) or (grad._requires_grad and not state.grad_enabled):
        return grad
    there, wanted = layout_of(grad), layout_of(leaf)
    if there.ndim != 2 or there.shape != wanted.shape or (there.flags.c_contiguous and wanted.flags.c_contiguous):
        return grad
    is_other = there.strides != wanted.strides and _is_dense(there) and _is_dense(wanted)
    return fresh(grad, leaf) if is_other else grad


def _laid_as(grad: Tensor, leaf: Tensor) -> Tensor:
    """A traced gradient that nobody else has, laid out like ``leaf``."""
    if state.trace is not None and grad._value is not None:
        grad._value = state.trace.laid_as(_layout_for(layout_of(leaf)), grad._value)
    return grad


def _copied(grad: Tensor, leaf: Tensor) -> Tensor:
    """A copy with a history, which calls it a copy into new memory."""
    made = clone(grad)
    if state.layers:
        return made
    like = _layout_for(layout_of(leaf))
    laid_out(made, range(type_of(made).ndim) if like is None else outermost_first(like))
    if made._grad_fn is not None:
        edges, types = [None, edge_of(grad)], [type_of(grad)] * 2
        made._grad_fn = symbolic_node(Copied(), edges, types, "CopyBackwards", instead_of=made._grad_fn)
    return made


def _layout_for(like: Any) -> Any:
    """The layout of a gradient of a leaf with this array's: the same, if it has no gaps; None: in row-major order."""
    return None if like is None or like.flags.c_contiguous or not _is_dense(like) else like


def _is_dense(array: Any) -> bool:
    """Whether the elements fill their memory without gaps or overlaps, in any order of the axes."""
    expected = array.itemsize
    for stride, extent in sorted(zip(array.strides, array.shape, strict=True)):
        if extent == 1:
            continue
        if stride != expected:
            return False
        expected *= extent
    return True
