"""What somebody puts in the place of autojit's own code: ``F.relu = f``, ``nn.ReLU.forward = f``, ``Tensor.mean = f``.

Code of the package is not observed, so nobody sees it look its own names up. Instead its modules count what is assigned
to names that they have, which is one of the switches that every capture guards; its classes are guarded by the words
that Python keeps of their versions, and by meaning through the functions in them. What has been put there is the
user's, and observed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, partial
from operator import attrgetter, is_, itemgetter
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from autojit.core.epoch import note_switch
from autojit.core.wrapping import own
from autojit.jit.guards import WordsGuard
from autojit.jit.observed_functions import is_own_class, is_users
from autojit.jit.traced_math import untraced
from autojit.runtime.entry_spec import MISSING, DictGuard
from autojit.runtime.object_layout import type_version

if TYPE_CHECKING:
    from autojit.jit.observed_objects import ObservedObjects

_CODE = object()  # the key of "the functions in a class"
_SWITCH = "what autojit's modules hold"
Place = tuple[str, str]  # a module's name, and a name in it
_put: dict[Place, Any] = {}  # what is in the place of something now
_first: dict[Place, Any] = {}  # what was there


class _Module(ModuleType):
    """A module of the package; reading from it is as before."""

    def __setattr__(self, name: str, value: object) -> None:
        _note(self, name, value)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        _note(self, name, MISSING)
        super().__delattr__(name)


def _note(module: ModuleType, name: str, value: object) -> None:
    held, place = vars(module).get(name, MISSING), (module.__name__, name)
    if held is MISSING or held is value or name.startswith("_"):
        return  # modules are given new names as they are imported; private ones are nobody's to replace
    if _first.setdefault(place, held) is value:
        _put.pop(place, None)
    else:
        _put[place] = value
    note_switch(_SWITCH, tuple(sorted(_put.items(), key=itemgetter(0))), (), _set)


def _set(wanted: tuple[tuple[Place, Any], ...]) -> None:
    for place in {**_put, **dict(wanted)}:
        setattr(sys.modules[place[0]], place[1], dict(wanted).get(place, _first[place]))


_watched = 0  # how many modules there were when they were looked through


def watch(observer: ObservedObjects) -> None:
    """From now on assignments to names of the package are seen; what has been assigned is observed."""
    global _watched
    if len(sys.modules) != _watched:
        _watched = len(sys.modules)
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] == "autojit" and type(module) is ModuleType:
                module.__class__ = _Module
    for (_, name), value in list(_put.items()):
        if callable(value):
            observer.enter(value, name)


def note_name(observer: ObservedObjects, module: ModuleType, name: str, where: str) -> None:
    """Guard what a library's module holds under a name; the package's own modules count what is assigned."""
    if module.__name__.partition(".")[0] != "autojit":
        table, read = vars(module), partial(untraced, module, name)
        observer.note(table, name, where, read, read(), DictGuard(table, name, read()))


def note_class(observer: ObservedObjects, cls: type) -> None:
    """Guard the code that the package gives a class, which may be a user's class made from one of its own."""
    is_plain = type(cls).__hash__ is type.__hash__  # else a metaclass says which classes are one, or have no hash
    found = _first_own(cls) if is_plain else _first_own.__wrapped__(cls)
    if found is None or (id(found), _CODE) in observer.places_read:
        return
    read: Callable[[], Any] = lambda: _code_in(found)
    version = _version(found)  # before what it tells of, which may change meanwhile
    held = read()
    observer.note(found, _CODE, f"code of {found.__name__}", read, held, WordsGuard(found, type_version))
    for function in _users_among(found, version, held):
        observer.enter(function, function.__name__)


@cache
def _first_own(cls: type) -> type | None:
    is_module = issubclass(cls, ModuleType)  # which counts what is assigned
    return None if is_module else next((base for base in cls.__mro__ if is_own_class(base)), None)


class _PackagesOwn(NamedTuple):
    """What a class held at a version of it at which no function in it was a user's; and their code, which may change.

    There are a thousand functions in ``Tensor``; every capture asks, some twice.
    """

    version: int
    held: tuple[Any, ...]
    functions: tuple[FunctionType, ...]
    code: tuple[CodeType, ...]


_code_of = attrgetter("__code__")
_packages_own: dict[type, _PackagesOwn] = {}


def _version(cls: type) -> int:
    """A number that no class has had before, nor this one with something else in it; 0: untold."""
    words = type_version(cls)
    return 0 if words is None else int(words[0])


def _code_in(cls: type) -> tuple[Any, ...]:
    """The functions and descriptors in a class and its bases, and what has a public name there."""
    known = _packages_own.get(cls)
    if known is not None and known.version == _version(cls):
        return known.held
    items = [item for base in cls.__mro__[:-1] for item in vars(base).items()]
    return tuple([value for name, value in items if name[0] != "_" or hasattr(type(value), "__get__")])


def _users_among(cls: type, version: int, held: tuple[Any, ...]) -> list[Any]:
    """The users' functions in what a class holds."""
    known = _packages_own.get(cls)
    if known is not None and known.held is held and all(map(is_, map(_code_of, known.functions), known.code)):
        return []
    functions = [own(value, "__func__", value) for value in held]
    found = [function for function in functions if is_users(function)]
    if version and not found:  # a user's function is not kept
        plain = tuple([function for function in functions if type(function) is FunctionType])
        _packages_own[cls] = _PackagesOwn(version, held, plain, tuple(map(_code_of, plain)))
    return found
