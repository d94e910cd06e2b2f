"""What devices do for one plan: their runs and transfers, bound to the memory of its step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autojit.codegen.cuda.host_ir import COPY_WITHIN
from autojit.codegen.lowered import DeviceRun, Entry, Mover, Transfer
from autojit.core.device import Device
from autojit.runtime.executable import DeviceCounts
from autojit.runtime.gpu.channel import DeviceChannel, host_object
from autojit.runtime.gpu.devices import cuda_device
from autojit.runtime.gpu.plan import CopyPlan, DevicePlan, TransferPlan

if TYPE_CHECKING:
    from autojit.runtime.plan import PlanBuilder


class DevicePlans:
    """Writes the contexts of a plan's entries that devices take part in, and keeps what they point to.

    Args:
        builder: writes the plan; it knows where values are.
        outer: those of the plan around it; they have its runs too.
    """

    def __init__(self, builder: PlanBuilder, outer: DevicePlans | None = None) -> None:
        self._builder = builder
        self._channels: dict[Device, DeviceChannel] = {} if outer is None else outer._channels
        self._nodes = {
            entry.arguments[0]: nodes
            for entry, nodes in zip(builder.lowered.entries, builder.lowered.origins, strict=True)
            if isinstance(entry, Entry) and entry.arguments
        }
        self.runs: list[DevicePlan] = [] if outer is None else outer.runs
        self._copies: list[CopyPlan] = []

    def _channel(self, device: Device) -> DeviceChannel:
        """The way to a device: one for all entries of the plan."""
        found = self._channels.get(device)
        if found is None:
            found = self._channels[device] = DeviceChannel(cuda_device(device.index or 0), self._builder.failures)
        return found

    def context(self, part: DeviceRun | Transfer) -> int:
        """The address of the context of an entry."""
        channel, nodes = self._channel(part.device), self._nodes[part]
        if isinstance(part, DeviceRun):
            run = DevicePlan(self._builder, part, channel, nodes)
            self.runs.append(run)
            return run.address
        transfer = TransferPlan(self._builder, part.target, part.source, channel, nodes)
        self._copies.append(transfer)
        return transfer.address

    def mover(self, mover: Mover) -> tuple[int, int]:
        """The native code that copies within a device's memory, and the address of its context."""
        copy = CopyPlan(self._channel(mover.device), mover.size_bytes)
        self._copies.append(copy)
        return self.body(COPY_WITHIN.symbol), copy.address

    def run_at(self, context: int) -> DevicePlan | None:
        """The run whose context is at an address, if one is."""
        return next((run for run in self.runs if run.address == context), None)

    @staticmethod
    def body(name: str) -> int:
        """The address of the native code that an entry runs."""
        return host_object().address(name)

    def moved(self) -> None:
        """State is elsewhere: the words that hold its addresses have been written."""
        for run in self.runs:
            run.moved()

    def counts(self) -> DeviceCounts:
        """What the runs have done so far."""
        stats = [run.stats for run in self.runs]
        rows = [(s.runs, s.graph_launches, s.instantiations, s.launches, s.bytes) for s in stats]
        return DeviceCounts(*map(sum, zip(*rows, strict=True)))

    def lines(self) -> list[list[str]]:
        """Of each run its launches and their kernels, for users."""
        return [run.lines() for run in self.runs]

    def texts(self, stage: str) -> list[str]:
        """The kernels of the runs, each once, as LLVM gets them or gives them."""
        return list(dict.fromkeys(text for run in self.runs for text in (run.ptx() if stage == "ptx" else run.texts())))
