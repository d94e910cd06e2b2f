"""The derivative of a function at a point as a linear function, and torch's helpers around transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autojit.autograd.forward_level import ForwardLevel, unpack_dual
from autojit.core.wrapping import wraps
from autojit.dispatch.batch_layer import BatchLayer
from autojit.func.reverse import fresh, own, pull_back
from autojit.functions.factories import zeros_like
from autojit.jit.pytree import flatten
from autojit.tensor import Tensor
from autojit.tensor.state import below, state, transform_mode
from autojit.tensor.tensor import type_of

Function = Callable[..., Any]


def linearize(func: Function, *primals: Any) -> tuple[Any, Function]:
    """(output, function from tangents of the primals to that of the output); ``func`` is called once.

    Reverse mode twice: the vector-Jacobian product is linear in its vector, so its own is the Jacobian-vector product.

    Raises:
        RuntimeError: tangents differ from the primals in structure or shape.

    Example:
        >>> import autojit as aj
        >>> value, push = aj.func.linearize(lambda x: x**2, aj.tensor(3.0))
        >>> value, push(aj.tensor(1.0))
        (tensor(9.), tensor(6.))
    """
    known, structure = flatten(primals)
    with transform_mode() as is_recording:
        xs = [fresh(x, is_recording) for x in known]
        outputs, tree = flatten(func(*structure.unflatten(xs)))
        bars = [fresh(zeros_like(y), is_recording) for y in outputs]
        slopes = pull_back(outputs, xs, bars)
        owned = [own(y, xs, is_recording) for y in outputs]

    def push(*tangents: Any) -> Any:
        given, given_structure = flatten(tangents)
        if given_structure != structure:
            raise RuntimeError("linearize: Expected the tangents to have the structure of the primals")
        for x, x_dot in zip(known, given, strict=True):
            if type_of(x).shape != type_of(x_dot).shape or type_of(x).dtype is not type_of(x_dot).dtype:
                raise RuntimeError(
                    f"linearize: a tangent of type {type_of(x_dot)} does not fit its primal of type {type_of(x)}"
                )
        with transform_mode() as is_recording:
            found = pull_back(slopes, bars, given)
            return tree.unflatten([own(y_dot, [*xs, *bars], is_recording) for y_dot in found])

    return tree.unflatten(owned), push


def functionalize(func: Function, *, remove: str = "mutations") -> Function:
    """The function itself: captured steps contain neither writes nor views, whatever the function does.

    Args:
        remove: ``"mutations"`` or ``"mutations_and_views"``.

    Raises:
        RuntimeError: another value of ``remove``.

    Example:
        >>> import autojit as aj
        >>> aj.func.functionalize(lambda x: x.clone().add_(1))(aj.zeros(2))
        tensor([1., 1.])
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(
            "functionalize(f, remove='mutations'): received invalid argument for remove. Valid options are:\n"
            f"     remove='mutations'\n     remove='mutations_and_views'\nGot: {remove}"
        )

    @wraps(func)
    def same(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    return same


def debug_unwrap(tensor: Tensor, *, recurse: bool = True) -> Tensor:
    """The tensor that a batched tensor, or one with tangents, stands for; to look at while debugging.

    Args:
        recurse: go through all transforms, not only the innermost.

    Example:
        >>> import autojit as aj
        >>> def show(x):
        ...     print(aj.func.debug_unwrap(x).shape)
        ...     return x
        >>> _ = aj.vmap(show)(aj.ones(2, 3))
        autojit.Size([2, 3])
    """
    found = tensor
    for layer in reversed(state.layers):
        if isinstance(layer, BatchLayer):
            full = layer.full(found)
            found, is_wrapped = (found, False) if full is None else (full, True)
        elif isinstance(layer, ForwardLevel):
            with below(layer):
                primal, x_dot = unpack_dual(layer, found)
            found, is_wrapped = primal, x_dot is not None
        else:
            continue
        if is_wrapped and not recurse:
            return found
    return found
