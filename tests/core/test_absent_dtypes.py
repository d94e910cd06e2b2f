"""Dtypes that are only names: programs compare with them; whoever makes a tensor of one is told what to use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit.core.absent_dtypes import ABSENT

USES: dict[str, Callable[[aj.dtype], Any]] = {
    "zeros": lambda d: aj.zeros(2, dtype=d),
    "rand": lambda d: aj.rand(2, dtype=d),
    "tensor": lambda d: aj.tensor([1, 2], dtype=d),
    "to": lambda d: aj.ones(2).to(d),
    "view": lambda d: aj.ones(2, dtype=aj.int8).view(d),
    "compiled": lambda d: aj.jit(lambda x: x.to(d) + 1)(aj.ones(2)),
    "module": lambda d: aj.nn.Linear(1, 1, dtype=d),
}


@pytest.mark.parametrize("name", ABSENT)
def test_programs_compare_with_dtypes_that_are_only_names(name: str) -> None:
    dtype = getattr(aj, name)
    assert isinstance(dtype, aj.dtype) and dtype is ABSENT[name] and dtype not in (aj.float32, aj.complex64, aj.int8)
    assert aj.ones(1).dtype != dtype and str(dtype) == f"autojit.{dtype.name}" and dtype.itemsize in (1, 4)
    assert dtype.is_complex == (name in ("complex32", "chalf"))


@pytest.mark.parametrize("name", ABSENT)
@pytest.mark.parametrize("use", USES)
def test_whoever_makes_a_tensor_of_one_is_told(name: str, use: str) -> None:
    with pytest.raises((RuntimeError, NotImplementedError, TypeError)) as caught:
        USES[use](getattr(aj, name))
    assert use in ("rand", "view") or "there are no tensors of" in str(caught.value)  # what does not fit comes first
