"""The emulated device for native code: functions with the C interface of NVIDIA's library, at addresses.

An exception cannot leave such a function: it is kept, and a code of CUDA returned. Whoever sees the code asks for it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING

from autojit.core.errors import ArgumentError, AutojitError, DeviceError, OutOfMemoryError
from autojit.runtime.gpu.emulator.findings import EmulatedFault
from autojit.runtime.gpu.results import NOT_READY
from autojit.runtime.gpu.structs import KernelNodeParams

if TYPE_CHECKING:
    from autojit.runtime.gpu.emulator.driver import EmulatedDriver

SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, UNKNOWN = 0, 1, 2, 999
_address, _word, _size, _byte = ctypes.c_uint64, ctypes.c_uint32, ctypes.c_size_t, ctypes.c_ubyte


_SIGNATURES: dict[str, tuple[type, ...]] = {
    "cuCtxSetCurrent": (_address,),
    "cuLaunchKernel": (_address, *[_word] * 6, _word, _address, _address, _address),
    "cuLaunchCooperativeKernel": (_address, *[_word] * 6, _word, _address, _address),
    "cuGraphLaunch": (_address, _address),
    "cuGraphExecKernelNodeSetParams_v2": (_address, _address, ctypes.POINTER(KernelNodeParams)),
    "cuMemcpyHtoDAsync_v2": (_address, _address, _size, _address),
    "cuMemcpyDtoHAsync_v2": (_address, _address, _size, _address),
    "cuMemcpyDtoDAsync_v2": (_address, _address, _size, _address),
    "cuMemsetD8Async": (_address, _byte, _size, _address),
    "cuStreamQuery": (_address,),
    "cuStreamSynchronize": (_address,),
    "cuEventRecord": (_address, _address),
    "cuStreamWaitEvent": (_address, _address, _word),
}


def result_code(error: BaseException) -> int:
    """The CUresult that stands for an exception."""
    if isinstance(error, EmulatedFault):
        return error.result_code
    if isinstance(error, OutOfMemoryError):
        return OUT_OF_MEMORY
    return INVALID_VALUE if isinstance(error, AutojitError | KeyError) else UNKNOWN


class NativeInterface:
    """Callbacks of one driver; they live as long as it does."""

    def __init__(self, driver: EmulatedDriver) -> None:
        self._driver = driver
        self._callbacks: dict[str, tuple[object, int]] = {}
        self._failure: BaseException | None = None
        self._answers = ctypes.c_int64(0)
        self._bodies: dict[str, Callable[..., int | None]] = {
            "cuCtxSetCurrent": self._make_current,
            "cuLaunchKernel": self._launch,
            "cuLaunchCooperativeKernel": self._launch_together,
            "cuGraphLaunch": driver.run_graph,
            "cuGraphExecKernelNodeSetParams_v2": self._set_parameters,
            "cuMemcpyHtoDAsync_v2": driver.copy_in,
            "cuMemcpyDtoHAsync_v2": driver.copy_out,
            "cuMemcpyDtoDAsync_v2": driver.copy_within,
            "cuMemsetD8Async": driver.fill,
            "cuStreamQuery": self._query,
            "cuStreamSynchronize": driver.synchronize,
            "cuEventRecord": driver.record,
            "cuStreamWaitEvent": lambda stream, event, flags: driver.wait_for_event(stream, event),
        }

    def address(self, name: str) -> int:
        """Where the function of this name is.

        Raises:
            DeviceError: there is none.
        """
        if name not in self._callbacks:
            signature = _SIGNATURES.get(name)
            if signature is None:
                raise DeviceError("the emulated device has no such function", facts={"function": name})
            callback = ctypes.CFUNCTYPE(ctypes.c_int, *signature)(self._guarded(self._bodies[name]))
            self._callbacks[name] = (callback, ctypes.cast(callback, ctypes.c_void_p).value or 0)
        return self._callbacks[name][1]

    @property
    def answers_address(self) -> int:
        """The address of the word that counts the calls that have come to their end."""
        return ctypes.addressof(self._answers)

    def take_failure(self) -> BaseException | None:
        """What the last call that failed raised, once."""
        failure, self._failure = self._failure, None
        return failure

    def _guarded(self, body: Callable[..., int | None]) -> Callable[..., int]:
        def callback(*arguments: object) -> int:
            try:
                self._driver.require_own()
                return body(*arguments) or SUCCESS
            except BaseException as error:
                self._failure = error
                return result_code(error)
            finally:
                self._answers.value += 1

        return callback

    def _make_current(self, context: int) -> None:
        """There is one context, number 0."""
        if context != 0:
            raise ArgumentError("the emulated device has no such context", facts={"context": context})

    def _query(self, stream: int) -> int | None:
        return None if self._driver.is_idle(stream) else NOT_READY

    def _launch(
        self,
        function: int,
        grid_x: int,
        grid_y: int,
        grid_z: int,
        block_x: int,
        block_y: int,
        block_z: int,
        shared_bytes: int,
        stream: int,
        parameters: int,
        extra: int,
    ) -> None:
        self._driver.launch_extents(
            function, (grid_x, grid_y, grid_z), (block_x, block_y, block_z), shared_bytes, parameters, stream
        )

    def _launch_together(
        self,
        function: int,
        grid_x: int,
        grid_y: int,
        grid_z: int,
        block_x: int,
        block_y: int,
        block_z: int,
        shared_bytes: int,
        stream: int,
        parameters: int,
    ) -> None:
        blocks, threads = (grid_x, grid_y, grid_z), (block_x, block_y, block_z)
        self._driver.launch_extents(function, blocks, threads, shared_bytes, parameters, stream, is_cooperative=True)

    def _set_parameters(self, graph: int, node: int, parameters: ctypes._Pointer[KernelNodeParams]) -> None:
        given = parameters.contents
        self._driver.set_arguments(graph, node, given.func or 0, given.kernelParams or 0)
