"""``backward`` and ``grad``: torch's arguments, checks and defaults around the engine."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

from autojit.autograd.engine import check_cotangent, edge_type, run_backward
from autojit.core.errors import DifferentiationError
from autojit.core.ports import ports
from autojit.core.types import TensorType
from autojit.tensor import Tensor
from autojit.tensor.conversion import retain_grad
from autojit.tensor.factories import zeros
from autojit.tensor.node import AccumulateGrad, Edge, Node
from autojit.tensor.recording import edge_of
from autojit.tensor.state import grad_mode
from autojit.tensor.tensor import type_of


class GradientEdge(NamedTuple):
    """A place in the history: a node and the number of one of its outputs."""

    node: Node
    output_nr: int


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """Where the gradient of a tensor is computed, without keeping the tensor alive."""
    edge = edge_of(tensor)
    if edge is None:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    return GradientEdge(*edge)


def _sequence(given: Any) -> tuple[Any, ...]:
    if given is None:
        return ()
    if isinstance(given, Tensor | GradientEdge):
        return (given,)
    return tuple(given)


def _edge(given: Any, what: str, number: int) -> Edge:
    if isinstance(given, GradientEdge):
        return given.node, given.output_nr
    if not isinstance(given, Tensor):
        raise TypeError(f"{what} must be Tensors or GradientEdges, not {type(given).__name__}")
    edge = edge_of(given)
    if edge is None:
        raise DifferentiationError(
            f"element {number} of tensors does not require grad and does not have a grad_fn",
            {what: given},
            "set requires_grad=True on the leaves it is computed from, and do not compute it under no_grad()",
        )
    return edge


def _type(given: Any) -> TensorType:
    return edge_type((given.node, given.output_nr)) if isinstance(given, GradientEdge) else type_of(given)


def _cotangents(outputs: Sequence[Any], given: Any, create_graph: bool, what: str) -> list[Any]:
    grads = [None] * len(outputs) if given is None else list(_sequence(given))
    if len(grads) != len(outputs):
        raise RuntimeError(f"got {len(outputs)} tensors and {len(grads)} gradients")
    made: list[Any] = []
    with grad_mode(create_graph):
        for number, (output, grad) in enumerate(zip(outputs, grads, strict=True)):
            made.append(_cotangent(output, grad, what, number))
    return made


def _cotangent(output: Any, grad: Any, what: str, number: int) -> Any:
    t = _type(output)
    if grad is not None:
        return check_cotangent(grad, t, what, number)
    if isinstance(output, Tensor) and edge_of(output) is None:
        return None
    if t.size != 1:
        raise DifferentiationError(
            "grad can be implicitly created only for scalar outputs",
            {"output": output if isinstance(output, Tensor) else t},
            "pass the vector of the vector-Jacobian product, or reduce the output with .sum()",
        )
    if not t.dtype.is_floating_point:
        raise RuntimeError(f"grad can be implicitly created only for real scalar outputs but got {t.dtype}")
    return Tensor._literal_of(1, t).clone() if not t.shape else Tensor._literal_of(1, t)


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """Add the derivatives of ``tensors`` (weighted by ``grad_tensors``) to ``.grad`` of the leaves they depend on.

    ``retain_graph`` (default: the value of ``create_graph``) keeps what was saved for another pass; ``create_graph``
    records the derivative too; ``inputs`` restricts accumulation to these tensors.

    Raises:
        RuntimeError: an output is not scalar and has no vector, requires no gradient, or its history is gone.
    """
    if grad_variables is not None:
        warnings.warn("`grad_variables` is deprecated. Use `grad_tensors` instead.", FutureWarning, stacklevel=2)
        if grad_tensors is not None:
            raise RuntimeError("`grad_tensors` and `grad_variables` (deprecated) arguments both passed to `backward()`")
        grad_tensors = grad_variables
    outputs = _sequence(tensors)
    if inputs is not None and not _sequence(inputs):
        raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    grads = _cotangents(outputs, grad_tensors, create_graph, "grad_tensors")
    roots = _roots(outputs, grads)
    if create_graph:
        warnings.warn(
            "Using backward() with create_graph=True will create a reference cycle between the parameter and its "
            "gradient "
            "which can cause a memory leak. We recommend using autograd.grad when creating the graph to avoid this. "
            "If you "
            "have to use this function, make sure to reset the .grad fields of your parameters to None after use to "
            "break "
            "the cycle and avoid the leak.",
            UserWarning,
            stacklevel=2,
        )
    targets = None
    if inputs is not None:
        chosen = _sequence(inputs)
        for x in chosen:
            if isinstance(x, Tensor) and x._grad_fn is not None:
                retain_grad(x)
        targets = [_edge(x, "inputs", i) for i, x in enumerate(chosen)]
    keep = create_graph if retain_graph is None else retain_graph
    run_backward(roots, keep, create_graph, targets, accumulate=True)


def _roots(outputs: Sequence[Any], grads: Sequence[Any]) -> list[tuple[Edge, Any]]:
    """(edge, cotangent) of the outputs that require gradients; an error when none does."""
    edges = [(i, o) for i, o in enumerate(outputs) if isinstance(o, GradientEdge) or edge_of(o) is not None]
    if len(edges) < len(outputs):
        missing = next(i for i, o in enumerate(outputs) if isinstance(o, Tensor) and edge_of(o) is None)
        _edge(outputs[missing], "tensors", missing)
    return [(_edge(o, "tensors", i), grads[i]) for i, o in edges]


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """The sums of derivatives of ``outputs`` with respect to each of ``inputs``; ``.grad`` is left alone.

    ``allow_unused`` gives None for inputs that were not used (an error otherwise), ``materialize_grads`` zeros.
    ``only_inputs=False`` also accumulates into the other leaves. ``is_grads_batched`` takes vectors with a leading
    axis.

    Example:
        >>> import autojit as aj
        >>> x = aj.tensor(3.0, requires_grad=True)
        >>> aj.autograd.grad(x**2, x)
        (tensor(6.),)
    """
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False."
        )
    results, chosen = _sequence(outputs), _sequence(inputs)
    keep = bool(create_graph) if retain_graph is None else retain_graph
    if is_grads_batched:
        return _batched(results, chosen, grad_outputs, keep, create_graph, allow_unused, materialize_grads)
    grads = _cotangents(results, grad_outputs, bool(create_graph), "grad_outputs")
    targets = [_input_edge(x, i) for i, x in enumerate(chosen)]
    roots = _roots(results, grads)
    if not only_inputs:
        warnings.warn(
            "only_inputs argument is deprecated and is ignored; others are accumulated", FutureWarning, stacklevel=2
        )
        _accumulate_others(roots, targets)
    found = run_backward(roots, keep, bool(create_graph), targets, accumulate=False)
    unused = allow_unused or materialize_grads
    return tuple(
        _picked(found.get(edge), x, i, unused, materialize_grads)
        for i, (edge, x) in enumerate(zip(targets, chosen, strict=True))
    )


def _input_edge(given: Any, number: int) -> Edge:
    if isinstance(given, Tensor) and edge_of(given) is None:
        raise DifferentiationError(
            "One of the differentiated Tensors does not require grad",
            {f"input {number}": given},
            "set requires_grad=True",
        )
    return _edge(given, "inputs", number)


def _picked(found: Any, x: Any, number: int, unused: bool, materialize: bool) -> Any:
    if found is not None:
        return found
    if materialize:
        t = _type(x)
        return zeros(t.shape, dtype=t.dtype)
    if not unused:
        raise DifferentiationError(
            "One of the differentiated Tensors appears to not have been used in the graph. Set allow_unused=True if "
            "this is "
            "the desired behavior.",
            {f"input {number}": x if isinstance(x, Tensor) else _type(x)},
        )
    return None


def _accumulate_others(roots: list[tuple[Edge, Any]], targets: list[Edge]) -> None:
    """``only_inputs=False``: all other leaves accumulate, the listed ones keep their ``.grad``."""
    listed = {node for node, _ in targets}
    kept = [(n.variable, n.variable._grad) for n in listed if isinstance(n, AccumulateGrad)]
    for leaf, _ in kept:
        leaf._set_grad(None)
    run_backward(roots, True, False, None, accumulate=True)
    for leaf, before in kept:
        leaf._set_grad(before)


def _batched(
    outputs: tuple[Any, ...], inputs: tuple[Any, ...], grad_outputs: Any, keep: bool, create_graph: bool,
    allow_unused: bool | None, materialize: bool,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """One pass per row of the vectors; the results are stacked."""
    vectors = _sequence(grad_outputs)
    if not vectors:
        raise RuntimeError("is_grads_batched=True needs grad_outputs")
    count = next(type_of(v).shape[0] for v in vectors if v is not None)
    rows = []
    for k in range(count):
        last = k == count - 1
        rows.append(
            grad(outputs, inputs, [None if v is None else v[k] for v in vectors], keep or not last, create_graph,
                 allow_unused=allow_unused, materialize_grads=materialize)
        )  # fmt: skip
    columns = zip(*rows, strict=True)
    return tuple(None if any(g is None for g in c) else _stack(c) for c in columns)


def _stack(column: Sequence[Any]) -> Tensor:
    from autojit.tensor.functions_shape import stack

    return stack(list(column))


def _port(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    *,
    inputs: Any = None,
) -> None:
    backward(tensors, grad_tensors, retain_graph, create_graph, inputs=inputs)


ports.backward = _port
