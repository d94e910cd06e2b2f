"""Hoist out of scans what no step needs from the step before: what is the same in every step is computed once, matrix
products are done for all steps at once.

A small product in every step becomes one large product before the loop (of what depends on slices alone) or after it
(of what only results and sums read): its operands are read once, and it is cut into pieces of a good size. Sums over
the steps, such as the gradient of a weight, become one product over all steps. What is computed for all steps at once
is kept stacked, within the machine's ``hoisted_bytes``.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from autojit.core.machine import Machine
from autojit.core.sizes import is_symbolic, typical
from autojit.ir.builder import GraphBuilder, Tracer
from autojit.ir.graph import Graph, Node, Value
from autojit.ir.inline import inline
from autojit.ir.op import bind
from autojit.ops.base import Elementwise, Reindex, Source
from autojit.ops.control_flow import with_batch_axis
from autojit.ops.elementwise_arithmetic import add
from autojit.ops.reductions import Sum, sum
from autojit.ops.scan_steps import Scan
from autojit.ops.shape import Permute, Reshape, permute, reshape
from autojit.passes.given_sizes import hangs_on_counts
from autojit.passes.prune_bodies import needed
from autojit.passes.rewrite import rebuilt
from autojit.transforms.vmap import vmap


def hoist_steps(graph: Graph, machine: Machine) -> Graph:
    """Move matrix products out of scans where they do not take part in the recurrence.

    Preserves results to rounding (sums over steps are taken in another order). Time O(nodes of bodies).
    """
    if not any(isinstance(node.op, Scan) for node in graph.nodes):
        return graph

    def hoisted(builder: GraphBuilder, node: Node, inputs: tuple[Value, ...]) -> list[Value] | None:
        return _Hoisting(builder, node.op, inputs, machine).run() if isinstance(node.op, Scan) else None

    return rebuilt(graph, hoisted)


class _Hoisting:
    """One scan taken apart. ``stacks`` and ``constants`` pair the body's inputs with the values outside."""

    def __init__(self, builder: GraphBuilder, op: Scan, operands: Sequence[Value], machine: Machine) -> None:
        self.builder = builder
        self.machine = machine
        self.op = op
        first, rest = op.carries, op.carries + op.stacks
        self.carried = list(zip(op.body.inputs[:first], operands[:first], strict=True))
        self.stacks = dict(zip(op.body.inputs[first:rest], operands[first:rest], strict=True))
        self.constants = dict(zip(op.body.inputs[rest:], operands[rest:], strict=True))
        self.nodes = list(op.body.nodes)
        self.lasts = list(op.body.outputs[:first])
        self.results = list(op.body.outputs[first:])
        self.is_counted = hangs_on_counts(self.nodes)
        self.runs = not is_symbolic(op.length) and op.length > 0  # what may refuse does so outside as well as inside

    def _stays(self, node: Node) -> bool:
        """Whether a node must run in every step."""
        is_effect = node.op.has_effect or node.op.calls_out or (node.is_asked and not self.runs)
        return is_effect or node.op.is_random or self.is_counted(node)

    def run(self) -> list[Value]:
        """Record what is hoisted and the scan that is left; the values of the scan's outputs."""
        self._once()
        self._before()
        late, sums = self._late()
        if not late:
            found = self._scan(self.results)
            return [found[v] if k >= len(self.lasts) else found[k] for k, v in enumerate((*self.lasts, *self.results))]
        return self._after(late, sums)

    # -- before the loop, once

    def _once(self) -> None:
        """Take out what is the same in every step, where computing it costs more than reading it."""
        same = set(self.constants)
        fixed: dict[Value, Node] = {}
        for node in self.nodes:
            if not self._stays(node) and all(v in same for v in node.inputs):
                same.update(node.outputs)
                fixed.update(dict.fromkeys(node.outputs, node))
        moving = [n for n in self.nodes if n.outputs[0] not in fixed]
        products = {v for n in moving if n.op.name == "matmul" for v in n.inputs}
        wanted = [v for n in moving for v in n.inputs]
        seen: set[Value] = set()
        chosen: list[Value] = []
        while wanted:
            value = wanted.pop()
            maker = fixed.get(value)
            if maker is None or value in seen:
                continue
            seen.update(maker.outputs)
            if self._is_worth_storing(maker, value in products):
                chosen += maker.outputs
            else:
                wanted += maker.inputs
        if chosen:
            nodes, read = self._needed(chosen, fixed)
            inputs = tuple(v for v in self.constants if v in read)
            like = self._tracer(self.carried[0][1] if self.carried else next(iter(self.stacks.values())))
            given = [self._tracer(self.constants[v]) for v in inputs]
            found = self._inlined(Graph(inputs, nodes, tuple(chosen)), given, like)
            self.constants.update((v, y.value) for v, y in zip(chosen, found, strict=True))
            made = set(chosen)
            self.nodes = [n for n in self.nodes if made.isdisjoint(n.outputs)]

    def _needed(self, values: Sequence[Value], outside: Container[Value]) -> tuple[tuple[Node, ...], set[Value]]:
        """The nodes that ``values`` need, of those that can be computed ``outside`` of the loop; what they read.

        The others stay, also those that may refuse what they read and are asked though nothing needs them.
        """
        return needed([n for n in self.nodes if n.outputs[0] in outside], values, are_asked=False)

    def _is_worth_storing(self, node: Node, is_multiplied: bool) -> bool:
        """Whether a value that all steps share is better read than computed in each.

        Products read only what is stored. That they read columns slowly, they make up for in ``turned_steps`` steps.
        """
        size = typical(_bytes(node.outputs))
        if isinstance(node.op, Permute):
            reads_columns = is_multiplied and node.op.axes[-1] != len(node.op.axes) - 1
            is_small = size <= self.machine.turned_bytes
            return reads_columns and is_small and typical(self.op.length) >= self.machine.turned_steps
        if isinstance(node.op, Reindex | Source) or size > self.machine.hoisted_bytes:
            return False
        return is_multiplied or not (isinstance(node.op, Elementwise) and node.op.is_cheap)

    # -- before the loop, for all steps

    def _before(self) -> None:
        free = {*self.stacks, *self.constants}
        moving = set(self.stacks)
        products: list[Node] = []
        for node in self.nodes:
            if self._stays(node) or not all(v in free for v in node.inputs):
                continue
            free.update(node.outputs)
            if not moving.isdisjoint(node.inputs):
                moving.update(node.outputs)
                if node.op.name == "matmul":
                    products.append(node)
        products = [n for n in products if self._fits(n.outputs)]
        if not products:
            return
        hoisted, _ = self._needed([v for n in products for v in n.outputs], free)
        left = [n for n in self.nodes if n not in set(hoisted)]
        read = {v for n in left for v in n.inputs} | {*self.lasts, *self.results}
        again = [n for n in hoisted if not moving.intersection(n.outputs)]  # of constants only: cheap to have twice
        border = [v for n in hoisted for v in n.outputs if v in read and v in moving]
        for value, whole in zip(border, self._for_all(hoisted, border), strict=True):
            self.stacks[value] = whole
        self.nodes = [*again, *left]

    def _fits(self, values: Sequence[Value]) -> bool:
        return typical(self.op.length) * typical(_bytes(values)) <= self.machine.hoisted_bytes

    def _for_all(self, nodes: Sequence[Node], outputs: Sequence[Value]) -> list[Value]:
        """The values of nodes for all steps, stacked."""
        read = {v for n in nodes for v in n.inputs}
        inputs = [v for v in (*self.stacks, *self.constants) if v in read]
        graph = Graph(tuple(inputs), tuple(nodes), tuple(outputs))
        given = [self._tracer(self.stacks[v] if v in self.stacks else self.constants[v]) for v in inputs]
        like = given[0] if given else self._tracer(self.carried[0][1] if self.carried else self.builder.inputs[0])
        flags = [v in self.stacks for v in inputs]
        if not any(flags):  # the same in every step
            return [with_batch_axis(y, self.op.length).value for y in self._inlined(graph, given, like)]
        return [y.value for y in self._inlined(vmap(graph, flags, self.op.length), given, like)]

    def _inlined(self, graph: Graph, given: Sequence[Tracer], like: Tracer) -> list[Any]:
        """Nodes of the body outside of it: the user's lines go with them."""
        source = self.builder.source
        found = inline(graph, given, like, self.builder)
        self.builder.source = source
        return found

    def _tracer(self, value: Value) -> Tracer:
        return self.builder.tracer(value)

    # -- after the loop

    def _late(self) -> tuple[list[Node], dict[int, Value]]:
        """(the nodes to run after the loop, per carry that only sums up: what it adds)."""
        made_by = {v: n for n in self.nodes for v in n.outputs}
        readers: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for v in dict.fromkeys(node.inputs):
                readers.setdefault(v, []).append(node)
        sums: dict[int, Value] = {}
        for k, (carry, _) in enumerate(self.carried):
            share = self._summand(carry, self.lasts[k], made_by.get(self.lasts[k]), readers)
            if share is not None:
                sums[k] = share
        _, recurrent = needed(self.nodes, [v for k, v in enumerate(self.lasts) if k not in sums])
        late: set[Value] = set()
        chosen: list[Node] = []
        border: set[Value] = set()
        summed, summing = set(sums.values()), {self.carried[k][0] for k in sums}
        for node in self.nodes:
            if not recurrent.isdisjoint(node.outputs) or self._stays(node):
                continue
            is_sum = isinstance(node.op, Sum) and node.outputs[0] in summed
            if node.op.name == "matmul" or is_sum or not late.isdisjoint(node.inputs):
                if not summing.isdisjoint(node.inputs):
                    continue
                chosen.append(node)
                late.update(node.outputs)
                border.update(node.inputs)
        if not any(n.op.name == "matmul" for n in chosen) or not self._fits([v for v in border if v not in late]):
            return [], {}
        chosen = self._with_views(chosen, made_by)
        outside = {v for n in chosen for v in n.outputs}
        return chosen, {k: v for k, v in sums.items() if v in outside}

    def _summand(self, carry: Value, last: Value, node: Node | None, readers: dict[Value, list[Node]]) -> Value | None:
        """What a carry adds up, if that is all it does."""
        if node is None or node.op.name != "add" or len(readers.get(carry, ())) != 1 or carry in self.results:
            return None
        if readers[carry] != [node] or last in readers or last in self.results or self.lasts.count(last) > 1:
            return None
        a, b = node.inputs
        share = b if a is carry else a
        return share if share is not carry and share.type == carry.type else None

    def _with_views(self, chosen: list[Node], made_by: dict[Value, Node]) -> list[Node]:
        """Also what the chosen nodes see through: views and constants are made again outside."""
        found = set(chosen)
        stack = [v for n in chosen for v in n.inputs]
        while stack:
            node = made_by.get(stack.pop())
            if node is not None and node not in found and isinstance(node.op, Reindex | Source):
                found.add(node)
                stack += node.inputs
        return [n for n in self.nodes if n in found]

    def _after(self, late: list[Node], sums: dict[int, Value]) -> list[Value]:
        made = {v for n in late for v in n.outputs}
        results = [v for v in self.results if v not in made]
        read = dict.fromkeys(v for n in late for v in n.inputs)
        border = [v for v in read if v not in made and v not in self.stacks and v not in self.constants]
        adders = {self.lasts[k] for k in sums}
        views = {v for n in late if isinstance(n.op, Reindex | Source) for v in n.outputs}
        self.nodes = [
            n for n in self.nodes if (n.outputs[0] not in made or n.outputs[0] in views) and n.outputs[0] not in adders
        ]
        kept = [k for k in range(len(self.carried)) if k not in sums]
        lasts, carried = self.lasts, self.carried
        self.lasts, self.carried = [lasts[k] for k in kept], [carried[k] for k in kept]
        found = self._scan(list(dict.fromkeys([*results, *border])))
        for value in border:
            self.stacks[value] = found[value]
        totals = {k: self._total(share, late) for k, share in sums.items()}
        whole = [v for v in self.results if v in made]
        after = dict(zip(whole, self._for_all(late, whole), strict=True)) if whole else {}
        out: list[Value] = []
        for k in range(len(lasts)):
            if k in sums:
                out.append(add(self._tracer(carried[k][1]), totals[k]).value)
            else:
                out.append(found[kept.index(k)])
        return [*out, *(after[v] if v in after else found[v] for v in self.results)]

    def _total(self, share: Value, late: list[Node]) -> Any:
        """What a carry adds up over all steps."""
        made_by = {v: n for n in late for v in n.outputs}
        node = made_by[share]
        if (
            isinstance(node.op, Permute | Reshape) and node.inputs[0] in made_by
        ):  # the sum of views is a view of the sum
            return bind(node.op, self._total(node.inputs[0], late))
        if node.op.name == "matmul" and share.type.ndim == 2:
            return bind(node.op, self._rows_as_columns(node.inputs[0], late, made_by), self._rows(node.inputs[1], late))
        if isinstance(node.op, Sum):
            axes = (0, *(axis + 1 for axis in node.op.axes))
            return sum(self._whole(node.inputs[0], late), axes)
        return sum(self._whole(share, late), (0,))

    def _whole(self, value: Value, late: list[Node]) -> Tracer:
        """A value of the body for all steps."""
        if value in self.stacks:
            return self._tracer(self.stacks[value])
        if value in self.constants:
            raise AssertionError("what is the same for all steps is no summand of its own")
        return self._tracer(self._for_all(needed(late, [value])[0], [value])[0])

    def _rows(self, value: Value, late: list[Node]) -> Any:
        """The rows of a matrix of all steps under each other."""
        whole = self._repeated(value, late)
        length, rows, columns = whole.spec.shape
        return reshape(whole, (length * rows, columns))

    def _rows_as_columns(self, value: Value, late: list[Node], made_by: dict[Value, Node]) -> Any:
        """The columns of a matrix of all steps beside each other."""
        node = made_by.get(value)
        if node is not None and isinstance(node.op, Permute) and node.op.axes == (1, 0):
            return permute(self._rows(node.inputs[0], late), (1, 0))
        whole = permute(self._repeated(value, late), (1, 0, 2))
        rows, length, columns = whole.spec.shape
        return reshape(whole, (rows, length * columns))

    def _repeated(self, value: Value, late: list[Node]) -> Any:
        if value not in self.constants:
            return self._whole(value, late)
        return with_batch_axis(self._tracer(self.constants[value]), self.op.length)

    # -- the loop that is left

    def _scan(self, results: list[Value]) -> dict[Any, Value]:
        """Record the loop; its last values by number and stacked results by the body's value."""
        inputs = [v for v, _ in self.carried] + [*self.stacks, *self.constants]
        operands = [x for _, x in self.carried] + [*self.stacks.values(), *self.constants.values()]
        outputs = (*self.lasts, *results)
        found: dict[Any, Value] = {}
        if not outputs:
            return found
        nodes, read = needed(self.nodes, outputs)
        count = len(self.carried)
        kept = [k for k, v in enumerate(inputs) if k < count or v in read]
        stacks = [k for k in kept if inputs[k] in self.stacks]
        body = Graph(tuple(inputs[k] for k in kept), nodes, outputs)
        op = Scan(body, count, len(stacks), self.op.length, self.op.reverse)
        made = self.builder.apply(op, [operands[k] for k in kept])
        found.update(enumerate(made[:count]))
        found.update(zip(results, made[count:], strict=True))
        return found


def _bytes(values: Sequence[Value]) -> int:
    total = 0
    for value in values:
        total = total + value.type.size_bytes
    return total
