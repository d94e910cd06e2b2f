"""In-place changes: checks, writing into memory (or the traced root), versions, and history through views.

Every in-place method is its function applied to the old value followed by ``replace``: the memory takes the new values,
the tensor takes the new history. A write through a view gives the view's base the history
``view_update(old base, new piece)``; other views of the base find out when their history is next read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autojit.core.errors import DifferentiationError, ShapeError, UsageError
from autojit.core.source import here
from autojit.ops.views import ViewUpdate
from autojit.tensor.dispatch import root_value, value_of
from autojit.tensor.node import Node, sequence_mark
from autojit.tensor.promotion import cast, converted
from autojit.tensor.recording import OpNode, edge_of, symbolic_node, wants_grad
from autojit.tensor.state import quietly, state
from autojit.tensor.tensor import Tensor, alias, layout_of, storage_chain, storage_of, type_of, wrap_value

_DIRECT: dict[str, Any] = {"add_": np.add, "sub_": np.subtract, "mul_": np.multiply, "div_": np.divide}


def check_writable(x: Tensor, method: str) -> None:
    """Raise torch's error when gradient mode forbids writing to ``x``."""
    if not state.grad_enabled:
        return
    view = x._view
    base = view.base if view is not None else None
    if base is None:
        if x._requires_grad and x._grad_fn is None:
            raise DifferentiationError(
                "a leaf Variable that requires grad is being used in an in-place operation.",
                {"method": method, "leaf": x},
                "use the out-of-place form, or wrap the update in `with no_grad():`",
            )
        return
    if base._requires_grad and base._grad_fn is None:
        raise DifferentiationError(
            "a view of a leaf Variable that requires grad is being used in an in-place operation.",
            {"method": method, "view": x, "leaf": base},
            "wrap the update in `with no_grad():`, or write to a clone()",
        )
    assert view is not None
    if view.creation == "no_grad" and base._requires_grad:
        raise DifferentiationError(
            "A view was created in no_grad mode and is being modified inplace with grad mode enabled. Given that "
            "this use "
            "case is ambiguous and error-prone, it is forbidden.",
            {"method": method, "view": x},
            "create the view and write to it in the same mode",
        )
    if view.creation.endswith("Backward0") and (base._requires_grad or x._requires_grad):
        raise DifferentiationError(
            f"Output 0 of {view.creation} is a view and is being modified inplace. This view is the output of a "
            "function "
            "that returns multiple views. Such functions do not allow the output views to be modified inplace.",
            {"method": method, "view": x},
            "replace the inplace operation by an out-of-place one",
        )


def in_place(
    x: Tensor, method: str, function: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]
) -> Tensor:
    """``x.method_(...)``: apply the function to the old value and put the result in its place; returns ``x``."""
    check_writable(x, method)
    if _write_directly(x, method, arguments, options):
        return x
    mark = sequence_mark()
    old = _old(x)
    new = function(old, *arguments, **options)
    replace(x, new, method, old, mark)
    return x


def _write_directly(x: Tensor, method: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> bool:
    """The short way for arithmetic without history or trace: NumPy computes into the memory itself."""
    ufunc = _DIRECT.get(method)
    if ufunc is None or options or state.trace is not None or len(arguments) != 1:
        return False
    (other,) = arguments
    array = x._array
    if array is None or array.dtype.kind != "f" or not array.flags.writeable or 0 in array.strides:
        return False
    if isinstance(other, Tensor):
        if other._array is None or other._array.dtype is not array.dtype:
            return False
        if state.grad_enabled and (wants_grad(x) or wants_grad(other)):
            return False
        other = other._array
        if other.shape != array.shape and other.ndim:
            return False
    elif type(other) not in (int, float) or (state.grad_enabled and wants_grad(x)):
        return False
    quietly(ufunc, array, other, array)
    storage_of(x).bump(method, here())
    return True


def _old(x: Tensor) -> Tensor:
    """A stand-in for the present value of ``x`` with its history, which keeps both when ``x`` itself moves on."""
    old = alias(x, own_version=True) if state.trace is None else wrap_value(value_of(x))
    old._requires_grad = wants_grad(x)
    old._grad_fn, old._output_nr, old._accumulator = x._grad_fn, x._output_nr, x._accumulator
    return old


def copy_into(x: Tensor, source: Tensor, method: str = "copy_") -> Tensor:
    """Replace the elements of ``x`` by ``source``, converted and broadcast; returns ``x``."""
    check_writable(x, method)
    shape = type_of(x).shape
    new = cast(source, type_of(x).dtype)
    if type_of(new).shape != shape:
        new = new.expand(shape)
    if new is source and state.grad_enabled and wants_grad(source):
        new = converted(source, type_of(source).dtype)  # a node of its own, so that x does not become the source
    replace(x, new, method)
    return x


def replace(x: Tensor, new: Tensor, method: str, old: Tensor | None = None, mark: int = 0) -> None:
    """Let ``x`` have the values and the history of ``new``.

    ``old`` is the stand-in that ``new`` was computed from, by nodes made after ``mark``.
    """
    target, found = type_of(x), type_of(new)
    if found.shape != target.shape:
        raise ShapeError(
            f"output with shape {list(target.shape)} doesn't match the broadcast shape {list(found.shape)}",
            {"method": method, "x": x, "result": found},
            "use the out-of-place form",
        )
    if found.dtype is not target.dtype:
        if found.dtype.category > target.dtype.category:
            raise UsageError(
                f"result type {found.dtype.name} can't be cast to the desired output type {target.dtype.name}",
                {"method": method, "x": x, "result": found},
                "use the out-of-place form, or convert the operand first",
            )
        new = cast(new, target.dtype)
    source = here()
    if x._array is not None and state.trace is None:
        _write_array(x, new, old, mark)
    else:
        _write_value(x, new)
    storage_of(x).bump(method, source)
    if x._view is not None:
        x._view.value_version = storage_of(x).version
    if state.grad_enabled:
        rebase(x, new)


def _write_array(x: Tensor, new: Tensor, old: Tensor | None, mark: int) -> None:
    array = x._array
    if not array.flags.writeable or (0 in array.strides and array.size > 1 and _overlaps(array)):
        raise _shared_memory(x)
    if old is not None and new._grad_fn is not None:
        _protect_saved(new._grad_fn, old, mark)
    quietly(np.copyto, array, new._array)


def _shared_memory(x: Tensor) -> ShapeError:
    return ShapeError(
        "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
        "Please clone() the tensor before performing the operation.",
        {"x": x},
    )


def _overlaps(array: Any) -> bool:
    return any(stride == 0 and n > 1 for stride, n in zip(array.strides, array.shape, strict=True))


def _protect_saved(node: Node, old: Tensor, mark: int) -> None:
    """Give what nodes made after ``mark`` saved of the old value memory of its own, before the memory is written to."""
    seen: set[Node] = set()
    stack = [node]
    while stack:
        current = stack.pop()
        if current in seen or type(current) is not OpNode or current.sequence < mark:
            continue
        seen.add(current)
        for saved in (*current.primals, *current.results):
            if isinstance(saved, Tensor) and np.may_share_memory(saved._array, old._array):
                saved._array = saved._array.copy()
        stack.extend(e[0] for e in current.edges if e is not None)


def _write_value(x: Tensor, new: Tensor) -> None:
    """Under capture: the root of the storage gets a new IR value."""
    trace = state.trace
    assert trace is not None
    piece = value_of(new)
    storage = storage_of(x)
    chain = storage_chain(x)
    value = piece
    if any(op.name in ("broadcast_to", "expand") for op in chain) and _overlaps(layout_of(x)):
        raise _shared_memory(x)
    if chain:
        (value,) = trace.apply(ViewUpdate(chain), [root_value(x), piece])
    if storage.array is None:
        storage.value = value
    else:
        trace.in_place(storage, value)
    if x._array is None:
        x._value = piece


def rebase(x: Tensor, new: Tensor) -> None:
    """Give ``x`` (and its base) the history of ``new``."""
    view = x._view
    base = view.base if view is not None else None
    if base is None:
        _take_history(x, new)
        return
    assert view is not None
    piece = edge_of(new)
    if piece is None and not wants_grad(base):
        return
    node = symbolic_node(ViewUpdate(view.chain), [edge_of(base), piece], [type_of(base), type_of(x)])
    _move_retained(base, node)
    base._requires_grad, base._grad_fn, base._output_nr = True, node, 0
    base._accumulator = None
    wants_grad(x)  # makes the view's own history anew


def _take_history(x: Tensor, new: Tensor) -> None:
    edge = edge_of(new)
    if edge is None:
        if not x._requires_grad:
            return
        node = symbolic_node(ViewUpdate(()), [edge_of(x), None], [type_of(x), type_of(new)], "FillBackward0")
        edge = (node, 0)
    if edge[0] is x._grad_fn:
        return
    _move_retained(x, edge[0])
    x._requires_grad = True
    x._grad_fn, x._output_nr = edge
    x._accumulator = None


def _move_retained(x: Tensor, node: Node) -> None:
    """``retain_grad`` follows the tensor to its new node."""
    before = x._grad_fn
    if not x._retains_grad or before is None or before.retained is None:
        return
    reference = before.retained.pop(x._output_nr, None)
    if reference is not None:
        node.retained = {**(node.retained or {}), 0: reference}


def in_place_method(method: str, function: Callable[..., Any]) -> Callable[..., Tensor]:
    """The in-place form of a function."""

    def write(self: Tensor, *arguments: Any, **options: Any) -> Tensor:
        return in_place(self, method, function, arguments, options)

    write.__name__ = write.__qualname__ = method
    write.__code__ = write.__code__.replace(co_name=method, co_qualname=method)  # what tracebacks and errors show
    write.__doc__ = f"In-place form of ``{method[:-1]}``; returns the tensor itself."
    return write
