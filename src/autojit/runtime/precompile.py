"""Compiling ahead: the modules that every step needs whatever it computes are compiled beside its capture.

They are the plan runner, the thread pool and the native entry point, 40 ms together where the object cache is empty.
The results only go into the object cache: whoever needs a module asks the cache as ever, and waits there if it is still
being made. `compile_fixed` makes all modules that are the same in every program, for who fills a cache beforehand.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from autojit.codegen.cpu.machine import machine_of
from autojit.core.undivided_work import undivided
from autojit.runtime.background import begin, on_all_cores
from autojit.runtime.bodies import control_content, gemm_content, matmul_content, plan_request
from autojit.runtime.entry_method import entry_request
from autojit.runtime.host import cached_host_target
from autojit.runtime.object_cache import default_cache
from autojit.runtime.pool import pool_request


def compile_ahead() -> None:
    """Start compiling on a thread of its own, once per process and only where a second core can do it."""
    begin("compiling ahead", _compile)


def compile_fixed() -> None:
    """Have every module in the object cache that does not depend on a program, those of matrix products among them."""
    shorts = sorted(dtype.short for dtype in machine_of(cached_host_target()).product_dtypes)
    makers: list[Callable[[], bytes]] = [
        *(partial(gemm_content, short) for short in shorts),  # the longest first
        *(partial(matmul_content, short) for short in shorts),
        control_content,
        *(partial(_compile_one, request) for request in _REQUESTS),
    ]
    with undivided:
        on_all_cores(lambda make: make(), makers, "compiling ahead")


def _compile() -> None:
    for request in _REQUESTS:
        _compile_one(request)


def _compile_one(request: Callable[[], tuple[Any, ...]]) -> bytes:
    text, *levels = request()
    return default_cache().object(text, cached_host_target(), *levels)


_REQUESTS: tuple[Callable[[], tuple[Any, ...]], ...] = (plan_request, entry_request, pool_request)
