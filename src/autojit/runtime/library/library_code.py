"""The code of a library: kernels, the plan runner, the pool, products, the interface; each once."""

from __future__ import annotations

from collections.abc import Callable

from autojit.core.errors import CompileError
from autojit.runtime.bodies import (
    CONTROL,
    compiled_objects,
    control_content,
    gemm_content,
    matmul_content,
    plan_content,
)
from autojit.runtime.host import cached_host_target
from autojit.runtime.library.instance_image import Address
from autojit.runtime.library.interface_ir import interface_ir
from autojit.runtime.library.linking import Linker
from autojit.runtime.object_cache import default_cache
from autojit.runtime.pool import pool_content


class LibraryCode:
    """Adds what is asked for; addresses are bytes from the library's beginning."""

    def __init__(self) -> None:
        self.linker = Linker()
        self._functions: dict[str, int] = {}  # by symbols that are known in the whole library
        self._shared: dict[str, int] = {}  # functions of several kernels
        self._kernels: dict[str, dict[str, int]] = {}  # by text
        self._modules: set[str] = set()
        for name, content in (("pool", pool_content), ("plan", plan_content), ("interface", _interface_content)):
            self._need(name, content)

    def function(self, name: str) -> Address:
        """A function of the modules that every library has."""
        return Address(self._functions[name], "library")

    def builtin(self, name: str) -> Address:
        """A body of the plan runner, of control flow, or of matrix products."""
        kind = name.rpartition("_")[2]
        if name in CONTROL:
            self._need("control", control_content)
        elif name.startswith(("aj_matmul_", "aj_contract_")):
            self._need(f"products {kind}", lambda: gemm_content(kind))
            self._need(f"matmul {kind}", lambda: matmul_content(kind))
        elif name.startswith("aj_gemm_"):
            self._need(f"products {kind}", lambda: gemm_content(kind))
        return self.function(name)

    def kernel(self, text: str, symbol: str) -> Address:
        """A function of a kernel's text."""
        found = self._kernels.get(text)
        if found is None:
            functions, (content,) = compiled_objects([text], {}, self._shared)
            for name, shared in functions.items():  # callees come first
                self._shared[name] = self.linker.add(shared, self._shared, hides=True)[name]
            found = self._kernels[text] = self.linker.add(content, self._shared, hides=True)
        if symbol not in found:
            raise CompileError("a kernel lacks a symbol", facts={"symbol": symbol})
        return Address(found[symbol], "library")

    def stub(self, name: str) -> Address:
        """A function of the C library."""
        return Address(self.linker.stub(name), "library")

    def _need(self, name: str, content: Callable[[], bytes]) -> None:
        if name not in self._modules:
            self._modules.add(name)
            self._functions.update(self.linker.add(content()))


def _interface_content() -> bytes:
    return default_cache().object(interface_ir(), cached_host_target(), 1, 0)
