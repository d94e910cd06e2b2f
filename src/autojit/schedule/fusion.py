"""Fusion: which nodes share a loop nest.

A node joins the group of one of its producers when every value it reads from that group is at its own canonical
position and no path leaves the group and comes back. Groups are tried latest first, so chains grow long; values that
leave a group are stored. Cost O(nodes * candidate groups).

How to read: `groups.Group` (what may join), then ``Fuser.run`` (the sweep).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import prod

from autojit.core.device import CPU
from autojit.core.machine import Machine
from autojit.ir.graph import Graph, Node, Value
from autojit.ops.base import Elementwise, Reduction
from autojit.ops.requirements import InRange
from autojit.schedule.counts import CountReaders
from autojit.schedule.groups import FULL, OUT, ROW, Group
from autojit.schedule.joined import join_parts
from autojit.schedule.kinds import Kind
from autojit.schedule.later_reads import LaterReads
from autojit.schedule.pull import Indices, broadcast_index, leaves, loop_indices

# Counts are those of tools/schedule_bounds.py: 29 steps, 1,778 kernels, before any of them runs.

# Nodes of a group, so that the text of one kernel stays bounded in programs that others generate. The largest nest of
# the 29 steps has 315 nodes; half the bound would make four kernels more.
MOST_MEMBERS = 400
# Groups that read what a node reads are asked to take it in, the latest few of each value. Learning rates and masks are
# read by every update, so asking all would grow with the square of the parameters. All readers: 9 kernels more; only
# the last one: 13 fewer, but also 43 fewer of them in bands.
RECENT_READERS = 3
# Groups that a node may join are tried, those that do most work first. One alone: 80 kernels more. Twelve: 12 fewer,
# and no more beyond.
CANDIDATES = 6


class Fuser:
    """Sweeps the nodes in order and assigns each to a group or leaves it a kernel of its own."""

    def __init__(
        self,
        graph: Graph,
        definitions: dict[Value, Node],
        kinds: Mapping[Node, Kind],
        inline: set[Value],
        machine: Machine,
    ) -> None:
        self.graph = graph
        self.machine = machine
        self.definitions = definitions
        self.kinds = kinds
        self.inline = inline
        self.owner: dict[Value, int] = {}
        self.dependencies: list[int] = []  # by unit: bits of the units it needs; those of merged units mean nothing
        self.alive = 0  # bits of the units that are not merged
        self.awaited: set[int] = set()  # units that others wait for without reading from them
        self.readers: dict[Value, list[int]] = {}
        self.merged: dict[int, int] = {}  # a merged unit -> the one that absorbed it
        self.member_reads: dict[Node, list[tuple[Value, Indices]]] = {}
        self.behind: dict[Value, tuple[Value, ...]] = {}  # an inline value -> the values that it is computed from
        self.asked: tuple[Node, Indices] | None = None
        self.answer: list[tuple[Value, Indices]] = []
        self.reads_behind: dict[tuple[Value, Indices], tuple[tuple[Value, Indices], ...]] = {}
        self.uses = graph.use_counts()
        self.counts = CountReaders(graph)
        self.later = LaterReads(graph, kinds, inline, self._values_behind)
        places = {v.type.device for v in definitions}
        self.is_mixed = len(places) > 1  # units compute on one device each
        self.uses_devices = places != {CPU}

    def run(self) -> list[Group | Node | None]:
        """Groups and single nodes by id (None: merged away); ids are not yet an execution order."""
        self.units: list[Group | Node | None] = []
        for node in self.graph.nodes:
            if node.outputs[0] in self.inline:
                continue
            kind = self.kinds[node]
            if kind is Kind.POINTWISE or kind is Kind.INLINE:
                self._place(node, self._join_pointwise)
            elif kind is Kind.REDUCTION:
                self._place(node, self._join_reduction)
            else:
                self._single(node)
        self._merge_groups()
        return self.units

    # -- merging groups that grew towards each other

    def _merge_groups(self) -> None:
        """Join a group to one it reads from when both walk the same domain and no third unit must run between."""
        place = {node: k for k, node in enumerate(self.graph.nodes)}
        for unit in range(len(self.units)):
            group = self.units[unit]
            while isinstance(group, Group):  # a group that has absorbed one may have new producers
                if not any(self._merge(self.units[i], group, place) for i in self._producers(group)):
                    break

    def _producers(self, group: Group) -> list[int]:
        """The units that a group reads from, the latest first."""
        return sorted({self.owner[v] for v in group.buffers if v in self.owner} - {group.id}, reverse=True)

    def _merge(self, other: Group | Node | None, group: Group, place: dict[Node, int]) -> bool:
        """Absorb ``other``, which ``group`` reads from, into ``group``."""
        if not isinstance(other, Group) or other.shape != group.shape or not other.splits_like(group):
            return False
        if self.is_mixed and other.device != group.device:
            return False
        if len(other.members) + len(group.members) > MOST_MEMBERS or other.checks_only or group.checks_only:
            return False
        made = other.level.keys()  # read inside from now on, so no buffer of the joined nest
        if len((group.buffers | other.buffers) - made) > self.machine.most_buffers or self._is_between(other.id, group):
            return False
        is_read_elsewhere = other.id in self.awaited or not self.readers_of(other) <= {other.id, group.id}
        if is_read_elsewhere and group.weight <= self.machine.small_domain and self._needs_more(group, other):
            return False  # a third unit would wait for what only the reader needs
        if not all(self._reads_in_place(node, group, other) for node in group.members):
            return False
        self._absorb(other, group, place, is_read_elsewhere)
        return True

    def readers_of(self, unit: Group | Node) -> set[int]:
        """The units that read what a unit makes, perhaps itself among them."""
        values = unit.level if isinstance(unit, Group) else unit.outputs
        return self._live([reader for value in values for reader in self.readers.get(value, ())])

    def _live(self, units: Iterable[int]) -> set[int]:
        """The units that stand for these now."""
        merged = self.merged
        found: set[int] = set()
        for unit in units:
            while unit in merged:
                unit = merged[unit]
            found.add(unit)
        return found

    def readers_of_value(self, value: Value) -> list[int]:
        """The units that read a value, in the order of their creation."""
        return sorted(self._live(self.readers.get(value, ())))

    def _needs_more(self, group: Group, other: Group) -> bool:
        """Whether a group waits for units that one of its producers does not wait for."""
        return bool(self.dependencies[group.id] & self.alive & ~(self.dependencies[other.id] | 1 << other.id))

    def _is_between(self, first: int, group: Group) -> bool:
        """Whether a path leads from ``first`` to ``group`` through a third unit, or by mere waiting."""
        before = {self.owner[v] for v in group.awaited if v in self.owner}
        if first in before:
            return True
        return any(self.dependencies[unit] >> first & 1 for unit in (*self._producers(group), *before) if unit != first)

    def _reads_in_place(self, node: Node, group: Group, other: Group) -> bool:
        level = group.level[node.outputs[0]]
        for value, index in self.member_reads[node]:
            its_level = other.level.get(value)
            if its_level is None:
                continue
            if its_level == OUT or other.position[value] != index:
                return False
            if its_level == FULL and level == ROW and not isinstance(node.op, Reduction):
                return False  # a number a row cannot depend on one of the row's elements
        return True

    def _absorb(self, other: Group, group: Group, place: dict[Node, int], is_read_elsewhere: bool) -> None:
        group.row_axes = group.row_axes if group.row_axes is not None else other.row_axes
        group.prefix = group.prefix if group.prefix is not None else other.prefix
        group.members = sorted([*other.members, *group.members], key=place.__getitem__)
        group.level.update(other.level)
        group.position.update(other.position)
        group.buffers = (group.buffers | other.buffers) - group.level.keys()
        group.awaited |= other.awaited
        if other.id in self.awaited:
            self.awaited.add(group.id)
        for value in other.level:
            self.owner[value] = group.id
        old, new = 1 << other.id, 1 << group.id
        # Rewriting the bits of every unit at every union made scheduling grow with the square of the depth
        # (docs/design/deep_models.md), hence the case below.
        self.alive &= ~old
        own = (self.dependencies[group.id] | self.dependencies[other.id]) & ~(old | new)
        if is_read_elsewhere:  # else whatever needs the producer needs the group already
            added = own | new
            self.dependencies = [bits | added if bits & old else bits for bits in self.dependencies]
        self.dependencies[group.id] = own
        self.merged[other.id] = group.id
        self.dependencies[other.id] = 0
        self.units[other.id] = None

    # -- placement

    def _place(self, node: Node, join: Callable[[Group, Node], bool]) -> None:
        if join_parts(self, node) or any(join(unit, node) for unit in self._candidates(node)):
            return
        joined = join(self._fresh(node), node)
        assert joined, f"{node.op} does not fit a group of its own"

    def _candidates(self, node: Node) -> Iterable[Group]:
        seen: dict[int, None] = {}
        is_check = isinstance(node.op, InRange)  # shares no nest with others: see `Group.checks_only`
        for value in self.read_values(node):
            if value in self.owner:
                seen[self.owner[value]] = None
            for reader in self.readers.get(value, ())[-RECENT_READERS:]:
                seen[reader] = None
        found = [unit for i in seen if isinstance(unit := self.units[i], Group) and unit.checks_only == is_check]
        if self.is_mixed:
            found = [unit for unit in found if unit.device == node.outputs[0].type.device]
        if len(found) > 1:
            found.sort(key=lambda group: (group.weight, group.id), reverse=True)  # most work saves most
        return found[:CANDIDATES]

    def read_values(self, node: Node) -> list[Value]:
        found: list[Value] = []
        for operand in node.inputs:
            if operand in self.inline:
                found += self._values_behind(operand)
            else:
                found.append(operand)
        return [*found, *self.counts.of(node)] if self.counts.made else found

    def _values_behind(self, value: Value) -> tuple[Value, ...]:
        found = self.behind.get(value)
        if found is None:
            index = loop_indices(value.type.shape)
            found = self.behind[value] = tuple([v for v, _ in leaves(value, index, self.definitions, self.inline)])
        return found

    def _reads_through(self, operand: Value, index: Indices) -> Iterable[tuple[Value, Indices]]:
        """What is read for the element of an operand at a position."""
        if operand not in self.inline:
            return ((operand, index),)
        found = self.reads_behind.get((operand, index))
        if found is None:
            found = self.reads_behind[operand, index] = tuple(leaves(operand, index, self.definitions, self.inline))
        return found

    def _fresh(self, node: Node) -> Group:
        domain = node.inputs[0].type.shape if isinstance(node.op, Reduction) else node.outputs[0].type.shape
        group = Group(len(self.units), domain, loop_indices(domain), node.outputs[0].type.device)
        self._enter(group, 0)
        return group

    def _enter(self, unit: Group | Node, dependencies: int) -> None:
        self.alive |= 1 << len(self.units)
        self.units.append(unit)
        self.dependencies.append(dependencies)

    def _single(self, node: Node) -> None:
        unit = len(self.units)
        reads = self.read_values(node)
        self._enter(node, self._bits(reads) | self._waits(node))
        for value in node.outputs:
            self.owner[value] = unit
        for value in reads:
            self.readers.setdefault(value, []).append(unit)

    def _waits(self, node: Node) -> int:
        """Bits of the units that a node waits for without reading from them."""
        awaited = self.later.awaited_by(node)
        self.awaited.update(self.owner[v] for v in awaited if v in self.owner)
        return self._bits(awaited)

    def _bits(self, values: Iterable[Value]) -> int:
        bits = 0
        for value in values:
            owner = self.owner.get(value)
            if owner is not None:
                bits |= self.dependencies[owner] | (1 << owner)
        return bits

    # -- joining

    def _join_pointwise(self, group: Group, node: Node) -> bool:
        shape = node.outputs[0].type.shape
        size = prod(shape)
        if size == group.size:
            level = FULL
        elif group.row_axes is not None and size == prod(group.row_shape()):
            level = ROW
        else:
            return False
        position = group.canonical(shape, level)
        reads = self._reads_at(node, position)
        if level == ROW and all(self.owner.get(v) != group.id for v, _ in reads):
            # Equal row counts are common (a batch), so without this the rows of one layer would wait for another's.
            return False  # unrelated: joining would only delay what others wait for
        if not self._admissible(group, node, reads, level):
            return False
        self.add(group, node, level, position, reads)
        return True

    def _reads_at(self, node: Node, position: Indices) -> list[tuple[Value, Indices]]:
        """What a node reads at a position; asked for the same one by several groups in turn."""
        if self.asked != (node, position):
            found = self._operands_at(node, position)
            self.asked = node, position
            self.answer = [*found, *self._count_reads(node)] if self.counts.made else found
        return self.answer

    def _count_reads(self, node: Node) -> list[tuple[Value, Indices]]:
        return [(value, ()) for value in self.counts.of(node)]

    def _operands_at(self, node: Node, position: Indices) -> list[tuple[Value, Indices]]:
        if not isinstance(node.op, Elementwise):
            return self._special_reads(node, position)
        found: list[tuple[Value, Indices]] = []
        for operand in node.inputs:
            found += self._reads_through(operand, broadcast_index(position, operand.type.shape))
        return found

    def _special_reads(self, node: Node, position: Indices) -> list[tuple[Value, Indices]]:
        if self.kinds[node] is Kind.INLINE:
            through = self.inline | set(node.outputs)
            return list(leaves(node.outputs[0], position, self.definitions, through))
        shifted = tuple(i + 1 for i in position)  # never canonical: the operands are at other positions
        found: list[tuple[Value, Indices]] = []
        for operand in node.inputs:
            index = shifted if operand.type.ndim == len(shifted) else loop_indices(operand.type.shape, "z")
            found.extend(leaves(operand, index, self.definitions, self.inline))
        return found

    def _admissible(self, group: Group, node: Node, reads: list[tuple[Value, Indices]], level: str) -> bool:
        bit = 1 << group.id
        awaited = self.later.awaited_by(node)
        if self._bits(awaited) & bit:
            return False
        outside: set[Value] = set()
        inside = False
        for value, index in reads:
            owner = self.owner.get(value)
            if owner != group.id:
                outside.add(value)
                if owner is not None and self.dependencies[owner] & bit:
                    return False
                continue
            inside = True
            its_level = group.level[value]
            if its_level == OUT or (level == ROW and its_level == FULL) or group.position[value] != index:
                return False
        if len(group.members) >= MOST_MEMBERS or self._makes_wait(group, outside.union(awaited), inside):
            return False
        return len(group.buffers | outside) <= self.machine.most_buffers or not group.members

    def _makes_wait(self, group: Group, outside: set[Value], inside: bool) -> bool:
        """Whether joining would tie values together that become ready at different times, for little gain."""
        if not group.members:
            return False
        # Nothing of the group is read: the node would gain a shared load at most, and wait for what the group needs.
        # Something is read: the group's other readers would wait for what the node needs besides. In a large nest the
        # trip to memory that is saved pays for it, in a small one not (`Machine.small_domain`).
        own, needed = self.dependencies[group.id], self._bits(outside)
        if not inside and own & ~needed:
            return True
        return group.weight <= self.machine.small_domain and bool(needed & ~own)

    def add(self, group: Group, node: Node, level: str, position: Indices, reads: list[tuple[Value, Indices]]) -> None:
        """Make a node a member; it reads ``reads``."""
        (output,) = node.outputs
        group.members.append(node)
        group.level[output] = level
        group.position[output] = position
        values = [v for v, _ in reads if self.owner.get(v) != group.id]
        group.buffers.update(values)
        for value in values:
            readers = self.readers.setdefault(value, [])
            if not readers or readers[-1] != group.id:
                readers.append(group.id)
        self.member_reads[node] = reads
        self.owner[output] = group.id
        group.awaited.update(self.later.awaited_by(node))
        self._require(group.id, (self._bits(values) | self._waits(node)) & ~(1 << group.id))

    def wait(self, unit: int, other: int) -> None:
        """A unit runs after another one from which it does not read."""
        self.awaited.add(other)
        self._require(unit, self.dependencies[other] | 1 << other)

    def wait_for_all(self, unit: int, others: Iterable[int], needed: int) -> None:
        """A unit runs after others from which it does not read; ``needed``: their bits, and those of what they need."""
        self.awaited.update(others)
        self._require(unit, needed)

    def _require(self, unit: int, added: int) -> None:
        """A unit, and whatever needs it, needs the units of the bits ``added``."""
        if not added & ~self.dependencies[unit]:
            return
        self.dependencies[unit] |= added
        needed = self.units[unit]
        assert needed is not None
        if unit in self.awaited or self.readers_of(needed) - {unit}:  # somebody's bits contain this unit's
            bit = 1 << unit
            self.dependencies = [bits | added if bits & bit else bits for bits in self.dependencies]

    def _join_reduction(self, group: Group, node: Node) -> bool:
        (x,) = node.inputs
        axes = node.op.axes  # type: ignore[attr-defined]
        shape = x.type.shape
        kept = tuple(a for a in range(len(shape)) if a not in axes and shape[a] != 1)
        folded = tuple(a for a in axes if shape[a] != 1)
        if getattr(node.op, "is_pair", False):
            return self._join_pair(group, node, kept)
        if prod(shape) == group.size:
            return self._join_full(group, node, kept, folded)
        if group.row_axes is not None and prod(shape) == prod(group.row_shape()) and not kept:
            return self._try_add(group, node, ROW, OUT)
        return False

    def _join_pair(self, group: Group, node: Node, kept: tuple[int, ...]) -> bool:
        """Value-with-index reductions count along the inner loops: they take a nest of their own, kept axes first."""
        if group.members:
            return False
        group.row_axes = kept
        return self._try_add(group, node, FULL, ROW)

    def _join_full(self, group: Group, node: Node, kept: tuple[int, ...], folded: tuple[int, ...]) -> bool:
        shape = node.inputs[0].type.shape
        if not kept:
            return self._try_add(group, node, FULL, OUT)
        split = group.split(shape, kept, folded)
        if split is None:
            return False
        row_axes, prefix, level = split
        if group.row_axes is not None and group.row_axes != row_axes:
            return False
        if level == OUT and group.prefix is not None and group.prefix != prefix:
            return False
        before = group.row_axes
        group.row_axes = row_axes
        if self._try_add(group, node, FULL, level):
            if level == OUT:
                group.prefix = prefix
            return True
        group.row_axes = before
        return False

    def _try_add(self, group: Group, node: Node, operand_level: str, level: str) -> bool:
        (x,) = node.inputs
        position = group.canonical(x.type.shape, operand_level)
        reads = [*self._reads_through(x, position), *self._count_reads(node)]
        if operand_level == ROW and all(self.owner.get(v) != group.id for v, _ in reads):
            return False
        if not self._admissible(group, node, reads, operand_level):
            return False
        where = group.canonical(node.outputs[0].type.shape, ROW) if level == ROW else ()
        self.add(group, node, level, where, reads)
        return True
