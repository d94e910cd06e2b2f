"""The arena over time: where each temporary is stored, from when to when; time counts kernels, bands and batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from autojit.ir.graph import Node, Value
from autojit.jit.view.kernels import bytes_of, extent_of
from autojit.schedule.lives import Lives

if TYPE_CHECKING:
    from autojit.schedule.schedule import Schedule


def memory_data(
    schedule: Schedule, numbers: Mapping[Value, int], part_of: Callable[[Node], int], sizes: Mapping[str, int]
) -> list[dict[str, Any]]:
    """For each device its arena: bytes, number of times, blocks [value, offset, bytes, first, last, part].

    Temporaries of open sizes are in regions, which follow the arena, and are as large as they were in the last run.
    """
    plan, lives, made_by = schedule.memory, Lives(schedule), schedule.graph.definitions()
    starts, end = [], plan.arena_bytes
    for region in plan.regions:
        starts.append(end)
        end += int(plan.machine.aligned(extent_of(region, sizes)))
    found: dict[str, dict[str, Any]] = {}
    for value, first in lives.first.items():
        home = plan.home(value)
        if home in plan.offsets:
            offset = plan.offsets[home]
        elif home in plan.region_of:
            offset = starts[plan.region_of[home]]
        else:
            continue
        device = str(value.type.device)
        arena = found.setdefault(device, {"device": device, "bytes": 0, "times": len(schedule.kernels), "blocks": []})
        part = part_of(made_by[value]) if value in made_by else -1
        size = bytes_of(value, sizes)
        arena["blocks"].append([numbers.get(value, -1), offset, size, first, lives.last(value), part])
        arena["bytes"] = max(arena["bytes"], offset + size)
    return list(found.values())
