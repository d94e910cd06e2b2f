"""``load_nvprof``: rows from the SQLite file that nvprof wrote while ``emit_nvtx`` was on.

Of the file's tables four are read: ``StringTable`` (texts by id), ``CUPTI_ACTIVITY_KIND_MARKER`` (two rows per range
with the same id: the first has the name, the second only ends it), ``CUPTI_ACTIVITY_KIND_RUNTIME`` (calls of the CUDA
runtime) and ``CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL`` (kernels, joined to calls by ``correlationId``). Times are in
nanoseconds.
"""

from __future__ import annotations

import re
import sqlite3
from bisect import bisect_left
from contextlib import closing
from pathlib import Path

from autojit.autograd.profiler.event_list import EventList
from autojit.autograd.profiler.events import NODE_SCOPE, FunctionEvent
from autojit.core.errors import ArgumentError

_ANNOTATION = re.compile(
    r"^(?P<name>.*?)(?P<stashed>, stashed seq ?= ?(?P<node>\d+))?(?:, seq ?= ?(?P<op>\d+))?$", re.DOTALL
)
_TABLES = ("StringTable", "CUPTI_ACTIVITY_KIND_MARKER")
_LAUNCHES = ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL")


def load_nvprof(path: str | Path) -> EventList:
    """Open a file of ``nvprof -o file`` and give its annotated ranges with the device time of their kernels.

    ``name`` is the range's whole text; ``key``, by which ``key_averages`` sums, is the op's or node's name alone, and
    ``sequence_nr`` the number in the text. A kernel counts for the innermost range in which it was launched.

    Raises:
        FileNotFoundError: there is no such file.
        ArgumentError: it is not a file of nvprof.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"load_nvprof: no such file: {path}")
    try:
        with closing(sqlite3.connect(f"{Path(path).resolve().as_uri()}?mode=ro", uri=True)) as connection:
            texts = _texts(connection, path)
            events = _ranges(connection, texts)
            if _has(connection, _LAUNCHES):
                _add_kernels(connection, events, texts)
    except sqlite3.DatabaseError as error:
        raise ArgumentError("load_nvprof: cannot read the file", {"path": path, "SQLite says": error}) from error
    has_kernels = any(event.kernels for event in events)
    return EventList(events, use_device="cuda" if has_kernels else None)


def _has(connection: sqlite3.Connection, tables: tuple[str, ...]) -> bool:
    found = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return found.issuperset(tables)


def _texts(connection: sqlite3.Connection, path: str | Path) -> dict[int, str]:
    if not _has(connection, _TABLES):
        raise ArgumentError(
            "load_nvprof: the file has no ranges",
            {"path": path, "expected tables": ", ".join(_TABLES)},
            "write it with: nvprof --profile-from-start off -o FILE -- python script.py",
        )
    return dict(connection.execute("SELECT _id_, value FROM StringTable"))


def _ranges(connection: sqlite3.Connection, texts: dict[int, str]) -> list[FunctionEvent]:
    """Ranges in order of their start; those that were never closed are left out."""
    query = (
        "SELECT first.id, first.name, first.timestamp, last.timestamp FROM CUPTI_ACTIVITY_KIND_MARKER AS first "
        "JOIN CUPTI_ACTIVITY_KIND_MARKER AS last ON first.id = last.id "
        "WHERE first.name != 0 AND last.name = 0 ORDER BY first.timestamp, last.timestamp DESC"
    )
    rows = connection.execute(query).fetchall()
    origin_ns = rows[0][2] if rows else 0
    events = EventList()
    for number, name, start_ns, end_ns in rows:
        text = texts.get(name, f"unknown text {name}")
        op, sequence, scope = parse_annotation(text)
        events.append(
            FunctionEvent(
                id=number,
                name=text,
                key=op,
                thread=0,
                start_us=(start_ns - origin_ns) / 1e3,
                end_us=(end_ns - origin_ns) / 1e3,
                sequence_nr=sequence,
                scope=scope,
                metadata={"origin_ns": origin_ns},
            )
        )
    events.populate_cpu_children()
    return list(events)


def parse_annotation(text: str) -> tuple[str, int, int]:
    """(name, sequence number or -1, scope) of a range's text.

    Example:
        >>> parse_annotation("MulBackward0, stashed seq=5, seq = 0")
        ('MulBackward0', 5, 1)
    """
    plain = text.partition(", sizes = ")[0]
    found = _ANNOTATION.match(plain)
    assert found is not None
    number = found["node"] or found["op"]
    return found["name"], -1 if number is None else int(number), NODE_SCOPE if found["stashed"] else 0


def _add_kernels(connection: sqlite3.Connection, events: list[FunctionEvent], texts: dict[int, str]) -> None:
    query = (
        "SELECT call.start, call.end, kernel.start, kernel.end, kernel.name FROM CUPTI_ACTIVITY_KIND_RUNTIME AS call "
        "JOIN CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL AS kernel ON kernel.correlationId = call.correlationId "
        "ORDER BY call.start"
    )
    starts = [event.time_range.start for event in events]
    origin_ns = events[0].metadata["origin_ns"] if events else 0
    for call_start, call_end, start_ns, end_ns, name in connection.execute(query):
        start, end = (call_start - origin_ns) / 1e3, (call_end - origin_ns) / 1e3
        event = _innermost(events, starts, start, end)
        while event is not None:  # a range's device time holds that of the ranges inside
            event.append_kernel(texts.get(name, f"unknown kernel {name}"), 0, (end_ns - start_ns) / 1e3)
            event = event.cpu_parent


def _innermost(events: list[FunctionEvent], starts: list[float], start: float, end: float) -> FunctionEvent | None:
    """The last range that began before ``start``, or the nearest of its parents that ends after ``end``."""
    place = bisect_left(starts, start) - 1
    event = events[place] if place >= 0 else None
    while event is not None and event.time_range.end < end:
        event = event.cpu_parent
    return event
