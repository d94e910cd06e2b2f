"""Function: operations whose derivative the user writes.

``forward`` runs without recording; one node is made for the whole call, and ``backward`` runs when the engine reaches
it
(recorded again under ``create_graph``).
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from autojit.autograd.engine import check_cotangent, zeros_of
from autojit.core.errors import DifferentiationError
from autojit.core.source import here
from autojit.core.types import TensorType
from autojit.tensor import Tensor
from autojit.tensor.inplace import check_writable
from autojit.tensor.node import FREED, ZERO, Edge, Node
from autojit.tensor.recording import (
    Packed,
    as_result,
    changed_error,
    edge_of,
    freed_error,
    meta_of,
    wants_grad,
)  # fmt: skip
from autojit.tensor.state import grad_mode, state
from autojit.tensor.tensor import alias, storage_of, type_of


class FunctionCtx(Node):
    """What ``forward`` leaves for ``backward``, and the node of the call in the history."""

    def __init__(self) -> None:
        super().__init__()
        self._to_save: tuple[Any, ...] | None = None
        self._saved: list[Any] = []
        self._versions: list[int] = []
        self._dirty: tuple[Any, ...] = ()
        self._constant: tuple[Any, ...] = ()
        self._materialize = True
        self.needs_input_grad: tuple[bool, ...] = ()
        self._function: type[Function] | None = None
        self._n_inputs = 0
        self._slots: list[int] = []
        self._saved_for_forward: tuple[Any, ...] = ()
        self._input_types: list[TensorType] = []

    def name(self) -> str:
        return f"{self._function.__name__}Backward" if self._function else "FunctionBackward"

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep inputs or outputs (or None) for ``backward``; in-place changes of them are noticed."""
        self._to_save = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Keep tensors for ``jvp``."""
        self._saved_for_forward = tensors

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Say which inputs ``forward`` changed in place; they must be returned."""
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Say which outputs have no derivative."""
        self._constant = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether ``backward`` gets zeros (the default) or None for outputs that were not used."""
        self._materialize = bool(value)

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What ``save_for_backward`` kept; an error when it was freed or changed since."""
        return tuple(self._unpack(entry, i) for i, entry in enumerate(self._saved))

    @property
    def saved_variables(self) -> tuple[Any, ...]:
        """The old name of ``saved_tensors``."""
        warnings.warn("'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning, stacklevel=2)
        return self.saved_tensors

    @property
    def num_inputs(self) -> int:
        """How many inputs ``forward`` was given."""
        return self._n_inputs

    @property
    def num_outputs(self) -> int:
        """How many tensors ``forward`` returned."""
        return len(self.out_metas)

    @property
    def requires_grad(self) -> bool:
        """Whether ``backward`` can ever be needed."""
        return any(self.needs_input_grad)

    def _unpack(self, entry: Any, place: int) -> Any:
        if entry is None:
            return None
        if entry is FREED:
            raise freed_error(self)
        t, result = entry
        if type(t) is Packed:
            return t.unpack(self, result)
        storage = t._storage
        if storage is not None and storage.version != self._versions[place]:
            raise changed_error(self, t, self._versions[place])
        return t if result < 0 else as_result(t, self, result)

    def _save(self, outputs: Sequence[Any]) -> None:
        hooks = state.recording_hooks
        for t in self._to_save or ():
            if t is None:
                self._saved.append(None)
                self._versions.append(0)
                continue
            if not isinstance(t, Tensor):
                raise TypeError(
                    f"save_for_backward can only save variables, but argument is of type {type(t).__name__}"
                )
            result = next((i for i, o in enumerate(outputs) if o is t), -1)
            kept: Any = t if result < 0 else alias(t)
            if hooks:
                kept = Packed(t, hooks[-1], result >= 0)
            self._saved.append((kept, result))
            self._versions.append(storage_of(t).version)
        self._to_save = None

    def release(self) -> None:
        self._saved = [None if entry is None else FREED for entry in self._saved]

    def run(self, grads: list[Any], wanted: tuple[bool, ...]) -> Sequence[Any]:
        assert self._function is not None
        given = [self._materialized(g, i) for i, g in enumerate(grads)]
        found = self._function.backward(self, *given)
        results = found if isinstance(found, tuple | list) else (found,)
        return self._validated(list(results))

    def _materialized(self, grad: Any, number: int) -> Any:
        if grad is ZERO or (grad is None and self._materialize):
            return zeros_of((self, number))
        return grad

    def _validated(self, results: list[Any]) -> list[Any]:
        count = self._n_inputs
        if len(results) < count or any(r is not None for r in results[count:]):
            raise RuntimeError(
                f"function {self.name()} returned an incorrect number of gradients (expected {count}, got "
                f"{len(results)})"
            )
        for place in range(count):
            if results[place] is not None and place not in self._slots:
                raise RuntimeError(
                    f"function {self.name()} returned a gradient different than None at position {place + 1}, but the "
                    "corresponding forward input was not a Variable"
                )
        found = []
        for number, place in enumerate(self._slots):
            grad = results[place]
            edge = self.edges[number]
            if grad is not None and edge is not None:
                grad = check_cotangent(
                    grad, self._input_types[number], f"Function {self.name()} returned gradient", number
                )
            found.append(None if edge is None else grad)
        return found


class Function:
    """Base of custom operations: static ``forward(ctx, ...)`` and ``backward(ctx, *grads)``; call ``apply``.

    With ``setup_context(ctx, inputs, output)`` defined, ``forward`` takes no ctx.

    Example:
        >>> import autojit as aj
        >>> class Exp(aj.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         y = x.exp()
        ...         ctx.save_for_backward(y)
        ...         return y
        ...
        ...     @staticmethod
        ...     def backward(ctx, y_bar):
        ...         (y,) = ctx.saved_tensors
        ...         return y_bar * y
        >>> x = aj.tensor(0.0, requires_grad=True)
        >>> Exp.apply(x).backward()
        >>> x.grad
        tensor(1.)
    """

    generate_vmap_rule = False

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the outputs."""
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Fill the ctx from inputs and output, when ``forward`` has no ctx."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """The vector-Jacobian product."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with "
            "backward mode AD."
        )

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """The Jacobian-vector product."""
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )

    vjp = backward

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run ``forward`` and record one node for the call."""
        arguments = _bound(cls, args, kwargs)
        ctx = FunctionCtx()
        ctx._function = cls
        ctx.source = here()
        flags = [isinstance(a, Tensor) and wants_grad(a) for a in arguments]
        recorded = state.grad_enabled and any(flags)
        ctx._n_inputs = len(arguments)
        ctx.needs_input_grad = tuple(flags) if state.grad_enabled else (False,) * len(flags)
        ctx._slots = [i for i, a in enumerate(arguments) if isinstance(a, Tensor)]
        edges = [edge_of(arguments[i]) if recorded else None for i in ctx._slots]
        ctx._input_types = [type_of(arguments[i]) for i in ctx._slots]
        with grad_mode(False):
            output = _forward(cls, ctx, arguments, kwargs if _takes_context(cls) else {})
        is_tuple = isinstance(output, tuple | list)
        outputs = list(output) if is_tuple else [output]
        results = _finish(ctx, arguments, outputs, edges, recorded)
        return tuple(results) if is_tuple else results[0]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return type(self).apply(*args, **kwargs)


def _takes_context(cls: type[Function]) -> bool:
    """Whether ``forward`` takes the ctx itself (no ``setup_context``)."""
    return cls.setup_context is Function.setup_context


def _bound(cls: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The inputs in the order of forward's parameters; keywords are bound to their places."""
    if not kwargs:
        return list(args)
    lead = (None,) if _takes_context(cls) else ()
    bound = inspect.signature(cls.forward).bind(*lead, *args, **kwargs)
    bound.apply_defaults()
    kwargs.clear()
    return list(bound.args[len(lead) :]) + list(bound.kwargs.values())


def _forward(cls: type[Function], ctx: FunctionCtx, arguments: list[Any], kwargs: dict[str, Any]) -> Any:
    if _takes_context(cls):
        return cls.forward(ctx, *arguments, **kwargs)
    output = cls.forward(*arguments)
    cls.setup_context(ctx, tuple(arguments), output)
    return output


def _finish(
    ctx: FunctionCtx, arguments: list[Any], outputs: list[Any], edges: list[Edge | None], recorded: bool
) -> list[Any]:
    """Connect the outputs to the node; inputs returned as they are become aliases, dirty ones are rebased."""
    _check_dirty(ctx, outputs)
    results = []
    for o in outputs:
        if isinstance(o, Tensor) and any(o is a for a in arguments) and not any(o is d for d in ctx._dirty):
            o = alias(o)
        results.append(o)
    if not recorded:
        ctx._to_save = None
        return results
    pairs = list(zip(outputs, results, strict=True))
    ctx.edges = edges
    tensors = [r for r in results if isinstance(r, Tensor)]
    ctx.out_metas = [meta_of(t) for t in tensors]
    for number, t in enumerate(tensors):
        original = next(o for o, r in pairs if r is t)
        if any(original is c for c in ctx._constant) or not type_of(t).dtype.is_differentiable:
            continue
        if any(t is d for d in ctx._dirty):
            check_writable(t, ctx.name())
            t._accumulator = None
        t._requires_grad, t._grad_fn, t._output_nr = True, ctx, number
    _save_outputs(ctx, pairs)
    return results


def _save_outputs(ctx: FunctionCtx, pairs: list[tuple[Any, Any]]) -> None:
    """Save what forward asked for; outputs are saved as results of the node."""
    ctx._to_save = tuple(next((r for o, r in pairs if o is t and r is not o), t) for t in ctx._to_save or ())
    ctx._save([r for _, r in pairs if isinstance(r, Tensor)])


def _check_dirty(ctx: FunctionCtx, outputs: list[Any]) -> None:
    for d in ctx._dirty:
        if not any(d is o for o in outputs):
            raise RuntimeError("Some elements marked as dirty during the forward method were not returned as output.")


def once_differentiable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of ``backward``: its results cannot be differentiated again; trying is an error."""

    @functools.wraps(function)
    def wrapper(ctx: Any, *args: Any) -> Any:
        with grad_mode(False):
            outputs = function(ctx, *args)
        if not state.grad_enabled or not any(isinstance(a, Tensor) and wants_grad(a) for a in args):
            return outputs
        is_tuple = isinstance(outputs, tuple)
        refused = [_refuse(o) for o in (outputs if is_tuple else (outputs,))]
        return tuple(refused) if is_tuple else refused[0]

    return wrapper


class _Refusal(Node):
    """The node behind results that must not be differentiated again."""

    def run(self, grads: list[Any], wanted: tuple[bool, ...]) -> Sequence[Any]:
        raise DifferentiationError("trying to differentiate twice a function that was marked with @once_differentiable")


def _refuse(t: Any) -> Any:
    if not isinstance(t, Tensor):
        return t
    node = _Refusal()
    node.out_metas = [meta_of(t)]
    made = alias(t)
    made._requires_grad, made._grad_fn = True, node
    return made


class InplaceFunction(Function):
    """The old base of functions with an ``inplace`` flag."""

    def __init__(self, inplace: bool = False) -> None:
        self.inplace = inplace
