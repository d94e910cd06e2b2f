"""Result types that are known: the type rule of an op is asked once per op and types of operands.

Recorded programs repeat themselves, layer by layer and step by step. Equal values have the same type object then, so
that comparing types is comparing addresses.

This module says where results are: where their operands are. An op's own rule knows shapes and dtypes alone,
except for sources, which have no operands, and for ops that move (``Op.moves``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autojit.core.device import CPU, Device
from autojit.core.dtypes import DType
from autojit.core.errors import DeviceError
from autojit.core.sizes import SymbolicSize
from autojit.core.types import TensorType
from autojit.ir.op import Op

_KNOWN: dict[tuple[Any, ...], Any] = {}
_LIMIT = 1 << 14
_PLAIN = frozenset({bool, int, float, complex, str, type(None), DType, Device})
_HOLDERS: set[type[Op]] = set()  # ops with parameters that live for their own sake (graphs, functions)


def result_types(op: Op, *types: TensorType) -> Any:
    """``op.result_type(*types)``: the type of the result, or a tuple of the types of several.

    Raises:
        the type rule's error when the operands do not fit.
    """
    if type(op) in _HOLDERS:
        return placed_types(op, *types)
    key = (op, *types)
    try:
        found = _KNOWN.get(key)
    except TypeError:  # a parameter has no hash
        _HOLDERS.add(type(op))
        return placed_types(op, *types)
    if found is None:
        found = placed_types(op, *types)
        if not is_plain(op):
            _HOLDERS.add(type(op))
        elif holds_plain(key) and holds_plain(found):
            if len(_KNOWN) >= _LIMIT:
                _KNOWN.clear()
            _KNOWN[key] = found
    return found


def placed_types(op: Op, *types: TensorType) -> Any:
    """What the op's own rule says of its results, put where the operands are.

    Raises:
        DeviceError: the operands are on several devices, and are not numbers on the CPU.
    """
    place = CPU
    for t in types:
        if t.device is not CPU:
            if op.spans_devices:
                break
            place = common_device(op.name, types)
            break
    found = op.result_type(*types)
    if place == CPU or op.moves:
        return found
    if isinstance(found, TensorType):
        return found.on(place)
    return tuple(t.on(place) for t in found)


def common_device(what: str, types: Sequence[TensorType]) -> Device:
    """Where the operands are. Numbers on the CPU (operands of rank 0) may be combined with operands anywhere."""
    found: Device | None = None
    for t in types:
        if t.device == CPU and not t.shape:
            continue
        if found is not None and t.device != found:
            raise devices_differ(what, types, {f"operand {k}": str(t) for k, t in enumerate(types)})
        found = t.device
    return CPU if found is None else found


def devices_differ(what: str, types: Sequence[TensorType], operands: Mapping[str, object]) -> DeviceError:
    """The error for operands on several devices, in torch's words."""
    first, second = list(dict.fromkeys(str(t.device) for t in types))[:2]
    return DeviceError(
        f"Expected all tensors to be on the same device, but found at least two devices, {first} and {second}!",
        {"op": what, **operands},
        "move one operand: x.to(y.device)",
    )


def is_plain(op: Op) -> bool:
    """Whether an op's parameters are plain, or open sizes: a table that lives as long as the process may keep it."""
    return holds_plain(op, SymbolicSize)


def holds_plain(what: Any, besides: type | None = None) -> bool:
    """Whether parameters, types or a nest of them are numbers, names and dtypes alone, or instances of ``besides``.

    Open sizes are not plain: a type rule may have to decide about them again in every capture.
    """
    kind = type(what)
    if kind in _PLAIN or kind is besides:
        return True
    if kind is TensorType:
        return holds_plain(what.shape, besides)
    if kind is tuple:
        return all(holds_plain(item, besides) for item in what)
    if not isinstance(what, Op):
        return False
    names = what.__match_args__
    others = [name for name in vars(what) if name not in names and not name.startswith("_")]
    return not others and all(holds_plain(getattr(what, name), besides) for name in names)
