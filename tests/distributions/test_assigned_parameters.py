"""The parameters of a distribution may be assigned at any time; a compiled step computes by what they are now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import autojit as aj
from autojit import distributions as d
from autojit.jit.guards import broken_guard

ONES, ZEROS = aj.ones(3), aj.zeros(3)
FAMILIES: dict[str, Callable[[], Any]] = {
    "Normal": lambda: d.Normal(ZEROS, ONES),
    "Laplace": lambda: d.Laplace(ZEROS, ONES),
    "Gamma": lambda: d.Gamma(ONES * 2, ONES),
    "Exponential": lambda: d.Exponential(ONES),
    "Uniform": lambda: d.Uniform(ZEROS - 9, ONES * 9),
    "Poisson": lambda: d.Poisson(ONES * 2),
    "Bernoulli": lambda: d.Bernoulli(logits=ZEROS),
    "Categorical": lambda: d.Categorical(logits=aj.arange(3.0)),
    "MultivariateNormal": lambda: d.MultivariateNormal(ZEROS, aj.eye(3)),
    "Independent": lambda: d.Independent(d.Normal(ZEROS, ONES), 1),
    "MixtureSameFamily": lambda: d.MixtureSameFamily(d.Categorical(ONES), d.Normal(ZEROS, ONES)),
    "TransformedDistribution": lambda: d.TransformedDistribution(
        d.Normal(ZEROS, ONES), [d.AffineTransform(1.0, 2.0), d.ExpTransform()]
    ),
    "AffineTransform": lambda: d.AffineTransform(aj.ones(3), 2.0),
    "ComposeTransform": lambda: d.ComposeTransform([d.AffineTransform(1.0, 2.0), d.TanhTransform()]),
}


def _parts(obj: Any, path: str) -> Iterator[tuple[str, dict[str, Any], str]]:
    for name, value in list(vars(obj).items()):
        if name not in obj._changes_itself:
            yield f"{path}.{name}", vars(obj), name
        for part in value if isinstance(value, list) else (value,):
            if hasattr(type(part), "_changes_itself"):
                yield from _parts(part, f"{path}.{name}")


@pytest.mark.parametrize("family", FAMILIES)
def test_no_attribute_is_another_one_without_a_new_capture(family: str) -> None:
    found = FAMILIES[family]()
    step = aj.jit(lambda x: (found.__class__, x * 2)[1])
    step(aj.ones(1))
    guards = step.last_step().capture.guards
    for path, table, name in _parts(found, family):
        before = table[name]
        for after in (object(), [*before, d.ExpTransform()] if isinstance(before, list) else None):
            table[name] = after
            assert before is after or broken_guard(guards) is not None, path
            table[name] = before
        assert broken_guard(guards) is None, path


@pytest.mark.parametrize("name", ["loc", "scale"])
@pytest.mark.parametrize("ask", ["log_prob", "mean", "rsample", "kl_divergence"])
def test_a_step_computes_by_the_assigned_parameter(name: str, ask: str) -> None:
    prior = d.Normal(ZEROS, ONES)
    asked: dict[str, Callable[[aj.Tensor], Any]] = {
        "log_prob": lambda x: prior.log_prob(x),
        "mean": lambda x: prior.mean + prior.stddev + x,
        "rsample": lambda x: prior.rsample() + x,
        "kl_divergence": lambda x: d.kl_divergence(prior, d.Normal(ONES, ONES)) + x,
    }
    step = aj.jit(asked[ask])
    for k in range(4):
        if k > 1:
            setattr(prior, name, aj.full((3,), 2.0 + k))
        results = []
        for run in (step, asked[ask]):
            aj.manual_seed(k)
            results.append(run(aj.ones(3)))
        assert aj.allclose(*results)
