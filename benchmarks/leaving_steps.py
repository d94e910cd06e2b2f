"""Calls that leave a compiled step and come back: gradients read outside, optimisers and backward passes outside,
arguments that take turns, a cache that is decoded. Microseconds a call, beside the step alone.

``python -m benchmarks.leaving_steps``; ``--torch`` measures eager torch's time of the same programs, where installed.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from benchmarks.timing import best_of

SECONDS = 0.3
WARM_UP = 6
SIZES = (2, 200)  # parameters


class Case(NamedTuple):
    """One program.

    Args:
        name: what it does.
        run: one call, with what is done around it.
        alone: the compiled call alone, or what is done outside alone: what the program cannot do without.
        step: the compiled function, whose captures are told; None where the program is eager.
    """

    name: str
    run: Callable[[], Any]
    alone: Callable[[], Any]
    step: Any


def _jit(T: Any) -> Callable[[Any], Any]:
    return T.jit if hasattr(T, "jit") and T.__name__ == "autojit" else lambda function: function


def _training(T: Any, count: int) -> Iterator[Case]:
    """Gradients and optimisers of a few parameters."""
    parameters = [T.nn.Parameter(T.ones(8)) for _ in range(count)]
    optimizer, x = T.optim.SGD(parameters, lr=1e-6), T.ones(8)

    @_jit(T)
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = sum(((p * x).sum() for p in parameters), T.zeros(()))
        loss.backward()
        optimizer.step()
        return loss.detach()

    @_jit(T)
    def gradients(x: Any) -> Any:
        loss = sum(((p * x).sum() for p in parameters), T.zeros(()))
        loss.backward()
        return loss.detach()

    def read() -> None:
        step(x)
        for p in parameters:
            p.grad  # noqa: B018

    def keep() -> None:
        step(x)
        kept[:] = [parameters[0].grad]

    def clear() -> None:
        optimizer.zero_grad()
        gradients(x)

    def update() -> None:
        clear()
        optimizer.step()

    kept: list[Any] = []
    name, alone = f"{count} parameters:", partial(step, x)
    yield Case(f"{name} step, gradients read", read, alone, step)
    yield Case(f"{name} step, zero_grad()", lambda: (step(x), optimizer.zero_grad()), alone, step)
    yield Case(f"{name} step, one gradient kept", keep, alone, step)
    yield Case(f"{name} zero_grad(), gradients", clear, partial(gradients, x), gradients)
    yield Case(f"{name} zero_grad(), gradients, outside step()", update, optimizer.step, gradients)


def _differentiated(T: Any) -> Iterator[Case]:
    """The backward pass outside."""
    w, x = T.nn.Parameter(T.ones(8, 4)), T.ones(32, 8)
    loss_of = _jit(T)(lambda x: (x @ w).square().mean())

    def run() -> None:
        w.grad = None
        loss_of(x).backward()

    def ask() -> None:
        T.autograd.grad(loss_of(x), (w,))

    yield Case("loss outside: forward alone", lambda: loss_of(x), lambda: loss_of(x), loss_of)
    yield Case("loss outside: forward and backward()", run, lambda: loss_of(x), loss_of)
    yield Case("loss outside: forward and autograd.grad()", ask, lambda: loss_of(x), loss_of)
    weights, row = [T.nn.Parameter(T.ones(8)) for _ in range(SIZES[-1])], T.ones(8)
    of_many = _jit(T)(lambda x: sum(((p * x).sum() for p in weights), T.zeros(())))
    name = f"loss outside: {SIZES[-1]} parameters, forward and backward()"
    yield Case(name, lambda: of_many(row).backward(), lambda: of_many(row), of_many)
    hidden_of, head_of = _jit(T)(lambda x: (x @ w).tanh()), _jit(T)(lambda h: h.square().mean())
    yield Case(
        "loss outside: of the result of another function", lambda: head_of(hidden_of(x)).backward(), run, head_of
    )


def _in_turn(T: Any) -> Iterator[Case]:
    """Arguments of two kinds in turn; the time is that of two calls."""
    w = T.ones(8, 4)
    kinds = {
        "two batch sizes": (T.ones(32, 8), T.ones(7, 8)),
        "two ranks": (T.ones(4, 8), T.ones(8)),
    }
    for name, (a, b) in kinds.items():
        step = _jit(T)(lambda x: (x @ w).tanh())
        yield Case(f"{name}, both", partial(_both, step, a, b), partial(step, a), step)


def _both(step: Any, a: Any, b: Any) -> None:
    step(a)
    step(b)


def _decoding(T: Any) -> Iterator[Case]:
    """Sixteen positions of a cache."""
    cache, x, w = T.zeros(16, 8), T.ones(8), T.ones(8, 8)

    @_jit(T)
    def decode(x: Any, position: int) -> Any:
        cache[position] = x @ w
        scores = (cache * x).sum(1).masked_fill(T.arange(16) > position, float("-inf"))
        return scores.softmax(0) @ cache

    def positions() -> None:
        for k in range(16):
            decode(x, k)

    yield Case("decoding, 16 positions", positions, lambda: decode(x, 3), decode)


def _seq2seq(T: Any) -> Iterator[Case]:
    """Sentences in pairs of any two lengths, the second unrolled by Python: twelve pairs a call."""
    nn, width, words = T.nn, 32, 50
    embedding, encoder, cell = nn.Embedding(words, width), nn.GRU(width, width), nn.GRUCell(2 * width, width)
    out = nn.Linear(width, words)
    parameters = [p for module in (embedding, encoder, cell, out) for p in module.parameters()]
    optimizer = T.optim.SGD(parameters, lr=1e-3)

    @_jit(T)
    def step(source: Any, target: Any) -> Any:
        optimizer.zero_grad()
        read, last = encoder(embedding(source))
        state, loss = last[0], T.zeros(())
        for k in range(target.shape[0] - 1):
            context = ((read * state).sum(-1, keepdim=True).softmax(0) * read).sum(0)
            state = cell(T.cat([embedding(target[k]), context], -1), state)
            loss = loss + nn.functional.cross_entropy(out(state), target[k + 1])
        loss.backward()
        optimizer.step()
        return loss.detach()

    lengths = [(5 + 7 * k % 26, 3 + k % 4) for k in range(12)]
    lengths[0] = 4, 4
    pairs = [[T.arange(8 * n).reshape(n, 8) % words for n in pair] for pair in lengths]

    def every() -> None:
        for pair in pairs:
            step(*pair)

    yield Case("seq2seq with lengths, 12 pairs", every, lambda: step(*pairs[1]), step)


def cases(T: Any) -> Iterator[Case]:
    """All of them."""
    for count in SIZES:
        yield from _training(T, count)
    yield from _differentiated(T)
    yield from _in_turn(T)
    yield from _decoding(T)
    yield from _seq2seq(T)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", action="store_true", help="eager torch instead of compiled steps of autojit")
    T = importlib.import_module("torch" if parser.parse_args().torch else "autojit")
    T.set_num_threads(1)
    print(f"{'us':60s} {'call':>9s} {'alone':>9s} captures, calls through Python while timed")
    for case in cases(T):
        for _ in range(WARM_UP):
            case.run()
        stats: dict[str, Any] = getattr(case.step, "stats", dict)()
        run, alone = (1e6 * best_of(f, SECONDS) for f in (case.run, case.alone))
        after: dict[str, Any] = getattr(case.step, "stats", dict)()
        told = f"{after['captures']:8d} {after['python_calls'] - stats['python_calls']:8d}" if after else ""
        print(f"{case.name:60s} {run:9.1f} {alone:9.1f} {told}", flush=True)


if __name__ == "__main__":
    main()
