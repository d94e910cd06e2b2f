"""Memory of a device goes to other libraries and comes from them: the same memory, in the right order, for as long."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.runtime.gpu.emulator.findings import EmulatedFault
from tests.emulated import emulated_cuda, fresh_driver
from tests.interop.foreign_library import HastyArray, InterfaceArray, Library, OldArray

pytestmark = pytest.mark.skipif(aj.cuda.is_available(), reason="a device of its own")
DTYPES = ("?", "u1", "i2", "i8", "f2", "f4", "f8", "c8")


@pytest.fixture
def library() -> Iterator[Library]:
    with emulated_cuda(driver=fresh_driver()) as driver:
        yield Library(driver)


def values_of(dtype: str, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    return rng.integers(0, 2 if dtype == "?" else 100, (2, 3)).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("how", ["new", "old", "interface"])
def test_a_borrowed_array_is_the_same_memory(library: Library, dtype: str, how: str, rng: np.random.Generator) -> None:
    values = values_of(dtype, rng)
    array = library.array(values)
    given: Any = {"new": array, "old": OldArray(library, array.address, array.shape, array.dtype, None)}.get(how)
    x = aj.as_tensor(InterfaceArray(array)) if given is None else aj.from_dlpack(given)
    assert (x.device.type, x.data_ptr(), x.dtype.numpy) == ("cuda", array.address, values.dtype)
    np.testing.assert_array_equal((x == x).cpu().numpy(), np.ones_like(values, bool))
    np.testing.assert_array_equal(x.cpu().numpy(), values)
    x.zero_()
    aj.cuda.synchronize()
    assert not library.strided(array.address, array.shape, array.dtype, None).any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("max_version", [None, (1, 0)])
def test_a_lent_tensor_is_the_same_memory(
    library: Library, dtype: str, max_version: Any, rng: np.random.Generator
) -> None:
    values = values_of(dtype, rng)
    x = aj.tensor(values, device="cuda").T
    found, address = library.read(x.__dlpack__(stream=library.stream, max_version=max_version))
    assert address == x.data_ptr()
    np.testing.assert_array_equal(found, values.T)
    assert x.__dlpack_device__() == (2, 0)
    told = x.__cuda_array_interface__
    assert (told["data"], told["typestr"], told["version"]) == ((x.data_ptr(), False), values.dtype.str, 3)
    assert told["strides"] == values.T.strides
    assert told["stream"] == aj.cuda.current_stream().cuda_stream


def test_layouts_go_both_ways(library: Library, rng: np.random.Generator) -> None:
    array = library.array(rng.normal(size=(3, 4)).astype(np.float32))
    for given in (array.transposed(), InterfaceArray(array.transposed())):
        x = aj.as_tensor(given)
        assert (x.shape, x.stride()) == ((4, 3), (1, 4))
        np.testing.assert_array_equal((x + 0).cpu().numpy(), x.cpu().numpy())
        part = x[1:3, ::2]
        found, address = library.read(part.__dlpack__(stream=library.stream))
        np.testing.assert_array_equal(found, part.cpu().numpy())
        assert address == part.data_ptr()


def test_nothing_is_exchanged_too(library: Library) -> None:
    array = library.array(np.zeros((0, 3), np.float32))
    for given in (array, InterfaceArray(array)):
        x = aj.as_tensor(given)
        assert (x.shape, x.sum().item()) == ((0, 3), 0.0)
    empty = aj.zeros(2, 0, device="cuda")
    assert empty.__cuda_array_interface__["data"] == (0, False)
    assert library.read(empty.__dlpack__(stream=library.stream))[0].shape == (2, 0)


def test_queues_wait_for_each_other(library: Library) -> None:
    """In both directions, by either protocol; and a library that forgets it is found out."""
    values = np.arange(4, dtype=np.float32)
    array = library.array(values)
    assert aj.from_dlpack(array).sum().item() == 6
    assert library.asked[-1]["stream"] == aj.cuda.current_stream().cuda_stream
    array = library.array(values)
    assert aj.as_tensor(InterfaceArray(array)).sum().item() == 6
    x = aj.ones(4, device="cuda") * 2
    assert library.read(x.__dlpack__(stream=library.stream))[0].sum() == 8
    array = library.array(values)
    hasty = HastyArray(library, array.address, array.shape, array.dtype, None)
    with pytest.raises(EmulatedFault, match="missing wait"):
        aj.from_dlpack(hasty).sum()
    y = aj.ones(4, device="cuda") * 2
    with pytest.raises(EmulatedFault, match="missing wait"):
        library.read(y.__dlpack__(stream=-1))
    for stream in (None, 1, 2):  # the driver's default queue, and that of the thread
        z = aj.ones(4, device="cuda") * 3
        library.stream, before = stream or 1, library.stream
        assert library.read(z.__dlpack__(stream=stream))[0].sum() == 12
        library.stream = before


def test_memory_is_kept_as_long_as_somebody_has_it(library: Library) -> None:
    x = aj.from_dlpack(library.array(np.ones(4, np.float32)))
    view = x[1:]
    del x
    gc.collect()
    assert library.deleted == 0
    assert view.sum().item() == 3
    del view
    gc.collect()
    assert library.deleted == 1
    y = aj.ones(4, device="cuda")
    capsule = y.__dlpack__(stream=library.stream)
    used = aj.cuda.memory_allocated()
    del y
    gc.collect()
    assert aj.cuda.memory_allocated() == used
    assert library.read(capsule)[0].sum() == 4
    gc.collect()
    assert aj.cuda.memory_allocated() < used
    capsule = aj.ones(4, device="cuda").__dlpack__()
    del capsule  # that nobody has used
    gc.collect()
    assert aj.cuda.memory_allocated() < used


def test_tensor_copies_and_as_tensor_shares(library: Library) -> None:
    array = library.array(np.ones(3, np.float32))
    for given in (array, InterfaceArray(array)):
        assert aj.as_tensor(given).data_ptr() == aj.asarray(given).data_ptr() == array.address
        assert aj.tensor(given).data_ptr() != array.address
        assert aj.as_tensor(given, dtype=aj.float64).dtype is aj.float64
        assert aj.as_tensor(given, device="cpu").device.type == "cpu"
    assert aj.from_dlpack(array, device="cpu").tolist() == [1, 1, 1]


def test_a_step_takes_them_as_it_takes_tensors(library: Library, rng: np.random.Generator) -> None:
    step = aj.jit(lambda x: (x * 2).sum())
    for _ in range(3):
        values = rng.normal(size=5).astype(np.float32)
        for given in (library.array(values), InterfaceArray(library.array(values))):
            np.testing.assert_allclose(step(given).item(), 2 * values.sum(), rtol=1e-5)
    assert step.stats()["captures"] == 1


def test_a_copy_for_the_host_is_made_when_it_is_asked_for() -> None:
    with emulated_cuda():
        x = aj.arange(3, device="cuda")
        host = np.from_dlpack(_OnHost(x))
        assert host.tolist() == [0, 1, 2]
        with pytest.raises(BufferError, match="cannot be exported to the device"):
            x.__dlpack__(dl_device=(1, 0), copy=False)
        assert aj.from_dlpack(x.__dlpack__(copy=True)).data_ptr() != x.data_ptr()
        b = aj.tensor([1.5, -2.0], device="cuda", dtype=aj.bfloat16)
        assert aj.from_dlpack(b).tolist() == [1.5, -2.0]
        holder = type("Holder", (), {"__cuda_array_interface__": b.__cuda_array_interface__})()
        assert aj.as_tensor(holder).tolist() == [1.5, -2.0]


class _OnHost:
    def __init__(self, x: aj.Tensor) -> None:
        self.x = x

    def __dlpack__(self, **options: Any) -> Any:
        return self.x.__dlpack__(dl_device=(1, 0))

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def test_what_cannot_be_exchanged_is_refused(library: Library) -> None:
    x = aj.ones(2, device="cuda")
    for stream, why in ((0, "two queues"), ("a", "number or None")):
        with pytest.raises(BufferError, match=why):
            x.__dlpack__(stream=stream)
    with pytest.raises(BufferError, match="detach"):
        aj.ones(2, device="cuda", requires_grad=True).__dlpack__()
    with pytest.raises(RuntimeError, match="requires grad"):
        _ = aj.ones(2, device="cuda", requires_grad=True).__cuda_array_interface__
    assert not hasattr(aj.ones(2), "__cuda_array_interface__")
    array = library.array(np.ones(2, np.float32))
    with pytest.raises(TypeError, match="mask"):
        aj.as_tensor(InterfaceArray(array, mask=array))
    with pytest.raises(ValueError, match="two queues"):
        aj.as_tensor(InterfaceArray(array, stream=0))

    @aj.jit
    def step(x: aj.Tensor) -> aj.Tensor:
        library.read((x * 2).__dlpack__())
        return x

    with pytest.raises(RuntimeError, match="within a compiled step"):
        step(x)
