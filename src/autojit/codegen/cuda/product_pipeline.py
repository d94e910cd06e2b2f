"""The loop over a product's contracted axis: while a part of the operands is multiplied, others are on their way.

Shared memory has room for some parts, its stages. A turn waits until its part is there for all threads, begins to bring
one into the stage that was multiplied in the turn before, and multiplies. One barrier a turn is enough: who has passed
it knows that nobody reads that stage any more.

Before the first turn all stages but one are on their way. Where a lane has few elements of the result, the last one is
as well: of a short axis all is, so it waits for memory once. Lanes with many have no registers for that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autojit.codegen.cuda.grid_function import CudaKernel
from autojit.codegen.cuda.product_operands import Brought, Supply
from autojit.codegen.cuda.product_steps import SplitSteps, Steps, Totals
from autojit.codegen.function_text import Operand
from autojit.core.sizes import surely_less

MOST_FILLING = 4
"""Fragments of a warp up to which all of shared memory is on its way before the first turn; with 8 registers spill."""

Slots = list[str]
"""The slots of elements on their way through registers."""


class Pipeline:
    """The loop of one kernel.

    Several slices go through the loop together: a turn has a part for each, one behind the other.

    Args:
        supplies: bring both operands.
        stages: parts that are in shared memory.
        matrices: where the block's matrices begin in the operands.
        lines: with which lines of them the block's tile begins.
        own: the number of the lane's slice; None: there is one.
        fragments: of a warp.
    """

    def __init__(
        self,
        kernel: CudaKernel,
        supplies: tuple[Supply, Supply],
        stages: int,
        matrices: tuple[str, str],
        lines: tuple[str, str],
        own: str | None = None,
        *,
        fragments: int,
    ) -> None:
        self.kernel, self.supplies, self.stages = kernel, supplies, stages
        self.matrices, self.lines = matrices, lines
        self.depth, self.own, self.fills = supplies[0].turn_depth, own, fragments <= MOST_FILLING
        self.is_copied = any(supply.is_copied for supply in supplies)

    def run(self, steps: Steps, totals: Totals, first: Operand, stop: Operand, meanwhile: Callable[[], None]) -> None:
        """Multiply from one depth up to another, which is more; ``meanwhile`` is done when parts are on their way."""
        kernel = self.kernel
        if self.stages == 1:
            self._put(0, self._bring(0, first))
            self._end_copies()
            meanwhile()
            self._meet(steps, 0, left=0)
            steps.multiply(self._parts(0), totals)
            return
        for stage in range(self.stages - 1):
            self._begin(stage, kernel.offset(first, stage * self.depth), stop)
            if self.fills and stage == self.stages - 2:  # in one group, so every turn waits for all but as many
                self._begin(stage + 1, kernel.offset(first, (stage + 1) * self.depth), stop)
            self._end_copies()
        meanwhile()
        reading, writing = (kernel.local("i64") for _ in range(2))
        kernel.store("i64", 0, reading)
        kernel.store("i64", self.stages - 1, writing)
        with kernel.loop(first, stop, self.depth, stem="depth") as depth:
            stages = kernel.load("i64", reading), kernel.load("i64", writing)
            self._turn(steps, totals, stages, depth, (first, stop))
            for slot in (reading, writing):
                following = kernel.offset(kernel.load("i64", slot), 1)
                kernel.store("i64", kernel.choose(kernel.test("eq", following, self.stages), 0, following), slot)

    def _turn(
        self, steps: Steps, totals: Totals, stages: tuple[str, str], depth: str, ends: tuple[Operand, Operand]
    ) -> None:
        kernel = self.kernel
        reading, writing = stages
        self._meet(steps, reading, left=self.stages - 2)
        ahead = kernel.offset(depth, (self.stages - 1) * self.depth)
        is_more = kernel.test("slt", ahead, ends[1])
        if self.fills:  # the first turn finds it done
            is_more = kernel.both(kernel.test("ne", depth, ends[0]), is_more)
        with kernel.when(is_more):
            waiting = self._keep(self._bring(writing, ahead))
        self._end_copies()
        steps.multiply(self._parts(reading), totals)
        if any(waiting):
            with kernel.when(is_more):
                self._put(writing, self._kept(waiting))

    def _begin(self, stage: int, depth: str, stop: Operand) -> None:
        """Bring the part of a stage before the loop, if there is one."""
        kernel = self.kernel
        is_sure = isinstance(stop, int) and surely_less(stage * self.depth, stop)
        with kernel.perhaps(None if is_sure else kernel.test("slt", depth, stop)):
            self._put(stage, self._bring(stage, depth))

    def _parts(self, stage: Operand) -> tuple[Operand, Operand]:
        """Where the parts of a stage begin on both shelves."""
        a, b = (self._part(supply, stage) for supply in self.supplies)
        return a, b

    def _part(self, supply: Supply, stage: Operand) -> Operand:
        size, kernel = supply.shelf.size, self.kernel
        if self.own is not None:
            first = stage * supply.slices if isinstance(stage, int) else kernel.scaled(stage, supply.slices)
            return kernel.scaled(kernel.offset(first, self.own), size)
        return stage * size if isinstance(stage, int) else kernel.scaled(stage, size)

    def _bring(self, stage: Operand, depth: Operand) -> list[Brought]:
        """What is not copied of a part, in registers."""
        if self.own is not None:
            depth = self.kernel.offset(depth, self.kernel.scaled(self.own, self.supplies[0].depth))
        return [
            supply.bring(self._part(supply, stage), matrix, line, depth)
            for supply, matrix, line in zip(self.supplies, self.matrices, self.lines, strict=True)
        ]

    def _put(self, stage: Operand, brought: Sequence[Brought]) -> None:
        for supply, elements in zip(self.supplies, brought, strict=True):
            supply.put(self._part(supply, stage), elements)

    def _keep(self, brought: Sequence[Brought]) -> list[Slots]:
        """Elements in slots, for they are known in this branch alone."""
        kernel, found = self.kernel, list[Slots]()
        for supply, elements in zip(self.supplies, brought, strict=True):
            slots: Slots = []
            for bits in elements:
                slots.append(kernel.local(supply.kind))
                kernel.store(supply.kind, bits, slots[-1])
            found.append(slots)
        return found

    def _kept(self, waiting: Sequence[Slots]) -> list[Brought]:
        kernel = self.kernel
        return [
            [kernel.load(supply.kind, slot) for slot in slots]
            for supply, slots in zip(self.supplies, waiting, strict=True)
        ]

    def _end_copies(self) -> None:
        if self.is_copied:
            self.kernel.end_copies()

    def _meet(self, steps: Steps, stage: Operand, *, left: int) -> None:
        """Wait until the part of a stage is there; who has to see all elements looks at those that it brought."""
        kernel = self.kernel
        if self.is_copied:
            kernel.wait_for_copies(left)
        steps.before_meeting()
        if not isinstance(steps, SplitSteps):
            kernel.barrier()
            return
        words = [word for supply in self.supplies for word in supply.own_words(self._part(supply, stage))]
        steps.met = kernel.barrier_any(steps.cannot_split(words))
