"""What ``explain()`` and ``show()`` say of the parts of a step that devices and the host do for each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from autojit.codegen.lowered import Callback, DeviceCopy, DeviceFill, Entry, Launch, LoweredStep, Transfer, simple_work
from autojit.core.device import CPU
from autojit.ir.graph import Value


def kernel_count(lowered: LoweredStep) -> int:
    """Kernels of a step: entries of the host, and what devices are told in entries of their own."""
    runs = lowered.device_runs()
    return len(lowered.entries) - len(runs) + sum(len(list(simple_work(run.work))) for run in runs)


def device_entries(lowered: LoweredStep) -> int:
    """What devices are told in one go each: by the step, and by a turn of each of its loops and branches."""
    return len(lowered.device_runs()) + sum(map(device_entries, lowered.plans_inside()))


def device_lines(lowered: LoweredStep) -> list[str]:
    """One line for all that devices are told, and one for each thing that the host waits for; none without devices.

    Those of branches and of loops that the host turns follow, each further to the right than what is around it.
    """
    lines = _own_lines(lowered)
    for entry in lowered.single_entries():
        inner = [line for plan in replace(lowered, entries=(entry,)).plans_inside() for line in device_lines(plan)]
        if inner:
            lines += [f"  {entry.label:10s} each time it runs", *(f"  {line}" for line in inner)]
    return lines


def _own_lines(lowered: LoweredStep) -> list[str]:
    runs, transfers, called = lowered.device_runs(), _transfers(lowered), called_back(lowered)
    lines: list[str] = []
    if runs:
        work = Counter(type(part).__name__ for run in runs for part in simple_work(run.work))
        parts = [f"{work[kind]} {word}" for kind, word in _WORDS.items() if work[kind]]
        places = ", ".join(dict.fromkeys(str(run.device) for run in runs))
        lines.append(f"  device     {places}: {', '.join(parts)}, told in {_counted(len(runs), 'go', 'goes')}")
    lines += [f"  transfer   {line}" for line in transfers]
    lines += [f"  call-back  {name}: operands and results are on {place}: two waits" for name, place in called]
    return lines


_WORDS = {"Launch": "kernels", "DeviceCopy": "copies", "DeviceFill": "fills"}


def grid_lines(lowered: LoweredStep, launches: Sequence[Sequence[str]]) -> list[str]:
    """What devices are told, in order, with the grid of each kernel, by the launches of each run."""
    lines: list[str] = []
    for run, its_lines in zip(lowered.device_runs(), launches, strict=True):
        lines.append(f"{run.device} is told")
        lines += [f"  {line}" for line in its_lines]
    return [*lines, *(f"  {line}" for plan in lowered.plans_inside() for line in _told(plan))]


def _told(lowered: LoweredStep) -> list[str]:
    """What devices are told in a plan inside, by which kernels it is made of."""
    lines: list[str] = []
    for run in lowered.device_runs():
        lines.append(f"{run.device} is told")
        lines += [f"  {_shown(part)}" for part in simple_work(run.work)]
    return [*lines, *(f"  {line}" for plan in lowered.plans_inside() for line in _told(plan))]


def called_back(lowered: LoweredStep) -> list[tuple[str, str]]:
    """The ops that the host computes on copies of what is on a device, and the device."""
    found: list[tuple[str, str]] = []
    for entry in lowered.single_entries():
        if isinstance(entry.body, Callback):
            values = [a for a in entry.arguments if isinstance(a, Value)]
            found += [(entry.body.kernel.node.op.shown_name, place) for place in _elsewhere(values)[:1]]
    return found


def _elsewhere(values: Sequence[Value]) -> list[str]:
    return [str(v.type.device) for v in values if v.type.device != CPU]


def _transfers(lowered: LoweredStep) -> list[str]:
    return [
        f"{a.source.type} -> {a.target.type.device}{' (a wait)' if a.target.type.device == CPU else ''}"
        for a in _arguments(lowered.single_entries())
        if isinstance(a, Transfer)
    ]


def _arguments(entries: Iterable[Entry]) -> Iterable[object]:
    return (argument for entry in entries for argument in entry.arguments)


def _shown(part: Launch | DeviceCopy | DeviceFill) -> str:
    if isinstance(part, Launch):
        blocks = "x".join(str(n) for n in part.kernel.blocks if n != 1) or "1"
        return f"{part.label}: {blocks} blocks of {part.kernel.threads} threads"
    return f"{'copy' if isinstance(part, DeviceCopy) else 'zeros'}: {part.size_bytes} bytes"


def _counted(number: int, one: str, more: str) -> str:
    return f"{number} {one if number == 1 else more}"
