"""Numerical derivatives: central differences of a function's outputs by the elements of one input.

A function is asked for all outputs at once, each as a NumPy array. ``moved`` shifts elements of an input in its own
memory and puts them back, so that the function sees the very tensors it was given, also when it is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autojit.core.device_array import host_copy, write_array

Array = NDArray[Any]
Evaluate = Callable[[], list[Array]]  # the outputs for the present values of the inputs


@contextmanager
def moved(array: Array, index: Any, step: Any) -> Iterator[None]:
    """The elements at ``index`` are shifted by ``step`` inside; afterwards they are exactly as before."""
    before = np.array(host_copy(array))
    shifted = before.copy()
    shifted[index] += step
    try:
        write_array(array, shifted)
        yield
    finally:
        write_array(array, before)


def difference(evaluate: Evaluate, array: Array, index: Any, step: Any, where: str) -> list[Array]:
    """Per output, flattened: half the change between ``+step`` and ``-step``, for a step of any size.

    Raises:
        AssertionError: the outputs at the two places differ in shape or dtype; ``where`` says what was moved.
    """
    with moved(array, index, -np.asarray(step)):
        low = evaluate()
    with moved(array, index, np.asarray(step)):
        high = evaluate()
    for a, b in zip(low, high, strict=True):
        for what, first, second in (("shape", a.shape, b.shape), ("dtype", a.dtype, b.dtype)):
            if first != second:
                raise AssertionError(
                    f"Expected `func` to return outputs with the same {what} when inputs are perturbed {where}, but "
                    f"got: {what}s {first} and {second}."
                )
    return [(_wide(b) - _wide(a)).reshape(-1) / 2 for a, b in zip(low, high, strict=True)]


def _wide(array: Array) -> Array:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def numerical_jacobians(evaluate: Evaluate, array: Array, eps: float) -> list[Array]:
    """Per output the matrix ``[elements of the input, elements of the output]``; complex inputs: ``d/dx + i d/dy``."""
    sizes = [(o.size, o.dtype.kind) for o in evaluate()]
    is_complex = array.dtype.kind == "c"
    found = [
        np.zeros((array.size, size), np.complex128 if is_complex or kind == "c" else np.float64) for size, kind in sizes
    ]
    for row, index in enumerate(np.ndindex(array.shape)):
        where = f"on index {index} by {eps}"
        for jacobian, change in zip(found, difference(evaluate, array, index, eps, where), strict=True):
            jacobian[row] = change / eps
        if is_complex:
            for jacobian, change in zip(found, difference(evaluate, array, index, eps * 1j, where), strict=True):
                jacobian[row] += 1j * change / eps
    return found


def numerical_products(evaluate: Evaluate, array: Array, direction: Array, eps: float) -> list[Array]:
    """Per output, flattened: the derivative along a direction in the space of one input."""
    found = difference(evaluate, array, ..., eps * direction.reshape(array.shape), f"by {eps}")
    return [change / eps for change in found]


def shares_elements(array: Array) -> bool:
    """Whether two indices address the same memory: exact, from shape and strides."""
    if array.size < 2 or array.flags.c_contiguous or array.flags.f_contiguous:
        return False
    offsets: Any = np.zeros((), np.int64)
    for step, n in zip(array.strides, array.shape, strict=True):
        offsets = np.add.outer(offsets, np.arange(n) * step)
    return bool(np.unique(offsets).size != offsets.size)


def unit_vector(generator: np.random.Generator, size: int) -> Array:
    """A random vector of length 1 with elements of one sign (none for size 0)."""
    drawn = generator.random(size)
    return np.asarray(drawn / np.linalg.norm(drawn)) if size else drawn


def weights(u: Array, v: Array | None) -> float:
    """By how much an element's tolerance counts in the product ``v^T J u``: the product with a matrix of ones."""
    return float(np.sum(u)) * (1.0 if v is None else float(np.sum(v)))


def worst_place(numerical: Array, analytical: Array) -> tuple[float, Sequence[int]]:
    """The largest difference (NaN counts as infinite) and its index."""
    gap = np.abs(np.asarray(numerical) - np.asarray(analytical))
    if gap.size == 0:
        return 0.0, ()
    gap = np.where(np.isnan(gap), np.inf, gap)
    return float(gap.max()), tuple(int(i) for i in np.unravel_index(int(np.argmax(gap)), gap.shape))
