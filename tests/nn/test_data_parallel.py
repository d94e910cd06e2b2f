"""A module on all devices, where the CPU is the only one."""

from __future__ import annotations

from typing import Any

import pytest

import autojit as aj


def test_the_module_runs_as_it_is_with_the_hooks_of_the_caller() -> None:
    packed: list[Any] = []
    model = aj.nn.DataParallel(aj.nn.Linear(2, 1))
    x = aj.ones(3, 2, requires_grad=True)
    with aj.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):  # type: ignore[func-returns-value]
        y = model(x)
    assert packed
    assert y.tolist() == model.module(x).tolist()
    assert list(model.state_dict()) == ["module.weight", "module.bias"]


def test_other_devices_are_refused() -> None:
    with pytest.raises(RuntimeError, match="no device beside the CPU"):
        aj.nn.DataParallel(aj.nn.ReLU(), device_ids=[0])


def test_the_accelerator_is_the_cuda_device_if_there_is_one() -> None:
    found = aj.accelerator.is_available()
    assert found == aj.cuda.is_available()
    assert (aj.accelerator.device_count() > 0) == found
    assert (aj.accelerator.current_accelerator() is not None) == found
    if not found:
        for ask in (aj.accelerator.current_device_index, aj.accelerator.synchronize):
            with pytest.raises(RuntimeError, match="none is available"):
                ask()
