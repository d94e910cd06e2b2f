"""Which elements of a block's tile a lane goes on with, once they are summed up.

The instructions of a warp leave pairs of neighbours in rows that are 8 apart. Of elements of 4 bytes that is half of
the widest access of a thread, so two lanes side by side exchange what makes four neighbours of one row each.
"""

from __future__ import annotations

from collections.abc import Sequence

from autojit.codegen.cuda.grid_function import CudaKernel
from autojit.codegen.cuda.lane_folds import WARP_BITS
from autojit.codegen.cuda.product_fragments import MATRIX_ROWS, Places
from autojit.codegen.cuda.product_tiles import COLUMNS
from autojit.codegen.scalar import Scalar, register_type
from autojit.core.sizes import surely_divides

PAIR = 2
EXCHANGED = 4
"""Neighbours of a lane, before and after lanes have exchanged some."""


class Results:
    """A lane's elements, in runs of ``width`` neighbours.

    Args:
        kernel: that is printed.
        places: where the lane's elements were summed up.
        exchanges: whether lanes exchange elements: all of a run are elements of the result, or none is.

    Attributes:
        row, column: of the lane's first element.
        is_first: the condition that no other lane of the warp with the same columns comes before.
        folded: the bits in which the numbers of lanes with the same columns differ, as ranges.
    """

    def __init__(self, kernel: CudaKernel, places: Places, *, exchanges: bool) -> None:
        self.kernel, self.tile, self.exchanges = kernel, places.tile, exchanges
        self.width = EXCHANGED if exchanges else PAIR
        self.row, self.column = places.row, places.column
        self.is_first = kernel.test("eq", places.group, 0)
        self.folded = [(2, WARP_BITS)]
        if exchanges:
            odd = kernel.remainder(places.member, 2)
            self.is_odd = kernel.test("ne", odd, 0)
            self.row = kernel.offset(places.row, kernel.scaled(odd, MATRIX_ROWS))
            half = kernel.scaled(kernel.quotient(places.member, 2), EXCHANGED)
            self.column = kernel.offset(places.first_column, half)
            self.is_first = kernel.both(self.is_first, kernel.test("eq", odd, 0))
            self.folded = [(0, 1), *self.folded]

    @property
    def columns(self) -> list[int]:
        """From the lane's first column to each that it has elements in."""
        return [y * COLUMNS + k for y in range(self.tile.fragments[1]) for k in range(self.width)]

    def runs(self) -> list[tuple[int, int]]:
        """Where each run begins, fragment by fragment: how far down and across from the lane's first element."""
        (down, across), height = self.tile.fragments, self.tile.fragment.rows
        apart = (0,) if self.exchanges else range(0, height // 4, PAIR)
        return [(x * height + 4 * k, y * COLUMNS) for x in range(down) for y in range(across) for k in apart]

    def sums(self, totals: Sequence[Scalar]) -> list[list[tuple[Scalar, ...]]]:
        """What is summed up, as `Places.of_lane` has it: of each fragment, that of its runs. All lanes take part."""
        count = self.tile.fragment.rows // 4
        own = [tuple(totals[first : first + count]) for first in range(0, len(totals), count)]
        if self.exchanges:
            return [[self._exchanged(fragment)] for fragment in own]
        return [[fragment[k : k + PAIR] for k in range(0, count, PAIR)] for fragment in own]

    def _exchanged(self, own: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
        """Even lanes give their second row for the first one of their neighbour."""
        upper, lower = own[:PAIR], own[PAIR:]
        given = [self._chosen(a, b) for a, b in zip(upper, lower, strict=True)]
        taken = [self.kernel.shuffle(value, 1) for value in given]
        left = [self._chosen(a, b) for a, b in zip(taken, upper, strict=True)]
        right = [self._chosen(a, b) for a, b in zip(lower, taken, strict=True)]
        return (*left, *right)

    def _chosen(self, odd: Scalar, even: Scalar) -> Scalar:
        return Scalar(self.kernel.choose(self.is_odd, odd.text, even.text, register_type(odd.dtype)), odd.dtype)


def exchanges(rows: int, total_bytes: int, columns: int) -> bool:
    """Whether lanes exchange elements: of what four make 16 bytes, where rows of the result are made of fours."""
    return rows == 2 * MATRIX_ROWS and total_bytes == 4 and surely_divides(EXCHANGED, columns)
