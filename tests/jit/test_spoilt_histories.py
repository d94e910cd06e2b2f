"""A backward pass raises in a step exactly where it raises in eager mode: when what was saved has changed since.

That holds for every function, also for those that eager mode computes as one node and a step as several.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit.nn import functional as F

W = aj.linspace(0.5, 1.5, 16).reshape(4, 4).requires_grad_()
w, b = aj.linspace(0.5, 1.0, 4).requires_grad_(), aj.ones(4).requires_grad_()

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "add": lambda x: x + w,
    "mul": lambda x: x * w,
    "div": lambda x: x / w,
    "matmul": lambda x: x @ W,
    "linear": lambda x: F.linear(x, W, b),
    "layer_norm": lambda x: F.layer_norm(x, (4,), w, b),
    "layer_norm without a weight": lambda x: F.layer_norm(x, (4,), None, b),
    "rms_norm": lambda x: F.rms_norm(x, (4,), w),
    "group_norm": lambda x: F.group_norm(x, 2, w, b),
    "batch_norm": lambda x: F.batch_norm(x, None, None, w, b, True),
    "batch_norm, evaluated": lambda x: F.batch_norm(x, aj.zeros(4), aj.ones(4), w, b, False),
    "softmax": lambda x: F.softmax(x, -1),
    "softmax along the first axis": lambda x: x.softmax(0),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "softmin": lambda x: F.softmin(x, -1),
    "logsumexp": lambda x: aj.logsumexp(x, -1),
    "nansum": lambda x: aj.nansum(x, 1),
    "var": lambda x: aj.var(x, -1),
    "std": lambda x: aj.std(x),
    "var_mean": lambda x: aj.var_mean(x, -1),
    "norm": lambda x: aj.norm(x, dim=-1),
    "prod": lambda x: aj.prod(x, -1),
    "cumprod": lambda x: aj.cumprod(x, -1),
    "amax": lambda x: aj.amax(x, -1),
    "sort": lambda x: aj.sort(x, -1),
    "sigmoid": lambda x: x.sigmoid(),
    "gelu": lambda x: F.gelu(x),
    "softplus": lambda x: F.softplus(x),
    "mse_loss": lambda x: F.mse_loss(w.expand(3, 4), x),
    "smooth_l1_loss": lambda x: F.smooth_l1_loss(x * w, x.detach()),
    "cross_entropy": lambda x: F.cross_entropy(x * w, aj.tensor([0, 1, 2])),
    "cdist": lambda x: aj.cdist(x, W),
    "cdist of other powers": lambda x: aj.cdist(x, x + 1, p=1),
    "cosine_similarity": lambda x: F.cosine_similarity(x, w.expand(3, 4)),
    "tril": lambda x: aj.tril(x),
    "outer": lambda x: aj.outer(x[0], x[1]),
    "kron": lambda x: aj.kron(x, x),
    "attention": lambda x: F.scaled_dot_product_attention(x @ W, x, x),
}
CHANGES = ("the argument", "a leaf", "an intermediate", "an operand of two", "the result")


def _run(jit: Callable[[Any], Any], function: Callable[[Any], Any], change: str) -> str:
    @jit
    def step(x: Any) -> None:
        operand = x + 1 if change == "an intermediate" else x
        found = function(operand)
        result = found[0] if isinstance(found, tuple) else found
        if not result.requires_grad:
            return
        loss = result.square().sum() if change == "an operand of two" else result.sum()
        with aj.no_grad():
            (result if change == "the result" else operand).add_(0.25)
        loss.backward()

    x = (aj.arange(12.0).reshape(3, 4) + 1) / 13
    try:
        step(x.requires_grad_(change in ("a leaf", "an intermediate", "the result")))
    except RuntimeError as error:
        return str(error)[:80]  # what follows names the tensor, as far as the composite's parts know it
    return "no error"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_spoils_a_history_in_eager_mode_spoils_it_in_a_step(name: str) -> None:
    for change in CHANGES:
        eager, compiled = (_run(jit, FUNCTIONS[name], change) for jit in (lambda f: f, aj.jit))
        assert compiled == eager, change


@pytest.mark.parametrize("name", ["layer_norm", "softmax", "mse_loss", "logsumexp"])
def test_a_history_without_changes_serves_as_often_as_in_eager_mode(name: str) -> None:
    def twice(jit: Callable[[Any], Any], keep: bool) -> Any:
        @jit
        def step(x: Any) -> Any:
            found = FUNCTIONS[name](x).sum()
            found.backward(retain_graph=keep)
            found.backward()
            return x.grad

        x = ((aj.arange(12.0).reshape(3, 4) + 1) / 13).requires_grad_()
        try:
            return step(x).tolist()
        except RuntimeError as error:
            return str(error).split("\n", 1)[0]

    for keep in (True, False):
        eager, compiled = (twice(jit, keep) for jit in (lambda f: f, aj.jit))
        if isinstance(eager, str) or isinstance(compiled, str):
            assert compiled == eager
        else:
            aj.testing.assert_close(aj.tensor(compiled), aj.tensor(eager))
