"""Folds over the threads of a block: lanes exchange states by shuffles, warps through shared memory.

A *state* is what a fold carries: one value, or the best value with its position. Of a shuffle both lanes make the same,
so all lanes end with one result; warps are folded in the order of their numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autojit.codegen.cuda.grid_function import WARP, CudaKernel, Grid
from autojit.codegen.scalar import Scalar, is_half, memory_type
from autojit.core.dtypes import DType, bool_, float32

State = tuple[Scalar, ...]
Combine = Callable[[State, State], State]
WARP_BITS = WARP.bit_length() - 1


class LaneFolds(CudaKernel):
    """A kernel on a GPU whose threads fold together what they have."""

    def run_by(self, grid: Grid) -> None:
        """Begin the body of a kernel that this grid runs."""
        super().run_by(grid)
        self._arrays: dict[tuple[DType, int, tuple[int, int]], str] = {}

    def identity(self, op: Any, dtype: DType) -> Scalar:
        found: Scalar = op.lower(self.fold, dtype)[0]
        return found

    def combine(self, op: Any, a: Scalar, b: Scalar) -> Scalar:
        """Two values of a fold's dtype."""
        made: Scalar = op.lower(self.fold, a.dtype)[1](a, b)
        return made

    def masked(self, value: Scalar, condition: str | None, otherwise: Scalar) -> Scalar:
        return value if condition is None else self.emit.select(Scalar(condition, bool_), value, otherwise)

    def plain(self, op: Any) -> Combine:
        """How states of one value combine."""
        return lambda a, b: (self.combine(op, a[0], b[0]),)

    def over_lanes(self, states: Sequence[State], combines: Sequence[Combine], low: int, high: int) -> list[State]:
        """Folds over threads whose numbers differ in bits ``low`` to ``high``; each of them gets the results.

        All threads of the block take part, if ``high`` goes beyond a warp.
        """
        found = list(states)
        if not found:
            return found
        for bit in range(low, min(high, WARP_BITS)):
            for k, combine in enumerate(combines):
                found[k] = combine(found[k], tuple(self.shuffle(v, 1 << bit) for v in found[k]))
        return found if high <= WARP_BITS else self._over_warps(found, combines, low, high)

    def _over_warps(self, states: Sequence[State], combines: Sequence[Combine], low: int, high: int) -> list[State]:
        """Warps leave what their lanes have in shared memory, one entry for lanes that have the same."""
        columns, warps = 1 << min(low, WARP_BITS), self.grid.threads // WARP
        arrays = [
            [self._array(v.dtype, warps * columns, (k, n)) for n, v in enumerate(s)] for k, s in enumerate(states)
        ]
        lane, warp = self.remainder(self.thread, WARP), self.quotient(self.thread, WARP)
        self.barrier()  # the arrays may still be read by the fold before
        with self.when(self.test("ult", lane, columns)):
            place = self.offset(self.scaled(warp, columns), lane)
            for state, its_arrays in zip(states, arrays, strict=True):
                for value, array in zip(state, its_arrays, strict=True):
                    self.put_shared(array, place, value)
        self.barrier()
        first_bit = max(low - WARP_BITS, 0)
        count, step = 1 << (high - WARP_BITS - first_bit), 1 << first_bit
        # the first of the warps that fold together
        first = self.binary("and", warp, ~((count - 1) * step))
        start = self.offset(self.scaled(first, columns), self.remainder(lane, columns))
        return [
            self._in_order(state, its_arrays, combine, [self.offset(start, k * step * columns) for k in range(count)])
            for state, its_arrays, combine in zip(states, arrays, combines, strict=True)
        ]

    def _in_order(self, state: State, arrays: Sequence[str], combine: Combine, places: Sequence[str]) -> State:
        found: State | None = None
        for place in places:
            other = tuple(self.get_shared(a, place, v.dtype) for a, v in zip(arrays, state, strict=True))
            found = other if found is None else combine(found, other)
        assert found is not None, "there is a first warp"
        return found

    def _array(self, dtype: DType, count: int, name: tuple[int, int]) -> str:
        """Shared memory for one value of a state: folds that do not run at once have it in common."""
        stored = shared_dtype(dtype)
        key = (stored, count, name)
        if key not in self._arrays:
            self._arrays[key] = self.shared(memory_type(stored), count)
        return self._arrays[key]

    def put_shared(self, array: str, place: str, value: Scalar) -> None:
        """Leave a value in an array of shared memory."""
        stored = shared_dtype(value.dtype)
        self.emit.store(Scalar(value.text, stored), self.address(array, stored, place))

    def get_shared(self, array: str, place: str, dtype: DType) -> Scalar:
        """A value of an array of shared memory."""
        stored = shared_dtype(dtype)
        return Scalar(self.emit.load(self.address(array, stored, place), stored).text, dtype)


def shared_dtype(dtype: DType) -> DType:
    """What a value is kept as in shared memory: halves as the float that holds them in a register."""
    return float32 if is_half(dtype) else dtype
