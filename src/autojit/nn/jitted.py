"""What ``jit`` makes of a module: the module itself, whose calls run compiled.

It shares everything with the module it was made of: parameters, buffers, children, hooks, modes and plain attributes
are kept in one instance dict that both have. So it is a module wherever one is expected (as a child, in ``isinstance``,
for an optimiser, in ``state_dict``, under ``to`` and ``train``), under the names that the module has, and what the
module's class overrides is overridden here. Only a call is another: it goes to the compiled steps.
"""

from __future__ import annotations

import copy
from abc import ABCMeta
from typing import Any

import autojit as aj
from autojit.nn.module import Module

ANSWERS = frozenset(("explain", "stats", "show", "memory", "steps", "last_step", "timing", "view", "export"))
"""What a compiled function tells about itself; a module's own attribute of such a name goes before."""


class JittedModule(Module):
    """Base of the classes of modules that are compiled; ``explain``, ``show``, ``view`` and the like work on them.

    Example:
        >>> import autojit as aj
        >>> layer = aj.nn.Linear(3, 2)
        >>> fast = aj.jit(layer)
        >>> isinstance(fast, aj.nn.Linear), fast.weight is layer.weight, list(fast.state_dict())
        (True, True, ['weight', 'bias'])
        >>> fast(aj.ones(4, 3)).shape, fast.stats()["captures"]
        (autojit.Size([4, 2]), 1)
    """

    __slots__ = ()
    _jitted: Any

    def __init_subclass__(cls, **options: Any) -> None:
        """What a user's class does with its subclasses is not meant for these."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name not in ANSWERS:
                raise
        return getattr(self._jitted, name)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """A copy has parameters of its own, and captures its own steps."""
        return copy.deepcopy(self._jitted, memo).as_module()

    def __copy__(self) -> Any:
        """Another module of the same parameters, with steps of its own."""
        return self._jitted.of(copy.copy(self._jitted.function)).as_module()

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Saved as the module and that its calls are compiled."""
        return _compiled_again, (self._jitted.function, self._jitted.options())

    def _get_name(self) -> str:
        return f"jit {super()._get_name()}"


def _compiled_again(module: Module, options: dict[str, Any]) -> Any:
    return aj.jit(module, **options)


def _as_module(jitted: Any) -> Any:
    """What ``jit`` returns for a compiled module: a module."""
    module = jitted.function
    if isinstance(module, JittedModule):
        return _as_module(jitted.of(module._jitted.function))
    made: Any = object.__new__(_class_for(type(module)))
    object.__setattr__(made, "__dict__", module.__dict__)
    object.__setattr__(made, "_jitted", jitted)
    return made


def _class_for(kind: Any) -> Any:
    """The class of compiled modules of a class.

    The slot that holds the compiled function is ``__call__`` too: a call finds it there and goes straight to it, with
    no frame of Python's in between.
    """
    found: Any = kind.__dict__.get("_jitted_class")
    if found is None:
        meta = type(kind)
        namespace: dict[str, Any] = {"__slots__": ("_jitted",), "__doc__": kind.__doc__}
        namespace.update(__module__=kind.__module__, __qualname__=kind.__qualname__)
        parts = kind.__name__, (JittedModule, kind), namespace
        # a metaclass of the user's may keep book of its classes: it is not asked
        found = meta(*parts) if meta in (type, ABCMeta) else type.__new__(meta, *parts)
        found.__call__ = found.__dict__["_jitted"]
        kind._jitted_class = found
    return found


Module._of_jitted = _as_module
