"""Results on a device that are as long as the elements say: the CPU's, and one number of them is read by the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.dispatch import device_kernels
from autojit.testing import second_device
from tests.dispatch.test_device_kernels import KernelSpace

Read = list[int]


@pytest.fixture
def there() -> Iterator[str]:
    with second_device("there", space=KernelSpace) as name:
        yield name


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Read:
    """How many elements eager mode has read of each array that it asked for."""
    found: Read = []
    usual = device_kernels.host_copy

    def noted(array: Any) -> Any:
        found.append(array.size)
        return usual(array)

    monkeypatch.setattr(device_kernels, "host_copy", noted)
    return found


def _all(found: Any) -> list[Any]:
    return list(found) if isinstance(found, tuple) else [found]


def _unique(**options: Any) -> Callable[[Any], Any]:
    return lambda x: aj.unique(x, return_inverse=True, return_counts=True, **options)


def _consecutive(**options: Any) -> Callable[[Any], Any]:
    return lambda x: aj.unique_consecutive(x, return_inverse=True, return_counts=True, **options)


CASES: dict[str, Callable[[Any], Any]] = {
    "nonzero": aj.nonzero,
    "nonzero by axis": lambda x: aj.nonzero(x, as_tuple=True),
    "mask": lambda x: x[x > 0],
    "unique": _unique(),
    "unique along 0": _unique(dim=0),
    "unique along the last": _unique(dim=-1),
    "consecutive": _consecutive(),
    "consecutive along the last": _consecutive(dim=-1),
}


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8, np.bool_])
@pytest.mark.parametrize("shape", [(9,), (3, 5), (2, 3, 4)])
@pytest.mark.parametrize("name", CASES)
def test_results_are_the_hosts(there: str, read: Read, name: str, shape: tuple[int, ...], dtype: Any) -> None:
    x = np.round(np.random.default_rng(len(shape)).normal(size=shape) * 2).astype(dtype)
    expected = _all(CASES[name](aj.tensor(x)))
    found = _all(CASES[name](aj.tensor(x, device=there)))
    assert read and set(read) == {1}, "the host reads numbers, no elements"
    for one, other in zip(found, expected, strict=True):
        assert one.device.type == there and one.dtype == other.dtype
        assert np.array_equal(one.cpu().numpy(), other.numpy())


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_all_and_none(there: str, value: float) -> None:
    x = aj.full((3, 4), value, device=there)
    assert aj.nonzero(x).shape == (12 * int(value), 2)
    assert x[x > 0].sum().item() == 12 * value


def test_axes_in_another_order(there: str) -> None:
    x = np.arange(12).reshape(3, 4) % 5 > 1
    assert np.array_equal(aj.nonzero(aj.tensor(x, device=there).T).cpu().numpy(), np.argwhere(x.T))


def test_counts_and_repetitions(there: str, read: Read) -> None:
    x, repeats = aj.tensor([3, 1, 3]), aj.tensor([2, 0, 3])
    for function in (
        lambda x, _: aj.bincount(x),
        lambda x, _: aj.bincount(x, minlength=6),
        lambda x, r: aj.bincount(x, weights=r.float()),
        aj.repeat_interleave,
    ):
        found = function(x.to(there), repeats.to(there))
        assert found.tolist() == function(x, repeats).tolist()
    assert set(read) <= {1}


def test_refusals_are_those_of_the_host(there: str) -> None:
    for function in (
        lambda x: aj.bincount(x - 3),
        lambda x: aj.repeat_interleave(x - 3),
        lambda x: aj.repeat_interleave(x, x, output_size=5),
    ):
        for device in ("cpu", there):
            with pytest.raises(RuntimeError, match=r"negative|allocated size"):
                function(aj.tensor([1, 2, 4], device=device))
