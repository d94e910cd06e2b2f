"""cond: one of two functions, chosen by a tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autojit.control_flow.body import Body, forget_history, takes_grad, write_back
from autojit.control_flow.captured_call import body_graph
from autojit.control_flow.kept_operands import apply_body, kept_inputs
from autojit.control_flow.nests import as_tensor, check_same_tree, check_same_type, leaf_names
from autojit.core.errors import AutojitError, CompileError, TraceError, UsageError, WideIntegerError
from autojit.core.top_level import top_level
from autojit.functions.memory import laid_out
from autojit.ir.graph import Graph, Value
from autojit.jit.pytree import TreeSpec, flatten
from autojit.jit.stepped_bodies import runs_turn_by_turn
from autojit.jit.traced_number import TracedNumber
from autojit.ops.control_flow import Cond
from autojit.tensor import Tensor
from autojit.tensor.memory_orders import order_of
from autojit.tensor.state import holders, state
from autojit.tensor.tensor import layout_of, type_of


def is_open(t: Any) -> bool:
    """Whether Python cannot see a tensor's value now: it is captured, or differs along a batch."""
    if not isinstance(t, Tensor):
        return isinstance(t, TracedNumber)
    return state.trace is not None or any(x._array is None for x in (t, *holders(t)))


def truth(value: Any, what: str) -> Any:
    """A predicate as a tensor of one bool without dimensions, or a Python bool."""
    if isinstance(value, TracedNumber):
        value = value.as_operand()
    if isinstance(value, bool | int | float):
        return bool(value)
    if not isinstance(value, Tensor) or type_of(value).size != 1:
        shown = value if isinstance(value, Tensor) else type(value).__name__
        raise UsageError(f"Expected {what} to be bool or single-element tensor, but got {shown}.")
    if not is_open(value):
        return bool(value)
    return value.reshape(()).bool()


@top_level
def cond(pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
    """``true_fn(*operands)`` where ``pred`` is true, else ``false_fn(*operands)``; compiled into one step with both.

    Outside of ``@aj.jit`` the chosen function runs as plain Python. In a compiled step both are compiled and one runs
    (where capturing one raises, the step splits on ``pred`` as on an ``if``);
    gradients flow through the one that ran, to operands and to tensors that the functions close over. In a batch
    (``vmap``) whose elements differ in ``pred``, both run and each element takes its own result.

    Args:
        pred: a bool, a number, or a tensor with one element.
        true_fn, false_fn: take the operands; both return the same nest of tensors of the same shapes and dtypes.
        operands: nests of tensors.

    Raises:
        RuntimeError: ``pred`` has more than one element, or the results of the functions differ in structure, shape or
            dtype.

    Example:
        >>> import autojit as aj
        >>> safe_log = aj.jit(lambda x: cond(x.min() > 0, lambda x: x.log(), lambda x: x - 1, (x,)))
        >>> safe_log(aj.tensor([1.0, 1.0])), safe_log(aj.tensor([1.0, -1.0]))
        (tensor([0., 0.]), tensor([ 0., -2.]))
    """
    if not callable(true_fn) or not callable(false_fn):
        raise UsageError("Expect both branches to be callable.")
    if not isinstance(operands, tuple | list):
        raise UsageError(f"Expect operands to be a tuple of possibly nested dict/list/tuple, but got {operands!r}.")
    chosen = truth(pred, "pred")
    if isinstance(chosen, bool):
        return true_fn(*operands) if chosen else false_fn(*operands)
    return _captured(chosen, true_fn, false_fn, operands)


_BOTH = ": both branches are captured, and either may be the one that is taken"


def _captured(pred: Tensor, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Sequence[Any]) -> Any:
    if runs_turn_by_turn("cond"):
        return (true_fn if pred else false_fn)(*operands)
    branches: list[Body] = []
    found: list[tuple[list[Any], TreeSpec]] = []
    for name, function in (("true_fn", true_fn), ("false_fn", false_fn)):
        body = Body(f"cond: {name}")
        try:
            found.append(flatten(body.call(function, operands)))
        except Exception as error:
            if not (_is_of_function(error) and _can_choose(pred)):
                raise
            break
        branches.append(body)
    else:
        return _either(pred, branches, found)
    return (true_fn if pred else false_fn)(*operands)  # which raises only if it is the one that is taken


def _is_of_function(error: Exception) -> bool:
    """Whether a branch raises an error, and not autojit what guides or ends a capture."""
    is_refusal = isinstance(error, TraceError | CompileError | WideIntegerError)
    return not is_refusal and not type(error).__module__.startswith("autojit.jit.")


def _can_choose(pred: Tensor) -> bool:
    """Whether Python may look at the predicate, and the step be one of what it sees."""
    try:
        bool(pred)
    except AutojitError:  # in a body, or in a batch
        return False
    return True


def _either(pred: Tensor, branches: Sequence[Body], found: Sequence[tuple[list[Any], TreeSpec]]) -> Any:
    (leaves, tree), (others, other_tree) = found
    check_same_tree("cond: the result of false_fn", other_tree, tree, "that of true_fn", _BOTH)
    places = _tensors(tree, leaves, others)
    orders: list[Any] = []
    for k, name in places:
        pair = []
        for body, mine in zip(branches, (leaves, others), strict=True):
            with body.entered():
                pair.append(as_tensor(mine[k], f"cond: {name} of {body.name[6:]}"))
        check_same_type(f"cond: {name} of false_fn", pair[1], pair[0], "that of true_fn", _BOTH)
        for body, t in zip(branches, pair, strict=True):
            body.output(t)
        orders.append(_common_order(branches, pair))
    operand_tensors, graphs, written = _joined(branches)
    wants = [_wants(branches, operand_tensors, k) for k in range(len(places))]
    op = Cond(*graphs)
    taken, first = [takes_grad(t) for t in operand_tensors], len(branches[0].inputs)
    kept = kept_inputs(branches[0], taken[:first])
    kept += [first + k for k in kept_inputs(branches[1], taken[first:])]
    results = apply_body(op, [pred, *operand_tensors], [1 + k for k in kept]) if op.n_outputs else ()
    forget_history(results[: len(places)], wants)
    start = 0
    for body in branches:
        body.check_changes([takes_grad(t) for t in operand_tensors[start : start + len(body.inputs)]])
        start += len(body.inputs)
    write_back(written, results[len(places) :])
    merged = list(leaves)
    for (k, _), y, order in zip(places, results, orders, strict=False):
        merged[k] = y if order is None else laid_out(y, order)
    return tree.unflatten(merged)


def _common_order(branches: Sequence[Body], pair: Sequence[Tensor]) -> Any:
    """A result's memory layout, whichever branch makes it; None where it depends on that, or in row-major order."""
    found = []
    for body, t in zip(branches, pair, strict=True):
        with body.entered():
            found.append(order_of(layout_of(t)))
    first, second = found
    return first if first == second and first is not None and first[:1] != ("strides",) else None


def _wants(branches: Sequence[Body], operands: Sequence[Tensor], result: int) -> bool:
    """Whether a result of either branch depends on an operand that requires gradients."""
    start = 0
    for body in branches:
        if any(takes_grad(operands[start + k]) for k in body.depends(body.outputs[result][1])):
            return True
        start += len(body.inputs)
    return False


def _tensors(tree: TreeSpec, leaves: Sequence[Any], others: Sequence[Any]) -> list[tuple[int, str]]:
    """The leaves that the branches compute; leaves that are equal plain objects in both are not."""
    names = leaf_names(tree, "result")
    found = []
    for k, (a, b) in enumerate(zip(leaves, others, strict=True)):
        is_plain = not isinstance(a, Tensor | TracedNumber) and not isinstance(b, Tensor | TracedNumber)
        if not (is_plain and type(a) is type(b) and a == b):
            found.append((k, names[k]))
    return found


def _joined(branches: Sequence[Body]) -> tuple[list[Tensor], list[Graph], list[Tensor]]:
    """(operands, graphs, what is written): both graphs take what either reads, and write what either writes."""
    read = [body.close() for body in branches]
    written = {array: t for body in branches for array, t in zip(body.memory, body.written, strict=False)}
    graphs: list[Graph] = []
    for number, body in enumerate(branches):
        other = branches[1 - number]
        graph = body_graph(body)
        extra = [Value(type_of(t)) for t in read[1 - number]]
        inputs = (*graph.inputs, *extra) if number == 0 else (*extra, *graph.inputs)
        count = len(graph.outputs) - len(body.written)
        present = dict(zip(other.memory, extra, strict=False))  # what is in memory that this branch does not touch
        present.update(zip(body.memory, graph.inputs, strict=False))
        present.update(zip(body.memory, graph.outputs[count:], strict=False))
        finals = (present[array] for array in written)
        graphs.append(Graph(inputs, graph.nodes, (*graph.outputs[:count], *finals)))
    return [*read[0], *read[1]], graphs, list(written.values())
