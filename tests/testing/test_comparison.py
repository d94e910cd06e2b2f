"""assert_close: what is equal, what is not, and what it says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.testing import assert_allclose, assert_close


def message(actual: Any, expected: Any, **options: Any) -> str:
    with pytest.raises(AssertionError) as caught:
        assert_close(actual, expected, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("dtype", "inside", "outside"),
    [
        (aj.float16, 1e-3, 4e-3),
        (aj.bfloat16, 0.9e-2, 3e-2),
        (aj.float32, 1e-6, 2e-5),
        (aj.float64, 1e-8, 1e-6),
        (aj.complex64, 1e-6, 2e-5),
        (aj.complex128, 1e-8, 1e-6),
    ],
)
def test_tolerances_follow_from_the_dtype(dtype: aj.dtype, inside: float, outside: float) -> None:
    one = aj.ones(3, dtype=dtype)
    assert_close(one, one * (1 + inside))
    assert "not close" in message(one, one * (1 + outside))


def test_integers_and_bools_are_compared_exactly() -> None:
    assert_close(aj.tensor([1, 2]), aj.tensor([1, 2]))
    assert message(aj.tensor([1, 2]), aj.tensor([1, 4])).splitlines() == [
        "Tensor-likes are not equal!",
        "",
        "Mismatched elements: 1 / 2 (50.0%)",
        "Greatest absolute difference: 2 at index (1,)",
        "Greatest relative difference: 0.5 at index (1,)",
    ]
    assert "Booleans mismatch: True is not False" in message(True, False)
    assert "not equal" in message(aj.tensor([True]), aj.tensor([False]))


def test_the_message_tells_how_many_elements_where_and_by_how_much() -> None:
    text = message(aj.tensor([[1.0, 2.0], [3.0, 4.0]]), aj.tensor([[1.0, 2.5], [3.0, 4.0]]))
    assert text.splitlines() == [
        "Tensor-likes are not close!",
        "",
        "Mismatched elements: 1 / 4 (25.0%)",
        "Greatest absolute difference: 0.5 at index (0, 1) (up to 1e-05 allowed)",
        "Greatest relative difference: 0.2 at index (0, 1) (up to 1.3e-06 allowed)",
    ]


def test_scalars_show_both_values() -> None:
    assert message(aj.tensor(1.0), aj.tensor(2.0)).splitlines()[2] == "Expected 2.0 but got 1.0."
    assert message(1, 2).splitlines()[0] == "Scalars are not equal!"
    assert "The (d)types do not match" in message(1, 1.0)
    assert_close(1, 1.0, check_dtype=False)
    assert_close(1.0, 1.0 + 1e-9)


@pytest.mark.parametrize(
    ("actual", "expected", "what"),
    [
        (aj.ones(2), aj.ones(3), "'shape' do not match: autojit.Size([2]) != autojit.Size([3])"),
        (aj.ones(2), aj.ones(2, dtype=aj.float64), "'dtype' do not match: autojit.float32 != autojit.float64"),
        ([aj.ones(2)], [aj.ones(2), aj.ones(2)], "length of the sequences mismatch: 1 != 2"),
        ({"a": 1}, {"b": 1}, "Missing keys in the actual mapping: ['b']"),
        ([1, [2, {"k": 3}]], [1, [2, {"k": 4}]], "The failure occurred for item [1][1]['k']"),
        (None, aj.tensor(1.0), "None mismatch"),
        (float("nan"), float("nan"), "Expected nan but got nan"),
        (aj.tensor([float("inf")]), aj.tensor([1.0]), "Greatest absolute difference: inf"),
    ],
)
def test_differences_are_named(actual: Any, expected: Any, what: str) -> None:
    assert what in message(actual, expected)


def test_options_relax_and_tighten() -> None:
    assert_close(aj.ones(2), aj.ones(2, dtype=aj.float64), check_dtype=False)
    assert_close(aj.ones(2, 2).t(), aj.ones(2, 2))
    assert "stride()" in message(aj.ones(2, 2).t(), aj.ones(2, 2), check_stride=True)
    assert_close(aj.tensor([float("nan")]), aj.tensor([float("nan")]), equal_nan=True)
    assert_close(aj.tensor([1.0]), aj.tensor([1.4]), rtol=0.5, atol=0.0)
    assert_close(np.ones(2), np.ones(2))
    assert_close(aj.tensor([1.0], requires_grad=True), aj.tensor([1.0]))
    assert_close((), ())
    assert_close(aj.zeros(0), aj.zeros(0))


def test_the_text_can_be_replaced() -> None:
    assert message(1, 2, msg="mine") == "mine"
    assert message(1, 2, msg=lambda text: f"step 3: {text}").startswith("step 3: Scalars")


def test_what_cannot_be_compared_is_refused() -> None:
    for actual, expected in ((aj.ones(2), [1.0, 1.0]), (aj.ones(2), np.ones(2)), ("a", "a"), (aj.ones(()), 1.0)):
        with pytest.raises(TypeError, match="No comparison pair"):
            assert_close(actual, expected)
    with pytest.raises(TypeError, match="No comparison pair"):
        assert_close(aj.nn.Parameter(aj.ones(2)), aj.ones(2), allow_subclasses=False)
    with pytest.raises(ValueError, match="got no atol"):
        assert_close(1.0, 1.0, rtol=0.1)


def test_the_old_name_converts_and_warns() -> None:
    with pytest.warns(FutureWarning, match="assert_close"):
        assert_allclose(aj.ones(2), [1.0, 1.0])
    with pytest.warns(FutureWarning, match="assert_close"), pytest.raises(AssertionError):
        assert_allclose(aj.ones(2), [1.0, 2.0])
