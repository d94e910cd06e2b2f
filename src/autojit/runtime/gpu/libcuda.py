"""NVIDIA's driver as a `Driver`: its C interface, called with ctypes.

How to read this file: ``SIGNATURES`` lists the functions in use and what they take. A name's suffix (``_v2``) is the
version of the interface that is meant, so a newer driver behaves as the one this was written for. `LibCuda` gives them
Python's numbers and bytes, and turns what they report into errors. Graphs are in `libcuda_graphs`.
"""

from __future__ import annotations

import bisect
import ctypes
from collections.abc import Callable, Sequence
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p
from typing import Any

from autojit.core.errors import CompileError, DeviceError
from autojit.core.locks import new_lock
from autojit.runtime.gpu.driver import DeviceProperties, Graph, GraphNode
from autojit.runtime.gpu.libcuda_graphs import GraphMaker
from autojit.runtime.gpu.results import NOT_READY, OUT_OF_MEMORY, is_fault, result_name, result_text
from autojit.runtime.llvm import kept_text

LEAST_VERSION = 12000
"""CUDA 12.0 came with driver 525: the first whose graphs have the nodes in use."""

_OUT, _SIZE_OUT, _INT_OUT = POINTER(c_void_p), POINTER(c_size_t), POINTER(c_int)

SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (_INT_OUT,),
    "cuDeviceGet": (_INT_OUT, c_int),
    "cuDeviceGetCount": (_INT_OUT,),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetAttribute": (_INT_OUT, c_int, c_int),
    "cuDeviceTotalMem_v2": (_SIZE_OUT, c_int),
    "cuDevicePrimaryCtxRetain": (_OUT, c_int),
    "cuCtxSynchronize": (),
    "cuCtxSetCurrent": (c_void_p,),
    "cuCtxGetCurrent": (_OUT,),
    "cuMemGetInfo_v2": (_SIZE_OUT, _SIZE_OUT),
    "cuMemAlloc_v2": (POINTER(c_uint64), c_size_t),
    "cuMemFree_v2": (c_uint64,),
    "cuMemHostAlloc": (_OUT, c_size_t, c_uint),
    "cuMemFreeHost": (c_void_p,),
    "cuPointerGetAttribute": (c_void_p, c_int, c_uint64),
    "cuMemcpyHtoDAsync_v2": (c_uint64, c_void_p, c_size_t, c_void_p),
    "cuMemcpyDtoHAsync_v2": (c_void_p, c_uint64, c_size_t, c_void_p),
    "cuMemcpyDtoDAsync_v2": (c_uint64, c_uint64, c_size_t, c_void_p),
    "cuMemsetD8Async": (c_uint64, c_ubyte, c_size_t, c_void_p),
    "cuLinkCreate_v2": (c_uint, POINTER(c_int), _OUT, _OUT),
    "cuLinkAddData_v2": (c_void_p, c_int, c_char_p, c_size_t, c_char_p, c_uint, POINTER(c_int), _OUT),
    "cuLinkComplete": (c_void_p, _OUT, _SIZE_OUT),
    "cuLinkDestroy": (c_void_p,),
    "cuModuleLoadData": (_OUT, c_char_p),
    "cuModuleUnload": (c_void_p,),
    "cuModuleGetFunction": (_OUT, c_void_p, c_char_p),
    "cuFuncGetAttribute": (_INT_OUT, c_int, c_void_p),
    "cuFuncSetAttribute": (c_void_p, c_int, c_int),
    "cuLaunchKernel": (c_void_p, *[c_uint] * 7, c_void_p, c_void_p, c_void_p),
    "cuLaunchCooperativeKernel": (c_void_p, *[c_uint] * 7, c_void_p, c_void_p),
    "cuStreamCreate": (_OUT, c_uint),
    "cuStreamDestroy_v2": (c_void_p,),
    "cuStreamSynchronize": (c_void_p,),
    "cuStreamQuery": (c_void_p,),
    "cuStreamWaitEvent": (c_void_p, c_void_p, c_uint),
    "cuEventCreate": (_OUT, c_uint),
    "cuEventDestroy_v2": (c_void_p,),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventSynchronize": (c_void_p,),
    "cuEventQuery": (c_void_p,),
    "cuEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
    "cuGraphCreate": (_OUT, c_uint),
    "cuGraphAddKernelNode_v2": (_OUT, c_void_p, c_void_p, c_size_t, c_void_p),
    "cuGraphKernelNodeSetAttribute": (c_void_p, c_int, c_void_p),
    "cuGraphAddDependencies_v2": (c_void_p, _OUT, _OUT, c_void_p, c_size_t),
    "cuGraphAddMemcpyNode": (_OUT, c_void_p, c_void_p, c_size_t, c_void_p, c_void_p),
    "cuGraphAddMemsetNode": (_OUT, c_void_p, c_void_p, c_size_t, c_void_p, c_void_p),
    "cuGraphAddNode": (_OUT, c_void_p, c_void_p, c_size_t, c_void_p),
    "cuGraphConditionalHandleCreate": (POINTER(c_uint64), c_void_p, c_void_p, c_uint, c_uint),
    "cuGraphInstantiateWithFlags": (_OUT, c_void_p, c_uint64),
    "cuGraphExecKernelNodeSetParams_v2": (c_void_p, c_void_p, c_void_p),
    "cuGraphLaunch": (c_void_p, c_void_p),
    "cuGraphExecDestroy": (c_void_p,),
    "cuGraphDestroy": (c_void_p,),
}  # fmt: skip

_PROCESSORS, _MAJOR, _MINOR, _SHARED_BYTES = 16, 75, 76, 97  # CUdevice_attribute
_LOCAL_BYTES, _MOST_SHARED_BYTES = 3, 8  # CUfunction_attribute
_LOG, _LOG_BYTES = 5, 6  # CUjit_option: of errors
_PTX = 1  # CUjitInputType
_NON_BLOCKING_STREAM, _EVENT_WITHOUT_TIME = 1, 2
_LOG_ROOM_BYTES = 16 << 10


class LibCuda:
    """The devices of NVIDIA's driver (see `Driver`).

    Args:
        library: its functions, each callable and with an address, such as a ``ctypes.CDLL``.

    Raises:
        DeviceError: the driver is older than `LEAST_VERSION`, or does not start.
    """

    is_emulated = False

    def __init__(self, library: Any) -> None:
        self._functions: dict[str, Any] = {}
        self._library = library
        self._lost: Callable[[], DeviceError] | None = None
        self.call("cuInit", 0)
        version = c_int(0)
        self.call("cuDriverGetVersion", byref(version))
        self.version = version.value
        if self.version < LEAST_VERSION:
            raise DeviceError(
                "the NVIDIA driver is too old",
                {"its CUDA": _version_text(self.version), "needed": f"{_version_text(LEAST_VERSION)} (driver 525)"},
                "install a newer driver, or compute on the CPU: device='cpu'",
            )
        self._lock = new_lock()
        self._contexts: dict[int, int] = {}
        self._pinned: list[tuple[int, int]] = []  # (address, end), in order
        self._graphs = GraphMaker(self.call)

    # -- calls

    def function(self, module: int, name: str) -> int:
        """See `Driver`."""
        found = c_void_p()
        self.call("cuModuleGetFunction", byref(found), module, name.encode())
        return found.value or 0

    def local_bytes(self, function: int) -> int:
        """See `Driver`."""
        found = c_int(0)
        self.call("cuFuncGetAttribute", byref(found), _LOCAL_BYTES, function)
        return found.value

    def allow_shared(self, function: int, size_bytes: int) -> None:
        """See `Driver`."""
        self.call("cuFuncSetAttribute", function, _MOST_SHARED_BYTES, size_bytes)

    def _function(self, name: str) -> Any:
        found = self._functions.get(name)
        if found is None:
            try:
                found = getattr(self._library, name)
            except AttributeError:
                raise DeviceError(
                    f"the NVIDIA driver has no function {name}", fix="install driver 525 or a newer one"
                ) from None
            found.argtypes, found.restype = SIGNATURES[name], c_int
            self._functions[name] = found
        return found

    def result(self, name: str, *arguments: Any) -> int:
        """What a function of the library reports: 0 is success."""
        if self._lost is not None:
            raise self._lost()
        return int(self._function(name)(*arguments))

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the library.

        Raises:
            MemoryError: the driver has no memory left.
            DeviceError: it reports anything else.
        """
        result = self.result(name, *arguments)
        if result == OUT_OF_MEMORY:
            raise MemoryError(f"{name}: {result_name(result)}")
        if result:
            raise DeviceError(f"{name} failed", {"CUDA error": result_text(result)}, advice(result))

    def native(self, name: str) -> int:
        """See `Driver`."""
        return ctypes.cast(self._function(name), c_void_p).value or 0

    def answers(self) -> int:
        """See `Driver`."""
        return 0

    def take_failure(self) -> BaseException | None:
        """See `Driver`."""
        return None if self._lost is None else self._lost()

    def lose(self, why: Callable[[], DeviceError]) -> None:
        """See `Driver`."""
        self._lost = why

    # -- devices

    def count(self) -> int:
        """See `Driver`."""
        number = c_int(0)
        self.call("cuDeviceGetCount", byref(number))
        return number.value

    def _handle(self, device: int) -> int:
        found = c_int(0)
        self.call("cuDeviceGet", byref(found), device)
        return found.value

    def properties(self, device: int) -> DeviceProperties:
        """See `Driver`."""
        handle, name, memory = self._handle(device), ctypes.create_string_buffer(256), c_size_t(0)
        self.call("cuDeviceGetName", name, len(name), handle)
        self.call("cuDeviceTotalMem_v2", byref(memory), handle)
        processors, major, minor, shared = (
            self._attribute(handle, which) for which in (_PROCESSORS, _MAJOR, _MINOR, _SHARED_BYTES)
        )
        return DeviceProperties(name.value.decode(), f"sm_{major}{minor}", memory.value, processors, shared)

    def _attribute(self, handle: int, which: int) -> int:
        found = c_int(0)
        self.call("cuDeviceGetAttribute", byref(found), which, handle)
        return found.value

    def context(self, device: int) -> int:
        """See `Driver`."""
        with self._lock:
            found = self._contexts.get(device)
            if found is None:
                made = c_void_p()
                self.call("cuDevicePrimaryCtxRetain", byref(made), self._handle(device))
                found = self._contexts[device] = made.value or 0
            return found

    def use(self, device: int) -> None:
        """See `Driver`."""
        self.call("cuCtxSetCurrent", self.context(device))

    # -- memory

    def allocate(self, size_bytes: int) -> int:
        """See `Driver`."""
        address = c_uint64(0)
        self.call("cuMemAlloc_v2", byref(address), max(size_bytes, 1))
        return address.value

    def release(self, address: int) -> None:
        """See `Driver`."""
        self.call("cuMemFree_v2", address)

    def allocate_pinned(self, size_bytes: int) -> int:
        """See `Driver`."""
        address = c_void_p()
        self.call("cuMemHostAlloc", byref(address), max(size_bytes, 1), 0)
        start = address.value or 0
        with self._lock:
            bisect.insort(self._pinned, (start, start + max(size_bytes, 1)))
        return start

    def release_pinned(self, address: int) -> None:
        """See `Driver`."""
        with self._lock:
            self._pinned = [item for item in self._pinned if item[0] != address]
        self.call("cuMemFreeHost", address)

    def _is_pinned(self, address: int) -> bool:
        with self._lock:
            before = bisect.bisect_right(self._pinned, (address, 1 << 64)) - 1
            return before >= 0 and address < self._pinned[before][1]

    def free_and_total(self) -> tuple[int, int]:
        """See `Driver`."""
        free, total = c_size_t(0), c_size_t(0)
        self.call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value, total.value

    def copy_in(self, target: int, source: int, size_bytes: int, stream: int) -> None:
        """See `Driver`. What is not pinned is staged by the driver before the call returns; what is, is waited for."""
        self.call("cuMemcpyHtoDAsync_v2", target, source, size_bytes, stream)
        if self._is_pinned(source):
            self.synchronize(stream)

    def copy_out(self, target: int, source: int, size_bytes: int, stream: int) -> None:
        """See `Driver`."""
        self.call("cuMemcpyDtoHAsync_v2", target, source, size_bytes, stream)

    def copy_within(self, target: int, source: int, size_bytes: int, stream: int) -> None:
        """See `Driver`."""
        self.call("cuMemcpyDtoDAsync_v2", target, source, size_bytes, stream)

    def fill(self, target: int, byte: int, size_bytes: int, stream: int) -> None:
        """See `Driver`."""
        self.call("cuMemsetD8Async", target, byte, size_bytes, stream)

    # -- code

    def assemble(self, ptx: str, architecture: str) -> bytes:
        """See `Driver`. The code is for the device of the thread's context, which is of the architecture."""
        log = ctypes.create_string_buffer(_LOG_ROOM_BYTES)
        options = (c_int * 2)(_LOG, _LOG_BYTES)
        values = (c_void_p * 2)(ctypes.addressof(log), _LOG_ROOM_BYTES)
        state = c_void_p()
        self.call("cuLinkCreate_v2", 2, options, values, byref(state))
        try:
            text = ptx.encode() + b"\0"
            result = self.result("cuLinkAddData_v2", state, _PTX, text, len(text), b"kernel.ptx", 0, None, None)
            code, size = c_void_p(), c_size_t(0)
            if not result:
                result = self.result("cuLinkComplete", state, byref(code), byref(size))
            if result:
                raise _rejected(ptx, architecture, result, log.value.decode(errors="replace"))
            return ctypes.string_at(code.value or 0, size.value)
        finally:
            self.call("cuLinkDestroy", state)

    def load(self, code: bytes) -> int:
        """See `Driver`."""
        module = c_void_p()
        self.call("cuModuleLoadData", byref(module), code)
        return module.value or 0

    def unload(self, module: int) -> None:
        """See `Driver`."""
        self.call("cuModuleUnload", module)

    def launch(self, function: int, blocks: tuple[int, int, int], threads: int, parameters: int, stream: int) -> None:
        """See `Driver`."""
        self.call("cuLaunchKernel", function, *blocks, threads, 1, 1, 0, stream, parameters, None)

    # -- queues

    def make_stream(self) -> int:
        """See `Driver`."""
        stream = c_void_p()
        self.call("cuStreamCreate", byref(stream), _NON_BLOCKING_STREAM)
        return stream.value or 0

    def destroy_stream(self, stream: int) -> None:
        """See `Driver`."""
        self.call("cuStreamDestroy_v2", stream)

    def synchronize(self, stream: int) -> None:
        """See `Driver`."""
        self.call("cuStreamSynchronize", stream)

    def synchronize_all(self) -> None:
        """See `Driver`."""
        self.call("cuCtxSynchronize")

    def is_idle(self, stream: int) -> bool:
        """See `Driver`."""
        return self._is_ready("cuStreamQuery", stream)

    def make_event(self, is_timed: bool) -> int:
        """See `Driver`."""
        event = c_void_p()
        self.call("cuEventCreate", byref(event), 0 if is_timed else _EVENT_WITHOUT_TIME)
        return event.value or 0

    def destroy_event(self, event: int) -> None:
        """See `Driver`."""
        self.call("cuEventDestroy_v2", event)

    def record(self, event: int, stream: int) -> None:
        """See `Driver`."""
        self.call("cuEventRecord", event, stream)

    def wait_for_event(self, stream: int, event: int) -> None:
        """See `Driver`."""
        self.call("cuStreamWaitEvent", stream, event, 0)

    def synchronize_event(self, event: int) -> None:
        """See `Driver`."""
        self.call("cuEventSynchronize", event)

    def is_reached(self, event: int) -> bool:
        """See `Driver`."""
        return self._is_ready("cuEventQuery", event)

    def _is_ready(self, name: str, what: int) -> bool:
        result = self.result(name, what)
        if result not in (0, NOT_READY):
            raise DeviceError(f"{name} failed", {"CUDA error": result_text(result)}, advice(result))
        return result == 0

    def elapsed_ms(self, start: int, end: int) -> float:
        """See `Driver`."""
        found = c_float(0.0)
        self.call("cuEventElapsedTime", byref(found), start, end)
        return found.value

    # -- graphs

    def make_graph(self, nodes: Sequence[GraphNode]) -> Graph:
        """See `Driver`."""
        return self._graphs.make(nodes)

    def launch_graph(self, graph: Graph, stream: int) -> None:
        """See `Driver`."""
        self.call("cuGraphLaunch", graph.number, stream)

    def destroy_graph(self, graph: Graph) -> None:
        """See `Driver`."""
        self._graphs.destroy(graph)


def advice(result: int) -> str:
    """What a user can do about a result."""
    if is_fault(result):
        return (
            "the device refuses all further work of this process: restart it, and run the program with "
            "AUTOJIT_CUDA=emulate, which names the kernel, the thread and your line"
        )
    return "see the error's name in the CUDA driver API reference"


def _rejected(ptx: str, architecture: str, result: int, log: str) -> CompileError:
    return CompileError(
        "the driver's compiler rejects a kernel",
        {
            "architecture": architecture,
            "CUDA error": result_text(result),
            "log": " ".join(log.split()) or "empty",
            "PTX": next((line for line in ptx.splitlines() if line.startswith(".version")), "without a version"),
            "text": kept_text(ptx, ".ptx"),
        },
        "install a newer driver; if it is new, this is a defect of autojit: report it with the file",
    )


def _version_text(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"
