"""A printed kernel for a grid of threads, and what its launch must pass."""

from __future__ import annotations

from typing import Literal

from autojit.core.records import record
from autojit.ir.op import Op

STATIC_SHARED_BYTES = 48 << 10
"""Of shared memory that every block may have; of more a launch has to ask for all, as far as the device has it."""

SHARED_ALIGNMENT = 128
"""Of arrays in it: all banks once."""

LARGE_SHARED_BYTES, LARGE_ALIGNMENT = 4096, 1024
"""Arrays of this size begin where tensor cores read eight rows of 128 bytes that are turned."""

MOST_BLOCKS = (1 << 31) - 1
"""Of a grid along its first axis."""


def shared_alignment(size_bytes: int) -> int:
    """Of an array of shared memory of its own."""
    return LARGE_ALIGNMENT if size_bytes >= LARGE_SHARED_BYTES else SHARED_ALIGNMENT


Role = Literal["reads", "writes", "updates", "takes"]
"""What a kernel does with a buffer. "updates": elements are read and written, or another buffer may be the same;
"takes": nothing, it is an argument because another kernel with the same ones uses it."""


@record
class Buffer:
    """A buffer that a kernel takes.

    Args:
        role: what the kernel does with it.
        element_bytes: its address is at least a multiple of this.
        in_pieces: of an aligned piece of 16 bytes that ends behind the buffer no two elements are read: LLVM would read
            the whole piece for three of them.
        most_elements: no more of them are touched, whatever is looked up; None: perhaps all are.
    """

    role: Role
    element_bytes: int
    in_pieces: bool = False
    most_elements: int | None = None


@record
class SharedCopy:
    """A function of a body's module that copies to shared memory (`codegen.cuda.shared_copies`).

    Args:
        buffer: from which one.
        size_bytes: at once.
        element_bytes: what the addresses are multiples of in any case.
        fills: whether there may be zeros instead.
    """

    buffer: int
    size_bytes: int
    element_bytes: int
    fills: bool


@record
class GridText:
    """A kernel without its entry point, which depends on where the buffers are (`codegen.cuda.entry_point`).

    ``@body`` takes, in this order: who runs it (`codegen.cuda.grid_function.body_parameters`), the arrays of shared
    memory, the buffers, the sizes that are open, the address of partial results if there are any, and, if it reports,
    the address of the step's error words and the kernel's code in the step. It calls ``@meet`` where the threads of a
    block wait for each other.

    Args:
        text: an LLVM module that defines ``@body``.
        buffers: what is done with each.
        threads: of a block.
        blocks: of the grid, along x, y and z; open sizes where their number depends on such.
        partial_bytes: memory for partial results, 0 where there is nothing to combine; an open size likewise.
        combine: launched behind this kernel, with the same arguments.
        reports: whether error words and code follow.
        failing: the ops behind the sites from ``FAILURE_SITE`` on.
        shared: bytes of each array that the threads of a block have in common.
        heeds: it takes the error words, to read them.
        decides: the handle of a condition follows (`codegen.cuda.decision`).
        tells: it takes the error words and the host's copy of them alone (`codegen.cuda.report`).
        sizes: open sizes that the kernel takes by value, as words of 64 bits.
        copies: functions of the module that entry points put others in the place of, where addresses allow.
        most_registers: of a thread; 0: the assembler weighs registers against how many blocks run side by side.
    """

    text: str
    buffers: tuple[Buffer, ...]
    threads: int
    blocks: tuple[int, int, int]
    partial_bytes: int = 0
    combine: GridText | None = None
    reports: bool = False
    failing: tuple[Op, ...] = ()
    shared: tuple[int, ...] = ()
    tells: bool = False
    heeds: bool = False
    decides: bool = False
    sizes: tuple[int, ...] = ()
    copies: tuple[SharedCopy, ...] = ()
    most_registers: int = 0

    @property
    def shared_places(self) -> tuple[int, ...]:
        """Where each array begins in a block's shared memory, and behind the last one where that ends."""
        found = [0]
        for size in self.shared:
            alignment = shared_alignment(size)
            found[-1] = -(-found[-1] // alignment) * alignment
            found.append(found[-1] + -(-size // SHARED_ALIGNMENT) * SHARED_ALIGNMENT)
        return tuple(found)

    @property
    def asked_bytes(self) -> int:
        """Of shared memory that a launch of its own asks for; 0: the text has it."""
        found = self.shared_places[-1]
        return found if found > STATIC_SHARED_BYTES else 0
