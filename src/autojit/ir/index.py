"""Index arithmetic: how an output position maps to an operand position.

``Index`` is an integer expression over loop variables: an affine sum plus opaque ``//`` and ``%`` terms of affine sums.
Reindexing ops state their map with it once; code generation turns it into addresses for any target. Each variable knows
its extent, so divisions that split a variable exactly are simplified away.

Extents may be symbolic sizes: what simplifies for all of them is simplified, the rest is left to division when it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import gcd
from typing import Any

from autojit.core.sizes import expression_of, is_symbolic, size_max, size_min, surely_divides, surely_less


class _Hashed:
    """Compared by its parts; the hash is computed once. Nothing changes after construction."""

    __slots__ = ("_hash",)
    _hash: int

    def _parts(self) -> tuple[Any, ...]:
        raise NotImplementedError

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            self._hash = hash(self._parts())
            return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (type(self) is type(other) and self._parts() == other._parts())

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._parts()  # without the hash, which is another one in another process

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self._parts()!r}"


class LoopVariable(_Hashed):
    """A loop counter in [0, extent)."""

    __slots__ = ("extent", "name")

    def __init__(self, name: str, extent: int) -> None:
        self.name = name
        self.extent = extent

    def _parts(self) -> tuple[Any, ...]:
        return self.name, self.extent


class _Composed(_Hashed):
    """A term that is made of an index."""

    __slots__ = ("base",)
    base: Index


class _Part(_Composed):
    """What division makes of a non-negative index."""

    __slots__ = ("divisor",)

    def __init__(self, base: Index, divisor: int) -> None:
        self.base = base
        self.divisor = divisor

    def _parts(self) -> tuple[Any, ...]:
        return self.base, self.divisor


class Quotient(_Part):
    """``base // divisor`` of a non-negative index."""

    __slots__ = ()


class Remainder(_Part):
    """``base % divisor`` of a non-negative index."""

    __slots__ = ()


class Opaque(_Hashed):
    """A run-time integer (an SSA name) in [0, extent), for gathers."""

    __slots__ = ("extent", "text")

    def __init__(self, text: str, extent: int) -> None:
        self.text = text
        self.extent = extent

    def _parts(self) -> tuple[Any, ...]:
        return self.text, self.extent


class Bounded(_Composed):
    """``base`` where it is known to be in [0, extent), because a guard keeps other positions out.

    It lets divisions further down simplify; `Index.opened` then puts the base in its place.
    """

    __slots__ = ("extent",)

    def __init__(self, base: Index, extent: int) -> None:
        self.base = base
        self.extent = extent

    def _parts(self) -> tuple[Any, ...]:
        return self.base, self.extent


Term = LoopVariable | Quotient | Remainder | Opaque | Bounded


class Index(_Hashed):
    """``offset + sum(coefficient * term)``; terms are unique and sorted by first use."""

    __slots__ = ("offset", "terms")

    def __init__(self, terms: tuple[tuple[Term, int], ...] = (), offset: int = 0) -> None:
        self.terms = terms
        self.offset = offset

    def _parts(self) -> tuple[Any, ...]:
        return self.terms, self.offset

    @staticmethod
    def of(term: Term) -> Index:
        if isinstance(term, LoopVariable) and term.extent == 1:
            return Index()
        return Index(((term, 1),), 0)

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.terms, self.offset + other)
        if not self.terms and self.offset == 0:
            return other
        if not other.terms:
            return Index(self.terms, self.offset + other.offset)
        merged: dict[Term, int] = dict(self.terms)
        has_remainder = False
        for term, coefficient in other.terms:
            before = merged.get(term)
            merged[term] = coefficient if before is None else before + coefficient
        for term in merged:
            if type(term) is Remainder:
                has_remainder = True
                break
        found = Index(tuple([item for item in merged.items() if item[1] != 0]), self.offset + other.offset)
        return found._rejoin() if has_remainder else found

    def _rejoin(self) -> Index:
        """``(b // d) * d * k + (b % d) * k`` is ``b * k``."""
        have = dict(self.terms)
        for term, k in self.terms:
            if type(term) is not Remainder:
                continue
            found = term.base // term.divisor
            quotient = found.terms[0][0] if len(found.terms) == 1 and found.offset == 0 else None
            if quotient is not None and have.get(quotient) == k * term.divisor * found.terms[0][1]:
                others = tuple((t, c) for t, c in self.terms if t != term and t != quotient)
                return Index(others, self.offset) + term.base * k
        return self

    def walk(self) -> list[Term]:
        """Every term; what a term is made of comes after it."""
        found = [term for term, _ in self.terms]
        for term in found:  # grows meanwhile
            if isinstance(term, _Composed):
                found += [inner for inner, _ in term.base.terms]
        return found

    def divided_variables(self) -> set[LoopVariable]:
        """The variables inside divisions: no coefficient says how they move the position."""
        return {
            part
            for term, _ in self.terms
            if isinstance(term, _Composed)
            for part in term.base.walk()
            if isinstance(part, LoopVariable)
        }

    def replaced(self, change: Callable[[Term], Index | None]) -> Index:
        """With other indices for terms, inside divisions as well, and simplified again; None: a term stays."""
        total = Index((), self.offset)
        for term, coefficient in self.terms:
            part = change(term)
            if part is None:
                if isinstance(term, Quotient):
                    part = term.base.replaced(change) // term.divisor
                elif isinstance(term, Remainder):
                    part = term.base.replaced(change) % term.divisor
                else:
                    part = Index.of(term)
            total = total + part * coefficient
        return total

    def within(self, extent: int) -> Index:
        """This index, known to be in [0, extent) where it is used."""
        return self if self._fits(extent) else Index.of(Bounded(self, extent))

    def opened(self) -> Index:
        """With every `Bounded` term replaced by what it stands for."""
        for term in self.walk():
            if isinstance(term, Bounded):
                return self.replaced(lambda term: term.base.opened() if isinstance(term, Bounded) else None)
        return self

    def __sub__(self, other: Index | int) -> Index:
        return self + other * -1

    def __mul__(self, factor: int) -> Index:
        if factor == 0:
            return Index()
        if factor == 1:
            return self
        return Index(tuple([(t, c * factor) for t, c in self.terms]), self.offset * factor)

    def __floordiv__(self, divisor: int) -> Index:
        if divisor == 1:
            return self
        exact, rest = self._split(divisor)
        if rest._fits(divisor):
            return exact
        for unit, large, _ in rest._scales(divisor):
            return exact + large // (divisor // unit)
        if len(rest.terms) == 1 and rest.offset == 0 and rest.terms[0][1] == 1:
            term = rest.terms[0][0]
            if type(term) is Quotient:
                return exact + term.base // (term.divisor * divisor)
        return exact + Index.of(Quotient(rest, divisor))

    def __mod__(self, divisor: int) -> Index:
        if divisor == 1:
            return Index()
        _, rest = self._split(divisor)
        if rest._fits(divisor):
            return rest
        for unit, large, small in rest._scales(divisor):
            return (large % (divisor // unit)) * unit + small
        return Index.of(Remainder(rest, divisor))

    def _scales(self, divisor: int) -> list[tuple[int, Index, Index]]:
        """Ways to write self as ``unit * large + small`` with small in [0, unit) and unit dividing the divisor."""
        found = []
        for unit in sorted({_common(divisor, c) for _, c in self.terms}, key=size_rank, reverse=True):
            if not surely_less(1, unit):
                continue
            small = Index(tuple((t, c) for t, c in self.terms if c % unit), self.offset % unit)
            if small._fits(unit):
                large = tuple((t, c // unit) for t, c in self.terms if c % unit == 0)
                found.append((unit, Index(large, self.offset // unit), small))
        return found

    def _split(self, divisor: int) -> tuple[Index, Index]:
        """(self // divisor of the exactly divisible part, the rest); the rest is never negative."""
        exact = tuple((t, c // divisor) for t, c in self.terms if c % divisor == 0)
        rest = Index(tuple((t, c) for t, c in self.terms if c % divisor != 0), self.offset % divisor)
        low, _ = rest.bounds()
        periods = size_max(0, -(low // divisor))
        return Index(exact, self.offset // divisor - periods), rest + periods * divisor

    def bounds(self) -> tuple[int, int]:
        """Least and greatest value."""
        low = high = self.offset
        for term, coefficient in self.terms:
            edge = coefficient * _greatest(term)
            if type(edge) is int:
                low += min(0, edge)
                high += max(0, edge)
            else:
                low += size_min(0, edge)
                high += size_max(0, edge)
        return low, high

    def _fits(self, extent: int) -> bool:
        """Whether every value is in [0, extent)."""
        low, high = self.bounds()
        return surely_less(-1, low) and surely_less(high, extent)

    @property
    def is_constant(self) -> bool:
        return not self.terms


def _common(divisor: int, coefficient: int) -> int:
    """A divisor of both: the greatest one of numbers, of symbolic sizes one of the two, or 1."""
    if not is_symbolic(divisor) and not is_symbolic(coefficient):
        return gcd(divisor, coefficient)
    for unit, other in ((coefficient, divisor), (divisor, coefficient)):
        if surely_less(0, unit) and surely_divides(unit, other):
            return unit
    return 1


def size_rank(size: int) -> tuple[int, int]:
    """Sorts numbers by size; symbolic sizes with more factors come after."""
    if not is_symbolic(size):
        return 0, size
    terms = expression_of(size).terms
    return max(len(factors) for factors, _ in terms), max(coefficient for _, coefficient in terms)


def _greatest(term: Term) -> int:
    if isinstance(term, Quotient):
        return term.base.bounds()[1] // term.divisor
    if isinstance(term, Remainder):
        return term.divisor - 1
    return term.extent - 1


@lru_cache(maxsize=16384)
def reshaped(index: tuple[Index, ...], shape: tuple[int, ...], target: tuple[int, ...]) -> tuple[Index, ...]:
    """The index in ``target`` of the element at ``index`` of ``shape`` when both hold one row-major sequence."""
    return delinearize(linearize(index, shape), target)


@lru_cache(maxsize=16384)
def linearize(index: tuple[Index, ...], shape: tuple[int, ...]) -> Index:
    """Row-major position of a multi-dimensional index."""
    position = Index()
    for part, extent in zip(index, shape, strict=True):
        position = position * extent + part
    return position


def delinearize(position: Index, shape: tuple[int, ...]) -> tuple[Index, ...]:
    """The multi-dimensional index of a row-major position (the inverse of ``linearize``); any, where there is none."""
    if 0 in shape:
        return (Index(),) * len(shape)
    found: list[Index] = []
    stride = 1
    for axis in range(len(shape) - 1, -1, -1):
        part = position // stride
        if axis > 0:
            part = part % shape[axis]
        found.append(Index() if shape[axis] == 1 else part)
        stride *= shape[axis]
    return tuple(reversed(found))
