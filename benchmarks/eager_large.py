"""Time and temporary memory of eager ops on 100,000 elements, forward and backward, beside torch's.

The budget is three times torch's (two threads each); what exceeds it is starred. A time is that of the fastest round,
the rounds of both libraries taking turns. Memory is the greatest in use during the call over what operands and results
take: what NumPy and the kernels' arenas hold here, what torch's allocator hands out there.
``python -m benchmarks.eager_large [--only NAME] [--over 3] [--no-backward]``.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import math
import os
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import autojit
from autojit.runtime.executable import live_executables
from benchmarks.large_cases import cases, operands

ROUNDS, SECONDS_A_ROUND = 24, 0.002  # short ones: some then run undisturbed beside other work of the machine
SLACK_BYTES = 64_000  # temporaries below are bookkeeping, not arrays

Call = Callable[[], Any]


class Figures(NamedTuple):
    """Of one call: seconds and temporary bytes, here and in torch (NaN without it)."""

    time_s: float
    other_s: float
    bytes: float
    other_bytes: float

    @property
    def is_slow(self) -> bool:
        return self.time_s > 3 * self.other_s

    @property
    def is_big(self) -> bool:
        return self.bytes > 3 * max(self.other_bytes, SLACK_BYTES)

    def cells(self) -> str:
        ratio = f"{self.time_s / self.other_s:6.2f}{'*' if self.is_slow else ' '}"
        times = f"{self.time_s * 1e6:9.1f} {self.other_s * 1e6:9.1f} {ratio}"
        return f"{times} {self.bytes / 1e3:6.0f} {self.other_bytes / 1e3:6.0f}{'*' if self.is_big else ' '}"


def tensors(found: Any) -> Iterator[Any]:
    """The tensors in a result."""
    if isinstance(found, tuple | list):
        for part in found:
            yield from tensors(part)
    elif hasattr(found, "requires_grad"):
        yield found


def backward_of(aj: Any, call: Call, leaves: list[Any]) -> Call | None:
    """The call followed by the pass back to those of ``leaves`` it used; None where it has no derivative."""
    roots = [t for t in tensors(call()) if t.requires_grad]
    if not roots:
        return None
    seeds = [aj.ones_like(t) for t in roots]
    try:
        grads = aj.autograd.grad(roots, leaves, seeds, allow_unused=True)
    except (RuntimeError, NotImplementedError):
        return None
    used = [x for x, g in zip(leaves, grads, strict=True) if g is not None]
    if not used:
        return None

    def both() -> Any:
        return aj.autograd.grad([t for t in tensors(call()) if t.requires_grad], used, seeds)

    return both


def seconds(calls: list[Call]) -> list[float]:
    """Per call: the mean time of its fastest round, the rounds taking turns."""
    counts = []
    for call in calls:
        call()
        start = time.perf_counter()
        call()
        counts.append(max(1, int(SECONDS_A_ROUND / max(time.perf_counter() - start, 1e-7))))
    best = [math.inf] * len(calls)
    for _ in range(ROUNDS):
        for place, (call, count) in enumerate(zip(calls, counts, strict=True)):
            start = time.perf_counter()
            for _ in range(count):
                call()
            best[place] = min(best[place], (time.perf_counter() - start) / count)
    return best


def bytes_of(found: Any) -> int:
    """The bytes of the distinct memory in a result."""
    sizes = {t.data_ptr(): t.numel() * t.element_size() for t in tensors(found)}
    return sum(sizes.values())


def peak_bytes(call: Call) -> float:
    """The greatest memory in use during a call over what was before and what its results take."""
    for executable in live_executables():
        executable.release_arenas()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    kept = call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    arenas = sum(executable.arena_bytes for executable in live_executables())
    return max(0, peak - before - bytes_of(kept) + arenas)


def peak_bytes_of_torch(torch: Any, call: Call) -> float:
    """The same from the events of torch's allocator."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        kept = call()
    events = profile.profiler.kineto_results.events()
    in_use = peak = 0
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        in_use += event.nbytes()
        peak = max(peak, in_use)
    return max(0, peak - bytes_of(kept))


def figures(ours: Call, theirs: Call | None, torch: Any) -> Figures:
    """Time and memory of a call, here and (where there is one) in torch."""
    if theirs is None:
        return Figures(seconds([ours])[0], math.nan, peak_bytes(ours), math.nan)
    mine, other = seconds([ours, theirs])
    return Figures(mine, other, peak_bytes(ours), peak_bytes_of_torch(torch, theirs))


def main() -> None:
    """Print a table and how many ops keep the budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="ops whose name holds this")
    parser.add_argument("--over", type=float, default=0.0, help="only ops slower than this many times torch")
    parser.add_argument("--no-backward", action="store_true", help="only the calls themselves")
    parser.add_argument("--threads", type=int, default=2, help="of both libraries")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler, which reports memory, says when it starts
    autojit.set_num_threads(arguments.threads)
    torch = importlib.import_module("torch") if importlib.util.find_spec("torch") else None
    if torch is not None:
        torch.set_num_threads(arguments.threads)
    libraries = [autojit] if torch is None else [autojit, torch]
    plain = [cases(aj, operands(aj)) for aj in libraries]
    leaves = [operands(aj, recorded=True) for aj in libraries]
    recorded = [cases(aj, given) for aj, given in zip(libraries, leaves, strict=True)]
    print(f"{'op':24} {'us':>9} {'torch us':>9} {'ratio':>7} {'KB':>6} {'torch':>6}")
    rows: dict[str, Figures] = {}
    for name in plain[0]:
        if arguments.only not in name:
            continue
        calls: dict[str, list[Call | None]] = {name: [found[name] for found in plain]}
        if not arguments.no_backward:
            calls[f"{name} + backward"] = [
                backward_of(aj, found[name], [x for x in given.values() if x.requires_grad])
                for aj, found, given in zip(libraries, recorded, leaves, strict=True)
            ]
        for label, (ours, *theirs) in calls.items():
            if ours is None:
                continue
            row = figures(ours, theirs[0] if theirs else None, torch)
            rows[label] = row
            if torch is None or row.time_s / row.other_s >= arguments.over:
                print(f"{label:24} {row.cells()}", flush=True)
    for part, chosen in (("forward", False), ("with backward", True)):
        of_part = [row for label, row in rows.items() if label.endswith("+ backward") is chosen]
        slow, big = (sum(getattr(row, what) for row in of_part) for what in ("is_slow", "is_big"))
        print(f"{part}: {len(of_part)} calls, {slow} over three times torch's time, {big} over three times its memory")


if __name__ == "__main__":
    main()
