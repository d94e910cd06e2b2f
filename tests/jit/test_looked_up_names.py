"""Identities that a step asks for, and names that are looked up by code in C, follow what is there at each call."""

from __future__ import annotations

import functools
import json
import operator
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import autojit as aj

Jit = Callable[[Callable[..., Any]], Any]


def is_it_the_weight(jit: Jit) -> Iterator[Any]:
    weight = aj.ones(2)
    kept = {"w": weight, "list": [aj.ones(2), weight]}
    step = jit(lambda x: (x is weight, x is kept["w"], any(x is w for w in kept["list"]), x * 1))
    for x in (aj.ones(2), weight, kept["list"][0], aj.ones(2), weight):
        yield step(x)
    kept["w"] = aj.ones(2)
    yield step(weight)
    yield step(kept["w"])


def is_it_a_key(jit: Jit) -> Iterator[Any]:
    a, b = aj.ones(2), aj.ones(2)
    names = {a: "a", b: "b"}
    known = {id(b)}
    step = jit(lambda x: (names.get(x, "?"), x in names, id(x) in known, x.sum()))
    for x in (a, b, aj.ones(2), a):
        yield step(x)


def methods_by_name(jit: Jit) -> Iterator[Any]:
    class Scale:
        factor = 2.0

        def by(self, x: Any, more: float = 1.0) -> Any:
            return x * self.factor * more

    scale = Scale()
    factor = operator.attrgetter("factor")
    step = jit(lambda x: (operator.methodcaller("by", x, more=3.0)(scale), factor(scale), operator.attrgetter("by")))
    x = aj.ones(2)
    yield step(x)[:2]
    Scale.factor = 5.0
    yield step(x)[:2]
    scale.factor = 7.0
    yield step(x)[:2]
    Scale.by = lambda self, x, more: x + more  # type: ignore[method-assign, assignment]
    yield step(x)[:2]


def attributes_of_the_thread(jit: Jit) -> Iterator[Any]:
    own = threading.local()
    step = jit(lambda x: x + getattr(own, "shift", 0.0) + (10 if hasattr(own, "more") else 0))
    yield step(aj.ones(2))
    own.shift = 2.0
    yield step(aj.ones(2))
    own.more = None
    yield step(aj.ones(2))
    del own.shift
    yield step(aj.ones(2))


def properties_of_classes(jit: Jit) -> Iterator[Any]:
    class Meta(type):
        @property
        def gain(cls) -> float:
            return 2.0

    class Layer(metaclass=Meta):
        pass

    step = jit(lambda x: x * Layer.gain)
    yield step(aj.ones(2))
    Meta.gain = property(lambda cls: 3.0)  # type: ignore[assignment, misc]
    yield step(aj.ones(2))


def named_defaults_changed_in_place(jit: Jit) -> Iterator[Any]:
    def helper(x: Any, *, shift: float = 1.0) -> Any:
        return x + shift

    step = jit(lambda x: helper(x))
    yield step(aj.ones(2))
    assert helper.__kwdefaults__ is not None
    helper.__kwdefaults__["shift"] = 5.0
    yield step(aj.ones(2))


def rules_of_custom_functions(jit: Jit) -> Iterator[Any]:
    class Round(aj.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: aj.Tensor) -> aj.Tensor:
            return x.round()

        @staticmethod
        def backward(ctx: Any, grad: aj.Tensor) -> aj.Tensor:
            return grad

    def step(x: aj.Tensor) -> aj.Tensor:
        x = x.detach().requires_grad_()
        Round.apply(x).sum().backward()
        return x.grad

    step = jit(step)
    yield step(aj.ones(2))
    Round.backward = staticmethod(lambda ctx, grad: grad * 7)  # type: ignore[method-assign]
    yield step(aj.ones(2))
    Round.forward = staticmethod(lambda ctx, x: (x * 2).round())  # type: ignore[method-assign]
    yield step(aj.ones(2))


def what_a_cache_computes_and_does(jit: Jit) -> Iterator[Any]:
    calls: list[int] = []
    source = {"k": 2.0}

    @functools.lru_cache
    def table(n: int) -> aj.Tensor:
        calls.append(n)
        return aj.arange(float(n)) * source["k"]

    step = jit(lambda x, n: x.sum() * table(n))
    for n in (2, 2, 3):
        yield step(aj.ones(2), n), list(calls)
    source["k"] = 5.0
    yield step(aj.ones(2), 2), list(calls)
    table.cache_clear()
    yield step(aj.ones(2), 2), list(calls)


def sizes_as_keys(jit: Jit) -> Iterator[Any]:
    kept: dict[Any, aj.Tensor] = {}

    def mask(n: int) -> aj.Tensor:
        if n not in kept:
            kept[n] = aj.tril(aj.ones(n, n))
        return kept[n]

    step = jit(lambda x: x @ mask(x.shape[-1]))
    for n in (3, 4, 3, 5, 6, 4):
        yield step(aj.ones(2, n))
    yield sorted(kept), {type(n) for n in kept} == {int}
    kept[3] = aj.zeros(3, 3)
    yield step(aj.ones(2, 3))
    kept.clear()
    yield step(aj.ones(2, 3)), sorted(kept)


def numbers_as_json(jit: Jit) -> Iterator[Any]:
    lines: list[str] = []

    def step(x: aj.Tensor, k: int) -> Any:
        loss = x.sum().item()
        lines.append(json.dumps({"z": k, "all": [loss, {"mean": x.mean().item()}]}))
        lines.append(json.dumps({"loss": loss}, indent=1))
        text = json.dumps([loss])
        return len(text)

    step = jit(step)
    for k in (1, 20, 3, 1):
        yield step(aj.ones(2) * k, k), list(lines)


def parts_of_partials(jit: Jit) -> Iterator[Any]:
    class Config:
        rate = 2.0

    def helper(x: Any, factor: float = 1.0, config: Any = None) -> Any:
        return x * factor * (1.0 if config is None else config.rate)

    config, table = Config(), {"a": 1.0}
    scaled = functools.partial(helper, factor=4.0, config=config)
    rate, item = functools.partial(getattr, config, "rate"), functools.partial(table.get, "a")
    step = jit(lambda x: (scaled(x), list(map(scaled, [x])), x * rate() + item()))
    yield step(aj.ones(2))
    scaled.keywords["factor"] = 0.5
    yield step(aj.ones(2))
    config.rate = 3.0
    yield step(aj.ones(2))
    table["a"] = 7.0
    yield step(aj.ones(2))
    scaled.__setstate__((helper, (), {"factor": 9.0}, {}))  # type: ignore[attr-defined]
    yield step(aj.ones(2))


PROGRAMS = (
    is_it_the_weight, is_it_a_key, methods_by_name, attributes_of_the_thread, properties_of_classes,
    named_defaults_changed_in_place, rules_of_custom_functions, what_a_cache_computes_and_does,
    sizes_as_keys, numbers_as_json, parts_of_partials,
)  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=operator.attrgetter("__name__"))
def test_what_was_looked_up_is_what_is_there_at_each_call(program: Callable[[Jit], Iterator[Any]]) -> None:
    eager, compiled = ([_plain(value) for value in program(jit)] for jit in (lambda f: f, aj.jit))
    assert eager == compiled


def _plain(value: Any) -> Any:
    if isinstance(value, aj.Tensor):
        return value.tolist()
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value


def test_what_a_function_has_cached_is_read_like_everything_outside() -> None:
    settings = SimpleNamespace(factor=2.0, rows=[1.0])

    @functools.lru_cache
    def cached() -> SimpleNamespace:
        return settings

    step = aj.jit(lambda x: x * cached().factor + cached().rows[0])
    assert step(aj.ones(1)).item() == 3.0
    settings.factor = 3.0
    assert step(aj.ones(1)).item() == 4.0
    settings.rows.insert(0, 5.0)
    assert step(aj.ones(1)).item() == 8.0
