"""``ops.aten``: operators by torch's names compute what functions do, and are keys of tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit.core.errors import UnsupportedError

aten = aj.ops.aten
X = aj.arange(24.0).reshape(2, 3, 4) - 11
I = aj.tensor([1, 0])
PAIRS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "add": (lambda x: aten.add.Tensor(x, x, alpha=2), lambda x: 3 * x),
    "mul scalar": (lambda x: aten.mul.Scalar(x, 2.5), lambda x: x * 2.5),
    "packet": (lambda x: aten.relu(x), aj.relu),
    "mean": (lambda x: aten.mean.dim(x, [1, -1], True), lambda x: x.mean((1, 2), keepdim=True)),
    "view": (lambda x: aten.view.default(x, [6, 4]), lambda x: x.view(6, 4)),
    "permute": (lambda x: aten.permute.default(x, [2, 0, 1]), lambda x: x.permute(2, 0, 1)),
    "index": (lambda x: aten.index.Tensor(x, [None, I]), lambda x: x[:, I]),
    "slice": (lambda x: aten.slice.Tensor(x, -1, 1, 9, 2), lambda x: x[..., 1:9:2]),
    "alias": (lambda x: aten.alias.default(x), lambda x: x),
    "softmax": (lambda x: aten._softmax.default(x, 1, False), lambda x: x.softmax(1)),
    "copy": (lambda x: aten._to_copy.default(x, dtype=aj.float64), lambda x: x.double()),
    "norm": (lambda x: aten.linalg_vector_norm.default(x, 2), aj.linalg.vector_norm),
    "cat": (lambda x: aten.cat.default([x, x], 1), lambda x: aj.cat([x, x], 1)),
    "addmm": (lambda x: aten.addmm.default(x[0, 0, :3], x[0], x[0].mT, alpha=0.5),
              lambda x: aj.addmm(x[0, 0, :3], x[0], x[0].mT, alpha=0.5)),
}  # fmt: skip


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", PAIRS)
def test_an_operator_computes_what_its_function_does(name: str, compiled: bool) -> None:
    operator, function = PAIRS[name]
    x, y = X.clone().requires_grad_(), X.clone().requires_grad_()
    found, wanted = (aj.jit(operator) if compiled else operator)(x), function(y)
    aj.testing.assert_close(found, wanted)
    found.square().sum().backward()
    wanted.square().sum().backward()
    aj.testing.assert_close(x.grad, y.grad)


def test_a_copy_is_one() -> None:
    assert aten._to_copy.default(X).data_ptr() != X.data_ptr() and aten.alias.default(X).data_ptr() == X.data_ptr()


def test_operators_are_keys_of_tables() -> None:
    table = {aten.add.Tensor: 1, aten.add.Scalar: 2, aten.cat.default: 3}
    assert table[aten.add.Tensor] == 1 and table[aten.cat.default] == 3 and len(table) == 3
    assert str(aten.add.Tensor) == "aten.add.Tensor" and aten.add.Tensor.name() == "aten::add.Tensor"
    assert aten.cat.default.name() == "aten::cat" and aten.add.Tensor.overloadpacket is aten.add


def test_what_is_not_there_is_refused() -> None:
    assert not hasattr(aten, "no_such_operator") and not hasattr(aten, "float32")
    with pytest.raises(UnsupportedError, match=r"sparse\.mm"):
        aten._sparse_mm_reduce_impl.default(X, X, "sum")
    assert not aj.distributed.rpc.is_available()
