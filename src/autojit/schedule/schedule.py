"""What a schedule is: kernels in order, with a place for every buffer. `scheduler` makes it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from autojit.core.machine import Machine
from autojit.core.records import record
from autojit.ir.graph import Graph, Node, Value

if TYPE_CHECKING:
    from autojit.schedule.bands import Band
    from autojit.schedule.batches import Batch
    from autojit.schedule.kernels import Kernel
    from autojit.schedule.memory import MemoryPlan


@record
class Schedule:
    """Kernels in execution order; ``outputs[k]`` is the stored value that holds graph output k.

    ``overwriting``: outputs that take an input's memory, and the input. ``failing`` are the kernels that may fail;
    the nodes ``checked`` cannot, though their code looks: nodes in front of look-ups have checked their indices.
    """

    graph: Graph
    kernels: tuple[Kernel | Band | Batch, ...]
    outputs: tuple[Value, ...]
    overwriting: Mapping[Value, Value]
    machine: Machine
    failing: frozenset[Kernel] = frozenset()
    checked: frozenset[Node] = frozenset()

    @cached_property
    def memory(self) -> MemoryPlan:
        """Where values are stored. It is made when first asked for, which is while LLVM compiles the kernels."""
        from autojit.schedule.memory import plan_memory

        return plan_memory(self.graph, self.kernels, self.outputs, self.overwriting.keys(), self.machine)

    def __str__(self) -> str:
        from autojit.schedule.text import print_schedule

        return print_schedule(self)
