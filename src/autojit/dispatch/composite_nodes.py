"""One node of the history for a function that several ops compute.

Users see one node (its hooks, its name, its several outputs) where the function they called is one step to them. In
eager mode its op is a ``GraphOp`` whose results come from other ops, and of which only the VJP rule runs
(``in_one_node``).

A captured step gets the composite's own ops, whose rules read what is between them (``composed``). Seen from outside,
the history must be that of the op that eager mode records: which operands and results it keeps, so that they must not
change before backward (``residual_plans``), and that cotangents of its operands are in row-major order. So a node
is between the composite and each operand (``Entered``), and one between it and its results (``Left``): later
changes of an operand or a result do not reach what the ops inside keep, nor the layouts inside what is outside.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Container, Sequence
from typing import Any

from autojit.core.errors import TraceError
from autojit.core.source import here
from autojit.dispatch.digits import digits, is_of_step
from autojit.dispatch.dispatch import value_of
from autojit.history.lasting import with_lasting_constants
from autojit.history.recording import edge_of, record, shell_of, symbolic_node, wants_grad
from autojit.history.residual_plans import residual_plan
from autojit.history.saved import changed_error
from autojit.history.view_history import ViewChain
from autojit.history.view_rules import inference_saved
from autojit.ir.op import Op
from autojit.tensor.node import ZERO, Edge, Node, backward_name, node_type
from autojit.tensor.state import R, State, state
from autojit.tensor.storage import ElsewhereArray
from autojit.tensor.tensor import Tensor, made_in_inference, storage_of, type_of, wrap_value


def in_one_node(op: Op, operands: Sequence[Tensor], compute: Callable[[], R]) -> R:
    """What ``compute()`` gives, a fresh tensor or a tuple of them, recorded as results of ``op``."""
    if not state.grad_enabled or state.layers:
        return compute()
    is_wanted = False
    for t in operands:
        if wants_grad(t):
            is_wanted = True
        if type(t._array) is ElsewhereArray or made_in_inference(t):
            return compute()
    if not is_wanted:
        return compute()
    state.grad_enabled = False
    try:
        found = compute()
    finally:
        state.grad_enabled = True
    results: tuple[Any, ...] = found if isinstance(found, tuple) else (found,)
    record(op, operands, results)
    if state.observer is not None and results[0]._grad_fn is not None:
        state.observer.made(results[0]._grad_fn)
    return found


ANY_FLOAT = 0.75
"""Neither 0 nor 1, of which some rules keep less."""


def any_digits(value: Any) -> Any:
    """Options of an op that is asked only what its rule keeps, of one float as of another: the step stays open."""
    if type(value) is tuple:
        return tuple([any_digits(item) for item in value])
    return ANY_FLOAT if is_of_step(value) and isinstance(value, float) else digits(value)


def as_float(value: Any) -> Any:
    """A parameter as a float; a number of a step as it is, which stays open."""
    return value if is_of_step(value) else float(value)


_Kept = tuple[Tensor, int, int, object]
"""A tensor, its version when it was kept, its number among the results or -1, what its memory held (``_content``)."""


def composed(
    op: Op,
    operands: Sequence[Tensor],
    compute: Callable[..., Any],
    name: str,
    is_elementwise: bool = False,
    keeps_order: bool = False,
    keeps: bool = True,
) -> Any:
    """``compute(*operands)``, fresh, recorded in a capture as ``op``; None where no history is recorded in one.

    Args:
        op: what eager mode records for such operands.
        compute: gives a tensor or a tuple of them.
        name: the node's, as torch calls it.
        is_elementwise: the op's rule is, so that the cotangents of operands are laid out like these.
        keeps_order: its result is laid out in memory as its operands are; of other ops it is in row-major order.
        keeps: False: its derivative depends on the values of no operand or result.

    Raises:
        DifferentiationError: the rule would read an operand that was made in inference mode.
    """
    if not _is_recorded(operands):
        return None
    mask = sum(1 << k for k, t in enumerate(operands) if wants_grad(t))
    plan = residual_plan(op, operands, mask) if mask else None
    if plan is None:
        return None
    outside = [(t, keep) for t, keep in zip(operands, plan.primals, strict=True) if made_in_inference(t)]
    if outside:
        if not state.transforming:
            for t in (t for t, keep in outside if keep):
                raise inference_saved(t, op.name)
        return None
    entered = [_entered(t, not is_elementwise) for t in operands]
    found = compute(*entered)
    made = found if isinstance(found, tuple) else (found,)
    if not keeps:
        with_lasting_constants(made, *entered)
    node = node_type(Left, name or backward_name(op.name))()
    node.edges = [edge_of(t) for t in made]
    node.out_metas = [type_of(t) for t in made]
    node.source = here(True, is_inside=True)
    for t in entered:
        if isinstance(t._grad_fn, Entered):
            t._grad_fn.masks, t._grad_fn.left = op.masks_cotangents, weakref.ref(node)
    node.kept = [_kept(t, -1) for t, keep in zip(operands, plan.primals, strict=True) if keep and keeps]
    results = [wrap_value(value_of(t)) if keeps_order else _in_row_major_order(t) for t in made]
    for number, (t, edge) in enumerate(zip(results, node.edges, strict=True)):
        if edge is not None:
            t._requires_grad, t._grad_fn, t._output_nr = True, node, number
        if plan.results[number] and keeps:
            node.kept.append(_kept(t, number))
    return tuple(results) if isinstance(found, tuple) else results[0]


def _is_recorded(operands: Sequence[Tensor]) -> bool:
    """Whether a history is recorded in a capture, and nothing but the engine looks at it."""
    now = state.__dict__
    if now["divert"] is not State.capture or not now["grad_enabled"] or now["layers"] or now["recording_hooks"]:
        return False
    return not any(type(t._array) is ElsewhereArray for t in operands)


def _entered(t: Tensor, is_laid_out: bool) -> Tensor:
    """The operand as the composite gets it: what is changed in place later is another tensor."""
    made = wrap_value(value_of(t))
    edge = edge_of(t)
    if edge is not None:
        node = Entered()
        node.edges, node.out_metas, node.source = [edge], [type_of(t)], here(True, is_inside=True)
        node.is_laid_out = is_laid_out
        made._requires_grad, made._grad_fn = True, node
    return made


def _in_row_major_order(t: Tensor) -> Tensor:
    assert state.trace is not None
    return wrap_value(state.trace.laid_as(None, value_of(t)))


def _kept(t: Tensor, number: int) -> _Kept:
    kept = t if number < 0 else shell_of(t)  # a node with its own result is a cycle
    return kept, storage_of(t).version, number, _content(t)


def _content(t: Tensor) -> object:
    """What is another object once memory has changed, counted or not."""
    storage, trace = storage_of(t), state.trace
    if storage.array is None:
        return storage.value
    return None if trace is None or trace.runs_often else trace.lifted(storage.array)


class Entered(Node):
    """Between an operand and a composite: its cotangent is brought to row-major order, as one op gives it."""

    __slots__ = ("is_laid_out", "left", "masks")
    hands_on = True
    is_laid_out: bool
    masks: bool  # whether the op that eager mode records may mask cotangents, whatever the ops inside do
    left: weakref.ref[Node]  # the node of the results

    def is_behind_mask(self, found: Container[Node]) -> bool:
        left = self.left()
        return self.masks or self in found or left is None or left in found

    def run(self, grads: list[Any], wanted: tuple[bool, ...]) -> Sequence[Any]:
        (bar,) = grads
        if bar is None or bar is ZERO or not self.is_laid_out:
            return [bar]
        if state.trace is None or state.layers or bar._array is not None:
            return [bar]
        made = _in_row_major_order(bar)
        if made._value is value_of(bar):
            return [bar]
        edge: Edge | None = edge_of(bar) if state.grad_enabled else None
        if edge is not None:
            made._requires_grad, made._grad_fn = True, symbolic_node(ViewChain(()), [edge], [type_of(bar)])
        return [made]


class Left(Node):
    """Between a composite and its results: nothing that eager mode would have kept was changed since."""

    __slots__ = ("kept",)
    hands_on = True
    kept: list[_Kept]

    def run(self, grads: list[Any], wanted: tuple[bool, ...]) -> Sequence[Any]:
        for t, version, number, content in self.kept:
            if storage_of(t).version != version:
                raise changed_error(self, t, version, number)
            if content is not None and _content(t) is not content:
                raise TraceError(
                    f"{self.name()}: a step cannot follow a change through .data of what the op has kept for backward",
                    {"tensor": t, "op": self.source, "at": here()},
                    "change a clone(), or make the change after backward",
                )
        return list(grads)

    def release(self) -> None:
        self.kept = []

    def rename(self, name: str) -> None:
        self.__class__ = node_type(Left, name)
