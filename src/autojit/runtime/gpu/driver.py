"""What autojit asks of a GPU's driver: one interface, for NVIDIA's library and for the emulated device.

Numbers name what a driver makes: addresses of memory, modules, functions, streams, events, graphs. Stream 0 is the
driver's own default stream. Every call but `count` and `properties` speaks of the device that `use` made the thread's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from autojit.core.errors import DeviceError
from autojit.core.records import record


@record
class DeviceProperties:
    """One device.

    Args:
        name: as the driver says it.
        architecture: compute capability as LLVM names it, such as ``sm_90``.
        memory_bytes: all of its memory.
        processors: streaming multiprocessors.
        shared_bytes: shared memory that a block may have.
        is_emulated: whether the host computes what it does.
    """

    name: str
    architecture: str
    memory_bytes: int
    processors: int
    shared_bytes: int
    is_emulated: bool = False

    @property
    def capability(self) -> tuple[int, int]:
        """Major and minor number of the compute capability."""
        digits = "".join(c for c in self.architecture if c.isdigit())
        return int(digits[:-1]), int(digits[-1])


@record
class KernelNode:
    """A launch in a graph; ``parameters`` is the address of the words that hold the addresses of its arguments.

    ``after``: positions of the nodes that come before it. ``is_cooperative``: all blocks run at once.
    ``starts_early``: its blocks may start while those of the launches before it end, because it waits for that
    itself (`codegen.cuda.early_start`). ``shared_bytes``: of shared memory, beyond what the text has.
    """

    function: int
    blocks: tuple[int, int, int]
    threads: int
    parameters: int
    after: tuple[int, ...] = ()
    is_cooperative: bool = False
    starts_early: bool = False
    shared_bytes: int = 0


@record
class CopyNode:
    """A copy in a graph, between memory of the device and pinned memory of the host, or within the device's."""

    target: int
    source: int
    size_bytes: int
    after: tuple[int, ...] = ()


@record
class FillNode:
    """Bytes that a graph sets to zero."""

    target: int
    size_bytes: int
    after: tuple[int, ...] = ()


@record
class ConditionalNode:
    """Nodes that a graph runs while a condition is set, or once if it is.

    Kernels set the condition by `SET_CONDITION`, in front of the node and, where it repeats, within its body. It is not
    set when the graph is launched.

    Args:
        body: in order; what they come after are positions among them.
        repeats: as long as the condition is set.
        handles: addresses of the words, arguments of those kernels, that are given the condition's handle.
    """

    body: tuple[GraphNode, ...]
    repeats: bool
    handles: tuple[int, ...]
    after: tuple[int, ...] = ()


GraphNode = KernelNode | CopyNode | FillNode | ConditionalNode

SET_CONDITION = "cudaGraphSetConditional"
"""The function that kernels call, with a handle and 1 or 0: the driver's compiler knows it."""

CONDITIONS_FROM = 12040
"""The version of CUDA whose graphs have conditions."""

EARLY_FROM = 12030
"""The version of CUDA whose graphs have launches that start early."""


@record
class Graph:
    """A graph that can be launched: its number, and those of its nodes."""

    number: int
    nodes: tuple[int, ...]


NATIVE_FUNCTIONS = (
    "cuCtxSetCurrent",
    "cuEventRecord",
    "cuGraphExecKernelNodeSetParams_v2",
    "cuGraphLaunch",
    "cuLaunchCooperativeKernel",
    "cuLaunchKernel",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
    "cuStreamQuery",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
)
"""What the plan's own native code calls (`codegen.cuda.host_ir`)."""


class Driver(Protocol):
    """One for all devices of a process. Errors of the driver are `DeviceError`s that name the call and the cause."""

    is_emulated: bool
    version: int
    """Of CUDA: 12040 is 12.4."""

    def count(self) -> int:
        """How many devices there are."""

    def properties(self, device: int) -> DeviceProperties:
        """What a device is."""

    def use(self, device: int) -> None:
        """Let the calls of this thread be for a device, in the context that libraries of a process share."""

    def lose(self, why: Callable[[], DeviceError]) -> None:
        """Raise this from now on, whatever is asked: the process is a fork of the one whose device it was."""

    def context(self, device: int) -> int:
        """What native code makes current by ``cuCtxSetCurrent`` before it calls; 0 where threads need nothing."""

    # -- memory

    def allocate(self, size_bytes: int) -> int:
        """The address of fresh memory of the device, a multiple of 256.

        Raises:
            MemoryError: there is not as much.
        """

    def release(self, address: int) -> None:
        """Give memory back."""

    def allocate_pinned(self, size_bytes: int) -> int:
        """The address of memory of the host that the device reaches, and that copies need not wait for."""

    def release_pinned(self, address: int) -> None:
        """Give pinned memory back."""

    def free_and_total(self) -> tuple[int, int]:
        """Bytes of the device's memory that are free, and all."""

    def copy_in(self, target: int, source: int, size_bytes: int, stream: int) -> None:
        """Copy from the host to the device, in the stream's order; the source may be reused at once."""

    def copy_out(self, target: int, source: int, size_bytes: int, stream: int) -> None:
        """Copy from the device to the host; it is there when the stream was waited for."""

    def copy_within(self, target: int, source: int, size_bytes: int, stream: int) -> None:
        """Copy from the device to the device."""

    def fill(self, target: int, byte: int, size_bytes: int, stream: int) -> None:
        """Set bytes of the device."""

    # -- code

    def assemble(self, ptx: str, architecture: str) -> bytes:
        """Machine code of a PTX text.

        Raises:
            CompileError: the driver rejects the text; it says why.
        """

    def load(self, code: bytes) -> int:
        """A module of machine code that `assemble` gave, in this process or another."""

    def unload(self, module: int) -> None:
        """Forget a module."""

    def function(self, module: int, name: str) -> int:
        """A kernel of a module."""

    def local_bytes(self, function: int) -> int:
        """The memory that a thread of a kernel has beside its registers: what was spilled of these, and arrays."""

    def allow_shared(self, function: int, size_bytes: int) -> None:
        """Launches of a kernel may ask for so much shared memory."""

    def launch(self, function: int, blocks: tuple[int, int, int], threads: int, parameters: int, stream: int) -> None:
        """Queue a kernel; ``parameters`` is the address of the words that hold the addresses of its arguments."""

    # -- queues

    def make_stream(self) -> int:
        """A queue of work that waits for no other."""

    def destroy_stream(self, stream: int) -> None:
        """Forget a queue; what is in it is still done."""

    def synchronize(self, stream: int) -> None:
        """Wait until a queue is empty.

        Raises:
            DeviceError: something in it failed.
        """

    def synchronize_all(self) -> None:
        """Wait until all queues of the device are empty.

        Raises:
            DeviceError: something in them failed.
        """

    def is_idle(self, stream: int) -> bool:
        """Whether a queue is empty."""

    def make_event(self, is_timed: bool) -> int:
        """A mark that can be put in queues."""

    def destroy_event(self, event: int) -> None:
        """Forget a mark."""

    def record(self, event: int, stream: int) -> None:
        """Put a mark in a queue."""

    def wait_for_event(self, stream: int, event: int) -> None:
        """What is queued from now on waits for a mark."""

    def synchronize_event(self, event: int) -> None:
        """Wait until a mark is reached."""

    def is_reached(self, event: int) -> bool:
        """Whether a mark is reached."""

    def elapsed_ms(self, start: int, end: int) -> float:
        """Milliseconds between two timed marks; an emulated device refuses."""

    # -- graphs

    def make_graph(self, nodes: Sequence[GraphNode]) -> Graph:
        """Nodes as one graph that a single call launches; arguments are those that ``parameters`` hold now."""

    def launch_graph(self, graph: Graph, stream: int) -> None:
        """Queue a graph."""

    def destroy_graph(self, graph: Graph) -> None:
        """Forget a graph."""

    # -- for native code

    def take_failure(self) -> BaseException | None:
        """What made the last call of a native function fail, once; None where only its result is known."""

    def answers(self) -> int:
        """The address of a word that every native function counts up at its end.

        0 where that is sure. A function in Python is left out when a signal comes on the way to it.
        """

    def native(self, name: str) -> int:
        """The address of a function of `NATIVE_FUNCTIONS`, with the C interface of NVIDIA's library."""
