"""Steps with open sizes agree with eager execution for every size, and are captured a fixed number of times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import nn
from autojit.jit.function import JitFunction
from autojit.nn import functional as F

CLASSES = 7


def _plain(value: Any) -> list[Any]:
    leaves = value if isinstance(value, tuple | list) else [value]
    return [leaf.detach().numpy() if isinstance(leaf, aj.Tensor) else leaf for leaf in leaves]


def check_same(given: Any, wanted: Any, what: object) -> None:
    """Equal shapes and, to rounding, values."""
    for a, b in zip(_plain(given), _plain(wanted), strict=True):
        assert np.shape(a) == np.shape(b), what
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5, err_msg=str(what))


def check_function(
    function: Callable[..., Any], make: Callable[..., tuple[Any, ...]], sizes: Sequence[Any], captures: int
) -> JitFunction:
    """A function without state: compiled calls of all sizes agree with eager ones."""
    compiled: JitFunction = aj.jit(function)
    for given in sizes:
        arguments = make(*given) if isinstance(given, tuple) else make(given)
        check_same(compiled(*arguments), function(*arguments), given)
    assert compiled.stats()["captures"] == captures, compiled.explain()
    return compiled


def check_training(
    build: Callable[[], nn.Module],
    loss: Callable[..., aj.Tensor],
    make: Callable[..., tuple[Any, ...]],
    sizes: Sequence[Any],
    captures: int,
) -> JitFunction:
    """Two models train alike, one compiled: losses of every step, and all parameters in the end."""
    steps = []
    models = []
    for _ in range(2):
        aj.manual_seed(0)
        model = build()
        optimizer = aj.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        steps.append(_training_step(model, loss, optimizer))
        models.append(model)
    compiled: JitFunction = aj.jit(steps[0])
    for given in sizes:
        arguments = make(*given) if isinstance(given, tuple) else make(given)
        before = aj.get_rng_state()
        found = compiled(*arguments)
        aj.set_rng_state(before)
        check_same(found, steps[1](*arguments), given)
    for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-3, atol=2e-4)
    stats = compiled.stats()
    assert (stats["captures"], stats["fallbacks"], stats["splits"]) == (captures, 0, 0), compiled.explain()
    return compiled


def _training_step(model: nn.Module, loss: Callable[..., aj.Tensor], optimizer: Any) -> Callable[..., aj.Tensor]:
    def step(*arguments: aj.Tensor) -> aj.Tensor:
        optimizer.zero_grad()
        found = loss(model, *arguments)
        found.backward()
        optimizer.step()
        return found

    return step


# -- elementwise and reductions


def test_a_size_that_changes_is_captured_once_more_and_then_open() -> None:
    compiled = check_function(
        lambda x, y: ((x * y).sum(0) + x.mean(0), (x + y) * 2, x.var(0), x.amax(0)),
        lambda n: (aj.rand(n, 3), aj.rand(n, 3)),
        (8, 16, 5, 2, 300, 8, 77),
        captures=2,
    )
    assert "f32[batch, 3]" in compiled.explain()
    assert compiled.memory()["result_bytes"] == 4 * 3 * (77 * 1 + 3)
    assert compiled.stats()["native_calls"] > 0


def test_one_is_a_size_of_its_own() -> None:
    check_function(lambda x: x - x.mean(0), lambda n: (aj.rand(n, 4),), (6, 9, 1, 4, 1), captures=3)


def test_axes_that_always_agree_share_a_symbol_and_part_when_they_do_not() -> None:
    make = lambda n, m: (aj.rand(n, 2), aj.rand(m, 2))
    compiled = check_function(lambda x, y: x @ y.mT, make, ((4, 4), (6, 6), (8, 8), (3, 5), (9, 2), (7, 7)), 3)
    text = compiled.explain()
    assert "step(f32[batch, 2], f32[batch, 2])" in text and "step(f32[x.shape[0], 2], f32[y.shape[0], 2])" in text


def test_sizes_in_arithmetic_are_numbers_of_the_step() -> None:
    def function(x: aj.Tensor) -> Any:
        n = x.shape[0]
        return x.sum(0) / n, x * n**-0.5, aj.full((n, 2), 1 / n), x + (n - 1) // 2, n * 0.5

    check_function(function, lambda n: (aj.rand(n, 2),), (4, 9, 25, 6), captures=2)


def test_shapes_and_sizes_can_be_returned() -> None:
    compiled = check_function(
        lambda x: (x.shape[0], x.numel(), x.reshape(-1).shape[0] + 1, x * 2),
        lambda n: (aj.rand(n, 2),),
        (4, 9, 6),
        captures=2,
    )
    assert [type(n) for n in compiled(aj.rand(5, 2))[:3]] == [int, int, int]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.reshape(-1, 2),
        lambda x: x.view(x.shape[0] * 2, 2),
        lambda x: x[1:, :-1],
        lambda x: x[: x.shape[0] - 1] - x[1:],
        lambda x: x[::2],
        lambda x: x[-1],
        lambda x: aj.cat([x, x * 2, x[:1]]),
        lambda x: aj.stack([x, -x], 1),
        lambda x: x.expand(3, *x.shape),
        lambda x: x.flip(0),
        lambda x: x.cumsum(0),
        lambda x: x.roll(1, 0),
        lambda x: F.pad(x, (0, 0, 1, 2)),
        lambda x: aj.tril(aj.ones(x.shape[0], x.shape[0])) @ x,
        lambda x: x.softmax(0),
        lambda x: x.log_softmax(1),
        lambda x: x.std(0),
        lambda x: x.sort(0)[0],
        lambda x: x.argmax(0),
        lambda x: x.topk(2, 0)[0],
        lambda x: aj.arange(x.shape[0]) + x[:, 0],
        lambda x: aj.zeros(x.shape[0]) + aj.zeros_like(x)[:, 0],
        lambda x: aj.where(x > 0.5, x, -x),
        lambda x: x.mT @ x,
        lambda x: aj.einsum("ij,ik->jk", x, x),
        lambda x: x.repeat(2, 1),
        lambda x: x.unsqueeze(0).transpose(1, 2).flatten(1),
        lambda x: x.norm(dim=0),
        lambda x: x.chunk(2, 1)[1],
        lambda x: x.movedim(0, 1).contiguous().view(2, -1, x.shape[0]),
        lambda x: x.masked_fill(x > 0.5, 0.0),
        lambda x: x.index_select(0, aj.tensor([1, 0])),
        lambda x: x.gather(1, aj.zeros(x.shape[0], 1, dtype=aj.int64)),
    ],
)  # fmt: skip
def test_an_op_of_an_open_size(function: Callable[..., Any]) -> None:
    check_function(function, lambda n: (aj.rand(n, 4),), (4, 7, 12, 3, 33), captures=2)


# -- training


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Dropout(0.25), nn.Linear(16, CLASSES))


def _labelled(n: int) -> tuple[aj.Tensor, aj.Tensor]:
    return aj.rand(n, 12), aj.randint(0, CLASSES, (n,))


def test_a_perceptron_trains_on_any_batch() -> None:
    loss = lambda model, x, t: F.cross_entropy(model(x), t)
    compiled = check_training(_mlp, loss, _labelled, (64, 32, 1, 64, 33, 7, 2, 100, 1), captures=3)
    assert compiled.stats()["specialised_sizes"] == 0


def test_changing_sizes_run_natively() -> None:
    model = _mlp()
    optimizer = aj.optim.SGD(model.parameters(), lr=0.1)
    compiled = aj.jit(_training_step(model, lambda m, x, t: F.cross_entropy(m(x), t), optimizer))
    batches = [_labelled(n) for n in (8, 16, 5, 9)]
    for batch in batches:
        compiled(*batch)
    before = compiled.stats()
    for batch in batches * 3:
        compiled(*batch)
    after = compiled.stats()
    assert after["python_calls"] == before["python_calls"]
    assert after["native_calls"] == before["native_calls"] + 12


class Block(nn.Module):
    """A layer of a language model, its attention written as in public programs."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.first, self.second = nn.LayerNorm(8), nn.LayerNorm(8)
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.wide, self.narrow = nn.Linear(8, 16), nn.Linear(16, 8)
        self.register_buffer("bias", aj.tril(aj.ones(32, 32)))

    def forward(self, x: aj.Tensor) -> aj.Tensor:
        """(batch, length, 8) to the same."""
        b, t, c = x.shape
        q, k, v = (y.view(b, t, 2, 4).transpose(1, 2) for y in self.qkv(self.first(x)).split(8, dim=2))
        if self.kind == "fused":
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            mask = self.bias[:t, :t] if self.kind == "buffer" else aj.tril(aj.ones(t, t))
            scores = (q @ k.transpose(-2, -1)) / 2.0
            y = scores.masked_fill(mask == 0, float("-inf")).softmax(-1) @ v
        x = x + F.dropout(self.out(y.transpose(1, 2).contiguous().view(b, t, c)), 0.1)
        return x + self.narrow(F.gelu(self.wide(self.second(x))))


class Language(nn.Module):
    """Embeddings of tokens and places, a block, a head."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(CLASSES, 8), nn.Embedding(32, 8)
        self.block, self.head = Block(kind), nn.Linear(8, CLASSES, bias=False)

    def forward(self, tokens: aj.Tensor) -> aj.Tensor:
        """Logits."""
        return self.head(self.block(self.token(tokens) + self.place(aj.arange(tokens.size(1)))))


def _language_loss(model: nn.Module, tokens: aj.Tensor, targets: aj.Tensor) -> aj.Tensor:
    logits = model(tokens)
    return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


def _tokens(b: int, t: int) -> tuple[aj.Tensor, aj.Tensor]:
    return aj.randint(0, CLASSES, (b, t)), aj.randint(0, CLASSES, (b, t))


@pytest.mark.parametrize("kind", ["fused", "manual", "buffer"])
def test_a_language_model_trains_on_any_length(kind: str) -> None:
    sizes = ((3, 8), (3, 16), (3, 1), (3, 31), (3, 2), (3, 32))
    check_training(lambda: Language(kind), _language_loss, _tokens, sizes, captures=3)


def test_a_language_model_trains_on_any_batch_and_length() -> None:
    sizes = ((4, 8), (3, 16), (2, 2), (7, 31), (5, 9), (9, 5))
    check_training(lambda: Language("manual"), _language_loss, _tokens, sizes, captures=2)


def test_a_convolutional_network_trains_on_any_batch() -> None:
    build = lambda: nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 7),
    )
    make = lambda n: (aj.rand(n, 1, 8, 8), aj.randint(0, CLASSES, (n,)))
    check_training(build, lambda m, x, t: F.cross_entropy(m(x), t), make, (4, 8, 3, 16, 2), captures=2)


def test_a_recurrent_network_trains_on_any_batch() -> None:
    loss = lambda m, x: (m(x)[0] ** 2).mean()
    check_training(lambda: nn.LSTM(3, 5), loss, lambda n: (aj.rand(6, n, 3),), (4, 8, 3, 16), captures=2)


# -- conditions, and what cannot stay open


def test_a_condition_on_a_size_is_a_guard() -> None:
    def function(x: aj.Tensor) -> aj.Tensor:
        return x.sum(0) if x.shape[0] < 10 else x.mean(0)

    compiled = check_function(function, lambda n: (aj.rand(n, 3),), (4, 6, 20, 5, 30, 9, 10), captures=3)
    assert "s0 >= 10" in compiled.explain() or "s0 < 10" in compiled.explain()


def test_a_size_asked_for_by_value_has_its_own_step() -> None:
    def function(x: aj.Tensor) -> aj.Tensor:
        return x * 3 if x.shape[0] == 5 else x

    check_function(function, lambda n: (aj.rand(n, 3),), (4, 6, 5, 7, 5, 9), captures=3)


def test_a_size_read_as_digits_is_fixed_counted_and_explained() -> None:
    def function(x: aj.Tensor) -> aj.Tensor:
        total = x[0] * 0
        for k in range(x.shape[0]):
            total = total + x[k] * k
        return total

    compiled = check_function(function, lambda n: (aj.rand(n, 3),), (3, 5, 4, 5, 3), captures=3)
    assert compiled.stats()["specialised_sizes"] == 1
    assert "sizes were fixed: the digits of s0 are used at test_symbolic_sizes.py" in compiled.explain()


def test_an_error_of_the_user_is_the_same_with_open_sizes() -> None:
    compiled = aj.jit(lambda x, y: x @ y)
    compiled(aj.ones(2, 3), aj.ones(3, 2))
    compiled(aj.ones(4, 3), aj.ones(3, 2))
    with pytest.raises(RuntimeError, match="inner axes differ"):
        compiled(aj.ones(5, 4), aj.ones(3, 2))
    assert compiled(aj.ones(6, 3), aj.ones(3, 2)).shape == (6, 2)


def test_dynamic_opens_everything_at_once_or_nothing() -> None:
    function = lambda x: x.sum(0) * 2
    everything, nothing = aj.jit(function, dynamic=True), aj.jit(function, dynamic=False)
    for n in (4, 9, 6):
        x = aj.rand(n, n + 1)
        check_same(everything(x), function(x), n)
        check_same(nothing(x), function(x), n)
    assert (everything.stats()["captures"], nothing.stats()["captures"]) == (1, 3)


def test_results_that_are_differentiated_outside_have_open_sizes() -> None:
    aj.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 3))
    compiled = aj.jit(model)
    for n in (8, 4, 1, 17, 3):
        x = aj.rand(n, 6, requires_grad=True)
        wanted = aj.autograd.grad((model(x) ** 2).mean(), (x, *model.parameters()))
        given = aj.autograd.grad((compiled(x) ** 2).mean(), (x, *model.parameters()))
        check_same(list(given), list(wanted), n)
    assert compiled.stats()["captures"] == 3


def test_second_derivatives_of_open_sizes() -> None:
    compiled = aj.jit(lambda x: (x**3).mean(0))
    for n in (4, 6, 9):
        x = aj.rand(n, 3, requires_grad=True)
        (slope,) = aj.autograd.grad(compiled(x).sum(), (x,), create_graph=True)
        (curvature,) = aj.autograd.grad(slope.sum(), (x,))
        check_same(curvature, 6 * x / n, n)
    assert compiled.stats()["captures"] == 2


def test_a_decision_within_a_step_of_open_sizes() -> None:
    def function(x: aj.Tensor) -> aj.Tensor:
        y = x * 2
        return y + 1 if y.sum() > y.shape[0] else y - 1

    signs = {4: 1.0, 6: -1.0, 9: 1.0, 3: -1.0}
    check_function(function, lambda n: (aj.full((n, 2), signs[n]),), (4, 6, 9, 3), captures=3)
