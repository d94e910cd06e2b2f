"""Derivatives of functions: jacobian, hessian, vjp, jvp, hvp, vhp (torch.autograd.functional).

``func`` takes Tensors and returns a Tensor or a tuple of them; ``inputs`` is one Tensor or a tuple. Results are nested
as inputs and outputs were: a tuple only where a tuple was. ``create_graph`` records the derivative, so that it can be
differentiated again; ``strict`` refuses derivatives that are zero because nothing connects output and input.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from autojit.autograd import forward_ad
from autojit.autograd.functional_checks import (
    BACK,
    BACK_OF_BACK,
    BACK_OF_SECOND,
    OUTPUTS,
    SECOND,
    Function,
    Tensors,
    as_tensors,
    check_dependent,
    check_outputs,
    check_vectors,
    filled,
    finished,
    fresh,
    one_or_all,
    pulled,
    single_output,
)  # fmt: skip
from autojit.core.types import TensorType
from autojit.dispatch.batch_layer import over_batch
from autojit.functions.factories import eye, zeros, zeros_like
from autojit.functions.shape import stack
from autojit.tensor import Tensor
from autojit.tensor.state import grad_mode, state
from autojit.tensor.tensor import type_of

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

_ONE_ELEMENT_INPUT = (
    "The vector v can only be None if the input to the user-provided function is a single Tensor with a single element."
)


def _mode(create_graph: bool) -> Any:
    return grad_mode(create_graph or state.grad_enabled)


def vjp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(outputs, vector-Jacobian product): ``v`` is shaped like the outputs, the product like the inputs.

    Raises:
        RuntimeError: ``v`` is missing for an output with several elements, or does not fit the outputs.
        TypeError: an input, an output or ``v`` is neither a Tensor nor a tuple of Tensors.

    Example:
        >>> import autojit as aj
        >>> vjp(lambda x: x**2, aj.tensor([1.0, 2.0]), aj.tensor([1.0, 10.0]))
        (tensor([1., 4.]), tensor([ 2., 40.]))
    """
    with grad_mode(True):
        xs, many_in = fresh(inputs, "inputs", "vjp", create_graph)
        outputs, many_out = as_tensors(func(*xs), OUTPUTS, "vjp")
        check_outputs(outputs, strict)
        vectors = None
        if v is not None:
            vectors = fresh(v, "v", "vjp", create_graph, False)[0]
            check_vectors(vectors, outputs, many_out)
        elif len(outputs) != 1 or type_of(outputs[0]).size != 1:
            raise RuntimeError(
                "The vector v can only be None if the user-provided function returns a single Tensor with a single "
                "element."
            )
    with _mode(create_graph):
        found = filled(pulled(outputs, xs, vectors, create_graph), xs, strict, create_graph, BACK)
    return _pair(outputs, many_out, found, many_in, create_graph)


def jvp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(outputs, Jacobian-vector product): ``v`` is shaped like the inputs, the product like the outputs.

    Computed by differentiating the vector-Jacobian product with respect to its vector. ``forward_ad`` computes the same
    without a backward pass.

    Raises:
        RuntimeError: ``v`` is missing for an input with several elements, or does not fit the inputs.
        TypeError: as for ``vjp``.

    Example:
        >>> import autojit as aj
        >>> jvp(lambda x: x**2, aj.tensor([1.0, 2.0]), aj.tensor([1.0, 10.0]))
        (tensor([1., 4.]), tensor([ 2., 40.]))
    """
    with grad_mode(True):
        xs, many_in = fresh(inputs, "inputs", "jvp", create_graph)
        vectors = _input_vectors(v, xs, many_in, create_graph, "jvp")
        outputs, many_out = as_tensors(func(*xs), OUTPUTS, "jvp")
        check_outputs(outputs, strict)
        dummies = tuple(zeros_like(y, requires_grad=True) for y in outputs)
        pullback = pulled(outputs, xs, dummies, True)
        check_dependent(pullback, "grad_inputs", strict)
    with _mode(create_graph):
        found = pulled(pullback, dummies, vectors, create_graph)
        done = filled(found, outputs, strict, create_graph, BACK_OF_BACK)
    return _pair(outputs, many_out, done, many_out, create_graph)


def _input_vectors(v: Any, xs: Tensors, is_tuple: bool, create_graph: bool, name: str) -> Tensors | None:
    if v is None:
        if len(xs) != 1 or type_of(xs[0]).size != 1:
            raise RuntimeError(_ONE_ELEMENT_INPUT)
        return None
    vectors = fresh(v, "v", name, create_graph, False)[0]
    check_vectors(vectors, xs, is_tuple)
    return vectors


def _pair(outputs: Tensors, many_out: bool, found: Tensors, many: bool, create_graph: bool) -> tuple[Any, Any]:
    results = one_or_all(finished(outputs, create_graph), many_out)
    return results, one_or_all(finished(found, create_graph), many)


def jacobian(
    func: Function,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The Jacobian: per output and input a tensor of shape ``output.shape + input.shape``.

    ``vectorize`` computes all rows at once, as a batch, instead of one backward pass each. ``strategy`` "forward-mode"
    goes through the inputs' elements instead of the outputs'; it takes ``vectorize=True``.

    Raises:
        RuntimeError: ``strict`` finds an independent input, or is combined with ``vectorize``.
        TypeError: an input or output is neither a Tensor nor a tuple of Tensors.

    Example:
        >>> import autojit as aj
        >>> jacobian(lambda x: x**2, aj.tensor([1.0, 2.0]))
        tensor([[2., 0.],
                [0., 4.]])
    """
    _check_strategy(strategy)
    if strategy == "forward-mode":
        return _forward_jacobian(func, inputs, create_graph, strict, vectorize)
    with grad_mode(True):
        xs, many_in = fresh(inputs, "inputs", "jacobian", create_graph)
        outputs, many_out = as_tensors(func(*xs), OUTPUTS, "jacobian")
        check_outputs(outputs, strict)
        if vectorize:
            if strict:
                raise RuntimeError(
                    "jacobian: `strict=True` and `vectorized=True` are not supported together. Please either set "
                    "`strict=False` or `vectorize=False`."
                )
            found = _all_rows(outputs, xs, create_graph)
        else:
            found = tuple(_row_by_row(k, y, xs, create_graph, strict) for k, y in enumerate(outputs))
    return one_or_all(finished(found, create_graph), many_out, many_in)


def _check_strategy(strategy: str) -> None:
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError(
            'Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your function has more outputs '
            'than inputs, "forward-mode" tends to be more performant. Otherwise, prefer to use "reverse-mode".'
        )


def _row_by_row(number: int, y: Tensor, xs: Tensors, create_graph: bool, strict: bool) -> Tensors:
    flat = y.reshape(-1)
    rows: list[list[Tensor]] = [[] for _ in xs]
    for j in range(type_of(flat).size):
        found = pulled((flat[j],), xs, None, create_graph, keep=True)
        for place, (row, g) in enumerate(zip(rows, found, strict=True)):
            if g is None and strict:
                raise RuntimeError(
                    f"Output {number} of the user-provided function is independent of input {place}. This is not "
                    "allowed in strict mode."
                )
            if g is not None and strict and create_graph and not g.requires_grad:
                raise RuntimeError(
                    f"The jacobian of the user-provided function is independent of input {number}. This is not allowed "
                    "in strict mode when create_graph=True."
                )
            row.append(zeros_like(xs[place]) if g is None else g)
    return tuple(_stacked(row, type_of(y), type_of(x)) for row, x in zip(rows, xs, strict=True))


def _stacked(rows: Sequence[Tensor], y: TensorType, x: TensorType) -> Tensor:
    shape = (*y.shape, *x.shape)
    return stack(list(rows)).reshape(shape) if rows else zeros(*shape, dtype=x.dtype, device=x.device)


def _all_rows(outputs: Tensors, xs: Tensors, create_graph: bool) -> tuple[Tensors, ...]:
    """Every row of every output's Jacobian by one batched backward pass."""
    sizes = [type_of(y).size for y in outputs]
    vectors = _basis(outputs)
    found = pulled(outputs, xs, vectors, create_graph, batched=True) if sum(sizes) else (None,) * len(xs)
    columns = []
    for g, x in zip(found, xs, strict=True):
        whole = x.new_zeros((sum(sizes), *type_of(x).shape)) if g is None else g
        parts = whole.split(sizes, 0)
        columns.append([p.reshape((*type_of(y).shape, *type_of(x).shape)) for p, y in zip(parts, outputs, strict=True)])
    return tuple(zip(*columns, strict=True))


def _construct_standard_basis_for(tensors: Sequence[Tensor], tensor_numels: Sequence[int]) -> Tensors:
    """Per tensor a matrix ``[all elements, its elements]``; side by side they are the identity."""
    total = sum(tensor_numels)
    found = []
    start = 0
    for t, count in zip(tensors, tensor_numels, strict=True):
        found.append(eye(total, dtype=type_of(t).dtype, device=type_of(t).device)[:, start : start + count])
        start += count
    return tuple(found)


def _basis(tensors: Sequence[Tensor]) -> Tensors:
    """Per tensor a batch of vectors in its shape: over all batches together one for each element of all tensors."""
    sizes = [type_of(t).size for t in tensors]
    parts = _construct_standard_basis_for(tensors, sizes)
    return tuple(p.reshape((sum(sizes), *type_of(t).shape)) for p, t in zip(parts, tensors, strict=True))


def _forward_jacobian(func: Function, inputs: Any, create_graph: bool, strict: bool, vectorize: bool) -> Any:
    """Every column at once: a batch of tangents, one for each element of the inputs."""
    if create_graph:
        raise NotImplementedError('jacobian does not support create_graph=True when strategy="forward-mode"')
    if strict:
        raise RuntimeError(
            'jacobian: `strict=True` and `strategy="forward-mode"` are not supported together (yet). Please either set '
            '`strict=False` or `strategy="reverse-mode"`.'
        )
    if not vectorize:
        raise NotImplementedError(
            "Computing Jacobian using forward-AD or forward-over-reverse Hessian is only implemented for "
            "`vectorize=True`."
        )
    given, many_in = as_tensors(inputs, "inputs", "jacobian")
    types = [type_of(x) for x in given]
    seen: list[bool] = []

    def push(*tangents: Tensor) -> list[Tensor]:
        with forward_ad.dual_level():
            xs = [forward_ad.make_dual(x, t) for x, t in zip(given, tangents, strict=True)]
            outputs, many = as_tensors(func(*xs), OUTPUTS, "jacobian")
            seen.append(many)
            pairs = [forward_ad.unpack_dual(y) for y in outputs]
        return [zeros_like(p) if t is None else t for p, t in pairs]

    columns: Any = over_batch(push, _basis(given))
    sizes = [t.size for t in types]
    found = tuple(_column_blocks(c, types, sizes) for c in columns)
    return one_or_all(finished(found, create_graph), seen[0], many_in)


def _column_blocks(columns: Tensor, types: Sequence[TensorType], sizes: Sequence[int]) -> Tensors:
    """``[inputs' elements, *output.shape]`` as one block of shape ``output.shape + input.shape`` per input."""
    shape = type_of(columns).shape[1:]
    parts = columns.reshape((sum(sizes), prod(shape))).t().split(list(sizes), 1)
    return tuple(p.reshape((*shape, *t.shape)) for p, t in zip(parts, types, strict=True))


def hessian(
    func: Function,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The second derivatives of a scalar-valued function: per pair of inputs a tensor of both their shapes.

    ``vectorize`` and ``outer_jacobian_strategy`` are those of ``jacobian`` for the derivative of the gradient.

    Raises:
        RuntimeError: the function does not return one Tensor with one element, or ``strict`` finds an independent
            input.

    Example:
        >>> import autojit as aj
        >>> hessian(lambda x: (x**3).sum(), aj.tensor([1.0, 2.0]))
        tensor([[ 6.,  0.],
                [ 0., 12.]])
    """
    _check_strategy(outer_jacobian_strategy)
    given, many = as_tensors(inputs, "inputs", "hessian")

    def scalar(*xs: Tensor) -> Tensor:
        found: Tensor = single_output(func, xs, "hessian", strict).reshape(())
        return found

    def gradients(*xs: Tensor) -> Any:
        if outer_jacobian_strategy == "forward-mode":
            xs = tuple(x if x.requires_grad else x.requires_grad_() for x in xs)
        found = jacobian(scalar, xs, create_graph=True)
        check_dependent(found, "jacobian", strict)
        return found

    found = jacobian(gradients, given, create_graph, strict, vectorize, outer_jacobian_strategy)
    return one_or_all(found, many, many)


def vhp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(output, vector-Hessian product) of a scalar-valued function.

    Raises:
        RuntimeError: as for ``hessian``; ``v`` is missing or does not fit the inputs.

    Example:
        >>> import autojit as aj
        >>> vhp(lambda x: (x**3).sum(), aj.tensor([1.0, 2.0]), aj.tensor([1.0, 1.0]))
        (tensor(9.), tensor([ 6., 12.]))
    """
    xs, many, vectors, y, gradients = _gradients(func, inputs, v, create_graph, strict, "vhp")
    with _mode(create_graph):
        found = filled(pulled(gradients, xs, vectors, create_graph), xs, strict, create_graph, SECOND)
    return _pair((y,), False, found, many, create_graph)


def _gradients(
    func: Function, inputs: Any, v: Any, create_graph: bool, strict: bool, name: str
) -> tuple[Tensors, bool, Tensors | None, Tensor, tuple[Any, ...]]:
    """(inputs, whether a tuple was given, vectors, output, recorded gradients) of a scalar-valued function."""
    with grad_mode(True):
        xs, many = fresh(inputs, "inputs", name, create_graph)
        vectors = _input_vectors(v, xs, many, create_graph, name)
        y = single_output(func, xs, name, strict)
        gradients = pulled((y,), xs, None, True)
        check_dependent(gradients, "jacobian", strict)
    return xs, many, vectors, y, gradients


def hvp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(output, Hessian-vector product) of a scalar-valued function; ``vhp`` is cheaper and equal for smooth functions.

    Raises:
        RuntimeError: as for ``vhp``.

    Example:
        >>> import autojit as aj
        >>> hvp(lambda x: (x**3).sum(), aj.tensor([1.0, 2.0]), aj.tensor([1.0, 1.0]))
        (tensor(9.), tensor([ 6., 12.]))
    """
    xs, many, vectors, y, gradients = _gradients(func, inputs, v, create_graph, strict, "hvp")
    with grad_mode(True):
        dummies = tuple(zeros_like(x, requires_grad=True) for x in xs)
        pullback = pulled(gradients, xs, dummies, True)
        check_dependent(gradients, "hessian", strict)
    with _mode(create_graph):
        found = filled(pulled(pullback, dummies, vectors, create_graph), xs, strict, create_graph, BACK_OF_SECOND)
    return _pair((y,), False, found, many, create_graph)
