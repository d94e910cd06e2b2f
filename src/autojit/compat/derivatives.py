"""``backward`` and ``grad`` with the names and defaults of 0.3."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from autojit import autograd
from autojit.autograd.graph import get_gradient_edge
from autojit.compat.variables import Variable, is_volatile
from autojit.core.errors import UsageError
from autojit.functions.factories import zeros
from autojit.tensor import Tensor


def backward(
    variables: Any,
    grad_variables: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool | None = None,
    retain_variables: bool | None = None,
) -> None:
    """Add the derivatives of ``variables`` (weighted by ``grad_variables``) to ``.grad`` of the leaves.

    Samples of stochastic functions need no vector: their reward takes its place.

    Args:
        variables: one or a sequence.
        grad_variables: per variable a vector of its shape, or None for scalars. Without ``create_graph`` vectors never
            become part of a graph.
        retain_graph: keep what was saved for another pass; by default the value of ``create_graph``.
        create_graph: record the derivative; by default whether a vector is a Variable that is not volatile.
        retain_variables: the older name of ``retain_graph``.

    Raises:
        RuntimeError: as ``autojit.autograd.backward``; both names of the same argument with different values; a sample
            without reward.

    Example:
        >>> import autojit as aj
        >>> from autojit.compat import v0_3
        >>> x = v0_3.Variable(aj.ones(2), requires_grad=True)
        >>> v0_3.backward([x * 3], [aj.tensor([1.0, 2.0])])
        >>> x.grad
        tensor([3., 6.])
    """
    outputs = _sequence(variables)
    vectors, graph = _vectors(outputs, grad_variables, create_graph)
    keep = _retained(retain_graph, retain_variables, "backward")
    roots = [_root(y, v) for y, v in zip(outputs, vectors, strict=True)]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Using backward\(\) with create_graph=True")
        autograd.backward([y for y, _ in roots], [v for _, v in roots], keep, graph)


def backward_method(
    self: Variable,
    gradient: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool | None = None,
    retain_variables: bool | None = None,
    *,
    grad_variables: Any = None,
) -> None:
    """Add the derivative of this Variable to ``.grad`` of the leaves it depends on; see ``v0_3.backward``.

    ``grad_variables``: the name that the function of this name has for ``gradient``.
    """
    if grad_variables is not None and gradient is not None:
        raise TypeError("backward() got both gradient and grad_variables, which mean the same")
    backward(self, gradient if grad_variables is None else grad_variables, retain_graph, create_graph, retain_variables)


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool | None = None,
    only_inputs: bool = True,
    allow_unused: bool = False,
) -> tuple[Tensor | None, ...]:
    """The sums of derivatives of ``outputs`` with respect to ``inputs``; ``create_graph`` defaults as in ``backward``.

    ``only_inputs=False`` also accumulates into the leaves that are not listed.

    Raises:
        RuntimeError: as ``autojit.autograd.grad``.
    """
    results = _sequence(outputs)
    vectors, graph = _vectors(results, grad_outputs, create_graph)
    roots = [_root(y, v) for y, v in zip(results, vectors, strict=True)]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "only_inputs argument is deprecated")
        found: tuple[Tensor | None, ...] = autograd.grad(
            [y for y, _ in roots],
            _sequence(inputs),
            [v for _, v in roots],
            retain_graph,
            graph,
            only_inputs,
            allow_unused,
        )
    return found


def _sequence(given: Any) -> tuple[Any, ...]:
    return (given,) if isinstance(given, Tensor) else tuple(given)


def _vectors(outputs: Sequence[Any], given: Any, create_graph: bool | None) -> tuple[list[Any], bool]:
    """The vectors, cut off their history unless a graph is made; and whether one is."""
    vectors = [None] * len(outputs) if given is None else list(_sequence(given))
    if len(vectors) != len(outputs):
        raise UsageError(
            f"got {len(outputs)} variables and {len(vectors)} gradients", fix="pass one, or None, for each"
        )
    graph = any(_is_recorded(v) for v in vectors) if create_graph is None else create_graph
    if not graph:
        vectors = [v.detach() if isinstance(v, Tensor) else v for v in vectors]
    return vectors, graph


def _is_recorded(vector: Any) -> bool:
    if isinstance(vector, Variable):
        return not is_volatile(vector)
    return isinstance(vector, Tensor) and vector.requires_grad


def _retained(retain_graph: bool | None, retain_variables: bool | None, function: str) -> bool | None:
    if retain_variables is None:
        return retain_graph
    if retain_graph is not None and retain_graph is not retain_variables:
        raise UsageError(
            f"{function}: retain_graph and retain_variables are two names of one argument",
            {"retain_graph": retain_graph, "retain_variables": retain_variables},
            "pass one of them",
        )
    return retain_variables


def _root(output: Any, vector: Any) -> tuple[Any, Any]:
    """What the engine starts from; a sample is told by its place in the history, with no weight of its own."""
    node = getattr(output, "grad_fn", None)
    if vector is None and getattr(node, "takes_reward", False):
        return get_gradient_edge(output), zeros(output.shape, device=output.device)
    return output, vector
