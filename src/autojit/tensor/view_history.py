"""What the history says of views: ops that are recorded, never computed, because a view costs nothing forward.

``ViewChain`` is one user's view made of several view ops; ``Parts`` is one function that returns several views. Their
results were computed by the view ops themselves; only derivative rules run here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autojit.core.records import record
from autojit.core.types import TensorType
from autojit.ir.op import Op, Operands, bind
from autojit.ops.base import resolve, sum_to
from autojit.ops.joining import concatenate


class _Typed:
    """An operand of which a rule may read the type only."""

    __slots__ = ("spec",)

    def __init__(self, spec: TensorType) -> None:
        self.spec = spec


@record
class ViewChain(Op):
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

    def eager(self, x: Any) -> Any:
        for op in self.chain:
            x = op.eager(x)
        return x

    def vjp(self, primals: Operands, result: Any, y_bar: Any) -> Sequence[Any]:
        bar = y_bar
        for op, x in zip(reversed(self.chain), reversed(self.types(primals[0].spec)[:-1]), strict=True):
            bar = resolve(op.vjp((_Typed(x),), _Typed(op.result_type(x)), bar)[0])
            if bar is None:
                return (None,)
        return (bar,)

    def jvp(self, primals: Operands, result: Any, tangents: Operands) -> Any:
        x_dot = tangents[0]
        for op in self.chain if x_dot is not None else ():
            x_dot = bind(op, x_dot)
        return x_dot

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        x = args[0]
        for op in self.chain:
            x = op.batch((x,), batched)
        return x


@record
class Parts(Op):
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

    def eager(self, x: Any) -> Any:
        raise AssertionError("recorded only: its results are views made one by one")

    def vjp(self, primals: Operands, result: Any, y_bar: Any) -> Sequence[Any]:
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
                pieces.append(bind(Op.registry["reshape"](shape), bar) if self.drop else bar)
        return concatenate(pieces, self.axis) if len(pieces) > 1 else pieces[0]

    jvp = eager
    batch = eager


@record
class Restrided(Op):
    """``chain`` of the base, of which the operand is the view ``shown``: nothing flows to what it does not show."""

    shown: tuple[Op, ...]
    chain: tuple[Op, ...]
    base: TensorType

    def result_type(self, x: TensorType) -> TensorType:
        return ViewChain(self.chain).result_type(self.base)

    def eager(self, x: Any) -> Any:
        raise AssertionError("recorded only: its result is a view of the base")

    def vjp(self, primals: Operands, result: Any, y_bar: Any) -> Sequence[Any]:
        return (lambda: self._seen(ViewChain(self.chain).vjp((_Typed(self.base),), result, y_bar)[0]),)

    def _seen(self, bar: Any) -> Any:
        for op in self.shown if bar is not None else ():
            bar = bind(op, bar)
        return bar

    jvp = eager
    batch = eager


@record
class Copied(Op):
    """``x`` after ``source`` was written over all of it, converted and broadcast."""

    def result_type(self, x: TensorType, source: TensorType) -> TensorType:
        return x

    def eager(self, x: Any, source: Any) -> Any:
        raise AssertionError("recorded only: the elements were written in place")

    def vjp(self, primals: Operands, result: Any, y_bar: Any) -> Sequence[Any]:
        x, source = (p.spec for p in primals)
        return lambda: y_bar._literal(0, x), lambda: sum_to(self._converted(y_bar, source), source.shape)

    def _converted(self, y_bar: Any, source: TensorType) -> Any:
        return y_bar if y_bar.spec.dtype is source.dtype else bind(Op.registry["cast"](source.dtype), y_bar)

    jvp = eager
    batch = eager
