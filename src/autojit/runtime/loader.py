"""Objects into the process: symbols bound by name, code kept alive by the handle.

An x86-64 ELF object is linked by `elf`, without LLVM; any other format goes through LLVM's JIT linker. Names an object
does not define come from `imports`, then from Python and from the C and mathematics libraries (LLVM turns loops into
``memset`` and friends by itself); a name found nowhere is an error before anything runs.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from autojit.core.errors import CompileError
from autojit.core.once import once
from autojit.runtime.code_memory import PAGE_BYTES, allocate_pages
from autojit.runtime.elf import ElfObject, is_elf_x86_64

_library_numbers = itertools.count()  # LLVM never frees a library's name, so each is used once


class LoadedObject:
    """Code in memory, unloaded when the last reference to this handle goes.

    Whoever keeps an address of it keeps the handle too. At interpreter exit nothing is unloaded, because native threads
    may still run.
    """

    __slots__ = ("__weakref__", "_keep", "_lookup", "symbols")

    def __init__(
        self, symbols: Mapping[str, int], keep: object = None, lookup: Callable[[str], int] | None = None
    ) -> None:
        self.symbols: dict[str, int] = dict(symbols)
        self._keep = keep
        self._lookup = lookup

    def address(self, symbol: str) -> int:
        """Address of a global function or variable the object defines.

        Raises:
            CompileError: the object defines no such symbol.
        """
        found = self.symbols.get(symbol, 0)
        if not found and self._lookup is not None:
            found = self._lookup(symbol)
        if not found:
            raise CompileError("a loaded object lacks a symbol", facts={"symbol": symbol})
        return found


def load(content: bytes, imports: Mapping[str, int] | None = None) -> LoadedObject:
    """Load one object; `imports` maps names to addresses, which must outlive the object.

    Raises:
        CompileError: the object is damaged, or names a symbol nobody defines.
    """
    known = imports or {}
    if not is_elf_x86_64(content):
        return load_with_llvm(content, known)
    parsed = ElfObject(content, PAGE_BYTES)
    pages = allocate_pages(parsed.size_bytes)
    try:
        image = parsed.link(pages.address, lambda name: _resolve(name, known))
        pages.fill(image.content, image.code_bytes)
    except BaseException:
        pages.release()
        raise
    loaded = LoadedObject(image.symbols)
    weakref.finalize(loaded, pages.release).atexit = False
    return loaded


def _resolve(name: str, imports: Mapping[str, int]) -> int:
    address = imports.get(name) or library_address(name) or _address_known_to_llvm(name)
    if not address:
        raise CompileError("a compiled object names an unknown symbol", facts={"symbol": name})
    return address


def _address_known_to_llvm(name: str) -> int:
    """Address of a function of Numba's run time, which Numba tells LLVM by name; 0 when there is none."""
    if "numba" not in sys.modules:
        return 0
    import llvmlite.binding as llvm

    return int(llvm.address_of_symbol(name) or 0)


@once
def library_address(name: str) -> int:
    """Address of a function of Python, of the C, mathematics or compiler support library; 0 when there is none."""
    for library in _libraries():
        try:
            return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
        except AttributeError:
            continue
    return 0


@once
def _libraries() -> tuple[ctypes.CDLL, ...]:
    found = [ctypes.CDLL(None)]  # the process itself, Python among it
    for name in ("libm.so.6", "libgcc_s.so.1"):
        try:
            found.append(ctypes.CDLL(name))
        except OSError:
            continue
    return tuple(found)


def load_with_llvm(content: bytes, imports: Mapping[str, int]) -> LoadedObject:
    """Load through LLVM's JIT linker: for object formats `elf` does not know, and to check it against.

    Raises:
        CompileError: LLVM cannot link the object.
    """
    import llvmlite.binding as llvm

    builder = llvm.JITLibraryBuilder().add_current_process()
    builder.add_object_img(content)
    for name, address in imports.items():
        builder.import_symbol(name, address)
    library = f"autojit-{next(_library_numbers)}"
    trackers = [_asked_llvm(lambda: builder.link(_lljit(), library))]

    def lookup(name: str) -> int:
        trackers.append(_asked_llvm(lambda: _lljit().lookup(library, name)))  # dropping it would unload the library
        return int(trackers[-1][name])

    return LoadedObject({}, trackers, lookup)


def _asked_llvm(request: Callable[[], Any]) -> Any:
    try:
        return request()
    except RuntimeError as error:
        raise CompileError("LLVM cannot link an object", facts={"reason": str(error).strip()}) from None


@once
def _lljit() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.create_lljit_compiler(use_jit_link=True)
