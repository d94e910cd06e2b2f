"""What the history says of views: composites whose results come from elsewhere, because a view costs nothing forward.

``ViewChain`` is one user's view made of several view ops; ``Parts`` is one function that returns several views. Their
VJP rules read types alone and make nothing that is not wanted; the other rules are those of the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from autojit.core.records import record
from autojit.core.types import TensorType
from autojit.ir.op import O, Op, Operands, bind
from autojit.ops.base import resolve, sum_to
from autojit.ops.elementwise_arithmetic import cast
from autojit.ops.graph_op import Composite
from autojit.ops.joining import concatenate, split, unbind
from autojit.ops.shape import broadcast_to, reshape
from autojit.ops.views import ViewUpdate


class _Typed:
    """An operand of which a rule may read the type only."""

    __slots__ = ("spec",)

    def __init__(self, spec: TensorType) -> None:
        self.spec = spec


class _View(Composite, abstract=True):
    reads_operands: ClassVar[bool] = False


@record
class ViewChain(_View):
    """The view ops ``chain`` one after the other."""

    chain: tuple[Op, ...]

    def types(self, x: TensorType) -> list[TensorType]:
        """The types along the chain, the operand's first."""
        found = [x]
        for op in self.chain:
            found.append(op.result_type(found[-1]))
        return found

    def result_type(self, x: TensorType) -> TensorType:
        return self.types(x)[-1]

    def expand(self, *operands: O) -> Any:
        return _shown(operands[0], self.chain)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        bar = y_bar
        for op, x in zip(reversed(self.chain), reversed(self.types(primals[0].spec)[:-1]), strict=True):
            bar = resolve(op.vjp((_Typed(x),), _Typed(op.result_type(x)), bar)[0])
            if bar is None:
                return (None,)
        return (bar,)


def _shown(x: O, chain: Sequence[Op]) -> O:
    for op in chain:
        x = bind(op, x)
    return x


@record
class Parts(_View):
    """Consecutive pieces of ``axis`` with the given ``sizes``; ``drop`` removes the axis from each (``unbind``)."""

    axis: int
    sizes: tuple[int, ...]
    drop: bool

    @property
    def n_outputs(self) -> int:
        return len(self.sizes)

    def result_type(self, x: TensorType) -> Any:
        found = tuple(self._part(x, size) for size in self.sizes)
        return found if len(found) != 1 else found[0]

    def _part(self, x: TensorType, size: int) -> TensorType:
        before, after = x.shape[: self.axis], x.shape[self.axis + 1 :]
        return x.with_shape((*before, *after) if self.drop else (*before, size, *after))

    def expand(self, *operands: O) -> Any:
        found = unbind(operands[0], self.axis) if self.drop else split(operands[0], self.sizes, self.axis)
        return self.one_or_all(found)

    def vjp(self, primals: Operands, result: O, y_bar: Any) -> Sequence[Any]:
        bars = y_bar if len(self.sizes) != 1 else (y_bar,)
        return (lambda: self._joined(primals[0].spec, bars),)

    def _joined(self, x: TensorType, bars: Sequence[Any]) -> Any:
        like = next(b for b in bars if b is not None)
        before, after = x.shape[: self.axis], x.shape[self.axis + 1 :]
        pieces = []
        for bar, size in zip(bars, self.sizes, strict=True):
            shape = (*before, size, *after)
            if bar is None:
                pieces.append(like._literal(0, x.with_shape(shape)))
            else:
                pieces.append(reshape(bar, shape) if self.drop else bar)
        return concatenate(pieces, self.axis) if len(pieces) > 1 else pieces[0]


@record
class Restrided(_View):
    """``chain`` of the base, of which the operand is the view ``shown``: what it does not show depends on no operand.

    The graph has zeros there.
    """

    shown: tuple[Op, ...]
    chain: tuple[Op, ...]
    base: TensorType

    def result_type(self, x: TensorType) -> TensorType:
        return ViewChain(self.chain).result_type(self.base)

    def expand(self, *operands: O) -> Any:
        (x,) = operands
        return _shown(bind(ViewUpdate(self.shown), x._literal(0, self.base), x), self.chain)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        return (lambda: self._seen(ViewChain(self.chain).vjp((_Typed(self.base),), result, y_bar)[0]),)

    def _seen(self, bar: O | None) -> O | None:
        return None if bar is None else _shown(bar, self.shown)


@record
class Copied(_View):
    """``x`` after ``source`` was written over all of it, converted and broadcast."""

    def result_type(self, x: TensorType, source: TensorType) -> TensorType:
        return x

    def expand(self, *operands: O) -> Any:
        x, source = operands
        return broadcast_to(cast(source, x.spec.dtype), x.spec.shape)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        x, source = (p.spec for p in primals)
        return lambda: y_bar._literal(0, x), lambda: sum_to(cast(y_bar, source.dtype), source.shape)
