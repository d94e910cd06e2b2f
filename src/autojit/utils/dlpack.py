"""DLPack capsules, under torch's old names; ``autojit.from_dlpack`` takes the arrays themselves."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from autojit.functions.exchange import from_dlpack
from autojit.tensor import Tensor

__all__ = ["DLDeviceType", "from_dlpack", "to_dlpack"]


class DLDeviceType(IntEnum):
    """DLPack's numbers of kinds of devices."""

    kDLCPU = 1
    kDLCUDA = 2
    kDLCUDAHost = 3
    kDLOpenCL = 4
    kDLVulkan = 7
    kDLMetal = 8
    kDLVPI = 9
    kDLROCM = 10
    kDLROCMHost = 11
    kDLExtDev = 12
    kDLCUDAManaged = 13
    kDLOneAPI = 14
    kDLWebGPU = 15
    kDLHexagon = 16
    kDLMAIA = 17


def to_dlpack(tensor: Tensor) -> Any:
    """A DLPack capsule that lends the tensor's memory to another library, once.

    Raises:
        BufferError: the tensor requires gradients.

    Example:
        >>> import autojit as aj
        >>> capsule = aj.utils.dlpack.to_dlpack(aj.ones(2))
        >>> aj.from_dlpack(capsule)
        tensor([1., 1.])
    """
    return tensor.__dlpack__()
