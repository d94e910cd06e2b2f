"""The profiler under the names of ``torch.profiler``: a schedule says which steps of a loop are measured.

It opens and closes blocks of ``autograd.profiler.profile``, which does the measuring.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path
from typing import Any, Self

from autojit.autograd import profiler as _blocks
from autojit.autograd.profiler import EventList, itt, record_function
from autojit.core.errors import ArgumentError, UsageError
from autojit.cuda.driver import has_device


class ProfilerActivity(Enum):
    """What can be measured."""

    CPU = 0
    CUDA = 2


class ProfilerAction(Enum):
    """What happens in a step of the loop."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


_RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
Schedule = Callable[[int], ProfilerAction]


def supported_activities() -> set[ProfilerActivity]:
    """What this machine can measure."""
    return {ProfilerActivity.CPU, ProfilerActivity.CUDA} if has_device() else {ProfilerActivity.CPU}


def kineto_available() -> bool:
    """True: ``profile`` measures, whatever it was built with."""
    return True


def schedule(*, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0) -> Schedule:
    """A schedule for ``profile``: skip, then in turn wait, warm up and measure.

    Args:
        wait, warmup, active: steps of each kind; ``active`` at least 1.
        repeat: how many such turns; 0 for no end.
        skip_first: steps before the first turn.

    Raises:
        ArgumentError: a number is negative, or ``active`` is 0.

    Example:
        >>> plan = schedule(wait=1, warmup=1, active=2, repeat=1)
        >>> [plan(step).name for step in range(5)]
        ['NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE', 'NONE']
    """
    if min(wait, warmup, repeat, skip_first) < 0 or active < 1:
        raise ArgumentError("schedule: steps are counted from 0, and at least one is active")
    turn = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        step -= skip_first
        if step < 0 or (repeat and step >= repeat * turn):
            return ProfilerAction.NONE
        place = step % turn
        if place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if place < turn - 1 else ProfilerAction.RECORD_AND_SAVE

    return action


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[profile], None]:
    """An ``on_trace_ready`` that writes a Chrome trace per measured turn into a folder, compressed if wanted."""
    worker = worker_name or f"{os.uname().nodename}_{os.getpid()}"

    def write(finished: profile) -> None:
        folder = Path(dir_name)
        folder.mkdir(parents=True, exist_ok=True)
        finished.export_chrome_trace(folder / f"{worker}.{time.time_ns()}.pt.trace.json{'.gz' if use_gzip else ''}")

    return write


class profile:
    """Measure a loop: ``step()`` at the end of each turn of it, and ``on_trace_ready`` gets the measured ones.

    Args:
        activities: what to measure; what this machine supports by default.
        schedule: which steps to measure (see ``schedule``); everything by default.
        on_trace_ready: called with this object whenever measured steps are complete.
        record_shapes, profile_memory, with_stack, with_flops, with_modules: as for ``autograd.profiler.profile``.
        use_cuda: the older way to ask for or against CUDA.

    Example:
        >>> import autojit as aj
        >>> with aj.profiler.profile(activities=[aj.profiler.ProfilerActivity.CPU]) as prof:
        ...     y = aj.ones(3) * 2
        >>> "aten::mul" in [row.key for row in prof.key_averages()]
        True
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Schedule | None = None,
        on_trace_ready: Callable[[profile], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        use_cuda: bool | None = None,
    ) -> None:
        wanted = supported_activities() if activities is None else set(activities)
        if use_cuda is not None:
            wanted = wanted | {ProfilerActivity.CUDA} if use_cuda else wanted - {ProfilerActivity.CUDA}
        if not wanted:
            raise ArgumentError("No valid profiler activities found", {}, "pass ProfilerActivity.CPU")
        self.activities = wanted
        self.on_trace_ready = on_trace_ready
        self.step_num = 0
        self.current_action = ProfilerAction.NONE
        self._schedule = schedule
        self._options: dict[str, Any] = {
            "use_cuda": ProfilerActivity.CUDA in wanted,
            "use_cpu": ProfilerActivity.CPU in wanted,
            "record_shapes": record_shapes,
            "profile_memory": profile_memory,
            "with_stack": with_stack,
            "with_flops": with_flops,
            "with_modules": with_modules,
        }
        self._block: _blocks.profile | None = None
        self._label: record_function | None = None
        self._events: EventList | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin with step 0."""
        self._begin()

    def step(self) -> None:
        """The next step begins."""
        before = self.current_action
        self._end_label()
        self.step_num += 1
        following = self._action()
        if before is ProfilerAction.RECORD_AND_SAVE:
            self._save()
        elif before is ProfilerAction.RECORD and following not in _RECORDING:
            self._close()
        self._begin()

    def stop(self) -> None:
        """The loop has ended."""
        self._end_label()
        if self._block is not None:
            self._save()
        self.current_action = ProfilerAction.NONE

    def _action(self) -> ProfilerAction:
        return ProfilerAction.RECORD if self._schedule is None else self._schedule(self.step_num)

    def _begin(self) -> None:
        self.current_action = self._action()
        if self.current_action not in _RECORDING:
            return
        if self._block is None:
            self._block = _blocks.profile(**self._options)
            self._block.__enter__()
        if self._schedule is not None:
            self._label = record_function(f"ProfilerStep#{self.step_num}")
            self._label.__enter__()

    def _end_label(self) -> None:
        label, self._label = self._label, None
        if label is not None:
            label.__exit__()

    def _close(self) -> None:
        block, self._block = self._block, None
        if block is not None:
            block.__exit__()
            self._events = block.function_events

    def _save(self) -> None:
        self._close()
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def events(self) -> EventList:
        """The rows of the steps measured last.

        Raises:
            UsageError: nothing has been measured yet.
        """
        if self._events is None:
            raise UsageError("profile: nothing has been measured yet", {}, "ask after the block, or in on_trace_ready")
        return self._events

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False
    ) -> EventList:
        """The sums of rows with the same name: see ``EventList.key_averages``."""
        return self.events().key_averages(group_by_input_shape, group_by_stack_n, group_by_overload_name)

    def export_chrome_trace(self, path: str | Path) -> None:
        """Write the rows for chrome://tracing and Perfetto."""
        self.events().export_chrome_trace(path)

    def export_stacks(self, path: str | Path, metric: str = "self_cpu_time_total") -> None:
        """Write stacks of user code with weights (``with_stack=True``)."""
        self.events().export_stacks(path, metric)


__all__ = [
    "ProfilerAction", "ProfilerActivity", "itt", "kineto_available", "profile", "record_function", "schedule",
    "supported_activities", "tensorboard_trace_handler",
]  # fmt: skip
