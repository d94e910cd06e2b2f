"""Compiling ahead: the modules that every step needs whatever it computes are compiled beside its capture.

They are the plan runner, the thread pool and the native entry point, 40 ms together where the object cache is empty.
The results only go into the object cache: whoever needs a module asks the cache as ever, and waits there if it is still
being made.
"""

from __future__ import annotations

from autojit.runtime.background import begin
from autojit.runtime.bodies import plan_request
from autojit.runtime.entry_method import entry_request
from autojit.runtime.host import cached_host_target
from autojit.runtime.object_cache import default_cache
from autojit.runtime.pool import pool_request


def compile_ahead() -> None:
    """Start compiling on a thread of its own, once per process and only where a second core can do it."""
    begin("compiling ahead", _compile)


def _compile() -> None:
    for request in (plan_request, entry_request, pool_request):
        text, *levels = request()
        default_cache().object(text, cached_host_target(), *levels)
