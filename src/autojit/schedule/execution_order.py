"""The order in which the units of a schedule run."""

from __future__ import annotations

from autojit.core.device import CPU
from autojit.ir.graph import Node
from autojit.ops.matmul import Matmul, MatmulAdd
from autojit.ops.transfers import ToDevice
from autojit.schedule.fusion import Fuser
from autojit.schedule.groups import Group


def execution_order(fuser: Fuser) -> list[int]:
    """Unit ids in a topological order that keeps the order of creation where it is free.

    Units of a device and units that the host runs, or starts by itself, are kept apart as far as that is free.
    """
    count = len(fuser.units)
    remaining = dict.fromkeys(unit for unit in range(count) if fuser.units[unit] is not None)
    sides = [None if unit is None else _side(unit) for unit in fuser.units] if fuser.uses_devices else None
    done = 0
    order: list[int] = []
    while remaining:
        ready = (u for u in remaining if not fuser.dependencies[u] & fuser.alive & ~done)
        unit = next(ready, None)
        assert unit is not None, "fusion made a cycle"
        if sides is not None:  # what is ready on the same side first: a device is then told everything at once
            last = sides[order[-1]] if order else "host"
            unit = next((u for u in (unit, *ready) if sides[u] == last), unit)
        order.append(unit)
        done |= 1 << unit
        del remaining[unit]
    return order


def _side(unit: Group | Node) -> str:
    """Who runs a unit: the host, a device, or one of them, as there is code or not for an op on a device."""
    if isinstance(unit, Group):
        return "host" if unit.device == CPU else "device"
    if isinstance(unit.op, ToDevice) or all(v.type.device == CPU for v in unit.outputs):
        return "host"
    return "device" if isinstance(unit.op, Matmul | MatmulAdd) else "either"
