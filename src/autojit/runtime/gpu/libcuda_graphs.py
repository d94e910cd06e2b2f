"""Graphs of NVIDIA's driver: nodes with their order, made launchable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import byref, c_uint64, c_void_p

from autojit.runtime.gpu.driver import ConditionalNode, CopyNode, FillNode, Graph, GraphNode, KernelNode
from autojit.runtime.gpu.structs import (
    ASSIGN_DEFAULT,
    CONDITIONAL_NODE,
    COOPERATIVE,
    IF_SET,
    PROGRAMMATIC,
    PROGRAMMATIC_PORT,
    UNIFIED,
    WHILE_SET,
    ConditionalNodeParams,
    EdgeData,
    KernelNodeParams,
    LaunchAttributeValue,
    Memcpy3D,
    MemsetNodeParams,
)


class GraphMaker:
    """Makes graphs by the library's functions.

    Args:
        call: calls one of them by its name; raises where it reports an error.
    """

    def __init__(self, call: Callable[..., None]) -> None:
        self._call = call
        self._templates: dict[int, int] = {}  # the number of what is launched -> the graph whose nodes it has

    def make(self, nodes: Sequence[GraphNode]) -> Graph:
        """See `Driver.make_graph`. The graph is kept, because its nodes name those of what is launched."""
        graph = c_void_p()
        self._call("cuGraphCreate", byref(graph), 0)
        try:
            numbers = self._add_all(graph, nodes)
            made = c_void_p()
            self._call("cuGraphInstantiateWithFlags", byref(made), graph, 0)
        except BaseException:
            self._call("cuGraphDestroy", graph)
            raise
        number = made.value or 0
        self._templates[number] = graph.value or 0
        return Graph(number, tuple(numbers))

    def destroy(self, graph: Graph) -> None:
        """See `Driver.destroy_graph`."""
        self._call("cuGraphExecDestroy", graph.number)
        self._call("cuGraphDestroy", self._templates.pop(graph.number))

    def _add_all(self, graph: c_void_p, nodes: Sequence[GraphNode]) -> list[int]:
        """Add nodes to a graph, which may be the body of another; their numbers.

        Handles are made first: kernels in front of a node take its handle.
        """
        handles: dict[int, int] = {}
        for place, node in enumerate(nodes):
            if isinstance(node, ConditionalNode):
                handle = c_uint64()
                self._call("cuGraphConditionalHandleCreate", byref(handle), graph, self._context(), 0, ASSIGN_DEFAULT)
                handles[place] = handle.value
                for word in node.handles:
                    c_uint64.from_address(word).value = handle.value
        numbers: list[int] = []
        for place, node in enumerate(nodes):
            early = [k for k in node.after if _ends_early(nodes[k])] if _starts_early(node) else []
            after = [numbers[k] for k in node.after if k not in early]
            if isinstance(node, ConditionalNode):
                numbers.append(self._add_conditional(graph, node, handles[place], after))
            else:
                numbers.append(self._add(graph, node, after))
            if early:
                self._let_start(graph, numbers[-1], [numbers[k] for k in early])
        return numbers

    def _let_start(self, graph: c_void_p, node: int, before: Sequence[int]) -> None:
        """A launch comes after others, but may start before they have ended."""
        count = len(before)
        edges = (EdgeData * count)(*[EdgeData(from_port=PROGRAMMATIC_PORT, type=PROGRAMMATIC)] * count)
        ends = (c_void_p * count)(*before), (c_void_p * count)(*[node] * count)
        self._call("cuGraphAddDependencies_v2", graph, *ends, edges, count)

    def _add_conditional(self, graph: c_void_p, node: ConditionalNode, handle: int, after: Sequence[int]) -> int:
        before = (c_void_p * len(after))(*after) if after else None
        made = c_void_p()
        parameters = ConditionalNodeParams(
            type=CONDITIONAL_NODE,
            handle=handle,
            kind=WHILE_SET if node.repeats else IF_SET,
            size=1,
            ctx=self._context(),
        )
        self._call("cuGraphAddNode", byref(made), graph, before, len(after), byref(parameters))
        self._add_all(c_void_p(parameters.phGraph_out[0]), node.body)  # the driver has made an empty graph for it
        return made.value or 0

    def _add(self, graph: c_void_p, node: KernelNode | CopyNode | FillNode, after: Sequence[int]) -> int:
        before = (c_void_p * len(after))(*after) if after else None
        made = c_void_p()
        where = byref(made), graph, before, len(after)
        if isinstance(node, KernelNode):
            parameters = kernel_parameters(node.function, node.blocks, node.threads, node.parameters, node.shared_bytes)
            self._call("cuGraphAddKernelNode_v2", *where, byref(parameters))
            if node.is_cooperative:
                value = LaunchAttributeValue(cooperative=1)
                self._call("cuGraphKernelNodeSetAttribute", made, COOPERATIVE, byref(value))
        elif isinstance(node, CopyNode):
            self._call("cuGraphAddMemcpyNode", *where, byref(_copy_parameters(node)), self._context())
        else:
            self._call("cuGraphAddMemsetNode", *where, byref(_fill_parameters(node)), self._context())
        return made.value or 0

    def _context(self) -> c_void_p:
        """That of the thread, in which copies of a graph are done."""
        found = c_void_p()
        self._call("cuCtxGetCurrent", byref(found))
        return found


def _starts_early(node: GraphNode) -> bool:
    return isinstance(node, KernelNode) and node.starts_early and not node.is_cooperative


def _ends_early(node: GraphNode) -> bool:
    """Whether others may start before it has ended."""
    return isinstance(node, KernelNode) and not node.is_cooperative


def kernel_parameters(
    function: int, blocks: Sequence[int], threads: int, parameters: int, shared_bytes: int = 0
) -> KernelNodeParams:
    """A launch as graphs take it."""
    return KernelNodeParams(
        func=function,
        gridDimX=blocks[0],
        gridDimY=blocks[1],
        gridDimZ=blocks[2],
        blockDimX=threads,
        blockDimY=1,
        blockDimZ=1,
        sharedMemBytes=shared_bytes,
        kernelParams=parameters,
    )


def _copy_parameters(node: CopyNode) -> Memcpy3D:
    """One row of bytes; with unified addresses the driver knows which end is where."""
    return Memcpy3D(
        srcMemoryType=UNIFIED,
        srcDevice=node.source,
        srcPitch=node.size_bytes,
        srcHeight=1,
        dstMemoryType=UNIFIED,
        dstDevice=node.target,
        dstPitch=node.size_bytes,
        dstHeight=1,
        WidthInBytes=node.size_bytes,
        Height=1,
        Depth=1,
    )


def _fill_parameters(node: FillNode) -> MemsetNodeParams:
    return MemsetNodeParams(dst=node.target, value=0, elementSize=1, width=node.size_bytes, height=1)
