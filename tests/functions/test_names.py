"""Every listed name is what its module says; methods and functions take torch's arguments."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import autojit as aj
from autojit import functions
from autojit.core.top_level import TOP_LEVEL
from autojit.dispatch.declared import declaration_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", sorted(functions.PLACES))
def test_a_listed_name_is_there(name: str) -> None:
    found = getattr(aj, name)
    assert found is getattr(aj, name)
    assert name in dir(aj)
    if name in TOP_LEVEL:
        assert found is getattr(import_module(functions.PLACES[name]), name)
    elif not name.endswith("_"):
        assert inspect.unwrap(found) is inspect.unwrap(declaration_of(name).function)


@pytest.mark.parametrize("name", sorted(functions.METHODS))
def test_a_listed_method_is_there_and_takes_self(name: str) -> None:
    method = getattr(aj.Tensor, name)
    assert callable(method)
    assert next(iter(inspect.signature(method).parameters)) == "self"
    assert getattr(aj.Tensor, name) is method


def test_the_index_says_what_the_functions_say() -> None:
    command = [sys.executable, ROOT / "tools" / "make_index.py", "--check"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, check=False)
    assert done.returncode == 0, "make index"


def test_what_is_at_the_top_level_and_in_a_package_is_one_function() -> None:
    for name in ("conv2d", "celu_", "max_pool1d", "rms_norm"):
        assert getattr(aj, name) is getattr(aj.nn.functional, name)


def test_naming_a_method_imports_only_its_module() -> None:
    assert aj.tensor([6]).gcd(aj.tensor([4])).item() == 2


def test_questions_are_functions_of_input() -> None:
    assert list(inspect.signature(aj.is_complex).parameters) == ["input"]
    assert aj.is_signed(aj.ones(1))
    assert aj.detach(aj.ones(1, requires_grad=True)).requires_grad is False
    assert aj.get_device(aj.ones(1, device="cpu")) == -1


def test_copies_are_the_elements_of_views() -> None:
    x = aj.arange(6.0).reshape(2, 3)
    for found, expected in [
        (aj.t_copy(x), x.t()),
        (aj.transpose_copy(x, 0, 1), x.t()),
        (aj.permute_copy(x, (1, 0)), x.t()),
        (aj.select_copy(x, 1, 2), x[:, 2]),
        (aj.slice_copy(x, 1, 0, 3, 2), x[:, ::2]),
        (aj.unsqueeze_copy(x, 0), x[None]),
        (aj.squeeze_copy(x[None]), x),
        (aj.view_copy(x, (3, 2)), x.reshape(3, 2)),
        (aj.expand_copy(x[:1], (4, 3)), x[:1].expand(4, 3)),
        (aj.diagonal_copy(x), x.diagonal()),
        (aj.as_strided_copy(x, (2,), (2,)), x.as_strided((2,), (2,))),
        (aj.unfold_copy(x, 1, 2, 1), x.unfold(1, 2, 1)),
        (aj.alias_copy(x), x),
        (aj.detach_copy(x), x),
        (aj.view_as_real_copy(aj.view_as_complex(x[:, :2].contiguous())), x[:, :2]),
    ]:
        np.testing.assert_array_equal(found.numpy(), expected.numpy())
        assert found.data_ptr() != x.data_ptr()
    for several in (aj.unbind_copy(x), aj.split_copy(x, 1), aj.split_with_sizes_copy(x, [1, 1])):
        assert [piece.reshape(3).tolist() for piece in several] == x.tolist()


def test_copies_differentiate_and_take_out() -> None:
    x = aj.ones(2, 3, dtype=aj.float64, requires_grad=True)
    aj.autograd.gradgradcheck(lambda x: aj.transpose_copy(x * x, 0, 1), (x,))
    out = aj.empty(3, 2, dtype=aj.float64)
    assert aj.t_copy(x.detach(), out=out) is out
    assert out.eq(1).all()


def test_fill_differentiates_by_the_value() -> None:
    x = aj.ones(2, dtype=aj.float64, requires_grad=True)
    value = aj.tensor(3.0, dtype=aj.float64, requires_grad=True)
    found = aj.fill(x, value)
    assert found.tolist() == [3.0, 3.0]
    slopes = aj.autograd.grad(found.sum(), (x, value))
    assert (slopes[0].tolist(), slopes[1].item()) == ([0.0, 0.0], 2.0)
    assert x.tolist() == [1.0, 1.0]
    with pytest.raises(RuntimeError, match="0-dimension"):
        aj.fill(x, x)
    assert aj.slice_inverse(aj.ones(2), aj.zeros(4), 0, 1, 3).tolist() == [0.0, 1.0, 1.0, 0.0]
