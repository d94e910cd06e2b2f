"""Collectives: ops whose results depend on the operands of other processes, the ranks of a named group.

How to read. Every rank runs the same graph. Over a group a value is *replicated* (all ranks hold the same) or *varying*
(each holds its own). The kind is not in the types: it is a property of where a value comes from, and the ops say what
they make (``is_replicated``, `OfGroup.varies`; `distributed.varying` infers it). It decides the derivative. The
cotangent of a replicated value is that of the one value, and replicated; that of a varying value is each rank's own:

    all_reduce, varying to varying     <->  itself            all_gather, varying      <->  reduce_scatter
    all_reduce, varying to replicated  <->  pvary             all_gather, replicated   <->  own_part
    broadcast (root)                   <->  sum at the root   all_to_all, send_recv    <->  themselves, turned

So a replicated loss has one gradient, not one per rank. ``stacked`` says of each op what it does to all ranks' operands
at once, which have the ranks as their first axis: the meaning that tests compare with (`distributed.simulated`).

A collective is an effect: passes keep it where it is, run it once, and let it wait for the one before (`Op.calls_out`).
What computes values again (derivatives of a captured function) does so on every rank alike; such a repeated collective
(``again``) is left out where nothing reads it.

What a step has to compute anyway may run while ranks exchange: a collective can be *begun*, and its result be had from
`Wait`. Nothing else may read what it gives before; `passes.begun_collectives` sees to that. Without a group's own
functions it is done when it is begun, which is the meaning of the pair: the collective, then the identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from autojit.core.communicator import Combination, Manner, called
from autojit.core.dtypes import bool_, int64
from autojit.core.errors import ArgumentError, UnsupportedDTypeError
from autojit.core.records import record
from autojit.core.types import TensorType
from autojit.ir.op import Ndarray, O, Operands, bind, linear_jvp, not_differentiable
from autojit.ops.base import Structured, conjugate
from autojit.ops.elementwise_arithmetic import cast, mul, where
from autojit.ops.elementwise_logic import eq, ne
from autojit.ops.indexing import index_select, take_along_axis
from autojit.ops.joining import moveaxis
from autojit.ops.rank_arithmetic import combined_as, packed, reduced, wide
from autojit.ops.ranks import ByParts, OfGroup, OwnPart, Stacked, for_all, own_rank, pvary, table
from autojit.ops.reductions import all, amax, amin, any, argmax, argmin, prod, sum
from autojit.ops.shape import reshape
from autojit.ops.sources import iota, zeros_like

__all__ = [
    "AllGather", "AllReduce", "AllToAll", "Beginning", "Broadcast", "Collective", "Owner", "ReduceScatter", "SendRecv",
    "Wait",
]  # fmt: skip

COMBINATIONS: tuple[Combination, ...] = ("sum", "prod", "max", "min")


class Collective(OfGroup, Structured, abstract=True):
    """An op that communicates. ``again``: it computes a value a second time, for a derivative."""

    calls_out: ClassVar[bool] = True
    takes_varying: ClassVar[bool] = True
    again: bool

    @property
    def has_effect(self) -> bool:
        return not self.again

    @property
    def repeated(self) -> Any:
        """See `ir.op.Op.repeated`."""
        return self._as(again=False) if self.again else None

    def _as(self, again: bool) -> Any:
        known: Any = self
        return replace(known, again=again)

    def silent(self) -> Any:
        """See `ir.op.Op.silent`."""
        return self._as(again=True)

    def parameters(self) -> tuple[tuple[str, object], ...]:
        return tuple([p for p in super().parameters() if p not in (("again", False), ("manner", "at once"))])

    def may_fail(self, *types: TensorType) -> bool:
        return True

    def failure(self, number: int) -> BaseException:
        """The error behind what a C function returned; `LOST`: there is no such group."""
        native = None if number == LOST else self.ranks.native()
        if native is None:
            self.ranks  # noqa: B018  (raises what is wrong)
            return ArgumentError(
                f"{self.shown_name}: the group {self.group!r} cannot be called by compiled code any more"
            )
        return native.failure(number, self.shown_name)


LOST = -1
"""What native code reports of a group that has been left, or has another size."""


class Beginning(Collective, abstract=True):
    """A collective that can be begun, and have its result from `Wait`."""

    manner: Manner

    def ended(self) -> Any:
        """The same where nothing is between its beginning and its end."""
        known: Any = self
        return replace(known, manner="begun and ended") if self.manner == "begun" else self

    def call(self, collective: Any, *arguments: Any) -> None:
        """Call a function of the group's."""
        called(self.manner, collective, *arguments)


def linear(self: Any, primals: Operands, result: Any, tangents: Operands) -> Any:
    """The ``jvp`` of a linear collective, of which nobody waits for the tangent."""
    return linear_jvp(replace(self, manner="at once"), primals, result, tangents)


@record
class AllReduce(Beginning):
    """Every element combined over the ranks: ``s -> s``. NaN is the largest and the smallest number."""

    may_overwrite: ClassVar[bool] = True
    group: str
    size: int
    combine: Combination
    is_replicated: bool
    again: bool = False
    manner: Manner = "at once"

    def varies(self, is_varying: bool) -> bool:
        return not self.is_replicated

    def result_type(self, x: TensorType) -> TensorType:
        if self.combine not in COMBINATIONS:
            raise ArgumentError(f"all_reduce: cannot combine by {self.combine!r}", fix="one of sum, prod, max, min")
        if self.combine in ("max", "min") and x.dtype.is_complex:
            raise UnsupportedDTypeError(f"all_reduce: complex numbers have no {self.combine}", {"x": x})
        return x

    def eager(self, x: Ndarray) -> Ndarray:
        return reduced(self.ranks, x, self.combine, self.manner)

    def stacked(self, x: Any) -> Stacked:
        total = folded(x, self.combine)
        return (total, False) if self.is_replicated else (for_all(total, self.size), True)

    def summed(self, x: O) -> O:
        """The sum over the ranks of what contributes to the result on this one."""
        return bind(AllReduce(self.group, self.size, "sum", self.is_replicated), x)

    def _spread(self, y_bar: O) -> O:
        return pvary(y_bar, self.group, self.size) if self.is_replicated else self.summed(y_bar)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        (x,) = primals
        return (lambda: self._scaled(x, self._spread(y_bar), is_adjoint=True),)

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        (x,), (x_dot,) = primals, tangents
        return None if x_dot is None else self.summed(self._scaled(x, x_dot))

    def each(self, x: Any) -> Any:
        return bind(self.ended(), x)

    def _scaled(self, x: O, of: O, is_adjoint: bool = False) -> O:
        """The derivative of the result by this rank's operand, times ``of``."""
        if self.combine == "sum":
            return of
        if self.combine == "prod":
            others = self._product_of_others(x)
            return mul(of, conjugate(others) if is_adjoint else others)
        owner = bind(Owner(self.group, self.size, self.combine), x)
        return where(eq(owner, own_rank(x, self.group, self.size)), of, zeros_like(of))

    def _product_of_others(self, x: O) -> O:
        """The product of the other ranks' elements: a quotient by the own one would be NaN where that is 0."""
        parts = bind(AllGather(self.group, self.size, False), x)
        is_own = eq(iota(parts, parts.spec.shape, 0), own_rank(x, self.group, self.size))
        return prod(where(is_own, 1, parts), (0,))


@record
class Wait(Collective):
    """The result of a collective that was begun: ``(s, t) -> s``, of what it gave and its operand.

    The operand is read until then. Ranks that call functions of Python's have the result already.
    """

    may_overwrite: ClassVar[bool] = True
    takes_varying: ClassVar[bool] = False
    group: str
    size: int
    is_replicated: bool
    again: bool = False

    def varies(self, is_varying: bool) -> bool:
        return not self.is_replicated

    def result_type(self, x: TensorType, operand: TensorType) -> TensorType:
        return x

    def eager(self, x: Ndarray, operand: Ndarray) -> Ndarray:
        return x.copy()

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        return args[0]  # a batch of collectives is done when it is begun

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        return y_bar, None

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        return tangents[0]  # which the rule of the collective has to the end


@record
class Owner(Collective):
    """The lowest rank that has the largest (``combine="max"``) or smallest element: ``s -> i64[s]``.

    Operand and result are of one kernel, so the owner of a value that is computed again is right for what it is then.
    """

    group: str
    size: int
    combine: Combination
    again: bool = False

    def result_type(self, x: TensorType) -> TensorType:
        return x.with_dtype(int64)

    def eager(self, x: Ndarray) -> Ndarray:
        ranks = self.ranks
        best = reduced(ranks, x, self.combine)
        is_best = (x == best) | ((x != x) & (best != best))
        return reduced(ranks, np.where(is_best, np.int64(ranks.rank), np.int64(ranks.size)), "min")

    def stacked(self, x: Any) -> Stacked:
        best = {"max": amax, "min": amin}[self.combine](x, (0,), True)
        is_best = eq(x, best)
        number = where(is_best, iota(x, x.spec.shape, 0), self.size)
        return for_all(amin(number, (0,)), self.size), True

    vjp = jvp = not_differentiable("a rank is a whole number")


@record
class AllGather(Beginning):
    """All ranks' operands along a new first axis: ``s -> (size, *s)``."""

    group: str
    size: int
    is_replicated: bool
    again: bool = False
    manner: Manner = "at once"

    def varies(self, is_varying: bool) -> bool:
        return not self.is_replicated

    def result_type(self, x: TensorType) -> TensorType:
        return x.with_shape((self.size, *x.shape))

    def eager(self, x: Ndarray) -> Ndarray:
        result = np.empty((self.size, *x.shape), x.dtype)
        self.call(self.ranks.all_gather, result, packed(x))
        return result

    def stacked(self, x: Any) -> Stacked:
        return (x, False) if self.is_replicated else (for_all(x, self.size), True)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        back = OwnPart if self.is_replicated else ReduceScatter
        return (lambda: bind(back(self.group, self.size), y_bar),)

    jvp = linear

    def each(self, x: Any) -> Any:
        return moveaxis(bind(self.ended(), x), 0, 1)


@record
class ReduceScatter(ByParts, Beginning):
    """The sum over the ranks of what they have for this one: ``(size, *s) -> s``."""

    group: str
    size: int
    again: bool = False
    manner: Manner = "at once"

    def result_type(self, x: TensorType) -> TensorType:
        self.check("reduce_scatter", x)
        return x.drop((0,))

    def eager(self, x: Ndarray) -> Ndarray:
        parts = packed(wide(x))
        result = np.empty(x.shape[1:], parts.dtype)
        self.call(self.ranks.reduce_scatter, result, parts, combined_as(x.dtype, "sum"))
        return result.astype(x.dtype, copy=False)

    def stacked(self, x: Any) -> Stacked:
        return folded(x, "sum"), True

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        return (lambda: bind(AllGather(self.group, self.size, False), y_bar),)

    jvp = linear

    def each(self, x: Any) -> Any:
        return bind(self.ended(), moveaxis(x, 1, 0))


@record
class AllToAll(ByParts, Beginning):
    """Part ``r`` goes to rank ``r``: ``y[r] = x of rank r [rank]``, both ``(size, *s)``."""

    group: str
    size: int
    again: bool = False
    manner: Manner = "at once"

    def result_type(self, x: TensorType) -> TensorType:
        self.check("all_to_all", x)
        return x

    def eager(self, x: Ndarray) -> Ndarray:
        result = np.empty(x.shape, x.dtype)
        self.call(self.ranks.all_to_all, result, packed(x))
        return result

    def stacked(self, x: Any) -> Stacked:
        return moveaxis(x, 0, 1), True

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        return (lambda: bind(AllToAll(self.group, self.size), y_bar),)

    jvp = linear

    def each(self, x: Any) -> Any:
        return moveaxis(bind(self.ended(), moveaxis(x, 1, 0)), 1, 0)


@record
class Broadcast(Beginning):
    """What rank ``root`` has: ``s -> s``."""

    may_overwrite: ClassVar[bool] = True
    group: str
    size: int
    root: int
    is_replicated: bool
    again: bool = False
    manner: Manner = "at once"

    def varies(self, is_varying: bool) -> bool:
        return not self.is_replicated

    def result_type(self, x: TensorType) -> TensorType:
        if not 0 <= self.root < self.size:
            raise ArgumentError(f"broadcast: there is no rank {self.root} among {self.size}")
        return x

    def eager(self, x: Ndarray) -> Ndarray:
        result = np.array(x, order="C")
        self.call(self.ranks.broadcast, result, self.root)
        return result

    def stacked(self, x: Any) -> Stacked:
        one = reshape(index_select(x, 0, table(x, [self.root])), x.spec.shape[1:])
        return (one, False) if self.is_replicated else (for_all(one, self.size), True)

    def each(self, x: Any) -> Any:
        return bind(self.ended(), x)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        """The sum over the ranks, at the root."""

        def at_root() -> Any:
            total = AllReduce(self.group, self.size, "sum", self.is_replicated)._spread(y_bar)
            is_root = eq(own_rank(y_bar, self.group, self.size), self.root)
            return where(is_root, total, zeros_like(total))

        return (at_root,)

    jvp = linear


@record
class SendRecv(Collective):
    """What another rank has, by ``pairs`` of (from, to): ``s -> s``; zeros on ranks that nobody sends to."""

    group: str
    size: int
    pairs: tuple[tuple[int, int], ...]
    again: bool = False

    def result_type(self, x: TensorType) -> TensorType:
        for ranks in zip(*self.pairs, strict=True):
            if len(set(ranks)) != len(ranks) or not set(ranks) <= set(range(self.size)):
                raise ArgumentError(
                    f"send_recv: each of the {self.size} ranks sends once at most, and receives once at most",
                    {"pairs": self.pairs},
                )
        return x

    def sides(self, rank: int) -> tuple[int | None, int | None]:
        """Whom a rank sends to, and receives from."""
        to = next((b for a, b in self.pairs if a == rank), None)
        return to, next((a for a, b in self.pairs if b == rank), None)

    def eager(self, x: Ndarray) -> Ndarray:
        ranks = self.ranks
        to, source = self.sides(ranks.rank)
        result = np.zeros(x.shape, x.dtype)
        ranks.send_recv(None if source is None else result, None if to is None else packed(x), to, source)
        return result

    def stacked(self, x: Any) -> Stacked:
        sources = [self.sides(r)[1] for r in range(self.size)]
        found = index_select(x, 0, table(x, [0 if s is None else s for s in sources]))
        is_sent = ne(table(x, [0 if s is None else 1 for s in sources]), 0)
        return where(reshape(is_sent, (self.size, *(1,) * (x.spec.ndim - 1))), found, zeros_like(found)), True

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        back = tuple(sorted((b, a) for a, b in self.pairs))
        return (lambda: bind(SendRecv(self.group, self.size, back), y_bar),)

    jvp = linear_jvp


def folded(x: O, combine: Combination) -> O:
    """All ranks' elements combined, which are along the first axis; an extreme is the lowest rank's that has it."""
    if x.spec.dtype is bool_:
        return any(x, (0,)) if combine in ("sum", "max") else all(x, (0,))
    if combine in ("max", "min"):
        owner = argmax(x, 0, True) if combine == "max" else argmin(x, 0, True)
        return reshape(take_along_axis(x, owner, 0), x.spec.shape[1:])
    total = (sum if combine == "sum" else prod)(x, (0,))
    return total if total.spec.dtype is x.spec.dtype else cast(total, x.spec.dtype)
