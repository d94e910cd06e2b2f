"""Which code catches an error that leaves a frame where it is now: ``except``, ``finally``, ``with``.

How to read: ``catches`` is the door. What code says by itself is found once per instruction (``_handlers``), from the
exception table of the code as the user wrote it: there are no hooks in it. The rest is asked of the frame: what the
names after ``except`` mean, and which manager a ``with`` has entered.
"""

from __future__ import annotations

import contextlib
import dis
from collections.abc import Mapping
from functools import lru_cache
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

from autojit.core.errors import AutojitError
from autojit.core.source import is_own, is_passed
from autojit.jit.instrumented_code import as_written
from autojit.jit.observed_functions import own_code
from autojit.jit.places import is_a

REFUSALS: tuple[type[BaseException], ...] = (
    AutojitError, RuntimeError, IndexError, ValueError, ArithmeticError, TypeError,
)  # fmt: skip
"""What ops raise that refuse values."""

_LOADS = frozenset({
    "LOAD_GLOBAL", "LOAD_NAME", "LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW", "LOAD_DEREF", "LOAD_CLASSDEREF",
    "LOAD_ATTR", "BUILD_TUPLE",
})  # fmt: skip
_NO_EXPRESSION = frozenset({"PUSH_EXC_INFO", "POP_TOP", "POP_EXCEPT", "RERAISE", "RAISE_VARARGS", "RETURN_VALUE"})
_ENDS = frozenset({"RERAISE", "RAISE_VARARGS", "RETURN_VALUE", "RETURN_CONST"})
_ENTERS = frozenset({"BEFORE_WITH", "LOAD_SPECIAL"})
_LOOKERS = frozenset({"exc_info", "exception", "format_exc", "print_exc"})  # of ``sys``, ``logging``, ``traceback``


class Handler(NamedTuple):
    """One clause or block that an error may come to.

    Args:
        sees_error: whether its code can look at the error.
        types: the instructions that give what it catches; None: everything.
        manager: where the ``with`` statement begins that it is the end of, or -1.
    """

    sees_error: bool
    types: tuple[tuple[str, Any], ...] | None = None
    manager: int = -1


def catches(frame: FrameType, managers: Mapping[tuple[int, int], Any]) -> bool | None:
    """None if an error that comes up in a frame now leaves it as it is; else whether the frame's code can look at it.

    Args:
        managers: what ``with`` statements have entered, by the id of their frame and the place of the statement.
    """
    found: bool | None = None
    for handler in _handlers(frame.f_code, frame.f_lasti):
        sees_error: bool | None = handler.sees_error
        if handler.manager >= 0:
            manager = managers.get((id(frame), handler.manager))
            sees_error = None if manager is None else _manager_catches(manager, managers)
        elif handler.types is not None and not _may_match(frame, handler.types):
            continue
        if sees_error is not None:
            found = sees_error or bool(found)
    return found


# -- what the code says


@lru_cache(maxsize=2048)
def _handlers(code: CodeType, instruction: int) -> tuple[Handler, ...]:
    """The handlers around an instruction, the innermost first."""
    entries = _exception_entries(code)
    number = next((k for k, e in enumerate(entries) if e.start <= instruction < e.end), None)
    if number is None:
        return ()
    written = as_written(code)  # its table has the same entries in the same order
    entries = _exception_entries(written)
    listing = list(dis.get_instructions(written))
    place_of = {i.offset: k for k, i in enumerate(listing)}
    found: list[Handler] = []
    seen: set[int] = set()
    entry = entries[number]
    while entry is not None and entry.target not in seen:
        seen.add(entry.target)
        place = place_of[entry.target]
        if listing[place].opname == "PUSH_EXC_INFO":
            if listing[place + 1].opname == "WITH_EXCEPT_START":
                start = min(e.start for e in entries if e.target == entry.target)
                entered = [i.offset for i in listing if i.opname in _ENTERS and i.offset < start]
                found.append(Handler(True, None, max(entered, default=-1)))
            else:
                found += _clauses(written, listing, place_of, place)
        entry = next((e for e in entries if e.start <= entry.target < e.end), None)
    return tuple(found)


def _exception_entries(code: CodeType) -> list[Any]:
    module: Any = dis
    found: list[Any] = module._parse_exception_table(code)
    return found


def _clauses(code: CodeType, listing: list[dis.Instruction], place_of: Mapping[int, int], place: int) -> list[Handler]:
    """The ``except`` clauses of a handler; of a ``finally`` one that catches everything, if it may end the error."""
    looks = not _LOOKERS.isdisjoint(code.co_names) or any("exc_info" in c for c in code.co_consts if type(c) is tuple)
    found: list[Handler] = []
    place += 1
    while True:
        start = place
        while listing[place].opname not in _NO_EXPRESSION and not listing[place].opname.startswith("CHECK_E"):
            place += 1
        name = listing[place].opname
        if name == "CHECK_EXC_MATCH":
            types = tuple((i.opname, i.argval) for i in listing[start:place])
            is_plain = all(opname in _LOADS for opname, _ in types)
            jump = next(i for i in listing[place:] if "JUMP" in i.opname)
            named = next(i for i in listing[place_of[jump.offset] + 1 :] if i.opname != "NOT_TAKEN")
            found.append(Handler(looks or named.opname != "POP_TOP", types if is_plain else None))
            place = place_of[jump.argval]
        elif name == "CHECK_EG_MATCH":
            return [*found, Handler(True)]
        elif name == "POP_TOP" and place == start:  # ``except:``, or a ``finally`` that returns at once
            return [*found, Handler(looks)]
        elif name == "RERAISE" and (found or place == start):
            return found
        else:
            return [Handler(True)] if _ends_error(listing, place_of, start) else found


def _ends_error(listing: list[dis.Instruction], place_of: Mapping[int, int], start: int) -> bool:
    """Whether a handler may drop its error: by ``return``, ``break`` or ``continue``, or after an ``except``."""
    stack, seen = [start], set()
    while stack:
        place = stack.pop()
        if place in seen or place >= len(listing):
            continue
        seen.add(place)
        i = listing[place]
        if i.opname == "POP_EXCEPT":
            return True
        if "JUMP" in i.opname or i.opname in ("FOR_ITER", "SEND"):
            stack.append(place_of[i.argval])
        if i.opname not in _ENDS and i.opname not in ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"):
            stack.append(place + 1)
    return False


# -- what the frame says


def _may_match(frame: FrameType, types: tuple[tuple[str, Any], ...]) -> bool:
    """Whether what follows ``except`` may be the class of what an op raises."""
    stack: list[Any] = []
    try:
        for name, argument in types:
            if name == "LOAD_ATTR":
                stack.append(getattr(stack.pop(), argument))
            elif name == "BUILD_TUPLE":
                items = [stack.pop() for _ in range(argument)]
                stack.append(tuple(items))
            else:
                stack.append(_variable(frame, argument, name))
        return _may_be_refusal(stack.pop())
    except Exception:  # the ``except`` itself would fail, or is not one that this module can read
        return True


def _variable(frame: FrameType, name: str, instruction: str) -> Any:
    if instruction != "LOAD_GLOBAL" and name in frame.f_locals:
        return frame.f_locals[name]
    return frame.f_globals[name] if name in frame.f_globals else frame.f_builtins[name]


def _may_be_refusal(kind: Any) -> bool:
    if is_a(kind, tuple):
        return any(map(_may_be_refusal, kind))
    return any(issubclass(known, kind) or issubclass(kind, known) for known in REFUSALS)


def _manager_catches(manager: object, managers: Mapping[tuple[int, int], Any]) -> bool | None:
    """``catches`` of the end of a ``with`` block."""
    if is_a(manager, contextlib.suppress):
        return False if _may_be_refusal(vars(manager)["_exceptions"]) else None
    if is_a(manager, contextlib._GeneratorContextManager):
        frame: FrameType | None = getattr(manager.gen, "gi_frame", None)
        return None if frame is None or is_own(frame.f_code) else catches(frame, managers)
    leave: Any = getattr(type(manager), "__exit__", None)
    if not is_a(leave, FunctionType) or is_own(leave.__code__):
        return None  # of what is written in C nothing drops errors
    return True if _may_end_error(own_code(leave)) else None


@lru_cache(maxsize=512)
def _may_end_error(code: CodeType) -> bool:
    """Whether an ``__exit__`` may return what is true, or raise another error."""
    listing = list(dis.get_instructions(code))
    for before, i in zip([None, *listing], listing, strict=False):
        if i.opname == "RETURN_CONST":
            if i.argval:
                return True
        elif i.opname == "RETURN_VALUE":
            if before is None or before.opname != "LOAD_CONST" or before.argval:
                return True
        elif i.opname == "RAISE_VARARGS" and not is_passed(code):
            return True
    return False
