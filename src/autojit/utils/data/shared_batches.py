"""Messages between the DataLoader and its worker processes, with the arrays in shared memory.

A message is a pickle whose buffers stay out of it. What is small goes through the connection as it is. The rest goes
into memory without a name (``memfd_create``; elsewhere a temporary file that is deleted at once), whose file descriptor
is sent along: the receiver maps it, and its arrays are views of the mapping. Nothing has to be unlinked, so nothing is
left behind, however a process ends; the memory is free when the last array is.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import socket
import struct
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from autojit.core.device import CPU
from autojit.core.layout import strided
from autojit.core.nameless_files import nameless_file
from autojit.functions.conversion import array_of
from autojit.functions.copying import rebuilt, warn_of_hooks
from autojit.history.recording import wants_grad
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of

_INLINE_BYTES = 400
MOST_UNDER_WAY = 64
"""Messages in one direction that may be unread. So many of ``_INLINE_BYTES``, each with a file descriptor, fit into the
buffer of a Unix socket (208 KiB on Linux, where 87 did), so no sender ever waits for a receiver that waits for it."""
_ALIGNMENT = 64  # a cache line, and a register of any machine
_INLINE, _SHARED = b"i", b"s"
_WORD = struct.Struct("q")


class _Pickler(pickle.Pickler):
    """Pickles a tensor in the host's memory without a copy: its elements stay outside."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is not Tensor or obj.layout is not strided or type_of(obj).device != CPU:
            return NotImplemented
        warn_of_hooks(obj)
        array = array_of(obj)
        return rebuilt, (array if array.flags.c_contiguous else np.array(array, order="C"), wants_grad(obj))


def packed(message: Any) -> list[memoryview]:
    """A message as the text of its pickle and the buffers that stay out of it."""
    buffers: list[pickle.PickleBuffer] = []
    text = io.BytesIO()
    _Pickler(text, protocol=5, buffer_callback=buffers.append).dump(message)
    return [text.getbuffer(), *(buffer.raw() for buffer in buffers)]


def send(connection: Connection, parts: list[memoryview]) -> None:
    """Send a packed message; what is large is copied once, into shared memory.

    Raises:
        BrokenPipeError: nobody receives any more.
    """
    if len(parts) == 1 and len(parts[0]) <= _INLINE_BYTES:
        connection.send_bytes(_INLINE + parts[0])
        return
    lengths = [len(part) for part in parts]
    spans, size = _laid_out(lengths)
    descriptor = nameless_file(size, "autojit-batch")
    try:
        # written, not mapped: the system then fills the pages without a fault for each: 0.6 for 1.5 ms of 1.5 MB
        _write(descriptor, memoryview(b"".join(map(_WORD.pack, [len(parts), *lengths]))), 0)
        for part, (begin, _) in zip(parts, spans, strict=True):
            _write(descriptor, part, begin)
        connection.send_bytes(_SHARED + _WORD.pack(size))
        with socket.socket(fileno=os.dup(connection.fileno())) as carrier:
            socket.send_fds(carrier, [b"f"], [descriptor])
    finally:
        os.close(descriptor)


def _write(descriptor: int, part: memoryview, begin: int) -> None:
    """All of a part; one call writes at most 2 GiB."""
    while len(part):
        count = os.pwrite(descriptor, part, begin)
        part, begin = part[count:], begin + count


def receive(connection: Connection) -> Any:
    """The next message, whose arrays are views of shared memory.

    Raises:
        EOFError: the sender is gone.
    """
    text = connection.recv_bytes()
    if text[:1] == _INLINE:
        return pickle.loads(memoryview(text)[1:])
    (size,) = _WORD.unpack(text[1:])
    with socket.socket(fileno=os.dup(connection.fileno())) as carrier:
        _, (descriptor,), _, _ = socket.recv_fds(carrier, 1, 1)
    try:
        memory = memoryview(mmap.mmap(descriptor, size))
    finally:
        os.close(descriptor)
    (count,) = _WORD.unpack(memory[: _WORD.size])
    lengths = [_WORD.unpack(memory[_WORD.size * (1 + k) : _WORD.size * (2 + k)])[0] for k in range(count)]
    spans, _ = _laid_out(lengths)
    body, *buffers = (memory[begin : begin + length] for begin, length in spans)
    return pickle.loads(body, buffers=buffers)


def _laid_out(lengths: list[int]) -> tuple[list[tuple[int, int]], int]:
    """Where parts of these lengths begin, after their number and lengths; and the bytes of all."""
    spans, end = [], _WORD.size * (1 + len(lengths))
    for length in lengths:
        begin = -(-end // _ALIGNMENT) * _ALIGNMENT
        spans.append((begin, length))
        end = begin + length
    return spans, end
