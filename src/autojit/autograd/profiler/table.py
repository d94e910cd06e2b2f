"""Rows as a text: columns are chosen by what the rows have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from autojit.autograd.profiler.events import format_memory, format_share, format_time
from autojit.core.errors import ArgumentError

if TYPE_CHECKING:
    from autojit.autograd.profiler.event_list import EventList

SORT_KEYS = (
    "cpu_time", "cuda_time", "cpu_time_total", "cuda_time_total", "count", "self_cpu_time_total",
    "self_cuda_time_total", "device_time", "device_time_total", "self_device_time_total", "cpu_memory_usage",
    "self_cpu_memory_usage", "device_memory_usage", "self_device_memory_usage",
)  # fmt: skip
UNITS = {"us": 1.0, "ms": 1e3, "s": 1e6}
GAP = "  "


class SortKeyError(ArgumentError, AttributeError):
    """``table`` was asked to sort by something that rows do not have (torch raises AttributeError)."""


class Column(NamedTuple):
    """A heading, the text of a row under it, and the most characters of it that are shown."""

    title: str
    text: Callable[[Any], str]
    limit: int | None = None


def build_table(
    events: EventList,
    *,
    sort_by: str | None,
    row_limit: int,
    widths: tuple[int | None, int | None, int | None],
    header: str | None,
    top_level_events_only: bool,
    time_unit: str | None,
) -> str:
    """The text of ``EventList.table``; ``widths`` limit the columns of names, shapes and places in user code."""
    if sort_by is not None and sort_by not in SORT_KEYS:
        raise SortKeyError(
            f"table: cannot sort by {sort_by!r}", {"valid keys": ", ".join(SORT_KEYS)}, "pass sort_by=one of these"
        )
    if time_unit is not None and time_unit not in UNITS:
        raise ArgumentError(f"table: unknown time unit {time_unit!r}", {"units": ", ".join(UNITS)})
    if not events:
        return ""
    shown_time = format_time if time_unit is None else lambda us: f"{us / UNITS[time_unit]:.3f}{time_unit}"
    columns = _columns(events, widths, shown_time)
    rows = list(events)
    if sort_by is not None:
        rows.sort(key=lambda e: getattr(e, sort_by), reverse=True)
    if top_level_events_only:
        rows = [e for e in rows if getattr(e, "cpu_parent", None) is None]
    if row_limit >= 0:
        rows = rows[:row_limit]
    cells = [[_cut(c.text(row), c.limit) for c in columns] for row in rows]
    lines = _aligned([c.title for c in columns], cells)
    if header is not None:
        lines.insert(0, header)
    lines.append(f"Self CPU time total: {shown_time(sum(e.self_cpu_time_total for e in events))}")
    if events._use_device:
        total = sum(e.self_device_time_total for e in events)
        lines.append(f"Self {events._use_device.upper()} time total: {shown_time(total)}")
    return "\n".join(lines) + "\n"


def _columns(
    events: EventList, widths: tuple[int | None, int | None, int | None], shown: Callable[[float], str]
) -> list[Column]:
    names, shapes, places = widths
    cpu_total = sum(e.self_cpu_time_total for e in events)
    device_total = sum(e.self_device_time_total for e in events)
    device = (events._use_device or "cuda").upper()
    columns = [
        Column("Name", lambda e: e.key, names),
        Column("Self CPU %", lambda e: format_share(e.self_cpu_time_total, cpu_total)),
        Column("Self CPU", lambda e: shown(e.self_cpu_time_total)),
        Column("CPU total %", lambda e: format_share(e.cpu_time_total, cpu_total)),
        Column("CPU total", lambda e: shown(e.cpu_time_total)),
        Column("CPU time avg", lambda e: shown(e.cpu_time)),
    ]
    if events._use_device:
        columns += [
            Column(f"Self {device}", lambda e: shown(e.self_device_time_total)),
            Column(f"Self {device} %", lambda e: format_share(e.self_device_time_total, device_total)),
            Column(f"{device} total", lambda e: shown(e.device_time_total)),
        ]
    columns.append(Column(f"{device} time avg", lambda e: shown(e.device_time)))
    if events._profile_memory:
        columns += [
            Column("CPU Mem", lambda e: format_memory(e.cpu_memory_usage)),
            Column("Self CPU Mem", lambda e: format_memory(e.self_cpu_memory_usage)),
        ]
    columns.append(Column("# of Calls", lambda e: str(e.count)))
    if any(len(e.input_shapes) for e in events):
        columns.append(Column("Input Shapes", lambda e: str(list(e.input_shapes)), shapes))
    if any(len(e.stack) for e in events):
        columns.append(Column("Source Location", lambda e: ", ".join(e.stack), places))
    if events._with_flops and any(e.flops for e in events):
        columns.append(_flops_column(events))
    return columns


def _flops_column(events: Iterable[Any]) -> Column:
    most = max(e.flops or 0 for e in events)
    scale, prefix = next(((s, p) for s, p in ((1e12, "T"), (1e9, "G"), (1e6, "M")) if most >= s), (1e3, "K"))
    return Column(f"Total {prefix}FLOPs", lambda e: f"{e.flops / scale:.3f}" if e.flops else "--")


def _cut(text: str, limit: int | None) -> str:
    return text if limit is None or len(text) <= limit else text[: limit - 3] + "..."


def _aligned(titles: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[k]) for row in (titles, *cells)) for k in range(len(titles))]
    rule = GAP.join("-" * width for width in widths)
    lines = [GAP.join(text.rjust(width) for text, width in zip(row, widths, strict=True)) for row in (titles, *cells)]
    return [rule, lines[0], rule, *lines[1:], rule]
