"""`custom_op`, and the functions that register rules for an operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NoReturn

from autojit.core.errors import ArgumentError, UnsupportedError, UsageError
from autojit.core.user_warnings import warn
from autojit.library import operators
from autojit.library.operators import Operator, key_of
from autojit.library.schema import infer_schema, parse

DeviceTypes = str | Sequence[str] | None


class CustomOpDef:
    """A function that is an operator: what `custom_op` returns. Call it, and register rules for it."""

    def __init__(self, operator: Operator) -> None:
        self._opoverload = operator
        self._namespace, self._name = operator._namespace, operator._opname
        self._qualname = operator.name()
        self._init_fn = operator.first

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._opoverload(*args, **kwargs)

    def register_kernel(self, device_types: DeviceTypes, fn: Callable[..., Any] | None = None, /) -> Any:
        """Compute the operator by another function on devices of a kind; also a decorator."""
        return register_kernel(self, device_types, fn)

    def register_fake(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """Give the function that makes results on the device ``meta``."""
        self._opoverload.fake = fn
        return fn

    def register_autograd(self, backward: Callable[..., Any], /, *, setup_context: Any = None) -> None:
        """Give the derivative: see `autojit.library.register_autograd`."""
        register_autograd(self, backward, setup_context=setup_context)

    def register_vmap(self, func: Callable[..., Any] | None = None) -> Any:
        """Give the form for batches; also a decorator. See `autojit.library.register_vmap`."""
        return register_vmap(self, func)

    def register_autocast(self, device_type: str, cast_inputs: Any) -> None:
        """Cast floating-point operands inside ``autocast``."""
        register_autocast(self, device_type, cast_inputs)

    def register_torch_dispatch(self, torch_dispatch_class: Any, fn: Any = None, /) -> NoReturn:
        """Refused: there is no ``__torch_dispatch__`` here."""
        register_torch_dispatch(self, torch_dispatch_class, fn)

    def set_kernel_enabled(self, device_type: str, enabled: bool = True) -> AbstractContextManager[None]:
        """Inside of it, whether the device's own kernel is used, or the function that the operator was made of."""
        return self._opoverload.kernel_enabled(device_type, enabled)


OpIdentifier = str | Operator | CustomOpDef


def custom_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: str | Iterable[str],
    device_types: DeviceTypes = None,
    schema: str | None = None,
    tags: object = None,
) -> Any:
    """Make an operator of a Python function; also a decorator.

    The function is called below the history and below ``autocast``: what it computes has the derivative that
    `register_autograd` gives it, and no other. In a compiled step its ops are recorded with the step's and fused with
    them; a function that leaves for NumPy makes the step run line by line, as it does outside of an operator.

    Args:
        name: ``"namespace::name"``, under which ``torch.ops`` has it.
        fn: its parameters and results are annotated (`infer_schema` says with what), or ``schema`` is given.
        mutates_args: the names of the tensors that it changes in place; ``"unknown"``: it may be all.
        device_types: the kinds of devices that the function is for; None: all.
        schema: such as ``"(Tensor x, float eps) -> Tensor"``, instead of annotations.
        tags: of torch's own tools; nothing depends on them here.

    Returns:
        The operator, a `CustomOpDef`. A name that is taken already is given to the new one.

    Raises:
        ArgumentError: the name has no namespace, or the function's annotations are no schema.

    Example:
        >>> import autojit as aj
        >>> @aj.library.custom_op("docs::cubed", mutates_args=())
        ... def cubed(x: aj.Tensor) -> aj.Tensor:
        ...     return x * x * x
        >>> def setup_context(ctx, inputs, output):
        ...     ctx.save_for_backward(*inputs)
        >>> def backward(ctx, y_bar):
        ...     (x,) = ctx.saved_tensors
        ...     return y_bar * 3 * x * x
        >>> cubed.register_autograd(backward, setup_context=setup_context)
        >>> x = aj.tensor([1.0, 2.0], requires_grad=True)
        >>> cubed(x).sum().backward()
        >>> x.grad
        tensor([ 3., 12.])
    """

    def made(function: Callable[..., Any]) -> CustomOpDef:
        text = schema if schema is not None else infer_schema(function, mutates_args=mutates_args)
        space, short = split_name(name)
        before = operators.found(name)
        if before is not None:
            operators.removed(before)
        operator = operators.added(parse(short + text, space))
        operator.first, operator.is_checked = function, True
        found = CustomOpDef(operator)
        register_kernel(found, device_types, function)
        return found

    return made if fn is None else made(fn)


def split_name(name: str) -> tuple[str, str]:
    """The namespace and the name of ``namespace::name``."""
    space, colons, short = name.partition("::")
    if not (colons and space and short):
        raise ArgumentError(
            f"library: expected a name of the form 'namespace::name', but got {name!r}", fix='"mylib::myop", say'
        )
    if "." in short:
        raise ArgumentError(f"library: the name {name!r} must not have a '.': overloads are made by define")
    return space, short


def operator_of(op: OpIdentifier, asked: str) -> Operator:
    """The operator that a name or an object stands for."""
    if isinstance(op, CustomOpDef):
        return op._opoverload
    if isinstance(op, Operator):
        return op
    if not isinstance(op, str):
        raise ArgumentError(f"{asked}({op}): got unexpected type for op: {type(op).__name__}")
    found = operators.found(op)
    if found is None:
        raise UsageError(
            f"{asked}: there is no operator {op}", fix="define it first, by custom_op, define or Library.define"
        )
    return found


def register_kernel(
    op: OpIdentifier,
    device_types: DeviceTypes,
    func: Callable[..., Any] | None = None,
    /,
    *,
    lib: object = None,
) -> Any:
    """Compute an operator by a function on devices of a kind; also a decorator.

    Args:
        op: a name, or what `custom_op` returned.
        device_types: ``"cpu"``, ``"cuda"``, several of them, or None: all without a kernel of their own.
        func: takes what the operator takes.
        lib: not needed.

    Raises:
        ArgumentError: a kind of device is given, and the operator takes neither a tensor nor a device.

    Example:
        >>> import autojit as aj
        >>> @aj.library.custom_op("docs::doubled", mutates_args=(), device_types="cuda")
        ... def doubled(x: aj.Tensor) -> aj.Tensor:
        ...     return x + x
        >>> @aj.library.register_kernel("docs::doubled", "cpu")
        ... def _(x):
        ...     return 2 * x
        >>> doubled(aj.ones(2))
        tensor([2., 2.])
    """
    operator = operator_of(op, "register_kernel")
    kinds = [device_types] if device_types is None or isinstance(device_types, str) else list(device_types)

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        types = [a.type for a in operator._schema.arguments]
        if kinds != [None] and not any(kind.startswith(("Tensor", "Device")) for kind in types):
            raise ArgumentError(
                "Functions without tensor inputs are required to have a `device: torch.device` argument",
                {"declaration": str(operator._schema)},
            )
        for kind in kinds:
            operator.kernels[key_of(kind)] = function
        return function

    return register if func is None else register(func)


def register_fake(
    op: OpIdentifier,
    func: Callable[..., Any] | None = None,
    /,
    *,
    lib: object = None,
    _stacklevel: int = 1,
    allow_override: bool = True,
) -> Any:
    """Give the function that makes an operator's results on the device ``meta``: shapes and dtypes; also a decorator.

    An operator that is named may be defined later.

    Example:
        >>> import autojit as aj
        >>> @aj.library.custom_op("docs::halved", mutates_args=())
        ... def halved(x: aj.Tensor) -> aj.Tensor:
        ...     return x / 2
        >>> @aj.library.register_fake("docs::halved")
        ... def _(x):
        ...     return aj.empty_like(x)
        >>> tuple(halved(aj.ones(2, 3, device="meta")).shape)
        (2, 3)
    """
    operator = None if isinstance(op, str) and operators.found(op) is None else operator_of(op, "register_fake")
    if operator is None:
        split_name(str(op).partition(".")[0])

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        if operator is None:
            operators.awaited_fakes[str(op)] = function
        else:
            operator.fake = function
        return function

    return register if func is None else register(func)


def impl_abstract(qualname: str, func: Any = None, *, lib: object = None, _stacklevel: int = 1) -> Any:
    """The old name of `register_fake`."""
    warn("`library.impl_abstract` was renamed to `library.register_fake`", FutureWarning)
    return register_fake(qualname, func, lib=lib)


def register_autograd(
    op: OpIdentifier,
    backward: Callable[..., Any],
    /,
    *,
    setup_context: Callable[..., Any] | None = None,
    lib: object = None,
) -> None:
    """Give an operator its derivative, in the form that ``autograd.Function`` has it.

    Args:
        op: a name, or what `custom_op` returned.
        backward: ``backward(ctx, *grads)``, one gradient per result (a list for a list), returns one per positional
            argument (a list, or None, for a list). Made of ops, it can be differentiated again.
        setup_context: ``setup_context(ctx, inputs, output)`` fills the ctx, called by these names; of an operator with
            keyword-only arguments, also ``keyword_only_inputs``, a dictionary.
        lib: not needed.

    Raises:
        UsageError: the operator changes an argument.

    Example:
        >>> import autojit as aj
        >>> @aj.library.custom_op("docs::tripled", mutates_args=())
        ... def tripled(x: aj.Tensor) -> aj.Tensor:
        ...     return x * 3
        >>> aj.library.register_autograd("docs::tripled", lambda ctx, y_bar: y_bar * 3)
        >>> x = aj.ones(2, requires_grad=True)
        >>> tripled(x).sum().backward()
        >>> x.grad
        tensor([3., 3.])
    """
    operator = operator_of(op, "register_autograd")
    if operator._schema.is_mutable:
        raise UsageError(
            f"Cannot register autograd formula for non-functional operator {operator.name()}: it changes an argument",
            {"declaration": str(operator._schema)},
            "make an operator that returns a new tensor, and register the formula for that",
        )
    operator.backward, operator.setup_context = backward, setup_context


def register_vmap(op: OpIdentifier, func: Callable[..., Any] | None = None, /, *, lib: object = None) -> Any:
    """Give an operator its form for batches; also a decorator. Without one it is called for each element.

    Args:
        op: a name, or what `custom_op` returned.
        func: ``func(info, in_dims, *args)``: ``info.batch_size``, for each argument the axis of the batch or None;
            returns the result and its axis.
        lib: not needed.

    Example:
        >>> import autojit as aj
        >>> @aj.library.custom_op("docs::squared", mutates_args=())
        ... def squared(x: aj.Tensor) -> aj.Tensor:
        ...     return x * x
        >>> @aj.library.register_vmap("docs::squared")
        ... def _(info, in_dims, x):
        ...     return squared(x), in_dims[0]
        >>> aj.vmap(squared)(aj.tensor([1.0, 3.0]))
        tensor([1., 9.])
    """
    operator = operator_of(op, "register_vmap")

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        operator.vmap = function
        return function

    return register if func is None else register(func)


def register_autocast(op: OpIdentifier, device_type: str, cast_inputs: Any, /, *, lib: object = None) -> None:
    """Cast an operator's floating-point operands inside ``autocast``, float64 left alone; ``autocast`` is off in it.

    Example:
        >>> import autojit as aj
        >>> @aj.library.custom_op("docs::kept", mutates_args=())
        ... def kept(x: aj.Tensor) -> aj.Tensor:
        ...     return x.clone()
        >>> aj.library.register_autocast("docs::kept", "cpu", aj.bfloat16)
        >>> with aj.autocast("cpu"):
        ...     print(kept(aj.ones(1)).dtype)
        autojit.bfloat16
    """
    if device_type not in ("cpu", "cuda"):
        raise ArgumentError(f"register_autocast: device type {device_type!r} does not support autocast")
    operator_of(op, "register_autocast").cast_to[device_type] = cast_inputs


def register_torch_dispatch(
    op: OpIdentifier, torch_dispatch_class: Any, func: Any = None, /, **options: Any
) -> NoReturn:
    """Refused: there is no ``__torch_dispatch__`` here.

    Raises:
        UnsupportedError: always.
    """
    operator_of(op, "register_torch_dispatch")
    raise UnsupportedError(
        "register_torch_dispatch: autojit has no __torch_dispatch__",
        {"class": getattr(torch_dispatch_class, "__name__", torch_dispatch_class)},
        "define __torch_function__, which is asked for every public function",
    )
