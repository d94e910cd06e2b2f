"""The host's target without loading LLVM.

LLVM is the one that knows the host's name and features, but loading it costs more than all else a process does whose
objects are cached. So its answer is kept in the object cache, under what the kernel says of the processor.
"""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import asdict
from functools import cache

from autojit.codegen.target import HostTarget, host_target
from autojit.runtime.llvm import llvm_identity
from autojit.runtime.object_cache import default_cache

_CPUINFO = "/proc/cpuinfo"
_FIRST_PROCESSOR_BYTES = 8192


@cache
def cached_host_target() -> HostTarget:
    """The same as `codegen.target.host_target()`, from the object cache when it is there."""
    processor = _processor()
    if not processor:
        return host_target()
    key = hashlib.sha256(f"host target\0{llvm_identity()}\0{platform.machine()}\0{processor}".encode()).hexdigest()
    return HostTarget(**json.loads(default_cache().blob(key, lambda: json.dumps(asdict(host_target())).encode())))


def _processor() -> str:
    """Model and feature lines of the first processor; empty where the system has no such file."""
    try:
        with open(_CPUINFO, encoding="ascii", errors="replace") as file:
            text = file.read(_FIRST_PROCESSOR_BYTES)
    except OSError:
        return ""
    first = text.partition("\n\n")[0].splitlines()
    named = ("vendor_id", "cpu family", "model", "stepping", "flags", "CPU", "Features")
    return "\n".join(line for line in first if line.startswith(named))
