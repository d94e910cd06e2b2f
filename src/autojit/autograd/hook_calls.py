"""Calling hooks: in registration order, each on what the one before returned, with torch's checks of the results."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from autojit.core.errors import DifferentiationError
from autojit.core.wrapping import own
from autojit.functions.elementwise import add, clone
from autojit.functions.expected_shape import ExpectedShape
from autojit.history.op_node import OpNode
from autojit.tensor import Tensor
from autojit.tensor.node import AccumulateGrad, Node
from autojit.tensor.state import state
from autojit.tensor.tensor import storage_of, type_of


def through_tensor_hooks(node: Node, grads: list[Any], done: Container[int] = ()) -> None:
    """Run the hooks of the tensors that ``node`` made (of the leaf, for an AccumulateGrad), then keep retained
    gradients. ``grads`` is changed in place; an entry is None where no gradient arrived.
    ``done``: the outputs whose hooks have run.
    """
    if type(node) is AccumulateGrad:
        hooks = node.variable._leaf_hooks
        if hooks is not None and hooks[0]:
            grads[0] = through_hooks(hooks[0], grads[0])
        return
    if node.tensor_hooks is not None:
        is_call = isinstance(node, OpNode) and node.op.is_call  # to eager mode its results have nodes of their own
        for number, hooks_of_output in node.tensor_hooks.items():
            if number not in done and not (is_call and grads[number] is None):
                grads[number] = through_hooks(hooks_of_output, grads[number])
    if node.retained is not None:
        for number, reference in node.retained.items():
            t = reference()
            if t is not None and grads[number] is not None:
                grad = grads[number]
                is_live = state.grad_enabled and grad._requires_grad
                t._grad = add(t._grad, grad) if t._grad is not None else grad if is_live else clone(grad).detach()


def has_tensor_hooks(node: Node) -> bool:
    """Whether ``through_tensor_hooks`` has anything to do."""
    if type(node) is AccumulateGrad:
        hooks = node.variable._leaf_hooks
        return hooks is not None and bool(hooks[0])
    return node.tensor_hooks is not None or node.retained is not None


def through_hooks(hooks: dict[Any, Any], grad: Any) -> Any:
    """What the hooks of one tensor make of its gradient."""
    for hook in list(hooks.values()):
        replaced = _watched(hook, grad) if state.anomaly and grad is not None else hook(grad)
        if replaced is not None:
            _check(grad, replaced, hook)
            grad = replaced
    return grad


def _watched(hook: Any, grad: Tensor) -> Any:
    """In anomaly mode: a hook must not change its argument, which other parts of the pass may use as well."""
    storage = storage_of(grad)
    before = storage.version
    replaced = hook(grad)
    if storage.version != before:
        name = own(hook, "__name__", type(hook).__name__)
        raise DifferentiationError(
            f"hook '{name}' has modified its argument by an inplace operation",
            {"gradient": grad, "changed by": f"{storage.changed_by}  {storage.changed_at}"},
            "return a new tensor instead: grad * 2, not grad.mul_(2)",
        )
    return replaced


def _check(before: Any, after: Any, hook: Any) -> None:
    """Raise torch's error when a hook's result cannot stand for the gradient it was given."""
    if not isinstance(after, Tensor):
        raise TypeError(f"expected Variable, but hook returned '{type(after).__name__}'")
    if before is None:
        raise RuntimeError("can't replace a None gradient with a non-None value")
    was, found = type_of(before), type_of(after)
    name = own(hook, "__name__", type(hook).__name__)
    if found.dtype is not was.dtype:
        raise DifferentiationError(
            f"hook '{name}' has changed the type of value (was {was.dtype} got {found.dtype})",
            {"before": before, "after": after},
            "convert the result back: .to(grad.dtype)",
        )
    for what, is_same, fix in (
        ("device", found.device == was.device, "return .to(device)"),
        ("size", found.shape == was.shape, "return the same shape"),
    ):
        if not is_same:
            facts = {"before": before, "after": after}
            raise DifferentiationError(f"hook '{name}' has changed the {what} of value", facts, fix)


def through_pre_hooks(hooks: dict[Any, Any], grads: list[Any]) -> list[Any]:
    """The gradients of a node's outputs after its pre-hooks."""
    current = tuple(grads)
    for hook in list(hooks.values()):
        replaced = hook(current)
        if replaced is not None:
            current = replaced if type(hook) is ExpectedShape else _checked_tuple(current, replaced, hook)
    return list(current)


def through_post_hooks(hooks: dict[Any, Any], results: Sequence[Any], grads: Sequence[Any]) -> list[Any]:
    """The gradients of a node's inputs after its hooks, which also see those of its outputs."""
    current, given = tuple(results), tuple(grads)
    for hook in list(hooks.values()):
        replaced = hook(current, given)
        if replaced is not None:
            current = _checked_tuple(current, replaced, hook)
    return list(current)


def _checked_tuple(before: tuple[Any, ...], after: Any, hook: Any) -> tuple[Any, ...]:
    if not isinstance(after, tuple):
        raise TypeError(f"expected tuple, but hook returned '{type(after).__name__}'")
    name = own(hook, "__name__", type(hook).__name__)
    if len(after) != len(before):
        raise RuntimeError(
            f"hook '{name}' has returned an incorrect number of values (got {len(after)}, but expected {len(before)})"
        )
    for was, found in zip(before, after, strict=True):
        if found is not None:
            _check(was, found, hook)
    return after
