"""Calls of libraries' functions, which cannot be observed: what they read and change outside is not seen.

A call belongs to one of three kinds, decided by what is called and with what:

| call | when it happens |
|---|---|
| gives what follows from its arguments (``math``, NumPy), or is about tensors | in the capture, as a part of the step |
| is made for its effect: its result is not used | *deferred*: after every run, with the values of that run |
| reads something: its result is used | *drawn*: before every run; what it gives is an argument of the step |

So nothing that a library reads from files, queues, threads or the process is frozen, and nothing that it writes lost.
Calls of a step that reads a library's object after it has changed it run line by line: the change would come too late.
"""

from __future__ import annotations

import decimal
import io
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from types import BuiltinFunctionType, FrameType, FunctionType, MethodType, MethodWrapperType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.source import here, is_own
from autojit.core.wrapping import own
from autojit.jit.contents import CONTAINERS
from autojit.jit.guards import PRIMITIVES, is_value
from autojit.jit.late_values import as_it_is
from autojit.jit.observed_functions import is_own_class, is_user_class, is_without_secrets, may_compute
from autojit.jit.places import attributes_of, defines, is_a, module_of, static_attribute
from autojit.jit.pytree import flatten
from autojit.jit.told_warnings import ToldWarnings, issue
from autojit.jit.traced_number import TracedNumber
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor

if TYPE_CHECKING:
    from autojit.jit.observer import Observer


class ForeignCalls:
    """The calls of libraries' functions in one capture."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self.warnings = ToldWarnings(observer)
        self._changed: dict[int, tuple[Any, Any]] = {}  # by id: what a deferred call is about, and where it was met

    def replacement(
        self, function: Callable[..., Any], arguments: Sequence[Any], is_statement: bool
    ) -> Callable[..., Any] | None:
        """What is called instead of a library's function; None: the function itself, now."""
        if function is warnings.warn and not self.observer.is_at_once:
            return self.warnings.warn
        trace: Any = state.trace
        if trace is not None and (function is np.shares_memory or function is np.may_share_memory):
            trace.note_memory_asked()
        owner = _owner(function)
        if _runs_elsewhere(owner):
            self.observer.refuse(f"the step runs functions in other threads or processes ({here()})")
        opaque = [part for part in (owner, *arguments) if self.is_opaque(part)]
        if self.is_container_of_step(owner) or (not opaque and (_is_pure(function) or self._is_of_step(owner))):
            return None
        leaves, _ = flatten(list(arguments))
        if any(is_a(leaf, partial) or may_compute(leaf) for leaf in leaves):  # the call is part of the step
            return None
        is_of_tensors = any(is_a(leaf, Tensor | TracedNumber) for leaf in leaves)
        if is_statement and not is_a(owner, Tensor):
            if self.observer.is_at_once:
                return None
            if str(own(function, "__module__", "")).partition(".")[0] in ("logging", "_warnings", "warnings"):
                # it writes only: no step asks a log or a warning what is in it
                return partial(self.defer_log, function)
            for part in opaque or [_SYSTEM]:
                self.note_change(part)
            return partial(self.defer, function)
        if is_of_tensors or is_a(owner, Tensor):
            return None
        for part in opaque or [_SYSTEM]:
            self.refuse_if_changed(part)
        return partial(self._read, function)

    def note_change(self, obj: object) -> None:
        """A deferred call changes an object, which the step cannot read any more."""
        self._changed.setdefault(id(obj), (obj, here()))

    def has_changed(self, obj: object) -> bool:
        """Whether a deferred call changes an object."""
        return id(obj) in self._changed

    def refuse_if_changed(self, obj: object) -> None:
        """End the capture if a deferred call changes an object that is about to be read: it is made after the step."""
        known = self._changed.get(id(obj))
        if known is not None:
            name = self.observer.name_of(obj)
            self.observer.refuse(f"{name} is read at {here()} and changed at {known[1]}")

    def refuse_attribute(self, obj: object, name: str) -> None:
        """``refuse_if_changed`` for an attribute; a method is no question yet, it may be a second thing to be told."""
        if id(obj) not in self._changed:
            return
        member = static_attribute(type(obj), name)
        if self.is_opaque(obj):  # its methods are looked at when they are called
            is_method = type(member) in _METHODS and name not in (attributes_of(obj) or ())
        else:
            is_method = own(member, "is_made_later", False) or own(member, "reads_parameters_alone", False)
        if not is_method:
            self.refuse_if_changed(obj)

    def is_opaque(self, value: object) -> bool:
        """Whether an object from outside keeps what cannot be seen: of a library's class, and no container."""
        kind = type(value)
        if id(value) not in self.observer.outside or kind in CONTAINERS or is_value(value):
            return False
        if is_a(value, (*_SEEN_THROUGH, *CONTAINERS)) or is_own_class(kind):
            return False
        if is_user_class(kind):
            return any(map(_is_of_c, kind.__mro__[:-1]))
        return not is_without_secrets(kind) or defines(kind, "__next__") or is_a(value, decimal.Context)

    def _is_of_step(self, owner: object) -> bool:
        """Whether a method's object was made by the step; those that stand for a file or a place on disk are hidden."""
        if owner is None or is_a(owner, ModuleType | type) or id(owner) in self.observer.outside:
            return False
        return is_a(owner, io.StringIO | io.BytesIO) or module_of(type(owner)).partition(".")[0] not in _OF_THE_SYSTEM

    def is_container_of_step(self, owner: object) -> bool:
        """Whether a method's object is a list or the like made by the step, which holds what it is given."""
        return type(owner) in CONTAINERS and id(owner) not in self.observer.outside

    def defer(self, function: Callable[..., Any], *args: object, **kwargs: object) -> None:
        """Make the call after every run. Objects go to the call as they are: the step knows nothing of them."""
        held = {k: _Held(v) for k, v in kwargs.items() if self.is_opaque(v)}
        given = (_Held(value) if self.is_opaque(value) else value for value in args)
        self.observer.defer(partial(_call, function), *given, **{**kwargs, **held})

    def defer_log(self, function: Callable[..., Any], *args: object, **kwargs: Any) -> None:
        """``defer``, of a call that writes texts of tensors as they are now, from the line where it is."""
        trace: Any = state.trace
        is_of_now = kwargs.get("exc_info") or kwargs.get("stack_info") or own(function, "__name__", "") == "exception"
        if is_of_now and trace is not None:
            trace.note_uncompiled("an error or a stack is logged")
        given = [as_it_is(value, self.observer.outside) for value in args]
        if own(function, "__module__", "") == "logging":
            function = _from_frames(function, kwargs.get("stacklevel", 1))
        self.defer(function, *given, **kwargs)

    def _read(self, function: Callable[..., Any], *args: object, **kwargs: object) -> Any:
        return self.observer.enter(self.observer.draw_unless_of_tensors(function, *args, **kwargs))


def _is_of_c(base: type) -> bool:
    """Whether instances of a class that is written in C have more than their attributes."""
    is_in_c = bool(base.__flags__ & 1 << 8) or not base.__flags__ & 1 << 9  # immutable, or not made while running
    return is_in_c and base.__basicsize__ > object.__basicsize__


class _Held:
    """An object that a step hands on without looking at it."""

    def __init__(self, value: object) -> None:
        self.value = value


def _call(function: Callable[..., Any], *args: object, **kwargs: object) -> None:
    given = (value.value if type(value) is _Held else value for value in args)
    function(*given, **{k: value.value if type(value) is _Held else value for k, value in kwargs.items()})


TELLING = (print, _call, issue)
"""Functions, perhaps in a ``partial``, of deferred calls that write or tell and leave the step's own objects alone."""


class _System:
    """What functions of modules read and change: files, the process, the interpreter."""


_SYSTEM = _System()
_METHODS = (FunctionType, type(list.append), type(object.__init__))
_SEEN_THROUGH = (
    *PRIMITIVES, Tensor, np.ndarray, np.generic, np.dtype, np.ufunc, type, ModuleType, FunctionType, MethodType,
    BuiltinFunctionType, MethodWrapperType, range, slice, type(Ellipsis), type(NotImplemented), BaseException,
    type(list.append), type(object.__init__), partial, property, staticmethod, classmethod,
)  # fmt: skip
_OF_THE_SYSTEM = frozenset(("pathlib", "_io", "io", "_socket", "socket", "subprocess", "tempfile", "shelve", "sqlite3"))
_PURE = frozenset((
    "builtins", "math", "cmath", "operator", "_operator", "itertools", "functools", "_functools", "collections",
    "_collections", "_collections_abc", "copy", "copyreg", "re", "_sre", "sre_compile", "struct", "_struct", "string",
    "_string", "json", "_json", "statistics", "dataclasses", "types", "typing", "typing_extensions", "enum", "abc",
    "_abc", "contextlib", "fractions", "numbers", "decimal", "_decimal", "_pydecimal", "bisect", "_bisect", "heapq",
    "_heapq", "textwrap", "pprint", "reprlib", "inspect", "ast", "base64", "binascii", "hashlib", "_hashlib", "hmac",
    "zlib", "html", "unicodedata", "keyword", "pickle", "_pickle", "array", "weakref", "_weakref", "datetime",
    "_datetime", "zoneinfo", "calendar", "difflib", "posixpath", "ntpath", "graphlib", "colorsys", "traceback",
    "linecache", "contextvars", "_contextvars", "urllib", "ipaddress", "pdb", "bdb", "sre_parse", "codecs", "_codecs",
    "locale", "numpy", "scipy", "ml_dtypes", "numba", "llvmlite", "einops", "opt_einsum", "jaxtyping", "beartype",
    "pytest", "_pytest", "unittest", "hypothesis", "absl", "attr", "attrs", "pydantic", "optree", "mpmath", "sympy",
    "networkx",
))  # fmt: skip
"""Libraries whose functions give what follows from their arguments (except for those below), or belong to tests."""
_IMPURE = frozenset((
    "load", "loadtxt", "genfromtxt", "fromfile", "fromregex", "memmap", "open_memmap", "save", "savez",
    "savez_compressed", "savetxt", "geterr", "seterr", "geterrcall", "seterrcall", "setbufsize", "getbufsize",
    "get_printoptions", "set_printoptions", "tofile", "dump", "getcontext", "setcontext", "realpath", "abspath",
    "ismount", "lexists", "expanduser", "expandvars", "setlocale", "getlocale", "localeconv", "urlopen", "urlretrieve",
    "getline", "rvs", "copy_context",
))  # fmt: skip


_TAKES_DIGITS = frozenset(
    ("json", "_json", "fractions", "decimal", "_decimal", "pickle", "_pickle", "marshal", "datetime", "_datetime")
)


def takes_digits(function: object, arguments: Sequence[Any]) -> bool:
    """Whether a library asks numbers of the step among the arguments for their type, and takes no others."""
    owner = _owner(function)
    holder = function if owner is None else type(owner)
    root = str(own(holder, "__module__", None) or own(own(function, "__self__", None), "__name__", "")).partition(".")[
        0
    ]
    return root in _TAKES_DIGITS and any(is_a(leaf, TracedNumber) for leaf in flatten(list(arguments))[0])


def _owner(function: object) -> Any:
    """The object whose method a function is; None of a module's or a plain one."""
    owner = own(function, "__self__", None) if is_a(function, _BOUND) else None
    if owner is None and not is_a(function, (FunctionType, type, *_BOUND, _CYTHONS)):
        return function  # an object that can be called
    return None if is_a(owner, ModuleType) else owner


_BOUND = (BuiltinFunctionType, MethodType, MethodWrapperType)
_CYTHONS: type = type(np.random.default_rng)  # of functions that Cython has compiled


def _runs_elsewhere(owner: object) -> bool:
    """Whether an object runs functions where nobody follows them: a thread, a pool of threads or processes."""
    return any(f"{module_of(base)}.{base.__name__}" in _ELSEWHERE for base in type(owner).__mro__)


_ELSEWHERE = ("threading.Thread", "concurrent.futures._base.Executor", "multiprocessing.pool.Pool")


def _is_pure(function: object) -> bool:
    name = own(function, "__name__", "")
    owner = _owner(function)
    holder = function if owner is None else owner if is_a(owner, type) else type(owner)
    module = own(holder, "__module__", None)
    if not isinstance(module, str):
        module = str(own(own(function, "__self__", None), "__name__", ""))
    root = module.partition(".")[0]
    if root == "warnings":  # what its other functions set counts for the rest of the capture
        return name not in ("warn", "warn_explicit")
    return root == "autojit" or (root in _PURE and name not in _IMPURE)


def _from_frames(function: object, count: int) -> Any:
    """A function of ``logging``, which asks its callers for their lines: called by others that give the same."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and count > 0:
        code = frame.f_code
        if not is_own(code):
            made = _calling.__code__.replace(co_firstlineno=frame.f_lineno - 1, co_filename=code.co_filename)
            made = made.replace(co_name=code.co_name, co_qualname=code.co_qualname)
            function, count = partial(FunctionType(made, {}), function), count - 1
        frame = frame.f_back
    return function


def _calling(function: Callable[..., Any], *args: object, **kwargs: object) -> Any:
    return function(*args, **kwargs)
