"""A second device for tests of programs that move tensors between devices, on machines that have none.

Its memory is apart from the host's: NumPy cannot read it, tensors get there and back by copies. Ops compute there with
the same code as on the CPU, at once and compiled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from autojit.backend import compiling_by, cpu_backend
from autojit.core.device import Device, forget_device, register_device
from autojit.core.device_array import Array, DeviceArray, add_in_place, layout_in_memory
from autojit.ir.op import Op
from autojit.runtime.memory import Arena, allocate_array
from autojit.tensor.state import meet_devices


class SecondSpace:
    """Memory of a second device, which happens to be the host's own, so that its code can run there."""

    def __init__(self, device: Device, copies_for_numpy: bool = False) -> None:
        self.device = device
        self.copies_for_numpy = copies_for_numpy

    is_of_host = True
    stream = 0  # one queue, in which everything is done at once

    def let_wait(self, stream: int) -> None:
        pass

    def wait_for(self, stream: int) -> None:
        pass

    def holding(self, layout: Any) -> DeviceArray:
        return DeviceArray(layout, self)

    def copied_in(self, array: Any) -> DeviceArray:
        return DeviceArray(array.copy(order="K"), self)

    def copied_out(self, array: DeviceArray) -> Any:
        return array.layout.copy(order="K")

    def allocate(self, shape: tuple[int, ...], dtype: Any, order: Sequence[int] | None = None) -> DeviceArray:
        return DeviceArray(allocate_array(shape, dtype, order), self)

    def arena(self, size_bytes: int) -> Arena:
        return Arena(size_bytes)

    def write(self, target: DeviceArray, source: Array) -> None:
        with np.errstate(all="ignore"):
            np.copyto(target.layout, layout_in_memory(source), casting="unsafe")

    def add(self, total: DeviceArray, part: DeviceArray) -> None:
        add_in_place(total.layout, part.layout)

    def apply(self, op: Op, arrays: Sequence[Array]) -> list[DeviceArray]:
        with np.errstate(all="ignore"):  # who observes the thread is told by the caller
            found = op.eager(*map(layout_in_memory, arrays))
        return [DeviceArray(np.asarray(each), self) for each in (found if op.n_outputs != 1 else [found])]


@contextmanager
def second_device(
    name: str = "fake", *, copies_for_numpy: bool = False, space: type[SecondSpace] = SecondSpace
) -> Iterator[str]:
    """Inside, ``name`` is a device: ``x.to(name)`` copies, results stay on it, mixing devices is an error.

    Args:
        copies_for_numpy: ``x.numpy()`` gives a copy instead of the error, so that tests written for the CPU run there.
        space: its memory, for tests of spaces that compute in another way.

    Example:
        >>> import autojit as aj
        >>> from autojit.testing import second_device
        >>> with second_device() as fake:
        ...     x = aj.ones(2, requires_grad=True)
        ...     y = x.to(fake) * 2
        ...     y.sum().backward()
        >>> y.device, x.grad.device
        (device(type='fake', index=0), device(type='cpu'))
    """
    here = cpu_backend()
    register_device(name, partial(space, copies_for_numpy=copies_for_numpy))
    meet_devices()
    try:
        with compiling_by(replace(here, machine=replace(here.machine, kind=name)), name):
            yield name
    finally:
        forget_device(name)
        meet_devices()
