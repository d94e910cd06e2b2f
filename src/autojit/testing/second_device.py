"""A second device for tests of programs that move tensors between devices, on machines that have none.

Its memory is its own; its ops compute with NumPy. Compiled functions run uncompiled while it exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from autojit.core.device import forget_device, register_device
from autojit.tensor.device_layer import DeviceLayer
from autojit.tensor.state import set_layers, state


@contextmanager
def second_device(name: str = "fake") -> Iterator[str]:
    """Inside, ``name`` is a device: ``x.to(name)`` copies, results stay on it, mixing devices is an error.

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
    layer = DeviceLayer()
    register_device(name)
    set_layers((layer, *state.layers))
    try:
        yield name
    finally:
        set_layers(tuple(other for other in state.layers if other is not layer))
        forget_device(name)
