"""Kernels of a device: LLVM's text -> PTX -> machine code -> a function that can be launched, each once.

Both steps are in the object cache: PTX under what it was made from, as objects of the host are; machine code under the
PTX, the driver's version and the device's architecture. So a second process asks neither compiler. The emulator's code
is not kept on disk: it takes the text as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autojit.core.config import config
from autojit.runtime.background import on_all_cores
from autojit.runtime.gpu.devices import CudaDevice
from autojit.runtime.loaded_texts import LoadedTexts
from autojit.runtime.object_cache import default_cache, key_of

ENTRY = "kernel"
"""The name of every kernel in its module."""


class DeviceKernels:
    """The kernels of one device, by the text of their module."""

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self._functions = LoadedTexts(self._loaded)

    def functions(self, texts: Sequence[str]) -> list[int]:
        """The functions of kernels, compiled at most once per process and, on a machine, once per driver.

        Raises:
            CompileError: LLVM or the driver rejects a text.
        """
        return self._functions.get(texts, {})

    def _loaded(self, texts: Sequence[str], pass_levels: Mapping[str, int]) -> list[int]:
        device = self._device
        ptx = [text.decode() for text in default_cache().objects(texts, device.target, config.opt_level)]
        codes = [self._assembled(text) for text in ptx] if device.driver.is_emulated else self._all_assembled(ptx)
        device.use()
        return [device.driver.function(device.driver.load(code), ENTRY) for code in codes]

    def _all_assembled(self, ptx: Sequence[str]) -> list[bytes]:
        driver, architecture = self._device.driver, self._device.properties.architecture

        def code(text: str) -> bytes:
            key = key_of("machine code", text, str(driver.version), architecture)
            return default_cache().blob(key, lambda: self._assembled(text))

        return on_all_cores(code, ptx, "assembling")

    def _assembled(self, ptx: str) -> bytes:
        self._device.use()
        return self._device.driver.assemble(ptx, self._device.properties.architecture)
