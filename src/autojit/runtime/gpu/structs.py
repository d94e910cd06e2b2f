"""Structures of the driver's C interface, as CUDA 12.0 laid them out; tests compare them with NVIDIA's own bindings."""

from __future__ import annotations

import ctypes

UNIFIED = 4  # CUmemorytype: the driver finds out what an address is


class KernelNodeParams(ctypes.Structure):
    """``CUDA_KERNEL_NODE_PARAMS_v2``."""

    _fields_ = (
        ("func", ctypes.c_void_p),
        ("gridDimX", ctypes.c_uint),
        ("gridDimY", ctypes.c_uint),
        ("gridDimZ", ctypes.c_uint),
        ("blockDimX", ctypes.c_uint),
        ("blockDimY", ctypes.c_uint),
        ("blockDimZ", ctypes.c_uint),
        ("sharedMemBytes", ctypes.c_uint),
        ("kernelParams", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kern", ctypes.c_void_p),
        ("ctx", ctypes.c_void_p),
    )


COOPERATIVE = 2
"""CUlaunchAttributeID: all blocks of a launch run at once."""


class LaunchAttributeValue(ctypes.Structure):
    """``CUlaunchAttributeValue``, a union of which only the numbers are used: ``cooperative``."""

    _fields_ = (("cooperative", ctypes.c_int), ("pad", ctypes.c_char * 60))


CONDITIONAL_NODE = 13
"""CUgraphNodeType."""

IF_SET, WHILE_SET = 0, 1
"""CUgraphConditionalNodeType."""

ASSIGN_DEFAULT = 1
"""CU_GRAPH_COND_ASSIGN_DEFAULT: a condition has its first value at every launch of the graph."""


class ConditionalNodeParams(ctypes.Structure):
    """``CUgraphNodeParams`` of a conditional node, with ``CUDA_CONDITIONAL_NODE_PARAMS`` in its union: CUDA 12.4."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("reserved0", ctypes.c_int * 3),
        ("handle", ctypes.c_uint64),
        ("kind", ctypes.c_int),
        ("size", ctypes.c_uint),
        ("phGraph_out", ctypes.POINTER(ctypes.c_void_p)),
        ("ctx", ctypes.c_void_p),
        ("pad", ctypes.c_char * 200),
        ("reserved2", ctypes.c_longlong),
    )


class EdgeData(ctypes.Structure):
    """``CUgraphEdgeData``: CUDA 12.3."""

    _fields_ = (
        ("from_port", ctypes.c_uint8),
        ("to_port", ctypes.c_uint8),
        ("type", ctypes.c_uint8),
        ("reserved", ctypes.c_uint8 * 5),
    )


PROGRAMMATIC_PORT, PROGRAMMATIC = 1, 1
"""CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC: the launch behind waits itself."""


class MemsetNodeParams(ctypes.Structure):
    """``CUDA_MEMSET_NODE_PARAMS``."""

    _fields_ = (
        ("dst", ctypes.c_void_p),
        ("pitch", ctypes.c_size_t),
        ("value", ctypes.c_uint),
        ("elementSize", ctypes.c_uint),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
    )


class Memcpy3D(ctypes.Structure):
    """``CUDA_MEMCPY3D``."""

    _fields_ = (
        ("srcXInBytes", ctypes.c_size_t),
        ("srcY", ctypes.c_size_t),
        ("srcZ", ctypes.c_size_t),
        ("srcLOD", ctypes.c_size_t),
        ("srcMemoryType", ctypes.c_int),
        ("srcHost", ctypes.c_void_p),
        ("srcDevice", ctypes.c_void_p),
        ("srcArray", ctypes.c_void_p),
        ("reserved0", ctypes.c_void_p),
        ("srcPitch", ctypes.c_size_t),
        ("srcHeight", ctypes.c_size_t),
        ("dstXInBytes", ctypes.c_size_t),
        ("dstY", ctypes.c_size_t),
        ("dstZ", ctypes.c_size_t),
        ("dstLOD", ctypes.c_size_t),
        ("dstMemoryType", ctypes.c_int),
        ("dstHost", ctypes.c_void_p),
        ("dstDevice", ctypes.c_void_p),
        ("dstArray", ctypes.c_void_p),
        ("reserved1", ctypes.c_void_p),
        ("dstPitch", ctypes.c_size_t),
        ("dstHeight", ctypes.c_size_t),
        ("WidthInBytes", ctypes.c_size_t),
        ("Height", ctypes.c_size_t),
        ("Depth", ctypes.c_size_t),
    )
