"""What is changed between a function and its backward: compiled steps refuse it exactly where eager mode does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit.nn import functional as F

Function = Callable[..., Any]
CLASSES = [2, 0, 1]


def draw(*shape: int) -> aj.Tensor:
    return (aj.arange(1.0, 1 + aj.Size(shape).numel(), dtype=aj.float64) / 7).sin().reshape(shape)


FUNCTIONS: dict[str, tuple[Function, tuple[aj.Tensor, ...]]] = {
    "softmax": (lambda x: x.softmax(1), (draw(3, 4),)),
    "log_softmax": (lambda x: x.log_softmax(0), (draw(3, 4),)),
    "softmin": (lambda x: F.softmin(x, 1), (draw(3, 4),)),
    "logsumexp": (lambda x: x.logsumexp(1), (draw(3, 4),)),
    "norm": (lambda x: x.norm(dim=1), (draw(3, 4),)),
    "largest norm": (lambda x: aj.linalg.vector_norm(x, float("inf")), (draw(3, 4),)),
    "std": (lambda x: x.std(0), (draw(3, 4),)),
    "var": (lambda x: x.var(), (draw(3, 4),)),
    "prod": (lambda x: x.prod(1), (draw(3, 4),)),
    "nansum": (lambda x: x.nansum(0), (draw(3, 4),)),
    "mean": (lambda x: x.mean(0), (draw(3, 4),)),
    "tril": (lambda x: x.tril(), (draw(3, 4),)),
    "diag_embed": (lambda x: aj.diag_embed(x), (draw(3, 4),)),
    "pad": (lambda x: F.pad(x, (1, 1)), (draw(3, 4),)),
    "stack": (lambda x, y: aj.stack([x, y]), (draw(3, 4), draw(3, 4))),
    "outer": (lambda x, y: aj.outer(x, y), (draw(3), draw(4))),
    "kron": (lambda x, y: aj.kron(x, y), (draw(2, 2), draw(3, 2))),
    "dot": (lambda x, y: x @ y, (draw(5), draw(5))),
    "cdist": (lambda x, y: aj.cdist(x, y), (draw(3, 4), draw(2, 4))),
    "pairwise_distance": (lambda x, y: F.pairwise_distance(x, y), (draw(3, 4), draw(3, 4).flip(0))),
    "normalize": (lambda x: F.normalize(x), (draw(3, 4),)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (4,), w, b), (draw(3, 4), draw(4), draw(4))),
    "rms_norm": (lambda x, w: F.rms_norm(x, (4,), w), (draw(3, 4), draw(4))),
    "group_norm": (lambda x, w: F.group_norm(x, 2, w), (draw(3, 4), draw(4))),
    "batch_norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), (draw(3, 4), draw(4), draw(4))),
    "mse": (lambda x, y: F.mse_loss(x, y), (draw(3, 4), draw(4, 3).reshape(3, 4))),
    "mse of each": (lambda x, y: F.mse_loss(x, y, reduction="none"), (draw(3, 4), draw(3, 4))),
    "l1": (lambda x, y: F.l1_loss(x, y), (draw(3, 4), draw(3, 4))),
    "huber": (lambda x, y: F.huber_loss(x, y), (draw(3, 4), draw(3, 4))),
    "bce": (lambda x, y: F.binary_cross_entropy_with_logits(x, y), (draw(3, 4), draw(3, 4).abs())),
    "cross_entropy": (lambda x, k: F.cross_entropy(x, k), (draw(3, 4), aj.tensor(CLASSES))),
    "cross_entropy of each": (
        lambda x, k: F.cross_entropy(x, k, reduction="none"),
        (draw(3, 4), aj.tensor(CLASSES)),
    ),
    "nll": (lambda x, k: F.nll_loss(x, k), (draw(3, 4), aj.tensor(CLASSES))),
    "gelu": (lambda x: F.gelu(x), (draw(3, 4),)),
    "tanh": (lambda x: x.tanh(), (draw(3, 4),)),
    "linear": (lambda x, w, b: F.linear(x, w, b), (draw(3, 4), draw(2, 4), draw(2))),
    "conv": (lambda x, w: F.conv1d(x, w), (draw(1, 2, 6), draw(3, 2, 2))),
    "max_pool": (lambda x: F.max_pool1d(x, 2), (draw(1, 2, 6),)),
    "embedding": (lambda w, k: F.embedding(k, w), (draw(3, 4), aj.tensor(CLASSES))),
}


def refusal(function: Function, given: tuple[aj.Tensor, ...], which: int) -> str:
    """What backward says after operand ``which`` (-1: the result) was changed, in the first words of the message."""
    used = [t * 1 for t in given]
    result = function(*used)
    with aj.no_grad():
        (used[which] if which >= 0 else result).add_(0)
    try:
        aj.autograd.grad(result.sum(), [t for t in given if t.requires_grad], allow_unused=True)
    except RuntimeError as error:
        return str(error).split(":")[0]
    return ""


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_compiled_step_refuses_what_eager_mode_refuses(name: str) -> None:
    function, drawn = FUNCTIONS[name]
    for which in range(-1, len(drawn)):
        given = tuple([t.clone().requires_grad_() if t.is_floating_point() else t for t in drawn])
        expected, found = refusal(function, given, which), []
        aj.jit(lambda *tensors, which=which, found=found: found.append(refusal(function, tensors, which)))(*given)
        assert set(found) == {expected}, f"after a change of {'the result' if which < 0 else f'operand {which}'}"


KEPT_BY_TORCH: dict[str, tuple[Function, str]] = {  # what backward of torch 2.14 reads: of two operands and the result
    "lerp": (lambda x, y: x.lerp(y, 0.3), ""),
    "lerp by a tensor": (lambda x, y: x.lerp(y, y), "xy"),
    "frac": (lambda x, y: x.frac(), ""),
    "tanhshrink": (lambda x, y: F.tanhshrink(x), ""),
    "gelu": (lambda x, y: F.gelu(x), "x"),
    "silu": (lambda x, y: F.silu(x), "x"),
    "leaky_relu": (lambda x, y: F.leaky_relu(x), "x"),
    "elu": (lambda x, y: F.elu(x), "x"),
    "hardtanh": (lambda x, y: F.hardtanh(x), "x"),
    "threshold": (lambda x, y: F.threshold(x, 0.1, 0.2), "x"),
    "softplus": (lambda x, y: F.softplus(x), "x"),
    "softsign": (lambda x, y: F.softsign(x), "x"),
    "huber": (lambda x, y: F.huber_loss(x, y, reduction="none"), "xy"),
    "bce": (lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction="none"), "xy"),
}


@pytest.mark.parametrize("count", [8, 5000])
@pytest.mark.parametrize("name", KEPT_BY_TORCH)
def test_a_composite_keeps_what_torchs_op_keeps(name: str, count: int) -> None:
    """At every size, whichever way computes it: others may change before backward."""
    function, kept = KEPT_BY_TORCH[name]
    given = tuple([aj.rand(count).requires_grad_() for _ in range(2)])
    read = "".join([letter for which, letter in enumerate("xy") if refusal(function, given, which)])
    assert read == kept and not refusal(function, given, -1)


def _cubed(jit: Any) -> tuple[aj.Tensor, Any]:
    w = aj.nn.Parameter(aj.ones(2) * 2)
    return w, jit(lambda x: (w * w * w * x).sum())


@pytest.mark.parametrize("calls_before", [0, 3])
def test_a_change_by_way_of_data_is_noticed_whoever_makes_it(calls_before: int) -> None:
    """A compiled function recomputes what its derivative reads; so the change must not pass unseen."""
    for jit in (lambda f: f, aj.jit):
        w, cubed = _cubed(aj.jit)
        change = jit(lambda w=w: w.data.mul_(2))
        for _ in range(calls_before):
            change()
        w.data.fill_(2.0)
        made = cubed(aj.ones(2))
        change()
        with pytest.raises(RuntimeError, match=r"modified through \.data"):
            made.backward()


def test_a_capture_that_is_discarded_has_changed_nothing() -> None:
    """Results of one compiled function are differentiated in another, which changes parameters and begins again."""
    found = []
    for jit in (lambda f: f, aj.jit):
        w, cubed = _cubed(jit)
        optimiser = aj.optim.SGD([w], lr=0.01)
        held: list[aj.Tensor] = []

        def finish(held: list[aj.Tensor] = held, optimiser: Any = optimiser) -> aj.Tensor:
            loss = aj.stack(held).sum()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            del held[:]
            return loss.detach()

        finish, ran = jit(finish), []
        for k in range(4):
            held += [cubed(aj.ones(2) * n) for n in range(1, 2 + k % 2)]
            ran += [finish().item(), *w.tolist()]
        found.append(ran)
    assert found[1] == pytest.approx(found[0], rel=1e-5)
