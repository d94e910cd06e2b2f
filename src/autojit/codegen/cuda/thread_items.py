"""Kernels in which every thread has an item of its own: an element, a line, a value that is looked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from autojit.codegen.cuda.counting import CountingKernel
from autojit.codegen.cuda.grid_function import WARP, Grid
from autojit.codegen.grid_text import Buffer, GridText
from autojit.ir.graph import Node

MOST_THREADS = 128  # of a block


def thread_grid(items: int) -> Grid:
    """A thread for each item."""
    threads = min(MOST_THREADS, max(1, -(-items // WARP)) * WARP)
    return Grid(threads, (-(-items // threads), 1, 1))


def roles_of(node: Node) -> tuple[Buffer, ...]:
    """What kernels do with a node's operands and results: operands are only read, results only written."""
    return (
        *(Buffer("reads", v.type.dtype.size_bytes) for v in node.inputs),
        *(Buffer("writes", v.type.dtype.size_bytes) for v in node.outputs),
    )


class ItemKernel(CountingKernel):
    """The kernel of a node on contiguous operands, for a number of items; its buffers: operands, then results."""

    def __init__(self, node: Node, items: int) -> None:
        sizes = [v.type.size for v in (*node.inputs, *node.outputs)]
        super().__init__(thread_grid(items), roles_of(node), sizes, 0)
        self.node, self.items = node, items

    @contextmanager
    def item(self) -> Iterator[str]:
        """What is written inside is run by the threads that have an item; yields its number."""
        with self.numbered(self.items) as number:
            yield number

    def text(self) -> GridText:
        """The finished kernel."""
        return self.ended()
