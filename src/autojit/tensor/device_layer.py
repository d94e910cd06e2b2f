"""Tensors on another device: which device a result is on, that operands lie on one device, and moving between devices.

The layer is entered only while a second device exists (``autojit.testing.second_device``); on the CPU alone ops do not
pass through it and cost nothing more. Ops compute with NumPy all the same; the device is a part of the tensor's type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autojit.core.device import CPU, Device, device, require_available
from autojit.core.errors import DeviceError
from autojit.core.records import record
from autojit.core.types import TensorType
from autojit.ir.op import Op, Operands, bind
from autojit.ir.result_types import common_device, devices_differ
from autojit.tensor.dispatch import apply
from autojit.tensor.inplace import replace
from autojit.tensor.op_node import OpNode
from autojit.tensor.state import Layer, below
from autojit.tensor.tensor import Tensor, type_of


@record
class ToDevice(Op):
    """A copy on another device."""

    device: Device
    moves = True

    def result_type(self, x: TensorType) -> TensorType:
        return TensorType(x.shape, x.dtype, self.device)

    def eager(self, x: Any) -> Any:
        return x.copy(order="K")

    def vjp(self, primals: Operands, result: Any, y_bar: Any) -> Sequence[Any]:
        return (bind(ToDevice(primals[0].spec.device), y_bar),)

    def jvp(self, primals: Operands, result: Any, tangents: Operands) -> Any:
        return None if tangents[0] is None else bind(self, tangents[0])

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        return bind(self, args[0])


def moved(x: Tensor, place: Any) -> Tensor:
    """The tensor on a device; itself if it is there already.

    Raises:
        RuntimeError: there is no such device here.
    """
    target = with_index(require_available(device(place)))
    if target == type_of(x).device:
        return x
    return bind(ToDevice(target), x)


def with_index(place: Device) -> Device:
    """The device with its ordinal: another device than the CPU that is named without one is the first of its kind."""
    return place if place == CPU or place.index is not None else Device(place.type, 0)


def placed(fresh: Tensor, place: Device) -> Tensor:
    """A tensor that was just made, on a device from the start."""
    if place != CPU:
        fresh._type = TensorType(type_of(fresh).shape, type_of(fresh).dtype, with_index(place))
    return fresh


class DeviceLayer(Layer):
    """The layer (``state.Layer``) that gives results their device."""

    what = "a block with a second device"

    def apply(self, op: Op, operands: Sequence[Tensor]) -> Any:
        """The op; its results are on the operands' device."""
        place = op.device if isinstance(op, ToDevice) else _common(op, operands)
        with below(self):
            found: Any = apply(op, *operands)
        results = (found,) if op.n_outputs == 1 else found
        if place != CPU:
            for t in results:
                placed(t, place)
        _tell_node(results, operands)
        return found

    def carry(self, source: Tensor, made: Tensor, with_history: bool) -> None:
        """An alias is where its source is."""
        made._type = source._type

    def like(self, source: Tensor, made: Tensor) -> Tensor:
        """A tensor made in the likeness of another is where that is."""
        return placed(made, type_of(source).device)

    def replace(self, x: Tensor, new: Tensor, method: str, old: Any, mark: int) -> None:
        """Write ``new`` into ``x``, which must be on the same device."""
        place = type_of(x).device
        if type_of(new).device != place and not (type_of(new).ndim == 0 and type_of(new).device == CPU):
            raise _mixed(method, (x, new))
        with below(self):
            replace(x, new, method, old, mark)

    def shown(self, x: Tensor) -> list[str]:
        """The device, unless it is the CPU."""
        place = type_of(x).device
        return [] if place == CPU else [f"device='{place}'"]


def _common(op: Op, operands: Sequence[Tensor]) -> Device:
    """Where the operands are. Numbers on the CPU (tensors of rank 0) may be combined with tensors anywhere."""
    return common_device(op.name, [type_of(t) for t in operands])


def _mixed(what: str, operands: Sequence[Tensor]) -> DeviceError:
    return devices_differ(what, [type_of(t) for t in operands], {f"operand {k}": t for k, t in enumerate(operands)})


def _tell_node(results: Sequence[Tensor], operands: Sequence[Tensor]) -> None:
    """What the node keeps of its results is where the results are; it was made below the layer."""
    node = results[0]._grad_fn
    if not isinstance(node, OpNode) or len(node.out_metas) != len(results):
        return
    node.out_metas = [type_of(t) for t in results]
    for number, (kept, t) in enumerate(zip(node.results, results, strict=True)):
        if isinstance(kept, Tensor):
            kept._type = t._type
        else:
            node.results[number] = type_of(t)
    for place, (entry, t) in enumerate(zip(node.primals, operands, strict=True)):
        if isinstance(entry, tuple):
            node.primals[place] = type_of(t)
