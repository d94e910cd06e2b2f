"""What a call draws follows what Python holds at that call: nothing more is drawn, and from what is there.

Each program makes calls and changes its environment between them; run eagerly and compiled from one start, results and
what the generators and iterators give afterwards must be the same.
"""

from __future__ import annotations

import itertools
import operator
import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import autojit as aj

Jit = Callable[[Callable[..., Any]], Any]
Program = Callable[[Jit], Iterator[Any]]


def noise_that_is_switched_off(jit: Jit) -> Iterator[Any]:
    flags = {"noise": True}

    def step(x: aj.Tensor) -> aj.Tensor:
        return x * random.random() if flags["noise"] else x + 1

    step = jit(step)
    for flags["noise"] in (True, True, False, False, True, False):
        yield step(aj.ones(2))
        yield random.random()


def noise_in_training_mode(jit: Jit) -> Iterator[Any]:
    rng = np.random.default_rng(0)

    class Noisy(aj.nn.Module):
        def forward(self, x: aj.Tensor) -> aj.Tensor:
            return x + rng.normal() if self.training else x

    model = Noisy()
    step = jit(model)
    for mode in (True, False, False, True):
        model.train(mode)
        yield step(aj.ones(2))
    yield rng.normal()


def an_iterator_for_every_epoch(jit: Jit) -> Iterator[Any]:
    data = [aj.ones(2) * k for k in range(3)]
    holder = SimpleNamespace(items=None)
    step = jit(lambda: next(holder.items) * 2)
    for _ in range(70):  # epochs need no captures of their own
        holder.items = iter(data)
        yield [step() for _ in data]
    with pytest.raises(StopIteration):
        step()


def an_end_that_is_caught(jit: Jit) -> Iterator[Any]:
    holder = SimpleNamespace(items=iter([1.0, 2.0]))

    def step(x: aj.Tensor) -> aj.Tensor:
        try:
            return x * next(holder.items)
        except StopIteration:
            return x * -1

    step = jit(step)
    for k in range(8):
        yield step(aj.ones(2))
        if k == 4:
            holder.items = iter([5.0, 6.0])


def a_loader_that_starts_again_by_itself(jit: Jit) -> Iterator[Any]:
    holder = SimpleNamespace(items=iter([1.0, 2.0]), epoch=0)

    def step(x: aj.Tensor) -> aj.Tensor:
        try:
            value = next(holder.items)
        except StopIteration:
            holder.items, holder.epoch = iter([1.0, 2.0]), holder.epoch + 1
            value = next(holder.items)
        return x * value

    step = jit(step)
    for _ in range(7):
        yield step(aj.ones(2)), holder.epoch


def autojits_own_loader(jit: Jit) -> Iterator[Any]:
    loader = aj.utils.data.DataLoader(aj.utils.data.TensorDataset(aj.arange(8.0).reshape(4, 2)), batch_size=2)
    holder = SimpleNamespace(items=iter(loader))
    step = jit(lambda: next(holder.items)[0].sum())
    for k in range(4):
        yield step()
        if k == 1:
            holder.items = iter(loader)


def generators_that_compute(jit: Jit) -> Iterator[Any]:
    def batches() -> Iterator[aj.Tensor]:
        for k in itertools.count():
            yield aj.ones(2) * k + random.random()

    items, count = batches(), itertools.count(10)
    step = jit(lambda x: x * next(count) + next(items))
    for _ in range(4):
        yield step(aj.ones(2))
    yield next(count), next(items), random.random()


def generators_that_are_replaced(jit: Jit) -> Iterator[Any]:
    holder = SimpleNamespace(rng=np.random.default_rng(0), own=random.Random(1))
    step = jit(lambda x: x + holder.rng.normal() + holder.own.random())
    for k in range(6):
        yield step(aj.ones(2))
        if k % 2:
            holder.rng, holder.own = np.random.default_rng(k), random.Random(k)
    yield holder.rng.normal(), holder.own.random()


def draws_that_depend_on_draws(jit: Jit) -> Iterator[Any]:
    chance = {"p": 0.5}

    def act(x: aj.Tensor) -> Any:
        return random.randrange(100) if random.random() < chance["p"] else x.sum().item()

    act = jit(act)
    for k in range(12):
        chance["p"] = 0.5 if k < 8 else 0.1
        yield act(aj.ones(2) * k)
    yield random.random()


def draws_that_depend_on_results(jit: Jit) -> Iterator[Any]:
    def step(x: aj.Tensor) -> aj.Tensor:
        y = x.sum()
        if y > 3:
            y = y + random.random()
        return y * random.random()

    step = jit(step)
    for v in (1.0, 5.0, 1.0, 2.0, 6.0):
        yield step(aj.ones(2) * v)
    yield random.random()


def as_many_as_rows(jit: Jit) -> Iterator[Any]:
    def step(x: aj.Tensor) -> aj.Tensor:
        mixed = x[np.random.permutation(len(x))] * np.random.beta(0.4, 0.4)
        return mixed + aj.from_numpy(np.random.randn(*x.shape)).float() + sum(random.random() for _ in x)

    step = jit(step)
    for n in (4, 4, 6, 3, 4, 6, 2, 8):
        yield step(aj.arange(2.0 * n).reshape(n, 2))
    yield random.random(), np.random.rand()


def spread_that_the_step_changes(jit: Jit) -> Iterator[Any]:
    holder = SimpleNamespace(spread=1.0)

    def step(x: aj.Tensor) -> aj.Tensor:
        noise = random.uniform(-holder.spread, holder.spread)
        holder.spread *= 0.9
        return x + noise

    step = jit(step)
    for _ in range(6):
        yield step(aj.ones(2)), holder.spread


def flags_and_chances_as_arguments(jit: Jit) -> Iterator[Any]:
    def step(x: aj.Tensor, train: bool = True, p: float = 0.5) -> aj.Tensor:
        return x * (random.random() > p) if train and p > 0 else x

    step = jit(step)
    for train, p in ((True, 0.5), (False, 0.5), (True, 0.5), (True, 0.0), (False, 0.0), (True, 0.9), (True, 0.2)):
        yield step(aj.ones(2), train, p=p)
    yield random.random()


def choices_among_objects(jit: Jit) -> Iterator[Any]:
    functions = [aj.sin, aj.cos, aj.tanh]
    step = jit(lambda x: (random.choice(functions)(x), random.choice(["a", "b"]), random.sample(range(5), 2)))
    for _ in range(5):
        yield step(aj.ones(2))
    functions.append(aj.exp)
    yield step(aj.ones(2)), random.random()


PROGRAMS: tuple[Program, ...] = (
    noise_that_is_switched_off, noise_in_training_mode, an_iterator_for_every_epoch, an_end_that_is_caught,
    a_loader_that_starts_again_by_itself, autojits_own_loader, generators_that_compute, generators_that_are_replaced,
    draws_that_depend_on_draws, draws_that_depend_on_results, as_many_as_rows, spread_that_the_step_changes,
    flags_and_chances_as_arguments, choices_among_objects,
)  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=operator.attrgetter("__name__"))
def test_a_call_draws_what_eager_mode_would_draw(program: Program) -> None:
    found = []
    for jit in (lambda f: f, aj.jit):
        random.seed(3)
        np.random.seed(3)
        found.append([_plain(value) for value in program(jit)])
    for eager, compiled in zip(*found, strict=True):
        _agree(eager, compiled)


def _plain(value: Any) -> Any:
    if isinstance(value, aj.Tensor):
        return value.tolist()
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value


def _agree(a: Any, b: Any) -> None:
    if isinstance(a, list):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            _agree(x, y)
    else:
        assert a == (b if isinstance(b, str) else pytest.approx(b, rel=1e-6))  # float32


def test_a_step_whose_generator_was_replaced_is_not_captured_again() -> None:
    holder = SimpleNamespace(rng=np.random.default_rng(0))
    step = aj.jit(lambda x: x + holder.rng.random())
    for k in range(6):
        step(aj.ones(2))
        holder.rng = np.random.default_rng(k)
    assert step.stats()["captures"] == 1
    holder.rng = random.Random(0)
    assert step(aj.ones(1)).item() == pytest.approx(1 + random.Random(0).random())
    assert step.stats()["captures"] == 2


MADE = {
    "default_rng": lambda *seed: np.random.default_rng(*seed).random(),
    "RandomState": lambda *seed: np.random.RandomState(*seed).rand(),
    "bit generator": lambda *seed: np.random.Generator(np.random.PCG64(*seed)).random(),
    "seed sequence": lambda *seed: np.random.default_rng(np.random.SeedSequence(*seed)).random(),
    "Random": lambda *seed: random.Random(*seed).random(),
}


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_a_generator_made_in_a_step_without_a_seed_is_another_one_at_every_call(made: Callable[..., float]) -> None:
    for seed in ((), (None,)):
        step = aj.jit(lambda x, seed=seed: x + made(*seed))
        assert len({step(aj.ones(1)).item() for _ in range(20)}) > 15
        assert "without a seed" in step.explain()
    step = aj.jit(lambda x: x + made(3))
    assert [step(aj.ones(1)).item() for _ in range(3)] == [(aj.ones(1) + made(3)).item()] * 3
    step = aj.jit(lambda x: x + random.SystemRandom(3).random())
    assert len({step(aj.ones(1)).item() for _ in range(20)}) > 15
