"""Which functions copy where their values are the operand's unchanged, and which show its memory, as in torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
import autojit.nn.functional as F

IMAGE = (1, 4, 4, 4)
COPIES: dict[str, tuple[tuple[int, ...], Callable[[aj.Tensor], Any]]] = {
    "cat of one": ((4, 4), lambda x: aj.cat([x])),
    "cat with nothing": ((4,), lambda x: aj.cat([x, aj.zeros(0)])),
    "hstack of one": ((4,), lambda x: aj.hstack([x])),
    "vstack of one": ((4, 4), lambda x: aj.vstack([x])),
    "dstack of one": ((4, 4, 4), lambda x: aj.dstack([x])),
    "block_diag of one": ((4, 4), lambda x: aj.block_diag(x)),
    "diag": ((4, 4), lambda x: aj.diag(x)),
    "diag above": ((4, 4), lambda x: x.diag(1)),
    "roll by 0": ((4, 4), lambda x: aj.roll(x, 0, 0)),
    "roll by nothing": ((4,), lambda x: x.roll((0,), (0,))),
    "flip of a number": ((), lambda x: x.flip((0,))),
    "flip of no axis": ((4,), lambda x: x.flip(())),
    "cumsum of a number": ((), lambda x: x.cumsum(0)),
    "diff of order 0": ((4, 4), lambda x: aj.diff(x, 0)),
    "matrix_power 1": ((4, 4), lambda x: x.matrix_power(1)),
    "linalg.matrix_power 1": ((4, 4), lambda x: aj.linalg.matrix_power(x, 1)),
    "chain_matmul of one": ((4, 4), lambda x: aj.chain_matmul(x)),
    "rot90 by 0": ((4, 4), lambda x: x.rot90(0)),
    "repeat once": ((4, 4), lambda x: x.repeat(1, 1)),
    "tile once": ((4, 4), lambda x: x.tile((1, 1))),
    "tril of everything": ((4, 4), lambda x: x.tril(9)),
    "narrow_copy": ((4, 4), lambda x: x.narrow_copy(0, 0, 4)),
    "clamp": ((4,), lambda x: x.clamp(None, 100.0)),
    "pixel_shuffle 1": (IMAGE, lambda x: F.pixel_shuffle(x, 1)),
    "pixel_unshuffle 1": (IMAGE, lambda x: F.pixel_unshuffle(x, 1)),
    "channel_shuffle 1": (IMAGE, lambda x: F.channel_shuffle(x, 1)),
    "max_pool2d 1": (IMAGE, lambda x: F.max_pool2d(x, 1)),
    "max_pool1d 1": ((4, 4, 4), lambda x: F.max_pool1d(x, 1)),
    "max_pool3d 1": (IMAGE, lambda x: F.max_pool3d(x, 1)),
    "max_pool1d 1 with indices": ((4, 4, 4), lambda x: F.max_pool1d(x, 1, return_indices=True)[0]),
    "max_pool2d 1 with indices": (IMAGE, lambda x: F.max_pool2d(x, 1, 2, return_indices=True)[0]),
    "max_pool3d 1 with indices": (IMAGE, lambda x: F.max_pool3d(x, 1, return_indices=True)[0]),
    "max_pool1d 1 of columns": ((4, 4, 4), lambda x: F.max_pool1d(x.mT, 1)),
    "max_pool3d 1 of columns": (IMAGE, lambda x: F.max_pool3d(x.mT, 1, 2)),
    "fold 1": ((4, 16), lambda x: F.fold(x, (4, 4), 1)),
    "avg_pool3d 1 of columns": (IMAGE, lambda x: F.avg_pool3d(x.mT, 1)),
    "avg_pool2d 1": (IMAGE, lambda x: F.avg_pool2d(x, 1)),
    "unfold 1": (IMAGE, lambda x: F.unfold(x, 1)),
    "pad by nothing": (IMAGE, lambda x: F.pad(x, (0, 0))),
}
VIEWS: dict[str, tuple[tuple[int, ...], Callable[[aj.Tensor], Any]]] = {
    "diagonal": ((4, 4), lambda x: x.diagonal()),
    "reshape": ((4, 4), lambda x: x.reshape(16)),
    "flatten": ((4, 4), lambda x: x.flatten()),
    "expand": ((4, 4), lambda x: x.expand(4, 4)),
    "movedim": ((4, 4), lambda x: x.movedim(0, 0)),
    "squeeze": ((4, 4), lambda x: x.squeeze()),
    "contiguous": ((4, 4), lambda x: x.contiguous()),
    "detach": ((4,), lambda x: x.detach()),
    "to": ((4,), lambda x: x.to(aj.float32)),
    "split": ((4,), lambda x: x.split(4)[0]),
    "sum_to_size of all": ((4, 4), lambda x: x.sum_to_size(4, 4)),
    "einsum of one": ((4, 4), lambda x: aj.einsum("ij", x)),
    "einsum of one, turned": ((4, 4), lambda x: aj.einsum("ij->ji", x)),
    "dropout in evaluation": ((4,), lambda x: F.dropout(x, 0.5, False)),
}


@pytest.mark.parametrize("wrap", [lambda f: f, aj.jit], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", [*COPIES, *VIEWS])
def test_writing_to_a_result_reaches_the_operand_only_through_views(name: str, wrap: Callable[..., Any]) -> None:
    shape, function = COPIES[name] if name in COPIES else VIEWS[name]
    values = np.arange(1.0, 1 + np.prod(shape), dtype=np.float32).reshape(shape)
    x = aj.tensor(values)
    wrap(function)(x).zero_()
    assert np.array_equal(x.numpy(), values) is (name in COPIES)
    x = aj.tensor(values)
    wrap(lambda x: function(x).zero_().sum())(x)
    assert np.array_equal(x.numpy(), values) is (name in COPIES)


@pytest.mark.parametrize("equation", ["ij", "ij->ij", "...", "ij->ji"])
def test_einsum_of_one_operand_is_another_tensor(equation: str) -> None:
    """What is switched on at the result is not at the operand."""
    x = aj.ones(3, 3)
    found = aj.einsum(equation, x)
    found.requires_grad_()
    assert not x.requires_grad
    x.requires_grad_()
    assert aj.einsum(equation, x).grad_fn.name() == "PermuteBackward0"
