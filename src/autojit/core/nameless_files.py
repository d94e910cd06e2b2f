"""Memory that processes share: files that no directory knows. Nothing is left behind, however a process ends."""

from __future__ import annotations

import mmap
import os
import tempfile


def nameless_file(size: int, purpose: str) -> int:
    """The descriptor of a file of ``size`` zero bytes; ``purpose`` names it where the system lists mappings."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create(purpose, os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


class SharedMapping(mmap.mmap):
    """The bytes of such a file, in this process and in those that inherit or receive its descriptor."""

    descriptor: int

    @classmethod
    def of(cls, descriptor: int, size: int) -> SharedMapping:
        """The mapping of a file; the descriptor is its own from now on."""
        made = cls(descriptor, size)
        made.descriptor = descriptor
        return made

    def __del__(self) -> None:
        descriptor = self.__dict__.pop("descriptor", None)
        if descriptor is not None:
            os.close(descriptor)
