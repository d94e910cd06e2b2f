"""Between which numbers the elements of an index surely are: what needs no check."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from autojit.core.dtypes import DType
from autojit.core.sizes import is_symbolic, surely_equal, surely_less
from autojit.ir.graph import Graph, Node, Value
from autojit.ops.base import Reindex
from autojit.ops.indexing import Gathering
from autojit.ops.shape import Pad
from autojit.ops.sources import Constant, Full, Iota

DEEPEST = 32
"""Nodes behind an index that are looked at, one behind the other."""


class Bounds(NamedTuple):
    """The least element, and what all elements are below, perhaps an open size; None where nothing is known."""

    least: int | None = None
    limit: Any = None


UNKNOWN = Bounds()


class IndexBounds:
    """Bounds of the values of a graph."""

    def __init__(self, graph: Graph) -> None:
        self._definitions: dict[Value, Node] | None = None
        self._graph = graph
        self._known: dict[Value, Bounds] = {}

    def are_within(self, index: Value, extent: Any) -> bool:
        """Whether no element can be outside of an axis of ``extent`` places."""
        if surely_equal(index.type.size, 0):
            return True
        least, limit = self.of(index)
        if least is None or limit is None:
            return False
        is_below = surely_less(limit - 1, extent)
        return is_below and (least >= 0 or (not is_symbolic(extent) and least >= -extent))

    def are_positive(self, value: Value) -> bool:
        """Whether all elements are surely above 0."""
        least = self.of(value).least
        return least is not None and least > 0

    def of(self, value: Value, depth: int = 0) -> Bounds:
        """The bounds of a value."""
        found = self._known.get(value)
        if found is None:
            node = self._maker(value)
            made = UNKNOWN if node is None or depth > DEEPEST else self._made_by(node, value, depth + 1)
            found = self._known[value] = made if _fits(made, value.type.dtype) else UNKNOWN
        return found

    def assume(self, value: Value, bounds: Bounds) -> None:
        """Bounds of an input, from what is known of it."""
        self._known[value] = bounds

    def _maker(self, value: Value) -> Node | None:
        if self._definitions is None:
            self._definitions = self._graph.definitions()
        return self._definitions.get(value)

    def _made_by(self, node: Node, value: Value, depth: int) -> Bounds:
        op: Any = node.op
        if isinstance(op, Full):
            return Bounds(op.value, op.value + 1) if type(op.value) is int else UNKNOWN
        if isinstance(op, Iota):
            return Bounds(0, op.shape[op.axis])
        if isinstance(op, Constant):
            return _of_table(op.eager())
        if op.name in ("argmax", "argmin"):
            return Bounds(0, node.inputs[0].type.shape[op.axes[0]])
        if op.name == "sort" and value is not node.outputs[0]:
            return Bounds(0, node.inputs[0].type.shape[op.axis])
        if isinstance(op, Gathering) or (isinstance(op, Reindex) and not isinstance(op, Pad)):
            return self.of(node.inputs[0], depth)
        if op.name == "cast" and node.inputs[0].type.dtype.kind in ("int", "uint"):
            found = self.of(node.inputs[0], depth)
            return found if None not in found or _holds(value.type.dtype, node.inputs[0].type.dtype) else UNKNOWN
        if op.name == "where":
            return self._of_choice(node, depth)
        return self._of_arithmetic(node, depth)

    def _of_choice(self, node: Node, depth: int) -> Bounds:
        """Of one of two; bounds of an index (``clamp``) are choices by a comparison of the two."""
        condition, a, b = node.inputs
        first, second = self.of(a, depth), self.of(b, depth)
        maker = self._maker(condition)
        compared = maker.op.name if maker is not None and maker.inputs in ((b, a), (a, b)) else ""
        if maker is not None and maker.inputs == (a, b):
            compared = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}.get(compared, "")
        if compared in ("lt", "le"):
            return _of_maximum(first, second)
        return _of_minimum(first, second) if compared in ("gt", "ge") else _hull(first, second)

    def _of_arithmetic(self, node: Node, depth: int) -> Bounds:
        name = node.op.name
        if name not in ("maximum", "minimum", "remainder", "add", "sub", "floor_divide"):
            return UNKNOWN
        a, b = (self.of(v, depth) for v in node.inputs)
        if name == "floor_divide":
            return _of_quotient(a, b)
        if name == "remainder":  # the sign of the divisor
            is_positive = b.least is not None and b.least > 0
            return (
                Bounds(0, None if b.limit is None or is_symbolic(b.limit) else b.limit - 1) if is_positive else UNKNOWN
            )
        if name == "maximum":
            return _of_maximum(a, b)
        if name == "minimum":
            return _of_minimum(a, b)
        if any(n is None or is_symbolic(n) for n in (*a, *b)):
            return UNKNOWN
        if name == "add":
            return Bounds(a.least + b.least, a.limit + b.limit - 1)  # type: ignore[operator]
        return Bounds(a.least - b.limit + 1, a.limit - b.least)


def _fits(bounds: Bounds, dtype: DType) -> bool:
    """Whether elements of a dtype can be what they would be without bounds of their own: others have wrapped."""
    if dtype.kind not in ("int", "uint"):
        return True
    numbers = np.iinfo(dtype.numpy)
    if bounds.least is not None and bounds.least < numbers.min:
        return False
    if is_symbolic(bounds.limit):  # a size is a number of 64 bits
        return numbers.bits == 64
    return bounds.limit is None or bounds.limit <= numbers.max + 1


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether every number of a dtype of whole numbers is one of the other dtype."""
    return np.can_cast(narrow.numpy, wide.numpy)


def _of_table(table: Any) -> Bounds:
    if table.dtype.kind not in "iu" or not table.size:
        return UNKNOWN
    return Bounds(int(np.min(table)), int(np.max(table)) + 1)


def _of_quotient(a: Bounds, b: Bounds) -> Bounds:
    """Of a floored quotient by one positive number."""
    if any(n is None or is_symbolic(n) for n in (*a, *b)):
        return UNKNOWN
    assert a.least is not None
    assert b.least is not None
    if b.least < 1 or b.limit != b.least + 1:
        return UNKNOWN
    return Bounds(a.least // b.least, (a.limit - 1) // b.least + 1)


def _of_maximum(a: Bounds, b: Bounds) -> Bounds:
    known = [n for n in (a.least, b.least) if n is not None]
    return Bounds(max(known, default=None), _greater(a.limit, b.limit))


def _of_minimum(a: Bounds, b: Bounds) -> Bounds:
    limit = b.limit if a.limit is None else a.limit if b.limit is None else _lesser(a.limit, b.limit)
    return Bounds(_hull(a, b).least, limit)


def _hull(a: Bounds, b: Bounds) -> Bounds:
    least = None if a.least is None or b.least is None else min(a.least, b.least)
    return Bounds(least, _greater(a.limit, b.limit))


def _greater(a: Any, b: Any) -> Any:
    """The greater one of two limits, or None where that is not known."""
    if a is None or b is None:
        return None
    if surely_equal(a, b) or surely_less(b, a):
        return a
    return b if surely_less(a, b) else None


def _lesser(a: Any, b: Any) -> Any:
    """The lesser one of two limits; where that is not known either one holds."""
    return b if surely_less(b, a) else a
