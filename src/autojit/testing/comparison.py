"""``assert_close``: tensors, numbers and nested containers of them are equal within tolerances.

How to read: ``assert_close`` walks containers (``_pairs``) down to tensors, numbers, bools and None, and each kind
has its own comparison. The default tolerances depend on the dtype and are those of PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import autojit as aj
from autojit.core.user_warnings import warn

# (relative, absolute) tolerance by name of the dtype: about the cube root of the unit in the last place, as in PyTorch
TOLERANCES = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}
Message = str | Callable[[str], str] | None


@dataclass(frozen=True)
class _Rules:
    """What the caller asked for."""

    rtol: float | None
    atol: float | None
    equal_nan: bool
    check_device: bool
    check_dtype: bool
    check_layout: bool
    check_stride: bool
    allow_subclasses: bool

    def tolerances(self, *dtypes: aj.dtype) -> tuple[float, float]:
        """(relative, absolute): those given, or the loosest defaults among the dtypes."""
        if self.rtol is not None and self.atol is not None:
            return self.rtol, self.atol
        found = [TOLERANCES.get(d.name, (0.0, 0.0)) for d in dtypes]
        return max(r for r, _ in found), max(a for _, a in found)


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: Message = None,
) -> None:
    """Assert ``|actual - expected| <= atol + rtol * |expected|`` everywhere, and that types, shapes and keys agree.

    Takes tensors, NumPy arrays, numbers, bools, None, and sequences and mappings of them, of the same kind on both
    sides. Tolerances are given both or not at all; by default they follow from the dtype (exact for integers).

    Args:
        msg: text of the error in place of the generated one, or a function of the generated one.

    Raises:
        AssertionError: they differ; the message says where and by how much.
        TypeError: something cannot be compared with its counterpart.
        ValueError: only one tolerance was given.

    Example:
        >>> import autojit as aj
        >>> assert_close(aj.tensor([1.0, 2.0]), aj.tensor([1.0, 2.0 + 1e-7]))
        >>> assert_close({"loss": 1.0}, {"loss": 2.0})
        Traceback (most recent call last):
        AssertionError: Scalars are not close!
        <BLANKLINE>
        Expected 2.0 but got 1.0.
        Absolute difference: 1.0 (up to 1e-07 allowed)
        Relative difference: 0.5 (up to 1e-07 allowed)
        <BLANKLINE>
        The failure occurred for item ['loss']
    """
    if (rtol is None) != (atol is None):
        missing = "rtol" if rtol is None else "atol"
        raise ValueError(f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {missing}.")
    rules = _Rules(rtol, atol, equal_nan, check_device, check_dtype, check_layout, check_stride, allow_subclasses)
    try:
        for a, b, place in _pairs(actual, expected, ""):
            _compare(a, b, place, rules)
    except AssertionError as error:
        if msg is None:
            raise
        raise AssertionError(msg(str(error)) if callable(msg) else msg) from None


def assert_allclose(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    msg: str = "",
) -> None:
    """The old name of ``assert_close``: converts both sides to tensors, takes NaNs for equal, ignores dtypes."""
    warn("assert_allclose() is deprecated; use assert_close()", FutureWarning)
    sides = [x if isinstance(x, aj.Tensor) else aj.tensor(x) for x in (actual, expected)]
    assert_close(*sides, rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=False, msg=msg or None)


def _pairs(actual: Any, expected: Any, place: str) -> Iterator[tuple[Any, Any, str]]:
    """The leaves of two containers of the same form, with where they are."""
    if _is_sequence(actual) and _is_sequence(expected):
        if len(actual) != len(expected):
            _fail(f"The length of the sequences mismatch: {len(actual)} != {len(expected)}", place)
        for k, (a, b) in enumerate(zip(actual, expected, strict=True)):
            yield from _pairs(a, b, f"{place}[{k}]")
    elif isinstance(actual, Mapping) and isinstance(expected, Mapping):
        missing = [k for k in expected if k not in actual]
        additional = [k for k in actual if k not in expected]
        if missing or additional:
            _fail(
                "The keys of the mappings do not match:\n"
                f"Missing keys in the actual mapping: {missing}\nAdditional keys in the actual mapping: {additional}",
                place,
            )
        for k in actual:
            yield from _pairs(actual[k], expected[k], f"{place}[{k!r}]")
    else:
        yield actual, expected, place


def _is_sequence(x: Any) -> bool:
    return isinstance(x, Sequence) and not isinstance(x, str)


def _fail(text: str, place: str) -> None:
    raise AssertionError(text + (f"\n\nThe failure occurred for item {place}" if place else ""))


def _compare(actual: Any, expected: Any, place: str, rules: _Rules) -> None:
    if actual is None or expected is None:
        if actual is not expected:
            _fail(f"None mismatch: {actual} is not {expected}", place)
    elif _all_of((bool, np.bool_), actual, expected):
        if bool(actual) is not bool(expected):
            _fail(f"Booleans mismatch: {actual} is not {expected}", place)
    elif _all_of((int, float, complex, np.number), actual, expected):
        _compare_numbers(actual, expected, place, rules)
    elif _all_of((aj.Tensor, np.ndarray), actual, expected) and _related(actual, expected, rules.allow_subclasses):
        _compare_tensors(aj.as_tensor(actual), aj.as_tensor(expected), place, rules)
    else:
        raise TypeError(f"No comparison pair was able to handle inputs of type {type(actual)} and {type(expected)}.")


def _all_of(kinds: tuple[type, ...], *given: Any) -> bool:
    return all(isinstance(x, kinds) for x in given)


def _related(a: Any, b: Any, allow_subclasses: bool) -> bool:
    if not allow_subclasses:
        return type(a) is type(b)
    return isinstance(a, type(b)) or isinstance(b, type(a)) or _all_of((aj.Tensor,), a, b)


def _compare_numbers(actual: Any, expected: Any, place: str, rules: _Rules) -> None:
    a, b = [x.item() if isinstance(x, np.generic) else x for x in (actual, expected)]
    if rules.check_dtype and type(a) is not type(b):
        _fail(f"The (d)types do not match: {type(a)} != {type(b)}.", place)
    dtypes = [
        aj.int64 if isinstance(x, int) else aj.complex128 if isinstance(x, complex) else aj.float64 for x in (a, b)
    ]
    _judge_numbers(a, b, rules.tolerances(*dtypes), place, rules.equal_nan)


def _judge_numbers(a: Any, b: Any, tolerances: tuple[float, float], place: str, equal_nan: bool) -> None:
    rtol, atol = tolerances
    difference = abs(a - b) if a != b else 0
    if a == b or (equal_nan and a != a and b != b):
        return
    if math.isfinite(difference) and difference <= atol + rtol * abs(b):
        return
    relative = difference / abs(b) if b != 0 else math.inf
    what = ["Scalars are not close!", "", f"Expected {b} but got {a}."]
    if (rtol, atol) == (0.0, 0.0):
        what = ["Scalars are not equal!", *what[1:], f"Absolute difference: {difference}"]
        what.append(f"Relative difference: {relative}")
    else:
        what.append(f"Absolute difference: {difference} (up to {atol} allowed)")
        what.append(f"Relative difference: {relative} (up to {rtol} allowed)")
    _fail("\n".join(what), place)


def _compare_tensors(actual: aj.Tensor, expected: aj.Tensor, place: str, rules: _Rules) -> None:
    for wanted, name in (
        (True, "shape"), (rules.check_layout, "layout"), (rules.check_device, "device"), (rules.check_dtype, "dtype"),
        (rules.check_stride, "stride()"),
    ):  # fmt: skip
        if wanted:
            a, b = _attribute(actual, name), _attribute(expected, name)
            if a != b:
                _fail(f"The values for attribute '{name}' do not match: {a} != {b}.", place)
    rtol, atol = rules.tolerances(actual.dtype, expected.dtype)
    a, b = _values(actual), _values(expected)
    if a.dtype != b.dtype:
        common = np.result_type(a.dtype, b.dtype)
        a, b = a.astype(common), b.astype(common)
    with np.errstate(all="ignore"):
        _judge_arrays(a, b, rtol, atol, place, rules.equal_nan)


def _attribute(t: aj.Tensor, name: str) -> Any:
    if name == "layout":
        return getattr(t, "layout", "strided")
    return t.stride() if name == "stride()" else getattr(t, name)


def _values(t: aj.Tensor) -> np.ndarray[Any, Any]:
    """The elements in the widest dtype of their kind."""
    if getattr(t, "layout", None) not in (None, getattr(aj, "strided", None)):
        t = t.to_dense()
    array: np.ndarray[Any, Any] = t.detach().cpu().numpy()
    if t.dtype.is_complex:
        return array.astype(np.complex128)
    return array.astype(np.float64) if t.dtype.is_floating_point else array


def _judge_arrays(
    a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], rtol: float, atol: float, place: str, equal_nan: bool
) -> None:
    equal = a == b
    if equal_nan:
        equal = equal | ((a != a) & (b != b))
    wide = a if a.dtype.kind in "fc" else a.astype(np.float64)
    against = b if b.dtype.kind in "fc" else b.astype(np.float64)
    difference = np.abs(wide - against)
    close = equal
    if (rtol, atol) != (0.0, 0.0):
        close = equal | (np.isfinite(difference) & (difference <= atol + rtol * np.abs(against)))
    if bool(np.all(close)):
        return
    if a.ndim == 0:
        _judge_numbers(a.item(), b.item(), (rtol, atol), place, equal_nan)
    difference = np.where(close, 0, difference)
    relative = np.where(close, 0, difference / np.abs(against))
    exact = (rtol, atol) == (0.0, 0.0)
    count = int(close.size - np.count_nonzero(close))
    lines = [f"Tensor-likes are not {'equal' if exact else 'close'}!", ""]
    lines.append(f"Mismatched elements: {count} / {close.size} ({count / close.size:.1%})")
    for name, values, allowed in (("absolute", difference, atol), ("relative", relative, rtol)):
        index = np.unravel_index(int(np.argmax(values)), values.shape)
        greatest = values[index].item()
        if name == "absolute" and a.dtype.kind not in "fc":
            greatest = int(greatest)
        at = f"{greatest} at index {tuple(int(i) for i in index)}"
        lines.append(f"Greatest {name} difference: {at}" + ("" if exact else f" (up to {allowed} allowed)"))
    _fail("\n".join(lines), place)
