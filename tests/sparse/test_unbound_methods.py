"""A method called by the name of ``Tensor`` is the one of the tensor's own layout."""

from __future__ import annotations

from typing import Any

import pytest

import autojit as aj
from autojit.functions import layouts

MADE = {
    "coo": lambda d: d.to_sparse(),
    "csr": lambda d: d.to_sparse_csr(),
    "csc": lambda d: d.to_sparse_csc(),
    "bsr": lambda d: d.to_sparse_bsr((1, 1)),
}
METHODS = [
    name for name, method in layouts.METHODS.items() if not isinstance(method, property) and name != "sparse_mask"
]


def _said(method: Any, *arguments: Any) -> str:
    try:
        return str(method(*arguments))
    except RuntimeError as error:
        return str(error).partition("\n")[0]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("layout", MADE)
def test_a_method_by_the_name_of_tensor_is_that_of_the_layout(layout: str, name: str) -> None:
    x = MADE[layout](aj.tensor([[0.0, 1.0], [2.0, 0.0]]))
    assert _said(getattr(aj.Tensor, name), x) == _said(getattr(x, name))
