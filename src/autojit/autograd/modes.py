"""Gradient modes: ``no_grad``, ``enable_grad``, ``set_grad_enabled``, ``inference_mode``.

Each is thread-local and works as a context manager, as a decorator (with and without parentheses) and on generator
functions, whose mode holds only while their body runs.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from autojit.tensor.state import state

F = TypeVar("F", bound=Callable[..., Any])


class Mode:
    """Base: enters by setting the switches, leaves by restoring them; decorates with a fresh copy per call."""

    def __enter__(self) -> Any:
        raise NotImplementedError

    def __exit__(self, *exception: object) -> None:
        raise NotImplementedError

    def clone(self) -> Mode:
        """A manager of the same kind."""
        return type(self)()

    def __call__(self, function: F) -> F:
        if inspect.isclass(function):
            return function
        if inspect.isgeneratorfunction(function):
            return _decorated_generator(self.clone, function)  # type: ignore[return-value]

        @functools.wraps(function)
        def decorated(*arguments: Any, **options: Any) -> Any:
            with self.clone():
                return function(*arguments, **options)

        return decorated  # type: ignore[return-value]


def _decorated_generator(make: Callable[[], Mode], function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def decorated(*arguments: Any, **options: Any) -> Generator[Any, Any, Any]:
        generator = function(*arguments, **options)
        try:
            with make():
                response = generator.send(None)
            while True:
                try:
                    request = yield response
                except GeneratorExit:
                    with make():
                        generator.close()
                    raise
                except BaseException as error:
                    with make():
                        response = generator.throw(error)
                else:
                    with make():
                        response = generator.send(request)
        except StopIteration as stop:
            return stop.value

    return decorated


class _NoParameters(Mode):
    """Modes that can decorate without parentheses: ``@no_grad``."""

    def __new__(cls, orig_func: Any = None) -> Any:
        made = super().__new__(cls)
        if orig_func is None:
            return made
        made.__init__()  # type: ignore[misc]
        return made(orig_func)

    def __init__(self, orig_func: Any = None) -> None:
        self.before: list[bool] = []


class no_grad(_NoParameters):
    """Nothing inside is recorded; results do not require gradients.

    Example:
        >>> import autojit as aj
        >>> x = aj.tensor([1.0], requires_grad=True)
        >>> with aj.no_grad():
        ...     y = x * 2
        >>> y.requires_grad
        False
    """

    def __enter__(self) -> None:
        self.before.append(state.grad_enabled)
        state.grad_enabled = False

    def __exit__(self, *exception: object) -> None:
        state.grad_enabled = self.before.pop()


class enable_grad(_NoParameters):
    """Recording is on inside, also within ``no_grad``."""

    def __enter__(self) -> None:
        self.before.append(state.grad_enabled)
        state.grad_enabled = True

    def __exit__(self, *exception: object) -> None:
        state.grad_enabled = self.before.pop()


class set_grad_enabled(Mode):
    """Recording on or off: takes effect at once; as a context manager it is restored at the end."""

    def __init__(self, mode: bool) -> None:
        self.before = state.grad_enabled
        self.mode = bool(mode)
        state.grad_enabled = self.mode

    def __call__(self, function: F) -> F:
        state.grad_enabled = self.before  # decorating must not leave the mode switched
        return super().__call__(function)

    def __enter__(self) -> None:
        state.grad_enabled = self.mode

    def __exit__(self, *exception: object) -> None:
        state.grad_enabled = self.before

    def clone(self) -> set_grad_enabled:
        before = state.grad_enabled
        made = set_grad_enabled(self.mode)
        state.grad_enabled = before
        made.before = before
        return made


class inference_mode(Mode):
    """``no_grad`` whose results are meant never to enter a graph."""

    def __new__(cls, mode: Any = True) -> Any:
        if isinstance(mode, bool):
            return super().__new__(cls)
        made = super().__new__(cls)
        made.__init__()  # type: ignore[misc]
        return made(mode)

    def __init__(self, mode: bool = True) -> None:
        self.mode = mode
        self.before: list[tuple[bool, bool]] = []

    def __enter__(self) -> None:
        self.before.append((state.grad_enabled, state.inference))
        state.inference = self.mode
        if self.mode:
            state.grad_enabled = False

    def __exit__(self, *exception: object) -> None:
        state.grad_enabled, state.inference = self.before.pop()

    def clone(self) -> inference_mode:
        return inference_mode(self.mode)


def is_grad_enabled() -> bool:
    """Whether this thread records history."""
    return state.grad_enabled


def is_inference_mode_enabled() -> bool:
    """Whether this thread is in inference mode."""
    return state.inference
