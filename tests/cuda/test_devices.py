"""torch.cuda's names with devices: which one is the current one, what they are, their memory, queues and marks."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator

import pytest

import autojit as aj
from autojit.core.device_array import DeviceArray
from tests.cuda.fake_devices import fake_devices
from tests.runtime.gpu.fake_library import FakeLibrary


@pytest.fixture(autouse=True)
def library() -> Iterator[FakeLibrary]:
    with fake_devices() as found:
        yield found


def test_devices_are_there_when_somebody_asks() -> None:
    assert not aj.cuda.is_initialized() and aj.cuda.memory_allocated() == 0
    assert aj.cuda.is_available() and aj.cuda.device_count() == 2 and aj.backends.cuda.is_built()
    assert not aj.cuda.is_initialized()
    aj.cuda.init()
    assert aj.cuda.is_initialized()
    assert "sm_90" in aj.cuda.get_arch_list() and aj.cuda.is_bf16_supported()


def test_the_current_device_is_where_tensors_on_cuda_are() -> None:
    x = aj.zeros(2, device="cpu")
    assert x.cuda().device == x.to("cuda").device == aj.device("cuda", 0)
    with aj.cuda.device(1):
        assert aj.cuda.current_device() == 1 and x.cuda().device == aj.device("cuda:1")
        with aj.cuda.device_of(x.to("cuda:0")), aj.cuda.device(None), aj.cuda.device(-1):
            assert aj.cuda.current_device() == 0
    assert aj.cuda.current_device() == 0
    aj.cuda.set_device("cuda:1")
    assert aj.accelerator.current_device_index() == aj.ones(1).cuda().get_device() == 1
    aj.cuda.set_device(-1)
    assert aj.cuda.current_device() == 1
    aj.accelerator.set_device_index(0)
    assert aj.accelerator.current_accelerator() == aj.device("cuda")
    with pytest.raises(ValueError, match="Expected a cuda device, but got: cpu"):
        aj.cuda.set_device("cpu")


def test_a_device_out_of_range_is_refused_in_torch_s_words() -> None:
    x = aj.zeros(2, device="cpu")
    for use in (
        lambda: x.to("cuda:2"),
        lambda: x.cuda(5),
        lambda: aj.cuda.set_device(2),
        lambda: aj.device(2) and x.to(2),
    ):
        with pytest.raises(RuntimeError, match="CUDA error: invalid device ordinal"):
            use()


def test_what_a_device_is() -> None:
    found = aj.cuda.get_device_properties(1)
    assert (found.major, found.minor) == aj.cuda.get_device_capability() == (9, 0)
    assert (found.total_memory, found.multi_processor_count, found.warp_size) == (1 << 30, 132, 32)
    assert found.name == aj.cuda.get_device_name("cuda:1") and not found.is_emulated
    assert repr(found).startswith("_CudaDeviceProperties(name=") and "total_memory=1024MB" in repr(found)
    assert not aj.cuda.can_device_access_peer(0, 1)


@pytest.mark.parametrize("dtype", [aj.float32, aj.bfloat16, aj.bool, aj.int64, aj.complex64, aj.float16])
@pytest.mark.parametrize("turn", [lambda x: x, lambda x: x.t(), lambda x: x[:0], lambda x: x[0, 0]])
def test_copies_keep_elements_and_layout(dtype: aj.dtype, turn: object) -> None:
    host = aj.arange(6, device="cpu").reshape(2, 3).to(dtype)
    there = turn(host.cuda())  # type: ignore[operator]
    here = turn(host)  # type: ignore[operator]
    assert type(there._array) is DeviceArray and there.is_cuda and there.dtype is dtype
    assert there.stride() == here.stride() and there.storage_offset() == here.storage_offset()
    back = there.cpu()
    assert back.stride() == here.stride() and back.tolist() == here.tolist() == there.tolist()
    assert there.clone().tolist() == there.to("cuda:1").tolist() == copy.deepcopy(there).tolist() == here.tolist()
    assert pickle.loads(pickle.dumps(there)).device == there.device
    assert repr(there).endswith("device='cuda:0')") or "device='cuda:0', " in repr(there)


def test_numpy_is_refused_in_torch_s_words() -> None:
    x = aj.tensor([1.0, 1.0], device="cuda")
    with pytest.raises(
        TypeError, match=r"can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu\(\) to copy"
    ):
        x.numpy()
    assert (x[0].item(), float(x[1]), x.cpu().numpy().sum()) == (1.0, 1.0, 2.0)


def test_mixed_devices_are_refused_in_torch_s_words() -> None:
    with pytest.raises(RuntimeError, match="found at least two devices, cuda:0 and cpu!"):
        aj.ones(2, device="cuda") + aj.ones(2, device="cpu")
    with pytest.raises(RuntimeError, match="found at least two devices, cuda:0 and cuda:1!"):
        aj.ones(2, device="cuda:0") * aj.ones(2, device="cuda:1")


def test_memory_is_counted() -> None:
    before = aj.cuda.memory_allocated()
    x = aj.zeros(1 << 20, device="cuda")
    assert aj.cuda.memory_allocated() - before == x.nbytes
    assert aj.cuda.memory_reserved() >= aj.cuda.memory_allocated()
    del x
    assert aj.cuda.memory_allocated() == before
    assert aj.cuda.max_memory_allocated() >= before + (4 << 20)
    assert aj.cuda.memory_stats()["allocated_bytes.all.peak"] == aj.cuda.max_memory_allocated()
    aj.cuda.reset_peak_memory_stats()
    assert aj.cuda.max_memory_allocated() == before
    assert "Allocated memory" in aj.cuda.memory_summary()
    aj.cuda.empty_cache()
    free, total = aj.cuda.mem_get_info()
    assert total == 1 << 30 and free <= total


def test_too_much_is_out_of_memory() -> None:
    with pytest.raises(aj.cuda.OutOfMemoryError, match=r"CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has"):
        aj.empty_like(aj.empty(0, device="cuda"), device="cuda").new_empty(1 << 30)


def test_work_is_put_in_the_present_queue() -> None:
    usual, other = aj.cuda.current_stream(), aj.cuda.Stream()
    assert usual == aj.cuda.default_stream() != other
    with aj.cuda.stream(other):
        assert aj.cuda.current_stream() == other
        with usual, aj.cuda.stream(None):
            assert aj.cuda.current_stream() == usual
        assert aj.cuda.current_stream() == other
    assert aj.cuda.current_stream() == usual and aj.accelerator.current_stream() == usual
    aj.cuda.set_stream(other)
    assert aj.cuda.current_stream() == other and aj.cuda.default_stream() == usual
    aj.accelerator.set_stream(usual)
    assert len({aj.cuda.Stream() for _ in range(100)}) == 32
    assert aj.cuda.ExternalStream(77).cuda_stream == 77
    assert not other.query()
    assert repr(other).startswith("<autojit.cuda.Stream device=cuda:0 cuda_stream=0x")


def test_marks_are_waited_for(library: FakeLibrary) -> None:
    event, later = aj.cuda.Event(enable_timing=True), aj.cuda.Event(enable_timing=True)
    assert event.query()
    event.synchronize()
    with pytest.raises(ValueError, match="must be recorded"):
        event.elapsed_time(later)
    event.record()
    aj.cuda.Stream().wait_stream(aj.cuda.current_stream())
    later.record(aj.cuda.Stream())
    event.synchronize()
    assert event.elapsed_time(later) == 1.5
    with pytest.raises(ValueError, match="enable_timing=True"):
        event.elapsed_time(aj.cuda.Event())
    wanted = {"cuEventRecord", "cuStreamWaitEvent", "cuEventSynchronize"}
    assert wanted <= set(library.calls)
    aj.cuda.synchronize()
    aj.accelerator.synchronize()


def test_seeds_are_those_of_the_one_generator() -> None:
    aj.cuda.manual_seed_all(5)
    here = aj.rand(3, device="cpu").tolist()
    aj.manual_seed(5)
    assert aj.rand(3, device="cpu").tolist() == here and aj.cuda.initial_seed() == 5
    states = aj.cuda.get_rng_state_all()
    first = aj.rand(1, device="cpu").item()
    aj.cuda.set_rng_state_all(states)
    assert aj.rand(1, device="cpu").item() == first and len(states) == 2
    aj.cuda.set_rng_state(aj.cuda.get_rng_state())
    aj.Generator(device="cuda").manual_seed(3)
