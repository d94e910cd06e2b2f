"""From a simplified graph to a Schedule: kernels in order, with a place for every buffer.

1. ``_storage_needs`` finds inline values that need storage of their own (outputs, operands of structured ops).
2. ``form_groups`` fuses; every value read outside its group is stored.
3. What lasts after the step (state, gradients) is written after all that may fail (`commits`).
4. Donated inputs (state) are updated in place: readers of the old value are ordered before the writer; where that is
   impossible the new value goes through a temporary and is copied at the end.
5. ``plan_memory`` gives temporaries fixed offsets in one arena.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from math import prod

from autojit.core.device import CPU
from autojit.core.machine import Machine
from autojit.core.sizes import typical
from autojit.ir.concrete import is_open
from autojit.ir.graph import Graph, Node, Value
from autojit.ops.attention import Attending
from autojit.ops.base import Reindex
from autojit.ops.control_flow import HoldsGraphs
from autojit.ops.scattering import Scattering
from autojit.ops.sources import Full
from autojit.ops.transfers import ToDevice
from autojit.ops.while_sweeps import WhileLoop
from autojit.schedule.again import compute_again
from autojit.schedule.bands import Band, form_bands
from autojit.schedule.batches import form_batches
from autojit.schedule.commits import failing_nodes, failing_units, order_commits, sure_nodes, with_checks
from autojit.schedule.counts import after_counting
from autojit.schedule.execution_order import execution_order
from autojit.schedule.expressions import Load
from autojit.schedule.forms import Forms, KnownForms
from autojit.schedule.fusion import Fuser
from autojit.schedule.groups import OUT, Group
from autojit.schedule.inlining import inline_values
from autojit.schedule.kernels import (
    Access,
    Apart,
    CopyKernel,
    Kernel,
    LoopKernel,
    MatmulKernel,
    NestedKernel,
    StructuredKernel,
    contiguous_access,
    device_of,
    joint_batch,
    strided_access,
)
from autojit.schedule.kinds import Kind, is_opaque, kinds_of
from autojit.schedule.pull import reshape_root
from autojit.schedule.schedule import Schedule


class Scheduler:
    """Builds one schedule.

    Args:
        graph: as given, or with checks in front of look-ups.
        machine: where it will run.
        donated: output position -> position of the input whose memory it takes.
        lasting: positions of outputs in memory that outlives a step that fails.
        checked: nodes that cannot fail though their code reports errors.
        forms: programs of earlier schedules.
    """

    def __init__(
        self,
        graph: Graph,
        machine: Machine,
        donated: Mapping[int, int],
        lasting: Collection[int] = (),
        checked: AbstractSet[Node] = frozenset(),
        forms: KnownForms | None = None,
    ) -> None:
        self.graph = graph
        self.machine = machine
        self.donated = donated
        self.lasting = lasting
        self.checked = frozenset(checked)
        self.failing = failing_nodes(graph, checked)
        self.definitions = graph.definitions()
        self.kinds = kinds_of(graph, machine)
        self.inline = inline_values(graph, self.definitions, self.kinds, machine)  # less what turns out to need memory
        self.outputs: list[Value] = []
        self.copies: list[CopyKernel] = []
        self.known_forms = forms
        self.forms = Forms(self.definitions, self.inline, forms)

    def run(self, repeats: bool = True) -> Schedule:
        self._operand_needs()
        self._output_needs()
        fuser = Fuser(self.graph, self.definitions, self.kinds, self.inline, self.machine)
        units = fuser.run()
        kept = {*self.outputs, *(c.source for c in self.copies)}
        if repeats:
            compute_again(fuser, kept, {self.graph.inputs[source] for source in self.donated.values()})
        stored = self._stored_values(fuser, units)
        can_fail = failing_units(fuser, self.failing)
        # Commits first: what they copy at the end needs no place among the readers of a donated input.
        unsafe = order_commits(fuser, can_fail, {place: self.outputs[place] for place in self.lasting})
        unsafe |= self._order_donations(fuser, units, unsafe)
        kernels: list[Kernel] = []
        failing: list[Kernel] = []
        of_unit: dict[int, Kernel] = {}
        awaited: dict[Kernel, set[int]] = {}
        for unit in execution_order(fuser):
            chosen = units[unit]
            assert chosen is not None
            kernels.append(self._kernel(chosen, stored))
            of_unit[unit] = kernels[-1]
            if fuser.later:
                awaited[kernels[-1]] = fuser.later.owners(chosen, fuser.owner)
            if unit in can_fail:
                failing.append(kernels[-1])
        waits = {kernel: {of_unit[unit] for unit in found} for kernel, found in awaited.items()}
        unsafe |= self._check_in_place(kernels)
        for position in sorted(unsafe):
            self._copy_back(position)
        # Not before all copies are known: the kernel that computes a copied output overwrites nothing.
        overwritten = {self.outputs[o]: self.graph.inputs[i] for o, i in self.donated.items()}
        kept = {*self.outputs, *(copy.source for copy in self.copies)}
        if self.machine.value_bytes:
            from autojit.schedule.transfers import pass_by_value  # of machines beside a host

            kernels = pass_by_value(kernels, kept.union(overwritten.values()), self.machine.value_bytes)
        if self.machine.epilogue_expressions:
            from autojit.schedule.epilogues import fuse_epilogues  # of machines whose products have them

            kernels = fuse_epilogues(kernels, kept, overwritten, frozenset(failing), self.machine)
        apart = Apart(frozenset(failing), self._committing(kernels))
        copies = sorted(self.copies, key=lambda copy: copy.target.type.device == CPU)  # behind a device's kernels
        items = [*form_batches(self._gather(kernels, waits, apart), overwritten, apart, self.machine), *copies]
        return Schedule(
            self.graph, tuple(items), tuple(self.outputs), overwritten, self.machine, apart.failing, self.checked
        )

    def _committing(self, kernels: Iterable[Kernel]) -> frozenset[Kernel]:
        """The kernels that write what outlives a step."""
        lasting = {self.outputs[position] for position in self.lasting}
        return (
            frozenset([kernel for kernel in kernels if not lasting.isdisjoint(kernel.writes())])
            if lasting
            else frozenset()
        )

    def _gather(self, kernels: list[Kernel], waits: Mapping[Kernel, set[Kernel]], apart: Apart) -> list[Kernel | Band]:
        """Bands; kernels that update state in place stay outside, because they overwrite what others may read.

        ``waits``: kernels that are not moved in front of others though they read nothing of them.
        """
        writer = {value: kernel for kernel in kernels for value in kernel.writes()}
        after: dict[Kernel, set[Kernel]] = {
            kernel: {writer[v] for v in kernel.reads() if v in writer} for kernel in kernels
        }
        for kernel, others in waits.items():
            if kernel in after:
                after[kernel].update(k for k in others if k in after and k is not kernel)
        readers: dict[Value, list[Kernel]] = {}
        for kernel in kernels:
            for value in kernel.reads():
                readers.setdefault(value, []).append(kernel)
        updates = {kernel for kernel in kernels if device_of(kernel).type != self.machine.kind}
        for position, source in self.donated.items():
            update = writer.get(self.outputs[position])
            if update is None:
                continue
            updates.add(update)
            old = self.graph.inputs[source]
            after[update].update(k for k in readers.get(old, ()) if k is not update)
        for kernel in apart.committing:
            after[kernel].update(apart.failing)
        outside = {*self.outputs, *(c.source for c in self.copies)}
        return form_bands(kernels, outside, after, updates, apart, self.machine)

    # -- which inline values need storage

    def _operand_needs(self) -> None:
        products: list[Node] = []
        attending: list[Node] = []
        for node in self.graph.nodes:
            kind = self.kinds[node]
            if kind is Kind.PRODUCT:  # asked last: what is stored for others may be what a product reads
                products.append(node)
            elif isinstance(node.op, Attending):
                attending.append(node)
            elif kind is Kind.SINGLE:
                self._force(node.inputs[1:] if self._clears(node) else node.inputs)
        self._store_joint_wholes(products)
        before = -1
        while before != len(self.inline):  # what is stored later may cut short what a product reads through
            before = len(self.inline)
            for node in products:
                self._gemm_needs(node)
            for node in attending:
                self._strided_needs(node)

    def _store_joint_wholes(self, products: Iterable[Node]) -> None:
        """What products read part by part is stored as a whole, where the parts together are no smaller.

        An unrolled recurrent net multiplies one step of its embedded input a round. Each stored by itself, they are one
        kernel of 64 look-ups, which takes 280 ms to compile; the whole is one look-up in a loop.
        """
        parts: dict[Value, dict[Value, None]] = {}
        for node in products:
            for operand in node.inputs[:2]:
                whole = self._shown(operand)
                if whole is not operand and whole in self.inline:
                    parts.setdefault(whole, {})[operand] = None
        for whole, operands in parts.items():
            stored = self.inline - {whole}
            read = [x for x in operands if strided_access(x, self.definitions, stored) is not None]
            if typical(sum(prod(x.type.shape) for x in read)) >= typical(prod(whole.type.shape)):
                self.inline.discard(whole)

    def _shown(self, value: Value) -> Value:
        """The value behind all reindexing that needs no storage."""
        while value in self.inline and isinstance(self.definitions[value].op, Reindex):
            value = self.definitions[value].inputs[0]
        return value

    def _clears(self, node: Node) -> bool:
        """Whether a node scatters into zeros, which then need no storage of their own."""
        base = self.definitions.get(node.inputs[0]) if isinstance(node.op, Scattering) else None
        if base is None or is_opaque(node) or not isinstance(base.op, Full):
            return False
        # -0.0 is another pattern of bits than cleared memory
        return base.op.value == 0 and not str(base.op.value).startswith("-")

    def _force(self, values: Iterable[Value]) -> None:
        """Inline values get memory of their own, or what they show in another shape does."""
        self.inline.difference_update(map(self._reshape_root, list(values)))

    def _gemm_needs(self, node: Node) -> None:
        """Operands without strides of their own need storage; both do if their batches do not walk together."""
        operands = node.inputs[:2]
        found = [strided_access(x, self.definitions, self.inline) for x in operands]
        self._force(x for x, access in zip(operands, found, strict=True) if access is None)
        self._force(node.inputs[2:])
        if None not in found and len(joint_batch(found, node.inputs[0].type.shape)) > self.machine.product_batch_axes:  # type: ignore[arg-type]
            self._force(node.inputs)

    def _strided_needs(self, node: Node) -> None:
        """Operands without strides need storage; where they show what is computed, that does: it may be smaller."""
        for operand in node.inputs:
            if strided_access(operand, self.definitions, self.inline) is None:
                shown = self._shown(operand)
                self._force([shown if shown in self.inline else operand])

    def _reshape_root(self, value: Value) -> Value:
        return reshape_root(value, self.definitions, self.inline)

    def _output_needs(self) -> None:
        taken: set[Value] = set(self.graph.inputs)
        for position, output in enumerate(self.graph.outputs):
            root = self._reshape_root(output)
            self.inline.discard(root)
            # A caller gets memory of its own for each result: none is an argument, no two are one.
            if root in taken:
                target = Value(output.type, f"out{position}")
                self.copies.append(CopyKernel(root, target))
                root = target
            taken.add(root)
            self.outputs.append(root)

    # -- kernels

    def _stored_values(self, fuser: Fuser, units: list[Group | Node | None]) -> set[Value]:
        stored = set(self.outputs)
        stored.update(c.source for c in self.copies)
        kept = {v for node in self.graph.nodes if node.is_kept for v in node.outputs}
        if kept:  # computed for what the op may refuse: stored where nothing reads it
            stored |= kept.difference(v for node in self.graph.nodes for v in node.inputs) & fuser.owner.keys()
        for unit in units:
            if isinstance(unit, Group):
                stored.update(v for v in unit.buffers if v in fuser.owner)
                stored.update(v for v, level in unit.level.items() if level == OUT)
            elif unit is not None:
                stored.update(fuser.read_values(unit))
        return stored

    def _kernel(self, unit: Group | Node, stored: set[Value]) -> Kernel:
        if isinstance(unit, Group):
            return LoopKernel(self.forms.program(unit, stored), unit.members)
        if isinstance(unit.op, HoldsGraphs):
            operands = tuple(self._storage_of(x) for x in unit.inputs)
            overwritten = _overwritten(unit)
            inner = [schedule(g, self.machine, overwritten, forms=self.known_forms) for g in unit.op.graphs()]
            return NestedKernel(unit, operands, tuple(inner))
        if self.kinds[unit] is Kind.PRODUCT:
            a, b = (self._access(x) for x in unit.inputs[:2])
            init = self._storage_of(unit.inputs[2]) if len(unit.inputs) == 3 else None
            return MatmulKernel(unit, a, b, init)
        if isinstance(unit.op, ToDevice):  # one kernel of its own: only the runtime reaches both memories
            return CopyKernel(self._storage_of(unit.inputs[0]), unit.outputs[0], [unit])
        if isinstance(unit.op, Attending):
            accesses = tuple(self._access(x) for x in unit.inputs)
            return StructuredKernel(unit, tuple([access.value for access in accesses]), accesses=accesses)
        if self._clears(unit):
            rest = tuple(self._storage_of(x) for x in unit.inputs[1:])
            return StructuredKernel(unit, (unit.outputs[0], *rest), clears=True)
        return StructuredKernel(unit, tuple(self._storage_of(x) for x in unit.inputs))

    def _storage_of(self, value: Value) -> Value:
        root = self._reshape_root(value)
        assert root not in self.inline, f"{self.definitions[root].op} operand without storage"
        return root

    def _access(self, value: Value) -> Access:
        found = strided_access(value, self.definitions, self.inline)
        if found is not None:
            return found
        return contiguous_access(self._storage_of(value), value.type.shape)

    # -- donation

    def _order_donations(self, fuser: Fuser, units: list[Group | Node | None], copied: AbstractSet[int]) -> set[int]:
        """Order readers of a donated input before its writer; positions where a path forbids that are returned.

        Those in ``copied`` are written at the end, where nobody reads the input any more.
        """
        unsafe: set[int] = set()
        for position, source in self.donated.items():
            writer = fuser.owner.get(self.outputs[position])
            if writer is None or position in copied:
                continue
            for reader in fuser.readers_of_value(self.graph.inputs[source]):
                if reader == writer:
                    continue
                if fuser.dependencies[reader] >> writer & 1:
                    unsafe.add(position)
                    continue
                fuser.wait(writer, reader)
        return unsafe

    def _check_in_place(self, kernels: list[Kernel]) -> set[int]:
        """Donated outputs whose own kernel reads the old value at other positions than it writes."""
        writer = {value: kernel for kernel in kernels for value in kernel.writes()}
        unsafe: set[int] = set()
        for position, source in self.donated.items():
            output, old = self.outputs[position], self.graph.inputs[source]
            if any(copy.source is old for copy in self.copies):
                unsafe.add(position)  # the old value is an output of its own, copied at the end
            kernel = writer.get(output)
            if kernel is None or old not in kernel.reads():
                continue
            if isinstance(kernel, StructuredKernel):
                safe = isinstance(kernel.node.op, Scattering) and kernel.operands.index(old) == 0
                safe = safe and kernel.operands.count(old) == 1
            else:
                safe = isinstance(kernel, LoopKernel) and _same_positions(kernel, output, old)
            if not safe:
                unsafe.add(position)
            elif isinstance(kernel, LoopKernel):
                kernel.overwrite(output, old)
        return unsafe

    def _copy_back(self, position: int) -> None:
        output = self.outputs[position]
        target = Value(output.type, f"new{position}")
        self.copies.append(CopyKernel(output, target))
        self.outputs[position] = target


def _same_positions(kernel: LoopKernel, output: Value, old: Value) -> bool:
    program = kernel.program
    stores = [store for store in program.stores if store.value is output]
    if len(stores) != 1:
        return False
    (store,) = stores
    slot = program.loads.index(old)
    reads = [e for e in program.exprs if isinstance(e, Load) and e.buffer == slot]
    return all(e.positions[0] == store.index and e.phase <= store.expr.phase for e in reads) and not program.reductions


def _overwritten(node: Node) -> dict[int, int]:
    """Which results of a body take an operand's memory: the carries of a loop that a device turns by itself.

    Who turns a loop otherwise gives every turn other memory than the one before.
    """
    is_turned = isinstance(node.op, WhileLoop) and node.outputs[0].type.device != CPU
    return {k: k for k in range(len(node.outputs))} if is_turned else {}


def schedule(
    graph: Graph,
    machine: Machine,
    donated: Mapping[int, int] | None = None,
    lasting: Collection[int] = (),
    forms: KnownForms | None = None,
    *,
    repeats: bool = True,
) -> Schedule:
    """Schedule a simplified graph.

    Args:
        machine: where it will run.
        donated: output position -> position of the input whose memory it takes.
        lasting: positions of outputs in memory that must not have changed when the step fails.
        forms: programs of schedules for related graphs, and from now on of this one; unused where sizes are open.
        repeats: whether readers compute again what is cheaper computed than stored.
    """
    if forms is not None and any(is_open(v.type.shape) for v in (*graph.inputs, *graph.definitions())):
        forms = None
    graph = after_counting(graph)
    sure = sure_nodes(graph)
    graph, checked = with_checks(graph, lasting, sure)
    return Scheduler(graph, machine, donated or {}, lasting, checked | sure, forms).run(repeats)
