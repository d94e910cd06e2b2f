"""Function: operations whose derivative the user writes.

``forward`` runs without recording; one node is made for the whole call (``function_context.py``), its outputs are
connected to it (``function_outputs.py``), and ``backward`` runs when the engine reaches it, recorded again under
``create_graph``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from autojit.autograd.function_context import BackwardCFunction, FunctionCtx, part_of
from autojit.autograd.function_outputs import connect
from autojit.autograd.function_transforms import Called, call_in_layer
from autojit.core.errors import DifferentiationError
from autojit.core.source import here
from autojit.core.wrapping import wraps
from autojit.history.recording import edge_of, meta_of, wants_any, wants_grad
from autojit.history.saved import accumulator_of
from autojit.tensor import Tensor
from autojit.tensor.node import Node
from autojit.tensor.state import grad_mode, state
from autojit.tensor.tensor import alias


class FunctionMeta(type):
    """Gives every subclass of Function the class of its nodes: ``ExpBackward`` for ``Exp``."""

    _backward_cls: Any

    def __init__(cls, name: str, bases: tuple[type, ...], attrs: dict[str, Any]) -> None:
        super().__init__(name, bases, attrs)
        made = type(f"{name}Backward", (BackwardCFunction,), {"_forward_cls": cls, "__module__": cls.__module__})
        cls._backward_cls = made


class Function(FunctionCtx, metaclass=FunctionMeta):
    """Base of custom operations: static ``forward(ctx, ...)`` and ``backward(ctx, *grads)``; call ``apply``.

    ``forward`` takes any arguments and returns a tensor or a tuple, which may hold anything. ``backward`` takes one
    gradient per output and returns one per input: a tensor of the input's shape, or None. Its ops are recorded under
    ``create_graph``, so higher derivatives follow. With ``setup_context(ctx, inputs, output)`` defined, ``forward``
    takes no ctx. ``jvp(ctx, *tangents)`` serves forward mode, ``vmap(info, in_dims, *args)`` or ``generate_vmap_rule =
    True`` serve batches. ``vjp`` is another name for ``backward``. With ``clear_saved_tensors_on_access = True`` the
    ctx lets go of the saved tensors when ``backward`` reads them, which it can do once.

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
    clear_saved_tensors_on_access = False
    is_base = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """An instance can be called in place of ``apply``."""

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
            f"backward mode AD. ({_name_of(ctx)} has neither)"
        )

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """The Jacobian-vector product."""
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD. "
            f"({_name_of(ctx)} has none)"
        )

    vjp = backward

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        """The outputs for a batch, with the place of the batch axis in each."""
        raise NotImplementedError(
            "To use autograd.Function with vmap, you must either override the vmap staticmethod or set "
            "generate_vmap_rule=True."
        )

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run ``forward`` and record one node for the call.

        Keyword arguments are bound to ``forward``'s signature; ``backward`` may return gradients for them too.

        Raises:
            NotImplementedError: there is no ``forward``.
            RuntimeError: what ``forward`` told its ctx does not fit its outputs.
        """
        takes_context = cls.setup_context is _NO_SETUP
        arguments: Sequence[Any] = args
        options: dict[str, Any] = {}
        fewest = len(args)
        if kwargs or not takes_context:
            arguments, options, fewest = _bound(cls, args, kwargs, takes_context)
        ctx, results, is_tuple = call(cls, arguments, options, fewest)
        ctx.to_save = ctx.non_differentiable = ctx.dirty_tensors = ctx.saved_for_forward = None
        return tuple(results) if is_tuple else results[0]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        cls = type(self)
        if not isinstance(inspect.getattr_static(cls, "forward"), staticmethod | classmethod):
            raise RuntimeError(
                "Legacy autograd function with non-static forward method is deprecated. Please use new-style autograd "
                f"function with static forward method: decorate {cls.__name__}.forward with @staticmethod and let it "
                "take a ctx in place of self (autojit.compat.v0_3 still runs the old form)."
            )
        return cls.apply(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in _OF_NODES:
            raise RuntimeError(
                f"Attribute '{name}' is invalid for an instance of {type(self).__name__}: it belongs to the node of a "
                "call. Use the ctx inside forward and backward, or grad_fn of a result."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @classmethod
    def user_backward(cls) -> Callable[..., Any]:
        """The function the engine calls: ``backward`` or ``vjp``, whichever is defined.

        Raises:
            RuntimeError: both are.
        """
        if cls.vjp is _NO_BACKWARD:
            return cls.backward
        if cls.backward is not _NO_BACKWARD:
            raise RuntimeError(
                "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only "
                "implement one of them."
            )
        return cls.vjp


_OF_NODES = frozenset(
    {
        "saved_tensors", "saved_variables", "needs_input_grad", "next_functions", "name", "metadata", "register_hook",
        "register_prehook", "_register_hook_dict", "_sequence_nr", "_set_sequence_nr", "_input_metadata",
        "_raw_saved_tensors",
    }
)  # fmt: skip
_NO_SETUP = Function.setup_context
_NO_BACKWARD = Function.backward


def call(cls: Any, arguments: Sequence[Any], options: dict[str, Any], fewest: int = 0) -> Called:
    """Run ``forward``, connect the outputs, save what was asked for; inside a layer, as the layer wants it.

    ``backward`` must return at least ``fewest`` gradients.
    """
    now = state.__dict__
    if now["layers"]:
        called = call_in_layer(cls, arguments, options, partial(call, fewest=fewest))
        if called is not None:
            return called
    takes_context = cls.setup_context is _NO_SETUP
    given = [*arguments, *options.values()]
    slots: list[int] = []
    parts: list[Tensor] = []
    flags = [False] * len(given)
    for i, a in enumerate(given):
        if isinstance(a, Tensor):
            part = part_of(a)
            slots.append(i)
            parts.append(part)
            flags[i] = part._requires_grad if part._view is None else wants_any((part,))
    ctx = cls._backward_cls()  # after the views' histories, which may just have been made: numbers of nodes ascend
    ctx.source = here(True)
    ctx.num_inputs = len(given)
    ctx.fewest_gradients = fewest
    ctx.needs_input_grad = tuple(flags)
    before = now["grad_enabled"]
    recorded = before and True in flags
    if recorded:
        ctx.requires_grad = True
        ctx.slots = slots
        ctx.edges = [edge_of(t) for t in parts]
        ctx.input_metas = [meta_of(t) for t in parts]
        forms = {k: given[i] for k, i in enumerate(slots) if given[i] is not parts[k]}
        if forms:
            ctx.input_forms = forms
    forward = cls.forward
    if now["observer"] is not None:
        forward = now["observer"].function(cls.__name__, ctx.sequence, forward)
    now["grad_enabled"] = False
    try:
        if takes_context:
            output = forward(ctx, *arguments, **options)
        else:
            output = forward(*arguments, **options)
            cls.setup_context(ctx, tuple(arguments), output)
        is_tuple = isinstance(output, tuple)
        outputs: tuple[Any, ...] = output if is_tuple else (output,)
        results = connect(ctx, given, outputs, recorded)
    finally:
        now["grad_enabled"] = before
    if recorded and ctx.to_save is not None:
        ctx.save()
    return Called(ctx, results, is_tuple)


def _name_of(ctx: Any) -> str:
    function = getattr(ctx, "_forward_cls", None)
    return function.__name__ if function is not None else "it"


def _bound(
    cls: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any], takes_context: bool
) -> tuple[list[Any], dict[str, Any], int]:
    """Positional arguments, keyword-only ones, and how many gradients ``backward`` must return at least."""
    lead = (None,) if takes_context else ()
    bound = inspect.signature(cls.forward).bind(*lead, *args, **kwargs)
    bound.apply_defaults()
    positional = list(bound.args[len(lead) :])
    return positional, dict(bound.kwargs), len(args) if kwargs else len(positional)


def once_differentiable(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of ``backward``: its results cannot be differentiated again; trying is an error.

    Example:
        >>> from autojit.autograd.function import Function, once_differentiable
        >>> class Square(Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         ctx.save_for_backward(x)
        ...         return x * x
        ...
        ...     @staticmethod
        ...     @once_differentiable
        ...     def backward(ctx, y_bar):
        ...         (x,) = ctx.saved_tensors
        ...         return 2 * x * y_bar
    """

    @wraps(fn)
    def wrapper(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        with grad_mode(False):
            outputs = fn(ctx, *args, **kwargs)
        if not state.grad_enabled or not any(isinstance(a, Tensor) and wants_grad(a) for a in args):
            return outputs
        return tuple(_refuse(outputs)) if isinstance(outputs, tuple) else _refuse((outputs,))[0]

    return wrapper


class Error(Node):
    """The node behind results that must not be differentiated again."""

    def run(self, grads: list[Any], wanted: tuple[bool, ...]) -> Sequence[Any]:
        raise DifferentiationError("trying to differentiate twice a function that was marked with @once_differentiable")


def _refuse(outputs: tuple[Any, ...]) -> list[Any]:
    """The outputs as results of an Error node, whose edges lead to leaves made for it."""
    node = Error()
    node.source = here(True)
    node.out_metas = [meta_of(t) if isinstance(t, Tensor) else None for t in outputs]
    node.edges, made = [None] * len(outputs), list(outputs)
    for number, t in enumerate(outputs):
        if isinstance(t, Tensor):
            leaf, result = alias(t), alias(t)
            leaf._requires_grad = True
            node.edges[number] = (accumulator_of(leaf), 0)
            result._requires_grad, result._grad_fn, result._output_nr = True, node, number
            made[number] = result
    return made


class InplaceFunction(Function):
    """The old base of functions with an ``inplace`` flag."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace


__all__ = ["BackwardCFunction", "Function", "FunctionCtx", "FunctionMeta", "InplaceFunction", "once_differentiable"]
