"""Code that entries of a plan run: kernels, compiled and loaded once per text, and the built-in bodies.

Kernels are shared by every executable of the process through ``_kernels`` (text -> loaded code) and by every process
through the object cache. Addresses in code outlive every reference, so whatever is loaded here is loaded once, however
many threads ask, and stays.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from autojit.codegen.cpu.plan.runner import plan_ir
from autojit.codegen.lowered import LoweredStep
from autojit.codegen.module_text import WALKED, WRITTEN_OUT
from autojit.core.config import config
from autojit.core.dtypes import BY_SHORT
from autojit.core.late_interrupts import late_interrupts
from autojit.core.locks import new_lock
from autojit.core.once import once
from autojit.runtime.background import begin, helper, wait_for
from autojit.runtime.host import cached_host_target
from autojit.runtime.interrupts import signals_address
from autojit.runtime.loaded_texts import LoadedTexts
from autojit.runtime.loader import LoadedObject, load
from autojit.runtime.object_cache import default_cache, object_key
from autojit.runtime.pool import parallel_for_address
from autojit.runtime.shared_functions import taken_apart
from autojit.runtime.sources import writers_identity

if TYPE_CHECKING:
    from autojit.codegen.kernel_function import KernelFunction

COLLECTIVES = (
    *(f"aj_{name}{manner}" for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
      for manner in ("", "_begun", "_ended")),
    "aj_wait", "aj_send_recv", "aj_rank", "aj_all_reduce_extreme_f32", "aj_all_reduce_extreme_f64", "aj_owner_f32",
    "aj_owner_f64",
)  # fmt: skip
_POLL_S = 0.05  # how late an interrupt may come while kernels are waited for


def _loaded(texts: Sequence[str], pass_levels: Mapping[str, int]) -> Iterator[LoadedObject]:
    """The loaded code of texts. Functions that are taken out of several modules are compiled and loaded once."""
    functions, contents = compiled_objects(texts, pass_levels, _addresses)
    with _linking:
        for name, content in functions.items():
            if name not in _addresses:
                _functions.append(load(content, _addresses))  # it calls those before it
                _addresses[name] = _functions[-1].address(name)
    return (load(content, _addresses) for content in contents)


def compiled_objects(
    texts: Sequence[str], pass_levels: Mapping[str, int], known: Collection[str] = ()
) -> tuple[dict[str, bytes], list[bytes]]:
    """The objects of functions that several texts have, by name and callees first, but for those known; those of texts.

    Those that are not in the object cache are compiled on all cores.
    """
    apart = [taken_apart(text) for text in texts]
    functions = {name: text for _, taken in apart for name, text in taken.items() if name not in known}
    modules = [*functions.values(), *(whole for whole, _ in apart)]
    walks = {whole for text, (whole, taken) in zip(texts, apart, strict=True) if taken and text.startswith(WALKED)}
    levels = [
        (
            0 if text in walks else config.opt_level,
            pass_levels.get(text, 0 if text.startswith(WRITTEN_OUT) else None),
        )
        for text in modules
    ]
    contents = default_cache().objects(modules, cached_host_target(), levels)
    return dict(zip(functions, contents, strict=False)), contents[len(functions) :]


_linking = new_lock()
_functions: list[LoadedObject] = []  # which stay, as kernels do
_addresses: dict[str, int] = {}  # by their names, which say what they are
_kernels = LoadedTexts(_loaded)


def load_kernels(texts: Sequence[str], pass_levels: Mapping[str, int] | None = None) -> list[LoadedObject]:
    """The loaded code of kernel texts, each compiled at most once per process and machine, missing ones in parallel.

    ``pass_levels`` names texts that LLVM's pass pipeline treats at another level than it does loops.
    """
    return _kernels.get(texts, pass_levels or {})


def is_compiled(text: str) -> bool:
    """Whether a kernel is loaded, or an object of its whole text is in the cache: one in parts is not looked for."""
    return text in _kernels or object_key(text, cached_host_target(), config.opt_level) in default_cache()


def load_written(write: Callable[[KernelFunction], None]) -> LoadedObject:
    """The loaded code of a kernel for this machine that somebody else writes."""
    from autojit.codegen.cpu.kernel_text import CpuKernel, KernelModule

    kernel = CpuKernel(KernelModule(), "kernel")
    write(kernel)
    kernel.finish()
    (code,) = load_kernels((kernel.module.text(),))
    return code


def plan_request() -> tuple[str, int, int]:
    """The plan runner's module, its level and the level of LLVM's passes: more take 40 ms longer and gain nothing."""
    return plan_ir(), 1, 0


def plan_content() -> bytes:
    """The object of the plan runner, which calls ``aj_parallel_for``."""
    text, *levels = plan_request()
    return default_cache().object(text, cached_host_target(), *levels)


@once
def plan_object() -> LoadedObject:
    """The plan runner."""
    return load(plan_content(), {"aj_parallel_for": parallel_for_address()})


def gemm_content(short: str) -> bytes:
    """The object of a dtype's matrix products."""

    def text() -> str:
        from autojit.codegen.cpu.products.gemm import gemm_module

        return gemm_module(BY_SHORT[short], cached_host_target())

    return _found_by_writers(f"products {short}", text, config.opt_level)


def _found_by_writers(what: str, text: Callable[[], str], opt_level: int) -> bytes:
    """The object of a text that autojit's sources alone decide, found by who writes it.

    That spares the text of products, which takes 9 ms, and the import of what writes it. LLVM's passes would double
    the compile time and gain nothing there.
    """
    target, writers = cached_host_target(), writers_identity()

    def compiled() -> bytes:
        return default_cache().object(text(), target, opt_level, 0)

    if writers is None:
        return compiled()
    return default_cache().blob(object_key(f"{what}, written by {writers}", target, opt_level, 0), compiled)


def _written_products(shorts: Sequence[str], _: Mapping[str, int]) -> Iterator[LoadedObject]:
    return (load(gemm_content(short)) for short in shorts)


_products = LoadedTexts(_written_products)


def _gemm_object(short: str) -> LoadedObject:
    (code,) = _products.get((short,), {})
    return code


def matmul_content(short: str) -> bytes:
    """The object of the bodies that run a dtype's matrix products, which call ``aj_gemm_`` and its name."""

    def text() -> str:
        from autojit.codegen.cpu.plan.products import product_ir

        return product_ir(BY_SHORT[short])

    return _found_by_writers(f"bodies of products {short}", text, 0)


@once
def _matmul_object(short: str) -> LoadedObject:
    return load(matmul_content(short), {f"aj_gemm_{short}": _gemm_object(short).address(f"aj_gemm_{short}")})


def control_content() -> bytes:
    """The object of branches, loops and calls, which call the plan runner."""
    from autojit.codegen.cpu.plan.control import control_ir

    return default_cache().object(control_ir(), cached_host_target(), opt_level=1, pass_level=0)


@once
def _control_object() -> LoadedObject:
    watch_signals()  # loops of unknown length ask for them
    return load(control_content(), {name: plan_object().address(name) for name in ("aj_step", "aj_poll")})


@once
def _collectives_object() -> LoadedObject:
    from autojit.codegen.cpu.plan.collectives import collectives_ir

    return load(default_cache().object(collectives_ir(), cached_host_target(), opt_level=1, pass_level=1))


@once
def watch_signals() -> None:
    """Let Python handle signals during long plans from now on."""
    ctypes.c_void_p.from_address(plan_object().address("aj_signals_at")).value = signals_address()


CONTROL = ("aj_loop", "aj_branch", "aj_call")


def builtin_address(name: str) -> int:
    """Address of a body of the plan runner, of a branch, a loop or a call, of a collective, or of a matrix product."""
    if name in COLLECTIVES:
        return _collectives_object().address(name)
    if name in CONTROL:
        return _control_object().address(name)
    if name.startswith(("aj_matmul_", "aj_contract_")):
        return _matmul_object(name.rpartition("_")[2]).address(name)
    if name.startswith("aj_gemm_"):
        return _gemm_object(name.rpartition("_")[2]).address(name)
    return plan_object().address(name)


def begin_products(shorts: Iterable[str]) -> None:
    """Start to compile the matrix products of these dtypes, the longest module of all."""
    for short in shorts:
        begin(f"products {short}", partial(_gemm_object, short))


class Loading:
    """The kernels of a step on their way into memory: LLVM compiles them while the plan around them is written."""

    def __init__(self, lowered: LoweredStep) -> None:
        self._products = lowered.gemm_dtypes
        self._texts = _kernel_texts(lowered)
        begin_products(self._products)
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        are_loaded = all(text in _kernels for text in self._texts) and all(s in _products for s in self._products)
        if not are_loaded:
            self._thread = helper(self._load, "loading kernels")
            if self._thread is None:
                self._load()

    def _load(self) -> None:
        try:
            load_kernels(self._texts)
            for short in self._products:
                wait_for(f"products {short}")
                _gemm_object(short)
        except BaseException as error:  # raised where they are needed
            self._error = error

    def wait(self) -> None:
        """Until all are there.

        Raises:
            CompileError: LLVM rejects a text.
        """
        if self._thread is not None:
            while self._thread.is_alive():
                self._thread.join(_POLL_S)
                late_interrupts.poll()
            self._thread = None
        if self._error is not None:
            raise self._error


def _kernel_texts(lowered: LoweredStep) -> list[str]:
    mine = [e.body for e in lowered.single_entries() if isinstance(e.body, str) and not e.body.startswith("@")]
    return [*mine, *(text for inner in lowered.plans_inside() for text in _kernel_texts(inner))]
