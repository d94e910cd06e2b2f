"""What the profiler costs per small eager op, in microseconds: switched off, on, with a device clock, with NVTX ranges.

The device clock and NVTX are the stubs of the tests, so the figures are of autojit's own part. Budgets: less than 1 us
for a disabled block, 4 us for the device clock. ``python -m benchmarks.profiler_overhead``.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext

import autojit as aj
from autojit.autograd import profiler
from tests.autograd.profiler_stubs import stub_driver, stub_nvtx

REPEATS, CALLS = 40, 200

Block = Callable[[], AbstractContextManager[object]]


def add_us() -> float:
    """The fastest of several runs of ``x + x`` on three numbers."""
    x = aj.ones(3)
    return min(timeit.repeat(lambda: x + x, number=CALLS, repeat=REPEATS)) / CALLS * 1e6


def device_clock() -> AbstractContextManager[object]:
    """A profile that also reads the clock of a (stub) device."""
    blocks = ExitStack()
    blocks.enter_context(stub_driver())
    blocks.enter_context(profiler.profile(use_cuda=True))
    return blocks


def ranges() -> AbstractContextManager[object]:
    """NVTX ranges sent to a stub library."""
    blocks = ExitStack()
    blocks.enter_context(stub_nvtx())
    blocks.enter_context(profiler.emit_nvtx())
    return blocks


BLOCKS: dict[str, Block] = {
    "no block": nullcontext,
    "profile(enabled=False)": lambda: profiler.profile(enabled=False),
    "profile()": profiler.profile,
    "profile(use_cuda=True)": device_clock,
    "emit_nvtx()": ranges,
}


def main() -> None:
    """Print the table."""
    plain = 0.0
    print(f"{'block':24s} {'us per op':>10s} {'added':>8s}")
    for name, block in BLOCKS.items():
        with block():
            found = add_us()
        plain = plain or found
        print(f"{name:24s} {found:10.2f} {found - plain:8.2f}")


if __name__ == "__main__":
    main()
