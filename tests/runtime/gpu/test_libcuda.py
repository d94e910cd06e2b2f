"""NVIDIA's driver behind the one interface: its calls, its errors, its structures."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from autojit.core.errors import CompileError, DeviceError
from autojit.runtime.gpu import structs
from autojit.runtime.gpu.driver import NATIVE_FUNCTIONS, ConditionalNode, CopyNode, Driver, FillNode, KernelNode
from autojit.runtime.gpu.libcuda import SIGNATURES, LibCuda
from autojit.runtime.gpu.results import result_name
from tests.runtime.gpu.fake_library import FakeLibrary

EMPTY_PTX = ".version 7.8\n.target sm_90\n"


def test_bytes_come_back_as_they_went() -> None:
    driver: Driver = LibCuda(FakeLibrary())
    driver.use(0)
    given, found = np.arange(100, dtype=np.uint8), np.zeros(100, np.uint8)
    a, b = driver.allocate(100), driver.allocate(100)
    stream = driver.make_stream()
    driver.copy_in(a, given.ctypes.data, 100, stream)
    driver.copy_within(b, a, 100, stream)
    driver.fill(b, 0, 10, stream)
    driver.copy_out(found.ctypes.data, b, 100, stream)
    driver.synchronize(stream)
    assert found.tolist() == [0] * 10 + given[10:].tolist()
    driver.release(a)
    driver.release(b)


def test_properties_are_the_devices() -> None:
    found = LibCuda(FakeLibrary(capability=(12, 1))).properties(0)
    assert (found.architecture, found.capability, found.processors) == ("sm_121", (12, 1), 132)
    assert not found.is_emulated


def test_only_a_copy_from_pinned_memory_is_waited_for() -> None:
    library = FakeLibrary()
    driver = LibCuda(library)
    target, pinned, plain = driver.allocate(64), driver.allocate_pinned(64), np.zeros(64, np.uint8)
    driver.copy_in(target, plain.ctypes.data, 64, 0)
    assert "cuStreamSynchronize" not in library.calls
    driver.copy_in(target, pinned + 60, 4, 0)
    assert library.calls.count("cuStreamSynchronize") == 1
    driver.release_pinned(pinned)
    driver.copy_in(target, plain.ctypes.data, 64, 0)
    assert library.calls.count("cuStreamSynchronize") == 1


def test_machine_code_is_what_the_linker_gives() -> None:
    assert LibCuda(FakeLibrary()).assemble(EMPTY_PTX, "sm_90") == b"code of " + EMPTY_PTX.encode()


def test_a_rejected_text_comes_with_the_compilers_words_and_leaves_nothing_behind() -> None:
    library = FakeLibrary()
    with pytest.raises(
        CompileError, match=r"218 CUDA_ERROR_INVALID_PTX[\s\S]*ptxas error: line 1[\s\S]*\.version 7\.8"
    ):
        LibCuda(library).assemble(EMPTY_PTX + "bad", "sm_90")
    assert library.calls[-1] == "cuLinkDestroy"


@pytest.mark.parametrize("name", ["cuStreamSynchronize", "cuLaunchKernel", "cuCtxSetCurrent", "cuEventRecord"])
def test_an_error_names_the_call_and_the_cause(name: str) -> None:
    library = FakeLibrary()
    driver = LibCuda(library)
    library.failing[name] = 700
    acts = {
        "cuStreamSynchronize": lambda: driver.synchronize(1),
        "cuLaunchKernel": lambda: driver.launch(1, (1, 1, 1), 32, 0, 0),
        "cuCtxSetCurrent": lambda: driver.use(0),
        "cuEventRecord": lambda: driver.record(1, 0),
    }
    with pytest.raises(DeviceError, match=rf"{name} failed[\s\S]*700 CUDA_ERROR_ILLEGAL_ADDRESS[\s\S]*emulate"):
        acts[name]()


def test_an_old_driver_is_refused_with_what_is_needed() -> None:
    with pytest.raises(DeviceError, match=r"too old[\s\S]*11\.8[\s\S]*12\.0 \(driver 525\)"):
        LibCuda(FakeLibrary(version=11080))


def test_graphs_keep_the_order_of_their_nodes() -> None:
    library = FakeLibrary()
    driver = LibCuda(library)
    nodes = [KernelNode(5, (2, 1, 1), 64, 0), FillNode(512, 8), CopyNode(1024, 512, 8, (0, 1))]
    graph = driver.make_graph(nodes)
    assert [library.nodes[n] for n in graph.nodes] == [("kernel 5 2 x 64", ()), ("fill", ()), ("copy", graph.nodes[:2])]
    driver.launch_graph(graph, 3)
    driver.destroy_graph(graph)
    assert library.calls[-3:] == ["cuGraphLaunch", "cuGraphExecDestroy", "cuGraphDestroy"]


def test_launches_ask_for_shared_memory_that_their_kernel_may_have() -> None:
    library = FakeLibrary()
    driver = LibCuda(library)
    driver.allow_shared(5, 100 << 10)
    driver.make_graph([KernelNode(5, (2, 1, 1), 64, 0, shared_bytes=96 << 10), KernelNode(4, (1, 1, 1), 32, 0)])
    assert (library.allowed, library.asked) == ({5: 100 << 10}, [96 << 10, 0])


def test_blocks_of_a_launch_that_meet_all_run_at_once() -> None:
    library = FakeLibrary()
    driver = LibCuda(library)
    meeting = KernelNode(5, (2, 1, 1), 64, 0, is_cooperative=True)
    graph = driver.make_graph([KernelNode(4, (2, 1, 1), 64, 0), meeting])
    assert library.attributes == {graph.nodes[1]: (structs.COOPERATIVE, 1)}


def test_the_attribute_of_such_launches_is_nvidias() -> None:
    driver = _bindings()
    assert int(driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE) == structs.COOPERATIVE
    theirs = driver.CUlaunchAttributeValue()
    theirs.cooperative = 1
    ours = structs.LaunchAttributeValue(cooperative=1)
    assert ctypes.string_at(theirs.getPtr(), ctypes.sizeof(ours)) == bytes(ours)


def test_such_edges_are_laid_out_as_nvidias() -> None:
    bindings = _bindings()
    theirs = bindings.CUgraphEdgeData()
    theirs.from_port, theirs.type = 1, bindings.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC
    ours = structs.EdgeData(from_port=structs.PROGRAMMATIC_PORT, type=structs.PROGRAMMATIC)
    assert ctypes.string_at(theirs.getPtr(), ctypes.sizeof(ours)) == bytes(ours)


def test_conditions_have_handles_before_the_kernels_that_set_them_are_added() -> None:
    library = FakeLibrary()
    driver = LibCuda(library)
    words = (ctypes.c_uint64 * 3)()
    places = [ctypes.addressof(words) + 8 * k for k in range(3)]
    inner = ConditionalNode((KernelNode(7, (1, 1, 1), 32, 0),), False, (places[2],), (0,))
    loop = ConditionalNode((KernelNode(6, (1, 1, 1), 32, 0), inner), True, (places[0], places[1]), (0,))
    graph = driver.make_graph([KernelNode(5, (1, 1, 1), 32, 0), loop])
    kinds = [kind for kind, _ in library.nodes.values()]
    assert kinds == ["kernel 5 1 x 32", "while", "kernel 6 1 x 32", "if", "kernel 7 1 x 32"]
    assert words[0] == words[1] != words[2] and set(words) == library.handles.keys()
    order = [name for name in library.calls if name in ("cuGraphConditionalHandleCreate", "cuGraphAddKernelNode_v2")]
    assert order[0] == order[2] == "cuGraphConditionalHandleCreate" != order[1]
    assert library.handles[words[2]] == library.bodies[graph.nodes[1]].value  # of the graph that the node is in


def test_nodes_with_conditions_are_laid_out_as_nvidias() -> None:
    driver = _bindings()
    theirs = driver.CUgraphNodeParams()
    kinds, types = driver.CUgraphConditionalNodeType, driver.CUgraphNodeType
    assert int(types.CU_GRAPH_NODE_TYPE_CONDITIONAL) == structs.CONDITIONAL_NODE
    assert (int(kinds.CU_GRAPH_COND_TYPE_IF), int(kinds.CU_GRAPH_COND_TYPE_WHILE)) == (
        structs.IF_SET,
        structs.WHILE_SET,
    )
    assert int(driver.CU_GRAPH_COND_ASSIGN_DEFAULT) == structs.ASSIGN_DEFAULT
    mine = structs.ConditionalNodeParams.from_address(int(theirs.getPtr()))
    theirs.type = types.CU_GRAPH_NODE_TYPE_CONDITIONAL
    theirs.conditional.handle = driver.CUgraphConditionalHandle(11)
    theirs.conditional.type = kinds.CU_GRAPH_COND_TYPE_WHILE
    theirs.conditional.size = 3
    theirs.conditional.ctx = driver.CUcontext(17)
    assert (mine.type, mine.handle, mine.kind, mine.size, mine.ctx) == (13, 11, 1, 3, 17)
    assert ctypes.sizeof(structs.ConditionalNodeParams) == 256


def test_a_graph_that_fails_leaves_nothing_behind() -> None:
    library = FakeLibrary()
    driver = LibCuda(library)
    library.failing["cuGraphInstantiateWithFlags"] = 999
    with pytest.raises(DeviceError, match="CUDA_ERROR_UNKNOWN"):
        driver.make_graph([FillNode(512, 8)])
    assert library.calls[-1] == "cuGraphDestroy"


def test_native_code_calls_by_addresses() -> None:
    library = FakeLibrary()
    driver = LibCuda(library)
    assert set(NATIVE_FUNCTIONS) <= set(SIGNATURES)
    kind = ctypes.CFUNCTYPE(ctypes.c_int, *SIGNATURES["cuGraphLaunch"])
    assert kind(driver.native("cuGraphLaunch"))(1, 2) == 0
    assert library.calls[-1] == "cuGraphLaunch"


def _bindings() -> Any:
    return pytest.importorskip("cuda.bindings.driver", reason="needs cuda-bindings, a package for tests")


STRUCTURES = {
    structs.KernelNodeParams: "CUDA_KERNEL_NODE_PARAMS",
    structs.MemsetNodeParams: "CUDA_MEMSET_NODE_PARAMS",
    structs.Memcpy3D: "CUDA_MEMCPY3D",
}
OPAQUE = {"func": "CUfunction", "kern": "CUkernel", "ctx": "CUcontext", "srcArray": "CUarray", "dstArray": "CUarray"}
LEFT_OUT = (
    "kernelParams",
    "extra",
    "reserved0",
    "reserved1",
    "srcHost",
    "dstHost",
)  # the bindings keep copies, or none


@pytest.mark.parametrize("ours", STRUCTURES, ids=lambda kind: kind.__name__)
def test_structures_are_laid_out_as_nvidias_bindings_lay_them_out(ours: type[ctypes.Structure]) -> None:
    """Every field is set through their object and read through ours, with all others as they were."""
    driver = _bindings()
    theirs = getattr(driver, STRUCTURES[ours])()
    mine = ours.from_address(int(theirs.getPtr()))
    expected: dict[str, int] = {}
    for number, (name, *_) in enumerate(ours._fields_, 3):
        if name in LEFT_OUT:
            continue
        value: Any = number
        if name in OPAQUE:
            value = getattr(driver, OPAQUE[name])(number)
        elif name in ("dst", "srcDevice", "dstDevice"):
            value = driver.CUdeviceptr(number)
        elif name.endswith("MemoryType"):
            number = structs.UNIFIED
            value = driver.CUmemorytype(number)
        setattr(theirs, name, value)
        expected[name] = number
        assert {known: getattr(mine, known) for known in expected} == expected
    assert ctypes.sizeof(ours) == {"KernelNodeParams": 72, "MemsetNodeParams": 40, "Memcpy3D": 200}[ours.__name__]


def test_the_names_of_results_are_nvidias() -> None:
    known = {int(result): result.name for result in _bindings().CUresult}
    assert {number: result_name(number) for number in known} == known


def test_every_function_is_known_to_nvidias_bindings() -> None:
    known = {*dir(_bindings()), "cuGraphInstantiateWithFlags"}  # what they call cuGraphInstantiate
    assert [name for name in SIGNATURES if name.removesuffix("_v2") not in known] == []


def test_a_process_that_computes_on_the_cpu_never_loads_the_driver() -> None:
    code = """
import sys
import autojit as aj
x = aj.ones(64, requires_grad=True)
aj.jit(lambda x: (x * 2).sum())(x).backward()
assert not any("libcuda" in line for line in open("/proc/self/maps"))
print([name for name in sys.modules if name.startswith("autojit.runtime.gpu")])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
