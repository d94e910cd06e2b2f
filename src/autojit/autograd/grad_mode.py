"""Gradient modes: ``no_grad``, ``enable_grad``, ``set_grad_enabled``, ``inference_mode``.

Each is thread-local and works as a context manager, as a decorator (with and without parentheses) and on generator
functions, whose mode holds only while their body runs. ``docs/autograd.md`` compares them with ``detach`` and
``requires_grad_``. A captured step bakes the mode in and is captured again when it is called in another one.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Generator
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from autojit.core.user_warnings import warn
from autojit.core.wrapping import code_holder, wraps
from autojit.tensor.state import is_grad_on, set_grad, set_inference, state
from autojit.tensor.tensor import Tensor, storage_of

F = TypeVar("F", bound=Callable[..., Any])


class _DecoratorContextManager:
    """Base: enters by setting switches, leaves by restoring them; decorates with a fresh copy of itself per call.

    A class with parameters overrides ``clone``.
    """

    def __enter__(self) -> Any:
        raise NotImplementedError

    def __exit__(self, *exception: object) -> None:
        raise NotImplementedError

    def clone(self) -> Self:
        """A fresh manager of the same kind with the same parameters; it can be entered while this one is active."""
        return type(self)()

    def __call__(self, orig_func: F) -> F:
        if inspect.isclass(orig_func):
            warn(
                "Decorating classes is deprecated and will be disabled: decorate its methods (today its __init__ runs "
                "in the mode, nothing else)",
                FutureWarning,
            )
            return _decorated(self.clone, lambda *a, **k: orig_func(*a, **k))  # type: ignore[return-value]
        if inspect.isgeneratorfunction(code_holder(orig_func)):
            return _decorated_generator(self.clone, orig_func)  # type: ignore[return-value]
        return _decorated(self.clone, orig_func)  # type: ignore[return-value]


class _NoParamDecoratorContextManager(_DecoratorContextManager):
    """Base of the modes that can decorate without parentheses: ``@no_grad``."""

    def __new__(cls, orig_func: Any = None) -> Any:
        if orig_func is None:
            return super().__new__(cls)
        return cls()(orig_func)


def _decorated(make: Callable[[], Any], function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def decorated(*arguments: Any, **options: Any) -> Any:
        with make():
            return function(*arguments, **options)

    return decorated


def _decorated_generator(make: Callable[[], Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Every stretch of the body between two yields runs in the mode; what is sent and thrown in reaches the body."""

    @wraps(function)
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


class no_grad(_NoParamDecoratorContextManager):
    """Nothing inside is recorded: results do not require gradients, and what they are computed from is not kept.

    Factories asked for ``requires_grad=True`` are not affected, and neither is forward-mode differentiation.

    Example:
        >>> import autojit as aj
        >>> w = aj.ones(3, requires_grad=True)
        >>> with aj.no_grad():
        ...     norm = (w * w).sum().sqrt()
        ...     bias = aj.nn.Parameter(aj.zeros(3))
        >>> norm.requires_grad, bias.requires_grad
        (False, True)
        >>> @aj.no_grad
        ... def accuracy(scores, target):
        ...     return (scores.argmax(-1) == target).float().mean()
        >>> accuracy(w.expand(2, 3), aj.tensor([0, 1]))
        tensor(0.5000)
    """

    def __init__(self) -> None:
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(is_grad_on())
        set_grad(False)

    def __exit__(self, *exception: object) -> None:
        set_grad(self._before.pop())


class enable_grad(_NoParamDecoratorContextManager):
    """Recording is on inside, also within ``no_grad`` or after ``set_grad_enabled(False)``; not in inference mode.

    Example:
        >>> import autojit as aj
        >>> x = aj.tensor(3.0, requires_grad=True)
        >>> @aj.enable_grad()
        ... def slope(x):
        ...     return aj.autograd.grad(x**2, x)
        >>> with aj.no_grad():
        ...     slope(x), (x**2).requires_grad
        ((tensor(6.),), False)
    """

    _before: list[bool]

    def __enter__(self) -> None:
        self.__dict__.setdefault("_before", []).append(is_grad_on())
        set_grad(True)

    def __exit__(self, *exception: object) -> None:
        set_grad(self._before.pop())


class _Switch(_DecoratorContextManager):
    """A flag that is set as soon as the manager is made, and stays; as a context manager it is restored at the end."""

    _holder: ClassVar[Any]  # the object of whose attributes the flag is one
    _flag: ClassVar[str]

    def __init__(self, mode: bool) -> None:
        self.prev = self._get()
        self.mode = mode
        self._set(mode)

    def _get(self) -> bool:
        return bool(getattr(self._holder, self._flag))

    def _set(self, mode: bool) -> None:
        setattr(self._holder, self._flag, bool(mode))

    def __call__(self, orig_func: F) -> F:
        self._set(self.prev)  # decorating must not leave the flag switched
        return super().__call__(orig_func)

    def __enter__(self) -> None:
        self._set(self.mode)

    def __exit__(self, *exception: object) -> None:
        self._set(self.prev)

    def clone(self) -> Self:
        """A manager with the same flag; the flag in force is not touched until it is entered."""
        before = self._get()
        try:
            return type(self)(self.mode)
        finally:
            self._set(before)


class set_grad_enabled(_Switch):
    """Recording on or off: takes effect at once and stays; as a context manager it is restored at the end.

    Decorating a function changes the mode during its calls only.

    Raises:
        TypeError: ``mode`` is not a bool.

    Example:
        >>> import autojit as aj
        >>> w = aj.ones(2, requires_grad=True)
        >>> for phase in ("train", "test"):
        ...     with aj.set_grad_enabled(phase == "train"):
        ...         w.sum().requires_grad
        True
        False
        >>> _ = aj.set_grad_enabled(False)
        >>> w.sum().requires_grad
        False
        >>> _ = aj.set_grad_enabled(True)
    """

    def __init__(self, mode: bool) -> None:
        if not isinstance(mode, bool | np.bool_):
            raise TypeError(f"set_grad_enabled(): argument 'mode' must be bool, not {type(mode).__name__}")
        super().__init__(bool(mode))

    def _get(self) -> bool:
        return is_grad_on()

    def _set(self, mode: bool) -> None:
        set_grad(mode)

    def __repr__(self) -> str:
        return f"{type(self).__module__}.{type(self).__qualname__}(mode={self.mode})"


class inference_mode(_DecoratorContextManager):
    """``no_grad`` whose results must never take part in a recorded computation; also switches forward mode off.

    ``inference_mode(False)`` inside returns to ordinary recording.

    Example:
        >>> import autojit as aj
        >>> x = aj.ones(2, requires_grad=True)
        >>> with aj.inference_mode():
        ...     y = x * x
        >>> y.requires_grad, aj.is_inference_mode_enabled()
        (False, False)
        >>> @aj.inference_mode
        ... def double(x):
        ...     return x * 2
        >>> double(x).requires_grad
        False
    """

    def __new__(cls, mode: Any = True) -> Any:
        if isinstance(mode, bool):
            return super().__new__(cls)
        if not callable(mode):
            raise TypeError(f"inference_mode(): argument 'mode' must be bool or a function, not {type(mode).__name__}")
        return cls()(mode)

    def __init__(self, mode: bool = True) -> None:
        self.mode = mode
        self._before: list[tuple[bool, int]] = []

    def __enter__(self) -> None:
        self._before.append((state.grad_enabled, state.inference))
        set_inference(int(self.mode))
        state.grad_enabled = not self.mode

    def __exit__(self, *exception: object) -> None:
        state.grad_enabled, inference = self._before.pop()
        set_inference(inference)

    def clone(self) -> Self:
        """A fresh manager with the same ``mode``."""
        return type(self)(self.mode)


def is_grad_enabled() -> bool:
    """Whether gradients are switched on in this thread; in inference mode nothing is recorded all the same."""
    return is_grad_on()


def is_inference_mode_enabled() -> bool:
    """Whether this thread is in inference mode."""
    return bool(state.inference)


class _Multithreading(threading.local):
    enabled = True


_multithreading = _Multithreading()


class set_multithreading_enabled(_Switch):
    """Whether backward passes may use other threads. They always run on the calling thread, so only the flag changes.

    Example:
        >>> from autojit import autograd
        >>> with autograd.set_multithreading_enabled(False):
        ...     autograd.is_multithreading_enabled()
        False
    """

    _holder = _multithreading
    _flag = "enabled"


def is_multithreading_enabled() -> bool:
    """The flag of ``set_multithreading_enabled``."""
    return _multithreading.enabled


class _force_original_view_tracking(_Switch):
    """Whether the history of a view whose base was changed names the view's function, or says ``as_strided``.

    Takes effect at once and stays; as a context manager it is restored at the end.

    Example:
        >>> import autojit as aj
        >>> x = aj.ones(2, 2, requires_grad=True)
        >>> with aj.autograd._force_original_view_tracking(True):
        ...     y = x.clone().view(-1).add_(1)
        ...     y.grad_fn.name()
        'ViewBackward0'
    """

    _holder = state
    _flag = "view_replay"


def is_view_replay_enabled() -> bool:
    """The flag of ``_force_original_view_tracking``."""
    return state.view_replay


class _unsafe_preserve_version_counter(_DecoratorContextManager):
    """In-place changes inside are not counted, so that no backward pass notices them.

    For memory that is emptied and refilled with the same values; anything else gives wrong gradients silently.
    """

    def __init__(self, tensors: Tensor | tuple[Tensor, ...]) -> None:
        self.tensors = (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)
        self._before: list[tuple[int, ...]] = []

    def __enter__(self) -> None:
        self._before.append(tuple(storage_of(t).version for t in self.tensors))

    def __exit__(self, *exception: object) -> None:
        for t, version in zip(self.tensors, self._before.pop(), strict=True):
            storage_of(t).version = version

    def clone(self) -> Self:
        """A fresh manager for the same tensors."""
        return type(self)(self.tensors)


__all__ = [
    "enable_grad", "inference_mode", "is_grad_enabled", "is_inference_mode_enabled", "is_multithreading_enabled",
    "is_view_replay_enabled", "no_grad", "set_grad_enabled", "set_multithreading_enabled",
]  # fmt: skip
