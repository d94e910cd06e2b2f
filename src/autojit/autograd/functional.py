"""Derivatives of functions: jacobian, hessian, vjp, jvp, hvp, vhp (torch.autograd.functional)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autojit.autograd.derivatives import grad
from autojit.tensor import Tensor
from autojit.tensor.factories import zeros_like
from autojit.tensor.functions_shape import stack
from autojit.tensor.state import grad_mode
from autojit.tensor.tensor import type_of

Function = Callable[..., Any]


def _tuple(given: Any, what: str, function: str) -> tuple[tuple[Tensor, ...], bool]:
    """(tensors, whether it was a tuple); TypeError when something is not a tensor."""
    is_tuple = isinstance(given, tuple)
    found = given if is_tuple else (given,)
    for i, t in enumerate(found):
        if not isinstance(t, Tensor):
            extra = f" at index {i}" if is_tuple else ""
            raise TypeError(
                f"The {what} given to {function} must be either a Tensor or a tuple of Tensors but the value{extra} "
                "has type "
                f"{type(t)}."
            )
    return tuple(found), is_tuple


def _prepared(inputs: Sequence[Tensor], create_graph: bool) -> tuple[Tensor, ...]:
    """Inputs as fresh tensors to differentiate by; connected to the originals when a graph is wanted."""
    if create_graph:
        return tuple(t.view_as(t) if t.requires_grad else t.detach().requires_grad_() for t in inputs)
    return tuple(t.detach().requires_grad_() for t in inputs)


def _finished(tensors: Any, create_graph: bool) -> Any:
    if isinstance(tensors, tuple):
        return tuple(_finished(t, create_graph) for t in tensors)
    return tensors if create_graph else tensors.detach()


def _derivative(
    output: Tensor, inputs: Sequence[Tensor], vector: Tensor | None, create_graph: bool, strict: bool, what: str
) -> tuple[Tensor, ...]:
    """One VJP; zeros for inputs the output does not depend on, an error under ``strict``."""
    if not output.requires_grad:
        if strict:
            raise RuntimeError(
                f"Output of the user-provided function does not require gradients in {what} with strict mode"
            )
        return tuple(zeros_like(t) for t in inputs)
    found = grad(output, tuple(inputs), vector, retain_graph=True, create_graph=create_graph, allow_unused=True)
    if strict and any(g is None for g in found):
        place = next(i for i, g in enumerate(found) if g is None)
        raise RuntimeError(f"The output of the user-provided function is independent of input {place} in {what}.")
    return tuple(zeros_like(t) if g is None else g for g, t in zip(found, inputs, strict=True))


def jacobian(
    func: Function,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The Jacobian: per output and input a tensor of shape ``output.shape + input.shape``."""
    with grad_mode(True):
        given, many_in = _tuple(inputs, "inputs", "jacobian")
        xs = _prepared(given, create_graph)
        outputs, many_out = _tuple(func(*xs), "outputs", "jacobian")
        found = tuple(_jacobian_of(y, xs, create_graph, strict) for y in outputs)
    done = _finished(found, create_graph)
    rows = done if many_in else tuple(row[0] for row in done)
    return rows if many_out else rows[0]


def _jacobian_of(y: Tensor, xs: tuple[Tensor, ...], create_graph: bool, strict: bool) -> tuple[Tensor, ...]:
    flat = y.reshape(-1)
    rows = [_derivative(flat[i], xs, None, create_graph, strict, "jacobian") for i in range(type_of(flat).size)]
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in xs]
    return tuple(
        (stack(list(c)) if c else zeros_like(x).reshape(-1)[:0]).reshape((*type_of(y).shape, *type_of(x).shape))
        for c, x in zip(columns, xs, strict=True)
    )


def hessian(
    func: Function,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The matrix of second derivatives of a scalar function, per pair of inputs."""
    given, many = _tuple(inputs, "inputs", "hessian")

    def gradients(*xs: Tensor) -> Any:
        found = jacobian(_scalar(func, "hessian"), xs if many else xs[0], create_graph=True, strict=strict)
        return found if many else (found,)

    with grad_mode(True):
        found = jacobian(gradients, given, create_graph=create_graph, strict=strict)
    return found if many else found[0][0]


def _scalar(func: Function, what: str) -> Function:
    def checked(*xs: Tensor) -> Tensor:
        y = func(*xs)
        if not isinstance(y, Tensor):
            raise RuntimeError(f"The function given to {what} should return a single Tensor")
        if type_of(y).size != 1:
            raise RuntimeError(f"The Tensor returned by the function given to {what} should contain a single element")
        return y.reshape(())  # type: ignore[no-any-return]

    return checked


def _vectors(v: Any, like: Sequence[Tensor], many: bool, what: str) -> tuple[Tensor, ...]:
    if v is None:
        if len(like) != 1 or type_of(like[0]).size != 1:
            raise RuntimeError(f"The vector v can only be None if the {what} contains a single element.")
        return (like[0].detach() * 0 + 1,)
    found, _ = _tuple(v, "v", what)
    if len(found) != len(like):
        raise RuntimeError(f"v is a tuple of invalid length: should be {len(like)} but got {len(found)}.")
    for i, (a, b) in enumerate(zip(found, like, strict=True)):
        if type_of(a).shape != type_of(b).shape:
            raise RuntimeError(
                f"Entry {i} in v has invalid size: should be {b.shape} but got {a.shape}." if many else
                f"v has invalid size: should be {b.shape} but got {a.shape}."
            )  # fmt: skip
    return found


def vjp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(outputs, vector-Jacobian product)."""
    with grad_mode(True):
        given, many_in = _tuple(inputs, "inputs", "vjp")
        xs = _prepared(given, create_graph)
        outputs, many_out = _tuple(func(*xs), "outputs", "vjp")
        vectors = _vectors(v, outputs, many_out, "user-provided function's output")
        found = _summed(outputs, xs, vectors, create_graph, strict, "vjp")
    results = outputs if many_out else outputs[0]
    return _finished(results, create_graph), _finished(found if many_in else found[0], create_graph)


def _summed(
    outputs: Sequence[Tensor],
    xs: Sequence[Tensor],
    vectors: Sequence[Tensor],
    create_graph: bool,
    strict: bool,
    what: str,
) -> tuple[Tensor, ...]:
    total: tuple[Tensor, ...] | None = None
    for y, v in zip(outputs, vectors, strict=True):
        part = _derivative(y, xs, v, create_graph, strict, what)
        total = part if total is None else tuple(a + b for a, b in zip(total, part, strict=True))
    assert total is not None
    return total


def jvp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(outputs, Jacobian-vector product), by differentiating the VJP with respect to its vector."""
    with grad_mode(True):
        given, many_in = _tuple(inputs, "inputs", "jvp")
        xs = _prepared(given, create_graph)
        vectors = _vectors(v, xs, many_in, "user-provided function's input")
        outputs, many_out = _tuple(func(*xs), "outputs", "jvp")
        dummies = tuple(zeros_like(y).requires_grad_() for y in outputs)
        pulled = _summed(outputs, xs, dummies, True, strict, "jvp")
        found = _summed(pulled, dummies, vectors, create_graph, False, "jvp")
    results = outputs if many_out else outputs[0]
    return _finished(results, create_graph), _finished(found if many_out else found[0], create_graph)


def vhp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(output, vector-Hessian product) of a scalar function."""
    with grad_mode(True):
        given, many = _tuple(inputs, "inputs", "vhp")
        xs = _prepared(given, create_graph)
        vectors = _vectors(v, xs, many, "user-provided function's input")
        y = _scalar(func, "vhp")(*xs)
        gradients = _derivative(y, xs, None, True, strict, "vhp")
        found = _summed(gradients, xs, vectors, create_graph, False, "vhp")
    return _finished(y, create_graph), _finished(found if many else found[0], create_graph)


def hvp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(output, Hessian-vector product) of a scalar function: the Hessian is symmetric, so it is ``vhp``."""
    return vhp(func, inputs, v, create_graph, strict)
