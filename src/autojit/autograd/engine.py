"""The engine: walks the recorded history backwards and runs each node once, after all its users.

Nodes are numbered as they are recorded and edges lead to earlier nodes only, so descending numbers are a topological
order; an AccumulateGrad runs as soon as its last contribution has arrived. What happens at a node, in this order: the
hooks of the tensors it made, retained gradients, its pre-hooks, its rule, its hooks.

A pass may start another one (in a hook or a custom function). Deeply nested passes go on in new threads, so that the
depth is not limited by Python's stack.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from autojit.autograd import anomaly
from autojit.autograd.accumulation import accumulate
from autojit.autograd.behind_masks import behind_masks
from autojit.autograd.edges import zeros_of
from autojit.autograd.flat_nodes import FLAT, connect_behind
from autojit.autograd.hook_calls import has_tensor_hooks, through_post_hooks, through_pre_hooks, through_tensor_hooks
from autojit.autograd.inner_results import NOTHING, give_back, lend, with_outer
from autojit.autograd.known_rules import KnownRule, as_tensor, known_rule, serves_here, sum_of
from autojit.autograd.node_orders import by_edges, when
from autojit.autograd.pieces import CUTS, Pieces, may_be_piece
from autojit.autograd.recorded_rules import records_here, run_recorded
from autojit.autograd.running import current_walk, running
from autojit.autograd.turned_products import NOT_TURNED, PRODUCTS, run_product, turns
from autojit.core.errors import DifferentiationError
from autojit.core.rule_places import in_rule
from autojit.core.source import here, leave, place_in_history
from autojit.dispatch.replay import Rules
from autojit.history.op_node import OpNode
from autojit.ops.cotangent_masks import masking
from autojit.tensor.node import ZERO, AccumulateGrad, Edge, Node
from autojit.tensor.state import grad_mode, state

Grads = list[Any]
ONE = (True,)  # what has arrived at a node with one output

DEEPEST = 20
"""Nested passes in one thread: each takes some 15 Python frames, of the 1000 that are allowed."""


class Walk:
    """One backward pass: which nodes run, what has arrived at their outputs, what was asked for.

    Without ``targets`` every leaf accumulates. With them, ``accumulate`` says whether the targets (only) accumulate or
    their cotangents are captured; ``others`` captures them while all other leaves accumulate. A ``closed`` pass ends at
    its targets: none of them gets what flows through another, and hooks of leaves run where the caller's pass comes to
    them. ``is_masked``: elements of the roots' cotangents may be 0 because a branch was masked; not so if all are ones.
    One for all roots, or one for each.
    """

    def __init__(
        self,
        keep_graph: bool,
        targets: Sequence[Edge] | None,
        accumulate: bool,
        others: bool = False,
        closed: bool = False,
        is_masked: bool | Sequence[bool] = True,
    ) -> None:
        self.number = next(_numbers)
        self.is_masked = is_masked
        self.masked: set[Node] = set()  # those whose cotangents may hold zeros of masked branches
        self.masked_outputs: dict[Node, frozenset[int]] = {}  # of captured functions among them
        self.keep_graph = keep_graph
        self.accumulate = accumulate
        self.others = others
        self.closed = closed
        self.targets = None if targets is None else set(targets)
        self.ends = with_outer(targets or ())  # cotangents go there, needed or not
        self.captured: dict[Edge, Any] = {}
        self.arrived: dict[Node, Grads] = {}
        self.missing: dict[Node, int] = {}
        self.needed: set[Node] | None = None  # None: all
        self.callbacks: list[Callable[[], Any]] = []
        self.pieces = Pieces()
        self.order: list[Node] = []  # the nodes of the pass, later ones first
        self.current: Node | None = None  # the node whose rule runs
        self.grads: Grads = []  # what has arrived at its outputs
        self.observer = state.observer  # the profiler's, or None
        self.is_plain = False  # whether rules that are known run on arrays
        self.is_recorded = False  # or as calls that are recorded
        self.rules = (
            None if state.trace is None else Rules(here(is_inside=True))
        )  # how rules are run while a step is captured

    def start(self, roots: Sequence[tuple[Edge, Any]], create_graph: bool) -> dict[Edge, Any]:
        """Run the engine from (edge, cotangent) roots; cotangents that reached the targets."""
        if running.depth < DEEPEST:
            return self._entered(roots, create_graph)
        from concurrent.futures import ThreadPoolExecutor  # seldom needed

        switches = {name: value for name, value in vars(state).items() if name not in ("quiet", "run")}
        walks = running.walks

        def work() -> dict[Edge, Any]:  # with this thread's switches and passes but an empty stack
            vars(state).update(switches)
            running.walks = walks
            return self._entered(roots, create_graph)

        with ThreadPoolExecutor(1, "autojit nested backward") as thread:
            return thread.submit(work).result()

    def _entered(self, roots: Sequence[tuple[Edge, Any]], create_graph: bool) -> dict[Edge, Any]:
        before, depth, hooks = running.walks, running.depth, state.recording_hooks
        was_masked = masking.is_on, masking.outputs
        running.walks, running.depth = (*before, self), depth + 1
        entered = None if self.rules is None else self.rules.enter()
        outside = in_rule.of_pass
        in_rule.of_pass = place_in_history(1) if create_graph and state.trace is None else None
        try:
            with grad_mode(create_graph):
                return anomaly.watched(self.run, roots) if state.anomaly else self.run(roots)
        finally:
            running.walks, running.depth = before, depth
            masking.is_on, masking.outputs = was_masked
            in_rule.of_pass = outside
            if entered is not None:
                leave(entered)
            state.recording_hooks = hooks  # whatever an unpack hook entered or left

    def run(self, roots: Sequence[tuple[Edge, Any]]) -> dict[Edge, Any]:
        """Push the roots' cotangents through the history; the cotangents that arrived at the targets."""
        order = self.order = self.plan([edge for edge, _ in roots])
        arrived, missing = self.arrived, self.missing
        is_plain = self.is_plain = serves_here()
        self.is_recorded = records_here()
        if state.trace is not None:
            state.trace.note_pass(missing, None if self.closed else self.targets, self.accumulate)
        if self.observer is None:
            self._begin(roots)
        else:
            self.observer.call("GraphRoot", "derivative", self._begin, roots)
        del roots
        for node in order:
            if node not in arrived:
                self._pass_over(node)
            elif type(node) is AccumulateGrad:
                if missing[node] == 0:
                    self._process(node)
            elif not (is_plain and isinstance(node, OpNode) and self._run_known(node)):
                self._process(node)
        while self.callbacks:
            self.callbacks.pop(0)()
        return self.captured

    def _begin(self, roots: Sequence[tuple[Edge, Any]]) -> None:
        for edge, grad in roots:
            self._arrive(edge, grad)

    def _is_target(self, node: Node) -> bool:
        return self.targets is not None and any(node is target for target, _ in self.targets)

    def captures(self, node: Node) -> bool:
        """Whether the pass hands out what arrives at ``node`` instead of running it."""
        return not self.accumulate and self._is_target(node)

    def expected_order(self) -> list[Node]:
        """All nodes of the pass, those that ran already too, in the order in which they run."""
        members = set(self.order)
        missing = dict.fromkeys(members, 0)
        for node in members:
            for edge in node.edges:
                if edge is not None and edge[0] in members:
                    missing[edge[0]] += 1
        found: dict[Node, None] = {}
        for node in self.order:
            if type(node) is not AccumulateGrad or not missing[node]:
                found[node] = None
            for edge in node.edges:
                if edge is not None and edge[0] in members:
                    missing[edge[0]] -= 1
                    if type(edge[0]) is AccumulateGrad and not missing[edge[0]]:
                        found[edge[0]] = None
        return list(found)

    def will_run(self, node: Node) -> bool:
        """Whether the hooks of ``node`` run in this pass: it is reached, and needed for what was asked for."""
        return node in self.missing and (self.needed is None or node in self.needed or self._is_target(node))

    def plan(self, roots: Sequence[Edge]) -> list[Node]:
        """The nodes to run for cotangents at ``roots``, in order; notes which of them are behind masks."""
        missing = self.missing = dict.fromkeys([node for node, _ in roots], 0)
        ends = {node for node, _ in self.targets} if self.closed and self.targets is not None else ()
        stack = list(missing)
        while stack:
            node = stack.pop()
            for edge in () if node in ends else node.edges:
                if edge is None:
                    continue
                child = edge[0]
                if child in missing:
                    missing[child] += 1
                else:
                    missing[child] = 1
                    stack.append(child)
        order = by_edges(missing, ends) if Node.renumbered else sorted(missing, key=when, reverse=True)
        if self.is_masked is True:
            masked = roots
        else:
            masked = [edge for edge, flag in zip(roots, self.is_masked, strict=True) if flag] if self.is_masked else []
        self.masked, self.masked_outputs = behind_masks(order, roots, masked)
        if self.targets is None:
            return order
        return self._only_needed(order)

    def _only_needed(self, order: list[Node]) -> list[Node]:
        """Note which nodes are on the way to the targets; the order without the others."""
        assert self.targets is not None
        wanted = {node for node, _ in self.targets}
        if self.others:
            self.needed = {n for n in order if type(n) is not AccumulateGrad or n not in wanted}
            return order
        needed = self.needed = set(wanted) if self.accumulate else set()
        for node in reversed(order):
            if self.closed and node in wanted:
                continue
            if any(e is not None and (e[0] in needed or e[0] in wanted) for e in node.edges):
                needed.add(node)
        return [n for n in order if n in needed or n in wanted]

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
            buffer[number] = sum_of(before, grad, self.is_plain and self.targets is None)

    def _run_known(self, node: OpNode) -> bool:
        """Run a node by what is known of its rule; False: nothing is, or somebody else has a look at the node."""
        rules = node.rules
        if rules is None or node.tensor_hooks or node.retained or node.pre_hooks or node.post_hooks:
            return False
        needed, targets = self.needed, self.targets
        if needed is None:
            wanted = tuple([e is not None for e in node.edges])
        elif node not in needed or self._is_target(node):
            return False
        else:
            wanted = tuple([e is not None and (e[0] in needed or e in self.ends) for e in node.edges])
        op = node.op
        if type(op) in CUTS and may_be_piece(node):
            return False
        grads = self.arrived[node]
        if len(grads) == 1:
            arrived: tuple[bool, ...] = ONE
            if grads[0] is None or grads[0] is ZERO:
                return False
        else:
            arrived = tuple([g is not None and g is not ZERO for g in grads])
            if not any(arrived):
                return False
        turned = turns(node) if type(op) in PRODUCTS else NOT_TURNED
        rule = known_rule(node, rules, (node in self.masked, turned, wanted, arrived), KnownRule)
        results = None if rule is None else rule.cotangents(node, grads, targets is None)
        if results is None:
            return False
        del self.arrived[node]
        if not self.keep_graph:
            node.release()
        grads.clear()
        self._deliver(node, results)
        return True

    def _process(self, node: Node) -> None:
        grads = self.arrived.pop(node)
        if self.is_plain:
            grads[:] = [as_tensor(g) for g in grads]
        is_leaf = type(node) is AccumulateGrad
        if is_leaf and grads[0] is ZERO:
            grads[0] = zeros_of((node, 0))
        is_needed = self.needed is None or node in self.needed
        may_have_hooks = not self.closed if is_leaf else node.tensor_hooks is not None or node.retained is not None
        lent = lend(node, grads, self.targets) if may_have_hooks or self.targets else NOTHING
        if is_needed and self.targets is not None and not self.accumulate:
            self._capture(node, grads)
        if may_have_hooks and has_tensor_hooks(node):
            _fill_zeros(node, grads)
            through_tensor_hooks(node, grads, lent.hooked)
        if not is_needed:
            self._capture(node, grads)
            return
        give_back(grads, lent)
        if node.pre_hooks:
            _fill_zeros(node, grads)
            grads = through_pre_hooks(node.pre_hooks, grads)
        if is_leaf:
            self.current = node
            if self.observer is None:
                accumulate(node, grads)  # type: ignore[arg-type]
            else:
                self.observer.node(node, grads, accumulate, node, grads)
            self.current = None
            if node.post_hooks:
                through_post_hooks(node.post_hooks, (), grads)
        else:
            self._run(node, grads)

    def _capture(self, node: Node, grads: Grads) -> None:
        assert self.targets is not None
        for number, grad in enumerate(grads):
            if (edge := (node, number)) in self.targets:
                self.captured[edge] = zeros_of(edge) if grad is ZERO else grad

    def _run(self, node: Node, grads: Grads) -> None:
        needed, ends = self.needed, self.ends
        if needed is None:
            wanted = tuple([e is not None for e in node.edges])
        else:
            wanted = tuple([e is not None and (e[0] in needed or e in ends) for e in node.edges])
        is_watched = bool(node.post_hooks)
        if state.__dict__["grad_enabled"] and node.name() in FLAT:
            connect_behind(node, grads)
        self.current, self.grads = node, grads
        masking.is_on, masking.outputs = node in self.masked, self.masked_outputs.get(node)
        if self.observer is None:
            if state.__dict__["anomaly"]:
                results = anomaly.guarded(node, grads, wanted)
            elif self.rules is not None:
                results = self.rules.run(node, grads, wanted)
            elif not isinstance(node, OpNode):
                results = node.run(grads, wanted)
            elif self.is_recorded:
                results = run_recorded(node, grads, wanted, masking.is_on)
            elif type(node.op) in CUTS and not is_watched and self._add_piece(node):
                return
            elif type(node.op) in PRODUCTS:
                results = run_product(node, grads, wanted)
            else:
                results = node.run(grads, wanted)
        else:
            results = self.observer.node(node, grads, anomaly.guarded, node, grads, wanted)
        self.current = None
        if node.post_hooks:
            _fill_zeros(node, grads)
            shown = [zeros_of(e) if r is ZERO and e is not None else r for r, e in zip(results, node.edges)]
            given = grads if is_watched else [None] * len(grads)  # hooks registered by the rule come too late for them
            results = through_post_hooks(node.post_hooks, shown, given)
        if not self.keep_graph:
            node.release()
        grads.clear()
        self._deliver(node, results if type(results) is list else list(results))

    def _add_piece(self, node: OpNode) -> bool:
        """Add what has arrived at a piece of a tensor to what has arrived at the tensor, in place; or False."""
        edge = node.edges[0]
        if edge is None or state.grad_enabled:
            return False
        child, number = edge
        if self.needed is not None and child not in self.needed and edge not in self.ends:
            return False
        buffer = self.arrived.get(child)
        total = self.pieces.add(node, self.grads[0], None if buffer is None else as_tensor(buffer[number]))
        if total is None:
            return False
        if buffer is None:
            buffer = self.arrived[child] = [None] * max(len(child.out_metas), 1)
        buffer[number] = total
        del total  # a leaf sees whether the buffer is its only owner
        self.current = None
        self.grads.clear()
        if not self.keep_graph:
            node.release()
        self.missing[child] -= 1
        if type(child) is AccumulateGrad:
            self._end_at(child)
        return True

    def _pass_over(self, node: Node) -> None:
        """Nothing has come to a node, and nothing comes from it: leaves behind it no longer wait for it."""
        if self.closed and self._is_target(node):
            return  # where the pass ends
        for edge in node.edges:
            if edge is not None:
                child = edge[0]
                self.missing[child] -= 1
                if type(child) is AccumulateGrad:
                    self._end_at(child)

    def _end_at(self, leaf: AccumulateGrad) -> None:
        """A leaf's gradient is complete when everything has come that can come."""
        if self.missing[leaf] == 0 and leaf in self.arrived:
            self._process(leaf)

    def _deliver(self, node: Node, results: Grads) -> None:
        """Hand the results on; ``results`` gives them up, so that a leaf can see whether it is their only owner."""
        arrived, missing, needed, ends = self.arrived, self.missing, self.needed, self.ends
        is_call = isinstance(node, OpNode) and node.op.is_call  # which does not lead everywhere from all its outputs
        for place, edge in enumerate(node.edges):
            if edge is None or place >= len(results):
                continue
            child = edge[0]
            missing[child] -= 1
            if needed is not None and child not in needed and edge not in ends:
                continue
            if results[place] is None and is_call:
                pass
            elif child not in arrived and len(child.out_metas) < 2:
                arrived[child] = [results[place]]
            else:
                self._arrive(edge, results[place])
            results[place] = None
            if type(child) is AccumulateGrad:
                self._end_at(child)


_numbers = itertools.count()


class ExecutionEngine:
    """The engine as ``Variable._execution_engine``: what extensions ask of a running pass."""

    def queue_callback(self, callback: Callable[[], Any]) -> None:
        """Call ``callback()`` when the present backward pass has ended.

        Raises:
            RuntimeError: no backward pass is running in this thread.
        """
        walk = current_walk()
        if walk is None:
            raise DifferentiationError(
                "Final callbacks can only be installed during backward pass.",
                fix="call queue_callback in a hook or in the backward of a custom function",
            )
        walk.callbacks.append(callback)

    def is_checkpoint_valid(self) -> bool:
        """Whether the present pass accumulates into every leaf, as recomputing with ``backward`` does."""
        walk = current_walk()
        return walk is None or walk.targets is None


def _fill_zeros(node: Node, grads: Grads) -> None:
    """Users' hooks see zeros as tensors."""
    for number, grad in enumerate(grads):
        if grad is ZERO:
            grads[number] = zeros_of((node, number))


__all__ = ["ExecutionEngine", "Walk"]
