"""Programs whose steps can fail, with arguments for which they do; all they can reach is in ``seen``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import autojit as aj
from autojit import nn
from autojit.control_flow import cond, scan, while_loop

F = nn.functional


class Program(NamedTuple):
    """A step, arguments that are fine, arguments that are not, and everything that a call may change."""

    step: Callable[..., Any]
    good: tuple[Any, ...]
    bad: list[tuple[Any, ...]]
    seen: list[Any]
    is_dynamic: bool = False


def i(*values: int) -> aj.Tensor:
    return aj.tensor([int(v) for v in values])


def ramp(*shape: int) -> aj.Tensor:
    return (aj.arange(aj.Size(shape).numel()).reshape(shape) % 7 - 3.0) / 4


def sgd_by_hand() -> Program:
    p, w = nn.Parameter(ramp(4)), ramp(6)

    def step(index: Any) -> Any:
        with aj.no_grad():
            p.sub_(0.1 * w[index])
        return p.sum().detach()

    return Program(step, (i(0, 1, 5, 3),), [(i(0, 1, 6, 3),), (i(-7, 1, 2, 3),)], [p, w])


def sgd() -> Program:
    p = nn.Parameter(ramp(6))
    optimiser = aj.optim.SGD([p], lr=0.1, momentum=0.9)

    def step(index: Any) -> Any:
        optimiser.zero_grad()
        loss = (p[index] ** 2).sum()
        loss.backward()
        optimiser.step()
        return loss.detach()

    return Program(step, (i(0, 1, 5),), [(i(0, 1, 6),)], [p, optimiser])


def language_model() -> Program:
    table, head = nn.Embedding(7, 4), nn.Linear(4, 5)
    norm = nn.BatchNorm1d(4)
    optimiser = aj.optim.Adam([*table.parameters(), *norm.parameters(), *head.parameters()], lr=0.1)

    def step(words: Any, classes: Any) -> Any:
        optimiser.zero_grad()
        loss = F.cross_entropy(head(aj.relu(norm(table(words)))), classes)
        loss.backward()
        optimiser.step()
        return loss.detach()

    bad = [(i(0, 7, 1), i(0, 4, 1)), (i(0, 6, 1), i(0, 5, 1)), (i(0, -1, 1), i(0, 4, 1))]
    return Program(step, (i(0, 6, 1), i(0, 4, 1)), bad, [table, norm, head, optimiser])


def gradients_only() -> Program:
    table, head = nn.Embedding(7, 4), nn.Linear(4, 5)

    def step(words: Any, classes: Any) -> Any:
        table.weight.grad = head.weight.grad = head.bias.grad = None
        loss = F.cross_entropy(head(table(words)), classes)
        loss.backward()
        return loss.detach()

    return Program(step, (i(0, 6, 1), i(0, 4, 1)), [(i(0, 7, 1), i(0, 4, 1)), (i(0, 6, 1), i(0, 5, 1))], [table, head])


def accumulated_gradients() -> Program:
    table, head = nn.Embedding(7, 4), nn.Linear(4, 5)

    def step(words: Any, classes: Any) -> Any:
        loss = F.cross_entropy(head(table(words)), classes)
        loss.backward()
        return loss.detach()

    return Program(step, (i(0, 6, 1), i(0, 4, 1)), [(i(0, 7, 1), i(0, 4, 1)), (i(0, 6, 1), i(0, 5, 1))], [table, head])


def replaced_gradients() -> Program:
    p = nn.Parameter(ramp(5))
    p.grad = aj.ones(5)

    def step(index: Any) -> Any:
        old = p.grad
        old.mul_(0.5)
        p.grad = None
        (p * p[index]).sum().backward()
        with aj.no_grad():
            p.sub_(0.1 * old)

    return Program(step, (i(0, 1, 2, 4, 3),), [(i(0, 1, 2, 5, 3),)], [p])


def arguments_in_place() -> Program:
    x, y, table = ramp(4), ramp(6), ramp(5)

    def step(x: Any, y: Any, index: Any) -> Any:
        x.add_(table[index])
        y[index] = x
        return y.sum()

    return Program(step, (x, y, i(0, 4, 2, 1)), [(x, y, i(0, 5, 2, 1)), (x, y, i(0, -6, 2, 1))], [x, y, table])


def cache_in_place() -> Program:
    cache, places = aj.zeros(8, 3), aj.zeros(1).long()

    def step(index: Any, rows: Any, other: Any) -> Any:
        cache[index] = rows
        read = aj.softmax(cache, 0)
        cache.index_add_(0, other, read[index])
        places.add_(1)
        return read[other].sum()

    good = (i(1, 5), ramp(2, 3), i(0, 7))
    return Program(step, good, [(i(1, 8), *good[1:]), (*good[:2], i(0, 8)), (*good[:2], i(-9, 1))], [cache, places])


def cache_at_a_place() -> Program:
    cache, place = aj.zeros(99, 2), aj.zeros(1).long()

    def step(row: Any, by: Any) -> Any:
        place.add_(by)
        cache[place] = row
        return cache.sum()

    return Program(step, (ramp(1, 2), i(1)), [(ramp(1, 2), i(99))], [cache, place])


def draws_behind_a_cache() -> Program:
    cache = aj.zeros(8, 3)

    def step(index: Any, row: Any) -> Any:
        cache.index_copy_(0, index, row)
        weights = cache.sum(1)
        return weights.multinomial(2)

    return Program(step, (i(1, 5), aj.ones(2, 3)), [(i(1, 5), -aj.ones(2, 3)), (i(1, 8), aj.ones(2, 3))], [cache])


def two_updates() -> Program:
    p, table = nn.Parameter(ramp(5)), ramp(9, 5)
    optimiser = aj.optim.SGD([p], lr=0.1)

    def step(first: Any, second: Any) -> Any:
        for index in (first, second):
            optimiser.zero_grad()
            loss = ((table[index] * p).sum(1) ** 2).mean()
            loss.backward()
            optimiser.step()
        return (p[second % 5] ** 2).sum().detach()

    return Program(step, (i(0, 8), i(1, 2)), [(i(9, 0), i(1, 2)), (i(0, 8), i(1, 9))], [p, optimiser, table])


def moving_average() -> Program:
    p, shadow, count = nn.Parameter(ramp(5)), aj.zeros(5), aj.zeros(()).long()

    def step(divisor: Any, index: Any) -> Any:
        with aj.no_grad():
            count.add_(1)
            p.add_(0.1 * (count // divisor))
            shadow.mul_(0.9).add_(0.1 * p)
        return shadow[index].sum()

    good = (aj.tensor(2), i(0, 4))
    return Program(step, good, [(aj.tensor(0), good[1]), (good[0], i(0, 5))], [p, shadow, count])


def probabilities() -> Program:
    layer, seen = nn.Linear(3, 2), aj.zeros(2)
    optimiser = aj.optim.RMSprop(layer.parameters(), lr=0.01)

    def step(x: Any, p: Any) -> Any:
        optimiser.zero_grad()
        out = layer(x)
        seen.add_(out.detach().sum(0))
        loss = F.binary_cross_entropy(p * aj.sigmoid(out), aj.ones(4, 2))
        loss.backward()
        optimiser.step()
        return loss.detach()

    return Program(step, (ramp(4, 3), aj.ones(())), [(ramp(4, 3), aj.tensor(9.0))], [layer, seen, optimiser])


def loop_over_state() -> Program:
    state, table = aj.zeros(3), ramp(5, 3)

    def step(index: Any) -> Any:
        def body(carry: Any, k: Any) -> tuple[Any, Any]:
            new = 0.5 * carry + table[k]
            return new, new.sum()

        last, sums = scan(body, state.clone(), index)
        state.copy_(last)
        return sums

    return Program(step, (i(0, 1, 4, 2),), [(i(0, 1, 4, 5),), (i(5, 1, 4, 0),)], [state, table])


def open_loop() -> Program:
    state, done = aj.ones(2).long(), aj.zeros(())

    def step(rounds: Any, divisor: Any) -> Any:
        def body(k: Any, x: Any) -> tuple[Any, Any]:
            return k + 1, x + 7 // (divisor - k)

        done.add_(1)
        _, x = while_loop(lambda k, x: k < rounds, body, (aj.zeros(()).long(), state.clone()))
        state.copy_(x)
        return x.sum()

    good = (aj.tensor(3), aj.tensor(9))
    return Program(step, good, [(aj.tensor(3), aj.tensor(2)), (aj.tensor(3), aj.tensor(0))], [state, done])


def branches() -> Program:
    state, table = aj.zeros(3), ramp(5)

    def step(index: Any, flag: Any) -> Any:
        new = cond(flag.sum() > 0, lambda s: s + table[index], lambda s: s - 1, (state.clone(),))
        state.copy_(new)
        return new.sum()

    good = (i(0, 4, 1), i(1))
    return Program(step, good, [(i(0, 5, 1), i(1))], [state, table])


def counted() -> Program:
    p, table, seen = nn.Parameter(ramp(6)), ramp(6), aj.zeros(())
    optimiser = aj.optim.SGD([p], lr=0.1)

    def step(x: Any, index: Any) -> Any:
        optimiser.zero_grad()
        seen.add_(1)
        chosen = x[x > 0]
        loss = (chosen.sum() * p).sum() + (p[index] * table[index]).sum()
        loss.backward()
        optimiser.step()
        return loss.detach()

    good = (ramp(5), i(0, 5, 1))
    return Program(step, good, [(good[0], i(0, 6, 1))], [p, table, seen, optimiser])


def open_sizes() -> Program:
    table, total = nn.Embedding(7, 4), aj.zeros(4)
    optimiser = aj.optim.Adam(table.parameters(), lr=0.1)

    def step(words: Any) -> Any:
        optimiser.zero_grad()
        rows = table(words)
        total.add_(rows.detach().sum(0))
        loss = (rows**2).mean()
        loss.backward()
        optimiser.step()
        return loss.detach()

    return Program(step, (i(0, 6, 1),), [(i(0, 7, 1),), (i(0, 7, 1, 2, 3),)], [table, total, optimiser], True)


def callbacks() -> Program:
    p, count = nn.Parameter(aj.eye(3) * 2), aj.zeros(())
    optimiser = aj.optim.SGD([p], lr=0.01)

    def step(x: Any) -> Any:
        optimiser.zero_grad()
        count.add_(1)
        loss = aj.linalg.inv(p @ x).sum()
        loss.backward()
        optimiser.step()
        return loss.detach()

    return Program(step, (aj.eye(3),), [(aj.zeros(3, 3),)], [p, count, optimiser])


def callbacks_and_gradients() -> Program:
    p = nn.Parameter(aj.eye(3) * 2)

    def step(x: Any, y: Any) -> Any:
        p.grad = None
        ((p * 2).sum() + aj.linalg.inv(p @ x).sum()).backward()
        return aj.linalg.inv(y).sum()

    return Program(step, (aj.eye(3), aj.eye(3)), [(aj.zeros(3, 3), aj.eye(3)), (aj.eye(3), aj.zeros(3, 3))], [p])


def many_chunks() -> Program:
    n = 1 << 17
    p, w, total = nn.Parameter(ramp(n)), ramp(n), aj.zeros(())
    optimiser = aj.optim.SGD([p], lr=0.1, momentum=0.5)

    def step(index: Any, divisor: Any) -> Any:
        optimiser.zero_grad()
        loss = (p * w[index]).sum()
        loss.backward()
        optimiser.step()
        with aj.no_grad():
            total.add_((index // divisor).sum())
            p.add_(w[(index + 1) % n] * 1e-3)
        return loss.detach()

    index, ones = aj.arange(n), aj.ones(n).long()
    wrong, zero = index.clone(), ones.clone()
    wrong[n - 3] = n
    zero[n - 2] = 0
    return Program(step, (index, ones), [(wrong, ones), (index, zero)], [p, w, total, optimiser])


def differentiable_results() -> Program:
    p, seen, table = nn.Parameter(ramp(4)), aj.zeros(4), ramp(5)

    def step(x: Any, index: Any) -> Any:
        y = p * table[index] * x
        seen.add_(y.detach())
        return y.sum()

    return Program(step, (ramp(4), i(0, 1, 4, 2)), [(ramp(4), i(0, 1, 5, 2))], [p, seen, table])


def decided() -> Program:
    p, count = nn.Parameter(ramp(4)), aj.zeros(())
    optimiser = aj.optim.SGD([p], lr=0.1)

    def step(x: Any, index: Any) -> Any:
        optimiser.zero_grad()
        count.add_(1)
        loss = (p * x).sum()
        if loss.item() > 100:
            loss = loss / 2
        loss = loss + p[index].sum()
        loss.backward()
        optimiser.step()
        return loss.detach()

    return Program(step, (ramp(4), i(0, 3)), [(ramp(4), i(0, 4)), (ramp(4) * 1e6, i(0, 4))], [p, count, optimiser])


def containers() -> Program:
    p, log, losses = nn.Parameter(ramp(4)), {"calls": 0}, []

    def step(index: Any) -> Any:
        with aj.no_grad():
            p.mul_(0.9)
        loss = p[index].sum().detach()
        losses.append(loss)
        log["calls"] += 1
        return loss

    return Program(step, (i(0, 3),), [(i(0, 4),)], [p, log, losses])


def dropout() -> Program:
    layer, table = nn.Linear(4, 4), nn.Embedding(5, 4)
    optimiser = aj.optim.AdamW([*layer.parameters(), *table.parameters()], lr=0.1)

    def step(words: Any, classes: Any) -> Any:
        optimiser.zero_grad()
        loss = F.cross_entropy(F.dropout(layer(table(words)), 0.5), classes)
        loss.backward()
        optimiser.step()
        return loss.detach()

    return Program(step, (i(0, 4), i(0, 3)), [(i(0, 5), i(0, 3)), (i(0, 4), i(0, 4))], [layer, table, optimiser])


def views_of_state() -> Program:
    state, turned, half = aj.zeros(3, 4), aj.zeros(4, 3).t(), aj.zeros(6).bfloat16()

    def step(rows: Any, places: Any, mask: Any) -> Any:
        state[0].add_(1)
        state.view(-1)[places] = 2.0
        turned[rows] += state[rows]
        state[mask > 0] = 0.5
        half[places[:2]] *= 1.5
        return turned.sum()

    good = (i(0, 2), i(0, 5), i(1, 0, 1))
    return Program(
        step,
        good,
        [(i(0, 3), *good[1:]), (good[0], i(0, 12), good[2]), (good[0], i(9, 1), good[2])],
        [state, turned, half],
    )


def scattered_by_a_mask() -> Program:
    state, count = aj.zeros(4), aj.zeros(4)

    def step(mask: Any, values: Any) -> Any:
        count.add_(mask > 0)
        state.masked_scatter_(mask > 0, values)
        return state.sum()

    return Program(step, (i(1, 0, 1, 0), ramp(2)), [(i(1, 1, 1, 0), ramp(2))], [state, count])


def numpy_arguments() -> Program:
    x, table = ramp(4).numpy(), ramp(5)

    def step(x: Any, index: Any) -> Any:
        x += table[index]
        return x.sum()

    return Program(step, (aj.from_numpy(x), i(0, 1, 4, 2)), [(aj.from_numpy(x), i(0, 1, 5, 2))], [aj.from_numpy(x)])


class Counting(nn.Module):
    """Attributes that every call replaces."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.last, self.hidden = 0, None, aj.zeros(3)
        self.table = nn.Embedding(5, 3)

    def forward(self, index: Any) -> Any:
        self.calls += 1
        self.hidden = 0.5 * self.hidden + self.table(index).detach().sum(0)
        self.last = self.hidden.sum()
        return self.hidden * 2


def attributes() -> Program:
    module = Counting()
    return Program(lambda index: module(index), (i(0, 4),), [(i(0, 5),)], [module, Seen(module)])


class Seen:
    """The attributes of a module that are not its parameters."""

    def __init__(self, module: Counting) -> None:
        self.module = module

    def facts(self) -> list[Any]:
        return [self.module.calls, self.module.last, self.module.hidden]


def refused_by_python() -> Program:
    p, count = nn.Parameter(ramp(4)), aj.zeros(())
    optimiser = aj.optim.SGD([p], lr=0.1, momentum=0.5)

    def step(x: Any, index: Any) -> Any:
        optimiser.zero_grad()
        count.add_(1)
        loss = (p * x).sum() ** 2
        loss.backward()
        optimiser.step()
        if not aj.isfinite(loss):
            raise ValueError("the loss is not finite")
        return p[index].sum().detach()

    good = (ramp(4), i(0, 3))
    return Program(step, good, [(ramp(4) * float("nan"), good[1]), (good[0], i(0, 4))], [p, count, optimiser])


def recurrent() -> Program:
    table, cell, head = nn.Embedding(6, 3), nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 5)
    optimiser = aj.optim.Adam([*table.parameters(), *cell.parameters(), *head.parameters()], lr=0.1)
    hidden = aj.zeros(1, 2, 4), aj.zeros(1, 2, 4)

    def step(words: Any, classes: Any) -> Any:
        optimiser.zero_grad()
        rows, left = cell(table(words), tuple(state.clone() for state in hidden))
        for state, new in zip(hidden, left, strict=True):
            state.copy_(new.detach())
        loss = F.cross_entropy(head(rows[:, -1]), classes)
        loss.backward()
        nn.utils.clip_grad_norm_(cell.parameters(), 1.0)
        optimiser.step()
        return loss.detach()

    words, classes = aj.tensor([[0, 5, 1], [2, 2, 3]]), i(0, 4)
    bad = [(words + 1, classes), (words, i(0, 5))]
    return Program(step, (words, classes), bad, [table, cell, head, hidden, optimiser])


def scheduled() -> Program:
    p = nn.Parameter(ramp(4))
    optimiser = aj.optim.SGD([p], lr=0.1, nesterov=True, momentum=0.9)
    rates = aj.optim.lr_scheduler.StepLR(optimiser, 2)

    def step(index: Any) -> Any:
        optimiser.zero_grad()
        loss = (p[index] ** 2).sum()
        loss.backward()
        optimiser.step()
        rates.step()
        return loss.detach()

    return Program(step, (i(0, 3),), [(i(0, 4),)], [p, optimiser, rates])


def own_generator() -> Program:
    generator, p = aj.Generator().manual_seed(5), nn.Parameter(ramp(4))

    def step(index: Any) -> Any:
        with aj.no_grad():
            p.add_(0.1 * aj.rand(4, generator=generator))
        return p[index].sum().detach()

    return Program(step, (i(0, 3),), [(i(0, 4),)], [p, generator])


def tied() -> Program:
    table, head = nn.Embedding(6, 3), nn.Linear(3, 6, bias=False)
    head.weight = table.weight
    optimiser = aj.optim.Adagrad(table.parameters(), lr=0.1)

    def step(words: Any) -> Any:
        optimiser.zero_grad()
        loss = F.cross_entropy(head(table(words[:-1])), words[1:])
        loss.backward()
        optimiser.step()
        return loss.detach()

    return Program(step, (i(0, 5, 1, 2),), [(i(0, 6, 1, 2),), (i(0, 5, 1, 6),), (i(0, -1, 1, 3),)], [table, optimiser])


def watched_for_anomalies() -> Program:
    p, seen = nn.Parameter(ramp(4)), aj.zeros(())
    optimiser = aj.optim.SGD([p], lr=0.1)

    def step(x: Any, index: Any) -> Any:
        optimiser.zero_grad()
        seen.add_(1)
        with aj.autograd.detect_anomaly(check_nan=True):
            loss = (aj.sqrt(x) * p).sum() + p[index].sum()
            loss.backward()
        optimiser.step()
        return loss.detach()

    good = (aj.ones(4), i(0, 3))
    return Program(step, good, [(-aj.ones(4), good[1]), (good[0], i(0, 4))], [p, seen, optimiser])


PROGRAMS: dict[str, Callable[[], Program]] = {
    program.__name__: program
    for program in (
        sgd_by_hand, sgd, language_model, gradients_only, accumulated_gradients, replaced_gradients, arguments_in_place,
        cache_in_place, cache_at_a_place, draws_behind_a_cache, two_updates, moving_average, probabilities,
        loop_over_state, open_loop, branches, counted, open_sizes, callbacks, callbacks_and_gradients, many_chunks,
        differentiable_results, decided, containers, dropout, views_of_state, scattered_by_a_mask, numpy_arguments,
        attributes, refused_by_python, recurrent, scheduled, own_generator, tied, watched_for_anomalies,
    )
}  # fmt: skip
