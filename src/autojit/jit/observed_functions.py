"""Which functions report what they read while a capture runs: users' own, found through the objects that lead to them.

A function is observed by giving it the instrumented form of its code; whoever calls it (the user's code, ``vmap``, a
hook, ``sorted``) runs that form. When the last capture that observes it ends it gets its own code back. Other threads
that call it meanwhile run hooks that do nothing else than the instruction they stand for.
"""

from __future__ import annotations

import functools
import os
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from autojit.core.locks import new_lock
from autojit.core.source import is_own
from autojit.core.wrapping import own
from autojit.history.gradients import hook_tables
from autojit.jit.histories import history_of
from autojit.jit.instrumented_code import Hooks, instrumented, is_instrumented
from autojit.jit.places import defines, is_a, module_of
from autojit.runtime.object_layout import type_version
from autojit.tensor.tensor import Tensor

_STDLIB = os.path.dirname(os.__file__) + os.sep
_OBSERVED_STDLIB = frozenset(
    ("_collections_abc", "collections", "contextlib", "dataclasses", "enum", "functools", "os", "types", "weakref")
)
_LOCK = new_lock()  # of the tables below; held for no longer than one function takes
_observed: dict[int, tuple[FunctionType, CodeType, int]] = {}  # by id: function, its own code, captures that observe it
_forms: dict[int, tuple[weakref.ref[CodeType], CodeType]] = {}  # by id of the code: its instrumented form
_own_code: dict[int, CodeType] = {}  # by id of the instrumented form; as long as a function has it
MODULE_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def is_own_class(cls: type) -> bool:
    """Whether a class is autojit's own: its state is tensors, or counted in the guard epoch."""
    return module_of(cls).partition(".")[0] == "autojit"


BAGS = ("SimpleNamespace", "Namespace")  # classes of libraries whose instances are what users put there
_WITHOUT_SECRETS = frozenset((
    "re", "operator", "struct", "_struct", "functools", "types", "datetime", "decimal", "fractions", "zoneinfo",
    "argparse", "numpy", "scipy",
))  # fmt: skip


def is_module(value: object) -> bool:
    """Whether an object is an ``nn.Module``; asks its class only, for objects may answer any attribute."""
    bases = type(value).__mro__
    return any(base.__name__ == "Module" and module_of(base) == "autojit.nn.module" for base in bases)


def is_user_code(code: CodeType, names: dict[str, Any]) -> bool:
    """Whether code is the user's. Libraries are constants, unless they are written with autojit."""
    return not is_own(code) and not _is_library_file(code.co_filename, names)


def plain_function(value: object) -> FunctionType | None:
    """The Python function that something is, or is a method of."""
    plain = value.__func__ if is_a(value, MethodType) else value
    return plain if is_a(plain, FunctionType) else None


def is_users(value: object) -> bool:
    """Whether something is a function, or a method, of the user's."""
    function = plain_function(value)
    return function is not None and is_user_code(function.__code__, function.__globals__)


def may_compute(value: object) -> bool:
    """Whether something that can be called is the user's or the package's: it may compute with tensors of the step."""
    function = plain_function(value)
    if function is not None:
        return is_user_code(function.__code__, function.__globals__) or is_own(function.__code__)
    return callable(value) and (is_own_class(type(value)) or is_user_class(type(value)))


def is_user_class(cls: type) -> bool:
    """Whether a class is the user's (see ``is_user_code``)."""
    if is_own_class(cls) or cls.__flags__ & (1 << 8):  # none that Python code made is immutable
        return False
    name = module_of(cls)
    module = sys.modules.get(name)
    if module is None or name == "builtins":  # the second: made by code whose globals have no name
        return True
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return module.__name__ == "__main__" or module.__name__ not in sys.stdlib_module_names
    return not _is_library_file(file, vars(module))


def class_number(cls: type | None = None) -> int:
    """How many classes Python had counted when this one was made or changed last; without one, by now; 0: untold."""
    version = type_version(type("Newest", (), {}) if cls is None else cls)
    return 0 if version is None else int(version[0]) & 0xFFFFFFFF


def is_without_secrets(kind: type) -> bool:
    """Whether instances of a library's class keep what they know in their attributes, if anything."""
    return module_of(kind).partition(".")[0] in _WITHOUT_SECRETS


def is_user_names(table: dict[str, Any]) -> bool:
    """Whether a dictionary of globals is of code that may hide a builtin: the user's, not an observed library's."""
    file = table.get("__file__")
    return not isinstance(file, str) or not file.startswith(_STDLIB)


def is_user_module(module: ModuleType) -> bool:
    """Whether names of a module can be the user's to change."""
    root = module.__name__.partition(".")[0]
    if root == "autojit" or (root in sys.stdlib_module_names and root != "__main__"):
        return False
    file = getattr(module, "__file__", None)
    return not isinstance(file, str) or not _is_library_file(file, vars(module))


def _is_library_file(path: str, names: dict[str, Any]) -> bool:
    if path.startswith(_STDLIB) and "site-packages" not in path:
        return path[len(_STDLIB) :].partition(os.sep)[0].removesuffix(".py") not in _OBSERVED_STDLIB
    if path.startswith("<frozen"):
        return path not in ("<frozen os>", "<frozen _collections_abc>")
    return "site-packages" in path and not _uses_autojit(names)


def _uses_autojit(names: dict[str, Any]) -> bool:
    """Whether a library's module has taken something of autojit in by name."""
    for value in list(names.values()):
        source = value.__name__ if type(value) is ModuleType else getattr(type(value), "__module__", "")
        if is_a(value, type | FunctionType):
            source = value.__module__
        if is_a(source, str) and source.partition(".")[0] == "autojit":
            return True
    return False


def special_methods(cls: type) -> tuple[Any, ...]:
    """Names and functions of a class and its bases that no code of the user's names when they are called.

    Python looks up ``__call__``; autojit what one of its classes has too: ``forward``, ``backward`` of a ``Function``.
    """
    own = [base for base in cls.__mro__ if is_own_class(base)]
    found = [
        (name, member)
        for base in cls.__mro__
        if is_user_class(base)
        for name, member in vars(base).items()
        if (is_a(member, FunctionType | staticmethod | classmethod) and any(name in vars(known) for known in own))
        or (name[:2] == name[-2:] == "__" and _is_special(name, member))
    ]
    return tuple(sum(found, ()))


def _is_special(name: str, member: object) -> bool:
    """Whether Python may call what a class has under a name; None forbids it (``__hash__ = None``)."""
    return name not in _TOLD and (member is None or callable(member) or defines(type(member), "__get__"))


_TOLD = frozenset(("__doc__", "__dict__", "__weakref__", "__class__", "__annotate__", "__annotate_func__"))


class ObservedFunctions:
    """The functions that one capture observes. ``met``: told of every object that is looked into."""

    def __init__(self, hooks: Hooks) -> None:
        self.hooks = hooks
        self.functions: list[FunctionType] = []
        self._with_code: dict[int, list[FunctionType]] = {}  # by id of their own code: the same functions
        self._seen: set[int] = set()
        self._kept: list[Any] = []

    # -- from objects to functions

    def behind(self, value: object, met: Callable[[Any], None]) -> None:
        """Observe the functions that using ``value`` may run; ``met`` gets the objects that they begin with."""
        waiting = [value]
        while waiting:
            value = waiting.pop()
            if id(value) in self._seen:
                continue
            self._seen.add(id(value))
            self._kept.append(value)
            for part in self._parts(value):
                met(part)
                waiting.append(part)

    def _parts(self, value: Any) -> Iterator[Any]:
        """What an object leads to."""
        kind = type(value)
        if kind is FunctionType:
            yield from self._function(value)
        elif kind is MethodType:
            yield from (value.__func__, value.__self__)
        elif is_a(value, functools.partial):
            yield from (value.func, *value.args, *value.keywords.values())
        elif is_a(value, staticmethod | classmethod):
            yield value.__func__
        elif is_a(value, property):
            yield from (f for f in (value.fget, value.fset, value.fdel) if f is not None)
        elif is_a(value, type):
            yield from self._class(value)
        elif is_a(value, Tensor):
            tables = [*hook_tables(value), *(table for node in history_of([value]) for table in node.hook_tables())]
            yield from (hook for table in tables if table for hook in table.values())
            if is_user_class(kind):
                yield kind
        elif is_module(value):
            yield from self._module(value)
        elif kind.__name__ == "JitFunction" and is_own_class(kind):  # its function is inlined
            yield value.function
        elif not is_a(value, ModuleType):
            yield kind
            yield from self._of_library(value)

    def _function(self, function: FunctionType) -> Iterator[Any]:
        if is_user_code(function.__code__, function.__globals__):
            self._observe(function)
        else:  # a decorator's: what it wraps is in its cells
            for cell in function.__closure__ or ():
                try:
                    content = cell.cell_contents
                except ValueError:
                    continue
                if _leads_on(content):
                    yield content
        if hasattr(function, "__wrapped__"):
            yield function.__wrapped__

    def _class(self, cls: type) -> Iterator[Any]:
        for base in cls.__mro__:
            if is_user_class(base):
                for member in list(vars(base).values()):
                    if not is_a(member, type) and defines(type(member), "__get__"):
                        yield member
        if type(cls) is not type:
            yield type(cls)

    def _module(self, module: Any) -> Iterator[Any]:
        for part in module.modules():
            yield type(part)
            table = vars(part)
            for kind in MODULE_HOOKS:
                yield from (hook[0] if is_a(hook, tuple) else hook for hook in table.get(kind, {}).values())
            for _, hook in part._hooks_of_all.values():
                yield hook[0] if type(hook) is tuple else hook
            forward = table.get("forward")
            if forward is not None:
                yield forward
            for p in part._parameters.values():
                if p is not None and any(hook_tables(p)):
                    yield p

    def _of_library(self, value: Any) -> Iterator[Any]:
        """Callables that an object of a library (autojit's, or one in C) keeps."""
        wrapped = type(value).__wrapped__ if defines(type(value), "__wrapped__") else None
        if module_of(type(value)) == "functools":
            wrapped = own(value, "__wrapped__", None) or own(value, "func", None)
        if wrapped is not None and _leads_on(wrapped):
            yield wrapped
        module = module_of(type(value))
        if is_own_class(type(value)) and not module.startswith("autojit.numba_ops"):  # whose functions others compile
            for part in (*getattr(value, "__dict__", {}).values(), *getattr(type(value), "_hooks_of_all", ())):
                several = list(part.values()) if is_a(part, dict) else part if is_a(part, list | tuple) else (part,)
                yield from (one for one in several if _leads_on(one))

    # -- their code

    @staticmethod
    def is_made_inside(function: FunctionType) -> bool:
        """Whether observed code made a function: it reports by itself, and what it encloses is the step's own."""
        return id(function) not in _observed and is_instrumented(function.__code__)

    def _observe(self, function: FunctionType) -> None:
        with _LOCK:
            known = _observed.get(id(function))
            if known is not None:
                _observed[id(function)] = (*known[:2], known[2] + 1)
            elif is_instrumented(function.__code__):
                return  # made by observed code
            else:
                own = function.__code__
                form = _form(own, self.hooks)
                _observed[id(function)] = function, own, 1
                _own_code[id(form)] = own
                function.__code__ = form
            self._with_code.setdefault(id(_observed[id(function)][1]), []).append(function)
        self.functions.append(function)

    def with_code(self, code: CodeType) -> Sequence[FunctionType]:
        """The functions that may be running when their code, as it was, is said to begin."""
        return self._with_code.get(id(code), ())

    def release(self) -> None:
        """Give the functions their own code back, where no other capture observes them."""
        with _LOCK:
            for function in self.functions:
                _, own, count = _observed[id(function)]
                if count > 1:
                    _observed[id(function)] = function, own, count - 1
                    continue
                del _observed[id(function)]
                if _own_code.get(id(function.__code__)) is own:
                    function.__code__ = own
        self.functions.clear()
        self._with_code.clear()


def own_code(function: FunctionType) -> CodeType:
    """A function's code as the user wrote it, observed or not."""
    return _own_code.get(id(function.__code__), function.__code__)


def _form(code: CodeType, hooks: Hooks) -> CodeType:
    known = _forms.get(id(code))
    if known is not None and known[0]() is code:
        return known[1]
    form = instrumented(code, hooks)
    key = id(code)

    def drop(_: object) -> None:
        known = _forms.pop(key, None)
        if known is not None:
            _own_code.pop(id(known[1]), None)

    _forms[key] = weakref.ref(code, drop), form
    return form


def _leads_on(value: object) -> bool:
    """Whether an object may have users' functions behind it: callables, modules, nests of them are looked into."""
    return callable(value) and not is_a(value, Tensor)
