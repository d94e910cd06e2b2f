"""Data pipes: data sets whose classes can be chained as methods of one another, and checks of what they yield.

``functional_datapipe("name")`` makes a class a method: ``pipe.name(...)`` is ``Class(pipe, ...)``.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

from autojit.core.errors import UsageError
from autojit.utils.data.dataset import Dataset, IterableDataset

__all__ = [
    "DFIterDataPipe", "DataChunk", "IterDataPipe", "MapDataPipe", "argument_validation", "functional_datapipe",
    "guaranteed_datapipes_determinism", "non_deterministic", "runtime_validation", "runtime_validation_disabled",
]  # fmt: skip

Made = TypeVar("Made", bound=Any)


class _Functional:
    """The registry half of a data pipe: names that stand for classes."""

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}

    def __getattr__(self, name: str) -> Any:
        found = type(self).functions.get(name)
        if found is None:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        made = functools.partial(found, self)
        functools.update_wrapper(made, found, assigned=("__doc__",))
        return made

    @classmethod
    def register_function(cls, function_name: str, function: Callable[..., Any]) -> None:
        """Make ``function`` a method of all pipes of this kind."""
        cls.functions[function_name] = function

    @classmethod
    def register_datapipe_as_function(
        cls, function_name: str, cls_to_register: type, enable_df_api_tracing: bool = False
    ) -> None:
        """Make a class a method of all pipes of this kind.

        Raises:
            RuntimeError: the name is taken.
        """
        if function_name in cls.functions:
            raise UsageError(f"Unable to add DataPipe function name {function_name} as it is already taken")
        cls.functions[function_name] = cls_to_register


class IterDataPipe(_Functional, IterableDataset[Any]):
    """Base of pipes that are read from front to back: define ``__iter__``.

    Example:
        >>> from autojit.utils.data import IterDataPipe, functional_datapipe
        >>> @functional_datapipe("doubled")
        ... class Doubler(IterDataPipe):
        ...     def __init__(self, source):
        ...         self.source = source
        ...
        ...     def __iter__(self):
        ...         return (2 * x for x in self.source)
        >>> list(Doubler([1, 2]).doubled())
        [4, 8]
    """

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}

    def reset(self) -> None:
        """Start again; nothing to do unless a subclass keeps a place."""


class MapDataPipe(_Functional, Dataset[Any]):
    """Base of pipes that are read by key: define ``__getitem__``, and ``__len__`` where it is known."""

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}


class DFIterDataPipe(IterDataPipe):
    """Base of pipes of data frames."""

    _is_dfpipe = True


class DataChunk(list[Any]):
    """Several items of a pipe as one."""

    def __init__(self, items: Any) -> None:
        super().__init__(items)
        self.items = list(items)

    def as_str(self, indent: str = "") -> str:
        """The items in brackets."""
        return indent + "[" + ", ".join(str(item) for item in self) + "]"

    def raw_iterator(self) -> Iterator[Any]:
        """The items as they were given."""
        yield from self.items


class functional_datapipe:  # torch's name
    """Class decorator: the pipe becomes a method of all pipes of its kind.

    Raises:
        TypeError: what it decorates is not a class of pipes.
    """

    def __init__(self, name: str, enable_df_api_tracing: bool = False) -> None:
        self.name = name
        self.enable_df_api_tracing = enable_df_api_tracing

    def __call__(self, cls: Made) -> Made:
        for kind in (IterDataPipe, MapDataPipe):
            if isinstance(cls, type) and issubclass(cls, kind):
                kind.register_datapipe_as_function(self.name, cls, self.enable_df_api_tracing)
                return cls
        raise TypeError("`functional_datapipe` can only decorate IterDataPipe or MapDataPipe")


class _Checks:
    """What of this module's checks is on."""

    determinism = False
    types = True


@contextmanager
def _switched(name: str, value: bool) -> Iterator[None]:
    before = getattr(_Checks, name)
    setattr(_Checks, name, value)
    try:
        yield
    finally:
        setattr(_Checks, name, before)


def guaranteed_datapipes_determinism() -> Any:
    """Context manager: inside, making a pipe that is marked ``non_deterministic`` is an error."""
    return _switched("determinism", True)


def runtime_validation_disabled() -> Any:
    """Context manager: inside, ``runtime_validation`` checks nothing."""
    return _switched("types", False)


class non_deterministic:  # torch's name
    """Class decorator of pipes whose order is not the same in every run; or, called with a function of the pipe's
    arguments, of ``__init__``: those for which the function is true.

    Raises:
        TypeError: it is neither a class of iterable pipes nor a function; or, under
            ``guaranteed_datapipes_determinism``, such a pipe is made.
    """

    def __init__(self, arg: Any) -> None:
        self.is_random: Callable[..., bool] = arg
        self.cls: Any = None
        if isinstance(arg, type):
            if not issubclass(arg, IterDataPipe):
                raise TypeError(
                    f"Only `IterDataPipe` can be decorated with `non_deterministic`, but {arg.__name__} is found"
                )
            self.cls = arg
        elif not callable(arg):
            raise TypeError(f"{arg} can not be decorated by non_deterministic")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.cls is not None:
            if _Checks.determinism:
                raise _refused(self.cls.__name__)
            return self.cls(*args, **kwargs)
        (cls,) = args

        @functools.wraps(cls)
        def make(*given: Any, **named: Any) -> Any:
            if _Checks.determinism and self.is_random(*given, **named):
                raise _refused(cls.__name__)
            return cls(*given, **named)

        return make


def _refused(name: str) -> TypeError:
    return TypeError(
        f"{name} is non-deterministic, but you set 'guaranteed_datapipes_determinism'. You can turn off determinism "
        "for this DataPipe if that is acceptable for your application"
    )


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type; of a generic one only its class is looked at."""
    if hint is Any or isinstance(hint, TypeVar):
        return True
    origin = typing.get_origin(hint)
    if origin is typing.Union:
        return any(_fits(value, part) for part in typing.get_args(hint))
    kind = origin or hint
    return not isinstance(kind, type) or isinstance(value, kind)


def argument_validation(f: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of functions that take pipes: arguments must be of the types of their annotations.

    Raises:
        TypeError: an argument is not.
    """
    hints = {name: hint for name, hint in typing.get_type_hints(f).items() if name != "return"}
    signature = inspect.signature(f)

    @functools.wraps(f)
    def checked(*args: Any, **kwargs: Any) -> Any:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            if name in hints and not _fits(value, hints[name]):
                raise TypeError(f"Expected argument '{name}' of type {hints[name]}, but found {type(value)}")
        return f(*args, **kwargs)

    return checked


def runtime_validation(f: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of ``__iter__``: items must be of the type that the return annotation ``Iterator[T]`` says.

    Raises:
        RuntimeError: an item is not.
    """
    if getattr(f, "__name__", "") != "__iter__":
        raise TypeError(f"Can not decorate function {f.__name__} with 'runtime_validation'")
    wanted = typing.get_args(typing.get_type_hints(f).get("return", Any)) or (Any,)

    @functools.wraps(f)
    def checked(self: Any) -> Iterator[Any]:
        for item in f(self):
            if _Checks.types and not _fits(item, wanted[0]):
                raise RuntimeError(f"Expected an instance as subtype of {wanted[0]}, but found {item}({type(item)})")
            yield item

    return checked
