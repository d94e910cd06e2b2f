"""Numbers of launches begin again: nobody notices, wherever in a launch that is."""

from __future__ import annotations

import autojit as aj
from autojit.runtime.gpu.emulator.stamps import MOST_LAUNCHES
from tests.emulated import emulated_cuda


def test_a_launch_of_many_phases_goes_on_where_the_numbers_end() -> None:
    with emulated_cuda() as driver:
        aj.manual_seed(0)
        x, wide, narrow = (aj.randn(*shape, device="cuda") for shape in ((8, 2), (2, 16), (16, 2)))

        @aj.jit
        def chain(x: aj.Tensor) -> aj.Tensor:
            for _ in range(2):
                x = aj.tanh(aj.tanh(x @ wide) @ narrow)
            return x

        expected = chain(x).clone()
        before = driver.memory.launch
        chain(x)
        phases = driver.memory.launch - before
        assert phases >= 4  # epochs between the products, whose tiles share memory and are laid out for other threads
        for left in range(phases + 1):
            driver.memory.launch = MOST_LAUNCHES - left
            assert aj.equal(chain(x), expected), left
