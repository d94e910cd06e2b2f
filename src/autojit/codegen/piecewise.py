"""Guards answered before the innermost loop, so that it reads memory without asking for every element.

A concatenation, a padding or a written slice is a chain of guards: "is this position inside the piece?". Vectors answer
by masks and read every piece. Two forms are cheaper. Where the answers change at known positions of the loop, it is cut
there (`cuts`) and each part knows the answers (`outcome`). Where they depend on the row alone and every arm walks the
same way through memory (`shared_walk`), the row picks the address to start from.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TypeGuard

from autojit.core.sizes import is_symbolic, surely_less, typical
from autojit.ir.index import Index, LoopVariable, Opaque, Quotient, Remainder
from autojit.schedule.expressions import FIRST, LAST, Expr, Guard, Guarded, Load

# Two halves and four pieces were measured (design note on loops and tiles); where the gain ends is not recorded.
MOST_PARTS = 8
SHORTEST_PART = 16  # elements on average: a vector
MOST_COPIED = 256  # expressions that the parts of a loop hold together: what LLVM's time grows with

Known = Callable[[Expr], bool]


def below(roots: Iterable[Expr], is_known: Known) -> Iterator[Expr]:
    """The expressions that ``roots`` are computed from, except for what is known already."""
    seen: set[Expr] = set()
    stack = list(roots)
    while stack:
        expr = stack.pop()
        if expr in seen or is_known(expr):
            continue
        seen.add(expr)
        yield expr
        stack.extend(expr.args)


def cuts(exprs: Sequence[Expr], variable: LoopVariable, inside: int = 1) -> list[int]:
    """Where to cut the loop over ``variable`` so that guards have one answer in each part; empty: not worth it.

    Args:
        exprs: what one point of the loop computes.
        inside: points of the loops within one iteration.
    """
    found: dict[int, None] = {}
    for expr in exprs:
        for index, low, high in expr.guards:
            if _is_position(index, variable):
                found.update(dict.fromkeys((low - index.offset, high - index.offset)))
    places = _ascending([place for place in found if not _is_end(place, variable.extent)])
    parts = len(places) + 1
    if parts > MOST_PARTS or parts * len(exprs) > MOST_COPIED:
        return []
    return places if typical(variable.extent * inside) >= parts * SHORTEST_PART else []


def _is_position(index: Index, variable: LoopVariable) -> bool:
    return index.terms == ((variable, 1),)


def _is_end(place: int, extent: int) -> bool:
    return not surely_less(0, place) or not surely_less(place, extent)


def _ascending(places: list[int]) -> list[int]:
    """The places in order; none where their order is not the same for all sizes."""
    ordered: list[int] = []
    for place in places:
        at = sum(surely_less(other, place) for other in ordered)
        if not all(surely_less(place, other) for other in ordered[at:]):
            return []
        ordered.insert(at, place)
    return ordered


def outcome(guard: Guard, variable: LoopVariable, low: int, high: int) -> bool | None:
    """What a guard says while ``low <= variable < high``; None: that depends."""
    index, least, end = guard
    if not _is_position(index, variable):
        return None
    first, beyond = low + index.offset, high + index.offset
    if surely_less(least - 1, first) and surely_less(beyond, end + 1):
        return True
    return False if surely_less(beyond, least + 1) or surely_less(end - 1, first) else None


def is_whole(expr: Expr) -> TypeGuard[Guarded]:
    """Whether an expression is a guard with an answer at every position, not the rest of a chain that covers them."""
    return isinstance(expr, Guarded) and (expr.end == FIRST or not _is_rest(expr))


def _is_rest(expr: Expr) -> bool:
    if not isinstance(expr, Guarded) or expr.end == FIRST:
        return False
    return expr.end == LAST or any(_is_rest(arm) for arm in expr.args)


def arms(guard: Guarded) -> tuple[Expr, ...]:
    """What a guard can stand for: inside and outside, or the inside of a chain's last guard."""
    return guard.args[:1] if guard.end == LAST else guard.args


def shared_walk(
    expr: Expr, inner: Collection[LoopVariable], overwritten: Collection[int], width: int = 1
) -> Index | None:
    """How a guard over rows moves through memory with the inner loops, if it only reads and all its arms move alike.

    Args:
        overwritten: the buffers that the kernel writes to as well: when they are read matters.
        width: neighbours along a single inner loop, the first at a multiple of it, that need one answer: guards may
            then change between such vectors.
    """
    if isinstance(expr, Load):
        return None if expr.buffer in overwritten else _walk(expr.positions[0], inner)
    if not isinstance(expr, Guarded) or any(_divides(guard, inner, width) for guard in expr.guards):
        return None
    walks = {shared_walk(arm, inner, overwritten, width) for arm in arms(expr)}
    return walks.pop() if len(walks) == 1 else None


def _walk(index: Index, inner: Collection[LoopVariable]) -> Index | None:
    """The part of a position that the inner loops move, where it is apart from the rest."""
    moving = tuple((term, coefficient) for term, coefficient in index.terms if term in inner)
    rest = Index(tuple(pair for pair in index.terms if pair not in moving))
    return None if varies(rest, inner) else Index(moving)


def _divides(guard: Guard, inner: Collection[LoopVariable], width: int) -> bool:
    """Whether a guard may say different things of neighbours that need one answer, or cannot be worked out."""
    index, low, high = guard
    if not varies(index, inner):
        return False
    bounds = (low - index.offset, high - index.offset)
    parts = [*bounds, *(coefficient for term, coefficient in index.terms if term not in inner)]
    steps = [coefficient for term, coefficient in index.terms if term in inner]
    rest = Index(tuple(pair for pair in index.terms if pair[0] not in inner))
    return width == 1 or steps != [1] or varies(rest, inner) or any(is_symbolic(p) or p % width for p in parts)


def varies(index: Index, inner: Collection[LoopVariable]) -> bool:
    """Whether a position changes inside a row or cannot be worked out where its guard fails.

    Look-ups are of the second kind, and divisions by open sizes, which may be 0 there.
    """
    return any(
        isinstance(term, Opaque)
        or term in inner
        or (isinstance(term, Quotient | Remainder) and is_symbolic(term.divisor))
        for term in index.walk()
    )
