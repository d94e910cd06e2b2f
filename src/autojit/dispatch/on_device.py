"""Tensors on another device than the CPU: ops that compute there, and moving between devices.

Where a tensor is, its array says. While a second device exists every op of eager mode enters here (`State.elsewhere`):
those whose operands are all on the CPU go on as ever, others are computed by the `Space` of their device. Processes
that have the CPU alone never enter.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MethodType
from typing import Any

import numpy as np

from autojit.core.device import CPU, Device, default_device, device, require_available, space_at, with_index
from autojit.core.device_array import Array, DeviceArray, Space, host_copy, layout_in_memory, on_layout
from autojit.core.errors import AutojitError
from autojit.core.ports import ports
from autojit.core.types import TensorType
from autojit.dispatch.dispatch import apply, completed
from autojit.dispatch.promotion import as_operand
from autojit.dispatch.refused_operands import refusal, refused_outside, types_of
from autojit.ir.op import Op, bind
from autojit.ir.result_types import common_device
from autojit.ops.loop_orders import as_loop
from autojit.ops.transfers import ToDevice
from autojit.tensor.state import State, quietly, state
from autojit.tensor.storage import ElsewhereArray
from autojit.tensor.tensor import Tensor, type_of, wrap


def apply_elsewhere(op: Op, operands: Sequence[Tensor]) -> Any:
    """Apply an op to concrete tensors wherever they are.

    Raises:
        DeviceError: they are on several devices.
    """
    for t in operands:
        if type(getattr(t, "_array", None)) is not np.ndarray:
            break
    else:
        if operands and not op.moves:  # the most frequent case, and the one that should cost nothing: 0.3 us
            return _apply_on_the_cpu(op, operands)
    space = _space_of(operands)
    if space is not None and not (op.moves or op.spans_devices):
        here = [t._array for t in operands]
        return completed(op, operands, _computed(op, operands, here, space))
    types = types_of(operands)
    arrays = [t._array for t in operands]
    if any(type(array) is ElsewhereArray for array in arrays):
        return ports.sparse.apply(op, operands)
    if any(array is None for array in arrays):
        raise refused_outside(op, operands)
    place = _place(op, types)
    if place == CPU and all(t.device == CPU for t in types):
        return _apply_on_the_cpu(op, operands)
    made = [_moved(arrays[0], place)] if op.moves else _computed(op, operands, arrays, space_at(place))
    return completed(op, operands, made)


def _space_of(operands: Sequence[Tensor]) -> Space | None:
    """The space that all operands are in; None: they are on the CPU or in several, or there are none."""
    found: Space | None = None
    for t in operands:
        array = getattr(t, "_array", None)
        if type(array) is not DeviceArray or (found is not None and array.space is not found):
            return None
        found = array.space
    return found


def _place(op: Op, types: Sequence[TensorType]) -> Device:
    """Where an op computes."""
    if op.spans_devices:
        return next((t.device for t in types if t.device != CPU), CPU)
    if types and not op.moves:
        return common_device(op.name, types)
    place: Device = op.device  # type: ignore[attr-defined]  # a source, or a move, says where
    return place


def _apply_on_the_cpu(op: Op, operands: Sequence[Tensor]) -> Any:
    now = state.__dict__
    before, now["divert"] = now["divert"], None
    try:
        return apply(op, *operands)
    finally:
        now["divert"] = before


def _moved(array: Array, target: Device) -> Any:
    """A copy of an array on another device, its axes in memory as those of a loop over it."""
    here = as_loop(host_copy(array), [layout_in_memory(array)])
    return here if target == CPU else space_at(target).copied_in(here)


def _computed(op: Op, operands: Sequence[Tensor], arrays: Sequence[Any], space: Space) -> Sequence[Any]:
    """The results of an op in the memory of its device."""
    try:
        if op.is_compiled:
            out = quietly(op.eager, *arrays)
            return [out] if op.n_outputs == 1 else list(out)
        shown = _shown(op, arrays[0]) if op.is_view else None
        return _applied(op, arrays, space) if shown is None else [shown]
    except AutojitError as error:  # a kernel's, which knows no call
        raise refusal(op, operands, error.of_call(op.shown_name)) from None
    except Exception as error:
        raise refusal(op, operands, error) from None


def _applied(op: Op, arrays: Sequence[Any], space: Space) -> Sequence[Any]:
    """What a device makes of an op; who observes the thread is told as of an eager rule's call."""
    if state.observer is None:
        return space.apply(op, arrays)
    rule = MethodType(lambda op, *arrays: space.apply(op, arrays), op)
    found: Sequence[Any] = quietly(rule, *arrays)
    return found


def _shown(op: Op, array: DeviceArray) -> Any:
    """What a view shows of an array, by the rule for layouts; None where strides do not allow a view."""
    layout = array.layout
    return None if op.copies(layout) else on_layout(array, quietly(op.eager, layout))


def moved(x: Tensor, place: Device | str | int) -> Tensor:
    """The tensor on a device; itself if it is there already.

    Raises:
        RuntimeError: there is no such device here.
    """
    target = with_index(require_available(device(place)))
    if target == type_of(x).device:
        return x
    return bind(ToDevice(target), x)


def where_to(place: Device | str | int | None) -> Device:
    """The device of a tensor that is made with ``device=place``: the default one for None.

    Raises:
        RuntimeError: there is no such device here.
    """
    return with_index(default_device() if place is None else require_available(device(place)))


def placed(fresh: Tensor, place: Device) -> Tensor:
    """A tensor that was just made in host memory, without history, made on a device instead."""
    if place == CPU or type_of(fresh).device != CPU:
        return fresh
    if fresh._array is None or state.trace is not None:
        return bind(ToDevice(with_index(place)), fresh)
    return wrap(space_at(with_index(place)).copied_in(fresh._array))


def beside(value: Any, x: Tensor) -> Tensor:
    """The operand of a number, be it one that a step computes, where another tensor is; a tensor as it is."""
    return value if isinstance(value, Tensor) else placed(as_operand(value), type_of(x).device)


def in_one_place(parts: Sequence[Tensor]) -> list[Tensor]:
    """Tensors on the device of the first that is not on the CPU."""
    place = next((found for found in (type_of(part).device for part in parts) if found != CPU), CPU)
    return [moved(part, place) for part in parts]


State.apply_elsewhere = staticmethod(apply_elsewhere)
