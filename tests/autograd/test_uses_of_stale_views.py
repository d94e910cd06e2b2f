"""A view whose base was written to since gets its history when it is next used: its node comes before the user's in
every pass, whatever uses it, the first time and every later one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import Tensor
from autojit.tensor.node import AccumulateGrad
from autojit.utils.checkpoint import checkpoint


class _Double(aj.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 2


class _DoubleLater(aj.autograd.Function):
    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        return None

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 2


_STEP = aj.jit(lambda x: x.sin() * 2)
USES: dict[str, Callable[[Tensor], Tensor]] = {
    "an op": lambda v: v.sin(),
    "two operands": lambda v: v * v.exp(),
    "itself twice": lambda v: v + v,
    "a view": lambda v: v.unsqueeze(0),
    "a view of several ops": lambda v: v[:, 1:].mT.reshape(-1),
    "a row": lambda v: v[1],
    "a view in place": lambda v: v.unsqueeze_(0),
    "transposed in place": lambda v: v.transpose_(0, 1),
    "several views": lambda v: v.unbind(0)[1],
    "split": lambda v: v.split([1, 2])[1],
    "joined": lambda v: aj.cat([v, v * 2]),
    "written": lambda v: v.mul_(2),
    "a part written": lambda v: (v[0].mul_(2), v)[1],
    "set": lambda v: (v.__setitem__(0, 7.0), v)[1],
    "a product": lambda v: v @ v.mT,
    "a composite": lambda v: aj.nn.functional.gelu(v),
    "layer norm": lambda v: aj.nn.functional.layer_norm(v, (2,)),
    "softmax": lambda v: v.softmax(0),
    "a function": _Double.apply,
    "a function with setup_context": _DoubleLater.apply,
    "a checkpoint": lambda v: checkpoint(lambda t: t.sin(), v, use_reentrant=False),
    "a compiled step": lambda v: _STEP(v),
    "vmap": lambda v: aj.func.vmap(lambda t: t.sin())(v),
    "an alias": lambda v: v.view_as(v),
    "a copy": lambda v: v.clone(),
    "another dtype": lambda v: v.to(aj.float32).double(),
    "a hook": lambda v: (v.register_hook(lambda grad: grad * 1), v)[1],
}


def _order(y: Tensor) -> list[tuple[str, str]]:
    """Nodes, other than leaves', that do not come after the node that leads to them."""
    found, seen, stack = [], set(), [y.grad_fn]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for child, _ in node.next_functions:
            if child is not None and not isinstance(child, AccumulateGrad):
                stack.append(child)
                if child._sequence_nr() >= node._sequence_nr():
                    found.append((node.name(), child.name()))
    return found


@pytest.mark.parametrize("use", USES)
def test_a_view_of_a_changed_base_has_its_gradient_whatever_uses_it(use: str) -> None:
    values = np.arange(1.0, 7.0).reshape(2, 3) / 4

    def gradient(is_stale: bool) -> tuple[Any, Any]:
        x = aj.tensor(values, requires_grad=True)
        base = x * 1
        if is_stale:
            view = base.mT
            base.mul_(3.0)
        else:
            view = (base * 3.0).mT.clone()
        y = USES[use](view)
        assert _order(y) == []
        (grad,) = aj.autograd.grad((y * y).sum(), x)
        return y.detach().numpy(), grad.numpy()

    y, wanted = gradient(False)
    for _ in range(3):
        found, grad = gradient(True)
        np.testing.assert_allclose(found, y, rtol=1e-6)
        np.testing.assert_allclose(grad, wanted, rtol=1e-6)


def test_a_view_made_without_a_record_takes_hooks_that_never_run() -> None:
    x, calls = aj.ones(2, 3, requires_grad=True), list[Tensor]()
    base = x * 1
    with aj.no_grad():
        view = base[0]
    view.register_hook(calls.append)
    assert view.requires_grad
    (view * 2).sum().backward()
    assert (calls, x.grad) == ([], None)


@pytest.mark.parametrize("jit", [lambda f: f, aj.jit], ids=["eager", "compiled"])
def test_what_was_written_to_a_base_that_was_cut_off_leads_nowhere(jit: Any) -> None:
    def gradient(x: Tensor, is_written: bool) -> Tensor | None:
        base = x * 2
        view = base[0]
        if is_written:
            base.mul_(3.0)
        base.detach_()
        total = view.sum() + (x * 0).sum() * view.sum()
        (grad,) = aj.autograd.grad(total, (x,))
        return grad

    for _ in range(2):
        x = aj.ones(2, 3, requires_grad=True)
        assert jit(gradient)(x, False).tolist() == [[2.0] * 3, [0.0] * 3]
        assert jit(gradient)(x, True).tolist() == [[0.0] * 3, [0.0] * 3]
