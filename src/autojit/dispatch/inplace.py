"""In-place changes: checks, writing into memory (or the traced root), versions, and history through views.

Every in-place method is its function applied to the old value followed by ``replace``: the memory takes the new values,
the tensor takes the new history. A write through a view gives the view's base the history
``view_update(old base, new piece)``; other views of the base find out when their history is next read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autojit.core.device import CPU
from autojit.core.device_array import Array, DeviceArray, layout_in_memory, on_layout, share_memory, write_array
from autojit.core.errors import ShapeError, UsageError
from autojit.core.source import here, place_of_change
from autojit.core.tracebacks import trim
from autojit.core.wrapping import named
from autojit.dispatch.dispatch import root_value, value_of
from autojit.dispatch.old_overloads import in_new_form
from autojit.dispatch.promotion import cast, converted
from autojit.history.op_node import OpNode
from autojit.history.recording import (
    become_result,
    edge_of,
    require_unchanged,
    shows_grad,
    symbolic_node,
    wants_grad,
)
from autojit.history.view_history import Copied, ViewChain
from autojit.history.view_rules import forbidden_view, inference_written, leaf_written, view_of_leaf_written
from autojit.history.writes import rebase
from autojit.ir.result_types import devices_differ
from autojit.ops.views import ViewUpdate
from autojit.tensor.memory_orders import outermost_first
from autojit.tensor.node import Node, sequence_mark
from autojit.tensor.state import as_given, carry, computes_at_once, grad_mode, holders, quietly, state
from autojit.tensor.storage import ElsewhereArray, SameMemory, Storage
from autojit.tensor.tensor import (
    Tensor,
    alias,
    layout_of,
    made_in_inference,
    relative_chain,
    storage_chain,
    storage_of,
    type_of,
    wrap_value,
)

_DIRECT: dict[str, np.ufunc] = {"add_": np.add, "sub_": np.subtract, "mul_": np.multiply, "div_": np.divide}
_EXACT = ("add_", "sub_", "mul_")  # those that wrap around as NumPy's do
_HALF = 1 << 62
_INT64 = np.dtype(np.int64)


def check_writable(x: Tensor, method: str, others: Sequence[Any] = ()) -> None:
    """Raise torch's error when the present mode forbids writing to ``x`` what was computed from ``others``."""
    if state.mutation is not None:
        state.mutation.before_change(x)
    if state.layers:
        x = (x, *holders(x))[-1]
    view = x._view
    if view is not None and not state.inference and made_in_inference(x):
        is_leaf = state.grad_enabled and x._requires_grad and x._grad_fn is None
        raise leaf_written(x, method) if is_leaf else inference_written(x, method)
    if not state.grad_enabled:
        return
    base = view.base if view is not None else None
    if base is None:
        if x._requires_grad and x._grad_fn is None:
            raise leaf_written(x, method)
        return
    assert view is not None
    if view.creation and (shows_grad(x) or any(isinstance(o, Tensor) and shows_grad(o) for o in others)):
        raise forbidden_view(x, method)
    if base._grad_fn is None and shows_grad(x):
        raise view_of_leaf_written(x, base, method)


def in_place(
    x: Tensor, method: str, function: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]
) -> Tensor:
    """``x.method_(...)``: apply the function to the old value and put the result in its place; returns ``x``."""
    check_writable(x._differentiated(), method, arguments)
    if _write_directly(x, method, arguments, options):
        return x
    if type(x._array) is ElsewhereArray:
        x._become(_in_its_dtype(x, as_given(function, x, *arguments, **options), method))
        return x
    mark = sequence_mark()
    old = _old(x)
    if old._requires_grad and any(given is x for given in (*arguments, *options.values())):
        is_traced = x._value is not None and state.recording_hooks is None  # what a pack hook keeps must not change
        shares = old._array is x._array and (old._array is not None or is_traced)
        same = _with_history_of(alias(x), x) if shares else old  # x itself, saved in its own history, is a cycle
        arguments = tuple([same if given is x else given for given in arguments])
        options = {name: same if given is x else given for name, given in options.items()}
    try:
        new = as_given(function, old, *arguments, **options)
    except Exception as error:
        trim(error)
        raise
    replace(x, new, method, old, mark)
    return x


def _write_directly(x: Tensor, method: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> bool:
    """The short way for arithmetic without history or trace: NumPy computes into the memory itself."""
    ufunc = _DIRECT.get(method)
    now = state.__dict__
    if ufunc is None or options or len(arguments) != 1:
        return False
    if now["divert"] is not None and not computes_at_once():
        return False
    (other,) = arguments
    array = x._array
    if type(array) is not np.ndarray or not array.flags.writeable or 0 in array.strides:
        return False
    if array.dtype.kind != "f" and not (array.dtype is _INT64 and type(other) is int and method in _EXACT):
        return False
    if isinstance(other, Tensor):
        if type(other._array) is not np.ndarray or other._array.dtype is not array.dtype:
            return False
        if now["grad_enabled"] and (wants_grad(x) or shows_grad(other)):
            return False
        other = other._array
        if other.shape != array.shape and other.ndim:
            return False
    elif (
        type(other) not in (int, float)
        or (array.dtype is _INT64 and not -_HALF < other < _HALF)
        or (now["grad_enabled"] and wants_grad(x))
    ):
        return False
    quietly(ufunc, array, other, array)
    storage_of(x).bump(method, place_of_change(1))
    return True


def _old(x: Tensor) -> Tensor:
    """A stand-in for the present value of ``x`` with its history, which keeps both when ``x`` itself moves on."""
    made = _with_history_of(at_present(x), x)
    node, view = x._grad_fn, x._view
    if node is None or view is None or view.base is None:
        return made
    if node.tensor_hooks or _is_replaced(node, len(view.chain)):
        base = view.base  # the change is one of the base: hooks on the view's own gradient have no part in it
        made._grad_fn = symbolic_node(ViewChain(relative_chain(x)), [edge_of(base)], [type_of(base)], node.name())
        made._output_nr = 0
    return made


def at_present(x: Tensor) -> Tensor:
    """A stand-in without history for what ``x`` holds now: in a trace its value, which no later write changes.

    Of an array it shares the memory (``_protect_saved`` copies what the new value's history keeps of it), but not where
    others may keep it, too: a pack hook, the histories that tangents have in the layers.
    """
    if state.trace is not None and (x._array is not None or x._value is not None):
        return wrap_value(value_of(x))
    made = alias(x, own_version=True)
    if made._array is not None and state.grad_enabled and (state.layers or state.recording_hooks is not None):
        made._array, made._storage, made._view = made._array.copy(), None, None
    return made


def _is_replaced(node: Node | None, steps: int) -> bool:
    """Whether the history of a view, at most ``steps`` nodes long, has a node that a write replaces."""
    while node is not None and steps > 0:
        if node._is_pure_view:
            return True
        edge = node.edges[0] if node.edges else None
        node, steps = None if edge is None else edge[0], steps - 1
    return False


def _with_history_of(made: Tensor, x: Tensor) -> Tensor:
    made._requires_grad = wants_grad(x)
    made._grad_fn, made._output_nr, made._accumulator = x._grad_fn, x._output_nr, x._accumulator
    if state.layers:
        carry(x, made)
    return made


def copy_into(x: Tensor, source: Tensor, method: str = "copy_") -> Tensor:
    """Replace the elements of ``x`` by ``source``, converted and broadcast; returns ``x``."""
    check_writable(x, method, (source,))
    if state.grad_enabled:
        require_unchanged(source)
    if _copy_directly(x, source, method):
        return x
    if type_of(source).device != type_of(x).device:
        source = source.to(type_of(x).device)
    is_base = x._view is None or x._view.base is None
    if is_base and state.grad_enabled and not state.layers and type_of(x).dtype.is_differentiable:
        edges = [edge_of(x), edge_of(source)]
        if edges != [None, None]:
            with grad_mode(False):
                replace(x, _fitting(source, x), method)
            name = {"fill_": "FillBackward0", "zero_": "ZeroBackward0"}.get(method, "CopyBackwards")
            become_result(x, symbolic_node(Copied(), edges, [type_of(x), type_of(source)], name))
            return x
    new = _fitting(source, x)
    if new is source and state.grad_enabled and wants_grad(source):
        new = converted(source, type_of(source).dtype)  # a node of its own, so that x does not become the source
    replace(x, new, method)
    return x


def _copy_directly(x: Tensor, source: Tensor, method: str) -> bool:
    """The short way for elements of one dtype without history or trace."""
    array, given, now = x._array, source._array, state.__dict__
    if type(array) is not np.ndarray or type(given) is not np.ndarray or array.dtype is not given.dtype:
        return False
    if (given.ndim and given.shape != array.shape) or not array.flags.writeable or 0 in array.strides:
        return False
    if now["trace"] is not None or now["layers"] or now["observer"] is not None:
        return False
    if now["grad_enabled"] and (shows_grad(x) or shows_grad(source)):
        return False
    quietly(np.copyto, array, given)
    storage_of(x).bump(method, place_of_change(1))
    return True


def _fitting(source: Tensor, x: Tensor) -> Tensor:
    """The source in the dtype and shape of ``x``."""
    new = cast(source, type_of(x).dtype)
    if type_of(new).shape == type_of(x).shape:
        return new
    try:
        return new.expand(type_of(x).shape)
    except Exception as error:
        trim(error)
        raise


def _in_its_dtype(x: Tensor, new: Tensor, method: str) -> Tensor:
    """What takes the place of ``x``'s values, in its dtype, which must have room for its kind of numbers."""
    target, found = type_of(x).dtype, type_of(new).dtype
    if found is target:
        return new
    if found.category > target.category:
        raise UsageError(
            f"result type {found.scalar_type} can't be cast to the desired output type {target.scalar_type}",
            {"method": method, "x": x, "result": type_of(new)},
            "use the out-of-place form, or convert the operand first",
        )
    return cast(new, target)


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
    new = _in_its_dtype(x, new, method)
    if found.device is not target.device and found.device != target.device and (found.ndim or found.device != CPU):
        raise devices_differ(method, (target, found), {"x": x, "result": new})
    if type(new._array) is ElsewhereArray and type(x._array) is not ElsewhereArray:
        new = new.to_dense()
    layers = state.layers
    if layers:
        layers[-1].replace(x, new, method, old, mark)
        return
    source = here()
    if state.mutation is not None:
        state.mutation.before_change(x)  # again: ``new`` may have saved it
    if x._array is not None and state.trace is None:
        _write_array(x, new, method, old, mark)
    else:
        _write_value(x, new, method)
    storage_of(x).bump(method, source)
    if state.trace is not None:
        state.trace.note_change(storage_of(x))
    if x._view is not None:
        x._view.value_changes = storage_of(x).changes
    if state.grad_enabled:
        if old is not None and new._grad_fn is not None:
            _share_result(new, x, mark)
        rebase(x, new)
    if state.trace is not None:
        root = x if x._view is None or x._view.base is None else x._view.base
        write = root.__dict__.get("write_back")  # of a row that is a copy in a capture, as its place is a number of it
        if write is not None:
            write(root)


def _share_result(new: Tensor, x: Tensor, mark: int) -> None:
    """Where the rule of the op that made ``new`` reads its result, that is the memory of ``x`` from now on."""
    node, number = new._grad_fn, new._output_nr
    if not isinstance(node, OpNode) or node.sequence < mark or not isinstance(node.results[number], Tensor):
        return
    node.results[number] = alias(x)
    versions = list(node.versions)
    versions[len(node.primals) + number] = storage_of(x).version
    node.versions = versions


_FILLING = ("fill_", "zero_", "setitem")


def _write_array(x: Tensor, new: Tensor, method: str, old: Tensor | None, mark: int) -> None:
    array = x._array
    if 0 in array.strides and _overlaps(array) and not _fills(new, method):
        raise _shared_memory(x)
    if not (array.flags.writeable or array.size == 0):
        array = _writable(x)
    if old is not None and new._grad_fn is not None:
        _protect_saved(new._grad_fn, array, mark)
    if array.size:
        quietly(write_array if type(array) is DeviceArray else np.copyto, array, new._array)


def _shared_memory(x: Tensor) -> ShapeError:
    return ShapeError(
        "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
        "Please clone() the tensor before performing the operation.",
        {"x": x},
    )


def _overlaps(array: Array) -> bool:
    return array.size > 1 and any(stride == 0 and n > 1 for stride, n in zip(array.strides, array.shape, strict=True))


def _protect_saved(node: Node, written: Array, mark: int) -> None:
    """Give what nodes made after ``mark`` saved of the memory ``written`` memory of its own, before that is changed."""
    seen: set[Node] = set()
    stack = [node]
    while stack:
        current = stack.pop()
        if current in seen or not isinstance(current, OpNode) or current.sequence < mark:
            continue
        seen.add(current)
        for kept in (current.primals, current.results):
            for k, saved in enumerate(kept):
                if isinstance(saved, Tensor) and share_memory(saved._array, written):
                    kept[k] = _with_own_memory(saved)
        stack.extend(e[0] for e in current.edges if e is not None)


def _with_own_memory(saved: Tensor) -> Tensor:
    """What a node keeps in the place of a tensor (which may be the user's, who sees it change) whose memory changes."""
    made = _with_history_of(alias(saved), saved)
    made._array, counter = saved._array.copy(), made._storage
    if counter is not None:  # which still counts, so that a change of the tensor itself is noticed
        made._storage, made._view = SameMemory(Storage(made._array, None), counter), None
    return made


def _fills(new: Tensor, method: str) -> bool:
    """Whether every element becomes the same number, so that elements which share memory do not contradict."""
    return method in _FILLING and not any(step for step, n in zip(layout_of(new).strides, type_of(new).shape) if n > 1)


def _read_only(x: Tensor) -> UsageError:
    return UsageError("the tensor's memory is read-only", {"x": x}, "clone() it first")


def _writable(x: Tensor) -> Any:
    """The tensor's memory where NumPy made a view read-only only because elements share memory (broadcasting)."""
    array, root = layout_in_memory(x._array), storage_of(x).array
    root = None if root is None else layout_in_memory(root)
    packed = None if root is None else root.transpose(outermost_first(root))
    if root is None or packed is None or not (root.flags.writeable and packed.flags.c_contiguous):
        raise _read_only(x)
    start = array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    flat = packed.reshape(-1).view(np.uint8)
    found = np.ndarray(array.shape, array.dtype, flat, start, array.strides)
    return on_layout(x._array, found)


def _write_value(x: Tensor, new: Tensor, method: str) -> None:
    """Under capture: the root of the storage gets a new IR value."""
    trace = state.trace
    assert trace is not None
    piece = value_of(new)
    storage = storage_of(x)
    chain = storage_chain(x)
    value = piece
    if (_may_overlap(x, chain) and _overlaps(layout_of(x))) and not _fills(new, method):
        raise _shared_memory(x)
    if storage.array is not None and not storage.array.flags.writeable and storage.array.size:
        raise _read_only(x)
    before = root_value(x)
    if chain:
        (value,) = trace.apply(ViewUpdate(chain), [before, piece])
    value = trace.laid_as(trace.order_of(before), value, bool(chain))
    if storage.array is None:
        storage.value = value
    else:
        trace.in_place(storage, value)
    if x._array is None:
        x._value = trace.laid_as(layout_of(x), piece)  # it shows its memory: the piece's numbers, in the view's layout


def _may_overlap(x: Tensor, chain: Sequence[Any]) -> bool:
    """Whether elements of a tensor may share memory: it is expanded, or was given so."""
    storage = storage_of(x)
    root, trace = storage.array, state.trace
    if root is None and trace is not None and storage.value is not None:
        root = trace.order_of(storage.value)
    return any(op.name == "broadcast_to" for op in chain) or (root is not None and 0 in root.strides)


def _writes_at_once(x: Tensor, ufunc: np.ufunc, method: str, other: object, alpha: float = 1) -> bool:
    """The shortest way: ``x op= alpha * other`` where no check of ``in_place`` has anything to say; False elsewhere."""
    now = state.__dict__
    array = x._array
    if (
        x._view is not None
        or (now["divert"] is not None and not computes_at_once())
        or now["mutation"] is not None
        or type(array) is not np.ndarray
        or array.dtype.kind != "f"
        or 0 in array.strides
    ):
        return False
    if isinstance(other, Tensor):
        if now["grad_enabled"] and (x._requires_grad or other._requires_grad or other._view is not None):
            return False
        other = other._array
        if type(other) is not np.ndarray or other.dtype is not array.dtype or other.shape != array.shape:
            return False
    elif (type(other) is not float and type(other) is not int) or (now["grad_enabled"] and x._requires_grad):
        return False
    if array.dtype.char == "e" and (alpha != 1 or other.__class__ is not np.ndarray):
        return False  # a number beside halves keeps its digits
    run = now["quiet"].run
    try:
        run(ufunc, array, other if alpha == 1 else run(np.multiply, other, alpha), array)
    except (RuntimeError, ValueError):  # within an eager rule; read-only memory
        return False
    storage_of(x).bump(method, place_of_change(1))
    return True


def in_place_method(method: str, function: Callable[..., Any]) -> Callable[..., Tensor]:
    """The in-place form of a function."""
    ufunc = _DIRECT.get(method)
    takes_alpha = method in ("add_", "sub_")

    def write(self: Tensor, *arguments: object, **options: Any) -> Tensor:
        if ufunc is not None and len(arguments) == 1:
            if not options:
                if _writes_at_once(self, ufunc, method, arguments[0]):
                    return self
            elif (
                takes_alpha
                and len(options) == 1
                and type(options.get("alpha")) in (float, int)
                and _writes_at_once(self, ufunc, method, arguments[0], options["alpha"])
            ):
                return self
        elif len(arguments) > 1 and (new := in_new_form(method, (self, *arguments), options)) is not None:
            self, arguments, options = new[0][0], tuple(new[0][1:]), new[1]
        return in_place(self, method, function, arguments, options)

    return named(write, method, f"In-place form of ``{method[:-1]}``; returns the tensor itself.")
