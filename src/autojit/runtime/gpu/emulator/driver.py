"""The emulated device as a driver: every call does its work at once, and says at once what is wrong with it."""

from __future__ import annotations

import ctypes
import itertools
import struct
from collections import Counter
from collections.abc import Callable

import numpy as np

from autojit.codegen.cuda.early_start import WAIT
from autojit.core.errors import ArgumentError, DeviceError
from autojit.core.locks import new_lock
from autojit.ir.op import Ndarray
from autojit.runtime.gpu.driver import DeviceProperties
from autojit.runtime.gpu.emulator.graph_calls import GraphCalls
from autojit.runtime.gpu.emulator.graphs import Footprint
from autojit.runtime.gpu.emulator.instructions import refuse_unknown
from autojit.runtime.gpu.emulator.machine import Launch, run
from autojit.runtime.gpu.emulator.memory import EmulatedMemory, that_fit
from autojit.runtime.gpu.emulator.native import NativeInterface
from autojit.runtime.gpu.emulator.ptx_reader import parse
from autojit.runtime.gpu.emulator.ptx_text import FunctionText, Module
from autojit.runtime.gpu.emulator.stream_calls import StreamCalls
from autojit.runtime.gpu.emulator.streams import FIRST_OWN, StreamOrder

_MAGIC = b"autojit emulated code 1\n"
_MOST_THREADS = 1024
_PROCESSORS = 132
"""Of an H200. As many blocks run at once for sure: how many more do depends on registers, which nobody knows here."""
_SHARED_BYTES = 227 << 10  # what a block of sm_90 may have (CUDA C++ Programming Guide, compute capabilities)
_MOST_GRID = (2**31 - 1, 65535, 65535)


class EmulatedDriver(StreamCalls, GraphCalls):
    """One emulated device.

    Args:
        architecture: what code is for.
        order: the seed of random orders of lanes, blocks and nodes; None: lowest first.
        memory_bytes: of the device; less where the process may not have the address space for it.
        pinned_bytes: most pinned memory of the host; the same holds.
        is_idle: no kernel is run; what is launched is counted, and what is copied is whatever is there.
        version: of CUDA, that it claims to be of.

    Attributes:
        counts: how often what was done: "launches", "graph launches", "instantiations", "node updates", "copies in",
            "copies out", "copies within", "fills", "waits", "assemblies", "allocations".
    """

    is_emulated = True

    def __init__(
        self,
        architecture: str = "sm_90",
        order: int | None = None,
        *,
        memory_bytes: int = 4 << 30,
        pinned_bytes: int = 1 << 30,
        is_idle: bool = False,
        version: int = 12080,
    ) -> None:
        self.version = version
        self.architecture = architecture
        self.counts: Counter[str] = Counter()
        self.memory = EmulatedMemory(*that_fit(memory_bytes, pinned_bytes))
        self._seed, self._is_idle = order, is_idle
        self._launches = 0
        self._numbers = itertools.count(FIRST_OWN)
        self._modules: dict[int, tuple[Module, dict[str, np.uint64]]] = {}
        self._functions: dict[int, tuple[int, FunctionText]] = {}
        self.begin_graphs()
        self.streams = StreamOrder()
        self._lost: Callable[[], DeviceError] | None = None
        self._native = NativeInterface(self)
        self._lock = new_lock()  # one launch or copy at a time, whoever asks

    # -- devices

    def count(self) -> int:
        """One."""
        return 1

    def properties(self, device: int) -> DeviceProperties:
        """What it claims to be."""
        self._known_device(device)
        name = f"emulated {self.architecture}"
        return DeviceProperties(
            name, self.architecture, self.memory.limit_bytes, _PROCESSORS, _SHARED_BYTES, is_emulated=True
        )

    def use(self, device: int) -> None:
        """There is only one."""
        self.require_own()
        self._known_device(device)

    def lose(self, why: Callable[[], DeviceError]) -> None:
        """Raise this from now on, as a GPU would be lost to a forked process."""
        self._lost = why

    def require_own(self) -> None:
        """Raise why the device is not this process's, if it is not."""
        if self._lost is not None:
            raise self._lost()

    def context(self, device: int) -> int:
        """None: threads need nothing."""
        self._known_device(device)
        return 0

    def _known_device(self, device: int) -> None:
        if device != 0:
            raise DeviceError("there is one emulated device, cuda:0", facts={"device": device}, fix="use cuda:0")

    # -- memory

    def allocate(self, size_bytes: int) -> int:
        """The address of a fresh block.

        Raises:
            MemoryError: there is not as much.
        """
        self.counts["allocations"] += 1
        before = self.memory.reuses
        address = self.memory.allocate(size_bytes)
        if self.memory.reuses != before:
            self.streams.host_waited_for_all()  # as the driver waits before it gives memory to somebody else
        return address

    def release(self, address: int) -> None:
        """Take a block back; who uses it from now on is reported."""
        self.memory.release(address)

    def allocate_pinned(self, size_bytes: int) -> int:
        """Memory that both sides reach at one address."""
        return self.memory.allocate_pinned(size_bytes)

    def release_pinned(self, address: int) -> None:
        """Take pinned memory back."""
        self.memory.release(address)

    def free_and_total(self) -> tuple[int, int]:
        """Bytes."""
        return self.memory.limit_bytes - self.memory.used_bytes, self.memory.limit_bytes

    def copy_in(self, target: int, source: int, size_bytes: int, stream: int) -> None:
        """Host to device."""
        with self._lock:
            self.counts["copies in"] += 1
            self.memory.copy_in(target, source, size_bytes)
            self._copied(stream, "a copy to the device", target, None, size_bytes)

    def copy_out(self, target: int, source: int, size_bytes: int, stream: int) -> None:
        """Device to host."""
        with self._lock:
            self.counts["copies out"] += 1
            self.memory.copy_out(target, source, size_bytes)
            self._copied(stream, "a copy from the device", None, source, size_bytes)

    def copy_within(self, target: int, source: int, size_bytes: int, stream: int) -> None:
        """Device to device."""
        with self._lock:
            self.counts["copies within"] += 1
            self.memory.copy_within(target, source, size_bytes)
            self._copied(stream, "a copy within the device", target, source, size_bytes)

    def fill(self, target: int, byte: int, size_bytes: int, stream: int) -> None:
        """One byte everywhere."""
        with self._lock:
            self.counts["fills"] += 1
            self.memory.fill(target, byte, size_bytes)
            self._copied(stream, "a fill", target, None, size_bytes)

    def _copied(self, stream: int, name: str, target: int | None, source: int | None, size_bytes: int) -> None:
        touched = Footprint()
        if self.streams.is_watching:
            for address, is_write in ((source, False), (target, True)):
                if address is not None:
                    touched.add_range(address, size_bytes, is_write)
        self.streams.did(stream, name, [touched])

    def read(self, address: int, dtype: str, shape: tuple[int, ...]) -> Ndarray:
        """Elements of the device's memory, for tests."""
        return self.memory.read(address, dtype, shape)

    def write(self, address: int, values: Ndarray) -> None:
        """Elements into the device's memory, for tests."""
        self.memory.write(address, values)

    # -- code

    def assemble(self, ptx: str, architecture: str) -> bytes:
        """The text itself, once it is parsed and known to be understood.

        Raises:
            CompileError: the text has no kernel, or what the emulated device does not know.
        """
        self.counts["assemblies"] += 1
        refuse_unknown(parse(ptx))
        return _MAGIC + ptx.encode()

    def load(self, code: bytes) -> int:
        """A module, with its variables in the device's memory."""
        if not code.startswith(_MAGIC):
            raise ArgumentError("this is no code of an emulated device", fix="assemble the text with this driver")
        module = parse(code[len(_MAGIC) :].decode())
        places: dict[str, np.uint64] = {}
        for name, variable in module.declared.variables.items():
            address = self.memory.allocate(variable.size_bytes)
            self.memory.write(address, np.frombuffer(variable.content or bytes(variable.size_bytes), "u1"))
            places[name] = np.uint64(address)
        number = next(self._numbers)
        self._modules[number] = (module, places)
        return number

    def unload(self, module: int) -> None:
        """Forget a module and its variables."""
        _, places = self._modules.pop(module)
        for address in places.values():
            self.memory.release(int(address))
        self._functions = {number: found for number, found in self._functions.items() if found[0] != module}

    def function(self, module: int, name: str) -> int:
        """A kernel's number."""
        found = self._modules[module][0].functions.get(name)
        if found is None or not found.is_kernel:
            raise ArgumentError("a module has no such kernel", facts={"kernel": name})
        number = next(self._numbers)
        self._functions[number] = (module, found)
        return number

    def local_bytes(self, function: int) -> int:
        """None: lanes have as many registers as their text names."""
        return 0

    def allow_shared(self, function: int, size_bytes: int) -> None:
        """Any launch may ask for what the device has."""

    def name(self, function: int) -> str:
        """A kernel's name."""
        return self._functions[function][1].name

    def waits(self, function: int) -> bool:
        """Whether a kernel waits for those in front of it, as its text says."""
        module, _ = self._functions[function]
        blocks = self._modules[module][0].blocks
        return any(".".join(each.opcode) == WAIT for block in blocks for each in block.instructions)

    def launch(self, function: int, blocks: tuple[int, int, int], threads: int, parameters: int, stream: int) -> None:
        """Run a kernel.

        Raises:
            EmulatedFault: it did what it must not do.
        """
        self.launch_extents(function, blocks, (threads, 1, 1), 0, parameters, stream)

    def launch_extents(
        self,
        function: int,
        blocks: tuple[int, int, int],
        threads: tuple[int, int, int],
        shared_bytes: int,
        parameters: int,
        stream: int,
        *,
        is_cooperative: bool = False,
    ) -> None:
        """Run a kernel whose blocks have several axes, or shared memory beyond what it declares, or meet."""
        with self._lock:
            self.counts["launches"] += 1
            self.streams.clock(stream)
            touched = Footprint() if self.streams.is_watching else None
            arguments = self.arguments(function, parameters)
            self._run(function, blocks, threads, arguments, shared_bytes, touched, is_cooperative=is_cooperative)
            self.streams.did(stream, self.name(function), [] if touched is None else [touched])

    def arguments(self, function: int, parameters: int) -> bytes:
        """The bytes of a launch's arguments, from the address of the words that hold their addresses."""
        _, text = self._functions[function]
        content = bytearray(text.parameter_bytes)
        words = struct.unpack(f"{len(text.parameters)}Q", ctypes.string_at(parameters, 8 * len(text.parameters)))
        for (begin, size), address in zip(text.parameters.values(), words):
            content[begin : begin + size] = ctypes.string_at(self.memory.host_address(address, size), size)
        return bytes(content)

    def _run(
        self,
        function: int,
        blocks: tuple[int, int, int],
        threads: tuple[int, int, int],
        arguments: bytes,
        shared_bytes: int = 0,
        footprint: Footprint | None = None,
        *,
        is_cooperative: bool = False,
    ) -> None:
        """Run a kernel, with the bytes of its arguments."""
        module, text = self._functions[function]
        parsed, variables = self._modules[module]
        count = threads[0] * threads[1] * threads[2]
        largest = min(text.most_threads or _MOST_THREADS, _MOST_THREADS)
        is_possible = all(1 <= extent <= most for extent, most in zip(blocks, _MOST_GRID)) and 1 <= count <= largest
        if not is_possible or parsed.declared.shared_bytes + shared_bytes > _SHARED_BYTES:
            facts = {"kernel": text.name, "blocks": blocks, "threads": threads, "most threads": largest}
            raise DeviceError("a launch asks for what the device has not", facts=facts, fix="launch a smaller grid")
        if is_cooperative and blocks[0] * blocks[1] * blocks[2] > _PROCESSORS:
            facts = {"kernel": text.name, "blocks": blocks, "processors": _PROCESSORS}
            raise DeviceError("more blocks are to run at once than there are processors", facts, "launch fewer")
        self._launches += 1
        if self._is_idle:
            return
        seed = None if self._seed is None else self._seed + self._launches
        content = np.frombuffer(arguments, "u1")
        how = shared_bytes, seed, is_cooperative, self._conditions
        launch = Launch(parsed, text, function, blocks, threads, content, variables, *how)
        run(launch, self.memory, footprint)

    # -- for native code

    def native(self, name: str) -> int:
        """The address of a function with the C interface of NVIDIA's library.

        Raises:
            DeviceError: the emulated device has none of this name.
        """
        return self._native.address(name)

    def answers(self) -> int:
        """Where native calls that have come to their end are counted: a signal may leave one out."""
        return self._native.answers_address

    def take_failure(self) -> BaseException | None:
        """What made the last call of a native function fail; asked once."""
        return self._native.take_failure()

    def close(self) -> None:
        """Give the memory back; nothing may be asked of this driver any more."""
        self.memory.close()
