"""Result types that are known: the type rule of an op is asked once per op and types of operands.

Recorded programs repeat themselves, layer by layer and step by step. Equal values have the same type object then, so
that comparing types is comparing addresses.
"""

from __future__ import annotations

from typing import Any

from autojit.core.device import Device
from autojit.core.dtypes import DType
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
        return op.result_type(*types)
    key = (op, *types)
    try:
        found = _KNOWN.get(key)
    except TypeError:  # a parameter has no hash
        _HOLDERS.add(type(op))
        return op.result_type(*types)
    if found is None:
        found = op.result_type(*types)
        if not is_plain(op):
            _HOLDERS.add(type(op))
        elif holds_plain(key) and holds_plain(found):
            if len(_KNOWN) >= _LIMIT:
                _KNOWN.clear()
            _KNOWN[key] = found
    return found


def is_plain(op: Op) -> bool:
    """Whether an op's parameters are plain, or open sizes: a table that lives as long as the process may keep it."""
    return holds_plain(op, SymbolicSize)


def holds_plain(what: Any, besides: type | None = None) -> bool:
    """Whether parameters, types or a nest of them are numbers, names and dtypes alone, or instances of ``besides``.

    Open sizes are not plain: a type rule may have to decide about them anew in every capture.
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
