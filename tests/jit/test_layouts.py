"""Results, gradients and what was written through views lie in memory as in eager mode, whatever the operands' layout.

Each law is a table of functions over a table of layouts. A step takes one argument per function, so that a layout costs
one capture.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.nn import functional as F

SHAPE = (2, 3, 4)
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "row-major": lambda a: a,
    "last two swapped": lambda a: np.ascontiguousarray(a.swapaxes(1, 2)).swapaxes(1, 2),
    "column-major": np.asfortranarray,
    "first innermost": lambda a: np.moveaxis(np.ascontiguousarray(np.moveaxis(a, 0, -1)), -1, 0),
    "gaps": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "swapped with gaps": lambda a: np.repeat(a.swapaxes(0, 2), 2, axis=-1)[..., ::2].swapaxes(0, 2),
}
EXPANDED = (*LAYOUTS, "expanded")

FUNCTIONS: dict[str, Callable[[aj.Tensor], aj.Tensor]] = {
    "tanh": lambda x: x.tanh(),
    "scaled": lambda x: 2 * x + 1,
    "by a row": lambda x: x * aj.arange(4.0, dtype=aj.float64),
    "by a column": lambda x: aj.arange(3.0, dtype=aj.float64).unsqueeze(1) - x,
    "gelu": lambda x: F.gelu(x),
    "clamp": lambda x: x.clamp(min=0.5),
    "where": lambda x: aj.where(x > 1, x, 0.0),
    "masked_fill": lambda x: x.masked_fill(x > 1, 2.0),
    "sum": lambda x: x.sum(),
    "sum over the first": lambda x: x.sin().sum(0),
    "mean over the last": lambda x: x.mean(-1, keepdim=True),
    "amax": lambda x: x.amax(1),
    "cumsum": lambda x: x.cumsum(1),
    "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "permuted": lambda x: x.permute(2, 0, 1),
    "swapped": lambda x: x.mT * 2,
    "reshaped": lambda x: x.reshape(6, 4),
    "flattened": lambda x: x.flatten(1) + 1,
    "row": lambda x: x[1],
    "every other": lambda x: x[..., ::2].exp(),
    "column": lambda x: x.select(2, 1),
    "indexed": lambda x: x[:, [2, 0]],
    "gathered": lambda x: x.gather(1, aj.zeros(2, 1, 4, dtype=aj.int64)),
    "masked rows": lambda x: x.index_select(0, aj.tensor([1, 1])),
    "diagonal": lambda x: x.diagonal(dim1=1, dim2=2),
    "tril": lambda x: x.tril(),
    "unsqueezed": lambda x: x.unsqueeze(1) * 1,
    "expanded": lambda x: x.unsqueeze(0).expand(3, 2, 3, 4),
    "repeated": lambda x: x.repeat(2, 1, 1),
    "flipped": lambda x: x.flip(1),
    "rolled": lambda x: x.roll(1, 2),
    "stacked": lambda x: aj.stack([x, x * 2], 1),
    "concatenated": lambda x: aj.cat([x, x.sin()], 2),
    "padded": lambda x: F.pad(x, (1, 2)),
    "split": lambda x: x.split([1, 3], -1)[1],
    "matmul": lambda x: x @ aj.ones(4, 5, dtype=aj.float64),
    "matmul from the left": lambda x: aj.ones(3, 3, dtype=aj.float64) @ x,
    "einsum": lambda x: aj.einsum("abc,dc->adb", x, aj.ones(2, 4, dtype=aj.float64)),
    "linear": lambda x: F.linear(x, aj.ones(2, 4, dtype=aj.float64)),
    "conv": lambda x: F.conv1d(x, aj.ones(2, 3, 2, dtype=aj.float64)),
    "avg_pool": lambda x: F.avg_pool1d(x, 2),
    "max_pool": lambda x: F.max_pool1d(x, 2, padding=1),
    "layer_norm": lambda x: F.layer_norm(x, (4,)),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "norm": lambda x: x.norm(),
    "std": lambda x: x.std(1),
    "logsumexp": lambda x: x.logsumexp((0, 2)),
    "prod": lambda x: x.prod(1),
    "clone": lambda x: x.clone(),
    "contiguous": lambda x: x.contiguous(),
    "to": lambda x: x.to(aj.float32),
    "sorted": lambda x: x.sort(1)[0],
    "mse": lambda x: F.mse_loss(x, aj.zeros_like(x)),
    "mse of each": lambda x: F.mse_loss(x, aj.zeros_like(x), reduction="none"),
    "huber": lambda x: F.huber_loss(x, aj.zeros_like(x)),
    "bce": lambda x: F.binary_cross_entropy_with_logits(x, aj.zeros_like(x)),
    "cross_entropy": lambda x: F.cross_entropy(x[0], aj.tensor([2, 0, 1])),
}


def numbers(shape: tuple[int, ...], seed: int) -> Any:
    return np.asarray(np.random.default_rng(seed).uniform(0.5, 2.0, shape))


def tensor(array: Any, layout: str) -> aj.Tensor:
    if layout == "expanded":
        return aj.from_numpy(array[:1].copy()).expand(array.shape)
    return aj.from_numpy(LAYOUTS[layout](array)) if array.ndim == 3 else aj.from_numpy(array)


def strides(t: aj.Tensor | None) -> Any:
    """Without those of extents 1, which move nothing."""
    return None if t is None else [0 if n == 1 else s for n, s in zip(t.shape, t.stride(), strict=True)]


def cotangent(y: aj.Tensor, layout: str) -> aj.Tensor:
    """One of the shape of ``y``; of three axes in a layout of the table, of fewer transposed, with gaps or expanded."""
    array = numbers(tuple(y.shape), 9)
    if not array.ndim or layout == "row-major":
        made = aj.from_numpy(array)
    elif layout == "expanded":
        made = aj.from_numpy(array.mean(0, keepdims=True)).expand(array.shape)
    elif layout == "gaps":
        made = aj.from_numpy(np.repeat(array, 2, axis=-1)[..., ::2])
    else:
        made = aj.from_numpy(np.asfortranarray(array))
    return made.to(y.dtype)


def run(wrap: Callable[[Any], Any], layout: str) -> list[Any]:
    """Strides and values of results, and of gradients for cotangents of several layouts."""
    names = [*FUNCTIONS]
    step = wrap(lambda *xs: [FUNCTIONS[name](x) for name, x in zip(names, xs, strict=True)])
    seen: list[Any] = []
    for bars in ("row-major", "column-major", "gaps", "expanded"):
        xs = [tensor(numbers(SHAPE, k), layout).detach().requires_grad_() for k in range(len(names))]
        ys = step(*xs)
        found = aj.autograd.grad(ys, xs, [cotangent(y, bars) for y in ys])
        for name, y, g in zip(names, ys, found, strict=True):
            seen.append((f"{name}, cotangents {bars}", strides(y), strides(g), y.detach().numpy(), g.numpy()))
    return seen


IN_PARTS = ("gelu, ", "log_softmax, ", "softmax, ")
"""Whose gradients lie as torch's in a step, and may lie otherwise in eager mode, where operand and cotangent disagree:
the order of one loop over both is not that of the products which the step makes of it."""


@pytest.mark.parametrize("layout", EXPANDED)
def test_results_and_gradients_lie_as_in_eager_mode(layout: str) -> None:
    pairs = [*zip(run(lambda f: f, layout), run(aj.jit, layout), strict=True)]
    agreeing = "cotangents row-major" if layout == "row-major" else "none"
    told = [one for one in pairs if one[0][0].endswith(agreeing) or not one[0][0].startswith(IN_PARTS)]
    assert [compiled[:3] for _, compiled in told] == [eager[:3] for eager, _ in told]
    assert [compiled[:2] for _, compiled in pairs] == [eager[:2] for eager, _ in pairs]
    for eager, compiled in pairs:
        np.testing.assert_allclose(compiled[3], eager[3], rtol=1e-12, err_msg=eager[0])
        np.testing.assert_allclose(compiled[4], eager[4], rtol=1e-12, atol=1e-12, err_msg=eager[0])


VIEWS: dict[str, Callable[[aj.Tensor], aj.Tensor]] = {
    "all": lambda t: t.view(t.shape),
    "unsqueezed": lambda t: t.unsqueeze(1),
    "swapped": lambda t: t.mT,
    "permuted": lambda t: t.permute(2, 0, 1),
    "row": lambda t: t[1],
    "columns": lambda t: t[..., 1:3],
    "every other": lambda t: t[..., ::2],
    "diagonal": lambda t: t.diagonal(dim1=1, dim2=2),
    "chunk": lambda t: t.unflatten(2, (2, 2)),
}
WRITES: dict[str, Callable[[aj.Tensor], Any]] = {
    "zero_": lambda v: v.zero_(),
    "fill_": lambda v: v.fill_(3.0),
    "add_": lambda v: v.add_(1.0),
    "mul_ by rows": lambda v: v.mul_(aj.ones(v.shape[-1], dtype=aj.float64) * 2),
    "copy_": lambda v: v.copy_(aj.ones(v.shape[-1], dtype=aj.float64)),
    "copy_ of transposed": lambda v: v.copy_((v.mT * 2).mT if v.ndim > 1 else v * 2),
    "setitem": lambda v: v.__setitem__(0, 5.0),
    "masked_fill_": lambda v: v.masked_fill_(v > 1, -1.0),
    "clamp_": lambda v: v.clamp_(max=1.0),
}


def _written(t: aj.Tensor) -> list[aj.Tensor]:
    """What ops and views make of views that were written through, of their bases and of other views of these."""
    found = []
    for look in VIEWS.values():
        for write in WRITES.values():
            base = t * 1
            v = look(base)
            other = base.permute(1, 0, 2)
            write(v)
            found += [v * 1, base * 1, other + 1, v.reshape(-1), v.contiguous(), v.clone(), base.mT + base.mT]
            found += [v, base] if write is WRITES["add_"] else []
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_was_written_through_a_view_lies_as_before(layout: str) -> None:
    array = numbers(SHAPE, 1)
    eager, compiled = (wrap(_written)(tensor(array, layout)) for wrap in (lambda f: f, aj.jit))
    for k, (y, z) in enumerate(zip(eager, compiled, strict=True)):
        assert strides(z) == strides(y), (k, y.shape)
        np.testing.assert_allclose(z.numpy(), y.numpy(), rtol=1e-12)


def test_a_gradient_has_no_part_of_results_that_nobody_differentiates() -> None:
    def gradient(wrap: Callable[[Any], Any]) -> aj.Tensor:
        y = tensor(numbers((3, 4), 1), "row-major").requires_grad_()
        mean, _ = wrap(lambda y: (y.mean(0), y * 2))(y)
        return aj.autograd.grad(mean.sum(), y)[0]  # type: ignore[no-any-return]

    assert strides(gradient(aj.jit)) == strides(gradient(lambda f: f)) == [0, 1]


@pytest.mark.parametrize("part", [(slice(None), slice(2)), (slice(1), slice(None)), (slice(1, 2), slice(1, 3)), 0])
@pytest.mark.parametrize("write", [False, True])
def test_memory_around_the_elements_of_an_argument_is_seen_as_in_eager_mode(part: Any, write: bool) -> None:
    def restrided(x: aj.Tensor) -> aj.Tensor:
        seen = x.as_strided((2, 2), (3, 2), 1)
        return seen.mul_(2).sum() if write else seen + 1

    step, kept = aj.jit(restrided), aj.arange(7.0)
    for _ in range(3):
        for wholes in ((aj.arange(24.0).reshape(3, 8), aj.arange(24.0).reshape(3, 8)), (kept.clone(), kept.clone())):
            eager, compiled = (whole[part] if whole.ndim == 2 else whole for whole in wholes)
            np.testing.assert_array_equal(step(compiled).numpy(), restrided(eager).numpy())
            np.testing.assert_array_equal(wholes[1].numpy(), wholes[0].numpy())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("wrap", [lambda f: f, aj.jit], ids=["eager", "compiled"])
def test_an_expanded_view_of_memory_in_any_order_is_filled(wrap: Callable[[Any], Any], layout: str) -> None:
    def fill(x: aj.Tensor) -> aj.Tensor:
        made = x * 2
        made.broadcast_to((2, *made.shape)).unsqueeze(0).fill_(3.0)
        return made

    assert (wrap(fill)(tensor(numbers(SHAPE, 1), layout)) == 3).all()


@pytest.mark.parametrize("form", [(4,), (3, 4), (2, 3, 4), ()])
def test_positions_of_elements_lie_side_by_side_in_eager_mode_and_in_a_step(form: tuple[int, ...]) -> None:
    x = (aj.arange(24.0)[: max(1, math.prod(form))].reshape(form) % 3).mT if len(form) > 1 else aj.ones(form)
    found = [jit(lambda t: t.nonzero(as_tuple=True))(x) for jit in (lambda f: f, aj.jit)]
    assert [[t.stride() for t in ts] for ts in found] == [[(1,)] * max(1, len(form))] * 2
