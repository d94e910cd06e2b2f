"""What the functions of ``functional`` share: arguments in and out, and what strict mode refuses.

Strict mode refuses every derivative that would be zero only because there is no path: such a zero usually means that
the function detached something.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from autojit.autograd.derivatives import grad
from autojit.functions.factories import zeros_like
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of

Function = Callable[..., Any]
Tensors = tuple[Tensor, ...]

OUTPUTS = "outputs of the user-provided function"


def as_tensors(given: Any, what: str, function: str) -> tuple[Tensors, bool]:
    """(tensors, whether they came as a tuple).

    Raises:
        TypeError: something is not a Tensor.
    """
    is_tuple = isinstance(given, tuple)
    found = given if is_tuple else (given,)
    for i, t in enumerate(found):
        if not isinstance(t, Tensor):
            which = f"the value at index {i}" if is_tuple else f"the given {what}"
            raise TypeError(
                f"The {what} given to {function} must be either a Tensor or a tuple of Tensors but {which} has type "
                f"{type(t)}."
            )
    return tuple(found), is_tuple


def fresh(given: Any, what: str, function: str, create_graph: bool, need_graph: bool = True) -> tuple[Tensors, bool]:
    """``as_tensors`` to differentiate by: connected to the originals when a graph is wanted, else new leaves."""
    found, is_tuple = as_tensors(given, what, function)
    made = [t.view_as(t) if create_graph and t.requires_grad else t.detach().requires_grad_(need_graph) for t in found]
    return tuple(made), is_tuple


def finished(found: Any, create_graph: bool) -> Any:
    """Results without history, unless it was asked for; nested tuples are kept."""
    if isinstance(found, tuple):
        return tuple(finished(t, create_graph) for t in found)
    return found if create_graph else found.detach()


def one_or_all(found: Any, *were_tuples: bool) -> Any:
    """Nested results as the arguments were given: a single tensor where no tuple was."""
    if len(were_tuples) == 2:
        found = tuple(one_or_all(row, were_tuples[1]) for row in found)
    return found if were_tuples[0] else found[0]


def check_vectors(v: Sequence[Tensor], like: Sequence[Tensor], is_tuple: bool) -> None:
    """Raise RuntimeError when the vectors are not of the number and shapes of ``like``."""
    if len(v) != len(like):
        if is_tuple:
            raise RuntimeError(f"v is a tuple of invalid length: should be {len(like)} but got {len(v)}.")
        raise RuntimeError("The given v should contain a single Tensor.")
    for i, (a, b) in enumerate(zip(v, like, strict=True)):
        if type_of(a).shape != type_of(b).shape:
            which = f"Entry {i} in v" if is_tuple else "v"
            expected, got = list(type_of(b).shape), list(type_of(a).shape)
            raise RuntimeError(f"{which} has invalid size: should be torch.Size({expected}) but got torch.Size({got}).")


def check_outputs(outputs: Sequence[Tensor], strict: bool) -> None:
    """In strict mode every output must depend on the inputs."""
    for i, o in enumerate(outputs if strict else ()):
        if not o.requires_grad:
            raise RuntimeError(
                f"Output {i} of the user-provided function does not require gradients. The outputs must be computed in "
                "a differentiable manner from the input when running in strict mode."
            )


_INDEPENDENT = {
    "grad_inputs": "The gradient with respect to input {i} is independent of the inputs of the user-provided function. "
    "This is not allowed in strict mode.",
    "jacobian": "While computing the hessian, found that the jacobian of the user-provided function with respect to "
    "input {i} is independent of the input. This is not allowed in strict mode. You should ensure that your function "
    "is twice differentiable and that the jacobian depends on the inputs (this would be violated by a linear function "
    "for example).",
    "hessian": "The hessian of the user-provided function with respect to input {i} is independent of the input. This "
    "is not allowed in strict mode. You should ensure that your function is thrice differentiable and that the hessian "
    "depends on the inputs.",
}


def check_dependent(found: Sequence[Tensor | None], what: str, strict: bool) -> None:
    """In strict mode derivatives that are differentiated again must themselves depend on the inputs."""
    for i, t in enumerate(found if strict else ()):
        if t is None:
            raise RuntimeError(
                f"The output of the user-provided function is independent of input {i}. This is not allowed in strict "
                "mode."
            )
        if not t.requires_grad:
            raise RuntimeError(_INDEPENDENT[what].format(i=i))


class Stage(NamedTuple):
    """Which derivative of a computation is taken: what strict mode calls it, and its order."""

    missing: str
    order: str


BACK = Stage(
    "The output of the user-provided function is independent of input {i}. This is not allowed in strict mode.",
    "jacobian",
)
BACK_OF_BACK = Stage(
    "The gradient with respect to the input is independent of entry {i} in the grad_outputs when using the double "
    "backward trick to compute forward mode gradients. This is not allowed in strict mode.",
    "jacobian",
)
SECOND = Stage(
    "The jacobian of the user-provided function is independent of input {i}. This is not allowed in strict mode.",
    "hessian",
)
BACK_OF_SECOND = Stage(
    "The hessian of the user-provided function is independent of entry {i} in the grad_jacobian. This is not allowed "
    "in strict mode as it prevents from using the double backward trick to replace forward mode AD.",
    "hessian",
)


def filled(
    found: Sequence[Tensor | None], like: Sequence[Tensor], strict: bool, create_graph: bool, stage: Stage
) -> Tensors:
    """Zeros for derivatives without a path; in strict mode RuntimeError."""
    done: list[Tensor] = []
    for i, (g, x) in enumerate(zip(found, like, strict=True)):
        if g is None:
            if strict:
                raise RuntimeError(stage.missing.format(i=i))
            done.append(zeros_like(x))
            continue
        if strict and create_graph and not g.requires_grad:
            raise RuntimeError(
                f"The {stage.order} of the user-provided function is independent of input {i}. This is not allowed in "
                "strict mode when create_graph=True."
            )
        done.append(g)
    return tuple(done)


def pulled(
    outputs: Sequence[Tensor | None],
    inputs: Sequence[Tensor],
    vectors: Sequence[Tensor] | None,
    create_graph: bool,
    keep: bool | None = None,
    batched: bool = False,
) -> tuple[Tensor | None, ...]:
    """``grad`` of those outputs that have a history; None per input when none has."""
    given = (None,) * len(outputs) if vectors is None else tuple(vectors)
    pairs = [(o, v) for o, v in zip(outputs, given, strict=True) if o is not None and o.requires_grad]
    if not pairs:
        return (None,) * len(inputs)
    found: tuple[Tensor | None, ...] = grad(
        [o for o, _ in pairs],
        list(inputs),
        [v for _, v in pairs],
        keep,
        create_graph,
        allow_unused=True,
        is_grads_batched=batched,
    )
    return found


def single_output(func: Function, inputs: Sequence[Tensor], name: str, strict: bool) -> Tensor:
    """The only output of a scalar-valued function.

    Raises:
        RuntimeError: it is not one Tensor with one element.
    """
    found = func(*inputs)
    outputs, is_tuple = as_tensors(found, OUTPUTS, name)
    check_outputs(outputs, strict)
    if is_tuple:
        raise RuntimeError(f"The function given to {name} should return a single Tensor")
    if type_of(found).size != 1:
        raise RuntimeError(f"The Tensor returned by the function given to {name} should contain a single element")
    return found  # type: ignore[no-any-return]
