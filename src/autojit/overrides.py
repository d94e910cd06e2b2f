"""torch's override protocol: classes with ``__torch_function__`` and modes see the calls of public functions.

A class that has ``__torch_function__``, a subclass of Tensor or not, is asked for every call of a function of
``autojit``, ``nn.functional``, ``linalg``, ``fft``, ``special`` and of a method of Tensor that has an operand of it,
and for what a program reads and writes of a tensor (``Tensor.T.__get__``, ``Tensor.grad.__set__``); a
`TorchFunctionMode` for every call inside its ``with`` block. Where ``functions/overridable.py`` is installed a call
costs 1 us more; programs without such classes and modes pay nothing.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from autojit.functions import overridable, public_functions
from autojit.functions.overridable import DisableTorchFunction as DisableTorchFunction
from autojit.functions.overridable import DisableTorchFunctionSubclass as DisableTorchFunctionSubclass
from autojit.functions.overridable import disabled as _disabled_torch_function_impl  # noqa: F401
from autojit.tensor import Tensor
from autojit.tensor.state import state

__all__ = [
    "BaseTorchFunctionMode", "DisableTorchFunction", "DisableTorchFunctionSubclass", "TorchFunctionMode",
    "enable_reentrant_dispatch", "get_default_nowrap_functions", "get_ignored_functions", "get_overridable_functions",
    "get_testing_overrides", "handle_torch_function", "has_torch_function", "has_torch_function_unary",
    "has_torch_function_variadic", "is_tensor_like", "is_tensor_method_or_property", "resolve_name",
    "wrap_torch_function",
]  # fmt: skip


class TorchFunctionMode:
    """Sees every call of a public function inside of its ``with`` block; define ``__torch_function__``.

    The innermost mode is asked; what it calls is seen by the next one. Inside, jitted functions run uncompiled, so
    that every call is seen.

    Example:
        >>> import autojit as aj
        >>> class Counting(aj.overrides.TorchFunctionMode):
        ...     count = 0
        ...
        ...     def __torch_function__(self, func, types, args=(), kwargs=None):
        ...         self.count += 1
        ...         return func(*args, **(kwargs or {}))
        >>> with Counting() as mode:
        ...     x = aj.ones(2) + 1
        >>> mode.count
        2
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError

    def __enter__(self) -> Any:
        overridable.install()
        self.__dict__.setdefault("_detours", []).append(state.detour)
        overridable.thread.modes.append(self)
        state.detour = "eager"
        return self

    def __exit__(self, *error: object) -> None:
        overridable.thread.modes.pop()
        state.detour = self.__dict__["_detours"].pop()

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Any:
        """An instance, as older programs make it."""
        return cls(*args, **kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that changes nothing."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@contextmanager
def enable_reentrant_dispatch() -> Iterator[None]:
    """Operands' classes are asked inside, also in what one of them calls."""
    before, overridable.thread.asks_classes = overridable.thread.asks_classes, True
    try:
        yield
    finally:
        overridable.thread.asks_classes = before


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether a mode is entered, or the class of an argument overrides functions.

    Example:
        >>> import autojit as aj
        >>> aj.overrides.has_torch_function((aj.ones(1), 2))
        False
    """
    now = overridable.thread
    return bool(now.modes) or (now.asks_classes and any(overridable.overrides(type(value)) for value in relevant_args))


def has_torch_function_unary(value: Any) -> bool:
    """``has_torch_function`` of one argument."""
    return has_torch_function((value,))


def has_torch_function_variadic(*values: Any) -> bool:
    """``has_torch_function`` of the arguments."""
    return has_torch_function(values)


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """What the innermost mode, or the first argument whose class overrides, subclasses first, makes of the call.

    Raises:
        TypeError: nobody takes the call.
    """
    asked = overridable.overriding(relevant_args) if overridable.thread.asks_classes else []
    return overridable.told(public_api, asked, args, kwargs)


def wrap_torch_function(dispatcher: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that lets a function of the user's be overridden; ``dispatcher`` gives the arguments that matter.

    Example:
        >>> import autojit as aj
        >>> @aj.overrides.wrap_torch_function(lambda x, scale: (x,))
        ... def scaled(x, scale):
        ...     return x * scale
        >>> scaled(aj.ones(1), 2)
        tensor([2.])
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant = tuple(dispatcher(*args, **kwargs))
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        return wrapped

    return decorate


def is_tensor_like(inp: Any) -> bool:
    """Whether an object is a Tensor or follows ``__torch_function__``.

    Example:
        >>> import autojit as aj
        >>> aj.overrides.is_tensor_like(aj.ones(1)), aj.overrides.is_tensor_like(1)
        (True, False)
    """
    return isinstance(inp, Tensor) or hasattr(type(inp), "__torch_function__")


def is_tensor_method_or_property(func: Callable[..., Any]) -> bool:
    """Whether a function is a method of Tensor, or reads or writes one of its properties."""
    return any(func is method for method in get_overridable_functions()[Tensor]) or _is_accessor(func)


def _is_accessor(func: Any) -> bool:
    owner = getattr(func, "__self__", None)
    members = [m for m in vars(Tensor).values() if m is not None]
    functions = [a for m in members if isinstance(m, property) for a in (m.fget, m.fset) if a is not None]
    return any(func is m or owner is m for m in (*members, *functions))


@functools.cache
def get_overridable_functions() -> dict[Any, list[Any]]:
    """The functions whose calls classes and modes see, by the module or class that they are in."""
    found: dict[Any, list[Any]] = {}
    for place, _, function in public_functions.public_functions():
        found.setdefault(_at(place), []).append(function)
    found[Tensor] += [accessor for _, _, accessor in public_functions.accessors()]
    return found


def _at(place: str) -> Any:
    return Tensor if place == "autojit.Tensor" else sys.modules[place]


def get_ignored_functions() -> set[Any]:
    """The public functions whose calls nobody sees."""
    top = vars(sys.modules["autojit"])
    return {top[name] for name in public_functions.IGNORED if callable(top.get(name))}


def get_testing_overrides() -> dict[Any, Any]:
    """By function, one with the same signature that gives -1: a class that gives it overrides everything."""
    found: dict[Any, Any] = {}
    for functions in get_overridable_functions().values():
        for function in functions:
            stand_in = functools.partial(lambda *args, **kwargs: -1)
            vars(stand_in)["__signature__"] = inspect.signature(function)
            found[function] = stand_in
    return found


def get_default_nowrap_functions() -> set[Any]:
    """The functions whose tensors the default ``__torch_function__`` leaves as they are.

    Example:
        >>> import autojit as aj
        >>> aj.Tensor.grad.__get__ in aj.overrides.get_default_nowrap_functions()
        True
    """
    return set(overridable.unwrapped())


@functools.cache
def _names() -> dict[int, str]:
    return {id(function): f"{place}.{name}" for place, name, function in public_functions.public_functions()}


def resolve_name(f: Callable[..., Any]) -> str | None:
    """A function's name with its module, or ``autojit.Tensor.`` of a method; None of what is not public.

    Example:
        >>> import autojit as aj
        >>> aj.overrides.resolve_name(aj.Tensor.add)
        'autojit.Tensor.add'
    """
    if isinstance(getattr(f, "__self__", None), property):
        return overridable.name_of(f)
    found = _names().get(id(f))
    name = getattr(f, "__name__", None)
    if found is not None or name is None:
        return found
    return f"autojit.Tensor.{name}" if is_tensor_method_or_property(f) else f"autojit.{name}"
