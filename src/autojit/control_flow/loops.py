"""while_loop and scan: loops whose body is captured once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from autojit.autograd import anomaly
from autojit.control_flow.body import Body, forget_history, takes_grad, write_back
from autojit.control_flow.captured_call import body_graph
from autojit.control_flow.conditions import is_open, truth
from autojit.control_flow.kept_operands import apply_body, kept_inputs
from autojit.control_flow.nests import as_tensor, check_same_tree, check_same_type, leaf_names
from autojit.control_flow.pieces import rounds_per_piece, scan_in_pieces
from autojit.core.errors import ShapeError, UsageError
from autojit.core.sizes import distinct, is_symbolic, seems_equal
from autojit.core.top_level import top_level
from autojit.functions.shape import movedim, stack
from autojit.ir.graph import Graph, Value
from autojit.jit.pytree import TreeSpec, flatten
from autojit.jit.stepped_bodies import runs_turn_by_turn
from autojit.ops.base import normalize_axis
from autojit.ops.scan_steps import Scan
from autojit.ops.while_sweeps import WhileLoop
from autojit.tensor import Tensor
from autojit.tensor.state import state
from autojit.tensor.tensor import type_of


@top_level
def while_loop(cond_fn: Any, body_fn: Any, carried_inputs: Any) -> Any:
    """Repeat ``carried = body_fn(*carried)`` while ``cond_fn(*carried)`` is true; the last carried values.

    Outside of ``@aj.jit`` this is a plain Python loop. In a compiled step the loop is native code, whose number of
    steps may differ from call to call; gradients of any order flow through it, to the carried inputs and to tensors
    that ``body_fn`` closes over: what was carried at every step is kept on a tape that grows while the loop runs.

    Args:
        cond_fn: takes the carried values and returns a bool or a tensor with one element.
        body_fn: takes the carried values and returns new ones, of the same structure, shapes and dtypes.
        carried_inputs: a tuple or list of nests of tensors (or numbers).

    Raises:
        RuntimeError: what ``body_fn`` returns differs from what it was given; the message names the leaf.

    Example:
        >>> import autojit as aj
        >>> @aj.jit
        ... def halve_until_small(x):
        ...     return while_loop(lambda x, n: x.abs().max() > 1, lambda x, n: (x / 2, n + 1), (x, aj.tensor(0)))
        >>> halve_until_small(aj.tensor([3.0, 5.0]))
        (tensor([0.3750, 0.6250]), tensor(3))
    """
    if not callable(cond_fn) or not callable(body_fn):
        raise UsageError("while_loop: cond_fn and body_fn must be callable")
    if not isinstance(carried_inputs, tuple | list):
        kind = type(carried_inputs).__name__
        raise UsageError(f"while_loop: carried_inputs must be a tuple or list, but got {kind}", fix="pass (x,)")
    if state.trace is None or runs_turn_by_turn("while_loop"):
        return _stepped(cond_fn, body_fn, tuple(carried_inputs))
    return _captured(cond_fn, body_fn, tuple(carried_inputs))


def _captured(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried: tuple[Any, ...]) -> Any:
    """The loop as one op: the body's graph gives whether to go on, and new carries."""
    leaves, tree = flatten(carried)
    names = leaf_names(tree, "carried")
    begun = [as_tensor(x, f"while_loop: {name}") for x, name in zip(leaves, names, strict=True)]

    def goes_on(values: Sequence[Tensor]) -> Tensor:
        what = "the result of cond_fn"
        return as_tensor(truth(cond_fn(*tree.unflatten(values)), what), what)

    def step(*values: Tensor) -> tuple[Tensor, list[Tensor]]:
        found, found_tree = flatten(_as_carried(body_fn(*tree.unflatten(values))))
        check_same_tree("while_loop: what body_fn returns", found_tree, tree, "carried_inputs")
        new = [as_tensor(x, f"while_loop: {name} after a step") for x, name in zip(found, names, strict=True)]
        for a, b, name in zip(new, begun, names, strict=True):
            check_same_type(f"while_loop: {name} after a step", a, b, "that before the step")
        return goes_on(new), new

    go = goes_on(begun)
    body = Body("while_loop: body_fn")
    with body.entered():
        inner = [body.stand_in(t) for t in begun]
    more, new = body.call(step, inner, (cond_fn, body_fn))
    for t in (more, *new):
        body.output(t)
    read = body.close()
    graph = body_graph(body)
    first, count = len(begun), len(body.written)
    unread = graph.outputs[0].type  # of the carry that says whether to go on
    op = WhileLoop(
        (Graph((Value(unread), *graph.inputs), graph.nodes, graph.outputs),), (1 + first + count,), ((),), (False,)
    )
    wants = carries_want(body, 1, begun, (), read)
    given = [*wants, *map(takes_grad, read)]
    results = apply_body(op, [go, *begun, *read], [1 + k for k in kept_inputs(body, given)])
    forget_history(results[: 1 + first], [False, *wants])
    body.check_changes(given)
    write_back(body.written, results[1 + first :])
    triples = zip(begun, new, results[1 : 1 + first], strict=True)
    return tree.unflatten([body.kept_order(*triple) for triple in triples])


def _stepped(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried: tuple[Any, ...]) -> Any:
    """The loop in Python, as long as elements of a batch do not differ in whether they go on."""
    leaves, tree = flatten(carried)
    for number in itertools.count():
        go = cond_fn(*carried)
        if state.trace is None and is_open(go):
            return _captured(cond_fn, body_fn, carried)
        if not truth(go, "the result of cond_fn"):
            break
        with anomaly.in_round(number):
            found = _as_carried(body_fn(*carried))
        new, new_tree = flatten(found)
        _check_carried("while_loop", new, new_tree, leaves, tree)
        carried = found
    return carried


def _as_carried(found: Any) -> tuple[Any, ...]:
    """What a body returned as a tuple of carried values; one value may come without a tuple."""
    return tuple(found) if isinstance(found, tuple | list) else (found,)


def _check_carried(what: str, new: Sequence[Any], new_tree: TreeSpec, old: Sequence[Any], tree: TreeSpec) -> None:
    check_same_tree(f"{what}: what the body returns", new_tree, tree, "the carried values")
    for a, b, name in zip(new, old, leaf_names(tree, "carried"), strict=True):
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            check_same_type(f"{what}: {name} after a step", a, b, "that before the step")


def carries_want(
    body: Body, skip: int, carried: Sequence[Tensor], stacks: Sequence[Tensor], read: Sequence[Tensor]
) -> list[bool]:
    """Which carries require gradients: those that begin so, and those that any step computes from what does.

    The first ``skip`` outputs of the body are not carries.
    """
    wants = [takes_grad(t) for t in (*carried, *stacks, *read)]
    count = len(carried)
    sources = [body.depends(t) for _, t in body.outputs[skip : skip + count]]
    while True:
        grown = [wants[k] or any(wants[j] for j in sources[k]) for k in range(count)]
        if grown == wants[:count]:
            return grown
        wants[:count] = grown


@top_level
def scan(
    combine_fn: Any, init: Any, xs: Any, *, dim: int = 0, reverse: bool = False, remat: bool | int = False
) -> tuple[Any, Any]:
    """``carry, y = combine_fn(carry, x)`` for every slice x of ``xs`` along ``dim``; the last carry and the stacked y.

    Outside of ``@aj.jit`` this is a plain Python loop. In a compiled step ``combine_fn`` is compiled once, whatever the
    number of slices, and the loop is native code. Gradients of any order flow to ``init``, ``xs`` and tensors that
    ``combine_fn`` closes over.

    Args:
        combine_fn: takes the carry and a slice; returns the next carry, of the same structure, shapes and dtypes, and a
            nest of tensors.
        init: the first carry, a nest of tensors.
        xs: a nest of tensors with the same extent along ``dim``.
        dim: the axis of the slices; results are stacked along axis 0.
        reverse: begin with the last slice; results are where their slices were.
        remat: keep for the backward pass only the carries at the beginning of every so many rounds (True: about the
            root of their number), and compute the others again. Memory then grows with the root of the rounds.

    Raises:
        RuntimeError: a carry changes its structure, shape or dtype (the message names the leaf), the tensors of ``xs``
            differ in extent, or there are no slices.

    Example:
        >>> import autojit as aj
        >>> scan(lambda total, x: (total + x, total * x), aj.tensor(0.0), aj.tensor([1.0, 2.0, 3.0]))
        (tensor(6.), tensor([0., 2., 9.]))
    """
    if not callable(combine_fn):
        raise UsageError(f"Combine_fn must be a callable, but got {combine_fn!r}")
    if not isinstance(dim, int):
        raise UsageError(f"Dim must be an int, but got {type(dim)}")
    if not isinstance(reverse, bool):
        raise UsageError(f"Reverse must be a bool, but got {type(reverse)}")
    leaves, tree = flatten(init)
    names = leaf_names(tree, "carry")
    carried = [as_tensor(x, f"scan: {name} of init") for x, name in zip(leaves, names, strict=True)]
    stacks, xs_tree = flatten(xs)
    moved, length = _slices(stacks, xs_tree, dim)
    if not carried:
        raise UsageError("scan() operator requires init leaves.", fix="pass at least one tensor as init")
    rounds = rounds_per_piece(remat, length) if remat is not False else 0
    if rounds:
        in_order = partial(scan, reverse=reverse)
        return scan_in_pieces(in_order, combine_fn, tree.unflatten(carried), moved, xs_tree, rounds, reverse)
    job = _Scan(combine_fn, tree, xs_tree, reverse)
    is_one = not is_symbolic(length) and length == 1  # no loop, and no op to tell histories apart
    if state.trace is None or is_one or runs_turn_by_turn("scan"):
        return job.stepped(carried, moved, length)
    return job.captured(carried, moved, length)


def _slices(stacks: Sequence[Any], tree: TreeSpec, dim: int) -> tuple[list[Tensor], int]:
    """The tensors with the axis of the slices in front, and how many slices there are."""
    if not stacks:
        raise UsageError("scan() operator requires xs leaves.", fix="pass at least one tensor as xs")
    moved: list[Tensor] = []
    for x, name in zip(stacks, leaf_names(tree, "xs"), strict=True):
        if not isinstance(x, Tensor):
            raise UsageError(f"scan: {name} must be a Tensor, but is {type(x).__name__}")
        if x.ndim == 0 or not -x.ndim <= dim < x.ndim:
            raise UsageError(
                "All xs leaves must at least have 'dim' number of dimensions and scan dimension > 0",
                {name: x, "dim": dim},
            )
        axis = normalize_axis(dim, x.ndim)
        moved.append(x if axis == 0 else movedim(x, axis, 0))
    lengths = distinct(type_of(x).shape[0] for x in moved)
    if len(lengths) > 1:
        facts = dict(zip(leaf_names(tree, "xs"), stacks, strict=True))
        raise ShapeError("scan: all tensors of xs must have the same extent along dim", facts)
    (length,) = lengths
    if seems_equal(length, 0):
        raise UsageError("All xs leaves must at least have 'dim' number of dimensions and scan dimension > 0")
    return moved, length


class _Scan:
    """A scan of given tensors: step by step, or captured."""

    def __init__(self, combine_fn: Callable[..., Any], tree: TreeSpec, xs_tree: TreeSpec, reverse: bool) -> None:
        self.combine_fn = combine_fn
        self.tree = tree
        self.names = leaf_names(tree, "carry")
        self.xs_tree = xs_tree
        self.reverse = reverse
        self.y_tree: TreeSpec | None = None

    def step(self, carried: Sequence[Any], slices: Sequence[Any]) -> tuple[list[Tensor], list[Any]]:
        """One step: the leaves of the next carry and of the results."""
        found = self.combine_fn(self.tree.unflatten(carried), self.xs_tree.unflatten(slices))
        if not isinstance(found, tuple | list) or len(found) != 2:
            raise UsageError(
                "scan: combine_fn must return a pair: the next carry and the results of the step",
                {"returned": type(found).__name__},
                "return carry, y (y may be an empty tuple)",
            )
        new, new_tree = flatten(found[0])
        check_same_tree("scan: the carry that combine_fn returns", new_tree, self.tree, "init")
        tensors = [as_tensor(x, f"scan: {name} after a step") for x, name in zip(new, self.names, strict=True)]
        for a, b, name in zip(tensors, carried, self.names, strict=True):
            if type_of(a) is not type_of(b):
                check_same_type(f"scan: {name} after a step", a, b, "that before the step")
        results, y_tree = flatten(found[1])
        if self.y_tree is not None:
            check_same_tree("scan: the results of a step", y_tree, self.y_tree, "those of the step before")
        self.y_tree = y_tree
        return tensors, results

    def stepped(self, carried: list[Tensor], stacks: Sequence[Tensor], length: int) -> tuple[Any, Any]:
        """The loop in Python."""
        rows: list[list[Any]] = []
        order = range(length)
        for k in reversed(order) if self.reverse else order:
            with anomaly.in_round(k):
                carried, results = self.step(carried, [x[k] for x in stacks])
            rows.append(results)
        if self.reverse:
            rows.reverse()
        assert self.y_tree is not None
        names = leaf_names(self.y_tree, "y")
        stacked = [_stacked(list(column), name) for column, name in zip(zip(*rows, strict=True), names, strict=True)]
        return self.tree.unflatten(carried), self.y_tree.unflatten(stacked)

    def captured(self, carried: list[Tensor], stacks: Sequence[Tensor], length: int) -> tuple[Any, Any]:
        """The loop as one op."""
        body, new, results = self._captured_step(carried, stacks)
        read = body.close()
        graph = body_graph(body)
        first, changed = len(carried), len(body.written)
        stop = len(graph.outputs) - changed
        op = self._op(graph, first, len(stacks), changed, length)
        wants = carries_want(body, 0, carried, stacks, read)
        given = [*wants, *map(takes_grad, stacks), *map(takes_grad, read)]
        operands, known = [*carried, *read[:changed], *stacks, *read[changed:]], [*carried, *stacks, *read]
        place = {id(t): k for k, t in enumerate(operands)}
        found = apply_body(op, operands, [place[id(known[k])] for k in kept_inputs(body, given)])
        body.check_changes(given)
        made_wants = [any(given[k] for k in body.depends(t)) for _, t in body.outputs[first:stop]]
        forget_history(found, [*wants, *(False for _ in body.written), *made_wants])
        write_back(body.written, found[first : first + changed])
        made = iter(found[first + changed :])
        leaves = [None if y is None else next(made) for y in results]
        kept = [body.kept_order(*triple) for triple in zip(carried, new, found[:first], strict=True)]
        assert self.y_tree is not None
        return self.tree.unflatten(kept), self.y_tree.unflatten(leaves)

    def _captured_step(
        self, carried: Sequence[Tensor], stacks: Sequence[Tensor]
    ) -> tuple[Body, list[Tensor], list[Any]]:
        """One step, captured, with the leaves of its carry and of its results; what is None is not an output of it."""
        body = Body("scan: combine_fn")
        with body.entered():
            inner = [body.stand_in(t) for t in carried]
            slices = [body.input(type_of(x).drop((0,))) for x in stacks]
        new, results = body.call(self.step, (inner, slices), (self.combine_fn,))
        for t in new:
            body.output(t)
        with body.entered():
            made = [as_tensor(y, "scan: a result of combine_fn") for y in results if y is not None]
        for t in made:
            body.output(t)
        return body, new, results

    def _op(self, graph: Graph, first: int, n_stacks: int, changed: int, length: int) -> Scan:
        """The op of a step's graph: the memory that the step changes is carried, behind the ``first`` carries."""
        rest, stop = first + n_stacks, len(graph.outputs) - changed
        inputs = (
            *graph.inputs[:first], *graph.inputs[rest : rest + changed],
            *graph.inputs[first:rest], *graph.inputs[rest + changed :],
        )  # fmt: skip
        outputs = (*graph.outputs[:first], *graph.outputs[stop:], *graph.outputs[first:stop])
        return Scan(Graph(inputs, graph.nodes, outputs), first + changed, n_stacks, length, self.reverse)


def _stacked(column: Sequence[Any], name: str) -> Any:
    """The results of all steps for one leaf; what is None at every step stays None."""
    if all(y is None for y in column):
        return None
    return stack([as_tensor(y, f"scan: {name}") for y in column])
