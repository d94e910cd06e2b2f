"""Full backward hooks of a Module: identity functions around its inputs and outputs whose backward calls the hooks.

The node around the outputs runs first in the backward pass and keeps ``grad_output``; the node around the inputs runs
when every gradient of the inputs is complete and hands both to the hooks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import autojit as aj
from autojit.tensor import Tensor

Hook = Callable[..., Any]
OnBackward = Callable[[tuple[Tensor | None, ...]], tuple[Tensor | None, ...]]


class _Gradients:
    """What the two identity nodes of one call share."""

    def __init__(self, module: Any, pre_hooks: list[Hook], hooks: list[Hook]) -> None:
        self.module = module
        self.pre_hooks = pre_hooks
        self.hooks = hooks
        self.grad_output: tuple[Tensor | None, ...] | None = None

    def on_output(self, grads: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        for hook in self.pre_hooks:
            grads = _replaced(hook(self.module, grads), grads)
        self.grad_output = grads
        return grads

    def on_input(self, grads: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        if self.grad_output is None:
            # a second derivative reaches the inputs without passing the outputs: not a gradient of the call
            return grads
        grad_output, self.grad_output = self.grad_output, None
        for hook in self.hooks:
            grads = _replaced(hook(self.module, grads, grad_output), grads)
        return grads


def _replaced(found: Any, grads: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
    if found is None:
        return grads
    replacement = found if isinstance(found, tuple) else (found,)
    if len(replacement) != len(grads):
        raise RuntimeError(f"Backward hook returned an invalid number of grad, got {len(replacement)}, but expected "
                           f"{len(grads)}")  # fmt: skip
    return replacement


def _identity(tensors: tuple[Tensor, ...], on_backward: OnBackward) -> tuple[Tensor, ...]:
    """The same values, whose joint backward passes all gradients through ``on_backward``."""

    class BackwardHookFunction(aj.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *values: Tensor) -> tuple[Tensor, ...]:
            ctx.set_materialize_grads(False)
            found = tuple(value.view_as(value) for value in values)
            pairs = zip(found, tensors, strict=True)
            ctx.mark_non_differentiable(*[view for view, given in pairs if not given.requires_grad])
            return found

        @staticmethod
        def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
            return on_backward(grads)

    found: tuple[Tensor, ...] = BackwardHookFunction.apply(*tensors)
    return found


def _through(values: Any, on_backward: OnBackward) -> tuple[Any, bool]:
    """Wrap the tensors of a tuple; the flag says whether any of them carries a gradient."""
    is_tuple = isinstance(values, tuple)
    items = list(values) if is_tuple else [values]
    places = [place for place, item in enumerate(items) if isinstance(item, Tensor)]
    if not any(items[place].requires_grad for place in places):
        return values, False

    def all_grads(grads: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        full: list[Tensor | None] = [None] * len(items)
        for place, grad in zip(places, grads, strict=True):
            full[place] = grad
        found = on_backward(tuple(full))
        return tuple(found[place] for place in places)

    for place, item in zip(places, _identity(tuple(items[p] for p in places), all_grads), strict=True):
        items[place] = item
    return (tuple(items) if is_tuple else items[0]), True


def after_the_last_node(module: Any, hooks: list[Hook], output: Any) -> None:
    """Call the hooks after the node that made the output (its first tensor) has run."""
    while not isinstance(output, Tensor):
        members = list(output.values()) if isinstance(output, dict) else output
        if not isinstance(members, list | tuple) or not members:
            return
        output = members[0]
    node = output.grad_fn
    if node is None:
        return
    for hook in hooks:
        node.register_hook(lambda inputs, outputs, hook=hook: hook(module, inputs, outputs))


def with_backward_hooks(
    module: Any,
    pre_hooks: list[Hook],
    hooks: list[Hook],
    forward: Hook,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Run ``forward(*args, **kwargs)`` with hooks on its gradients; tensors are looked for in tuples, as in torch."""
    gradients = _Gradients(module, pre_hooks, hooks)
    inputs_have_grad = False
    if hooks:
        args, inputs_have_grad = _through(args, gradients.on_input)
    output = forward(*args, **kwargs)

    def on_output(grads: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        grads = gradients.on_output(grads)
        if not inputs_have_grad:
            gradients.on_input((None,) * max(len(args), 1))
        return grads

    return _through(output, on_output)[0]
