"""Minimal filtering: a bilinear form of short convolutions with fewer products, as exact matrices.

``m`` neighbouring places of a convolution with ``r`` taps see ``n = m + r - 1`` elements ``d``. Polynomials of degree
below ``n`` are known by their values at ``n`` points, infinity among them, so the places need ``n`` products instead
of ``m r`` (Toom and Cook; Winograd, Arithmetic Complexity of Computations, 1980)::

    y = A^T ((G w) * (B^T d))

Two axes take two sided transforms, and channels are added up between the products and ``A^T`` (Lavin and Gray, Fast
Algorithms for Convolutional Neural Networks, 2016). The form is linear in ``w``, ``d`` and ``y`` alike, so its three
matrices also make the derivative by the weight: ``w_bar = G^T ((B^T d) * (A y_bar))``.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from autojit.core.records import record

Matrix = tuple[tuple[Fraction, ...], ...]

POINTS = (Fraction(0), Fraction(2, 3), Fraction(-2, 3), Fraction(3, 2), Fraction(-3, 2))
"""Finite points. Pairs of both signs share half of their arithmetic, and their magnitudes are each other's inverse.

Errors of float32 results over their deviation, 64 channels of normal draws, 3 x 3 taps, root of the mean square: direct
sums 4.3e-7, these points 7.6e-7, (0, 1, -1, 1/2, -2) 1.1e-6, (0, 1, -1, 2, -2) 1.7e-6; the largest of 2e5: 3.8e-6,
6.8e-6, 1.0e-5, 2.6e-5. With 512 channels direct sums have 1.2e-6 and these points 1.9e-6.
"""

MOST_TAPS = len(POINTS)  # one place less is seen than there are points


@record
class Filtering:
    """The matrices for one axis: ``data`` is ``B^T``, ``weight`` ``G``, ``result`` ``A^T``."""

    data: Matrix
    weight: Matrix
    result: Matrix

    @property
    def points(self) -> int:
        return len(self.data)

    @property
    def places(self) -> int:
        return len(self.result)


@lru_cache(maxsize=MOST_TAPS + 1)
def filtering(taps: int) -> Filtering:
    """The form for this many taps, at most `MOST_TAPS`; one tap is a product as it is."""
    one = ((Fraction(1),),)
    if taps == 1:
        return Filtering(one, one, one)
    n = len(POINTS) + 1
    places = n + 1 - taps
    data, weight = [], []
    for point in POINTS:
        others = [other for other in POINTS if other != point]
        product, scale = _with_roots(others), Fraction(1)
        for other in others:
            scale *= point - other
        data.append((*product, Fraction(0)))
        weight.append(tuple(point**k / scale for k in range(taps)))
    data.append(_with_roots(POINTS))
    weight.append(tuple(Fraction(int(k == taps - 1)) for k in range(taps)))
    result = tuple((*(point**k for point in POINTS), Fraction(int(k == places - 1))) for k in range(places))
    return Filtering(tuple(data), tuple(weight), result)


def transposed(matrix: Matrix) -> Matrix:
    """Rows as columns."""
    return tuple(zip(*matrix, strict=True))


def _with_roots(roots: tuple[Fraction, ...] | list[Fraction]) -> tuple[Fraction, ...]:
    """Coefficients of the product of all ``x - root``, lowest power first."""
    found = [Fraction(1)]
    for root in roots:
        shifted, scaled = [Fraction(0), *found], [*(-root * c for c in found), Fraction(0)]
        found = [a + b for a, b in zip(shifted, scaled, strict=True)]
    return tuple(found)
