"""Compiled methods: each object has steps of its own, found by its identity and kept outside of it.

An object shows nothing of them: not in ``vars``, in copies, in pickles or in comparisons. But the steps lead to the
object, whose attributes they work on, so a table of them would keep it alive for ever. So while the collector looks for
what is unreachable, and only then, the object itself holds its steps: they go when it goes. Objects without attributes,
or that cannot be weakly referenced, cannot be asked: of these the last ones are kept.
"""

from __future__ import annotations

import functools
import gc
import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from autojit.core.config import config
from autojit.core.late_interrupts import late_interrupts
from autojit.core.locks import new_lock
from autojit.jit.places import attributes_of

if TYPE_CHECKING:
    from autojit.jit.function import JitFunction

MOST_UNASKED = 512  # objects that cannot be asked, of one method


class Methods:
    """The compiled methods of the objects that one jitted function of a class was called on."""

    def __init__(self, whole: JitFunction) -> None:
        self._whole = whole
        self.kept: dict[int, tuple[Any, JitFunction]] = {}  # by id: objects, and their compiled methods
        self._lock = new_lock()

    def of(self, instance: object, owner: type | None) -> JitFunction:
        """The compiled method of an object that has none yet."""
        whole = self._whole
        made = whole.of(whole.function.__get__(instance, owner))
        if config.disable:
            return made
        with self._lock:  # another thread that collects may have lent them out
            found = self.kept.setdefault(id(instance), (instance, made))[1]
            if len(self.kept) > MOST_UNASKED and not _can_be_asked(instance):
                unasked = [key for key, (obj, _) in self.kept.items() if not _can_be_asked(obj)]
                for key in unasked[:-MOST_UNASKED]:
                    del self.kept[key]
        _all.add(self)
        return found

    def lend(self) -> Lent | None:
        """Let objects hold their steps themselves, and nobody else; None while another thread looks for some."""
        if not self._lock.acquire(blocking=False):
            return None
        lent = Lent(weakref.ref(self), self._lock, f"_jit_steps_{id(self)}", [])
        for key, (obj, made) in tuple(self.kept.items()):
            table = attributes_of(obj) if _can_be_asked(obj) else None
            if table is not None:
                dict.__setitem__(table, lent.name, made)
                lent.objects.append(weakref.ref(obj))
                del self.kept[key]
        return lent


class Lent(NamedTuple):
    """What objects hold while the collector runs, under which name."""

    methods: weakref.ref[Methods]
    lock: Any
    name: str
    objects: list[weakref.ref[Any]]

    def take_back(self) -> None:
        """The collector has run: the objects that are left hold nothing any more."""
        methods = self.methods()
        for ref in self.objects:
            obj = ref()
            if obj is not None:
                made = dict.pop(attributes_of(obj) or {}, self.name, None)
                if made is not None and methods is not None:
                    methods.kept.setdefault(id(obj), (obj, made))
        self.lock.release()


_all: weakref.WeakSet[Methods] = weakref.WeakSet()
_lent: list[Lent] = []
_FULL = 2 if sys.version_info < (3, 14) else 1


def _around_collections(phase: str, info: dict[str, int]) -> None:
    if phase == "start" and info["generation"] >= _FULL:
        with late_interrupts:
            _lent.extend(filter(None, [methods.lend() for methods in tuple(_all)]))
    elif phase == "stop" and _lent:
        with late_interrupts:
            while _lent:
                _lent.pop().take_back()


gc.callbacks.append(_around_collections)


def _can_be_asked(obj: object) -> bool:
    return bool(type(obj).__weakrefoffset__) and attributes_of(obj) is not None


def distributed(function: object, jit: Callable[[Any], Any]) -> Any:
    """What ``jit`` makes of a descriptor around a function: the same around the compiled function; None of others."""
    if isinstance(function, staticmethod | classmethod):
        return type(function)(jit(function.__func__))
    if isinstance(function, functools.cached_property):
        return functools.cached_property(jit(function.func))
    if isinstance(function, property):
        kind: Any = type(function)
        return kind(*[part and jit(part) for part in (function.fget, function.fset, function.fdel)], function.__doc__)
    return None


def is_taken_along(module: object) -> bool:
    """Whether whoever pickles takes functions of the main module along, for a process that has another main module.

    That is what ``cloudpickle`` (joblib, Dask, Ray) and ``dill`` do; ``pickle`` itself leaves a name to be looked for.
    Nothing but who calls tells them apart.
    """
    frame = sys._getframe(1) if module == "__main__" else None
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if isinstance(name, str) and not _TAKES_ALONG.isdisjoint(name.split(".")):
            return True
        frame = frame.f_back
    return False


_TAKES_ALONG = frozenset(("cloudpickle", "dill", "_dill"))


def found_by_name(module: object, path: object) -> Any:
    """What is there under a path of names in a module, as ``pickle`` looks for functions; None if nothing is."""
    if not isinstance(module, str) or not isinstance(path, str) or module not in sys.modules:
        return None
    found: Any = sys.modules[module]
    for name in path.split("."):
        found = getattr(found, name, None)
    return found
