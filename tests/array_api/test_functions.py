"""Functions of the standard over many shapes, axes and dtypes, zero extents among them: what NumPy's give."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import array_api as xp

SHAPES = [(), (1,), (4,), (0,), (2, 3), (0, 3), (3, 0), (2, 1, 3)]
DTYPES = ["bool", "int8", "uint64", "float32", "complex128"]
INTEGERS = ["int8", "int64", "uint8", "uint64"]


def numbers(shape: tuple[int, ...], dtype: str) -> Any:
    """Different small numbers, some of them zero."""
    flat = (np.arange(math.prod(shape)) * 5) % 7
    return np.reshape(flat % 2 if dtype == "bool" else flat, shape).astype(dtype)


def axes_of(shape: tuple[int, ...]) -> list[int]:
    return list(range(-len(shape), len(shape)))


def same(found: Any, wanted: Any, what: object = "") -> None:
    wanted = np.asarray(wanted)
    assert found.dtype.numpy == wanted.dtype and tuple(found.shape) == wanted.shape, (what, found, wanted)
    if np.array_equal(found.numpy(), wanted):
        return
    tolerance = 1e-6 if wanted.dtype in ("f4", "c8") else 1e-13
    np.testing.assert_allclose(found.numpy(), wanted, rtol=tolerance, atol=tolerance, err_msg=str(what))


Calls = Iterator[tuple[tuple[Any, ...], dict[str, Any]]]


def with_axis(shape: tuple[int, ...], *others: Any) -> Calls:
    yield others, {}
    for axis in axes_of(shape):
        yield others, {"axis": axis}
    if len(shape) > 1:
        yield others, {"axis": (0, 1)}


CALLS: dict[str, Callable[[tuple[int, ...]], Calls]] = {
    "expand_dims": lambda s: (((), {"axis": axis}) for axis in range(-len(s) - 1, len(s) + 1)),
    "flip": with_axis,
    "moveaxis": lambda s: ((pair, {}) for pair in product(axes_of(s), repeat=2)),
    "permute_dims": lambda s: iter([((tuple(reversed(range(len(s)))),), {})] if s else []),
    "repeat": lambda s: (((2,), {"axis": axis}) for axis in [None, *axes_of(s)] if s),
    "reshape": lambda s: iter([(((-1,),), {}), (((1, *s),), {})] if 0 not in s else [(((0, 2),), {})]),
    "roll": lambda s: (((3,), {"axis": axis}) for axis in [None, *axes_of(s)]),
    "squeeze": lambda s: (((), {"axis": axis}) for axis in axes_of(s) if s[axis] == 1),
    "tile": lambda s: (((r,), {}) for r in ((2,), (2, 1), (1, 2, 1, 2))),
    "broadcast_to": lambda s: iter([(((2, *s),), {})]),
    "tril": lambda s: (((), {"k": k}) for k in (-5, -1, 0, 1, 5) if len(s) > 1),
    "triu": lambda s: (((), {"k": k}) for k in (-5, -1, 0, 1, 5) if len(s) > 1),
    "unstack": lambda s: (((), {"axis": axis}) for axis in axes_of(s) if s),
    "all": with_axis, "any": with_axis, "count_nonzero": with_axis,
    "nonzero": lambda s: iter([((), {})] if s else []),
    "matrix_transpose": lambda s: iter([((), {})] if len(s) > 1 else []),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_shapes_axes_and_dtypes(name: str) -> None:
    for shape, dtype in product(SHAPES, DTYPES):
        x = numbers(shape, dtype)
        for arguments, options in CALLS[name](shape):
            wanted = getattr(np, name)(x, *arguments, **options)
            found = getattr(xp, name)(aj.as_tensor(x), *arguments, **options)
            if not isinstance(wanted, tuple):
                same(found, wanted, (name, shape, dtype, arguments, options))
                continue
            assert isinstance(found, tuple) and len(found) == len(wanted)
            for f, w in zip(found, wanted, strict=True):
                same(f, w, (name, shape, dtype, arguments, options))


def test_arrays_are_joined() -> None:
    for shape in SHAPES:
        parts = [numbers(shape, dtype) for dtype in ("int8", "int16", "int64")]
        given = [aj.as_tensor(p) for p in parts]
        for axis in [None, *axes_of(shape)]:
            if shape or axis is None:
                same(xp.concat(given, axis=axis), np.concat(parts, axis=axis), (shape, axis))
        for axis in range(-len(shape) - 1, len(shape) + 1):
            same(xp.stack(given, axis=axis), np.stack(parts, axis=axis), (shape, axis))


def test_repeats_by_element() -> None:
    x, counts = numbers((2, 3), "float32"), np.array([2, 0, 1])
    same(xp.repeat(aj.as_tensor(x), aj.as_tensor(counts), axis=1), np.repeat(x, counts, axis=1))
    same(xp.roll(aj.as_tensor(x), (1, -2), axis=(0, 1)), np.roll(x, (1, -2), axis=(0, 1)))
    same(xp.squeeze(aj.as_tensor(x[None, None]), axis=(0, -3)), x)


def test_axes_out_of_range_are_refused() -> None:
    x = xp.ones((2, 3))
    for axis in (-4, 3):
        with pytest.raises(IndexError):
            xp.expand_dims(x, axis=axis)
    for call in (lambda: xp.squeeze(x, 0), lambda: xp.squeeze(x, (0, 1))):
        with pytest.raises(ValueError):
            call()
    for call in (lambda: xp.flip(x, axis=2), lambda: xp.sum(x, axis=2), lambda: xp.sort(x, axis=2),
                 lambda: xp.concat([x, x], axis=2), lambda: xp.nonzero(xp.asarray(1))):  # fmt: skip
        with pytest.raises((IndexError, ValueError)):
            call()


KEYS: list[Any] = [
    0, -1, slice(None), slice(1, None), slice(None, None, 2), slice(-2, 5), slice(3, 1), ..., None, (0, ...), (..., 0),
    (None, slice(1), None), (slice(0, 0), ...), (1, -1), (slice(None), slice(None, None, 3)),
]  # fmt: skip


def test_indices_are_numpys() -> None:
    for shape, key in product([(3,), (2, 4), (2, 0), (3, 2, 2)], KEYS):
        x = numbers(shape, "int64")
        try:
            wanted = x[key]
        except IndexError:
            with pytest.raises(IndexError):
                aj.as_tensor(x)[key]
            continue
        same(aj.as_tensor(x)[key], wanted, (shape, key))
        changed, written = x.copy(), aj.tensor(x)
        changed[key] = 9
        written[key] = 9
        same(written, changed, (shape, key))


def test_negative_steps_are_refused_as_in_torch() -> None:
    with pytest.raises(ValueError, match="flip"):
        xp.arange(3)[::-1]


def test_masks_pick_and_write() -> None:
    for shape in [(), (3,), (0,), (2, 3), (2, 0), (0, 3)]:
        for mask_shape in {shape[:k] for k in range(len(shape) + 1)}:
            for dtype in DTYPES:
                x, mask = numbers(shape, dtype), numbers(mask_shape, "bool")
                t, m = aj.tensor(x), aj.as_tensor(mask)
                same(t[m], x[mask], (shape, mask_shape))
                x[mask] = 1
                t[m] = 1
                same(t, x, (shape, mask_shape))
    with pytest.raises(IndexError):
        xp.ones(3)[xp.ones((2,), dtype=xp.bool)]


def test_ranges_are_those_of_python() -> None:
    for start, stop, step in product((-3, 0, 4), (-5, 0, 6), (-2, -1, 1, 3)):
        for dtype in (None, xp.int8, xp.float32):
            found = xp.arange(start, stop, step, dtype=dtype)
            assert [int(v) for v in found] == list(range(start, stop, step)) and found.dtype is (dtype or xp.int64)
    assert xp.arange(2.5).dtype is xp.float32 and xp.arange(0, 1, 0.25).shape == (4,)


def test_spaced_numbers_begin_and_end_exactly() -> None:
    for start, stop, count in product((-1.5, 0.1, 3.0), (0.3, -7.7), (0, 1, 2, 7)):
        for dtype in (xp.float32, xp.float64):
            found = xp.linspace(start, stop, count, dtype=dtype)
            assert found.shape == (count,)
            if count:
                assert float(found[0]) == float(xp.asarray(start, dtype=dtype))
            if count > 1:
                assert float(found[-1]) == float(xp.asarray(stop, dtype=dtype))
            half_open, whole = (xp.linspace(start, stop, n, dtype=dtype, endpoint=e)
                                for n, e in ((count, False), (count + 1, True)))  # fmt: skip
            same(half_open, whole[:-1].numpy(), (start, stop, count))
    assert xp.linspace(0, 10, 3, dtype=xp.int64).tolist() == [0, 5, 10]


def test_filled_arrays_have_the_dtype_of_the_number() -> None:
    for value, dtype in ((True, xp.bool), (3, xp.int64), (2.5, xp.float32), (1j, xp.complex64)):
        assert xp.full((2,), value).dtype is dtype and xp.asarray([value]).dtype is dtype
        for like in (xp.bool, xp.int8, xp.float64):
            x = xp.ones((1, 2), dtype=like)
            assert xp.zeros_like(x).dtype is like and xp.full_like(x, 1, dtype=dtype).dtype is dtype
    for shape in (3, (), (0, 2)):
        assert xp.zeros(shape).shape == xp.ones(shape).shape == xp.empty(shape).shape == np.zeros(shape).shape
    for rows, columns, k in product((0, 2, 3), (None, 0, 4), (-9, -1, 0, 2, 9)):
        same(xp.eye(rows, columns, k=k), np.eye(rows, columns, k, dtype=np.float32), (rows, columns, k))


REDUCED = [shape for shape in SHAPES if 0 not in shape]


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "var", "std"])
def test_reductions_over_axes(name: str) -> None:
    is_exact = name in ("sum", "prod", "max", "min")
    for shape, dtype in product(REDUCED, [*INTEGERS, "float32", "float64"] if is_exact else ["float32", "float64"]):
        x = numbers(shape, dtype)
        for (_, options), keepdims in product(with_axis(shape), (False, True)):
            wanted = getattr(np, name)(x, keepdims=keepdims, **options)
            same(
                getattr(xp, name)(aj.as_tensor(x), keepdims=keepdims, **options), wanted, (name, shape, dtype, options)
            )
    same(xp.sum(aj.as_tensor(numbers((2, 3), "int8")), dtype=xp.float64), np.sum(numbers((2, 3), "float64")))
    for empty in ((0,), (2, 0)):
        assert xp.sum(xp.ones(empty)).item() == 0 and xp.prod(xp.ones(empty)).item() == 1


@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
def test_running_sums(name: str) -> None:
    for shape, dtype, initial in product([(3,), (0,), (2, 3), (2, 0)], [*INTEGERS, "float32"], (False, True)):
        for axis in axes_of(shape) if len(shape) > 1 else [None, 0]:
            x, options = numbers(shape, dtype), {"axis": axis, "include_initial": initial}
            same(getattr(xp, name)(aj.as_tensor(x), **options), getattr(np, name)(x, **options), (shape, dtype, axis))


def test_order_is_stable_in_both_directions() -> None:
    x = np.array([[3, 1, 2, 1, 3, 3], [0, 0, 5, 5, 0, 1]])
    for dtype, axis in product(["int8", "uint64", "float32", "bool"], (0, 1, -1)):
        values = x.astype(dtype)
        t = aj.as_tensor(values)
        same(xp.sort(t, axis=axis), np.sort(values, axis=axis, stable=True))
        same(xp.argsort(t, axis=axis), np.argsort(values, axis=axis, stable=True))
        ranks = -values.astype("int64")
        same(xp.argsort(t, axis=axis, descending=True), np.argsort(ranks, axis=axis, stable=True))
        same(xp.sort(t, axis=axis, descending=True), np.flip(np.sort(values, axis=axis), axis))


def test_places_in_sorted_arrays() -> None:
    x = np.array([5.0, 1.0, 3.0, 3.0], np.float32)
    order = np.argsort(x, stable=True)
    for side, wanted in product(("left", "right"), ([3.0, 0.0, 9.0], [[1.0], [5.0]])):
        given = np.array(wanted, np.float32)
        found = xp.searchsorted(aj.as_tensor(x), aj.as_tensor(given), side=side, sorter=aj.as_tensor(order))
        same(found, np.searchsorted(x, given, side, order))


def test_sets_name_each_number_once() -> None:
    for dtype in DTYPES:
        x = numbers((3, 4), dtype)
        found, wanted = xp.unique_all(aj.as_tensor(x)), np.unique_all(x)
        assert found._fields == wanted._fields
        for f, w in zip(found, wanted, strict=True):
            same(f, w, dtype)
        assert xp.unique_counts(aj.as_tensor(x))._fields == ("values", "counts")
        assert xp.unique_inverse(aj.as_tensor(x))._fields == ("values", "inverse_indices")
        same(xp.isin(aj.as_tensor(x), aj.as_tensor(x[0])), np.isin(x, x[0]))


def test_elements_are_taken() -> None:
    x = numbers((3, 4), "float32")
    t = aj.as_tensor(x)
    for axis, places in product((0, 1, -1), ([0, 2], [2, 2, 0], [-1, 1])):
        same(xp.take(t, xp.asarray(places), axis=axis), np.take(x, places, axis=axis))
    order = np.argsort(x, axis=1)
    same(xp.take_along_axis(t, aj.as_tensor(order), axis=1), np.take_along_axis(x, order, axis=1))
    same(xp.where(t > 2, t, 0.0), np.where(x > 2, x, np.float32(0)))
    same(xp.diff(t, axis=0, n=2), np.diff(x, n=2, axis=0))
    same(xp.diff(t, prepend=xp.zeros((3, 1))), np.diff(x, prepend=np.zeros((3, 1), np.float32)))


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "//": lambda a, b: a // b,
    "%": lambda a, b: a % b, "**": lambda a, b: a**b, "&": lambda a, b: a & b, "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b, "<<": lambda a, b: a << b, ">>": lambda a, b: a >> b, "<": lambda a, b: a < b,
    "==": lambda a, b: a == b, "/": lambda a, b: a / b,
}  # fmt: skip


def test_operators_keep_the_dtype_of_the_array() -> None:
    for (name, operator), dtype in product(OPERATORS.items(), [*INTEGERS, "float32"]):
        if (name == "/" and dtype != "float32") or (name in ("&", "|", "^", "<<", ">>") and dtype == "float32"):
            continue
        x = numbers((4,), dtype) % 3 + 1
        t = aj.as_tensor(x.astype(dtype))
        for wanted, found in ((operator(x, 2), operator(t, 2)), (operator(2, x), operator(2, t)),
                              (operator(x, x[::-1].copy()), operator(t, aj.as_tensor(x[::-1].copy())))):  # fmt: skip
            same(found, wanted.astype("bool" if name in ("<", "==") else dtype), (name, dtype))


def test_numbers_of_arrays() -> None:
    assert bool(xp.asarray(True)) is True and int(xp.asarray(3, dtype=xp.uint8)) == 3
    assert float(xp.asarray(2.5)) == 2.5 and complex(xp.asarray(1j)) == 1j
    assert [10, 11, 12][xp.asarray(1, dtype=xp.uint64)] == 11
    for call in (lambda: float(xp.asarray(1j)), lambda: bool(xp.ones(2)), lambda: [0][xp.asarray(0.0)]):
        with pytest.raises((TypeError, ValueError, RuntimeError)):
            call()


def test_products_promote() -> None:
    for a, b in (("int8", "int32"), ("uint8", "int16"), ("float32", "float64"), ("complex64", "complex128")):
        x, y = numbers((3,), a), numbers((3,), b)
        s, t = aj.as_tensor(x), aj.as_tensor(y)
        dtype = np.promote_types(a, b)
        same(xp.linalg.outer(s, t), np.outer(x, y).astype(dtype))
        same(xp.vecdot(s, t), np.vecdot(x.astype(dtype), y.astype(dtype)))
        same(xp.matmul(s, t), (x.astype(dtype) @ y.astype(dtype)))
        same(xp.tensordot(s, t, axes=1), np.tensordot(x.astype(dtype), y.astype(dtype), 1))
        same(xp.linalg.cross(s, t[None]), np.linalg.cross(x.astype(dtype), y.astype(dtype)[None]))
    x, y = numbers((2, 3, 4), "float64"), numbers((4, 3), "float64")
    same(xp.tensordot(aj.as_tensor(x), aj.as_tensor(y), axes=((1, 2), (1, 0))), np.tensordot(x, y, ((1, 2), (1, 0))))
    same(xp.vecdot(aj.as_tensor(x), aj.as_tensor(y.T[None]), axis=-2), np.vecdot(x, y.T[None], axis=-2))


def test_diagonals_and_traces() -> None:
    for dtype, offset in product(["int8", "uint8", "float32", "complex128"], (-9, -1, 0, 2, 9)):
        x = numbers((2, 3, 4), dtype)
        same(xp.linalg.diagonal(aj.as_tensor(x), offset=offset), np.linalg.diagonal(x, offset=offset), (dtype, offset))
        same(xp.linalg.trace(aj.as_tensor(x), offset=offset), np.linalg.trace(x, offset=offset), (dtype, offset))


def test_norms() -> None:
    x = numbers((2, 3, 4), "float64") - 2
    t, inf = aj.as_tensor(x), math.inf
    for order, keepdims in product((-inf, -2, -1, 1, 2, inf, "fro", "nuc"), (False, True)):
        same(xp.linalg.matrix_norm(t, ord=order, keepdims=keepdims),
             np.linalg.matrix_norm(x, ord=order, keepdims=keepdims), order)  # fmt: skip
    for order, axis, keepdims in product((-inf, -1, 0, 1, 2, 3.5, inf), (None, 0, -1, (0, 2)), (False, True)):
        same(xp.linalg.vector_norm(t + 0.5, ord=order, axis=axis, keepdims=keepdims),
             np.linalg.vector_norm(x + 0.5, ord=order, axis=axis, keepdims=keepdims), (order, axis))  # fmt: skip


def test_factors_are_named() -> None:
    x = xp.asarray([[4.0, 1.0], [1.0, 3.0]])
    named = {"eigh": ("eigenvalues", "eigenvectors"), "qr": ("Q", "R"), "slogdet": ("sign", "logabsdet"),
             "svd": ("U", "S", "Vh"), "eig": ("eigenvalues", "eigenvectors")}  # fmt: skip
    for name, fields in named.items():
        found = getattr(xp.linalg, name)(x)
        assert all(found[k] is getattr(found, field) for k, field in enumerate(fields)), name
    assert xp.linalg.qr(xp.ones((3, 2)), mode="complete").Q.shape == (3, 3)
    assert xp.linalg.svd(xp.ones((3, 2)), full_matrices=False).U.shape == (3, 2)
    same(xp.linalg.matrix_power(x, -2), np.linalg.matrix_power(x.numpy(), -2))
    assert xp.linalg.matrix_rank(xp.ones((2, 3, 3))).tolist() == [1, 1]


def test_transforms_have_the_extents_and_the_precision_that_are_asked_for() -> None:
    x = numbers((3, 6), "float64")
    z = x + 1j * x[::-1]
    for name, given in (("fft", z), ("ifft", z), ("rfft", x), ("irfft", z), ("hfft", z), ("ihfft", x)):
        for n, axis, norm in product((None, 4, 9), (0, -1), ("backward", "ortho", "forward")):
            same(getattr(xp.fft, name)(aj.as_tensor(given), n=n, axis=axis, norm=norm),
                 getattr(np.fft, name)(given, n=n, axis=axis, norm=norm), (name, n, axis, norm))  # fmt: skip
    for name, given in (("fftn", z), ("ifftn", z), ("rfftn", x), ("irfftn", z)):
        for options in ({}, {"axes": (0,)}, {"s": (2, 8), "axes": (0, 1)}):
            same(getattr(xp.fft, name)(aj.as_tensor(given), **options), getattr(np.fft, name)(given, **options), name)
    assert xp.fft.rfft(xp.ones(4)).dtype is xp.complex64 and xp.fft.irfft(xp.ones(4) + 0j).dtype is xp.float32
    for n, d in product((1, 4, 5), (1.0, 0.5)):
        same(xp.fft.fftfreq(n, d=d, dtype=xp.float64), np.fft.fftfreq(n, d))
        same(xp.fft.rfftfreq(n, d=d, dtype=xp.float64), np.fft.rfftfreq(n, d))
    same(xp.fft.fftshift(aj.as_tensor(x), axes=[1]), np.fft.fftshift(x, axes=[1]))
    same(xp.fft.ifftshift(aj.as_tensor(x)), np.fft.ifftshift(x))


def test_casts_keep_what_both_dtypes_hold() -> None:
    names = ["bool", *INTEGERS, "float32", "float64", "complex64"]
    for a, b in product(names, names):
        if a == "complex64" and b != "complex64":
            continue
        x = numbers((4,), a)
        for copy in (False, True):
            found = xp.astype(aj.as_tensor(x), getattr(xp, b), copy=copy)
            same(found, x.astype(b), (a, b))
            assert copy is False or found.data_ptr() != x.ctypes.data
