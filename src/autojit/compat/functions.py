"""Function in the style of 0.3: an instance per call, whose methods keep what backward needs on ``self``.

Each old-style class gets a modern Function that keeps the instance and calls its methods; there is no second engine.
"""

from __future__ import annotations

import inspect
import weakref
from typing import Any

from autojit import autograd
from autojit.autograd.function import FunctionMeta
from autojit.core.errors import UsageError
from autojit.core.user_warnings import warn


class _Adapter(autograd.Function):
    """Runs ``forward`` and ``backward`` of an instance; the instance itself is its first argument."""

    @staticmethod
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        instance, *inputs = args
        ctx.instance = instance
        instance._ctx = weakref.ref(ctx)
        return instance.forward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        instance = ctx.instance
        found = instance.backward(*grad_outputs)
        grads = list(found) if isinstance(found, tuple | list) else [found]
        count = instance.num_inputs
        while len(grads) > count and grads[-1] is None:
            grads.pop()
        if len(grads) != count:
            raise RuntimeError(
                f"{type(instance).__name__} returned an incorrect number of gradients (expected {count}, got "
                f"{len(grads)})"
            )
        return (None, *grads)


class Function(autograd.Function):
    """Base of operations in either style.

    Old style: ``forward(self, *inputs)`` and ``backward(self, *grad_outputs)`` are methods that use
    ``self.save_for_backward``; an instance is called once. With static methods it is the modern Function, whose
    instances may be called in place of ``apply``.

    Raises:
        RuntimeError: an old-style instance is called a second time.

    Example:
        >>> import autojit as aj
        >>> from autojit.compat import v0_3
        >>> class Exp(v0_3.Function):
        ...     def forward(self, x):
        ...         y = x.exp()
        ...         self.save_for_backward(y)
        ...         return y
        ...
        ...     def backward(self, y_bar):
        ...         (y,) = self.saved_tensors
        ...         return y_bar * y
        >>> x = v0_3.Variable(aj.zeros(2), requires_grad=True)
        >>> Exp()(x).backward(aj.ones(2))
        >>> x.grad
        tensor([1., 1.])
    """

    _adapter: Any = None
    _ctx: Any = None
    _used = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not isinstance(inspect.getattr_static(cls, "forward"), staticmethod | classmethod):
            cls._adapter = FunctionMeta(cls.__name__, (_Adapter,), {"__module__": cls.__module__})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        adapter = type(self)._adapter
        if adapter is None:
            return type(self).apply(*args, **kwargs)
        if self._used:
            raise UsageError(
                f"{type(self).__name__}: a function object is used once, in one forward",
                fix=f"make another: {type(self).__name__}()(...)",
            )
        self._used = True
        return adapter.apply(self, *args)

    def _context(self) -> Any:
        ctx = None if self._ctx is None else self._ctx()
        if ctx is None:
            raise UsageError(
                f"{type(self).__name__} has not been called, or its result is gone", fix="call the instance first"
            )
        return ctx

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep inputs or outputs for ``backward``; to be called in ``forward``."""
        self._context().save_for_backward(*tensors)

    def mark_dirty(self, *tensors: Any) -> None:
        """Say which inputs ``forward`` changed in place."""
        self._context().mark_dirty(*tensors)

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Say which outputs have no derivative."""
        self._context().mark_non_differentiable(*tensors)

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What ``save_for_backward`` kept; gone after backward unless the graph is retained."""
        saved: tuple[Any, ...] = self._context().saved_tensors
        return saved

    @property
    def saved_variables(self) -> tuple[Any, ...]:
        """The old name of ``saved_tensors``."""
        warn("'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning)
        return self.saved_tensors

    @property
    def needs_input_grad(self) -> tuple[bool, ...]:
        """Per input whether its gradient is wanted."""
        return tuple(self._context().needs_input_grad[1:])

    @property
    def num_inputs(self) -> int:
        """How many inputs ``forward`` was given."""
        return int(self._context().num_inputs) - 1

    @property
    def num_outputs(self) -> int:
        """How many outputs ``forward`` returned."""
        return int(self._context().num_outputs)

    @property
    def requires_grad(self) -> bool:
        """Whether ``backward`` may ever be needed."""
        return bool(self._context().requires_grad)
