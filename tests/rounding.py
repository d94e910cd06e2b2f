"""How far apart two roundings of one computation may be: bounds from dtype, length of the sums and magnitude.

No tolerance of a sum may come from one machine: another BLAS, another register width or thread count adds the same
terms in another order. The bounds are Higham's (Accuracy and Stability of Numerical Algorithms, 2nd ed., 2002):

* any order of summing n products: ``|computed - exact| <= gamma(n) * sum |a_i||b_i|`` (section 3.1), so two orders
  differ by at most twice that (`assert_sums_agree`);
* ``gamma(n) = n u / (1 - n u)`` with u the unit roundoff, half of the distance from 1 to the next number (lemma 3.1).
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def unit_roundoff(dtype: Any) -> float:
    """Half the distance from 1 to the next number of a float or complex dtype; 0 for exact ones."""
    kind = np.dtype(dtype)
    if kind.kind in "biu":
        return 0.0
    return float(ml_dtypes.finfo(np.empty(0, kind).real.dtype).eps) / 2


def gamma(count: int, dtype: Any) -> float:
    """The relative error that ``count`` roundings in a row can add up to."""
    error = count * unit_roundoff(dtype)
    assert error < 1, f"{count} roundings in {dtype} leave no digit"
    return error / (1 - error)


def assert_within(found: Array, expected: Array, bound: Any, note: str = "") -> None:
    """Equal shapes, equal non-finite elements, and finite ones within ``bound`` (an array or a number)."""
    assert found.shape == expected.shape, (found.shape, expected.shape, note)
    a, b = found.astype(np.complex128), expected.astype(np.complex128)
    with np.errstate(all="ignore"):
        near = np.abs(a - b) <= bound
    same = np.isfinite(b) & near | (a == b) | np.isnan(a) & np.isnan(b)
    if not np.all(same):
        at = tuple(int(i) for i in np.argwhere(~same)[0])
        allowed = np.broadcast_to(bound, same.shape)[at]
        differing = f"{np.count_nonzero(~same)} of {same.size} differ"
        raise AssertionError(f"{differing}, first at {at}: {found[at]!r} != {expected[at]!r} +- {allowed:.3g} {note}")


def assert_sums_agree(found: Array, expected: Array, magnitude: Any, terms: int, note: str = "") -> None:
    """Two computations of sums of ``terms`` products, whose absolute values add up to ``magnitude``.

    A product is rounded once, and so is the result where it is stored in a narrower dtype: two roundings more.
    """
    assert_within(found, expected, 2 * gamma(terms + 2, expected.dtype) * np.asarray(magnitude, np.float64), note)
