"""What a rank of a group does alone: ops that communicate nothing, and what ops of groups share.

See `collectives` for replicated and varying values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import local
from typing import Any, ClassVar

import numpy as np

from autojit.core.communicator import Communicator, communicator
from autojit.core.device import CPU, Device
from autojit.core.dtypes import int64
from autojit.core.errors import ArgumentError, ShapeError
from autojit.core.records import record
from autojit.core.types import TensorType
from autojit.ir.op import Ndarray, O, Op, Operands, bind, linear_jvp
from autojit.ops.base import Constants, Elementwise, Structured
from autojit.ops.indexing import index_select
from autojit.ops.joining import moveaxis
from autojit.ops.shape import broadcast_to, reshape
from autojit.ops.sources import constant

__all__ = ["ByParts", "OfGroup", "OwnPart", "Pvary", "Rank", "for_all", "own_rank", "pvary"]

Stacked = tuple[Any, bool]
"""What all ranks hold, and whether it varies: with the ranks as the first axis, else once for all of them."""


class OfGroup:
    """What an op of a group knows of it.

    Args:
        group: the name by which the process finds its communicator.
        size: the number of ranks.
    """

    of_ranks: ClassVar[bool] = True
    takes_varying: ClassVar[bool] = False  # a replicated operand enters by `pvary`
    group: str
    size: int

    @property
    def ranks(self) -> Communicator:
        """The group as this process has joined it.

        Raises:
            ArgumentError: it has another number of ranks than when the op was recorded.
        """
        found = communicator(self.group)
        if found.size != self.size:
            raise ArgumentError(
                f"the group {self.group!r} has {found.size} ranks now, and had {self.size} when the step was recorded",
                fix="capture the step again",
            )
        return found

    def varies(self, is_varying: bool) -> bool:
        """Whether the result varies over the group."""
        return True

    def stacked(self, x: Any) -> Stacked:
        """The op for all ranks at once; the operand is varying, with the ranks as its first axis."""
        raise NotImplementedError(type(self).__name__)

    def each(self, x: Any) -> Any:
        """The op on every element of a batch, whose axis is the first."""
        own: Any = self
        return bind(own, x)

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        """A batch; or all ranks, where these are what is batched."""
        if simulated.group != self.group:
            return self.each(args[0])
        result, is_varying = self.stacked(args[0])
        return result if is_varying else for_all(result, self.size)


class _Simulated(local):
    """The group whose ranks are the axis that this thread is batching (`distributed.simulated`)."""

    group: str | None = None


simulated = _Simulated()


@contextmanager
def simulating(group: str) -> Iterator[None]:
    """What is batched inside is a group's ranks."""
    before, simulated.group = simulated.group, group
    try:
        yield
    finally:
        simulated.group = before


class ByParts(OfGroup):
    """Ops on an operand with a part for every rank: ``(size, *s)``."""

    def check(self, name: str, x: TensorType) -> None:
        if not x.shape or x.shape[0] != self.size:
            raise ShapeError(
                f"{name}: the first axis has a part for each of the {self.size} ranks", {"x": x}, "reshape the operand"
            )


@record
class Pvary(OfGroup, Elementwise):
    """A replicated value as a varying one: itself. Its cotangents are summed over the ranks."""

    group: str
    size: int

    def eager(self, x: Ndarray) -> Ndarray:
        return x.copy(order="K")

    def stacked(self, x: Any) -> Stacked:
        return x, True

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        return (lambda: bind(Op.registry["all_reduce"](self.group, self.size, "sum", True), y_bar),)

    jvp = linear_jvp

    def lower(self, emit: Any, x: Any) -> Any:
        return x


@record
class Rank(OfGroup, Constants):
    """The number of this rank: ``i64[]``."""

    group: str
    size: int
    device: Device = CPU

    def result_type(self) -> TensorType:
        return TensorType((), int64, self.device)

    def eager(self) -> Ndarray:
        return np.asarray(self.ranks.rank, np.int64)


@record
class OwnPart(ByParts, Structured):
    """This rank's part of a replicated value: ``(size, *s) -> s``."""

    group: str
    size: int

    def result_type(self, x: TensorType) -> TensorType:
        self.check("own_part", x)
        return x.drop((0,))

    def eager(self, x: Ndarray) -> Ndarray:
        part: Ndarray = x[self.ranks.rank].copy()
        return part

    def expand(self, x: O) -> O:
        """The same as a look-up."""
        rank = reshape(own_rank(x, self.group, self.size), (1,))
        return reshape(index_select(x, 0, rank), x.spec.shape[1:])

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        return (lambda: bind(Op.registry["all_gather"](self.group, self.size, True), y_bar),)

    jvp = linear_jvp

    def each(self, x: Any) -> Any:
        return bind(self, moveaxis(x, 1, 0))

    def stacked(self, x: Any) -> Stacked:
        return x, True


def pvary(x: O, group: str, size: int) -> O:
    """A replicated value as a varying one."""
    return bind(Pvary(group, size), x)


def own_rank(like: O, group: str, size: int) -> O:
    """The number of this rank, recorded or computed where ``like`` is."""
    rank: O = like._bind(Rank(group, size, like.spec.device), ())
    return rank


def table(like: O, values: Sequence[int]) -> O:
    """Whole numbers as a vector."""
    return constant(like, np.asarray(values, np.int64), int64)


def for_all(x: O, size: int) -> O:
    """The same on all ranks, which become the first axis."""
    shape = x.spec.shape
    return broadcast_to(reshape(x, (1, *shape)), (size, *shape))
