"""The engine: walks the recorded history backwards and runs each node once, after all its users.

Nodes are numbered as they are recorded and edges lead to earlier nodes only, so descending numbers are a topological
order; an AccumulateGrad runs as soon as its last contribution has arrived.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autojit.autograd import anomaly
from autojit.core.errors import DifferentiationError, ShapeError
from autojit.core.types import TensorType
from autojit.tensor import Tensor
from autojit.tensor.functions_elementwise import add, clone
from autojit.tensor.functions_shape import broadcastable_sum
from autojit.tensor.node import ZERO, AccumulateGrad, Edge, Node, type_of_meta
from autojit.tensor.promotion import cast
from autojit.tensor.state import grad_mode, state
from autojit.tensor.tensor import type_of, wrap

Grads = list[Any]


class Walk:
    """One backward pass: which nodes run, what has arrived at their outputs, what was asked for."""

    def __init__(self, keep_graph: bool, targets: Sequence[Edge] | None, accumulate: bool) -> None:
        self.keep_graph = keep_graph
        self.accumulate = accumulate
        self.targets = None if targets is None else set(targets)
        self.captured: dict[Edge, Any] = {}
        self.arrived: dict[Node, Grads] = {}
        self.missing: dict[Node, int] = {}
        self.needed: set[Node] = set()

    def run(self, roots: Sequence[tuple[Edge, Any]]) -> dict[Edge, Any]:
        """Push the roots' cotangents through the history; the cotangents that arrived at the targets."""
        order = self._plan([edge[0] for edge, _ in roots])
        for edge, grad in roots:
            self._arrive(edge, grad)
        for node in order:
            if type(node) is AccumulateGrad:
                if self.missing[node] == 0 and node in self.arrived:
                    self._process(node)
                continue
            self._process(node)
        return self.captured

    def _plan(self, roots: Sequence[Node]) -> list[Node]:
        found: set[Node] = set(roots)
        stack = list(found)
        missing = self.missing = dict.fromkeys(found, 0)
        while stack:
            for edge in stack.pop().edges:
                if edge is None:
                    continue
                child = edge[0]
                if child not in found:
                    found.add(child)
                    missing[child] = 0
                    stack.append(child)
                missing[child] += 1
        order = sorted(found, key=_when, reverse=True)
        self._mark_needed(order)
        return order

    def _mark_needed(self, order: list[Node]) -> None:
        if self.targets is None:
            self.needed = set(order)
            return
        wanted = {node for node, _ in self.targets}
        for node in reversed(order):
            if any(e is not None and (e[0] in self.needed or e[0] in wanted) for e in node.edges):
                self.needed.add(node)
        if self.accumulate:
            self.needed.update(n for n in order if type(n) is AccumulateGrad and n in wanted)

    def _arrive(self, edge: Edge, grad: Any) -> None:
        node, number = edge
        buffer = self.arrived.get(node)
        if buffer is None:
            buffer = self.arrived[node] = [None] * max(len(node.out_metas), 1)
        if grad is None:
            return
        before = buffer[number]
        if before is None or before is ZERO:
            buffer[number] = grad
        elif grad is not ZERO:
            buffer[number] = add(before, grad)

    def _process(self, node: Node) -> None:
        grads = self.arrived.pop(node, None)
        if grads is None:
            grads = [None] * max(len(node.out_metas), 1)
        _run_tensor_hooks(node, grads)
        if self.targets is not None:
            self._capture(node, grads)
        if node in self.needed:
            if node.pre_hooks:
                grads = _run_pre_hooks(node, grads)
            if type(node) is AccumulateGrad:
                _accumulate(node, grads[0])
                _run_post_hooks(node, (), tuple(grads))
                return
            self._run(node, grads)
        else:
            self._skip(node)

    def _capture(self, node: Node, grads: Grads) -> None:
        assert self.targets is not None
        for number, grad in enumerate(grads):
            edge = (node, number)
            if edge in self.targets:
                self.captured[edge] = zeros_of(edge) if grad is ZERO else grad

    def _run(self, node: Node, grads: Grads) -> None:
        wanted = tuple(
            e is not None and (e[0] in self.needed or (self.targets is not None and e in self.targets))
            for e in node.edges
        )
        results = anomaly.guarded(node, grads, wanted)
        if node.post_hooks:
            results = _run_post_hooks(node, tuple(results), tuple(grads))
        if not self.keep_graph:
            node.release()
        self._deliver(node, results)

    def _skip(self, node: Node) -> None:
        self._deliver(node, (None,) * len(node.edges))

    def _deliver(self, node: Node, results: Sequence[Any]) -> None:
        for edge, grad in zip(node.edges, results, strict=False):
            if edge is None:
                continue
            child = edge[0]
            self._arrive(edge, grad)
            self.missing[child] -= 1
            if type(child) is AccumulateGrad and self.missing[child] == 0 and child in self.arrived:
                self._process(child)


def _when(node: Node) -> int:
    """Accumulators come last in the order; they run earlier, when their last contribution arrives."""
    return -1 if type(node) is AccumulateGrad else node.sequence


def _run_tensor_hooks(node: Node, grads: Grads) -> None:
    if type(node) is AccumulateGrad or node.tensor_hooks is not None or node.retained is not None:
        for number, grad in enumerate(grads):
            if grad is ZERO:
                grads[number] = zeros_of((node, number))
    if type(node) is AccumulateGrad:
        hooks = node.variable._leaf_hooks
        if hooks is not None and grads[0] is not None:
            grads[0] = _through(hooks[0], grads[0])
        return
    if node.tensor_hooks is not None:
        for number, hooks_of_output in node.tensor_hooks.items():
            if grads[number] is not None:
                grads[number] = _through(hooks_of_output, grads[number])
    if node.retained is not None:
        for number, reference in node.retained.items():
            t = reference()
            if t is not None and grads[number] is not None:
                _retain(t, grads[number])


def _through(hooks: dict[int, Any], grad: Tensor) -> Tensor:
    for hook in list(hooks.values()):
        replaced = hook(grad)
        if replaced is None:
            continue
        if not isinstance(replaced, Tensor):
            raise TypeError(f"hooks must return None or a Tensor, but got {type(replaced).__name__}")
        if type_of(replaced).shape != type_of(grad).shape:
            raise DifferentiationError(
                "hook has changed the size of value", {"before": grad, "after": replaced}, "return the same shape"
            )
        grad = replaced
    return grad


def _retain(t: Tensor, grad: Tensor) -> None:
    if t._grad is None:
        t._grad = grad if state.grad_enabled else fresh(grad)
    else:
        t._grad = add(t._grad, grad)


def _run_pre_hooks(node: Node, grads: Grads) -> Grads:
    assert node.pre_hooks is not None
    current = tuple(grads)
    for hook in list(node.pre_hooks.values()):
        replaced = hook(current)
        if replaced is not None:
            current = replaced if isinstance(replaced, tuple) else (replaced,)
    return list(current)


def _run_post_hooks(node: Node, results: tuple[Any, ...], grads: tuple[Any, ...]) -> tuple[Any, ...]:
    if not node.post_hooks:
        return results
    for hook in list(node.post_hooks.values()):
        replaced = hook(results, grads)
        if replaced is None:
            continue
        replaced = replaced if isinstance(replaced, tuple) else (replaced,)
        if len(replaced) != len(results):
            raise RuntimeError(
                f"hook has returned an incorrect number of values (got {len(replaced)}, but expected {len(results)})"
            )
        results = replaced
    return results


def _accumulate(node: AccumulateGrad, grad: Any) -> None:
    if grad is None:
        return
    leaf = node.variable
    wanted = type_of(leaf)
    if type_of(grad).dtype is not wanted.dtype:
        grad = cast(grad, wanted.dtype)
    before = leaf.grad
    if before is None:
        leaf._set_grad(fresh(grad))
    elif state.grad_enabled:
        leaf._set_grad(add(before, grad))
    elif state.trace is None:
        _add_in_place(before, grad)
    else:
        before.add_(grad)
    if leaf._leaf_hooks is not None:
        for hook in list(leaf._leaf_hooks[1].values()):
            hook(leaf)


def _add_in_place(total: Tensor, grad: Tensor) -> None:
    with np.errstate(all="ignore"):
        np.add(total._array, grad._array, out=total._array)
    if total._storage is not None:
        total._storage.version += 1


def fresh(grad: Tensor) -> Tensor:
    """The gradient in memory of its own, so that no two ``.grad`` and no user tensor alias."""
    if state.grad_enabled and grad._requires_grad:
        return clone(grad)
    if grad._array is None:
        made = wrap(None)  # type: ignore[arg-type]
        made._value, made._type = grad._value if grad._storage is None else clone(grad)._value, type_of(grad)
        return made
    return wrap(np.array(grad._array, order="C"))


def check_cotangent(grad: Any, type: TensorType, what: str, number: int) -> Tensor:
    """A cotangent of the output's shape and dtype, or torch's error."""
    if not isinstance(grad, Tensor):
        raise TypeError(f"gradients can be either Tensors or None, but got {grad.__class__.__name__}")
    found = type_of(grad)
    if found.device != type.device:
        raise DifferentiationError(
            f"{what}: gradient at index {number} lies on another device", {"gradient": grad, "output": type}
        )
    if found.shape != type.shape:
        grad = broadcastable_sum(grad, type.shape) if _expands(type.shape, found.shape) else None
        if grad is None:
            raise ShapeError(
                f"Mismatch in shape: {what}[{number}] has a shape of {list(found.shape)} and output[{number}] has a "
                f"shape of {list(type.shape)}.",
                {"gradient": found, "output": type},
                "pass a gradient of the output's shape",
            )
    if found.dtype is not type.dtype:
        if type.dtype.is_complex != found.dtype.is_complex and not type.dtype.is_complex:
            raise DifferentiationError(
                f"For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch in "
                f"dtype: {what}[{number}] has a dtype of {found.dtype} and output[{number}] has a dtype of "
                f"{type.dtype}."
            )
        grad = cast(grad, type.dtype)
    return grad  # type: ignore[no-any-return]


def _expands(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    aligned = large[len(large) - len(small) :] if small else ()
    return len(small) <= len(large) and all(n in (1, m) for n, m in zip(small, aligned, strict=True))


def run_backward(
    roots: Sequence[tuple[Edge, Any]],
    keep_graph: bool,
    create_graph: bool,
    targets: Sequence[Edge] | None,
    accumulate: bool,
) -> dict[Edge, Any]:
    """Run the engine from (edge, cotangent) roots; cotangents that reached the targets."""
    with grad_mode(create_graph):
        return Walk(keep_graph, targets, accumulate).run(roots)


def zeros_of(edge: Edge) -> Tensor:
    """Zeros in the type of the tensor an edge stands for."""
    found: Tensor = Tensor._literal_of(0, edge_type(edge))
    return found if type_of(found).shape else clone(found)


def edge_type(edge: Edge) -> TensorType:
    """The type of the tensor an edge stands for."""
    node, number = edge
    if isinstance(node, AccumulateGrad):
        return type_of(node.variable)
    return type_of_meta(node.out_metas[number])
