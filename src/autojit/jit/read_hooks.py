"""The hooks of instrumented code: they tell the thread's observer, or just do the instruction if there is none.

A hook is called with what its instruction has on the stack (one object, or a tuple of several) and a constant; it gives
what stands in their place. ``HOOKS`` has them by their names, which ``instrumented_code.py`` knows.
"""

from __future__ import annotations

import builtins
import operator
import sys
import threading
from types import BuiltinFunctionType, CellType, CodeType, FrameType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.source import relay
from autojit.jit import late_values
from autojit.jit.asked_digits import beside_values
from autojit.jit.guards import PRIMITIVES
from autojit.jit.late_values import Late
from autojit.jit.observed_functions import is_user_module, is_user_names
from autojit.jit.places import Location, cell_content
from autojit.jit.replaced_code import note_name
from autojit.runtime.entry_spec import MISSING, CellGuard
from autojit.tensor.tensor import Tensor

if TYPE_CHECKING:
    from autojit.jit.observer import Observer


class _Active(threading.local):
    """The capture that this thread observes."""

    observer: Observer | None = None


active = _Active()
PLAIN = frozenset((*PRIMITIVES, Tensor, BuiltinFunctionType, range, slice, type(Ellipsis), type(NotImplemented)))


def attribute(obj: object, name: str) -> Any:
    """object, name: the attribute."""
    observer = active.observer
    return getattr(obj, name) if observer is None else observer.attribute(obj, name)


def super_attribute(operands: tuple[Any, ...], name: str) -> Any:
    """(super, class, self), name: the attribute."""
    kind, *arguments = operands
    return attribute(kind(*arguments), name)


# -- names


def global_(value: object, name: str) -> Any:
    """value, name: the value of a global or builtin."""
    observer = active.observer
    return value if observer is None else _looked_up(observer, sys._getframe(1), value, name)


def class_global(value: object, name: str) -> Any:
    """value, name: of a name that an annotation looks up in a class and then among the globals."""
    observer, frame = active.observer, sys._getframe(1)
    is_found = observer is not None and frame.f_globals.get(name, value) is value
    return _looked_up(observer, frame, value, name) if observer is not None and is_found else value


def _looked_up(observer: Observer, frame: FrameType, value: object, name: str) -> object:
    table = frame.f_globals
    if observer.is_of_step(table, name) or _is_of_class_body(frame, name) or id(table) in observer.made_names:
        return value
    known = observer.places_read.get((id(table), name))
    if (known is None and (name in table or is_user_names(table))) or (known and known.expected is not value):
        observer.note_key(table, name, f"global {name}", value if name in table else MISSING)
        if name not in table:
            note_name(observer, builtins, name, f"builtin {name}")
    return observer.enter(value, name)


def _is_of_class_body(frame: FrameType, name: str) -> bool:
    return not frame.f_code.co_flags & 0x2 and frame.f_locals is not frame.f_globals and name in frame.f_locals


def set_global(value: object, name: str) -> Any:
    """value, name: the value, about to be stored."""
    observer = active.observer
    if observer is not None:
        table = sys._getframe(1).f_globals
        observer.note_write(Location(f"global {name}", table, name), table.get(name, MISSING))
    return value


def imported(module: ModuleType, name: str) -> ModuleType:
    """module, name: the module, which an import statement gave."""
    observer, found = active.observer, sys.modules.get(name)
    if observer is not None and found is not None and is_user_module(found):
        observer.note_key(sys.modules, name, f"module {name}", found)
    return module


def cell(operands: tuple[Any, CellType], name: str) -> Any:
    """(value, cell), name: the value of a variable of an enclosing function."""
    observer = active.observer
    value, held_by = operands
    if observer is None or id(held_by) not in observer.outside or observer.is_of_step(held_by, None):
        return value
    observer.note(held_by, None, name, lambda: cell_content(held_by), value, CellGuard(held_by, value))
    return observer.enter(value, name)


def class_cell(operands: tuple[Any, CellType], name: str) -> Any:
    """The same where a class body or an annotation looks the name up, perhaps in the class."""
    return cell(operands, name) if cell_content(operands[1]) is operands[0] else operands[0]


def set_cell(operands: tuple[Any, CellType], name: str) -> Any:
    """(value, cell), name: the value, about to be stored."""
    observer = active.observer
    value, held_by = operands
    if observer is not None and id(held_by) in observer.outside:
        observer.note_write(Location(name, held_by), cell_content(held_by))
    return value


# -- what is looked at


def item(operands: tuple[Any, ...], _: None) -> Any:
    """(container, key) or (container, start, stop): the item."""
    container, key = operands if len(operands) == 2 else (operands[0], slice(*operands[1:]))
    observer = active.observer
    return container[key] if observer is None else observer.item(container, key)


def iterated(value: object, _: None) -> Any:
    """Something that is about to be walked: itself."""
    observer = active.observer
    if observer is None:
        return value
    if observer.used_is_changed:
        observer.note_use(value)
    return observer.arrays.iterated(observer.contents.iterated(value))


def operand(value: object, _: None) -> Any:
    """The operand of a unary operator: what the operator is applied to."""
    observer = active.observer
    if observer is not None and type(value) not in PLAIN:
        observer.contents.looked_at(value)
        return observer.arrays.operand(value)
    return value


def truth(value: object, _: None) -> Any:
    """Something whose truth is about to be taken: itself."""
    observer = active.observer
    if observer is not None and type(value) not in PLAIN:
        observer.contents.length(value, is_truth=True)
    return value


def formatted(operands: Any, info: tuple[int, bool, int]) -> Any:
    """A value, or (value, format), with (conversion, whether there is a format, HELD or RETURNED): its text."""
    conversion, has_format, use = info
    value, form = operands if has_format else (operands, "")
    if type(value) not in PLAIN or type(value) is Tensor:
        observer = active.observer
        if observer is not None:
            observer.contents.looked_at(value)
            return observer.text_of(late_values.formatted, (value, conversion, form), use)
    return late_values.formatted(value, conversion, form)


def joined(parts: tuple[Any, ...], _: None) -> Any:
    """Parts of a text that is held: the text."""
    return Late(late_values.joined, parts) if any(type(part) is Late for part in parts) else "".join(parts)


def operator_held(operands: tuple[Any, ...], use: int) -> Any:
    """(text, values) of ``%`` whose result is HELD or RETURNED: the result."""
    right, left = two(operands, None)
    observer = active.observer
    if observer is not None and type(left) is str:
        return observer.text_of(operator.mod, (left, right), use)
    return left % right


def two(operands: tuple[Any, ...], _: object) -> Any:
    """(left, right) of an operator: (right, left)."""
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


def in_place(operands: tuple[Any, ...], method: str) -> Any:
    """The same of an operator in place, and the method that does this for lists, or for dictionaries, or "".

    What is added to a container from outside is added at every call, as the ``method`` does it.
    """
    observer = active.observer
    left, right = operands
    if observer is not None and observer.arrays.takes_part(left, right):
        return observer.arrays.in_place(left, right)[::-1]
    if observer is None or type(left) in PLAIN:
        return two(operands, None)
    if not method or not observer.contents.operator_in_place(left, method, right):
        if isinstance(left, np.ndarray) and observer.contents.is_one(left):
            observer.contents.rearranged(left)
        return two(operands, None)
    observer.calling(getattr(left, "update" if isinstance(left, dict) else method), right)
    return {"__iand__": left, "__imul__": 1}.get(method, type(left)()), left  # which changes nothing more


def _is_read_by_step(value: object, other: object) -> bool:
    """Whether an operand is an array that the op of a tensor takes in as state: its changes are followed."""
    return isinstance(other, Tensor) and isinstance(value, np.ndarray)


def contains(operands: tuple[Any, ...], _: None) -> Any:
    """(item, container): (container, item)."""
    part, container = operands
    observer = active.observer
    if observer is not None:
        observer.arrays.refuse("what is in it", part, () if type(container) is dict else container)
        observer.contents.asked_for(container, part)
        observer.nests.searched(container, part)
    return container, part


def identified(operands: tuple[Any, ...], _: None) -> Any:
    """(left, right) of ``is``: (right, left)."""
    observer = active.observer
    if observer is not None:
        observer.identified(*operands)
    return operands[::-1]


def matched(value: object, _: None) -> Any:
    """An object whose attributes a class pattern is about to read: itself."""
    observer = active.observer
    if observer is not None:
        observer.arrays.refuse("a pattern", value)
        if id(value) in observer.outside:
            observer.contents.instance(value)
    return value


# -- what is stored


def set_attribute(operands: tuple[Any, ...], name: str) -> None:
    """(value, object), name: stores."""
    observer = active.observer
    value, obj = operands
    if observer is None:
        setattr(obj, name, value)
    else:
        observer.arrays.refuse(f"a change of .{name}", obj)
        observer.set_attribute(obj, name, value)


def delete_attribute(obj: object, name: str) -> None:
    """object, name: deletes."""
    observer = active.observer
    if observer is None:
        delattr(obj, name)
    else:
        observer.delete_attribute(obj, name)


def set_item(operands: tuple[Any, ...], _: None) -> None:
    """(value, container, key) or (value, container, start, stop): stores."""
    value, container, *rest = operands
    key = rest[0] if len(rest) == 1 else slice(*rest)
    observer = active.observer
    if observer is None:
        container[key] = value
    else:
        key, value = observer.arrays.assigned(container, key, value)
        observer.contents.assign(container, key, value)


def delete_item(operands: tuple[Any, ...], _: None) -> None:
    """(container, key): deletes."""
    container, key = operands
    observer = active.observer
    if observer is None:
        del container[key]
    else:
        observer.contents.delete(container, key)


# -- what runs


def called(operands: tuple[Any, ...], kind: int) -> Any:
    """(callable, *arguments), kind: the same in reverse.

    Of ``kind``, UNPACKED: (callable, arguments, keywords) as they are unpacked; DROPPED: the result is not used; HELD:
    it goes into another call, perhaps as a part of a text; RETURNED: the same, or the function returns it.
    """
    observer = active.observer
    return operands[::-1] if observer is None else observer.called(operands, kind)[::-1]


def called_apart(operands: tuple[Any, tuple[Any, ...]], kind: int) -> tuple[Any, tuple[Any, ...]]:
    """(callable, arguments), for interpreters that keep something between the two."""
    *arguments, function = called((operands[0], *operands[1]), kind)
    return function, tuple(arguments)


def entered(manager: object, place: int) -> Any:
    """What a ``with`` statement is about to enter, the statement's place in the code as it was: itself."""
    observer = active.observer
    if observer is not None:
        observer.managers[id(sys._getframe(1)), place] = manager
    return manager


def began(_: None, code: CodeType) -> None:
    """Nothing, the code as it was: a function with this code begins to run. Not of functions inside it."""
    observer = active.observer
    if observer is not None:
        observer.began(code)


_functions = {k: f for k, f in globals().items() if type(f) is FunctionType and f.__module__ == __name__}
HOOKS = {name: function for name, function in _functions.items() if name[0] != "_"}
for _hook in _functions.values():
    relay(_hook)  # messages speak of the function that is read or called
