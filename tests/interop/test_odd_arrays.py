"""NumPy arrays of every kind, wherever they enter: their values, or a clear refusal; never other values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj

BASE = np.arange(12, dtype=np.float32).reshape(3, 4)


def _unaligned() -> Any:
    raw = np.zeros(BASE.nbytes + 1, np.uint8)
    made = raw[1:].view(np.float32).reshape(BASE.shape)
    made[...] = BASE
    return made


def _frozen(array: Any) -> Any:
    array.flags.writeable = False
    return array


ARRAYS: dict[str, Callable[[], Any]] = {
    "plain": BASE.copy,
    "big-endian float": lambda: BASE.astype(">f4"),
    "big-endian int": lambda: BASE.astype(">i4"),
    "big-endian double": lambda: BASE.astype(">f8"),
    "big-endian complex": lambda: BASE.astype(">c8"),
    "reversed": lambda: BASE.copy()[::-1],
    "transposed": lambda: BASE.copy().T,
    "with gaps": lambda: BASE.copy()[:, ::2],
    "expanded": lambda: np.broadcast_to(BASE[:1], BASE.shape),
    "read-only": lambda: _frozen(BASE.copy()),
    "unaligned": _unaligned,
    "0-d": lambda: np.array(2.5, np.float32),
    "0-d big-endian": lambda: np.array(2.5, ">f4"),
    "empty": lambda: np.zeros(0, np.float32),
    "column-major": lambda: np.asfortranarray(BASE),
    "half": lambda: BASE.astype(np.float16),
    "bool": lambda: BASE > 3,
    "matrix": lambda: np.matrix(BASE),
    "masked": lambda: np.ma.masked_array(BASE.copy(), BASE > 5),
    "record field": lambda: np.rec.array([(1.0, 2), (3.0, 4)], dtype=[("a", "f4"), ("b", "i4")])["a"],
    "structured": lambda: np.zeros(3, [("a", "f4"), ("b", "i4")]),
    "object": lambda: np.array([1.0, 2.0], object),
    "text": lambda: np.array(["a", "b"]),
    "dates": lambda: np.array(["2020-01-01"], "datetime64[D]"),
    "long double": lambda: BASE.astype(np.longdouble),
}
ENTRIES: dict[str, Callable[[Any], Any]] = {
    "tensor": aj.tensor,
    "as_tensor": aj.as_tensor,
    "asarray": aj.asarray,
    "from_numpy": aj.from_numpy,
    "operand": lambda a: aj.zeros(()) + a,
    "compiled argument": lambda a: aj.jit(lambda x: aj.as_tensor(x) * 1)(a),
    "compiled argument again": lambda a: [_again(a) for _ in range(3)][-1],
    "compiled argument with open sizes": lambda a: aj.jit(lambda x: aj.as_tensor(x) * 1, dynamic=True)(a),
    "closure of a step": lambda a: aj.jit(lambda x: x + aj.as_tensor(a))(aj.zeros(())),
    "operand in a step": lambda a: aj.jit(lambda x: x + a)(aj.zeros(())),
}
_again = aj.jit(lambda x: aj.as_tensor(x) * 1)


@pytest.mark.filterwarnings("ignore:The given NumPy array", "ignore:the matrix subclass")
@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("array", ARRAYS)
def test_an_array_keeps_its_values_or_is_refused(array: str, entry: str) -> None:
    given = ARRAYS[array]()
    try:
        found = ENTRIES[entry](given)
    except (TypeError, ValueError) as error:
        assert array not in ("plain", "transposed", "with gaps", "0-d", "empty", "column-major", "bool"), error
        assert len(str(error)) > 20
        return
    assert array not in ("structured", "object", "text", "dates")
    shown = found.numpy()
    assert shown.dtype.isnative
    np.testing.assert_array_equal(np.asarray(shown, np.complex128), np.asarray(given, np.complex128))


@pytest.mark.parametrize("array", ["big-endian float", "unaligned", "transposed", "with gaps", "reversed"])
def test_a_step_writes_to_the_array_it_is_given(array: str) -> None:
    def step(x: Any) -> Any:
        x += 1
        return x * 2

    given = ARRAYS[array]()
    expected = np.array(given, np.float32)
    compiled = aj.jit(step)
    for _ in range(3):
        result = compiled(given)
        expected += 1
        np.testing.assert_array_equal(np.array(given, np.float32), expected)
        np.testing.assert_array_equal(result, expected * 2)


@pytest.mark.filterwarnings("ignore:The given NumPy array")
@pytest.mark.parametrize("array", ["read-only", "expanded"])
def test_a_step_does_not_write_to_memory_that_may_not_be_written_to(array: str) -> None:
    given = ARRAYS[array]()
    before = given.copy()
    for function in (lambda x: x.add_(1), aj.jit(lambda x: x.add_(1))):
        with pytest.raises(RuntimeError, match=r"read-only|single memory location"):
            function(aj.from_numpy(given))
    np.testing.assert_array_equal(given, before)
