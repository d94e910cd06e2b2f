"""A stand-in for libcuda with its C interface: memory is the host's, kernels are noted and not run."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from autojit.runtime.gpu.libcuda import SIGNATURES
from autojit.runtime.gpu.structs import ConditionalNodeParams, EdgeData, KernelNodeParams, LaunchAttributeValue

INVALID_VALUE, OUT_OF_MEMORY, INVALID_PTX, NOT_READY = 1, 2, 218, 600


class FakeLibrary:
    """Functions of libcuda that can be called by their addresses; each notes its name in ``calls``.

    Args:
        memory_bytes: that there are.
        version: of the driver's CUDA.
        capability: of every device.
    """

    def __init__(
        self, memory_bytes: int = 1 << 30, version: int = 12080, capability: tuple[int, int] = (9, 0), devices: int = 1
    ) -> None:
        self.memory_bytes = memory_bytes
        self.version = version
        self.capability = capability
        self.devices = devices
        self.calls: list[str] = []
        self.failing: dict[str, int] = {}  # function -> what it reports instead
        self.blocks: dict[int, Any] = {}
        self.modules: dict[int, bytes] = {}  # code by number
        self.spilled_bytes: Callable[[bytes], int] = lambda code: 0
        self.launches: list[
            tuple[int, tuple[int, ...], int]
        ] = []  # function, blocks and threads, address of parameters
        self.attributes: dict[int, tuple[int, int]] = {}  # of nodes
        self.asked: list[int] = []  # shared memory, by launches of graphs
        self.allowed: dict[int, int] = {}  # of kernels, what they may ask for
        self.early: list[tuple[int, int]] = []  # nodes, of which the second starts before the first has ended
        self.nodes: dict[int, tuple[str, tuple[int, ...]]] = {}  # number -> kind, those before
        self.handles: dict[int, int] = {}  # of conditions -> the graph
        self.bodies: dict[int, Any] = {}  # of nodes with conditions
        self.numbers = 100
        self.busy_queries = 1  # that find work in a queue
        for name, arguments in SIGNATURES.items():
            setattr(self, name, ctypes.CFUNCTYPE(ctypes.c_int, *arguments)(self._made(name)))

    def _made(self, name: str) -> Any:
        act = getattr(self, f"do_{name}", None)

        def function(*arguments: Any) -> int:
            self.calls.append(name)
            if name in self.failing:
                return self.failing[name]
            return 0 if act is None else (act(*arguments) or 0)

        return function

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    @property
    def used_bytes(self) -> int:
        return sum(len(block) for block in self.blocks.values())

    # -- devices

    def do_cuDriverGetVersion(self, version: Any) -> None:
        version[0] = self.version

    def do_cuDeviceGet(self, device: Any, number: int) -> None:
        device[0] = number

    def do_cuDeviceGetCount(self, count: Any) -> None:
        count[0] = self.devices

    def do_cuDeviceGetName(self, name: Any, size: int, device: int) -> None:
        return None

    def do_cuDeviceTotalMem_v2(self, size: Any, device: int) -> None:
        size[0] = self.memory_bytes

    def do_cuDeviceGetAttribute(self, value: Any, which: int, device: int) -> None:
        value[0] = {16: 132, 75: self.capability[0], 76: self.capability[1], 97: 232448}[which]

    def do_cuDevicePrimaryCtxRetain(self, context: Any, device: int) -> None:
        context[0] = 7000 + device

    def do_cuCtxGetCurrent(self, context: Any) -> None:
        context[0] = 7000

    # -- memory

    def do_cuMemGetInfo_v2(self, free: Any, total: Any) -> None:
        free[0], total[0] = self.memory_bytes - self.used_bytes, self.memory_bytes

    def do_cuMemAlloc_v2(self, address: Any, size: int) -> int:
        if self.used_bytes + size > self.memory_bytes:
            return OUT_OF_MEMORY
        block = bytearray(size + 256)
        start = ctypes.addressof(ctypes.c_char.from_buffer(block))
        address[0] = -(-start // 256) * 256
        self.blocks[address[0]] = memoryview(block)[:size]
        return 0

    def do_cuMemFree_v2(self, address: int) -> int:
        return 0 if self.blocks.pop(address, None) is not None else INVALID_VALUE

    def do_cuMemHostAlloc(self, address: Any, size: int, flags: int) -> int:
        made = ctypes.c_uint64(0)
        result = self.do_cuMemAlloc_v2(ctypes.pointer(made), size)
        address[0] = made.value
        return result

    def do_cuMemFreeHost(self, address: int) -> int:
        return self.do_cuMemFree_v2(address)

    def do_cuPointerGetAttribute(self, value: int, which: int, address: int) -> int:
        assert which == 2
        is_known = any(start <= address < start + len(block) for start, block in self.blocks.items())
        return 0 if is_known else INVALID_VALUE

    def do_cuMemcpyHtoDAsync_v2(self, target: int, source: int, size: int, stream: int) -> None:
        ctypes.memmove(target, source, size)

    do_cuMemcpyDtoHAsync_v2 = do_cuMemcpyDtoDAsync_v2 = do_cuMemcpyHtoDAsync_v2

    def do_cuMemsetD8Async(self, target: int, byte: int, size: int, stream: int) -> None:
        ctypes.memset(target, byte, size)

    # -- code

    def do_cuLinkCreate_v2(self, count: int, options: Any, values: Any, state: Any) -> None:
        self.log_address = values[0]
        state[0] = self.number()

    def do_cuLinkAddData_v2(self, state: int, kind: int, data: bytes, size: int, *rest: Any) -> int:
        self.code = b"code of " + data
        if b"bad" in data:
            log = b"ptxas error: line 1\0"
            ctypes.memmove(self.log_address, log, len(log))
            return INVALID_PTX
        return 0

    def do_cuLinkComplete(self, state: int, code: Any, size: Any) -> None:
        self.linked = ctypes.create_string_buffer(self.code)
        code[0], size[0] = ctypes.addressof(self.linked), len(self.code)

    def do_cuModuleLoadData(self, module: Any, code: bytes) -> None:
        module[0] = self.number()
        self.modules[module[0]] = code

    def do_cuModuleUnload(self, module: int) -> None:
        del self.modules[module]

    def do_cuModuleGetFunction(self, function: Any, module: int, name: bytes) -> None:
        function[0] = module

    def do_cuFuncGetAttribute(self, value: Any, which: int, function: int) -> None:
        assert which == 3
        value[0] = self.spilled_bytes(self.modules[function])

    def do_cuLaunchKernel(self, function: int, *rest: Any) -> None:
        self.launches.append((function, tuple(rest[:4]), rest[8]))

    # -- queues and graphs

    def do_cuStreamCreate(self, stream: Any, flags: int) -> None:
        stream[0] = self.number()

    def do_cuEventCreate(self, event: Any, flags: int) -> None:
        event[0] = self.number()

    def do_cuStreamQuery(self, stream: int) -> int:
        self.busy_queries -= 1
        return NOT_READY if self.busy_queries >= 0 else 0

    def do_cuEventElapsedTime(self, elapsed: Any, start: int, end: int) -> None:
        elapsed[0] = 1.5

    def do_cuGraphCreate(self, graph: Any, flags: int) -> None:
        graph[0] = self.number()

    def _node(self, kind: str, made: Any, after: int | None, count: int) -> None:
        made[0] = self.number()
        before = (ctypes.c_void_p * count).from_address(after) if after else ()
        self.nodes[made[0]] = kind, tuple(number or 0 for number in before)

    def do_cuGraphAddKernelNode_v2(self, made: Any, graph: int, after: int | None, count: int, how: int) -> None:
        given = KernelNodeParams.from_address(how)
        self.asked.append(given.sharedMemBytes)
        self._node(f"kernel {given.func} {given.gridDimX} x {given.blockDimX}", made, after, count)

    def do_cuFuncSetAttribute(self, function: int, attribute: int, value: int) -> None:
        assert attribute == 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self.allowed[function] = value

    def do_cuGraphAddDependencies_v2(self, graph: int, before: Any, behind: Any, edges: int, count: int) -> None:
        for k, found in enumerate((EdgeData * count).from_address(edges)):
            assert (found.from_port, found.to_port, found.type) == (1, 0, 1)
            self.early.append((before[k], behind[k]))

    def do_cuGraphKernelNodeSetAttribute(self, node: Any, attribute: int, value: int) -> None:
        number = getattr(node, "value", node)
        self.attributes[number] = attribute, LaunchAttributeValue.from_address(value).cooperative

    def do_cuGraphAddMemcpyNode(self, made: Any, graph: int, after: int | None, count: int, *rest: Any) -> None:
        self._node("copy", made, after, count)

    def do_cuGraphAddMemsetNode(self, made: Any, graph: int, after: int | None, count: int, *rest: Any) -> None:
        self._node("fill", made, after, count)

    def do_cuGraphConditionalHandleCreate(self, handle: Any, graph: int, context: int, first: int, flags: int) -> int:
        assert (context, first, flags) == (7000, 0, 1)
        handle[0] = self.number()
        self.handles[handle[0]] = graph
        return 0

    def do_cuGraphAddNode(self, made: Any, graph: int, after: int | None, count: int, how: int) -> None:
        given = ConditionalNodeParams.from_address(how)
        assert (given.type, given.size, self.handles[given.handle]) == (13, 1, graph)
        self._node("while" if given.kind else "if", made, after, count)
        body = self.bodies[made[0]] = ctypes.c_void_p(self.number())
        given.phGraph_out = ctypes.pointer(body)

    def do_cuGraphInstantiateWithFlags(self, made: Any, graph: int, flags: int) -> None:
        made[0] = self.number()
