"""The hooks of instrumented code: they tell the thread's observer, or just do the instruction if there is none."""

from __future__ import annotations

import operator
import sys
import threading
from types import BuiltinFunctionType, CodeType
from typing import Any

import numpy as np

from autojit.core.source import relay
from autojit.jit.asked_digits import beside_values
from autojit.jit.guards import PRIMITIVES
from autojit.jit.instrumented_code import Hooks
from autojit.jit.late_values import Late, formatted, joined
from autojit.jit.places import cell_content
from autojit.tensor.tensor import Tensor


class _Active(threading.local):
    """The capture that this thread observes."""

    observer: Any = None  # an ``Observer``


active = _Active()
PLAIN = frozenset((*PRIMITIVES, Tensor, BuiltinFunctionType, range, slice, type(Ellipsis), type(NotImplemented)))


def _attribute(obj: Any, name: str) -> Any:
    observer = active.observer
    return getattr(obj, name) if observer is None else observer.attribute(obj, name)


def _super_attribute(operands: Any, name: str) -> Any:
    kind, *arguments = operands
    return _attribute(kind(*arguments), name)


def _global(value: Any, name: str) -> Any:
    observer = active.observer
    return value if observer is None else observer.global_(value, name)


def _cell(operands: Any, name: str) -> Any:
    observer = active.observer
    value, cell = operands
    return value if observer is None else observer.cell(value, cell, name)


def _class_cell(operands: Any, name: str) -> Any:
    observer = active.observer
    value, cell = operands
    is_found = observer is not None and cell_content(cell) is value
    return observer.cell(value, cell, name) if is_found else value


def _class_global(value: Any, name: str) -> Any:
    observer = active.observer
    is_found = observer is not None and sys._getframe(1).f_globals.get(name, value) is value
    return observer.global_(value, name) if is_found else value


def _item(operands: Any, _: Any) -> Any:
    container, key = operands if len(operands) == 2 else (operands[0], slice(*operands[1:]))
    observer = active.observer
    return container[key] if observer is None else observer.item(container, key)


def _iterated(value: Any, _: Any) -> Any:
    observer = active.observer
    return value if observer is None else observer.arrays.iterated(observer.contents.iterated(value))


def _operand(value: Any, _: Any) -> Any:
    observer = active.observer
    if observer is not None and type(value) not in PLAIN:
        observer.contents.looked_at(value)
        return observer.arrays.operand(value)
    return value


def _looked_at(value: Any, _: Any) -> Any:
    observer = active.observer
    if observer is not None and type(value) not in PLAIN:
        observer.contents.looked_at(value)
    return value


def _truth(value: Any, _: Any) -> Any:
    observer = active.observer
    if observer is not None and type(value) not in PLAIN:
        observer.contents.length(value, is_truth=True)
    return value


def _formatted(operands: Any, info: tuple[int, bool, int]) -> Any:
    conversion, has_format, use = info
    value, form = operands if has_format else (operands, "")
    if type(value) not in PLAIN or type(value) is Tensor:
        observer = active.observer
        if observer is not None:
            observer.contents.looked_at(value)
            return observer.text_of(formatted, (value, conversion, form), use)
    return formatted(value, conversion, form)


def _joined(parts: Any, _: Any) -> Any:
    return Late(joined, parts) if any(type(part) is Late for part in parts) else "".join(parts)


def _operator_held(operands: Any, use: int) -> Any:
    right, left = _two(operands, None)
    observer = active.observer
    if observer is not None and type(left) is str:
        return observer.text_of(operator.mod, (left, right), use)
    return left % right


def _two(operands: Any, _: Any) -> Any:
    observer = active.observer
    left, right = operands
    if observer is not None:
        if observer.arrays.takes_part(left, right):
            return observer.arrays.two(left, right)[::-1]
        observer.nests.compared(left, right)
        if type(left) not in PLAIN and not _is_read_by_step(left, right):
            observer.contents.looked_at(left)
        if type(right) not in PLAIN and not _is_read_by_step(right, left):
            observer.contents.looked_at(right)
        left, right = beside_values(left, right)
    return right, left


def _in_place(operands: Any, method: str) -> Any:
    """What is added to a container from outside is added at every call, as the ``method`` does it."""
    observer = active.observer
    left, right = operands
    if observer is not None and observer.arrays.takes_part(left, right):
        return observer.arrays.in_place(left, right)[::-1]
    if observer is None or type(left) in PLAIN:
        return _two(operands, None)
    if not method or not observer.contents.operator_in_place(left, method, right):
        if isinstance(left, np.ndarray) and observer.contents.is_one(left):
            observer.contents.rearranged(left)
        return _two(operands, None)
    observer.calling(getattr(left, "update" if isinstance(left, dict) else method), right)
    return {"__iand__": left, "__imul__": 1}.get(method, type(left)()), left  # which changes nothing more


def _is_read_by_step(operand: Any, other: Any) -> bool:
    """Whether an operand is an array that the op of a tensor takes in as state: its changes are followed."""
    return isinstance(other, Tensor) and isinstance(operand, np.ndarray)


def _contains(operands: Any, _: Any) -> Any:
    item, container = operands
    observer = active.observer
    if observer is not None:
        observer.arrays.refuse("what is in it", item, () if type(container) is dict else container)
        observer.contents.asked_for(container, item)
        observer.nests.searched(container, item)
    return container, item


def _identified(operands: Any, _: Any) -> Any:
    observer = active.observer
    left, right = operands
    if observer is not None:
        observer.identified(left, right)
    return right, left


def _called(operands: Any, kind: Any) -> Any:
    observer = active.observer
    return operands[::-1] if observer is None else observer.called(operands, kind)[::-1]


def _set_attribute(operands: Any, name: str) -> None:
    observer = active.observer
    value, obj = operands
    if observer is None:
        setattr(obj, name, value)
    else:
        observer.arrays.refuse(f"a change of .{name}", obj)
        observer.set_attribute(obj, name, value)


def _delete_attribute(obj: Any, name: str) -> None:
    observer = active.observer
    if observer is None:
        delattr(obj, name)
    else:
        observer.delete_attribute(obj, name)


def _set_item(operands: Any, _: Any) -> None:
    value, container, *rest = operands
    key = rest[0] if len(rest) == 1 else slice(*rest)
    observer = active.observer
    if observer is None:
        container[key] = value
    else:
        key, value = observer.arrays.assigned(container, key, value)
        observer.set_item(container, key, value)


def _delete_item(operands: Any, _: Any) -> None:
    container, key = operands
    observer = active.observer
    if observer is None:
        del container[key]
    else:
        observer.delete_item(container, key)


def _set_global(value: Any, name: str) -> Any:
    observer = active.observer
    if observer is not None:
        observer.set_global(name)
    return value


def _set_cell(operands: Any, name: str) -> Any:
    observer = active.observer
    if observer is not None:
        observer.set_cell(operands[1], name)
    return operands[0]


def _matched(value: Any, _: Any) -> Any:
    observer = active.observer
    if observer is not None:
        observer.arrays.refuse("a pattern", value)
        observer.contents.matched(value)
    return value


def _imported(value: Any, name: str) -> Any:
    observer = active.observer
    if observer is not None:
        observer.imported(value, name)
    return value


def _entered(manager: Any, place: int) -> Any:
    observer = active.observer
    if observer is not None:
        observer.managers[id(sys._getframe(1)), place] = manager
    return manager


def _began(_: None, code: CodeType) -> None:
    observer = active.observer
    if observer is not None:
        observer.began(code)


HOOKS = Hooks(
    began=_began,
    entered=_entered,
    matched=_matched,
    imported=_imported,
    attribute=_attribute,
    super_attribute=_super_attribute,
    global_=_global,
    cell=_cell,
    class_cell=_class_cell,
    class_global=_class_global,
    item=_item,
    iterated=_iterated,
    looked_at=_looked_at,
    operand=_operand,
    truth=_truth,
    formatted=_formatted,
    joined=_joined,
    operator_held=_operator_held,
    two=_two,
    in_place=_in_place,
    contains=_contains,
    identified=_identified,
    called=_called,
    set_attribute=_set_attribute,
    delete_attribute=_delete_attribute,
    set_item=_set_item,
    delete_item=_delete_item,
    set_global=_set_global,
    set_cell=_set_cell,
)
for _hook in HOOKS:
    relay(_hook)  # messages speak of the function that is read or called

__all__ = ["HOOKS", "PLAIN", "active"]
