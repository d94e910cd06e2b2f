"""Arithmetic that torch offers for sizes that are not known yet; for numbers it is Python's."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, SupportsFloat

from autojit.dispatch.declared import declared
from autojit.dispatch.promotion import Real


@declared(method=False)
def sym_float(a: SupportsFloat) -> Any:
    """``float(a)``."""
    return float(a)


@declared(method=False)
def sym_int(a: Real) -> Any:
    """The whole part of a number, towards zero.

    Example:
        >>> import autojit as aj
        >>> aj.sym_int(-2.5)
        -2
    """
    return math.trunc(a)


@declared(method=False)
def sym_max(a: Real, b: Real) -> Any:
    """The larger number; a float if one of them is, as in torch.

    Example:
        >>> import autojit as aj
        >>> aj.sym_max(2, 1.5)
        2.0
    """
    found = a if a > b else b
    return float(found) if isinstance(a, float) or isinstance(b, float) else found


@declared(method=False)
def sym_min(a: Real, b: Real) -> Any:
    """The smaller number; a float if one of them is."""
    found = a if a < b else b
    return float(found) if isinstance(a, float) or isinstance(b, float) else found


@declared(method=False)
def sym_not(a: object) -> bool:
    """``not a``."""
    return not a


@declared(method=False)
def sym_sqrt(a: Real) -> Any:
    """The square root."""
    return math.sqrt(a)


@declared(method=False)
def sym_sum(args: Iterable[Any]) -> Any:
    """The sum of numbers."""
    return sum(args)


@declared(method=False)
def sym_ite(b: object, t: object, f: object) -> Any:
    """``t`` if ``b``, else ``f``, which are of one type.

    Raises:
        TypeError: ``b`` is not a bool, or the types differ.
    """
    if not isinstance(b, bool) or type(t) is not type(f):
        raise TypeError(f"sym_ite takes a bool and two values of one type, not {b!r}, {t!r}, {f!r}")
    return t if b else f
