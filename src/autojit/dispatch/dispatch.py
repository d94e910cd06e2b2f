"""Dispatch: applying an op to tensors, at once or into the active trace, and recording history either way.

The eager path is kept short on purpose: NumPy's own work on a small array is 0.4 us, ours must stay near 1 us.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from autojit.core.device import CPU, Device
from autojit.core.dtypes import DType, bfloat16
from autojit.core.errors import tensor_expected
from autojit.core.number_ranges import in_range
from autojit.core.ports import ports
from autojit.core.sizes import is_symbolic
from autojit.core.source import for_history, here
from autojit.core.types import TensorType
from autojit.dispatch.digits import exact, is_of_step, plain, with_digits
from autojit.dispatch.refused_operands import is_elsewhere, left_of_batch, refusal, refused_outside
from autojit.dispatch.shown_memory import shows_memory_of
from autojit.history.recording import record, record_pair, record_several, record_single, wants_any
from autojit.history.saved import NUMBERS
from autojit.ir.op import Op
from autojit.ops.loop_orders import as_loop
from autojit.ops.shape import BroadcastTo
from autojit.ops.sources import Full, filled_array
from autojit.ops.transfers import ToDevice
from autojit.tensor.state import quietly, state
from autojit.tensor.storage import INFERENCE, INFERENCE_VIEW, NO_GRAD, ElsewhereArray, View
from autojit.tensor.tensor import Tensor, made_in_inference, storage_chain, storage_of, wrap, wrap_value

if TYPE_CHECKING:
    from autojit.ir.graph import Value

_ndarray, _BFLOAT16 = np.ndarray, bfloat16.numpy
NO_VIEWS: tuple[Op, ...] = ()


@overload
def apply(op: Op, operand: Tensor, /, *others: Tensor) -> Tensor: ...
@overload
def apply(op: Op, *operands: Tensor) -> Any: ...
def apply(op: Op, *operands: Tensor) -> Any:
    """Apply an op to tensors: one Tensor, or a tuple of them for ops with several outputs.

    Raises:
        the type rule's error when the operands do not fit; TraceError when a traced tensor is used outside its trace.
    """
    now = state.__dict__
    divert = now["divert"]
    if divert is not None:
        return divert(op, operands)
    try:
        is_plain = op.fast is None or operands[0]._array.size < op.fast_from
        out = now["run"](op.eager if is_plain else op.fast, *[t._array for t in operands])
    except Exception as error:
        if is_elsewhere(operands):
            return ports.sparse.apply(op, operands)
        out = _retry(op, operands, error)
    if op.n_outputs != 1:
        return _completed_many(op, operands, map(np.asarray, out))
    result = wrap(out if type(out) is _ndarray else np.asarray(out))
    if op.is_view:
        attach_view(op, operands[0], result)
    elif not (op.keeps_order or result._array.flags.c_contiguous):  # as ``memory_orders`` says
        result._array = result._array.copy(order="C")
    elif op.is_one_loop and op.keeps_order and len(operands) > 1 and result._array.ndim > 1:
        result._array = as_loop(result._array, [t._array for t in operands])
    if now["grad_enabled"]:
        is_wanted = False
        for t in operands:
            view = t._view
            if view is not None and not _is_recorded_view(t, view):
                _record_one(op, operands, result)
                return result
            is_wanted = is_wanted or t._requires_grad
        if is_wanted:
            if now["recording_hooks"] is not None:
                _record_one(op, operands, result)
            elif len(operands) == 1:
                record_single(op, operands[0], result)
            elif len(operands) == 2:
                record_pair(op, operands[0], operands[1], result)
            else:
                record_several(op, operands, result)
    return result


def apply_pair(op: Op, compute: Callable[..., Any], x: Tensor, y: Tensor) -> Tensor:
    """``apply`` of a two-operand elementwise op that the function ``compute`` computes: the shortest way."""
    now = state.__dict__
    divert = now["divert"]
    if divert is not None:
        diverted: Tensor = divert(op, (x, y))
        return diverted
    try:
        out = now["run"](compute, x._array, y._array)
    except Exception as error:
        if is_elsewhere((x, y)):
            found: Tensor = ports.sparse.apply(op, (x, y))
            return found
        out = _retry(op, (x, y), error)
    result = wrap(out if type(out) is _ndarray else np.asarray(out))
    if not op.keeps_order:
        if not result._array.flags.c_contiguous:
            result._array = result._array.copy(order="C")
    elif result._array.ndim > 1 and not x._array.flags.c_contiguous and y._array.ndim > 1:
        result._array = as_loop(result._array, (x._array, y._array))  # of what they have in common NumPy's loop decides
    if now["grad_enabled"]:
        x_view, y_view = x._view, y._view
        is_plain = x_view is None or _is_recorded_view(x, x_view)
        if not is_plain or (y_view is not None and not _is_recorded_view(y, y_view)):
            _record_one(op, (x, y), result)
        elif x._requires_grad or y._requires_grad:
            if now["recording_hooks"] is not None:
                _record_one(op, (x, y), result)
            else:
                record_pair(op, x, y, result)
    return result


def apply_single(op: Op, x: Tensor) -> Tensor:
    """``apply`` of an op with one operand and one result that is not a view."""
    now = state.__dict__
    divert = now["divert"]
    if divert is not None:
        diverted: Tensor = divert(op, (x,))
        return diverted
    try:
        out = now["run"](op.eager if op.fast is None or x._array.size < op.fast_from else op.fast, x._array)
    except Exception as error:
        if is_elsewhere((x,)):
            found: Tensor = ports.sparse.apply(op, (x,))
            return found
        out = _retry(op, (x,), error)
    result = wrap(out if type(out) is _ndarray else np.asarray(out))
    if not (op.keeps_order or result._array.flags.c_contiguous):
        result._array = result._array.copy(order="C")
    if now["grad_enabled"]:
        view = x._view
        if view is not None and not _is_recorded_view(x, view):
            _record_one(op, (x,), result)
        elif x._requires_grad:
            if now["recording_hooks"] is not None:
                _record_one(op, (x,), result)
            else:
                record_single(op, x, result)
    return result


def completed(op: Op, operands: Sequence[Tensor], arrays: Sequence[Any]) -> Any:
    """The tensors around what an op has computed: in the order of their elements, as views, with history."""
    if op.n_outputs != 1:
        return _completed_many(op, operands, arrays)
    result = wrap(arrays[0])
    if op.is_view:
        attach_view(op, operands[0], result)
    elif not (op.keeps_order or result._array.flags.c_contiguous):
        result._array = result._array.copy(order="C")
    if state.grad_enabled:
        _record_one(op, operands, result)
    return result


def _retry(op: Op, operands: Sequence[Tensor], error: Exception) -> Any:
    """Say what was wrong in the type rule's words; compute again when the failure was a nested call of ``quiet``."""
    if any(t._array is None for t in operands):
        raise refused_outside(op, operands) from None
    if isinstance(error, RuntimeError) and "cannot enter context" in str(error):
        try:
            return quietly(op.eager, *[t._array for t in operands])
        except Exception as again:
            error = again
    raise refusal(op, operands, error)


def _is_recorded_view(t: Tensor, view: View) -> bool:
    """Whether a view's history is as its base's is now, so that the view is recorded as other tensors are."""
    base = view.base
    if view.creation or base is None or base._grad_fn is not view.base_fn:
        return False
    return t._requires_grad or not base._requires_grad


def _record_one(op: Op, operands: Sequence[Tensor], result: Tensor) -> None:
    if wants_any(operands):
        now = state.__dict__
        is_plain = now["divert"] is None and now["recording_hooks"] is None and not _any_inference(operands)
        if is_plain and len(operands) == 2:
            record_pair(op, operands[0], operands[1], result)
        elif is_plain and len(operands) == 1 and operands[0]._requires_grad:
            record_single(op, operands[0], result)
        elif is_plain and len(operands) > 2:
            record_several(op, operands, result)
        elif not _all_inference(operands):
            record(op, operands, (result,))
        _follow_base(result)


def _follow_base(result: Tensor) -> None:
    """A view's history was recorded from its base's as it is now."""
    view = result._view
    if view is not None and view.base is not None:
        view.base_fn = view.base._grad_fn


def _any_inference(operands: Sequence[Tensor]) -> bool:
    """Whether an operand was made in inference mode: only ``record`` refuses to save those."""
    for t in operands:  # ``made_in_inference``, written out
        storage = t._storage
        if (t._view is INFERENCE_VIEW) if storage is None else storage.inference:
            return True
    return False


def _all_inference(operands: Sequence[Tensor]) -> bool:
    """Whether all operands were made in inference mode: what is computed from them alone has no history."""
    return all(map(made_in_inference, operands))


def _completed_many(op: Op, operands: Sequence[Tensor], arrays: Iterable[Any]) -> tuple[Tensor, ...]:
    """``completed`` of several results, laid out as ``memory_orders`` says."""
    laid_out = arrays if op.keeps_order else [a if a.flags.c_contiguous else a.copy(order="C") for a in arrays]
    return _finish_many(op, operands, list(map(wrap, laid_out)))


def _finish_many(op: Op, operands: Sequence[Tensor], results: list[Tensor]) -> tuple[Tensor, ...]:
    if state.grad_enabled and wants_any(operands) and not _all_inference(operands):
        record(op, operands, results)
    return tuple(results)


def _apply_traced(op: Op, operands: Sequence[Tensor]) -> Any:
    now = state.__dict__
    trace = now["trace"]
    if trace.has_numbers:
        op = with_digits(op)
    for t in operands:
        if not isinstance(t, Tensor):
            raise tensor_expected(t)
        if type(t._array) is ElsewhereArray:
            return ports.sparse.apply(op, operands)
    # the value of a traced tensor that shares its storage with none is its own
    values = [t._value if t._storage is None and t._array is None else value_of(t) for t in operands]
    if None in values:
        raise refused_outside(op, operands)
    place = here(depth=2, is_inside=True)
    results = trace.apply(op, values, place)
    if op.n_outputs != 1:
        several = _finish_many(op, operands, [wrap_value(v) for v in results])
        for t in several if now["inference"] else ():
            mark_inference(t)
        return several
    result = wrap_value(results[0])
    if op.is_view:
        attach_view(op, operands[0], result)
    if now["grad_enabled"] and wants_any(operands):
        if not _all_inference(operands):
            record(op, operands, (result,), for_history(place))
        _follow_base(result)
    if now["inference"] and result._storage is None:
        mark_inference(result)
    return result


def _apply_inferring(op: Op, operands: Sequence[Tensor]) -> Any:
    """In inference mode: results are marked, so that later uses of them in history are refused."""
    state.divert = state.elsewhere
    try:
        found = apply(op, *operands)
    finally:
        state.divert = _apply_inferring
    for t in (found,) if op.n_outputs == 1 else found:
        if t._storage is None:
            mark_inference(t)
    return found


def mark_inference(t: Tensor) -> None:
    """Mark a fresh tensor as made in inference mode."""
    if t._array is not None:
        t._view = INFERENCE_VIEW
        return
    storage = storage_of(t)
    storage.inference = True
    t._view = View(None, NO_VIEWS, None, storage)  # its own, as it remembers when its value held
    t._view.creation = INFERENCE


type(state).capture = staticmethod(_apply_traced)
type(state).infer = staticmethod(_apply_inferring)


def value_of(t: Tensor) -> Value:
    """The IR value a tensor has at this point of the active trace."""
    trace = state.trace
    assert trace is not None
    storage = t._storage
    if t._array is None:
        if storage is None:
            if t._value is None:
                raise left_of_batch({"tensor": t})
            return t._value
        if t._view is not None and t._view.value_changes == storage.changes and t._value is not None:
            return t._value
    root: Value = root_value(t)
    for op in storage_chain(t):
        (root,) = trace.apply(op, [root])
    if t._array is None:
        t._value = root
        if t._view is not None:
            t._view.value_changes = storage_of(t).changes
    return root


def root_value(t: Tensor) -> Any:
    """The IR value of the root of a tensor's storage."""
    storage = storage_of(t)
    if storage.array is None:
        if storage.value is None:
            raise left_of_batch({"tensor": t})
        return storage.value
    assert state.trace is not None
    return state.trace.lift(storage, t)


def attach_view(op: Op, operand: Tensor, result: Tensor) -> None:
    """Let a view op's result share its operand's storage, unless NumPy had to copy."""
    if getattr(op, "may_copy", False) and not shows_memory_of(op, operand, result._array):
        return
    attach_views((op,), operand, result)


def attach_views(ops: tuple[Op, ...], operand: Tensor, result: Tensor) -> None:
    """Let ``result``, the views ``ops`` of ``operand`` in turn, share its storage and follow its base's history."""
    storage = result._storage = operand._storage or storage_of(operand)
    view = operand._view
    if view is None or view.base is None:
        base, chain = operand, NO_VIEWS
    else:
        base, chain = view.base, view.chain
    if storage.inference:
        result._view = View(None, (*storage_chain(operand), *ops), None, storage)
        result._view.creation = INFERENCE
        return
    result._view = View(base, (*chain, *ops), base._grad_fn, storage)
    if view is not None and base is not operand:
        result._view.base_chain = view.base_chain
    if not state.grad_enabled:
        result._view.creation = INFERENCE if state.inference else NO_GRAD
    elif view is not None:
        result._view.creation = view.creation


_LITERAL_LIMIT = 1024


def literal_of(value: object, type: TensorType) -> Tensor:
    """A constant: every element is ``value``. Zero-dimensional ones are kept and shared; nobody writes to them."""
    if state.trace is not None:
        if not type.shape:
            return number(value, type.dtype, type.device)
        if is_symbolic(value) or is_of_step(value):
            return apply(BroadcastTo(type.shape), number(value, type.dtype, type.device))
        op = Full(in_range(plain(value), type.dtype), type.dtype, type.shape, type.device)
        return wrap_value(state.trace.apply(op, ())[0])
    if type.device is not CPU and type.device != CPU:
        exact = in_range(plain(value), type.dtype)
        elsewhere: Tensor = apply(Full(exact, type.dtype, type.shape, type.device))
        return elsewhere
    if type.shape:
        made = wrap(filled_array(type.shape, value, type.dtype.numpy))
        made._type = type
        return made
    return number(value, type.dtype)


def number(value: Any, dtype: DType, place: Device = CPU) -> Tensor:
    """A Python number as a 0-d constant of a dtype; UsageError for a whole one that the dtype does not hold."""
    if state.trace is not None:
        if is_symbolic(value):
            made = wrap_value(state.trace.size_value(value, dtype))
        elif is_of_step(value):
            made = wrap_value(value_of(value.as_operand().to(dtype)))
        else:
            made = wrap_value(state.trace.apply(Full(in_range(plain(value), dtype), dtype, (), place), ())[0])
        made.__dict__["is_number"] = True
        return made if place in (CPU, made.spec.device) else apply(ToDevice(place), made)
    if place is not CPU and place != CPU:
        return literal_of(value, TensorType((), dtype, place))
    key = (value, dtype) if value else (repr(value), dtype)  # 0.0 == -0.0, but they are different constants
    found = NUMBERS.get(key)
    if found is None:
        if len(NUMBERS) >= _LITERAL_LIMIT:
            NUMBERS.clear()
        found = NUMBERS[key] = wrap(exact(value, dtype))
    return found


def wrapped_number(value: Any, dtype: DType) -> Tensor:
    """``number``, but a whole one wraps around as in C: an operand of arithmetic and comparison, as in torch."""
    is_plain = type(value) is int or isinstance(value, np.integer)  # not a size or a number of a step
    if dtype.category == 1 and is_plain and -(1 << 63) <= value < 1 << 64:
        span = 1 << dtype.size_bytes * 8
        value = int(value) % span
        if dtype.kind == "int" and value >= span // 2:
            value -= span
    return number(value, dtype)


def _bind(self: Tensor, op: Op, operands: Sequence[Tensor]) -> Any:
    if op.of_pair is not None:
        if getattr(operands[0]._array, "dtype", None) is _BFLOAT16:  # which ``fast_paths`` has loops for
            return apply(op, *operands)
        return apply_pair(op, op.of_pair, operands[0], operands[1])
    if len(operands) == 1 and op.n_outputs == 1 and not op.is_view:
        return apply_single(op, operands[0])
    return apply(op, *operands)


def _literal(self: Tensor, value: object, type: TensorType) -> Tensor:
    return literal_of(value, type)


METHODS: dict[str, Any] = {
    "_bind": _bind,
    "_literal": _literal,
    "_literal_of": staticmethod(literal_of),
    "_apply": staticmethod(apply),
}

__all__ = ["METHODS", "apply", "literal_of", "number", "root_value", "value_of"]
