"""Which devices a process has."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from autojit.core.errors import ArgumentError, DeviceError
from autojit.runtime.gpu import devices, library
from autojit.runtime.gpu.devices import cuda_device, device_count, find_driver, require_driver, settings, target_of
from autojit.runtime.gpu.driver import DeviceProperties
from tests.runtime.gpu.fake_library import FakeLibrary


@pytest.fixture(autouse=True)
def own_devices(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test asks anew; none finds this machine's driver."""
    monkeypatch.delenv("AUTOJIT_CUDA", raising=False)
    monkeypatch.setenv("AUTOJIT_CUDA_LIBRARY", "/nowhere/libcuda.so")
    before = library.set_library(None), devices.set_driver(None)
    yield
    library.set_library(before[0])
    devices.set_driver(before[1])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", (False, False)),
        ("emulate", (True, False)),
        (" Blocking ", (False, True)),
        ("emulate,blocking", (True, True)),
        ("emulate,order=7,sm_75", (True, False)),
    ],
)
def test_settings_are_words(monkeypatch: pytest.MonkeyPatch, text: str, expected: tuple[bool, bool]) -> None:
    monkeypatch.setenv("AUTOJIT_CUDA", text)
    assert (settings().emulates, settings().blocks) == expected


def test_an_emulated_device_has_an_order_and_an_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOJIT_CUDA", "emulate,sm_80,order=12")
    assert (settings().architecture, settings().order) == ("sm_80", 12)
    monkeypatch.setenv("AUTOJIT_CUDA", "emulate")
    assert (settings().architecture, settings().order) == ("sm_90", None)
    monkeypatch.setenv("AUTOJIT_CUDA", "emulate,order=x")
    with pytest.raises(ArgumentError, match="no setting is called order=x"):
        settings()


def test_another_word_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOJIT_CUDA", "emulate,fast")
    with pytest.raises(ArgumentError, match=r"no setting is called fast[\s\S]*emulate, blocking, apart"):
        settings()
    monkeypatch.setenv("AUTOJIT_CUDA", "together,apart")
    with pytest.raises(ArgumentError, match="both apart and together"):
        settings()


def test_without_a_driver_there_are_no_devices() -> None:
    assert find_driver() is None and device_count() == 0
    with pytest.raises(DeviceError, match=r"not installed[\s\S]*/nowhere/libcuda.so"):
        cuda_device(0)


def test_a_driver_without_a_device_says_so() -> None:
    library.set_library(FakeLibrary(devices=0))
    assert find_driver() is None
    with pytest.raises(DeviceError, match=r"no CUDA device[\s\S]*AUTOJIT_CUDA=emulate"):
        require_driver()


def test_an_old_driver_is_no_driver_and_says_why() -> None:
    library.set_library(FakeLibrary(version=11040))
    assert device_count() == 0
    for _ in range(2):
        with pytest.raises(DeviceError, match="too old"):
            require_driver()


def test_a_device_is_made_once_and_has_its_own_stream() -> None:
    library.set_library(FakeLibrary(devices=2))
    assert device_count() == 2
    first, second = cuda_device(0), cuda_device(1)
    assert cuda_device(0) is first and first.stream != second.stream
    before = first.set_stream(17)
    assert first.stream == 17 and before not in (0, 17)
    with pytest.raises(DeviceError, match="CUDA device 2 is not there"):
        cuda_device(2)


@pytest.mark.parametrize(
    ("architecture", "expected"),
    [
        ("sm_75", "sm_75"),
        ("sm_86", "sm_86"),
        ("sm_88", "sm_87"),
        ("sm_90", "sm_90"),
        ("sm_101", "sm_100"),
        ("sm_130", "sm_121"),
    ],
)
def test_code_is_for_the_newest_architecture_that_the_device_runs(architecture: str, expected: str) -> None:
    assert target_of(DeviceProperties("a device", architecture, 1 << 30, 132, 1 << 17)).cpu == expected


def test_a_device_that_is_too_old_is_refused() -> None:
    with pytest.raises(DeviceError, match=r"too old for autojit[\s\S]*7\.0[\s\S]*7\.5"):
        target_of(DeviceProperties("V100", "sm_70", 1 << 30, 80, 1 << 17))


def test_the_emulated_device_is_one_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOJIT_CUDA", "emulate")
    assert device_count() == 1
    found = cuda_device(0).properties
    assert found.is_emulated and found.name == "emulated sm_90"


def test_a_forked_child_is_told_to_be_spawned() -> None:
    library.set_library(FakeLibrary())
    cuda_device(0)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            cuda_device(0)
        except DeviceError as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    assert b"Cannot re-initialize CUDA in forked subprocess" in os.read(reader, 1000)
    assert cuda_device(0).number == 0
