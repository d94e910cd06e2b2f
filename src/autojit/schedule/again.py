"""Again: values that their readers compute again, because that moves less memory than keeping them.

A backward pass reads what the forward pass computed from something that is stored anyway: behind a batch normalisation
the deviations, the normalised values and a multiple of them, all from the convolution's result and a few numbers a
channel. A nest that reads these three arrays reads that one instead, and none of them is stored
(``docs/design/again.md`` has the figures).

Invariant: what jumps (comparisons, rounding) sees stored values alone. A value that is computed in two nests may differ
by the rounding of a contracted product, and a maximum would not be found among its own elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from math import inf, prod

from autojit.core.sizes import typical
from autojit.ir.graph import Node, Value
from autojit.ops.base import Elementwise
from autojit.ops.elementwise_arithmetic import Cast
from autojit.ops.elementwise_base import Predicate
from autojit.ops.elementwise_rounding import Quotient, Step
from autojit.ops.indexing import Gathering
from autojit.schedule.fusion import Fuser
from autojit.schedule.groups import FULL, Group
from autojit.schedule.kinds import Kind
from autojit.schedule.pull import Indices

_JUMPS = Predicate, Step, Quotient

# Both bound the search; no measurement of them is recorded.
# Values of one nest about which is decided together; each is tried with and without.
MOST_VALUES = 16
# Ops that one value takes to compute again: all of them are cheap, but not free.
MOST_OPS = 8


def compute_again(fuser: Fuser, kept: AbstractSet[Value], overwritten: AbstractSet[Value]) -> None:
    """Let groups compute what they would read, where fewer bytes are moved then.

    Args:
        fuser: has formed its groups.
        kept: values that are stored whoever reads them.
        overwritten: inputs whose memory takes a result: who reads one more of them might come too late.
    """
    for unit in fuser.units:
        if isinstance(unit, Group) and unit.id not in fuser.awaited:  # others wait for a kernel, not for values
            leaving = Leaving(fuser, unit, kept, overwritten)
            if leaving.readers:
                leaving.settle()


class Leaving:
    """The values that leave one group for others, and which of them these compute again.

    Attributes:
        readers: of each value that may be computed again, the groups that read it.
        read_in_place: what may be read for one that is.
    """

    def __init__(self, fuser: Fuser, group: Group, kept: AbstractSet[Value], overwritten: AbstractSet[Value]) -> None:
        self.fuser = fuser
        self.group = group
        self.overwritten = overwritten
        self.made = {node.outputs[0]: node for node in group.members}
        self.stored: set[Value] = set()
        self.readers: dict[Value, list[Group]] = {}
        self.jumping: dict[int, set[Value]] = {}
        for value in self.made:
            others = [unit for unit in fuser.readers_of_value(value) if unit != group.id]
            if value in kept or others:
                self.stored.add(value)
            found = [self._reader(unit, value) for unit in others]
            if found and value not in kept and None not in found and self._is_cheap(value):
                self.readers[value] = [reader for reader in found if reader is not None]
        self.read_in_place: set[Value] = set()
        if self.readers:
            self.read_in_place = self._read_in_place()
            self.above = self._above()
            self.known: dict[tuple[Value, frozenset[Value]], tuple[set[Value], set[Value]]] = {}

    def settle(self) -> None:
        """Choose, and change the readers."""
        again = self._chosen()
        for value in again:
            self.stored.discard(value)
        for value in again:
            behind, leaves = self._behind(value, again)
            self.stored |= leaves & self.made.keys()
            for reader in self.readers[value]:
                self._compute(value, behind, leaves, reader)
            self.fuser.readers[value] = [self.group.id]
        if again:
            self._forget()

    def _compute(self, value: Value, behind: set[Value], leaves: set[Value], reader: Group) -> None:
        """Let a reader compute a value."""
        reader.again |= behind
        reader.buffers.discard(value)
        for leaf in leaves - reader.buffers:
            reader.buffers.add(leaf)
            self.fuser.readers.setdefault(leaf, []).append(reader.id)

    def _forget(self) -> None:
        """Leave out members of which nothing is read or stored any more; a group of which nothing is left is none."""
        needed = set(self.stored)
        left: list[Node] = []
        for node in reversed(self.group.members):
            (value,) = node.outputs
            if value in needed or node.is_kept or self.group.level[value] != FULL:
                needed.update(read for read, _ in self.fuser.member_reads[node])
                left.append(node)
        self.group.members = left[::-1]
        if not left:
            self._leave_out()

    def _leave_out(self) -> None:
        fuser, unit = self.fuser, self.group.id
        fuser.units[unit] = None
        fuser.alive &= ~(1 << unit)
        for value in self.group.buffers:
            fuser.readers[value] = [other for other in fuser.readers_of_value(value) if other != unit]

    def _chosen(self) -> set[Value]:
        """Values that are computed again: one after the other is exchanged while that saves bytes."""
        values = list(self.readers)[:MOST_VALUES]
        best: tuple[float, set[Value]] = (self._bytes(set()), set())
        for start in (set(values), set()):
            again, least = start, self._bytes(start)
            is_better = True
            while is_better:
                is_better = False
                for value in values:
                    other = again ^ {value}
                    moved = self._bytes(other)
                    if moved < least:
                        again, least, is_better = other, moved, True
            if least < best[0]:
                best = least, again
        return best[1]

    def _bytes(self, again: set[Value]) -> float:
        """What is written of this group's values and read for them, where ``again`` are computed again."""
        written = self.readers.keys() - again
        moved: float = sum(_size(v) * (1 + len(self.readers[v])) for v in written)
        added: dict[Group, set[Value]] = {}
        for value in again:
            behind, leaves = self._behind(value, again)
            if len(behind) > MOST_OPS or not leaves <= self.read_in_place:
                return inf
            for reader in self.readers[value]:
                if not self.overwritten.isdisjoint(leaves - reader.buffers):
                    return inf
                added.setdefault(reader, set()).update(leaves - reader.buffers)
            written = written | {leaf for leaf in leaves if self._is_stored_for(leaf)}
        moved += sum(map(_size, written - self.readers.keys()))
        for reader, more in added.items():
            if len(reader.buffers | more) > self.fuser.machine.most_buffers:
                return inf
            moved += sum(map(_size, more))
        return moved

    def _behind(self, value: Value, again: AbstractSet[Value]) -> tuple[set[Value], set[Value]]:
        """The values that are computed for one, itself among them, and those that are read for it."""
        key = value, frozenset(self.above[value] & again)
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self._walk(value, again)
        return found

    def _walk(self, value: Value, again: AbstractSet[Value]) -> tuple[set[Value], set[Value]]:
        behind, leaves = {value}, set()
        waiting = [value]
        while waiting:
            node = self.fuser.definitions[waiting.pop()]
            for read, _ in self.fuser.member_reads[node]:
                if read in behind:
                    continue
                if read in again or read in self.group.again or self._is_passing(read):
                    behind.add(read)
                    waiting.append(read)
                else:
                    leaves.add(read)
        return behind, leaves

    def _is_passing(self, value: Value) -> bool:
        """Whether a value is computed here, stored for nobody, and cheap."""
        return value in self.made and value not in self.stored and self._is_cheap(value)

    def _is_stored_for(self, leaf: Value) -> bool:
        """Whether nobody would store a value but for those who compute with it again."""
        if leaf in self.made:
            return leaf not in self.stored
        owner = self.fuser.owner.get(leaf)  # a product's result that only this group reads may never be stored
        return owner is not None and isinstance(self.fuser.units[owner], Node) and self.group.row_axes is None

    def _read_in_place(self) -> set[Value]:
        """What the group reads, and others could: few numbers, or all of them one after the other, or neighbours."""
        found: set[Value] = set(self.made)
        elsewhere: set[Value] = set()
        again = [self.fuser.definitions[value] for value in self.group.again]
        for node in (*self.group.members, *again):
            for read, index in self.fuser.member_reads.get(node, ()):
                size = prod(read.type.shape)
                is_near = size == self.group.size and self._is_near(index, read)
                (found if is_near or typical(size) < self.group.weight else elsewhere).add(read)
        return found - elsewhere

    def _is_near(self, index: Indices, read: Value) -> bool:
        """Whether a value is read at the group's own place, or at a fixed distance from it."""
        own = self.group.canonical(read.type.shape, FULL)
        return len(index) == len(own) and all(i.terms == here.terms for i, here in zip(index, own, strict=True))

    def _above(self) -> dict[Value, set[Value]]:
        """For each value the others that may be computed again from which it is computed."""
        found: dict[Value, set[Value]] = {}
        for value, node in self.made.items():
            reads = [read for read, _ in self.fuser.member_reads[node] if read in self.made]
            found[value] = set().union(*(found[read] for read in reads)) | self.readers.keys() & set(reads)
        return found

    def _is_cheap(self, value: Value) -> bool:
        """Whether a value of the group may be computed again at all."""
        node = self.made[value]
        if self.group.level[value] != FULL or self.fuser.kinds[node] is not Kind.POINTWISE or node.is_kept:
            return False
        is_op = isinstance(node.op, Elementwise) and node.op.is_cheap and not jumps(node)
        return is_op and not any(map(self._looks_up, node.inputs))  # a look-up may fail: where it was written, once

    def _looks_up(self, operand: Value) -> bool:
        """Whether an operand without storage is found by look-ups."""
        if operand not in self.fuser.inline:
            return False
        node = self.fuser.definitions[operand]
        return isinstance(node.op, Gathering) or any(map(self._looks_up, node.inputs))

    def _reader(self, unit: int, value: Value) -> Group | None:
        """The group of a unit if it may compute a value again: at its own place, and nothing jumps there."""
        reader = self.fuser.units[unit]
        if not isinstance(reader, Group) or reader.size != self.group.size or reader.device != self.group.device:
            return None
        if unit not in self.jumping:
            self.jumping[unit] = set(self._jumping(reader))
        if value in self.jumping[unit]:
            return None
        where = reader.canonical(value.type.shape, FULL)
        reads = (read for node in reader.members for read in self.fuser.member_reads[node])
        return reader if all(index == where for read, index in reads if read is value) else None

    def _jumping(self, reader: Group) -> Iterator[Value]:
        """The values from which a way leads to something that jumps."""
        reached: set[Value] = set()
        for node in reversed(reader.members):
            if jumps(node) or node.outputs[0] in reached:
                reached.update(read for read, _ in self.fuser.member_reads[node])
        yield from reached


def _size(value: Value) -> int:
    return typical(value.type.size_bytes)


def jumps(node: Node) -> bool:
    """Whether a result may change by more than its operands do."""
    return isinstance(node.op, _JUMPS) or (isinstance(node.op, Cast) and _drops_digits(node))


def _drops_digits(node: Node) -> bool:
    return node.outputs[0].type.dtype.kind not in ("float", "complex") and node.inputs[0].type.dtype.kind == "float"
