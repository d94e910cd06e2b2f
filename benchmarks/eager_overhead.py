"""Time per small eager op, with and without recording, in microseconds, with NumPy's own time for the same work beside,
and torch's for the same calls where it is installed.

The budget is 2 us without and 5 us with recording; where NumPy alone exceeds 1 us, NumPy's time and 1 us (4 us with
recording). ``python -m benchmarks.eager_overhead [--only NAME]``.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import timeit
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import autojit

REPEATS, CALLS = 40, 400
WITHOUT_US, WITH_US, OVER_NUMPY_US = 2.0, 5.0, 1.0

Call = Callable[[], Any]


class Case(NamedTuple):
    """The same work on a plain tensor, on one that requires gradients and on NumPy arrays (None: no such form)."""

    plain: Call | None
    recorded: Call | None
    numpy: Call | None


def per_call_us(call: Call) -> float:
    """The fastest of several runs: what the code costs when nothing disturbs it."""
    return min(timeit.repeat(call, number=CALLS, repeat=REPEATS)) / CALLS * 1e6


def cases(aj: Any) -> dict[str, Case]:
    """Ops on 10 elements or 4 x 4 matrices, by the library ``aj`` (autojit, or torch)."""
    x, y, leaf = aj.rand(10), aj.rand(10), aj.rand(10, requires_grad=True)
    m, n, square = aj.rand(4, 4), aj.rand(4, 4), aj.rand(4, 4, requires_grad=True)
    functional, labels = aj.nn.functional, aj.tensor([1, 0, 2, 3])
    weight, bias = aj.rand(4, 4, requires_grad=True), aj.rand(4, requires_grad=True)
    plain_weight, plain_bias = weight.detach(), bias.detach()
    parameter = aj.rand(10, requires_grad=True)
    parameter.grad = aj.rand(10)
    sgd, adam = aj.optim.SGD([parameter], lr=1e-3), aj.optim.Adam([parameter], lr=1e-3)
    a, b, p, q = x.numpy(), y.numpy(), m.numpy(), n.numpy()
    chosen, mask = x > 0.5, a > 0.5
    two = np.float32(2.0)
    return {
        "x + y": Case(lambda: x + y, lambda: leaf + y, lambda: a + b),
        "x * y": Case(lambda: x * y, lambda: leaf * y, lambda: a * b),
        "x * 2.0": Case(lambda: x * 2.0, lambda: leaf * 2.0, lambda: a * two),
        "-x": Case(lambda: -x, lambda: -leaf, lambda: -a),
        "x ** 2": Case(lambda: x**2, lambda: leaf**2, lambda: a * a),
        "x > y": Case(lambda: x > y, None, lambda: a > b),
        "exp": Case(lambda: x.exp(), lambda: leaf.exp(), lambda: np.exp(a)),
        "relu": Case(lambda: x.relu(), lambda: leaf.relu(), lambda: np.maximum(a, 0)),
        "sum": Case(lambda: x.sum(), lambda: leaf.sum(), lambda: np.add.reduce(a)),
        "sum(0)": Case(lambda: m.sum(0), lambda: square.sum(0), lambda: np.add.reduce(p, 0)),
        "mean": Case(lambda: x.mean(), lambda: leaf.mean(), lambda: np.add.reduce(a) / 10),
        "max": Case(lambda: x.max(), lambda: leaf.max(), lambda: np.maximum.reduce(a)),
        "m @ n": Case(lambda: m @ n, lambda: square @ n, lambda: p @ q),
        "where": Case(lambda: aj.where(chosen, x, y), lambda: aj.where(chosen, leaf, y), lambda: np.where(mask, a, b)),
        "cat": Case(lambda: aj.cat((x, y)), lambda: aj.cat((leaf, y)), lambda: np.concatenate((a, b))),
        "stack": Case(lambda: aj.stack((x, y)), lambda: aj.stack((leaf, y)), lambda: np.stack((a, b))),
        "clone": Case(lambda: x.clone(), lambda: leaf.clone(), lambda: a.copy()),
        "detach": Case(lambda: x.detach(), lambda: leaf.detach(), lambda: a.view()),
        "view(2, 5)": Case(lambda: x.view(2, 5), lambda: leaf.view(2, 5), lambda: a.reshape(2, 5)),
        "reshape(2, 5)": Case(lambda: x.reshape(2, 5), lambda: leaf.reshape(2, 5), lambda: a.reshape(2, 5)),
        "transpose(0, 1)": Case(lambda: m.transpose(0, 1), lambda: square.transpose(0, 1), lambda: p.swapaxes(0, 1)),
        "unsqueeze(0)": Case(lambda: x.unsqueeze(0), lambda: leaf.unsqueeze(0), lambda: a[None]),
        "m[0]": Case(lambda: m[0], lambda: square[0], lambda: p[0]),
        "m[:, 1:3]": Case(lambda: m[:, 1:3], lambda: square[:, 1:3], lambda: p[:, 1:3]),
        "x.add_(y)": Case(lambda: x.add_(y), None, lambda: np.add(a, b, out=a)),
        "x.mul_(0.5)": Case(lambda: x.mul_(0.5), None, lambda: np.multiply(a, 0.5, out=a)),
        "x.item()": Case(lambda: x[0].item(), None, lambda: a[0].item()),
        "softmax": Case(lambda: functional.softmax(m, -1), lambda: functional.softmax(square, -1), None),
        "log_softmax": Case(lambda: functional.log_softmax(m, -1), lambda: functional.log_softmax(square, -1), None),
        "gelu": Case(lambda: functional.gelu(x), lambda: functional.gelu(leaf), None),
        "linear": Case(
            lambda: functional.linear(m, plain_weight, plain_bias), lambda: functional.linear(m, weight, bias), None
        ),
        "mse_loss": Case(lambda: functional.mse_loss(x, y), lambda: functional.mse_loss(leaf, y), None),
        "cross_entropy": Case(
            lambda: functional.cross_entropy(m, labels), lambda: functional.cross_entropy(square, labels), None
        ),
        "SGD.step": Case(sgd.step, None, None),
        "Adam.step": Case(adam.step, None, None),
        "40 ops and backward": Case(None, lambda: chain(leaf, y), None),
    }


def chain(leaf: Any, factor: Any) -> None:
    """Twenty products and sines, their sum, and the pass back through these 41 nodes."""
    z = leaf
    for _ in range(20):
        z = (z * factor).sin()
    z.sum().backward()
    leaf.grad = None


def budgets_us(numpy_us: float) -> tuple[float, float]:
    """What a call may take without and with recording."""
    over = max(0.0, numpy_us + OVER_NUMPY_US - WITHOUT_US)
    return WITHOUT_US + over, WITH_US + over


def row(name: str, ours: Case, torchs: Case | None) -> str:
    """One line of the table; what exceeds its budget (of the single ops that NumPy has too) is starred."""
    numpy_us = None if ours.numpy is None else per_call_us(ours.numpy)
    budgets = (np.inf, np.inf) if numpy_us is None else budgets_us(numpy_us)
    cells = ["" if numpy_us is None else f"{numpy_us:.2f}"]
    for place, budget in enumerate(budgets):
        call = ours[place]
        time_us = None if call is None else per_call_us(call)
        cells.append("" if time_us is None else f"{time_us:.2f}{'*' if time_us > budget else ''}")
        other = None if torchs is None else torchs[place]
        cells.append("" if other is None else f"{per_call_us(other):.2f}")
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="the one op to time")
    only = parser.parse_args().only
    peers: dict[str, Case] = {}
    if importlib.util.find_spec("torch") is not None:
        torch = importlib.import_module("torch")
        torch.set_num_threads(1)
        peers = cases(torch)
    print("| op | NumPy us | us | torch us | us, recorded | torch us, recorded |\n|---|---|---|---|---|---|")
    for name, case in cases(autojit).items():
        if only in (None, name):
            print(row(name, case, peers.get(name)), flush=True)


if __name__ == "__main__":
    main()
