"""What the runs and transfers of one executable share on a device: the driver's functions, and how errors get out.

Native code calls `DeviceChannel` for what it cannot do itself. Nothing may be raised through it: errors are left with
the step's `Failures`, which raise them when the step has ended.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np

from autojit.codegen.cpu.plan.records import INTERRUPTED
from autojit.codegen.cuda.host_ir import host_ir
from autojit.codegen.cuda.host_records import FAILED, Channel, DriverCalls
from autojit.codegen.records import Record
from autojit.core.errors import DeviceError
from autojit.core.once import once
from autojit.ir.graph import Node
from autojit.runtime.callbacks import kept_address
from autojit.runtime.failures import Failures
from autojit.runtime.gpu import present_streams
from autojit.runtime.gpu.devices import CudaDevice, settings
from autojit.runtime.gpu.memory import is_at_its_end
from autojit.runtime.gpu.results import is_fault, result_text
from autojit.runtime.host import cached_host_target
from autojit.runtime.loader import LoadedObject, load
from autojit.runtime.object_cache import default_cache

_FUNCTIONS = {
    DriverCalls.launch: "cuLaunchKernel",
    DriverCalls.launch_together: "cuLaunchCooperativeKernel",
    DriverCalls.launch_graph: "cuGraphLaunch",
    DriverCalls.set_parameters: "cuGraphExecKernelNodeSetParams_v2",
    DriverCalls.copy_in: "cuMemcpyHtoDAsync_v2",
    DriverCalls.copy_out: "cuMemcpyDtoHAsync_v2",
    DriverCalls.copy_within: "cuMemcpyDtoDAsync_v2",
    DriverCalls.fill: "cuMemsetD8Async",
    DriverCalls.synchronize: "cuStreamSynchronize",
    DriverCalls.record: "cuEventRecord",
    DriverCalls.wait: "cuStreamWaitEvent",
    DriverCalls.query: "cuStreamQuery",
}


def host_request() -> tuple[str, int, int]:
    """The module of ``aj_device`` and the transfers, its level and the level of LLVM's passes."""
    return host_ir(), 1, 0


@once
def host_object() -> LoadedObject:
    """The native code that puts work in a device's queue."""
    text, *levels = host_request()
    return load(default_cache().object(text, cached_host_target(), *levels))


class Words:
    """A record in memory that native code reads, and writes."""

    def __init__(self, words: Sequence[int]) -> None:
        self._words = np.array([word & 0xFFFFFFFFFFFFFFFF for word in words], np.uint64)
        self.address = int(self._words.__array_interface__["data"][0])

    def __getitem__(self, place: int) -> int:
        return int(self._words[place])

    def __setitem__(self, place: int, word: int) -> None:
        self._words[place] = word & 0xFFFFFFFFFFFFFFFF


class Asker(Protocol):
    """Who native code asks something for."""

    nodes: Sequence[Node]

    def answer(self, what: int) -> None:
        """Do it."""

    def kernel_named(self, function: int) -> str:
        """Which of its kernels a function of the driver is; empty: none."""

    def kernels(self) -> Sequence[str]:
        """All of them, as a user knows them."""

    def failed(self) -> None:
        """A call of the driver has failed for it: what the device was doing did not come to its end."""


class DeviceChannel:
    """The way of one executable to a device.

    Args:
        device: where to.
        failures: those of the step.
    """

    def __init__(self, device: CudaDevice, failures: Failures) -> None:
        self.device = device
        self._failures = failures
        self._keep: list[Any] = []
        self._askers: weakref.WeakValueDictionary[int, Asker] = weakref.WeakValueDictionary()  # by their records
        driver, context = device.driver, device.driver.context(device.number)
        addresses = {word.name: driver.native(name) for word, name in _FUNCTIONS.items()}
        addresses["set_context"] = driver.native("cuCtxSetCurrent") if context else 0
        addresses["pointer_attribute"] = 0 if driver.is_emulated else driver.native("cuPointerGetAttribute")
        self._calls = Words(_calls(**addresses))
        answers = driver.answers()
        self._words = Words(
            Channel(
                calls=self._calls.address,
                context=context,
                home_stream=device.home_stream,
                stream_key=present_streams.key(),
                stream_place=device.stream_place,
                error=failures.address,
                ask=kept_address(_asking(weakref.ref(self)), self._keep),
                is_answered=0,
                interrupted=INTERRUPTED,
                answers=answers or self._calls.address,
                counts=int(answers != 0),
                waits=int(settings().blocks),
            )
        )
        self.address = self._words.address
        self._mark: int | None = None

    def mark(self) -> int:
        """The event by which a stream waits for the one that the executable's runs went to before."""
        if self._mark is None:
            self.device.use()
            self._mark = self.device.driver.make_event(False)
        return self._mark

    def __del__(self) -> None:
        if getattr(self, "_mark", None) is not None and not is_at_its_end():
            with suppress(DeviceError):  # the device is at its end
                self.device.use()
                self.device.driver.destroy_event(self._mark or 0)

    def register(self, address: int, asker: Asker) -> None:
        """Who is asked for the record at an address."""
        self._askers[address] = asker

    def asked(self, address: int, what: int, number: int) -> None:
        """Native code asks something for the record at an address."""
        try:
            asker = self._askers[address]
            if what == FAILED:
                self._failures.caught(self._error(asker, number & 0xFFFFFFFF, number >> 32))
                if self.device.driver.is_emulated:  # others do nothing any more
                    asker.failed()
            else:
                asker.answer(what)
        except BaseException as error:  # must not cross native code
            self._failures.caught(error)
        self._words[Channel.is_answered.place] = 1

    def _error(self, asker: Asker, result: int, call: int) -> BaseException:
        """The error of a call of the driver: of this run, or of work that was queued before and failed since."""
        found = self.device.driver.take_failure()
        if found is not None:
            return _of_the_user(found, asker)
        name = next((name for word, name in _FUNCTIONS.items() if word.place == call), "cuCtxSetCurrent")
        facts = {
            "CUDA error": result_text(result),
            "in flight": ", ".join(dict.fromkeys(asker.kernels())) or "a copy",
            **_source_facts(asker.nodes),
        }
        if not is_fault(result):
            return DeviceError(f"{name} failed", facts, "see the error's name in the CUDA driver API reference")
        return DeviceError(
            f"a kernel failed on {self.device.properties.name}: {name} reports it",
            facts,
            "the device refuses all further work of this process: restart it, and run the program with "
            "AUTOJIT_CUDA=emulate, which names the kernel, the thread and your line. It may have been a run that was "
            "queued before: AUTOJIT_CUDA=blocking waits after each",
        )


def _asking(channel: weakref.ref[DeviceChannel]) -> Callable[[int, int, int], None]:
    """What native code calls; it does not keep the channel alive."""

    def ask(address: int, what: int, number: int) -> None:
        asked = channel()
        if asked is not None:
            asked.asked(address, what, number)

    return ask


def _calls(**addresses: int) -> Record[int]:
    return DriverCalls(**addresses)


def _of_the_user(found: BaseException, asker: Asker) -> BaseException:
    """What an emulated device found, with the user's words for the kernel."""
    kernel = asker.kernel_named(getattr(found, "function", 0))
    if not kernel or not isinstance(found, DeviceError):
        return found
    told = found.with_facts({"in": kernel, **_source_facts(asker.nodes)})
    for name, value in vars(found).items():  # what else is known of the place
        vars(told).setdefault(name, value)
    return told


def _source_facts(nodes: Sequence[Node]) -> dict[str, str]:
    places = dict.fromkeys(str(node.source) for node in nodes)
    shown = list(places)[:6]
    return {"at": ", ".join(shown) + (", ..." if len(places) > len(shown) else "")} if places else {}
