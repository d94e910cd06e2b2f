"""Result types are found again for equal ops on equal types; what a rule has to decide about is asked every time."""

from __future__ import annotations

import pytest

from autojit.core.dtypes import float32
from autojit.core.errors import ShapeError
from autojit.core.sizes import named_size
from autojit.core.types import TensorType, parse_type
from autojit.ir import result_types as module
from autojit.ir.result_types import holds_plain, result_types
from autojit.ops.elementwise_arithmetic import Add
from autojit.ops.shape import Permute, Reshape


def test_equal_ops_on_equal_types_give_one_type_object() -> None:
    found = [result_types(Permute((1, 0)), TensorType((5, 7), float32)) for _ in range(2)]
    assert found[0] is found[1]
    assert found[0] == parse_type("f32[7, 5]")


def test_a_rules_error_is_raised_every_time() -> None:
    for _ in range(2):
        with pytest.raises(ShapeError):
            result_types(Add(), TensorType((2,), float32), TensorType((3,), float32))


def test_open_sizes_are_not_kept() -> None:
    n = named_size("s7", 12)
    before = len(module._KNOWN)
    assert result_types(Reshape((n, 1)), TensorType((n,), float32)).shape == (n, 1)
    assert len(module._KNOWN) == before
    assert not holds_plain((n,))
    assert holds_plain((1, "x", None, (2.0,), Reshape((3,)), float32))
