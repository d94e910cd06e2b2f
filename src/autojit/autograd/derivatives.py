"""``backward`` and ``grad``: torch's arguments, checks and defaults around the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from autojit.autograd.accumulation import like_leaf
from autojit.autograd.edges import edge_type
from autojit.autograd.engine import Walk
from autojit.core.errors import DifferentiationError, OldNameWarning, UsageError
from autojit.core.sizes import distinct
from autojit.core.types import TensorType
from autojit.core.user_warnings import warn
from autojit.dispatch.promotion import cast
from autojit.functions.factories import zeros
from autojit.history.gradients import renamed, retain_grad
from autojit.history.recording import edge_of, shows_grad
from autojit.history.saved import accumulator_of
from autojit.tensor import Tensor
from autojit.tensor.node import Edge, Node
from autojit.tensor.size import Size
from autojit.tensor.state import grad_mode, state
from autojit.tensor.tensor import type_of

Roots = list[tuple[Edge, Any]]


class EmptyInputsError(UsageError, ValueError):
    """``inputs`` names nothing to differentiate with respect to."""


class GradientEdge(NamedTuple):
    """A place in the history: a node and the number of one of its outputs.

    Accepted wherever ``backward`` and ``grad`` take a tensor. It keeps the history alive but not the tensor, and means
    the tensor's value as it was when the edge was taken. ``ownership_token`` is there for torch's sake.
    """

    node: Node
    output_nr: int
    ownership_token: Node | None = None


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """Where the gradient of a tensor is computed, without keeping the tensor alive.

    Raises:
        RuntimeError: the tensor requires no gradient.

    Example:
        >>> import autojit as aj
        >>> x = aj.tensor(3.0, requires_grad=True)
        >>> y = x * 2
        >>> edge = get_gradient_edge(y)
        >>> z = y * y
        >>> aj.autograd.grad(z, edge)
        (tensor(12.),)
    """
    edge = edge_of(tensor._differentiated())
    if edge is None:
        raise DifferentiationError(
            "It is not possible to get the gradient edge for a Tensor that does not require gradients",
            {"tensor": tensor},
            "set requires_grad=True on the leaves it is computed from",
        )
    return GradientEdge(*edge)


def _sequence(given: Any) -> tuple[Any, ...]:
    if given is None:
        return ()
    if isinstance(given, Tensor | GradientEdge):
        return (given,)
    return tuple(given)


def _parts(outputs: tuple[Any, ...], grads: Any) -> tuple[tuple[Any, ...], Any]:
    """The tensors whose history counts (the values of sparse ones) and, in their form, the given cotangents."""
    parts = tuple(o._differentiated() if isinstance(o, Tensor) else o for o in outputs)
    if grads is None or all(a is b for a, b in zip(parts, outputs, strict=True)):
        return parts, grads
    given = _sequence(grads)
    whole = (*outputs, *given[len(outputs) :])  # surplus cotangents are reported by their number
    return parts, [o._part_of(g) if isinstance(o, Tensor) else g for o, g in zip(whole, given, strict=False)]


def _inputs(given: Any, function: str) -> tuple[Any, ...]:
    """The tensors to differentiate with respect to; at least one."""
    if isinstance(given, Mapping):
        if type(given) is not dict:
            raise TypeError(
                f"`inputs` argument to `{function}()` must be a dict, not {type(given).__name__}. Other Mapping types "
                "are not supported."
            )
        given = tuple(given.values())
    chosen = _sequence(given)
    if not chosen:
        raise EmptyInputsError(
            f"`inputs` argument to `{function}()` cannot be empty.",
            {function: f"{function} requires non-empty inputs."},
            "pass at least one tensor that requires gradients",
        )
    return chosen


def _edge(given: Any, what: str, number: int) -> Edge:
    if isinstance(given, GradientEdge):
        return given[:2]
    if not isinstance(given, Tensor):
        raise TypeError(f"element {number} of {what} must be a Tensor or a GradientEdge, not {type(given).__name__}")
    edge = edge_of(given._differentiated())
    if edge is None:
        raise DifferentiationError(
            f"element {number} of {what} does not require grad and does not have a grad_fn",
            {what: given},
            "set requires_grad=True on the leaves it is computed from, and do not compute it under no_grad()",
        )
    return edge


def _type(given: Any) -> TensorType:
    return edge_type(given[:2]) if isinstance(given, GradientEdge) else type_of(given)


def _cotangents(outputs: Sequence[Any], given: Any, create_graph: bool, is_batched: bool) -> list[Any]:
    grads = [None] * len(outputs) if given is None else list(_sequence(given))
    if len(grads) != len(outputs):
        raise RuntimeError(f"got {len(outputs)} tensors and {len(grads)} gradients")
    with grad_mode(create_graph):
        return [_cotangent(output, grads[number], number, is_batched) for number, output in enumerate(outputs)]


def _cotangent(output: Any, grad: Any, number: int, is_batched: bool) -> Any:
    if not isinstance(output, Tensor | GradientEdge):
        raise TypeError(f"element {number} of tensors must be a Tensor or a GradientEdge, not {type(output).__name__}")
    t = _type(output)
    if grad is not None:
        return _checked(grad, t, number, is_batched)
    if isinstance(output, Tensor) and edge_of(output) is None:
        return None
    if t.size != 1:
        raise DifferentiationError(
            "grad can be implicitly created only for scalar outputs",
            {"output": output if isinstance(output, Tensor) else t},
            "pass the vector of the vector-Jacobian product, or reduce the output with .sum()",
        )
    if not t.dtype.is_floating_point:
        raise DifferentiationError(
            f"grad can be implicitly created only for real scalar outputs but got {t.dtype}",
            {"output": output if isinstance(output, Tensor) else t},
            "pass the gradient, or differentiate a real number such as abs() or .real",
        )
    one = Tensor._literal_of(1, t)
    return one if t.shape else one.clone()


def _calculate_shape(output: Tensor | GradientEdge, grad: Tensor, is_grads_batched: bool) -> tuple[Size, Size]:
    """The shapes that must agree: of an output, and of its cotangent without the axis of a batch of them."""
    return Size(_type(output).shape), Size(type_of(grad).shape[1:] if is_grads_batched else type_of(grad).shape)


def _checked(grad: Any, t: TensorType, number: int, is_batched: bool) -> Tensor:
    """A cotangent of the output's shape and dtype, or torch's error."""
    if not isinstance(grad, Tensor):
        raise TypeError(f"gradients can be either Tensors or None, but got {type(grad).__name__}")
    found = type_of(grad)
    shape = found.shape[1:] if is_batched else found.shape
    if shape != t.shape:
        shapes = (
            f"grad_output[{number}] has a shape of {Size(shape)} and output[{number}] has a shape of {Size(t.shape)}."
        )
        if is_batched:
            text = (
                "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the batch "
                "dimension. The sizes of the remaining dimensions are expected to match the shape of corresponding "
                f"output, but a mismatch was detected: {shapes} If you only want some tensors in `grad_output` to be "
                "considered batched, consider using vmap."
            )
        else:
            text = f"Mismatch in shape: {shapes}"
        raise _exactly(text, "pass a gradient of the output's shape")
    if found.dtype.is_complex != t.dtype.is_complex:
        raise _exactly(
            "For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch in dtype: "
            f"grad_output[{number}] has a dtype of {found.dtype} and output[{number}] has a dtype of {t.dtype}.",
            f"convert it: gradient.to({t.dtype})",
        )
    if found.device != t.device:
        raise DifferentiationError(
            f"invalid gradient at index {number} - expected device {t.device} but got {found.device}",
            {"gradient": grad, "output": t},
            f"move it: gradient.to({str(t.device)!r})",
        )
    return grad if found.dtype is t.dtype else cast(grad, t.dtype)


def _exactly(text: str, fix: str) -> RuntimeError:
    """torch's message word for word, for programs that compare it; the fix follows as a note."""
    error = RuntimeError(text)
    error.add_note(f"  fix  {fix}")
    return error


def backward(
    tensors: Any = None,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool | None = False,
    grad_variables: Any = None,
    inputs: Any = None,
    *,
    variables: Any = None,
    retain_variables: bool | None = None,
) -> None:
    """Add the derivatives of ``tensors`` (weighted by ``grad_tensors``) to ``.grad`` of the leaves they depend on.

    Args:
        tensors: a tensor or a GradientEdge, or a sequence of them.
        grad_tensors: per tensor a vector of its shape, or None for scalars.
        retain_graph: keep what was saved for another pass; by default the value of ``create_graph``.
        create_graph: record the derivative too.
        inputs: accumulate only into these (leaves, other tensors, edges; a dict's values).
        variables, grad_variables, retain_variables: the old names.

    Raises:
        RuntimeError: an output is not scalar and has no vector, requires no gradient, or its history is gone; a vector
            does not fit.

    Example:
        >>> import autojit as aj
        >>> x = aj.tensor([1.0, 2.0], requires_grad=True)
        >>> aj.autograd.backward((x * x).sum())
        >>> x.grad
        tensor([2., 4.])
    """
    grad_tensors = renamed("grad_variables", grad_variables, "grad_tensors", grad_tensors)
    tensors = renamed("variables", variables, "tensors", tensors)
    retain_graph = renamed("retain_variables", retain_variables, "retain_graph", retain_graph)
    if tensors is None:
        raise TypeError("backward() missing 1 required positional argument: 'tensors'")
    outputs, grad_tensors = _parts(_sequence(tensors), grad_tensors)
    chosen = None if inputs is None else _inputs(inputs, "backward")
    create_graph = bool(create_graph)
    batch = _batched().batch_of(outputs) if state.layers else None
    if batch is not None:
        _batched().backward_in_batch(batch, outputs, grad_tensors, chosen, backward, retain_graph, create_graph)
        return
    roots = _roots(outputs, _cotangents(outputs, grad_tensors, create_graph, False))
    if create_graph:
        warn(_CYCLE, UserWarning)
    targets = None
    if chosen is not None:
        for x in chosen:
            if isinstance(x, Tensor) and edge_of(x) is not None and x._grad_fn is not None:
                retain_grad(x)
        targets = [_input_edge(x, i) for i, x in enumerate(chosen)]
    keep = create_graph if retain_graph is None else bool(retain_graph)
    Walk(keep, targets, accumulate=True, is_masked=_is_given(grad_tensors)).start(roots, create_graph)


_CYCLE = (
    "Using backward() with create_graph=True will create a reference cycle between the parameter and its gradient "
    "which can cause a memory leak. We recommend using autograd.grad when creating the graph to avoid this. If you "
    "have to use this function, make sure to reset the .grad fields of your parameters to None after use to break the "
    "cycle and avoid the leak."
)


def _is_given(grads: Any) -> bool:
    """Whether the caller gave a cotangent; those made here are ones."""
    return grads is not None and any(g is not None for g in _sequence(grads))


def _roots(outputs: Sequence[Any], grads: Sequence[Any]) -> Roots:
    """(edge, cotangent) of the outputs; an error when one requires no gradient."""
    return [(_edge(o, "tensors", i), grad) for i, (o, grad) in enumerate(zip(outputs, grads, strict=True))]


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool | None = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> Any:
    """The sums of derivatives of ``outputs`` with respect to each of ``inputs``; ``.grad`` is left alone.

    Args:
        outputs: a tensor or a GradientEdge, or a sequence of them.
        inputs: likewise, or a dict of them, which gives a dict.
        grad_outputs: per output a vector of its shape, or None for scalars.
        retain_graph: keep what was saved for another pass; by default the value of ``create_graph``.
        create_graph: record the derivative too.
        only_inputs: False also accumulates into the other leaves (deprecated).
        allow_unused: None for inputs that were not used, instead of an error; by default the value of
            ``materialize_grads``.
        is_grads_batched: the vectors have a leading axis; all are pulled back at once.
        materialize_grads: zeros for inputs that were not used.

    Raises:
        RuntimeError: an input was not used, or as for ``backward``.
        ValueError: ``materialize_grads`` with ``allow_unused=False``; no inputs.

    Example:
        >>> import autojit as aj
        >>> x = aj.tensor(3.0, requires_grad=True)
        >>> aj.autograd.grad(x**2, x)
        (tensor(6.),)
    """
    _check_unused(materialize_grads, allow_unused)
    chosen = _inputs(inputs, "grad")
    is_plain = only_inputs and not (create_graph or is_grads_batched) and type(inputs) is not dict
    at_once = _grad_alone(outputs, chosen, grad_outputs, bool(retain_graph)) if is_plain else None
    if at_once is not None:
        return tuple(map(like_leaf, at_once, chosen))
    if not only_inputs:
        warn(
            "only_inputs argument is deprecated: call backward() for the other leaves. They are accumulated now.",
            OldNameWarning,
        )
    create_graph = bool(create_graph)
    keep = create_graph if retain_graph is None else bool(retain_graph)
    results, grad_outputs = _parts(_sequence(outputs), grad_outputs)
    batch = _batched().batch_of((*results, *chosen)) if state.layers else None
    if batch is not None:
        found = _batched().grad_in_batch(
            batch, grad, results, chosen, grad_outputs, is_grads_batched, retain_graph=keep, create_graph=create_graph
        )
    else:
        found = _pulled_back(results, chosen, grad_outputs, keep, create_graph, is_grads_batched, not only_inputs)
    unused, made = allow_unused or materialize_grads, (materialize_grads, create_graph)
    shown = [_picked(g, x, i, unused, *made) for i, (g, x) in enumerate(zip(found, chosen))]
    return dict(zip(inputs, shown, strict=True)) if type(inputs) is dict else tuple(shown)


def _check_unused(materialize: bool, allow: bool | None) -> None:
    if materialize and allow is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False."
        )


def _grad_alone(outputs: Any, inputs: Sequence[Any], vectors: Any, keep: bool) -> tuple[Tensor, ...] | None:
    """The gradients of one result, if its node has them without a walk."""
    output = outputs[0] if type(outputs) in (tuple, list) and len(outputs) == 1 else outputs
    if type(output) is not Tensor or output._grad_fn is None or output._view is not None:
        return None
    vector = vectors[0] if type(vectors) in (tuple, list) and len(vectors) == 1 else vectors
    return output._grad_fn.grad_alone(output._output_nr, vector, inputs, keep)


def _pulled_back(
    outputs: Sequence[Any], inputs: Sequence[Any], vectors: Any, keep: bool, create: bool, batched: bool, others: bool
) -> list[Any]:
    """Per input its gradient, or None where no path leads there."""
    grads = _cotangents(outputs, vectors, create, batched)
    targets = [_input_edge(x, i) for i, x in enumerate(inputs)]
    roots = _roots(outputs, grads)
    del grads

    def pull_back(roots: Roots) -> list[Any]:
        walk = Walk(keep, targets, False, others=others, is_masked=_is_given(vectors))
        captured = walk.start(roots, create)
        return [captured.get(edge) for edge in targets]

    return _over_rows(roots, pull_back) if batched else pull_back(roots)


def _over_rows(roots: Roots, pull_back: Callable[[Roots], list[Any]]) -> list[Any]:
    """All rows of the vectors pulled back at once, through the ops' batching rules."""
    given = [k for k, (_, vectors) in enumerate(roots) if vectors is not None]
    if not given:
        raise UsageError("is_grads_batched=True needs grad_outputs", fix="pass vectors with a leading axis")
    fulls = [roots[k][1] for k in given]
    if len(distinct(type_of(v).shape[0] for v in fulls)) > 1:
        raise UsageError(
            "is_grads_batched=True: the vectors have batch axes of different lengths",
            {f"grad_outputs[{k}]": v for k, v in zip(given, fulls, strict=True)},
        )

    def rows(*elements: Tensor) -> list[Any]:
        placed = list(roots)
        for k, element in zip(given, elements, strict=True):
            placed[k] = (roots[k][0], element)
        return pull_back(placed)

    from autojit.dispatch.batch_layer import over_batch

    return over_batch(rows, fulls)


def _batched() -> Any:
    """How passes run inside a batch; imported when there is one."""
    from autojit.autograd import batched_history

    return batched_history


def _input_edge(given: Any, number: int) -> Edge:
    if isinstance(given, Tensor) and edge_of(given._differentiated()) is None:
        if shows_grad(given):
            return accumulator_of(given), 0  # an unrecorded view of what requires gradients: none arrive there
        raise DifferentiationError(
            "One of the differentiated Tensors does not require grad",
            {f"input {number}": given},
            "set requires_grad=True",
        )
    return _edge(given, "inputs", number)


def _picked(found: Any, x: Any, number: int, unused: bool, materialize: bool, create_graph: bool) -> Any:
    if found is not None:
        return x._from_part(like_leaf(found, x)) if isinstance(x, Tensor) else found
    if not unused:
        raise DifferentiationError(
            f"The differentiated Tensor at index {number} appears to not have been used in the graph. Set "
            "allow_unused=True if this is the desired behavior.",
            {f"input {number}": x if isinstance(x, Tensor) else _type(x)},
            "pass allow_unused=True (None) or materialize_grads=True (zeros)",
        )
    if not materialize:
        return None
    if isinstance(x, GradientEdge):
        raise UsageError("materialize_grads cannot be used when the given input is a GradientEdge")
    t = type_of(x)
    return zeros(t.shape, dtype=t.dtype, device=t.device, requires_grad=create_graph)
