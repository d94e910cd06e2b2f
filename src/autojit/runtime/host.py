"""The host's target without loading LLVM.

LLVM is the one that knows the host's name and features, but loading it costs more than all else a process does whose
objects are cached. So its answer is kept in the object cache, under what the kernel says of the processor.

``AUTOJIT_VECTOR_BYTES`` (16, 32 or 64) compiles for vector registers of this size: narrower than the host's is what a
machine without those would run; 64 is used to the full, where LLVM would take half of it on some processors.
"""

from __future__ import annotations

import hashlib
import os

from autojit.codegen.target import HostTarget, host_target
from autojit.core.errors import ArgumentError
from autojit.core.once import once
from autojit.runtime.llvm import llvm_identity
from autojit.runtime.object_cache import default_cache

VECTOR_BYTES = "AUTOJIT_VECTOR_BYTES"
_WIDTHS = (16, 32, 64)  # bytes of a vector register: SSE and NEON, AVX2, AVX-512
_FORMAT = "host target, 4 lines"  # changes with `_printed`, so that no version reads another's entry
_CPUINFO = "/proc/cpuinfo"
_FIRST_PROCESSOR_BYTES = 8192


@once
def cached_host_target() -> HostTarget:
    """What kernels are compiled for: the host, limited to the vector registers that the environment asks for."""
    return _limited(_known_host(), os.environ.get(VECTOR_BYTES, "").strip())


def _limited(host: HostTarget, wanted: str) -> HostTarget:
    """The host with registers of ``wanted`` bytes, a number as text; empty: its own."""
    if not wanted:
        return host
    if not wanted.isdecimal() or int(wanted) not in _WIDTHS or int(wanted) > host.vector_bytes:
        facts = {"value": wanted, "widths": _WIDTHS, "widest here": host.vector_bytes}
        raise ArgumentError(f"{VECTOR_BYTES} is no register width of this machine", facts)
    return host.using_all_of(int(wanted))


def _known_host() -> HostTarget:
    """The same as `codegen.target.host_target()`, from the object cache when it is there."""
    processor = _processor()
    if not processor:
        return host_target()
    known = "\0".join((_FORMAT, llvm_identity(), os.uname().machine, processor))
    key = hashlib.sha256(known.encode()).hexdigest()
    return _parsed(default_cache().blob(key, lambda: _printed(host_target())))


def _printed(target: HostTarget) -> bytes:
    """One field a line; none contains a line break."""
    return "\n".join((target.triple, target.cpu, target.features, str(target.vector_bytes))).encode()


def _parsed(text: bytes) -> HostTarget:
    triple, cpu, features, vector_bytes = text.decode().split("\n")
    return HostTarget(triple, cpu, features, int(vector_bytes))


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
