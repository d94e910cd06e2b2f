"""Which kernels of a run share a launch, and which blocks of it run which.

A *joined kernel* runs several kernels, its *parts*. Parts that do not wait for each other run side by side, on blocks
of their own as long as there are such; a part that waits for another is behind a *barrier* of its block or, where
that is asked for (``meets``), of all blocks::

    launch -> phases, all blocks meet in between -> parts -> virtual blocks, several side by side in a block (packs)

The blocks of a launch can only meet if all of them run, so a joined kernel of several phases has at most a block for
each processor, and is launched as such (cooperatively). What has many more threads than these blocks is apart: more
would run at once in a launch of its own. Of those that are apart and wait for nothing between them the blocks are put
side by side in one launch all the same; nobody meets there, so any number of blocks will do.

A part of one block whose predecessors in the phase are all on one block is run by that block, behind a barrier of the
block's threads alone.

How to read: `plan_launches` forms groups (`_Rounds`; `_Meeting` where blocks meet), `_placed` says who runs what.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

from autojit.codegen.cuda.grid_function import MOST_REGISTERS, WARP
from autojit.core.records import record

# Of launches that several kernels share. Those whose blocks all meet are slower on H100 than graphs of separate kernels
# (`docs/design/device_runs.md`).
MOST_THREADS = 512
"""Of a block of a joined kernel: a thread may then have 128 registers."""
MOST_HEAVY_THREADS = 256
"""Of one with a part that takes more, products' tiles, folds of many columns: a thread has `MOST_REGISTERS`."""
HEAVY_BYTES = 16
"""Of shared memory for each thread. What holds more there holds much in registers: of the kernels of fourteen training
steps all that take more than 100 registers do, by NVIDIA's assembler."""
MOST_TURNS, MOST_HEAVY_TURNS = 4, 2
"""Virtual blocks of a kernel that a block runs one after the other, so that it joins. A turn of a small kernel takes
about as long as its launch is dearer than a barrier."""
MOST_SHARED_BYTES = (48 << 10) - 16
"""Of a block, declared in its text, on every GPU; with room for the word of guarded parts."""
MOST_PARTS = 96
"""Of a launch: one module is compiled by one thread, in about 10 ms for a part."""
MOST_WORDS = 480
"""Of parameters: a launch takes 4096 bytes."""
MOST_BUFFERS = 40
"""Parameters of a part: the addresses of more of them take the registers of a thread that other parts have."""
MOST_MEETING = 15
"""Groups of threads of one block that wait for their own: a block has 16 barriers, one of which is for all."""


@record
class PartFacts:
    """What is known of a kernel before it is bound.

    Args:
        threads: of one of its blocks.
        blocks: of its grid.
        shared_bytes: of one of its blocks; not 0 if its threads meet, by a barrier that others use as well.
        parameters: by their keys: those with equal ones, other than None, are the same.
        is_open: how many blocks there are, a call knows: the kernel is launched for itself.
        tells: the host waits for it.
    """

    threads: int
    blocks: int
    shared_bytes: int
    parameters: tuple[Hashable, ...]
    is_open: bool = False
    tells: bool = False

    @property
    def is_heavy(self) -> bool:
        """Whether a thread of it is taken to need more registers than one of many threads has."""
        return self.shared_bytes > HEAVY_BYTES * self.threads

    @property
    def most_threads(self) -> int:
        """Of a block that it shares."""
        return MOST_HEAVY_THREADS if self.is_heavy else MOST_THREADS


@record
class PlacedPart:
    """A kernel in a launch.

    Args:
        number: of the kernel.
        phase: all blocks meet between two phases.
        first: the block that runs its first ones.
        spread: blocks that take part, from ``first`` on; behind the last one the first follows.
        packs: virtual blocks that a block runs side by side.
        waits: the threads of a block meet before it.
    """

    number: int
    phase: int
    first: int
    spread: int
    packs: int
    waits: bool


@record
class JoinedGrid:
    """One launch.

    Args:
        threads: of a block.
        blocks: of the grid, along x.
        parts: in the order in which a block goes through them.
    """

    threads: int
    blocks: int
    parts: tuple[PlacedPart, ...]

    @property
    def most_registers(self) -> int:
        """Of a thread; 0: as many as there are."""
        return 0 if self.is_alone or self.threads > MOST_HEAVY_THREADS else MOST_REGISTERS

    @property
    def phases(self) -> int:
        return self.parts[-1].phase + 1

    @property
    def meets(self) -> bool:
        """Whether blocks wait for each other, so that all must run at once."""
        return self.phases > 1 and self.blocks > 1

    @property
    def has_order(self) -> bool:
        """Whether a part may read what another one wrote."""
        return self.phases > 1 or any(part.waits for part in self.parts)

    @property
    def is_alone(self) -> bool:
        """Whether it is the launch of one kernel as it is."""
        return len(self.parts) == 1


def alone(facts: Sequence[PartFacts]) -> list[JoinedGrid]:
    """Every kernel is launched for itself."""
    return [_side_by_side([number], facts) for number in range(len(facts))]


def plan_launches(
    facts: Sequence[PartFacts],
    after: Sequence[Sequence[int]],
    processors: int,
    most_parts: int = MOST_PARTS,
    *,
    meets: bool = False,
) -> list[JoinedGrid]:
    """The launches of a run, in an order that is right.

    Args:
        facts: of its kernels, in an order that is right.
        after: of each, those that it waits for, without those that these wait for.
        processors: of the device.
        most_parts: of a launch.
        meets: whether blocks of a launch wait for each other, so that there are fewer launches. Of the two ways to
            begin, with what is joined or with what is apart, then the one of fewer launches.
    """
    if not meets:
        return _Rounds(facts, after, processors, most_parts).run()
    ways = [_Meeting(facts, after, processors, most_parts).run(begins_apart=flag) for flag in (False, True)]
    return min(ways, key=len)


class _Grouping:
    """What both ways to form groups of kernels have in common: what is left, what is reached, what is side by side."""

    def __init__(
        self, facts: Sequence[PartFacts], after: Sequence[Sequence[int]], processors: int, most_parts: int
    ) -> None:
        self.facts, self.after, self.processors, self.most_parts = facts, after, processors, most_parts
        self.left = dict.fromkeys(range(len(facts)))

    def _reached(self, among: Iterable[int]) -> Iterator[int]:
        """Kernels that join, as many as one launch takes: each waits for earlier launches and for each other only."""
        taken, known, words, count = set[int](), set[Hashable](), 0, 0
        widest, most = 0, MOST_THREADS
        for number in among:
            facts = self.facts[number]
            waits = any(k in self.left and k not in taken for k in self.after[number])
            if waits or not _joins(facts, self.processors):
                continue
            if max(widest, facts.threads) > min(most, facts.most_threads):
                continue  # the threads that one needs would leave another too few registers
            widest, most = max(widest, facts.threads), min(most, facts.most_threads)
            fresh = [key for key in facts.parameters if key is None or key not in known]
            if count and (count == self.most_parts or words + len(fresh) > MOST_WORDS):
                return
            taken.add(number)
            known.update(fresh)
            words, count = words + len(fresh), count + 1
            yield number

    def _alike(self, ready: list[int]) -> Iterator[JoinedGrid]:
        """Kernels that wait for nothing that is left, side by side in launches of those that are alike."""
        self._take(ready)
        while ready:
            first = self.facts[ready[0]]
            group, words = list[int](), 0
            for number in ready:
                facts = self.facts[number]
                fits = facts.threads == first.threads and facts.shared_bytes == first.shared_bytes
                fits = fits and not (facts.is_open or first.is_open) and len(group) < self.most_parts
                more = words + len(facts.parameters)
                if not group or (fits and more <= MOST_WORDS):
                    group.append(number)
                    words = more
            ready = [number for number in ready if number not in group]
            yield _side_by_side(group, self.facts)

    def _take(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            del self.left[number]


class _Meeting(_Grouping):
    """Forms groups whose blocks meet: what can be reached by joined kernels, then what is apart, and so on."""

    def run(self, *, begins_apart: bool) -> list[JoinedGrid]:
        found: list[JoinedGrid] = []
        takes_apart = begins_apart
        while self.left:
            groups = self._apart() if takes_apart else self._joined()
            found += groups
            takes_apart = not takes_apart
        return found

    def _joined(self) -> Iterator[JoinedGrid]:
        """All that can be done without what is apart."""
        while True:
            group = list(self._reached(self.left))
            if not group:
                return
            self._take(group)
            yield _placed(group, self.facts, self.after, self.processors)

    def _apart(self) -> Iterator[JoinedGrid]:
        """All that is apart and waits for nothing that is left."""
        ready = [n for n in self.left if not any(k in self.left for k in self.after[n])]
        yield from self._alike([n for n in ready if not _joins(self.facts[n], self.processors)])


class _Rounds(_Grouping):
    """Forms groups in which no block waits for another: chains of one block, and what waits for nothing side by side.

    Kernels that nobody waits for come last, all together: those that update parameters. A round looks at kernels that
    are ready and at what a chain reaches from them, never at all that is left.
    """

    def __init__(
        self, facts: Sequence[PartFacts], after: Sequence[Sequence[int]], processors: int, most_parts: int
    ) -> None:
        super().__init__(facts, after, processors, most_parts)
        self.followers: list[list[int]] = [[] for _ in facts]
        for number, before in enumerate(after):
            for other in before:
                self.followers[other].append(number)
        self.missing = [len(before) for before in after]
        self.ready = {number for number, count in enumerate(self.missing) if not count}
        self.last = {k for k, f in enumerate(facts) if not self.followers[k] and not f.tells}

    def run(self) -> list[JoinedGrid]:
        found: list[JoinedGrid] = []
        while self.left:
            chain = self._chain()
            if chain:
                self._take(chain)
                found.append(_placed(chain, self.facts, self.after, self.processors))
            else:
                found += self._alike(sorted(self.ready - self.last or self.ready))
        return found

    def _take(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            del self.left[number]
            self.ready.discard(number)
            for other in self.followers[number]:
                self.missing[other] -= 1
                if not self.missing[other]:
                    self.ready.add(other)

    def _near(self) -> list[int]:
        """Kernels of one block that are ready, and those behind them with nothing larger between."""
        waiting = [number for number in self.ready if self.facts[number].blocks == 1]
        found = set(waiting)
        while waiting:
            more = {k for k in self.followers[waiting.pop()] if self.facts[k].blocks == 1} - found
            found |= more
            waiting += more
        return sorted(found)

    def _chain(self) -> list[int]:
        """Kernels of one block that are connected and for the most part wait for each other, as many as are reached."""
        groups: list[set[int]] = []
        for number in self._reached(self._near()):
            near = [group for group in groups if not group.isdisjoint(self.after[number])]
            groups = [group for group in groups if group not in near]
            groups.append({number}.union(*near))
        for group in groups:
            waiting = sum(not group.isdisjoint(self.after[number]) for number in group)
            if len(group) > 1 and 2 * waiting >= len(group):
                return sorted(self._told_first(group))
        return []

    def _told_first(self, group: set[int]) -> set[int]:
        """Of a chain, what the host waits for with all that this waits for, if there is such."""
        found = {number for number in group if self.facts[number].tells}
        for number in sorted(group, reverse=True) if found else ():
            if number in found:
                found |= group.intersection(self.after[number])
        return found or group


def _joins(facts: PartFacts, processors: int) -> bool:
    """Whether a kernel runs about as fast on a block for each processor as in a launch of its own."""
    if facts.is_open:
        return False
    turns = MOST_HEAVY_TURNS if facts.is_heavy else MOST_TURNS
    most = turns * processors * _most_packs(facts, facts.most_threads)
    fits = facts.threads <= facts.most_threads and len(facts.parameters) <= MOST_BUFFERS
    return fits and facts.blocks <= most and facts.shared_bytes <= MOST_SHARED_BYTES


def _most_packs(facts: PartFacts, threads: int) -> int:
    """How many virtual blocks a block can run side by side."""
    if facts.threads % WARP:
        return 1
    packs = threads // facts.threads
    if facts.threads > WARP:
        packs = min(packs, MOST_MEETING)
    if facts.shared_bytes:
        packs = min(packs, max(1, MOST_SHARED_BYTES // facts.shared_bytes))
    return max(packs, 1)


def _side_by_side(group: Sequence[int], facts: Sequence[PartFacts]) -> JoinedGrid:
    """One phase of as many blocks as there are."""
    parts, first = list[PlacedPart](), 0
    for number in group:
        parts.append(PlacedPart(number, 0, first, facts[number].blocks, 1, waits=False))
        first += facts[number].blocks
    return JoinedGrid(facts[group[0]].threads, first, tuple(parts))


def _placed(
    group: Sequence[int], facts: Sequence[PartFacts], after: Sequence[Sequence[int]], processors: int
) -> JoinedGrid:
    """Who runs what; of a kernel that is alone, all as it is."""
    if len(group) == 1:
        return _side_by_side(group, facts)
    members = set(group)
    before = {number: [k for k in after[number] if k in members] for number in group}
    chains = _chains(group, before, facts)
    by_phase = [[c for c in chains if c.phase == phase] for phase in range(max(c.phase for c in chains) + 1)]
    threads = -(-max(facts[number].threads for number in group) // WARP) * WARP
    most = max(threads, min(facts[number].most_threads for number in group))
    while True:
        shapes = [_shapes([facts[chain.numbers[0]] for chain in mine], threads, processors) for mine in by_phase]
        blocks = max(sum(spread for spread, _ in shaped) for shaped in shapes)
        if blocks <= processors or threads == most:
            break
        threads = min(2 * threads, most)
    blocks = min(blocks, processors)
    parts = [
        part
        for mine, shaped in zip(by_phase, shapes, strict=True)
        for part in _phase(mine, shaped, blocks, before, facts)
    ]
    return JoinedGrid(threads, blocks, tuple(parts))


@record(eq=False)
class _Chain:
    """Parts of a phase that one block runs one after the other; or one part, on many blocks."""

    phase: int
    numbers: list[int]


def _chains(group: Sequence[int], before: Mapping[int, list[int]], facts: Sequence[PartFacts]) -> list[_Chain]:
    """Chains in the order of their first parts; phases by what they wait for."""
    if all(facts[number].blocks == 1 for number in group) and 2 * sum(map(bool, before.values())) >= len(group):
        return [_Chain(0, list(group))]  # most wait for others: no second block is worth meeting it
    chain_of: dict[int, _Chain] = {}
    chains: list[_Chain] = []
    for number in group:
        phase = max((chain_of[k].phase for k in before[number]), default=0)
        latest = {id(chain_of[k]): chain_of[k] for k in before[number] if chain_of[k].phase == phase}
        chain = next(iter(latest.values()), None)
        if chain is None or len(latest) > 1 or facts[number].blocks > 1 or facts[chain.numbers[0]].blocks > 1:
            chain = _Chain(phase + bool(latest), [])
            chains.append(chain)
        chain.numbers.append(number)
        chain_of[number] = chain
    return chains


def _phase(
    chains: Sequence[_Chain],
    shapes: Sequence[tuple[int, int]],
    blocks: int,
    before: Mapping[int, list[int]],
    facts: Sequence[PartFacts],
) -> Iterator[PlacedPart]:
    """The parts of a phase, side by side as far as there are blocks; they have a block's shared memory in turn."""
    first, users = 0, set[int]()
    for chain, (spread, packs) in zip(chains, shapes, strict=True):
        mine = {(first + k) % blocks for k in range(spread)}
        for number in chain.numbers:
            uses_shared = facts[number].shared_bytes > 0
            is_behind = any(k in chain.numbers for k in before[number])
            waits = is_behind or (uses_shared and not users.isdisjoint(mine))
            yield PlacedPart(number, chain.phase, first % blocks, spread, packs, waits)
            users |= mine if uses_shared else set()
        first += spread


def _shapes(parts: Sequence[PartFacts], threads: int, processors: int) -> list[tuple[int, int]]:
    """(blocks, packs) of parts that run at once: spread over all processors, packed as far as there are more."""

    def shape(facts: PartFacts, processors_of_it: int) -> tuple[int, int]:
        packs = min(_most_packs(facts, threads), -(-facts.blocks // processors_of_it))
        return min(processors, -(-facts.blocks // packs)), packs

    found = [shape(facts, processors) for facts in parts]
    total = sum(blocks for blocks, _ in found)
    if total <= processors:
        return found
    return [shape(one, max(1, processors * blocks // total)) for one, (blocks, _) in zip(parts, found, strict=True)]
