"""How elementwise loops lay out what they make: the axes in memory as in the operands, without gaps.

Where operands disagree over two axes, the first that has steps along both decides, as in torch. NumPy's own loops go
in row-major order then: what one of them makes is moved (``as_loop``), as is what a rule of several steps makes.
Source: torch's TensorIterator (aten/src/ATen/TensorIterator.cpp, reorder_dimensions).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def in_order_of(arrays: Sequence[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    """A fresh array, its elements not set, as a loop over arrays lays out its result."""
    flags: Any = [*[["readonly"]] * len(arrays), ["writeonly", "allocate"]]
    walk = np.nditer([*arrays, None], ["zerosize_ok"], flags, [*[None] * len(arrays), dtype], order="K")
    found: NDArray[Any] = walk.operands[-1]
    order = _order_of_first(arrays, found.shape) if len(arrays) > 1 else None
    if order is None:
        return found
    places = np.argsort(order)
    return np.empty([found.shape[axis] for axis in order], found.dtype).transpose(places)


def _order_of_first(arrays: Sequence[NDArray[Any]], shape: tuple[int, ...]) -> list[int] | None:
    """The axes from the outermost in memory where operands disagree over some; None where none do."""
    if all([a.flags.c_contiguous for a in arrays]):  # noqa: C419  (a list is faster than a generator)
        return None
    steps = [_steps(a, shape) for a in arrays if a.ndim > 1]

    def answers(a: int, b: int) -> list[bool]:
        """Of the operands that have steps along both axes: whether ``a`` is inside of ``b``."""
        return [one[a] < one[b] for one in steps if one[a] and one[b] and one[a] != one[b]]

    if not any(len(set(answers(a, b))) > 1 for a in range(len(shape)) for b in range(a)):
        return None
    inner_first = list(range(len(shape)))[::-1]
    for start in range(1, len(shape)):
        at = start
        for k in range(start)[::-1]:
            known = answers(inner_first[at], inner_first[k])[:1]
            if known == [False]:
                break
            if known:
                inner_first[at], inner_first[k] = inner_first[k], inner_first[at]
                at = k
    return inner_first[::-1]


def _steps(array: NDArray[Any], shape: tuple[int, ...]) -> list[int]:
    """An operand's steps along the axes of the result; 0 where it is broadcast or the axis has one position."""
    missing = len(shape) - array.ndim
    own = zip(array.strides, array.shape, strict=True)
    return [0] * missing + [abs(step) if n > 1 else 0 for step, n in own]


def goes_by_rows(array: NDArray[Any]) -> bool:
    """Whether an array's axes are in memory as they are counted, some perhaps without steps or with gaps: loops over
    such arrays alone make results in row-major order.
    """
    if array.flags.c_contiguous:
        return True
    least = sys.maxsize
    for step, n in zip(array.strides, array.shape):
        if step and n > 1:
            if not 0 < step <= least:
                return False
            least = step
    return True


def settled(function: Callable[..., Any]) -> Callable[..., Any]:
    """An elementwise function of arrays whose result is laid out as one loop would lay it out."""

    @wraps(function)
    def compute(*arrays: Any) -> Any:
        return as_loops(function(*arrays), arrays)

    return compute


def as_loops(found: Any, operands: Sequence[Any]) -> Any:
    """``as_loop`` of a result, or of each of several."""
    if type(found) is tuple:
        return tuple([as_loop(one, operands) for one in found])
    return as_loop(found, operands)


def as_loop(found: Any, operands: Sequence[Any]) -> Any:
    """``found``, or its elements in an array laid out as a loop over the operands would lay it out."""
    if type(found) is not np.ndarray or found.ndim < 2:
        return found
    is_plain = found.flags.c_contiguous
    for a in operands if is_plain else ():  # a generator costs more than all the questions
        if not (a.flags.c_contiguous or goes_by_rows(a)):
            is_plain = False
    if is_plain:
        return found
    wanted = in_order_of(operands, found.dtype)
    if wanted.strides == found.strides or wanted.shape != found.shape:
        return found
    wanted[...] = found
    return wanted
