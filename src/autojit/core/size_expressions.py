"""Size expressions: polynomials with integer coefficients over named sizes, in one normal form.

``Expression.terms`` lists ((monomial, coefficient), ...) in order; a monomial is a sorted tuple of atoms, the empty one
stands for the constant. An `Atom` is a symbol, or a quotient, remainder, minimum or maximum of two expressions that
does not simplify. So two expressions are equal exactly when their terms are, which is what makes types and ops with
open sizes comparable and hashable.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from math import gcd
from typing import Any, NamedTuple

LEAST = 2  # sizes 0 and 1 are never open: broadcasting and emptiness depend on them

Bound = int | None  # None: not known


class Atom(NamedTuple):
    """What monomials are made of.

    Args:
        kind: "symbol", "quotient", "remainder", "minimum" or "maximum".
        operands: (name, least value) of a symbol; two expressions otherwise. Quotients round down.
    """

    kind: str
    operands: tuple[Any, ...]

    def evaluate(self, sizes: Mapping[str, int]) -> int:
        """The value for given symbols."""
        if self.kind == "symbol":
            return int(sizes[self.operands[0]])
        a, b = (operand.evaluate(sizes) for operand in self.operands)
        return int(_OPERATIONS[self.kind](a, b))

    def bounds(self) -> tuple[Bound, Bound]:
        """Least and greatest value, as far as known."""
        if self.kind == "symbol":
            return self.operands[1], None
        (a_low, a_high), (b_low, b_high) = (operand.bounds() for operand in self.operands)
        if self.kind == "minimum":
            lows = None if a_low is None or b_low is None else min(a_low, b_low)
            return lows, min((b for b in (a_high, b_high) if b is not None), default=None)
        if self.kind == "maximum":
            highs = None if a_high is None or b_high is None else max(a_high, b_high)
            return max((b for b in (a_low, b_low) if b is not None), default=None), highs
        if b_low is None or b_low < 1:
            return None, None
        if self.kind == "remainder":
            of_a = a_high if a_low is not None and a_low >= 0 else None
            of_b = None if b_high is None else b_high - 1
            return 0, min((t for t in (of_a, of_b) if t is not None), default=None)
        low = None if a_low is None or a_low < 0 else (0 if b_high is None else a_low // b_high)
        return low, None if a_high is None or a_high < 0 else a_high // b_low

    def __str__(self) -> str:
        if self.kind == "symbol":
            return str(self.operands[0])
        a, b = self.operands
        if self.kind in ("quotient", "remainder"):
            left, right = (str(x) if x.is_single else f"({x})" for x in (a, b))
            return f"({left} {'//' if self.kind == 'quotient' else '%'} {right})"
        return f"{'min' if self.kind == 'minimum' else 'max'}({a}, {b})"


_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "quotient": operator.floordiv,
    "remainder": operator.mod,
    "minimum": min,
    "maximum": max,
}


Monomial = tuple[Atom, ...]


class Expression(NamedTuple):
    """A polynomial over atoms; see the module."""

    terms: tuple[tuple[Monomial, int], ...]

    # -- questions

    @property
    def constant(self) -> int | None:
        """The value of an expression without atoms, else None."""
        if not self.terms:
            return 0
        monomial, coefficient = self.terms[0]
        return coefficient if len(self.terms) == 1 and not monomial else None

    @property
    def is_single(self) -> bool:
        """Whether it prints as one name or number."""
        return not self.terms or (len(self.terms) == 1 and (self.terms[0][1] == 1 or not self.terms[0][0]))

    def atoms(self) -> Iterator[Atom]:
        """Every atom, also those inside others; repeated where they repeat."""
        for monomial, _ in self.terms:
            for atom in monomial:
                yield atom
                if atom.kind != "symbol":
                    for operand in atom.operands:
                        yield from operand.atoms()

    def symbols(self) -> tuple[str, ...]:
        """The names of the symbols, sorted."""
        return tuple(sorted({atom.operands[0] for atom in self.atoms() if atom.kind == "symbol"}))

    def evaluate(self, sizes: Mapping[str, int]) -> int:
        """The value for given symbols."""
        total = 0
        for monomial, coefficient in self.terms:
            for atom in monomial:
                coefficient *= atom.evaluate(sizes)
            total += coefficient
        return total

    def substitute(self, replacements: Mapping[str, Expression]) -> Expression:
        """Symbols replaced by expressions, simplified again."""
        total = ZERO
        for monomial, coefficient in self.terms:
            product = constant(coefficient)
            for atom in monomial:
                product = multiply(product, _substituted(atom, replacements))
            total = add(total, product)
        return total

    def bounds(self) -> tuple[Bound, Bound]:
        """Least and greatest value, as far as known."""
        return _bounds(self)

    def lower_bound(self) -> Bound:
        """The least value, as far as known."""
        return self.bounds()[0]

    def upper_bound(self) -> Bound:
        """The greatest value, as far as known."""
        return self.bounds()[1]

    def __str__(self) -> str:
        if not self.terms:
            return "0"
        text = ""
        ordered = sorted(self.terms, key=lambda term: not term[0])
        for monomial, coefficient in ordered:
            factors = [str(atom) for atom in monomial]
            if abs(coefficient) != 1 or not factors:
                factors.insert(0, str(abs(coefficient)))
            sign = "-" if coefficient < 0 else ("+" if text else "")
            text += sign + "*".join(factors)
        return text


ZERO = Expression(())


def constant(value: int) -> Expression:
    """A number as an expression."""
    return Expression((((), int(value)),)) if value else ZERO


def symbol(name: str, least: int = LEAST) -> Expression:
    """A named size."""
    return _of(Atom("symbol", (name, least)))


def _of(atom: Atom) -> Expression:
    return Expression((((atom,), 1),))


def _collected(terms: Mapping[Monomial, int]) -> Expression:
    return Expression(tuple(sorted((m, c) for m, c in terms.items() if c)))


def add(a: Expression, b: Expression) -> Expression:
    """``a + b``."""
    terms = dict(a.terms)
    for monomial, coefficient in b.terms:
        terms[monomial] = terms.get(monomial, 0) + coefficient
    return _collected(terms)


def scale(a: Expression, factor: int) -> Expression:
    """``a * factor``."""
    return Expression(tuple((m, c * factor) for m, c in a.terms)) if factor else ZERO


def subtract(a: Expression, b: Expression) -> Expression:
    """``a - b``."""
    return add(a, scale(b, -1))


def multiply(a: Expression, b: Expression) -> Expression:
    """``a * b``, expanded."""
    terms: dict[Monomial, int] = {}
    for m, c in a.terms:
        for n, d in b.terms:
            product = tuple(sorted((*m, *n)))
            terms[product] = terms.get(product, 0) + c * d
    return _collected(terms)


def common_factor(a: Expression, b: Expression) -> Expression:
    """The greatest product of a number and atoms that divides every term of both."""
    terms = (*a.terms, *b.terms)
    if not terms:
        return ZERO
    shared = list(terms[0][0])
    for monomial, _ in terms[1:]:
        left = list(monomial)
        shared = [atom for atom in shared if atom in left and left.remove(atom) is None]  # type: ignore[func-returns-value]
    return Expression(((tuple(shared), gcd(*(c for _, c in terms))),))


def quotient(a: Expression, b: Expression) -> Expression:
    """``a // b``, rounded down.

    Raises:
        ZeroDivisionError: ``b`` is the constant 0.
    """
    exact, rest, b = _split(a, b)
    if rest is None:
        return exact
    if {c < 0 for m, c in rest.terms if m} == {True} and _is_at_least(b, 1):  # rounding up has one form
        return subtract(exact, quotient(add(scale(rest, -1), subtract(b, constant(1))), b))
    return add(exact, _of(Atom("quotient", (rest, b))))


def remainder(a: Expression, b: Expression) -> Expression:
    """``a % b``, with the sign of ``b``.

    Raises:
        ZeroDivisionError: ``b`` is the constant 0.
    """
    exact, rest, _ = _split(a, b, reduce=False)
    if rest is None:
        return subtract(a, multiply(exact, b))
    return _of(Atom("remainder", (rest, b)))


def minimum(a: Expression, b: Expression) -> Expression:
    """The smaller of two expressions."""
    sign = sign_of(subtract(a, b))
    return _of(Atom("minimum", tuple(sorted((a, b))))) if sign is None else a if sign <= 0 else b


def maximum(a: Expression, b: Expression) -> Expression:
    """The larger of two expressions."""
    sign = sign_of(subtract(a, b))
    return _of(Atom("maximum", tuple(sorted((a, b))))) if sign is None else a if sign >= 0 else b


def sign_of(a: Expression) -> int | None:
    """-1, 0 or 1 where the sign is the same for all sizes (-1 and 1 include 0), else None."""
    if not a.terms:
        return 0
    low, high = a.bounds()
    if low is not None and low >= 0:
        return 1
    return -1 if high is not None and high <= 0 else None


def _is_at_least(a: Expression, least: int) -> bool:
    low = a.lower_bound()
    return low is not None and low >= least


def _split(a: Expression, b: Expression, reduce: bool = True) -> tuple[Expression, Expression | None, Expression]:
    """``a // b`` as (exact part, rest, divisor): exact + rest // divisor; rest None when its quotient is 0."""
    fixed = b.constant
    if fixed == 0:
        raise ZeroDivisionError("division of a size by zero")
    exact, rest = _divided(a, b)
    low, high = rest.bounds()
    if low is not None and low >= 0:
        if fixed is not None and fixed > 0 and high is not None and high < fixed:
            return exact, None, b
        gap = subtract(b, rest).lower_bound()
        if gap is not None and gap >= 1:
            return exact, None, b
    if not rest.terms:
        return exact, None, b
    if high is not None and high < 0 and _is_at_least(add(rest, b), 0):
        return subtract(exact, constant(1)), None, b
    if reduce and fixed is not None and fixed > 1:
        shared = gcd(fixed, *(c for _, c in rest.terms))
        if shared > 1:
            rest, b = Expression(tuple((m, c // shared) for m, c in rest.terms)), constant(fixed // shared)
        rest, b = _nested(rest, b)
    return exact, rest, b


def _nested(rest: Expression, b: Expression) -> tuple[Expression, Expression]:
    """``(x // c) // d`` is ``x // (c * d)``."""
    if len(rest.terms) == 1 and rest.terms[0][1] == 1 and len(rest.terms[0][0]) == 1:
        (atom,) = rest.terms[0][0]
        if atom.kind == "quotient" and (atom.operands[1].constant or 0) > 0:
            return atom.operands[0], multiply(atom.operands[1], b)
    return rest, b


def _divided(a: Expression, b: Expression) -> tuple[Expression, Expression]:
    """(q, r) with ``a = q * b + r``, dividing by the leading term of ``b`` as long as it divides a term of ``a``."""
    leading, factor = max(b.terms, key=lambda term: (len(term[0]), term[0]))
    whole, rest = ZERO, a
    for _ in range(64):
        step = next(
            (found for m, c in rest.terms if (found := _term_quotient(m, c, leading, factor)) is not None), None
        )
        if step is None:
            break
        whole = add(whole, step)
        rest = subtract(rest, multiply(step, b))
    return whole, rest


def _term_quotient(m: Monomial, c: int, by: Monomial, factor: int) -> Expression | None:
    times = c // factor if factor > 0 else -(c // -factor)
    if times == 0 or (by and c % factor) or (by and len(by) > len(m)) or (not by and m and c % factor):
        return None
    if not by and not m and not 0 <= c < factor:
        return constant(times)
    if not by and not m:
        return None
    left = list(m)
    for atom in by:
        if atom not in left:
            return None
        left.remove(atom)
    return Expression(((tuple(left), times),))


def _substituted(atom: Atom, replacements: Mapping[str, Expression]) -> Expression:
    if atom.kind == "symbol":
        return replacements.get(atom.operands[0]) or _of(atom)
    a, b = (operand.substitute(replacements) for operand in atom.operands)
    build = {"quotient": quotient, "remainder": remainder, "minimum": minimum, "maximum": maximum}
    return build[atom.kind](a, b)


_CEILINGS = 2  # how many atoms of an expression are replaced by what they cannot exceed; each costs a search


@lru_cache(maxsize=16384)
def _bounds(a: Expression, ceilings: int = _CEILINGS) -> tuple[Bound, Bound]:
    low, high = _interval(a)
    shifted_low, shifted_high = _shifted_bounds(a)
    lows = [b for b in (low, shifted_low, _bounded_below(a, ceilings)) if b is not None]
    top = _bounded_below(scale(a, -1), ceilings)
    highs = [b for b in (high, shifted_high, None if top is None else -top) if b is not None]
    return max(lows, default=None), min(highs, default=None)


def _bounded_below(a: Expression, ceilings: int) -> Bound:
    """The bound with an atom that is subtracted replaced by what it cannot exceed, or a maximum by a part of it."""
    if not ceilings:
        return None
    for monomial, coefficient in a.terms:
        for place, atom in enumerate(monomial):
            others = monomial[:place] + monomial[place + 1 :]
            divisor = _divisor(atom) if coefficient < 0 else 0
            if coefficient > 0:
                tops = [*atom.operands] if atom.kind == "maximum" else []
            else:
                tops = [atom.operands[0]] if divisor and coefficient % divisor == 0 else list(_ceilings(atom))
            if not tops or any((other.bounds()[0] or 0) < 1 for other in others):
                continue
            if divisor and coefficient % divisor == 0:  # d * (a // d) does not exceed a
                coefficient //= divisor
            factor = Expression(((others, coefficient),))
            rest = Expression(tuple(term for term in a.terms if term[0] != monomial))
            found = [_bounds(add(rest, multiply(top, factor)), ceilings - 1)[0] for top in tops]
            known = [low for low in found if low is not None]
            if known:
                return max(known)
    return None


def _divisor(atom: Atom) -> int:
    """The number, greater than 0, that an atom divides by; 0 if it is no such quotient."""
    found = atom.operands[1].constant if atom.kind == "quotient" else None
    return found if found is not None and found > 0 else 0


def _ceilings(atom: Atom) -> Iterator[Expression]:
    if atom.kind == "symbol":
        return
    a, b = atom.operands
    if atom.kind == "minimum":
        yield from (a, b)
    elif atom.kind in ("quotient", "remainder") and _is_at_least(b, 1):
        if atom.kind == "remainder":
            yield subtract(b, constant(1))
        if _is_at_least(a, 0):
            yield a


def _interval(a: Expression) -> tuple[Bound, Bound]:
    low: Bound = 0
    high: Bound = 0
    for monomial, coefficient in a.terms:
        m_low: Bound = 1
        m_high: Bound = 1
        for atom in monomial:
            atom_low, atom_high = atom.bounds()
            if atom_low is None or atom_low < 0 or m_low is None:
                m_low = m_high = None
                break
            m_low *= atom_low
            m_high = None if atom_high is None or m_high is None else m_high * atom_high
        if coefficient < 0:
            m_low, m_high = m_high, m_low
        low = None if m_low is None or low is None else low + coefficient * m_low
        high = None if m_high is None or high is None else high + coefficient * m_high
    return low, high


def _shifted_bounds(a: Expression) -> tuple[Bound, Bound]:
    """Bounds from writing each atom as its least value plus something non-negative: signs of coefficients tell."""
    if len(a.terms) < 2:
        return None, None
    shifted = ZERO
    for monomial, coefficient in a.terms:
        product = constant(coefficient)
        for atom in monomial:
            low = atom.bounds()[0]
            if low is None:
                return None, None
            product = multiply(product, add(_of(atom), constant(low)))
        shifted = add(shifted, product)
    offset = next((c for m, c in shifted.terms if not m), 0)
    signs = {c > 0 for m, c in shifted.terms if m}
    return (offset if signs <= {True} else None), (offset if signs <= {False} else None)
