"""A device that has no memory left: an error in torch's words, state as before, and the process goes on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import autojit as aj
from autojit.core.errors import OutOfMemoryError
from autojit.runtime.gpu.emulator.driver import EmulatedDriver
from tests import emulated

N = 1 << 12
MOST_BYTES = 40 * N  # ten vectors


@pytest.fixture(autouse=True)
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedDriver]:
    small = EmulatedDriver(memory_bytes=MOST_BYTES, pinned_bytes=1 << 16)
    monkeypatch.setattr(emulated, "emulated_driver", lambda order: small)
    with emulated.emulated_cuda() as found:
        yield found


def test_a_step_that_needs_too_much_changes_nothing_and_the_next_works() -> None:
    state = aj.ones(N).to("cuda")

    @aj.jit
    def step(x: aj.Tensor, n: int) -> aj.Tensor:
        state.add_(x)
        return aj.cat([state * k for k in range(n)])

    x = aj.ones(N).to("cuda")
    step(x, 1)
    for _ in range(2):
        with pytest.raises(
            OutOfMemoryError, match=r"CUDA out of memory. Tried to allocate .* GPU 0 has a total capacity"
        ):
            step(x, 20)
        np.testing.assert_array_equal(state.cpu().numpy(), np.full(N, 2.0))
    step(x, 1)
    np.testing.assert_array_equal(state.cpu().numpy(), np.full(N, 3.0))


def test_an_eager_op_that_finds_no_memory_leaves_its_operands() -> None:
    x = aj.ones(N).to("cuda")
    with pytest.raises(OutOfMemoryError, match="CUDA out of memory"):
        [x + k for k in range(20)]
    np.testing.assert_array_equal((x + 1).cpu().numpy(), np.full(N, 2.0))
