"""Kernels in which every thread has an item of its own: an element, a line, a value that is looked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from autojit.codegen.cuda.grid_function import WARP, CudaKernel, Grid
from autojit.codegen.grid_text import Buffer, GridText
from autojit.core.sizes import typical
from autojit.ir.graph import Node

MOST_THREADS = 128  # of a block


class ItemKernel(CudaKernel):
    """The kernel of a node on contiguous operands, for a number of items; its buffers: operands, then results."""

    def __init__(self, node: Node, items: int) -> None:
        threads = min(MOST_THREADS, max(1, -(-typical(items) // WARP)) * WARP)
        super().__init__(Grid(threads, (-(-items // threads), 1, 1)))
        self.node, self.items, self.threads = node, items, threads
        self.pointers([v.type.size for v in (*node.inputs, *node.outputs)])

    @contextmanager
    def item(self) -> Iterator[str]:
        """What is written inside is run by the threads that have an item; yields its number."""
        number = self.add(self.mul(self.block_x, self.threads), self.thread)
        if self.items % self.threads == 0:
            yield number
            return
        with self.when(self.test("ult", number, self.items)):
            yield number

    def text(self) -> GridText:
        """The finished kernel: operands are only read, results only written."""
        roles = [
            *(Buffer("reads", v.type.dtype.size_bytes) for v in self.node.inputs),
            *(Buffer("writes", v.type.dtype.size_bytes) for v in self.node.outputs),
        ]
        return self.finished(roles)
