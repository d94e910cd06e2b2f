"""Rows as a Chrome trace: complete events per row, and an arrow from every forward op to its derivative.

The format is Google's "Trace Event Format", JSON object form: ``ph`` "X" is a complete event with ``ts`` and ``dur``
in microseconds, "s" and "f" the ends of an arrow, "M" a name of a process or thread.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from autojit.autograd.profiler.events import NODE_SCOPE
from autojit.autograd.profiler.observer import ENGINE

FLOW_NAME = "forward-backward"


def write_chrome_trace(events: Sequence[Any], path: str | Path) -> None:
    """Write rows to a file; compressed if its name ends with ``.gz``."""
    data = json.dumps({"traceEvents": list(_trace_events(events)), "displayTimeUnit": "ms"}).encode()
    Path(path).write_bytes(gzip.compress(data) if str(path).endswith(".gz") else data)


def _trace_events(events: Sequence[Any]) -> Iterable[dict[str, Any]]:
    pid = os.getpid()
    yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": 0, "args": {"name": "autojit"}}
    for thread in sorted({e.thread for e in events}):
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": thread, "ts": 0,
               "args": {"name": f"thread {thread}"}}  # fmt: skip
    for event in events:
        yield _complete(event, pid)
    for number, (forward, node) in enumerate(_pairs(events)):
        common = {"name": FLOW_NAME, "cat": FLOW_NAME, "id": number, "pid": pid}
        yield {"ph": "s", **common, "tid": forward.thread, "ts": forward.time_range.start}
        yield {"ph": "f", "bp": "e", **common, "tid": node.thread, "ts": node.time_range.start}


def _complete(event: Any, pid: int) -> dict[str, Any]:
    arguments: dict[str, Any] = dict(event.metadata)
    if event.sequence_nr >= 0:
        arguments["Sequence number"] = event.sequence_nr
    if len(event.input_shapes):
        arguments["Input Dims"] = [list(shape) for shape in event.input_shapes]
    if len(event.stack):
        arguments["Source"] = list(event.stack)
    for kernel in event.kernels:
        arguments.setdefault("device time (us)", []).append(kernel.duration)
    return {
        "ph": "X",
        "cat": event.metadata.get("kind", "cpu_op"),
        "name": event.name,
        "pid": pid,
        "tid": event.thread,
        "ts": event.time_range.start,
        "dur": event.time_range.elapsed_us(),
        "args": arguments,
    }


def _pairs(events: Iterable[Any]) -> list[tuple[Any, Any]]:
    """(forward op, its node) by sequence number.

    Ops that were not recorded leave the number to the next one, so the last op with a number is the one that got it.
    """
    forward: dict[int, Any] = {}
    found = []
    for event in events:
        if event.sequence_nr < 0:
            continue
        if event.scope != NODE_SCOPE and event.metadata.get("kind") != ENGINE:
            forward[event.sequence_nr] = event
        elif event.scope == NODE_SCOPE and event.sequence_nr in forward:
            found.append((forward[event.sequence_nr], event))
    return found
