"""Small programs that use the whole product: training steps, derivatives of higher order, loops over grids.

A program is built afresh for each run: ``build(size)`` gives a step, its arguments and the state it updates, always
with the same numbers. Only the public interface is used, as in a user's script.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

import autojit as aj
from autojit import nn, optim
from autojit.nn import functional as F

Size = Literal["tiny", "medium"]
STEPS = 20


@dataclass
class Run:
    """A step with what it is called with and what it updates."""

    step: Callable[..., Any]
    args: tuple[Any, ...]
    state: Sequence[Any] = ()


@dataclass(frozen=True)
class Program:
    """A named program; ``rtol`` is how far compiled and eager results may lie apart after ``STEPS`` steps."""

    build: Callable[[Size], Run]
    rtol: float = 1e-4
    captures: int = 1


def leaf(array: Any) -> Any:
    return aj.tensor(array).requires_grad_(True)


def training(loss_of: Callable[..., Any], parameters: Sequence[Any], optimizer: Any, args: tuple[Any, ...]) -> Run:
    """The usual step: gradients cleared, loss, backward, update."""

    def step(*args: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(*args)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Run(step, args, tuple(parameters))


def random_parameters(rng: np.random.Generator, shapes: Sequence[tuple[int, ...]], dtype: str = "float32") -> list[Any]:
    """Weights scaled by their fan-in, vectors small."""
    return [leaf((rng.normal(size=s) / np.sqrt(s[-1])).astype(dtype)) for s in shapes]


def mlp(kind: str, **options: Any) -> Callable[[Size], Run]:
    """A perceptron with ReLU and cross-entropy, trained by the optimiser ``kind``."""

    def build(size: Size) -> Run:
        inputs, hidden, batch = (6, 8, 5) if size == "tiny" else (64, 96, 130)
        rng = np.random.default_rng(0)
        aj.manual_seed(0)
        model = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, 10))
        x = aj.tensor(rng.normal(size=(batch, inputs)).astype(np.float32))
        y = aj.tensor(rng.integers(0, 10, batch))
        parameters = list(model.parameters())
        optimizer = getattr(optim, kind)(parameters, **options)
        return training(lambda x, y: F.cross_entropy(model(x), y), parameters, optimizer, (x, y))

    return build


class Block(nn.Module):
    """Causal attention and a GELU layer, each behind a layer norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.width = heads, width
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        # No bias: adding one number to all keys changes nothing, so its gradient is rounding noise that AdamW blows up.
        self.qkv, self.proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def split_heads(self, x: Any) -> Any:
        batch, context, _ = x.shape
        return x.view(batch, context, self.heads, self.width // self.heads).transpose(1, 2)

    def forward(self, x: Any) -> Any:
        q, k, v = map(self.split_heads, self.qkv(self.norm1(x)).split(self.width, dim=2))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        x = x + self.proj(mixed)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """Token and position embeddings, one block, the head."""

    def __init__(self, vocabulary: int, context: int, width: int, heads: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.block, self.norm = Block(width, heads), nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Any, positions: Any) -> Any:
        return self.head(self.norm(self.block(self.tokens(tokens) + self.positions(positions))))


def gpt(size: Size) -> Run:
    batch, context, width, heads, vocabulary = (2, 5, 8, 2, 7) if size == "tiny" else (6, 24, 32, 4, 30)
    rng = np.random.default_rng(0)
    aj.manual_seed(0)
    model = Gpt(vocabulary, context, width, heads)
    x, y = (aj.tensor(a) for a in rng.integers(0, vocabulary, (2, batch, context)))
    positions = aj.arange(context)
    parameters = list(model.parameters())

    def loss(x: Any, y: Any) -> Any:
        return F.cross_entropy(model(x, positions).reshape(-1, vocabulary), y.reshape(-1))

    return training(loss, parameters, optim.AdamW(parameters, lr=1e-3, weight_decay=0.1), (x, y))


def pinn(dtype: str, by_backward: bool = False) -> Callable[[Size], Run]:
    """Burgers' equation: second derivatives of a network in the loss, so third ones in the step.

    ``by_backward``: as most scripts write it; the points then gather gradients of their own, which nobody clears.
    """

    def build(size: Size) -> Run:
        points, width, depth = (7, 4, 2) if size == "tiny" else (600, 12, 4)
        rng = np.random.default_rng(0)
        shapes: list[tuple[int, ...]] = [(width, 2), (width,)]
        shapes += [(width, width), (width,)] * (depth - 1) + [(1, width), (1,)]
        weights = random_parameters(rng, shapes, dtype)
        x, t = (leaf(a.astype(dtype)) for a in rng.uniform(-1, 1, (2, points, 1)))

        def net(x: Any, t: Any) -> Any:
            h = aj.cat([x, t], dim=1)
            for k in range(0, len(weights) - 2, 2):
                h = aj.tanh(F.linear(h, weights[k], weights[k + 1]))
            return F.linear(h, weights[-2], weights[-1])

        def loss(x: Any, t: Any) -> Any:
            u = net(x, t)
            u_x, u_t = aj.autograd.grad(u.sum(), (x, t), create_graph=True)
            (u_xx,) = aj.autograd.grad(u_x.sum(), (x,), create_graph=True)
            return ((u_t + u * u_x - 0.01 * u_xx) ** 2).mean() + (u**2).mean()

        def step(x: Any, t: Any) -> Any:
            misfit = loss(x, t)
            gradients = aj.autograd.grad(misfit, weights)
            with aj.no_grad():
                for weight, gradient in zip(weights, gradients, strict=True):
                    weight -= 0.01 * gradient
            return misfit.detach()

        if by_backward:
            return training(loss, weights, optim.Adam(weights, lr=1e-3), (x, t))
        return Run(step, (x, t), tuple(weights))

    return build


def black_scholes(size: Size) -> Run:
    count = 11 if size == "tiny" else 40_000
    rng = np.random.default_rng(0)
    ranges = [(50, 150), (50, 150), (0.1, 2.0), (0.1, 0.5)]
    spot, strike, expiry, volatility = (leaf(rng.uniform(*r, count).astype(np.float32)) for r in ranges)

    def price(spot: Any, strike: Any, expiry: Any, volatility: Any) -> Any:
        spread = volatility * aj.sqrt(expiry)
        d1 = (aj.log(spot / strike) + (0.03 + 0.5 * volatility**2) * expiry) / spread
        n1, n2 = (0.5 * (1 + aj.erf(d * 0.5**0.5)) for d in (d1, d1 - spread))
        return spot * n1 - strike * aj.exp(-0.03 * expiry) * n2

    def step(*market: Any) -> Any:
        value = price(*market)
        delta, vega = aj.autograd.grad(value.sum(), (market[0], market[3]), create_graph=True)
        (gamma,) = aj.autograd.grad(delta.sum(), (market[0],))
        return value.detach(), delta.detach(), vega.detach(), gamma

    return Run(step, (spot, strike, expiry, volatility))


def softmax_layernorm(size: Size) -> Run:
    rows, width = (3, 5) if size == "tiny" else (300, 200)
    rng = np.random.default_rng(0)
    x = leaf(rng.normal(size=(rows, width)).astype(np.float32))
    weight, bias = (leaf(a.astype(np.float32)) for a in rng.uniform(0.5, 1.5, (2, width)))
    labels = aj.tensor(rng.integers(0, width, rows))

    def step(x: Any, weight: Any, bias: Any, labels: Any) -> Any:
        loss = F.cross_entropy(F.layer_norm(x, (width,), weight, bias), labels)
        return (loss.detach(), *aj.autograd.grad(loss, (x, weight, bias)))

    return Run(step, (x, weight, bias, labels))


def lstm(size: Size) -> Run:
    length, batch, inputs, hidden = (3, 2, 3, 4) if size == "tiny" else (8, 16, 12, 24)
    rng = np.random.default_rng(0)
    shapes: list[tuple[int, ...]] = [(4 * hidden, inputs + hidden), (4 * hidden,), (5, hidden), (5,)]
    weights = random_parameters(rng, shapes)
    x = aj.tensor(rng.normal(size=(length, batch, inputs)).astype(np.float32))
    y = aj.tensor(rng.integers(0, 5, batch))

    def loss(x: Any, y: Any) -> Any:
        h = c = aj.zeros((batch, hidden))
        for k in range(length):
            i, f, g, o = F.linear(aj.cat([x[k], h], dim=1), weights[0], weights[1]).split(hidden, dim=1)
            c = aj.sigmoid(f) * c + aj.sigmoid(i) * aj.tanh(g)
            h = aj.sigmoid(o) * aj.tanh(c)
        return F.cross_entropy(F.linear(h, weights[2], weights[3]), y)

    return training(loss, weights, optim.Adam(weights, lr=1e-3), (x, y))


def leapfrog(size: Size) -> Run:
    particles, rounds = (4, 3) if size == "tiny" else (2_000, 8)
    rng = np.random.default_rng(0)
    q, p = (aj.tensor(a) for a in rng.normal(size=(2, particles, 3)))

    def force(q: Any) -> Any:
        q = q.detach().requires_grad_(True)
        square = (q * q).sum(1)
        energy = (0.5 * square + 0.1 * square * square + aj.exp(-square)).sum()
        return -aj.autograd.grad(energy, (q,))[0]

    def step(q: Any, p: Any) -> Any:
        p = p + 0.025 * force(q)
        for _ in range(rounds):
            q = q + 0.05 * p
            p = p + 0.05 * force(q)
        return q.detach(), (p - 0.025 * force(q)).detach()

    return Run(step, (q, p))


def heat(size: Size) -> Run:
    side, rounds = (5, 3) if size == "tiny" else (64, 10)
    rng = np.random.default_rng(0)
    conductivity = leaf(rng.uniform(0.05, 0.2, (side - 2, side - 2)).astype(np.float32))
    start, measured = (leaf(a.astype(np.float32)) for a in rng.normal(size=(2, side, side)))

    def step(conductivity: Any, start: Any, measured: Any) -> Any:
        u = start
        for _ in range(rounds):
            inner = u[1:-1, 1:-1]
            gain = conductivity * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4.0 * inner)
            u = u + F.pad(gain, (1, 1, 1, 1))
        misfit = ((u - measured) ** 2).mean()
        return (misfit.detach(), *aj.autograd.grad(misfit, (conductivity, start)))

    return Run(step, (conductivity, start, measured))


def heat_in_place(size: Size) -> Run:
    """The same grid updated by assignment to slices."""
    side, rounds = (5, 3) if size == "tiny" else (64, 10)
    grid = aj.tensor(np.random.default_rng(0).normal(size=(side, side)))

    def step() -> Any:
        for _ in range(rounds):
            inner = grid[1:-1, 1:-1]
            flow = grid[2:, 1:-1] + grid[:-2, 1:-1] + grid[1:-1, 2:] + grid[1:-1, :-2] - 4.0 * inner
            grid[1:-1, 1:-1] += 0.1 * flow
        return (grid * grid).sum()

    return Run(step, (), (grid,))


def embedding_bag(size: Size) -> Run:
    rows, width, batch, bag = (9, 3, 4, 2) if size == "tiny" else (2_000, 16, 64, 8)
    rng = np.random.default_rng(0)
    weights = random_parameters(rng, [(rows, width), (5, width), (5,)])
    bags, y = aj.tensor(rng.integers(0, rows, (batch, bag))), aj.tensor(rng.integers(0, 5, batch))

    def loss(bags: Any, y: Any) -> Any:
        return F.cross_entropy(F.linear(F.embedding(bags, weights[0]).mean(1), weights[1], weights[2]), y)

    return training(loss, weights, optim.SGD(weights, lr=0.1), (bags, y))


def newton(size: Size) -> Run:
    """Logistic regression by Newton's method: Hessian by one backward per row, a linear solve per step."""
    features, rows = (3, 9) if size == "tiny" else (6, 200)
    rng = np.random.default_rng(0)
    x = aj.tensor(rng.normal(size=(rows, features)))
    y = aj.tensor((rng.normal(size=rows) > 0).astype(np.float64))
    theta = leaf(np.zeros(features))

    def step(x: Any, y: Any) -> Any:
        z = x @ theta
        loss = (F.softplus(z) - y * z).mean() + 0.05 * (theta * theta).sum()
        (gradient,) = aj.autograd.grad(loss, (theta,), create_graph=True)
        hessian = aj.stack([aj.autograd.grad(g, (theta,), retain_graph=True)[0] for g in gradient])
        with aj.no_grad():
            theta.sub_(aj.linalg.solve(hessian, gradient.detach()))
        return loss.detach()

    return Run(step, (x, y), (theta,))


def implied_volatility(size: Size) -> Run:
    """Newton's method for each element of an array, the slope by reverse mode."""
    count = 5 if size == "tiny" else 20_000
    rng = np.random.default_rng(0)
    target = aj.tensor(rng.uniform(0.5, 2.0, count))

    def step(target: Any) -> Any:
        root = aj.full_like(target, 0.7)
        for _ in range(6):
            root = root.detach().requires_grad_(True)
            value = root * aj.exp(root) + root**3
            (slope,) = aj.autograd.grad(value.sum(), (root,))
            root = root - (value - target) / slope
        return root.detach()

    return Run(step, (target,))


PROGRAMS: dict[str, Program] = {
    "mlp_sgd": Program(mlp("SGD", lr=0.05, momentum=0.9)),
    "mlp_adam": Program(mlp("Adam", lr=1e-3)),
    "gpt": Program(gpt),
    "pinn_f32": Program(pinn("float32")),
    "pinn_f64": Program(pinn("float64"), rtol=1e-10),
    "pinn_backward": Program(pinn("float64", by_backward=True), rtol=1e-10, captures=2),  # .grad made, then added to
    "black_scholes": Program(black_scholes),
    "softmax_layernorm": Program(softmax_layernorm),
    "lstm": Program(lstm),
    "leapfrog": Program(leapfrog, rtol=1e-10),
    "heat": Program(heat),
    "heat_in_place": Program(heat_in_place, rtol=1e-10),
    "embedding_bag": Program(embedding_bag),
    "newton_solve": Program(newton, rtol=1e-10),
    "implied_volatility": Program(implied_volatility, rtol=1e-10),
}


def arrays(results: Any) -> list[np.ndarray[Any, Any]]:
    """The results of a step as arrays of their own."""
    return [np.array(r) for r in (results if isinstance(results, tuple) else (results,))]


def outcome(run: Run, wrap: Callable[[Callable[..., Any]], Callable[..., Any]], steps: int = STEPS) -> list[Any]:
    """Results of every step and the state after the last, computed through ``wrap(step)``."""
    step = wrap(run.step)
    found = [array for _ in range(steps) for array in arrays(step(*run.args))]
    return found + [np.array(s.detach()) for s in run.state]


def assert_close(found: Sequence[Any], expected: Sequence[Any], rtol: float) -> None:
    """Each array within ``rtol`` of the largest magnitude in it."""
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * float(np.abs(b).max(initial=0.0)))
