"""Methods take self and functions input; both take NumPy's names; factories take layout and pin_memory."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.dispatch.declared import DECLARED
from autojit.functions.method_forms import with_numpy_names

X = aj.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize("name", ["abs", "add", "sum", "reshape", "cumsum", "split", "sort", "add_", "cumsum_", "t_"])
def test_methods_take_self(name: str) -> None:
    assert next(iter(inspect.signature(getattr(aj.Tensor, name)).parameters)) == "self"


def test_functions_take_input() -> None:
    assert next(iter(inspect.signature(aj.add).parameters)) == "input"
    assert aj.add(input=X, other=X).equal(X + X)
    assert aj.unsqueeze(input=X, dim=0).shape == (1, 2, 3)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("sum", {"axis": 0}), ("mean", {"axis": (0, 1), "keepdims": True}), ("argmax", {"axis": 1}),
        ("cumsum", {"axis": 0}), ("softmax", {"axis": 1}), ("sort", {"axis": 0}), ("max", {"axis": 0}),
        ("std", {"axis": 0}), ("unsqueeze", {"axis": 1}), ("squeeze", {"axis": 0}), ("flatten", {}),
        ("unbind", {"axis": 1}), ("logsumexp", {"axis": 0}), ("any", {"axis": 0, "keepdims": True}),
    ],
)  # fmt: skip
def test_numpys_names_are_torchs(name: str, options: dict[str, object]) -> None:
    ours = {{"axis": "dim", "keepdims": "keepdim"}[key]: value for key, value in options.items()}
    expected = getattr(X, name)(**ours)
    for found in (getattr(X, name)(**options), getattr(aj, name)(X, **options)):
        for a, b in zip(*((v if isinstance(v, tuple) else (v,)) for v in (found, expected)), strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_numpys_names_reach_in_place_forms_lists_and_the_jit() -> None:
    assert X.clone().cumsum_(axis=0).equal(X.cumsum(0))
    assert aj.cat([X, X], axis=1).shape == (2, 6)
    assert aj.stack([X, X], axis=1).shape == (2, 2, 3)
    assert aj.jit(lambda x: x.sum(axis=0, keepdims=True))(X).equal(X.sum(0, keepdim=True))
    out = aj.empty(3)
    assert aj.sum(X, axis=0, out=out) is out


def test_unknown_names_are_refused() -> None:
    with pytest.raises(TypeError):
        X.sum(axes=0)
    with pytest.raises(TypeError):
        X.abs(axis=0)
    with pytest.raises(TypeError):
        aj.unsqueeze(dim=0)


def test_errors_name_the_operand() -> None:
    with pytest.raises(IndexError, match=r"self +f32\[2, 3\]"):
        X.unsqueeze(7)
    with pytest.raises(IndexError, match=r"input +f32\[2, 3\]"):
        aj.unsqueeze(X, 7)


def test_pieces_under_three_names() -> None:
    for found in (
        aj.tensor_split(X, 3, 1),
        X.tensor_split(sections=3, dim=1),
        aj.tensor_split(X, indices=(1, 2), dim=1),
        aj.tensor_split(X, tensor_indices_or_sections=aj.tensor(3), dim=1),
        aj.hsplit(X, indices=[1, 2]),
        X.hsplit(3),
    ):
        assert [piece.shape for piece in found] == [(2, 1)] * 3
    with pytest.raises(TypeError, match="sections or indices"):
        aj.hsplit(X)
    assert [piece.shape for piece in X.split(split_size=1)] == [(1, 3), (1, 3)]


def test_names_that_differ_between_function_and_method() -> None:
    x = aj.tensor([1.0, 2.0])
    assert x.polygamma(1).equal(aj.polygamma(1, x))
    assert x.clone().polygamma_(1).equal(aj.polygamma(1, x))
    assert aj.swapaxes(X, axis0=0, axis1=1).equal(X.t())
    assert X.view(size=(3, 2)).shape == (3, 2)
    assert x.clone().requires_grad_(requires_grad=True).requires_grad
    assert aj.arange(end=3).tolist() == [0, 1, 2]


def test_factories_take_layout_and_pin_memory() -> None:
    for made in (
        aj.zeros(2, layout=aj.strided, pin_memory=False),
        aj.zeros_like(aj.ones(2), layout=aj.strided),
        aj.ones(2).new_zeros(2, layout=aj.strided, pin_memory=False),
        aj.full((2,), 0.0, layout=aj.strided, names=None),
    ):
        assert made.tolist() == [0.0, 0.0]
    assert aj.zeros(2, 2, layout=aj.sparse_coo).is_sparse


def _named_arguments(name: str, signature: inspect.Signature) -> dict[str, object]:
    """A function with these parameters that tells what it was given."""
    made: dict[str, object] = {}
    bare = [p.replace(annotation=inspect.Parameter.empty, default=p.default if p.default is p.empty else None)
            for p in signature.parameters.values()]  # fmt: skip
    text = str(inspect.Signature(bare))
    exec(f"def {name}{text}:\n    return locals()", made)
    return made


@pytest.mark.parametrize("given", [("dim",), ("keepdim",), ("dim", "keepdim")])
def test_what_is_given_by_name_reaches_parameters_that_need_their_names(given: tuple[str, ...]) -> None:
    """``dim`` and ``keepdim`` are handed on by position where that is faster, and only where that may be."""
    checked = 0
    for declaration in DECLARED.values():
        signature = inspect.signature(declaration.function)
        if not set(given) <= set(signature.parameters):
            continue
        function: Any = _named_arguments(declaration.name, signature)[declaration.name]
        needed = [p.name for p in signature.parameters.values() if p.default is p.empty and p.name not in given]
        positional = [p for p in needed if signature.parameters[p].kind is not inspect.Parameter.KEYWORD_ONLY]
        options = dict.fromkeys(given, 1)
        try:
            expected = function(*positional, **options)
        except TypeError:  # what is needed stands behind
            continue
        assert with_numpy_names(function)(*positional, **options) == expected, declaration.name
        checked += 1
    assert checked > 10
