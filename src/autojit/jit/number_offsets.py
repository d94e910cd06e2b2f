"""By how much one number of a step is more than another, where that is the same at every call.

``cache[:, pos : pos + n]`` has ``n`` places whatever ``pos`` is. So a number knows which one it was made of by adding
and taking away ints and sizes, and their sum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from autojit.core.sizes import is_counted, is_symbolic
from autojit.dispatch.dispatch import value_of

if TYPE_CHECKING:
    from autojit.ir.graph import Value
    from autojit.jit.traced_number import TracedNumber


class Offset(NamedTuple):
    """A number is ``more`` more than the int ``root``."""

    root: Value
    more: int


def offset_of(x: TracedNumber) -> Offset:
    """From which int a number is counted: at first from itself."""
    if x.offset is None:
        x.offset = Offset(value_of(x.tensor), 0)
    return x.offset


def moved_by(name: str, x: Any, y: Any) -> Offset | None:
    """The offset of ``x + y`` or ``x - y``, by the operator's name, if one of them is a plain int or a size."""
    if name == "add" and _is_plain(x):
        x, y = y, x
    if name not in ("add", "sub") or not _is_plain(y) or _is_plain(x):
        return None
    root, more = offset_of(x)
    return Offset(root, more + y if name == "add" else more - y)


def distance(x: TracedNumber, y: TracedNumber) -> int | None:
    """``x - y`` where it does not depend on the digits; None where it may."""
    if not x.kind is y.kind is int:
        return None
    (root, more), (other, less) = offset_of(x), offset_of(y)
    return more - less if root is other else None


def known_span(start: Any, stop: Any, extent: int) -> tuple[int, int] | None:
    """A slice whose bounds are numbers among a step's arguments, or computed from such: where it is in the axis.

    That it is, and that later calls' are, is decided on the numbers alone, before a step is chosen. So nothing is
    clipped: two bounds that move together are a plain length apart, and one is the size that the number is elsewhere.
    None: not known.
    """
    numbers = [bound for bound in (start, stop) if hasattr(bound, "offset")]
    trace = numbers[0].trace
    if is_counted(extent) or not all(trace.is_of_numbers(offset_of(number).root) for number in numbers):
        return None
    if len(numbers) == 2:
        length = distance(stop, start)
        if length is None or not (length >= 0 and start >= 0 and stop <= extent):
            return None
        first = start.as_size(extent - length, is_settled=True)
        return first, first + length
    rest = stop if numbers[0] is start else start
    if rest is not None or not (numbers[0] >= 0 and numbers[0] <= extent):
        return None
    place = numbers[0].as_size(extent, is_settled=True)
    return (place, extent) if numbers[0] is start else (0, place)


def _is_plain(x: Any) -> bool:
    return type(x) is int or bool(is_symbolic(x))
