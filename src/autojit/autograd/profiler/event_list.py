"""EventList: rows in order of their start, the tree they form, their sums and averages."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from autojit.autograd.profiler.chrome_trace import write_chrome_trace
from autojit.autograd.profiler.events import FunctionEvent, FunctionEventAvg, total_of
from autojit.autograd.profiler.table import build_table
from autojit.core.errors import ArgumentError

STACK_METRICS = ("self_cpu_time_total", "self_cuda_time_total", "self_device_time_total")


class EventList(list[Any]):
    """Rows: ``FunctionEvent``, or ``FunctionEventAvg`` as ``key_averages`` gives them.

    Example:
        >>> events = EventList([FunctionEvent(id=0, name="mul", thread=1, start_us=0, end_us=4)])
        >>> events.total_average().cpu_time
        4.0
    """

    def __init__(
        self,
        events: Iterable[Any] = (),
        *,
        use_device: str | None = None,
        profile_memory: bool = False,
        with_flops: bool = False,
        use_cuda: bool = False,
    ) -> None:
        super().__init__(events)
        self._use_device = "cuda" if use_cuda else use_device
        self._profile_memory = profile_memory
        self._with_flops = with_flops

    def __str__(self) -> str:
        return self.table()

    def _populate_cpu_children(self) -> None:
        """Hang every row below the shortest earlier one of its thread that holds its whole interval.

        Rows of one thread that overlap without one holding the other become neighbours. Time O(n log n).
        """
        threads: dict[tuple[int, int], list[FunctionEvent]] = {}
        for event in self:
            if not event.is_async:
                threads.setdefault((event.thread, event.node_id), []).append(event)
        for events in threads.values():
            events.sort(key=lambda e: (e.time_range.start, -e.time_range.end))
            above: list[FunctionEvent] = []
            for event in events:
                span = event.time_range
                while above and (span.start >= above[-1].time_range.end or span.end > above[-1].time_range.end):
                    above.pop()
                if above:
                    above[-1].append_cpu_child(event)
                    event.set_cpu_parent(above[-1])
                above.append(event)

    populate_cpu_children = _populate_cpu_children

    @property
    def self_cpu_time_total(self) -> float:
        """The time of all rows, each counted once (microseconds)."""
        return float(sum(event.self_cpu_time_total for event in self))

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int = 75,
        max_name_column_width: int = 55,
        max_shapes_column_width: int = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
        time_unit: str | None = None,
    ) -> str:
        """The rows as a text, in order of their start or the largest of ``sort_by`` first.

        Args:
            sort_by: one of ``SORT_KEYS`` in ``table.py``: ``cpu_time``, ``cpu_time_total``, ``cuda_time``,
                ``cuda_time_total``, ``self_cpu_time_total``, ``count``, ...
            row_limit: most rows to show; -1 for all.
            top_level_events_only: leave out rows below other rows.
            time_unit: "us", "ms" or "s" for all times; None chooses for each.

        Raises:
            SortKeyError: ``sort_by`` is not a column; the message lists those there are.
        """
        return build_table(
            self,
            sort_by=sort_by,
            row_limit=row_limit,
            widths=(max_name_column_width, max_shapes_column_width, max_src_column_width),
            header=header,
            top_level_events_only=top_level_events_only,
            time_unit=time_unit,
        )

    def key_averages(
        self, group_by_input_shapes: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False
    ) -> EventList:
        """The sums of rows with the same name, in order of first appearance.

        Args:
            group_by_input_shapes: rows with other operand shapes are summed apart.
            group_by_stack_n: rows whose innermost n places in user code differ are summed apart.
            group_by_overload_name: accepted for torch's sake: autojit's ops have no overloads.
        """
        groups: dict[Any, FunctionEventAvg] = {}
        for event in self:
            key = [event.key]
            if group_by_input_shapes:
                key.append(str(list(event.input_shapes)))
            key += event.stack[:group_by_stack_n]
            groups.setdefault(tuple(key), FunctionEventAvg()).add(event)
        for group in groups.values():
            group.stack = group.stack[:group_by_stack_n] if group_by_stack_n else ()
            if not group_by_input_shapes:
                group.input_shapes = ()
        return EventList(
            groups.values(),
            use_device=self._use_device,
            profile_memory=self._profile_memory,
            with_flops=self._with_flops,
        )

    def total_average(self) -> FunctionEventAvg:
        """The sum of all rows under the key ``Total``; rows below others are counted in those too."""
        return total_of(self)

    def export_chrome_trace(self, path: str | Path) -> None:
        """Write the rows for chrome://tracing and https://ui.perfetto.dev (JSON).

        Forward ops point to their derivatives by arrows.
        """
        write_chrome_trace(self, path)

    def supported_export_stacks_metrics(self) -> list[str]:
        """What ``export_stacks`` can weigh stacks by."""
        return list(STACK_METRICS)

    def export_stacks(self, path: str | Path, metric: str = "self_cpu_time_total") -> None:
        """Write stacks of user code with their weights, as flame graph tools read them (``with_stack=True``).

        Args:
            metric: one of ``supported_export_stacks_metrics()``.

        Raises:
            ArgumentError: another metric.
        """
        if metric not in STACK_METRICS:
            raise ArgumentError(
                f"export_stacks: metric should be one of: {', '.join(STACK_METRICS)}", {"metric": metric}
            )
        with Path(path).open("w", encoding="utf-8") as file:
            for event in self:
                weight = int(getattr(event, metric))
                if event.stack and weight > 0:
                    frames = ";".join(place.replace(" ", "_").replace(";", "_") for place in reversed(event.stack))
                    file.write(f"{frames} {weight}\n")
