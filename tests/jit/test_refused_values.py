"""What eager mode refuses by value a compiled step refuses too, in any of its calls, and then recovers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import autojit as aj
from autojit import nn
from autojit.core.config import config

F, D, L = nn.functional, aj.distributions, aj.linalg


class Case(NamedTuple):
    """A function, what it takes and what it refuses."""

    call: Callable[[Any], Any]
    good: aj.Tensor
    bad: aj.Tensor


def f(*values: float) -> aj.Tensor:
    return aj.tensor([float(v) for v in values])


def i(*values: int) -> aj.Tensor:
    return aj.tensor([int(v) for v in values])


NAN = float("nan")
INDEFINITE, SINGULAR = aj.tensor([[1.0, 2.0], [2.0, 1.0]]), aj.ones(2, 2)
NO_MATRIX = aj.full((2, 2), NAN)
TABLE = aj.ones(3, 2)


def unread(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The call, whose result nothing reads."""

    def function(x: Any) -> Any:
        call(x)
        return x + 1

    return function


def first_element(found: Any) -> Any:
    """One element of a result, of which the others are not read."""
    leaf = found[0] if isinstance(found, tuple) else found
    return leaf.reshape(-1)[:1]


LOSSES = {
    "bce above": Case(lambda p: F.binary_cross_entropy(p, f(0, 1)), f(0.1, 1), f(0.1, 1.2)),
    "bce below": Case(lambda p: F.binary_cross_entropy(p, f(0, 1), f(1, 2)), f(0.1, 1), f(-0.1, 1)),
    "bce nan": Case(lambda p: F.binary_cross_entropy(p, f(0, 1)), f(0.1, 1), f(0.1, NAN)),
    "bce unread": Case(unread(lambda p: F.binary_cross_entropy(p, f(0, 1))), f(0.1, 1), f(0.1, 1.2)),
    "cross_entropy": Case(lambda t: F.cross_entropy(aj.ones(2, 3), t), i(0, 2), i(0, 3)),
    "cross_entropy below": Case(lambda t: F.cross_entropy(aj.ones(2, 3), t), i(0, 2), i(0, -3)),
    "nll": Case(lambda t: F.nll_loss(aj.ones(2, 3), t), i(0, 2), i(0, 3)),
    "multi_margin": Case(lambda t: F.multi_margin_loss(aj.ones(2, 3), t), i(0, 2), i(0, 3)),
    "gaussian_nll": Case(lambda v: F.gaussian_nll_loss(f(1, 2), f(1, 2), v), f(1, 0), f(1, -2)),
    "ctc target length": Case(lambda n: F.ctc_loss(aj.zeros(5, 1, 3), i(1, 2).reshape(1, 2), i(5), n), i(2), i(7)),
    "ctc input length": Case(lambda n: F.ctc_loss(aj.zeros(5, 1, 3), i(1, 2).reshape(1, 2), n, i(2)), i(5), i(9)),
    "adaptive": Case(lambda t: nn.AdaptiveLogSoftmaxWithLoss(4, 10, [3])(aj.ones(2, 4), t)[1], i(0, 9), i(0, 10)),
}
PLACES = {
    "one_hot below": Case(lambda t: F.one_hot(t, 3), i(0, 2), i(0, -1)),
    "one_hot above": Case(lambda t: F.one_hot(t, 3), i(0, 2), i(0, 3)),
    "one_hot counted": Case(F.one_hot, i(0, 2), i(0, -1)),
    "embedding": Case(lambda t: F.embedding(t, TABLE), i(0, 2), i(0, 3)),
    "embedding below": Case(lambda t: F.embedding(t, TABLE), i(0, 2), i(0, -1)),
    "embedding_bag": Case(lambda t: F.embedding_bag(t, TABLE, i(0, 1)), i(0, 2), i(0, 3)),
    "gather": Case(lambda t: aj.ones(3).gather(0, t), i(0, 2), i(0, 3)),
    "gather below": Case(lambda t: aj.ones(3).gather(0, t), i(0, 2), i(0, -1)),
    "scatter": Case(lambda t: aj.zeros(3).scatter(0, t, f(1, 2)), i(0, 2), i(0, 3)),
    "scatter_add": Case(lambda t: aj.zeros(3).scatter_add(0, t, f(1, 2)), i(0, 2), i(0, -1)),
    "scatter_reduce": Case(lambda t: aj.zeros(3).scatter_reduce(0, t, f(1, 2), "amax"), i(0, 2), i(0, 5)),
    "index_select": Case(lambda t: aj.ones(3).index_select(0, t), i(0, 2), i(0, 3)),
    "index_add": Case(lambda t: aj.ones(3).index_add(0, t, f(1, 2)), i(0, 2), i(0, 3)),
    "index_fill": Case(lambda t: aj.ones(3).index_fill(0, t, 2.0), i(0, 2), i(0, 3)),
    "index_copy": Case(lambda t: aj.ones(3).index_copy(0, t, f(1, 2)), i(0, 2), i(0, 3)),
    "index_put": Case(lambda t: aj.ones(3).index_put((t,), f(1, 2)), i(0, -3), i(0, -4)),
    "take": Case(lambda t: aj.ones(3).take(t), i(0, 2), i(0, 3)),
    "take_along_dim": Case(lambda t: aj.take_along_dim(aj.ones(3), t, 0), i(0, 2), i(0, 3)),
    "x[index]": Case(lambda t: aj.ones(3)[t], i(0, -3), i(0, -4)),
    "x[item]": Case(lambda t: aj.ones(3)[t[0].item()], i(1), i(7)),
    "max_unpool": Case(lambda t: F.max_unpool1d(aj.ones(1, 2), t, 2), i(0, 2).reshape(1, 2), i(0, 9).reshape(1, 2)),
    "sparse": Case(lambda t: aj.sparse_coo_tensor(t, f(1, 2), (3,)).to_dense(), i(0, 1).reshape(1, 2), i(0, 5).reshape(
        1, 2)),
    "masked_scatter": Case(lambda m: aj.ones(2).masked_scatter(m, f(1)), aj.tensor([True, False]), aj.ones(2) > 0),
}  # fmt: skip
COUNTS = {
    "bincount": Case(aj.bincount, i(0, 2), i(0, -1)),
    "repeat_interleave": Case(aj.repeat_interleave, i(0, 2), i(0, -1)),
    "repeats": Case(lambda t: f(1, 2).repeat_interleave(t), i(0, 2), i(0, -1)),
    "segment lengths": Case(lambda n: aj.segment_reduce(f(1, 2, 3), "sum", lengths=n), i(1, 2), i(4, -1)),
    "segment sum": Case(lambda n: aj.segment_reduce(f(1, 2, 3), "sum", lengths=n), i(1, 2), i(1, 1)),
    "cov weights": Case(lambda w: aj.ones(1, 2).cov(aweights=w), f(1, 2), f(1, -2)),
    "quantile": Case(lambda q: f(1, 2, 3).quantile(q), f(0, 1), f(0.5, 1.5)),
    "nanquantile": Case(lambda q: f(1, 2, 3).nanquantile(q), f(0, 1), f(-0.5, 1)),
    "packed lengths": Case(lambda n: nn.utils.rnn.pack_padded_sequence(aj.ones(3, 2, 1), n).data, i(3, 2), i(3, 0)),
    "total norm": Case(lambda x: nn.utils.get_total_norm([x], error_if_nonfinite=True), f(1), f(NAN)),
}
DRAWS = {
    "multinomial below": Case(lambda w: w.multinomial(2), f(1, 2, 3), f(1, -2, 3)),
    "multinomial nan": Case(lambda w: w.multinomial(2), f(1, 2, 3), f(1, NAN, 3)),
    "multinomial inf": Case(lambda w: w.multinomial(2), f(1, 2, 3), f(1, np.inf, 3)),
    "multinomial zero": Case(lambda w: w.multinomial(2, True), f(1, 2, 3), f(0, 0, 0)),
    "bernoulli": Case(aj.bernoulli, f(0.1, 1), f(0.1, 1.5)),
    "normal": Case(lambda s: aj.normal(f(0, 0), s), f(1, 0), f(1, -2)),
    "poisson": Case(aj.poisson, f(1, 0), f(1, -2)),
}
MATRICES = {
    "cholesky": Case(L.cholesky, aj.eye(2), INDEFINITE),
    "cholesky unread": Case(unread(L.cholesky), aj.eye(2), INDEFINITE),
    "inv": Case(L.inv, aj.eye(2), SINGULAR),
    "inv unread": Case(unread(L.inv), aj.eye(2), SINGULAR),
    "solve": Case(lambda m: L.solve(m, aj.ones(2)), aj.eye(2), SINGULAR),
    "matrix_power": Case(lambda m: L.matrix_power(m, -1), aj.eye(2), SINGULAR),
    "lu_factor": Case(lambda m: L.lu_factor(m)[0], aj.eye(2), SINGULAR),
    "svdvals": Case(L.svdvals, aj.eye(2), NO_MATRIX),
}
PARAMETERS = {
    "Normal": Case(lambda s: D.Normal(f(0, 0), s).sample(), f(1, 2), f(1, -2)),
    "Bernoulli": Case(lambda p: D.Bernoulli(p).sample(), f(0.5, 1), f(0.5, 2)),
    "Categorical": Case(lambda p: D.Categorical(p).sample(), f(0.5, 0.5), f(0.5, -0.5)),
    "Uniform": Case(lambda h: D.Uniform(f(0, 0), h).sample(), f(1, 2), f(1, -1)),
    "Gamma": Case(lambda a: D.Gamma(a, f(1, 1)).sample(), f(1, 2), f(1, -2)),
    "Geometric": Case(lambda p: D.Geometric(p).sample(), f(0.5, 0.4), f(0.5, 0)),
    "Exponential": Case(lambda r: D.Exponential(r).rsample(), f(1, 2), f(1, -2)),
    "Dirichlet": Case(lambda c: D.Dirichlet(c).sample(), f(1, 2), f(1, -2)),
    "covariance": Case(lambda m: D.MultivariateNormal(f(0, 0), m).sample(), aj.eye(2), INDEFINITE),
    "factor": Case(lambda m: D.MultivariateNormal(f(0, 0), scale_tril=m).sample(), aj.eye(2), INDEFINITE),
    "Wishart": Case(lambda d: D.Wishart(d, aj.eye(2)).log_prob(aj.eye(2)), aj.tensor(3.0), aj.tensor(0.5)),
    "divergence": Case(lambda s: D.kl_divergence(D.Normal(f(0), s), D.Normal(f(0), f(1))), f(1), f(-1)),
}
SUPPORTS = {
    "Normal": Case(D.Normal(f(0, 0), f(1, 1)).log_prob, f(1, 2), f(1, NAN)),
    "Bernoulli": Case(D.Bernoulli(f(0.5, 0.5)).log_prob, f(0, 1), f(0.5, 1)),
    "Categorical": Case(D.Categorical(f(0.5, 0.5)).log_prob, i(0, 1), i(0, 2)),
    "Uniform": Case(D.Uniform(f(0, 0), f(1, 1)).log_prob, f(0.5, 0.2), f(1.5, 0.2)),
    "Beta": Case(D.Beta(f(1, 1), f(1, 1)).log_prob, f(0.5, 0.2), f(1.5, 0.2)),
    "Poisson": Case(D.Poisson(f(1, 1)).log_prob, f(1, 2), f(1, -2)),
    "OneHot": Case(D.OneHotCategorical(f(0.5, 0.5)).log_prob, f(0, 1), f(1, 1)),
    "LogNormal": Case(D.LogNormal(f(0, 0), f(1, 1)).log_prob, f(0.1, 1), f(1, -7)),
}
CASES = {
    f"{family} {name}": case
    for family, cases in (
        ("loss", LOSSES), ("place", PLACES), ("count", COUNTS), ("draw", DRAWS), ("matrix", MATRICES),
        ("parameter", PARAMETERS), ("support", SUPPORTS),
    )
    for name, case in cases.items()
}  # fmt: skip
KINDS = (IndexError, ValueError, TypeError, NotImplementedError, RuntimeError)


def outcome(call: Callable[[Any], Any], given: aj.Tensor) -> type[BaseException] | None:
    """What kind of error a call is, as a user catches it."""
    try:
        call(given)
    except KINDS as error:
        return next(kind for kind in KINDS if isinstance(error, kind))
    return None


@pytest.mark.parametrize("name", CASES)
def test_a_step_refuses_the_values_that_eager_mode_refuses(name: str) -> None:
    call, good, bad = CASES[name]
    kind = outcome(call, bad)
    assert kind is not None
    assert outcome(call, good) is None
    step = aj.jit(call)
    assert [outcome(step, given) for given in (good, bad, good, bad)] == [None, kind, None, kind]
    first = aj.jit(call)
    assert [outcome(first, given) for given in (bad, good)] == [kind, None]


@pytest.mark.parametrize("name", CASES)
def test_a_step_refuses_values_also_where_it_reads_no_result(name: str) -> None:
    call, good, bad = CASES[name]
    for function in (unread(call), lambda x: first_element(call(x))):
        kind = outcome(function, bad)
        step = aj.jit(function)
        assert [outcome(step, given) for given in (good, bad, good, bad)] == [None, kind, None, kind]


@pytest.mark.parametrize("name", [n for n in CASES if n.startswith("place")])
def test_a_step_without_passes_refuses_places(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "passes", "none")
    call, good, bad = CASES[name]
    for function in (call, unread(call), lambda x: first_element(call(x))):
        step = aj.jit(function)
        assert [outcome(step, given) for given in (good, bad)] == [None, outcome(function, bad)]


def test_one_check_is_made_of_indices_that_several_look_ups_take() -> None:
    def count(function: Callable[[Any], Any]) -> int:
        step = aj.jit(function)
        step(i(0, 2))
        return str(step.show("optimised")).count("in_range")

    assert count(unread(lambda t: (aj.ones(3)[t], aj.zeros(3).index_put((t,), f(1, 2))))) == 1
    assert count(lambda t: (aj.ones(3)[t], aj.ones(3)[t][0])) == 0, "a look-up that is read checks for all"
    assert count(unread(lambda t: aj.ones(3)[t.clamp(0, 2)] + aj.ones(3)[aj.arange(2)] + aj.ones(3)[t % 3])) == 0
    assert count(unread(lambda t: aj.ones(3)[aj.ones(2, 3).argmax(1)] + aj.ones(3)[aj.ones(3).argsort()][:2])) == 0
    assert count(unread(lambda t: aj.ones(3)[t.clamp(0, 3)])) == 1
    assert count(unread(lambda t: aj.ones(3)[t % 4])) == 1


def test_the_gradient_of_a_look_up_checks_nothing_again() -> None:
    table = aj.ones(3, 2, requires_grad=True)

    @aj.jit
    def step(t: Any) -> Any:
        loss = F.embedding(t, table).sum()
        return aj.autograd.grad(loss, table)[0]

    step(i(0, 2))
    assert "in_range" not in str(step.show("optimised"))


@pytest.mark.parametrize("name", ["bernoulli", "normal", "poisson", "multinomial below"])
def test_a_refused_draw_takes_the_numbers_that_eager_mode_takes(name: str) -> None:
    call, good, bad = DRAWS[name]
    found = []
    for function in (call, aj.jit(call)):
        aj.manual_seed(5)
        function(good)
        outcome(function, bad)
        found.append(function(good).tolist())
    assert found[0] == found[1]


def test_checks_that_a_user_turned_off_are_off_in_a_step() -> None:
    step = aj.jit(lambda s: D.Normal(f(0, 0), s, validate_args=False).log_prob(f(1, 2)))
    assert outcome(step, f(1, -2)) is None


def test_a_batch_refuses_what_one_of_its_examples_holds() -> None:
    def loss(p: Any) -> Any:
        return F.binary_cross_entropy(p, f(0, 1))

    for call in (aj.vmap(loss), aj.jit(aj.vmap(loss))):
        assert outcome(call, aj.tensor([[0.1, 0.2], [0.3, 1.0]])) is None
        assert outcome(call, aj.tensor([[0.1, 0.2], [0.3, 1.5]])) is RuntimeError
