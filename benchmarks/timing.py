"""Timing inside one process: steady-state medians, and how much of the machine others used meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WARM_UP_S = 0.5
SAMPLE_S = 2e-3  # calls shorter than this are timed in batches, so that reading the clock costs under 0.01 %
FEWEST_SAMPLES = 5


@dataclass(frozen=True)
class Timing:
    """Seconds per call: quantiles over samples, each the mean of ``calls_per_sample`` calls."""

    median_s: float
    p10_s: float
    p90_s: float
    best_s: float
    samples: int
    calls_per_sample: int
    foreign_cores: float


@dataclass(frozen=True)
class CpuClock:
    """One reading: CPU seconds used by the whole machine and by this process with its children, and the wall clock."""

    machine_s: float
    own_s: float
    wall_s: float

    @classmethod
    def read(cls) -> CpuClock:
        own = os.times()
        used = own.user + own.system + own.children_user + own.children_system
        return cls(machine_busy_s(), used, time.perf_counter())

    def foreign_cores_since(self, earlier: CpuClock) -> float:
        """Cores kept busy by other processes between two readings; 0 where the system does not tell."""
        others_s = (self.machine_s - earlier.machine_s) - (self.own_s - earlier.own_s)
        return max(0.0, others_s / max(self.wall_s - earlier.wall_s, 1e-9))


def machine_busy_s() -> float:
    """CPU seconds all processes have used since boot (Linux), else 0."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return 0.0
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, stat.read_text().split("\n", 1)[0].split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def wait_until_quiet(limit_cores: float, patience_s: float) -> None:
    """Return once other processes use less than ``limit_cores``, or after ``patience_s`` in any case."""
    deadline = time.perf_counter() + patience_s
    while time.perf_counter() < deadline:
        earlier = CpuClock.read()
        time.sleep(0.4)
        if CpuClock.read().foreign_cores_since(earlier) < limit_cores:
            return


def steady_state(call: Callable[[], object], wait: Callable[[Any], object], seconds: float) -> Timing:
    """Time ``call`` for about ``seconds`` after a warm-up; ``wait(result)`` blocks until a result is there."""
    estimate_s = warm_up(call, wait)
    batch = max(1, int(SAMPLE_S / estimate_s))
    samples: list[float] = []
    started = CpuClock.read()
    stop = started.wall_s + seconds
    while time.perf_counter() < stop or len(samples) < FEWEST_SAMPLES:
        samples.append(time_batch(call, wait, batch))
    foreign_cores = CpuClock.read().foreign_cores_since(started)
    samples.sort()
    return Timing(
        median_s=quantile(samples, 0.5),
        p10_s=quantile(samples, 0.1),
        p90_s=quantile(samples, 0.9),
        best_s=samples[0],
        samples=len(samples),
        calls_per_sample=batch,
        foreign_cores=foreign_cores,
    )


def warm_up(call: Callable[[], object], wait: Callable[[Any], object]) -> float:
    """Call for half a second, at least three times; return the mean seconds per call."""
    started = time.perf_counter()
    calls = 0
    while calls < 3 or time.perf_counter() - started < WARM_UP_S:
        result = call()
        calls += 1
    wait(result)
    return (time.perf_counter() - started) / calls


def time_batch(call: Callable[[], object], wait: Callable[[Any], object], batch: int) -> float:
    started = time.perf_counter()
    for _ in range(batch):
        result = call()
    wait(result)
    return (time.perf_counter() - started) / batch


def best_of(call: Callable[[], object], seconds: float) -> float:
    """Least seconds per call over about ``seconds``: for limits and overheads, where disturbance only adds."""
    estimate_s = warm_up(call, lambda _: None)
    batch = max(1, int(SAMPLE_S / estimate_s))
    stop = time.perf_counter() + seconds
    best_s = time_batch(call, lambda _: None, batch)
    while time.perf_counter() < stop:
        best_s = min(best_s, time_batch(call, lambda _: None, batch))
    return best_s


def quantile(ordered: list[float], q: float) -> float:
    """The ``q`` quantile of an ascending list, by linear interpolation."""
    position = q * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])


def median(values: list[float]) -> float:
    return quantile(sorted(values), 0.5)
