"""torch's override protocol: classes with ``__torch_function__`` and modes see the calls of public functions.

Functions cost nothing for it. When the first class that overrides is defined, the first mode is entered, or the first
call fails over an operand that overrides, `install` gives every public function another code, which looks at operands
and modes first. The function objects stay the same, so tables that a program has made of them (``{aj.mean: ...}``)
hold, and whoever imported a function has the one that looks. Installing imports what is imported when it is first used,
0.5 s; after it a call takes 1 us more.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from types import CodeType, FunctionType
from typing import Any

from autojit.core.locks import new_lock
from autojit.core.source import relay
from autojit.tensor.tensor import Tensor


class _Thread(threading.local):
    """The modes that a thread is in, innermost last, and whether operands' classes are asked."""

    def __init__(self) -> None:
        self.modes: list[Any] = []
        self.asks_classes = True


thread = _Thread()
sources: list[Callable[[], Iterable[tuple[FunctionType, Any]]]] = []
"""What gives every public function, and the one that is told of in its place: set by ``public_functions``."""
_public: dict[int, Any] = {}  # by the id of what a public function or one that it wraps is: the public one
_looking: set[int] = set()
_before: list[tuple[FunctionType, CodeType]] = []  # the functions that look, and the code that they had
_kinds: dict[type, bool] = {type(None): False, int: False, float: False, str: False, bool: False}
_lock = new_lock()


def disabled(cls: type, func: Callable[..., Any], types: object, args: Any = (), kwargs: Any = None) -> Any:
    """The ``__torch_function__`` of classes that override nothing, such as Parameter."""
    raise TypeError("__torch_function__ of this class is disabled")


def overrides(kind: type) -> bool:
    """Whether a class wants to see calls: it has a ``__torch_function__`` of its own."""
    known = _kinds.get(kind)
    if known is None:
        found = getattr(kind, "__torch_function__", None)
        known = found is not None and found is not disabled and getattr(found, "__func__", found) is not _default
        if issubclass(kind, type):
            return known  # classes of classes are many
        _kinds[kind] = known
    return known


def overriding(given: Iterable[Any]) -> list[Any]:
    """The operands whose classes are asked, one of each class: subclasses first, otherwise from left to right."""
    found: list[Any] = []
    for value in given:
        kind = type(value)
        if kind is list or kind is tuple:
            for item in value:
                if overrides(type(item)):
                    _sort_in(found, item)
        elif overrides(kind):
            _sort_in(found, value)
    return found


def _sort_in(found: list[Any], value: Any) -> None:
    kind = type(value)
    if all(type(other) is not kind for other in found):
        place = next((k for k, other in enumerate(found) if issubclass(kind, type(other))), len(found))
        found.insert(place, value)


def told(public: Any, asked: Sequence[Any], arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """What the innermost mode, or the first of the classes that does not decline, makes of a call.

    Raises:
        TypeError: all of them declined.
    """
    kinds = tuple(type(value) for value in asked)
    if len(arguments) == 2 and isinstance(arguments[1], list | tuple) and getattr(public, "__name__", "") == "einsum":
        arguments = (arguments[0], *arguments[1])  # as in torch: the operands one by one, however they were given
    modes = thread.modes
    if modes:
        mode = modes.pop()
        try:
            result = mode.__torch_function__(public, kinds, tuple(arguments), dict(options))
        finally:
            modes.append(mode)
        if result is not NotImplemented:
            return result
    for value in asked:
        result = type(value).__torch_function__(public, kinds, tuple(arguments), dict(options))
        if result is not NotImplemented:
            return result
    name = name_of(public)
    beside = f" nor was it found on the currently active mode {modes[-1]}" if modes else ""
    raise TypeError(
        f"no implementation found for '{name}' on types that implement __torch_function__: {list(kinds)}{beside}"
    )


def name_of(public: Any) -> str:
    """``module.function``, or ``autojit.Tensor.T.__get__`` for what reads or writes a property."""
    owner = getattr(public, "__self__", None)
    if isinstance(owner, property):
        found = next((name for name, value in vars(Tensor).items() if value is owner), "?")
        return f"autojit.Tensor.{found}.{public.__name__}"
    return f"{public.__module__}.{public.__qualname__}"


class _Looking:
    """What a public function does once overrides are looked for."""

    __slots__ = ("original", "public")

    def __init__(self, original: Callable[..., Any], public: Any) -> None:
        self.original = original
        self.public = public

    def __call__(self, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        now = thread.__dict__
        if now["modes"]:
            asked = overriding((*arguments, *options.values())) if now["asks_classes"] else []
            return told(self.public, asked, arguments, options)
        if now["asks_classes"]:
            asked = overriding((*arguments, *options.values()) if options else arguments)
            if asked:
                return told(self.public, asked, arguments, options)
        return self.original(*arguments, **options)


class _Accessing(_Looking):
    """The same for what reads or writes a property: told of where a program does it, not where autojit's code does."""

    __slots__ = ()

    def __call__(self, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        now = thread.__dict__
        if now["modes"] or (now["asks_classes"] and overrides(type(arguments[0]))):
            module = sys._getframe(2).f_globals.get("__name__", "")
            if not module.startswith("autojit.") or module in _PASSING_ON:
                return super().__call__(arguments, options)
        return self.original(*arguments)


_PASSING_ON = (__name__, "autojit.overrides")
"""Modules that call what they were told of."""

_TEXT = """
def of({names}):
    def overridable(*_given, **_named):
        _looking = 0.5
        return _looking(_given, _named)
        {names}
    return overridable
"""


@cache
def _template(names: tuple[str, ...]) -> CodeType:
    """Code that calls a `_Looking`, which stands in it as 0.5, of a function that has these free variables.

    It has to name them: a frame whose code has cells that nothing was put in ends the process when it is looked at.
    """
    made: dict[str, Any] = {}
    exec(compile(_TEXT.format(names=", ".join(names)), __file__, "exec"), made)
    found = made["of"](*names)
    relay(found)
    code: CodeType = found.__code__
    return code


def _code(looking: _Looking, before: CodeType) -> CodeType:
    """Code that calls ``looking``, for a function that had another."""
    code = _template(before.co_freevars)
    constants = tuple(looking if value == 0.5 else value for value in code.co_consts)
    return code.replace(co_consts=constants, co_name=before.co_name, co_qualname=before.co_qualname)


relay(_Looking.__call__)
relay(_Accessing.__call__)


def _look(function: FunctionType, public: Any) -> None:
    """Let a function look for overrides, if it does not yet."""
    if id(function) in _looking:
        return
    _looking.add(id(function))
    before = function.__code__
    original = FunctionType(
        before, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    original.__kwdefaults__ = function.__kwdefaults__
    original.__annotations__ = function.__annotations__
    original.__dict__.update(function.__dict__)
    original.__module__, original.__qualname__ = function.__module__, function.__qualname__
    _before.append((function, before))
    kind = _Looking if isinstance(public, FunctionType) else _Accessing
    function.__code__ = _code(kind(original, public), before)
    if not hasattr(function, "__wrapped__"):
        function.__dict__["__wrapped__"] = original  # which has the signature
    inner: Any = function
    while inner is not None:
        _public.setdefault(id(inner), public)
        inner = getattr(inner, "__wrapped__", None)


_is_installed = False


def install() -> None:
    """Let every public function look for overrides from now on; the first call takes a moment."""
    global _is_installed
    if _is_installed:
        return
    with _lock:
        if not _is_installed:
            for function, shown in sources[0]():
                _look(function, shown)
            _is_installed = True


def uninstall() -> None:
    """Give the functions back the code that they had: for tests, after which others are to find them as they were."""
    global _is_installed
    with _lock:
        for function, code in _before:
            function.__code__ = code
        _before.clear()
        _public.clear()
        _looking.clear()
        _is_installed = False


def overridden(function: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> tuple[Any] | None:
    """What a class makes of a failed call of an operand that is no tensor but overrides; None: there is none."""
    asked = overriding((*arguments, *options.values())) if thread.asks_classes else []
    if all(isinstance(value, Tensor) for value in asked):
        return None
    install()
    public = _public.get(id(function))
    return None if public is None else (told(public, asked, arguments, options),)


class DisableTorchFunctionSubclass:
    """Inside, operands' classes are not asked; modes are."""

    def __enter__(self) -> None:
        self._before = thread.asks_classes
        thread.asks_classes = False

    def __exit__(self, *error: object) -> None:
        thread.asks_classes = self._before


class DisableTorchFunction(DisableTorchFunctionSubclass):
    """Inside, neither operands' classes nor modes are asked."""

    def __enter__(self) -> None:
        super().__enter__()
        self._modes, thread.modes = thread.modes, []

    def __exit__(self, *error: object) -> None:
        super().__exit__()
        thread.modes = self._modes


def _converted(result: Any, cls: type[Tensor]) -> Any:
    if isinstance(result, Tensor):
        return result if isinstance(result, cls) else result.as_subclass(cls)
    if isinstance(result, tuple | list):
        parts = [_converted(part, cls) for part in result]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    return result


def _default(cls: type[Tensor], func: Any, types: Iterable[type], args: Any = (), kwargs: Any = None) -> Any:
    """Call the function as if no class overrode it; tensors that it gives are of class ``cls``."""
    if not all(issubclass(cls, kind) for kind in types):
        return NotImplemented
    before, thread.asks_classes = thread.asks_classes, False
    try:
        result = func(*args, **(kwargs or {}))
    finally:
        thread.asks_classes = before
    return result if cls is Tensor or func in unwrapped() else _converted(result, cls)


@cache
def unwrapped() -> frozenset[Any]:
    """What gives a subclass the tensors that it has kept, as they are."""
    kept = vars(Tensor)
    return frozenset((kept["grad"].__get__, kept["_base"].__get__))


def _subclassed(cls: type[Tensor], /, **options: Any) -> None:
    super(Tensor, cls).__init_subclass__(**options)
    if sources and overrides(cls):  # no class of autojit's own
        install()


METHODS: dict[str, Any] = {
    "__torch_function__": classmethod(_default),
    "__init_subclass__": classmethod(_subclassed),
}
