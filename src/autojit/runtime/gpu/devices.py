"""The CUDA devices of this process, and who drives them: NVIDIA's driver, or the emulator.

``AUTOJIT_CUDA`` says what is used, in words separated by commas: ``emulate`` makes one device that the host computes,
with every access checked, of the architecture ``sm_90`` or another that is named; ``order=7`` lets its lanes, blocks
and nodes of graphs come in a random order, another one for each number; ``blocking`` waits after every run, so that
errors are raised at their line; ``idle`` makes the emulated device do nothing that it is told, so that launches and
bytes can be counted at any size; ``apart`` launches every kernel for itself, so that it is known which one failed;
``together`` lets all blocks of a launch wait for each other, so that there are the fewest launches; ``late`` lets no
launch of a graph start before those that it waits for have ended.
Without it the installed driver is used, and where there is none, or no device, there
are no CUDA devices. ``driver=12.0`` makes the emulated driver one of this CUDA, whose graphs have no conditions.
Nothing is loaded before somebody asks.
"""

from __future__ import annotations

import os
import re
from typing import Literal

from autojit.codegen.cuda.early_start import FROM_CAPABILITY
from autojit.codegen.cuda.target import CudaTarget
from autojit.core.errors import ArgumentError, DeviceError
from autojit.core.locks import in_forked_child, new_lock
from autojit.core.records import record
from autojit.runtime.gpu import present_streams
from autojit.runtime.gpu.driver import EARLY_FROM, DeviceProperties, Driver
from autojit.runtime.gpu.libcuda import LibCuda
from autojit.runtime.gpu.library import installed_library, library
from autojit.runtime.gpu.memory import DeviceMemory
from autojit.runtime.gpu.modules import LoadedKernels

VARIABLE = "AUTOJIT_CUDA"
_WORDS = ("emulate", "blocking", "apart", "together", "late", "idle")

Joins = Literal["apart", "beside", "together"]
"""Which kernels share launches: none; those whose blocks do not wait for each other; others, too."""

_VERSION = re.compile(r"driver=(\d+)\.(\d+)")
_ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_100")  # of an emulated device
KNOWN_ARCHITECTURES = (75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121)
"""That LLVM generates code for; the driver's compiler makes code of an older one's text for a newer device."""


@record
class Settings:
    """What ``AUTOJIT_CUDA`` says.

    Args:
        emulates: the device is emulated.
        blocks: every run is waited for.
        architecture: of the emulated device.
        order: the seed of its random orders; None: lowest first.
        joins: which kernels share launches.
        is_idle: the emulated device does nothing.
        version: of CUDA, that the emulated driver says it is of: 12040 is 12.4.
        is_late: no launch starts before those that it waits for have ended.
    """

    emulates: bool
    blocks: bool
    architecture: str
    order: int | None
    joins: Joins = "beside"
    is_idle: bool = False
    version: int = 12080
    is_late: bool = False


def settings() -> Settings:
    """What ``AUTOJIT_CUDA`` says.

    Raises:
        ArgumentError: it says something else.
    """
    text = os.environ.get(VARIABLE, "")
    words = [word.strip().lower() for word in text.split(",") if word.strip()]
    architecture, order, version, unknown = "sm_90", None, 12080, list[str]()
    for word in words:
        if word in _ARCHITECTURES:
            architecture = word
        elif (seed := word.removeprefix("order=")) != word and seed.isdigit():
            order = int(seed)
        elif (said := _VERSION.fullmatch(word)) is not None:
            version = 1000 * int(said[1]) + 10 * int(said[2])
        elif word not in _WORDS:
            unknown.append(word)
    if unknown:
        raise ArgumentError(
            f"{VARIABLE}: no setting is called {', '.join(unknown)}",
            {"value": text},
            f"use {', '.join(_WORDS)}, or several with commas; with emulate also order=1, driver=12.0 and one of "
            + ", ".join(_ARCHITECTURES),
        )
    if {"apart", "together"} <= set(words):
        raise ArgumentError(
            f"{VARIABLE}: kernels cannot be launched both apart and together",
            {"value": text},
            "leave one of the words out",
        )
    joins: Joins = "apart" if "apart" in words else "together" if "together" in words else "beside"
    is_idle, is_late = "idle" in words, "late" in words
    return Settings("emulate" in words, "blocking" in words, architecture, order, joins, is_idle, version, is_late)


class CudaDevice:
    """One device as the runtime uses it.

    Args:
        driver: of the device.
        number: of the device.
    """

    def __init__(self, driver: Driver, number: int) -> None:
        self.driver = driver
        self.number = number
        self.properties: DeviceProperties = driver.properties(number)
        self.target = target_of(self.properties)
        self.memory = DeviceMemory(driver, number)
        self.kernels = LoadedKernels(driver, number, self.target, self.properties.architecture)
        driver.use(number)
        self.starts_early = self._can_start_early()
        self.home_stream = driver.make_stream()
        self.stream_place = present_streams.new_place()
        self._has_others = False  # some thread has used another stream: until then none is asked for its own

    def _can_start_early(self) -> bool:
        """Whether launches of a graph start before those in front have ended: see `codegen.cuda.early_start`."""
        can = self.target.capability >= FROM_CAPABILITY and self.driver.version >= EARLY_FROM
        return can and not settings().is_late

    @property
    def stream(self) -> int:
        """The queue that this thread puts work in; native code reads it at every call."""
        if not self._has_others:
            return self.home_stream
        found = present_streams.present(self.stream_place)
        return self.home_stream if found == present_streams.HOME else found

    def set_stream(self, stream: int) -> int:
        """Put this thread's work in another queue from now on; the one before."""
        before = self.stream
        if stream != before:
            self._has_others = True
            present_streams.set_present(self.stream_place, stream)
        return before

    def use(self) -> None:
        """Let the driver's calls of this thread be for this device."""
        self.driver.use(self.number)

    def synchronize(self) -> None:
        """Wait until all that was put in the present queue is done.

        Raises:
            DeviceError: something in it failed.
        """
        self.use()
        self.driver.synchronize(self.stream)

    def synchronize_all(self) -> None:
        """Wait until the device does nothing any more, whatever queue it was put in.

        Raises:
            DeviceError: something in it failed.
        """
        self.use()
        self.driver.synchronize_all()


class _Process:
    """What this process has found out."""

    def __init__(self) -> None:
        self.lock = new_lock()
        self.forget()

    def forget(self) -> None:
        self.driver: Driver | None = None
        self.was_looked_for = False
        self.refusal: DeviceError | None = None  # why there is none although a library is installed
        self.devices: dict[tuple[Driver, int], CudaDevice] = {}
        self.lost = 0  # how many devices the process had that this one was forked from

    def use(self, driver: Driver | None) -> None:
        """Have this driver, or look for one (None); devices stay those of their drivers."""
        devices = self.devices
        self.forget()
        self.driver, self.was_looked_for, self.devices = driver, driver is not None, devices


_process = _Process()


def _find() -> Driver | None:
    chosen = settings()
    if chosen.emulates:
        from autojit.runtime.gpu.emulator.driver import EmulatedDriver  # many modules that nobody else needs

        return EmulatedDriver(chosen.architecture, chosen.order, is_idle=chosen.is_idle, version=chosen.version)
    found = installed_library()
    if found is None or found.cuInit(0):  # also where the library is there, and no device
        return None
    driver = LibCuda(found)
    return driver if driver.count() else None


def find_driver() -> Driver | None:
    """Who drives the devices, or None where there are none that can be used."""
    with _process.lock:
        if not _process.was_looked_for:
            try:
                _process.driver = _find()
            except DeviceError as error:
                _process.refusal = error
            _process.was_looked_for = True
        return _process.driver


def require_driver() -> Driver:
    """Who drives the devices.

    Raises:
        DeviceError: there are none; it says what is missing.
    """
    found = find_driver()
    if found is not None:
        return found
    if _process.lost:
        raise _forked()
    if _process.refusal is not None:
        raise _process.refusal
    library()  # raises where it is not installed
    raise DeviceError(
        "no CUDA device",
        fix="compute on the CPU: device='cpu'; or without a device on the emulator: AUTOJIT_CUDA=emulate",
    )


def set_driver(driver: Driver | None) -> Driver | None:
    """Use this driver from now on, or look for one again (None); for tests. Returns the one before, if there was.

    A driver that was in use before has the devices that it had, with their kernels.
    """
    with _process.lock:
        before = _process.driver
        _process.use(driver)
        return before


def device_count() -> int:
    """How many CUDA devices there are."""
    driver = find_driver()
    return _process.lost if driver is None else driver.count()


def cuda_device(number: int) -> CudaDevice:
    """A device of this process.

    Raises:
        DeviceError: it is not there, too old, or was used before this process was forked.
    """
    with _process.lock:
        driver = require_driver()
        found = _process.devices.get((driver, number))
        if found is None:
            if not 0 <= number < driver.count():
                raise DeviceError(
                    f"CUDA device {number} is not there", {"devices": driver.count()}, "use a smaller number"
                )
            found = _process.devices[driver, number] = CudaDevice(driver, number)
        return found


def present_stream(number: int) -> int | None:
    """The queue of NVIDIA's driver that work for a device goes to; None: its default one, because there is no work."""
    driver = _process.driver
    found = None if driver is None or driver.is_emulated else _process.devices.get((driver, number))
    return None if found is None else found.stream


def target_of(properties: DeviceProperties) -> CudaTarget:
    """What code for a device is generated for.

    Raises:
        DeviceError: the device is too old.
    """
    major, minor = properties.capability
    known = [number for number in KNOWN_ARCHITECTURES if number <= 10 * major + minor]
    if not known:
        raise DeviceError(
            f"{properties.name} is too old for autojit",
            {"its compute capability": f"{major}.{minor}", "needed": "7.5 or newer"},
            "compute on the CPU: device='cpu'",
        )
    return CudaTarget(f"sm_{known[-1]}", properties.processors)


@in_forked_child
def _refuse_in_child() -> None:
    """The driver's contexts do not survive a fork. The emulator's would, but what it lets pass has to run elsewhere."""
    driver = _process.driver
    if driver is None or not _process.devices:
        return
    count = driver.count()
    driver.lose(_forked)
    _process.forget()
    _process.was_looked_for, _process.lost = True, count


def _forked() -> DeviceError:
    return DeviceError(
        "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' "
        "start method",
        fix="multiprocessing.get_context('spawn'), or compute on the CPU in children",
    )
