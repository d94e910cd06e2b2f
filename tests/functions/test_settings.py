"""Settings remember what they are told; buffers share their memory; rare methods do what they say."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import autojit as aj


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    aj.set_float32_matmul_precision("highest")
    aj.set_deterministic_debug_mode("default")
    aj.set_default_device(None)


def test_precision_is_remembered() -> None:
    aj.set_float32_matmul_precision("high")
    assert aj.get_float32_matmul_precision() == "high"
    with pytest.warns(UserWarning, match="foo"):
        aj.set_float32_matmul_precision("foo")
    assert aj.get_float32_matmul_precision() == "high"


def test_deterministic_modes() -> None:
    for number, name in enumerate(("default", "warn", "error")):
        aj.set_deterministic_debug_mode(name)
        assert aj.get_deterministic_debug_mode() == number
        assert aj.are_deterministic_algorithms_enabled() is (number > 0)
        assert aj.is_deterministic_algorithms_warn_only_enabled() is (number == 1)
        aj.set_deterministic_debug_mode(number)
    with pytest.raises(RuntimeError, match="invalid value"):
        aj.set_deterministic_debug_mode("loud")
    with pytest.raises(TypeError, match="debug_mode"):
        aj.set_deterministic_debug_mode(None)


def test_threads_and_numbers() -> None:
    before = aj.get_num_interop_threads()
    aj.set_num_interop_threads(before)
    with pytest.raises(RuntimeError, match="positive"):
        aj.set_num_interop_threads(0)
    aj.init_num_threads()
    assert aj.compiled_with_cxx11_abi()


@pytest.fixture
def flushing() -> Iterator[None]:
    if not aj.set_flush_denormal(True):
        pytest.skip("this processor always keeps denormals")
    yield
    aj.set_flush_denormal(False)


@pytest.mark.parametrize("dtype", [aj.float32, aj.float64])
def test_denormals_are_zero_where_that_is_said(flushing: None, dtype: aj.dtype) -> None:
    """In eager mode and in steps that others of the pool's threads work for; afterwards all threads keep them."""
    tiny = aj.full((1 << 17,), aj.finfo(dtype).tiny, dtype=dtype)

    @aj.jit
    def half(x: aj.Tensor) -> aj.Tensor:
        return x * 0.5

    for halved in (lambda x: x * 0.5, half):
        assert not halved(tiny).count_nonzero()
    assert aj.set_flush_denormal(False)
    for halved in (lambda x: x * 0.5, half):
        assert halved(tiny).count_nonzero() == tiny.numel()
    assert aj.set_flush_denormal(True)
    assert not half(tiny).count_nonzero()


def test_a_thread_says_for_itself_whether_it_flushes_denormals(flushing: None) -> None:
    tiny = aj.tensor([2e-38])
    found: list[float] = []

    def keep() -> None:
        aj.set_flush_denormal(False)
        found.append(float(tiny * 0.1))

    other = threading.Thread(target=keep)
    other.start()
    other.join()
    assert float(tiny * 0.1) == 0 < found[0]


def test_flushing_takes_a_bool() -> None:
    with pytest.raises(TypeError, match="expects a bool, but got int"):
        aj.set_flush_denormal(1)  # type: ignore[arg-type]


def test_the_default_device() -> None:
    assert aj.get_default_device() == aj.device("cpu")
    aj.set_default_device("cpu")
    with aj.device("cpu") as place:
        assert aj.zeros(2).device == place
    with pytest.raises(RuntimeError, match="not available"):
        aj.set_default_device("cuda")
    with pytest.raises(RuntimeError, match="module"):
        aj.get_device_module("meta")
    assert aj.get_device_module("cuda") is aj.cuda


def test_names_of_types() -> None:
    assert aj.typename(aj.ones(1, device="cpu")) == "autojit.FloatTensor"
    assert aj.typename(3) == "int"
    assert aj.typename(Fraction) == "fractions.Fraction"
    assert aj.is_storage(aj.ones(1).untyped_storage())
    assert not aj.is_distributed(aj.ones(1))
    assert isinstance(aj.channels_last, aj.memory_format)
    assert aj.newaxis is None


def test_buffers_are_shared() -> None:
    memory = bytearray(b"abcdefgh")
    x = aj.frombuffer(memory, dtype=aj.int16, count=2, offset=2)
    np.testing.assert_array_equal(x.numpy(), np.frombuffer(memory, np.int16, 2, 2))
    x.fill_(0)
    assert memory == b"ab\0\0\0\0gh"
    assert aj.frombuffer(np.ones(3), dtype=aj.float64).tolist() == [1.0, 1.0, 1.0]
    with pytest.warns(UserWarning, match="not writable"):
        aj.frombuffer(b"ab", dtype=aj.uint8)


@pytest.mark.parametrize(
    ("buffer", "options", "message"),
    [
        ([1], {}, "protocol"),
        (bytearray(), {}, "must not be 0"),
        (bytearray(3), {"count": 0}, "must not be 0"),
        (bytearray(3), {}, "multiple"),
        (bytearray(4), {"count": 3}, "greater"),
        (bytearray(4), {"offset": 4}, "offset"),
    ],
)
def test_buffers_that_do_not_fit_are_refused(buffer: object, options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        aj.frombuffer(buffer, dtype=aj.int16, **options)


def test_files_are_mapped(tmp_path: Path) -> None:
    path = str(tmp_path / "numbers")
    x = aj.from_file(path, shared=True, size=4)
    x.copy_(aj.arange(4.0))
    assert aj.from_file(path, size=2).tolist() == [0.0, 1.0]
    private = aj.from_file(path, size=2)
    private.fill_(9.0)
    assert np.fromfile(path, np.float32).tolist() == [0.0, 1.0, 2.0, 3.0]
    with pytest.raises(RuntimeError, match="unable to map"):
        aj.from_file(path, size=100)


def test_memory_in_another_order() -> None:
    assert aj.empty_permuted((2, 3, 4), (2, 0, 1)).stride() == (3, 1, 6)
    assert aj.ones(2, 3, 4).permute(2, 0, 1).dim_order() == (1, 2, 0)
    with pytest.raises(RuntimeError, match="order"):
        aj.empty_permuted((2, 3), (0, 0))
    with pytest.raises(RuntimeError, match="Number of dimensions"):
        aj.empty_permuted((2, 3), (0,))
    with pytest.raises(RuntimeError, match="does not have"):
        aj.ones(2, 1).dim_order(ambiguity_check=True)


def test_rare_methods() -> None:
    x = aj.tensor([1.0, 2.0, -0.25])
    assert [v.item() for v in reversed(x)] == [-0.25, 2.0, 1.0]
    assert x.hardshrink().tolist() == [1.0, 2.0, 0.0]
    assert x.__rdiv__(2).tolist() == [2.0, 1.0, -8.0]
    assert x.const_data_ptr() == x.data_ptr()
    assert x.clone().map2_(x, x, lambda a, b, c: a + b * c).tolist() == [2.0, 6.0, -0.1875]
    assert x.storage_type() is type(x.untyped_storage())
    assert x.clone().module_load(aj.zeros(3)).tolist() == [0.0, 0.0, 0.0]
    other = aj.zeros(3)
    assert x.module_load(other, assign=True).data_ptr() == other.data_ptr()
    x.record_stream(None)
    with pytest.raises(RuntimeError, match=r"accelerator|only dense CPU tensors"):
        x.pin_memory()
    with pytest.raises(RuntimeError, match="requires grad"):
        x.requires_grad_().map2_(x, x, max)
    y = aj.ones(2)
    y.__idiv__(2)
    assert y.__div__(2).tolist() == [0.25, 0.25]


def test_arithmetic_of_sizes() -> None:
    assert (aj.sym_int(2.7), aj.sym_float(2), aj.sym_max(1, 2), aj.sym_min(1, 2.0)) == (2, 2.0, 2, 1.0)
    assert (aj.sym_sum([1, 2]), aj.sym_sqrt(4), aj.sym_not(0), aj.sym_ite(True, 1, 2)) == (3, 2.0, True, 1)
    with pytest.raises(TypeError):
        aj.sym_ite(True, 1, 2.0)
    assert (aj.has_lapack, aj.has_mkl, aj.has_openmp, aj.has_spectral) == (True, False, False, True)
    assert aj.wait(aj.fork(max, 1, 2)) == 2
    assert isinstance(aj.ones(1).untyped_storage(), aj.UntypedStorage)
