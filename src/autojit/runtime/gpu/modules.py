"""Kernels of a device: LLVM's text -> PTX -> machine code -> a function that can be launched, each once.

Both steps are in the object cache: PTX under what it was made from, as objects of the host are; machine code under the
PTX, the driver's version and the device's architecture. So a second process asks neither compiler. The emulator's code
is not kept on disk: it takes the text as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autojit.codegen.cuda.finished_ptx import finished_ptx
from autojit.codegen.cuda.register_limits import told_registers
from autojit.codegen.cuda.target import CudaTarget
from autojit.core.config import config
from autojit.runtime.background import on_all_cores
from autojit.runtime.gpu.driver import Driver
from autojit.runtime.loaded_texts import LoadedTexts
from autojit.runtime.object_cache import default_cache, key_of

ENTRY = "kernel"
"""The name of every kernel in its module."""


class LoadedKernels:
    """The kernels of one device, by the text of their module.

    Args:
        driver: of the device.
        number: of the device.
        target: what LLVM generates code for.
        architecture: what the driver's compiler makes code for.
    """

    def __init__(self, driver: Driver, number: int, target: CudaTarget, architecture: str) -> None:
        self._driver = driver
        self._number = number
        self._target = target
        self._architecture = architecture
        self._functions = LoadedTexts(self._loaded)

    def functions(self, texts: Sequence[str]) -> list[int]:
        """The functions of kernels, compiled at most once per process and, on a machine, once per driver.

        Raises:
            CompileError: LLVM or the driver rejects a text.
        """
        return self._functions.get(texts, {})

    def ptx(self, texts: Sequence[str]) -> list[str]:
        """What LLVM makes of kernels.

        Raises:
            CompileError: it rejects a text.
        """
        found = default_cache().objects(texts, self._target, [(config.opt_level, None)] * len(texts))
        return [finished_ptx(text.decode(), self._target) for text in found]

    def _loaded(self, texts: Sequence[str], pass_levels: Mapping[str, int]) -> list[int]:
        driver = self._driver
        ptx = self.ptx(texts)
        codes = [*map(self._code, ptx)] if driver.is_emulated else on_all_cores(self._code, ptx, "assembling")
        driver.use(self._number)
        return [self._function(text, code) for text, code in zip(ptx, codes, strict=True)]

    def _function(self, ptx: str, code: bytes) -> int:
        """The kernel, whose launches may ask for shared memory if its text does."""
        found = self._least_spilled(ptx, code)
        if ".extern .shared" in ptx:
            self._driver.allow_shared(found, self._driver.properties(self._number).shared_bytes)
        return found

    def _least_spilled(self, ptx: str, code: bytes) -> int:
        """The kernel; where registers were spilled, of the text that says how many a thread may have."""
        driver = self._driver
        module = driver.load(code)
        function = driver.function(module, ENTRY)
        spilled = driver.local_bytes(function)
        told = told_registers(ptx) if spilled else ptx
        if told == ptx:
            return function
        other = driver.load(self._code(told))
        found = driver.function(other, ENTRY)
        if driver.local_bytes(found) < spilled:
            driver.unload(module)
            return found
        driver.unload(other)
        return function

    def _code(self, ptx: str) -> bytes:
        if self._driver.is_emulated:
            return self._assembled(ptx)
        key = key_of("machine code", ptx, str(self._driver.version), self._architecture)
        return default_cache().blob(key, lambda: self._assembled(ptx))

    def _assembled(self, ptx: str) -> bytes:
        self._driver.use(self._number)  # in a thread that helps, too
        return self._driver.assemble(ptx, self._architecture)
