"""A hundred thousand steps on an emulated device that does nothing: what host and device hold does not grow.

Run with ``--slow``; ``python -m pytest --slow -s tests/jit/cuda/test_long_runs.py`` prints what was held on the way.
"""

from __future__ import annotations

import gc
import resource
from pathlib import Path
from typing import Any

import pytest

import autojit as aj
from autojit import nn
from autojit.runtime.gpu.emulator.driver import EmulatedDriver
from tests.emulated import emulated_cuda

CALLS = (1_000, 10_000, 100_000)
PAGE_BYTES = resource.getpagesize()
MOST_MORE_BYTES = 4 << 20
"""Of the process, from 10,000 calls to 100,000: what Python's and NumPy's allocators may do by themselves."""


def resident_bytes() -> int:
    """Memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="asks Linux for the process's memory")
def test_steps_hold_no_more_after_a_hundred_thousand_calls() -> None:
    """A training step with batches at other addresses, a loop that the device decides, and eager operations."""
    with emulated_cuda(driver=EmulatedDriver(memory_bytes=64 << 20, pinned_bytes=1 << 20, is_idle=True)) as driver:
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)).to("cuda")
        optimizer = aj.optim.Adam(model.parameters(), 1e-2)

        @aj.jit
        def step(x: aj.Tensor) -> aj.Tensor:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        @aj.jit
        def halved(x: aj.Tensor) -> Any:
            return aj.while_loop(lambda x: x.sum() > 1, lambda x: (x / 2,), (x,))[0]

        batches = [aj.ones(4, 8, device="cuda") for _ in range(3)]
        held: list[tuple[int, int, int, int]] = []
        done = 0
        for calls in CALLS:
            for number in range(done, calls):
                x = batches[number % 3]
                loss = step(x)
                loss = loss + halved(x).sum() if number % 10 == 0 else loss
            done = calls
            del loss, x
            gc.collect()
            held.append((resident_bytes(), driver.memory.used_bytes, driver.live_graphs, len(gc.get_objects())))
            print(f"\n{calls} calls: host {held[-1][0]} B, device {held[-1][1]} B, graphs {held[-1][2]}", end="")
    (_, *_), (before, device, graphs, objects), (after, device_after, graphs_after, objects_after) = held
    assert (device_after, graphs_after) == (device, graphs)
    assert objects_after <= objects + 100
    assert after <= before + MOST_MORE_BYTES
