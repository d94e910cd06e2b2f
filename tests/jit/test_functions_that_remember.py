"""Functions that remember their results (``functools.lru_cache``): compiled steps give what eager mode gives, and leave
as many entries behind, none of which is of a capture."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import pytest

import autojit as aj
from autojit import nn

Jit = Callable[[Any], Any]
SIZES = (2, 3, 2, 4, 5, 3)


class _Seen(NamedTuple):
    """What is compared: results, how many entries there are, how often the function ran, and what leaked."""

    results: list[Any]
    entries: int
    runs: int
    again: Any  # what the function gives to eager mode afterwards
    leaks: list[str]


class _Log:
    """Counts runs."""

    def __init__(self) -> None:
        self.runs = 0

    def ones(self, n: int) -> aj.Tensor:
        self.runs += 1
        return aj.ones(n) * self.runs


def _leaks(function: Any) -> list[str]:
    """Stand-ins of captures that a cache holds, as keys or values."""
    held = [part for x in gc.get_referents(function) for part in (x if isinstance(x, tuple) else (x,))]
    tensors = ["tensor" for x in held if isinstance(x, aj.Tensor) and x._array is None]
    return tensors + [type(x).__name__ for x in held if type(x).__name__ in ("TracedNumber", "SymbolicSize")]


def _plain(value: Any) -> Any:
    if isinstance(value, aj.Tensor):
        return value.tolist()
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value


def _seen(function: Any, log: _Log, results: Sequence[Any], again: Callable[[], Any]) -> _Seen:
    entries = function.cache_info().currsize
    return _Seen(_plain(list(results)), entries, log.runs, _plain(again()), _leaks(function))


# ---- ways to the function, all of which give it the size of the argument


def _of_instance(j: Jit, log: _Log) -> _Seen:
    class Made:
        @functools.lru_cache  # noqa: B019  # what is tested
        def ones(self, n: int) -> aj.Tensor:
            return log.ones(n)

    made = Made()
    step = j(lambda x: x + made.ones(x.shape[0]))
    return _seen(Made.ones, log, [step(aj.ones(n)) for n in SIZES], lambda: made.ones(3))


def _bound_before(j: Jit, log: _Log) -> _Seen:
    class Made:
        @functools.lru_cache  # noqa: B019
        def ones(self, n: int) -> aj.Tensor:
            return log.ones(n)

    ones = Made().ones
    step = j(lambda x: x + ones(x.shape[0]))
    return _seen(Made.ones, log, [step(aj.ones(n)) for n in SIZES], lambda: ones(3))


def _of_new_instances(j: Jit, log: _Log) -> _Seen:
    class Made:
        @functools.lru_cache  # noqa: B019
        def ones(self, n: int) -> aj.Tensor:
            return log.ones(n)

    step = j(lambda x: x + Made().ones(x.shape[0]))
    return _seen(Made.ones, log, [step(aj.ones(n)) for n in SIZES], lambda: None)


def _of_layer(j: Jit, log: _Log) -> _Seen:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.count = 0

        @functools.lru_cache  # noqa: B019
        def ones(self, n: int) -> aj.Tensor:
            return log.ones(n)

        def forward(self, x: aj.Tensor) -> aj.Tensor:
            self.count += 1
            return x * self.count + self.ones(x.shape[0])

    net = Net()
    step = j(net)
    return _seen(Net.ones, log, [step(aj.ones(n)) for n in SIZES], lambda: net.ones(3))


def _static(j: Jit, log: _Log) -> _Seen:
    class Made:
        @staticmethod
        @functools.lru_cache
        def ones(n: int) -> aj.Tensor:
            return log.ones(n)

    step = j(lambda x: x + Made.ones(x.shape[0]))
    return _seen(Made.ones, log, [step(aj.ones(n)) for n in SIZES], lambda: Made.ones(3))


def _of_class(j: Jit, log: _Log) -> _Seen:
    class Made:
        @classmethod
        @functools.lru_cache
        def ones(cls, n: int) -> aj.Tensor:
            return log.ones(n)

    step = j(lambda x: x + Made.ones(x.shape[0]))
    return _seen(Made.ones.__func__, log, [step(aj.ones(n)) for n in SIZES], lambda: Made.ones(3))


def _plain_way(use: Callable[[Any], Callable[[aj.Tensor], Any]], **options: Any) -> Callable[[Jit, _Log], _Seen]:
    def program(j: Jit, log: _Log) -> _Seen:
        ones = functools.lru_cache(**options)(log.ones)
        wrapped = functools.lru_cache(**options)(lambda n: log.ones(n))
        step, other = j(use(ones)), j(use(wrapped))
        results = [(step(aj.ones(n)), other(aj.ones(n))) for n in SIZES]
        seen = _seen(wrapped, log, results, lambda: None)
        return seen._replace(entries=seen.entries + ones.cache_info().currsize, leaks=seen.leaks + _leaks(ones))

    return program


def _wrapped(f: Any) -> Any:
    @functools.wraps(f)
    def run(*args: Any) -> Any:
        return f(*args)

    return run


def _held(g: Any) -> Callable[[aj.Tensor], Any]:
    return lambda x: x + g(x.shape[0])


WAYS: dict[str, Callable[[Jit, _Log], _Seen]] = {
    "a function": _plain_way(lambda f: lambda x: x + f(x.shape[0])),
    "without a limit": _plain_way(lambda f: lambda x: x + f(x.shape[0]), maxsize=None),
    "typed": _plain_way(lambda f: lambda x: x + f(x.shape[0]), typed=True),
    "a partial": _plain_way(lambda f: _held(functools.partial(f))),
    "a wrapper": _plain_way(lambda f: _held(_wrapped(f))),
    "map": _plain_way(lambda f: lambda x: x + next(map(f, x.shape))),
    "a sort's key": _plain_way(lambda f: lambda x: x + sorted(x.shape, key=lambda n: f(n).sum().item())[0]),
    "where nobody looks": _plain_way(lambda f: lambda x: x + (_sorted(x, f) or 0)),
    "past what it remembers": _plain_way(lambda f: lambda x: x + f.__wrapped__(2)[0]),
    "vmap": _plain_way(lambda f: lambda x: aj.func.vmap(lambda r: r * f(2)[0])(x)),
    "grad": _plain_way(lambda f: lambda x: aj.func.grad(lambda y: (y * f(2)[0]).sum())(x)),
    "the body of a loop": _plain_way(lambda f: lambda x: aj.scan(lambda c, z: (c, z * f(2)[0]), aj.zeros(()), x)[1]),
    "a branch": _plain_way(
        lambda f: lambda x: aj.cond(x.sum() > 0, lambda x: x * f(2)[0], lambda x: x * f(7)[0], (x,))
    ),
    "after a change": _plain_way(lambda f: lambda x: x.add_(1) + f(x.shape[0])),
    "what it knows": _plain_way(lambda f: lambda x: x + f(x.shape[0]) * f.cache_info().currsize),
    "emptied in the step": _plain_way(lambda f: lambda x: (x + f(x.shape[0]), f.cache_clear())[0]),
    "a method": _of_instance,
    "a bound method": _bound_before,
    "a method of new objects": _of_new_instances,
    "a method of a layer": _of_layer,
    "a static method": _static,
    "a class method": _of_class,
}


def _sorted(x: aj.Tensor, f: Any) -> None:
    sizes = list(x.shape)
    sizes.sort(key=lambda n: 0)
    next(filter(lambda n: f(n) is None, sizes), None)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_what_is_remembered_is_as_in_eager_mode(way: Callable[[Jit, _Log], _Seen]) -> None:
    found = way(aj.jit, _Log())
    assert found == way(lambda f: f, _Log())
    assert not found.leaks


# ---- what it may be asked for


class _Color(Enum):
    RED = 1


@dataclass(frozen=True)
class _Frozen:
    n: int


@dataclass(eq=False)
class _ById:
    n: int


class _Pair(NamedTuple):
    n: int
    k: float


class _Hashed:
    def __init__(self, v: int) -> None:
        self.v = v

    def __hash__(self) -> int:
        return hash(self.v)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hashed) and self.v == other.v


OUTSIDE, BY_ID, HASHED, LAYER, WEIGHT = _Frozen(2), _ById(2), _Hashed(3), nn.Linear(2, 2), aj.ones(3)
KEYS: dict[str, Callable[[aj.Tensor], Any]] = {
    "a size": lambda x: x.shape[0],
    "a shape": lambda x: x.shape,
    "sizes in a tuple": lambda x: (x.shape[0], (1, x.shape)),
    "a frozen set": lambda x: frozenset([x.shape[0]]),
    "a text": lambda x: f"{x.shape[0]}",
    "half a size": lambda x: x.shape[0] // 2,
    "a number of the step": lambda x: x.sum().item(),
    "a range": lambda x: range(x.shape[0]),
    "an element type": lambda x: x.dtype,
    "a device": lambda x: x.device,
    "an enumeration": lambda x: _Color.RED,
    "nothing": lambda x: None,
    "a class": lambda x: _Frozen,
    "a function": lambda x: _leaks,
    "a function of the step": lambda x: lambda: x,
    "a layer": lambda x: LAYER,
    "a parameter": lambda x: LAYER.weight,
    "a tensor outside": lambda x: WEIGHT,
    "an argument": lambda x: x,
    "a tensor of the step": lambda x: x * 2,
    "a tensor of numbers": lambda x: aj.ones(2),
    "a record of the step": lambda x: _Frozen(x.shape[0]),
    "a record outside": lambda x: OUTSIDE,
    "an object by its identity": lambda x: BY_ID,
    "an object of the step": lambda x: _ById(2),
    "an object by its contents": lambda x: HASHED,
    "one by its contents of the step": lambda x: _Hashed(3),
    "a named tuple": lambda x: _Pair(x.shape[0], 2.0),
}


@pytest.mark.parametrize("options", [{}, {"maxsize": None}, {"typed": True}], ids=str)
@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_whatever_stands_for_a_result(key: Callable[[aj.Tensor], Any], options: dict[str, Any]) -> None:
    def program(j: Jit) -> _Seen:
        log = _Log()
        remembered = functools.lru_cache(**options)(lambda k, *, named=1: log.ones(1))
        step = j(lambda x: x + remembered(key(x)) + remembered(key(x), named=2))
        inputs = [aj.ones(n) for n in SIZES]
        return _seen(remembered, log, [step(x) for x in (*inputs, *inputs[:2])], lambda: None)

    found = program(aj.jit)
    assert found == program(lambda f: f)
    assert not found.leaks


# ---- what it may give


def test_what_was_forgotten_is_computed_anew() -> None:
    def program(j: Jit) -> list[Any]:
        log = _Log()

        class Made:
            @functools.lru_cache  # noqa: B019
            def ones(self, n: int) -> aj.Tensor:
                return log.ones(n)

            @property
            @functools.cache  # noqa: B019
            def one(self) -> aj.Tensor:
                return log.ones(1)

        made = Made()
        step = j(lambda x: x + made.ones(x.shape[0]) + made.one)
        found = [_plain(step(aj.ones(n))) for n in (2, 3, 2)]
        Made.ones.cache_clear()
        found += [_plain(step(aj.ones(n))) for n in (3, 3, 2, 2)]
        Made.one.fget.cache_clear()  # type: ignore[attr-defined]
        found += [_plain(step(aj.ones(n))) for n in (3, 3, 2, 2)]
        return [found, log.runs, Made.ones.cache_info().currsize]

    assert program(aj.jit) == program(lambda f: f)


def test_what_is_remembered_of_tensors_that_the_step_changes() -> None:
    def program(j: Jit) -> list[Any]:
        weight = aj.ones(3)

        @functools.lru_cache
        def total(n: int) -> aj.Tensor:
            return weight[:n].sum()

        def step(x: aj.Tensor) -> aj.Tensor:
            weight.add_(1)
            return x * total(x.shape[0])

        run = j(step)
        return [_plain(run(aj.ones(n))) for n in (2, 3, 2, 3, 1)]

    assert program(aj.jit) == program(lambda f: f)


def test_a_step_that_finds_what_it_asks_for_is_compiled() -> None:
    class Net(nn.Module):
        @functools.lru_cache  # noqa: B019
        def ones(self, n: int) -> aj.Tensor:
            return aj.ones(n)

        def forward(self, x: aj.Tensor) -> aj.Tensor:
            return x + self.ones(x.shape[0])

    step = aj.jit(Net())
    for _ in range(5):
        step(aj.ones(3))
    assert step.stats()["captures"] == 1 and step.stats()["fallbacks"] == 0
