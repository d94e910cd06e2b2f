"""Small programs of many kinds as people write them, for ``eager_programs.py``: each gives a call that is one step.

What a call returns is a number, the same in both libraries: parameters and data come from a generator of NumPy's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from benchmarks.workloads.problem import Namespace

Call = Callable[[], Any]


def _numbers(T: Namespace, *shape: int, seed: int = 0, scale: float = 1.0) -> Any:
    return T.tensor((np.random.default_rng(seed + sum(shape)).normal(size=shape) * scale).astype(np.float32))


def _labels(T: Namespace, count: int, kinds: int) -> Any:
    return T.tensor(np.random.default_rng(count).integers(0, kinds, count))


def _filled(T: Namespace, module: Any) -> Any:
    """The module with parameters that both libraries agree on."""
    with T.no_grad():
        for place, p in enumerate(module.parameters()):
            p.copy_(_numbers(T, *p.shape, seed=place, scale=0.1))
    return module


def _training(T: Namespace, parameters: Iterable[Any], loss_of: Callable[[], Any], lr: float = 1e-4) -> Call:
    optimizer = T.optim.Adam(list(parameters), lr=lr)

    def step() -> Any:
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def vae(T: Namespace) -> Call:
    """Gaussian code of 16 numbers for 64 pixels; the noise is given."""
    nn, F = T.nn, T.nn.functional
    encoder = _filled(T, nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32)))
    decoder = _filled(T, nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 64)))
    x, noise = T.sigmoid(_numbers(T, 64, 64)), _numbers(T, 64, 16)

    def loss() -> Any:
        mean, log_variance = encoder(x).chunk(2, dim=-1)
        code = mean + noise * T.exp(0.5 * log_variance)
        likelihood = F.binary_cross_entropy_with_logits(decoder(code), x, reduction="sum")
        divergence = -0.5 * T.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
        return (likelihood + divergence) / 64

    return _training(T, [*encoder.parameters(), *decoder.parameters()], loss)


def unet(T: Namespace) -> Call:
    """Two levels, 16 x 16 pictures."""
    nn, F = T.nn, T.nn.functional
    down = _filled(T, nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()))
    middle = _filled(T, nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1)))
    up = _filled(T, nn.ConvTranspose2d(16, 8, 2, stride=2))
    head = _filled(T, nn.Conv2d(16, 1, 3, padding=1))
    x, y = _numbers(T, 4, 1, 16, 16), _numbers(T, 4, 1, 16, 16, seed=1)

    def loss() -> Any:
        fine = down(x)
        coarse = F.relu(middle(F.max_pool2d(fine, 2)))
        return F.mse_loss(head(T.cat([fine, up(coarse)], dim=1)), y)

    return _training(T, [p for part in (down, middle, up, head) for p in part.parameters()], loss)


def graph_network(T: Namespace) -> Call:
    """Three rounds of messages on 100 nodes with 600 edges."""
    nn, F = T.nn, T.nn.functional
    layers = _filled(T, nn.ModuleList([nn.Linear(64, 32) for _ in range(3)]))
    rng = np.random.default_rng(0)
    sender, receiver = (T.tensor(rng.integers(0, 100, 600)) for _ in range(2))
    x, y = _numbers(T, 100, 32), _labels(T, 100, 32)

    def loss() -> Any:
        h = x
        for layer in layers:
            messages = h[sender]
            gathered = T.zeros(100, 32).index_add(0, receiver, messages)
            h = F.relu(layer(T.cat([h, gathered], dim=-1)))
        return F.cross_entropy(h, y)

    return _training(T, layers.parameters(), loss)


def transformer_encoder(T: Namespace) -> Call:
    """Two layers of torch's module without dropout."""
    nn = T.nn
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    net = _filled(T, nn.TransformerEncoder(layer, 2))
    x, y = _numbers(T, 8, 20, 32), _numbers(T, 8, 20, 32, seed=1)
    return _training(T, net.parameters(), lambda: ((net(x) - y) ** 2).mean())


def speech(T: Namespace) -> Call:
    """Convolution, a GRU and CTC."""
    nn, F = T.nn, T.nn.functional
    front, gru, head = nn.Conv1d(20, 32, 3, padding=1), nn.GRU(32, 32, batch_first=True), nn.Linear(32, 12)
    for part in (front, gru, head):
        _filled(T, part)
    x = _numbers(T, 4, 20, 50)
    targets = T.tensor(np.random.default_rng(0).integers(1, 12, (4, 10)))
    lengths, target_lengths = T.full((4,), 50), T.full((4,), 10)

    def loss() -> Any:
        h, _ = gru(F.relu(front(x)).transpose(1, 2))
        log_probs = F.log_softmax(head(h), dim=-1).transpose(0, 1)
        return F.ctc_loss(log_probs, targets, lengths, target_lengths)

    return _training(T, [p for part in (front, gru, head) for p in part.parameters()], loss)


def policy_gradient(T: Namespace) -> Call:
    """REINFORCE with ``Categorical``; the actions are given."""
    nn = T.nn
    net = _filled(T, nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 4)))
    states, actions, returns = _numbers(T, 128, 8), _labels(T, 128, 4), _numbers(T, 128)

    def loss() -> Any:
        policy = T.distributions.Categorical(logits=net(states))
        return -(policy.log_prob(actions) * returns).mean() - 0.01 * policy.entropy().mean()

    return _training(T, net.parameters(), loss)


def gaussian_process(T: Namespace) -> Call:
    """Marginal likelihood of 60 points, the kernel written by hand."""
    x, y = _numbers(T, 60, 2), _numbers(T, 60)
    scale, noise = T.zeros((), requires_grad=True), T.zeros((), requires_grad=True)

    def loss() -> Any:
        distance = ((x[:, None] - x[None]) ** 2).sum(-1)
        kernel = T.exp(-0.5 * distance / T.exp(scale)) + (T.exp(noise) + 1e-3) * T.eye(60)
        factor = T.linalg.cholesky(kernel)
        alpha = T.cholesky_solve(y[:, None], factor)[:, 0]
        return 0.5 * y @ alpha + T.log(T.diagonal(factor)).sum()

    return _training(T, [scale, noise], loss)


def style_transfer(T: Namespace) -> Call:
    """Gram matrices of two convolutions' features; the picture is what is learned."""
    nn, F = T.nn, T.nn.functional
    first, second = _filled(T, nn.Conv2d(3, 8, 3, padding=1)), _filled(T, nn.Conv2d(8, 16, 3, padding=1))
    style = _numbers(T, 1, 3, 16, 16)
    picture = _numbers(T, 1, 3, 16, 16, seed=1).requires_grad_(True)

    def grams(x: Any) -> list[Any]:
        found = []
        for layer in (first, second):
            x = F.relu(layer(x))
            flat = x.flatten(2)[0]
            found.append(flat @ flat.T / flat.shape[1])
        return found

    with T.no_grad():
        wanted = grams(style)
    return _training(
        T, [picture], lambda: sum(F.mse_loss(a, b) for a, b in zip(grams(picture), wanted, strict=True)), 1e-2
    )


def contrastive(T: Namespace) -> Call:
    """Two views, normalised, every other one a negative (SimCLR)."""
    nn, F = T.nn, T.nn.functional
    net = _filled(T, nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16)))
    one, other = _numbers(T, 64, 32), _numbers(T, 64, 32, seed=1)

    def loss() -> Any:
        z = F.normalize(T.cat([net(one), net(other)]), dim=-1)
        scores = z @ z.T / 0.5
        scores = scores.masked_fill(T.eye(128, dtype=T.bool), float("-inf"))
        return F.cross_entropy(scores, (T.arange(128) + 64) % 128)

    return _training(T, net.parameters(), loss)


def mixture_density(T: Namespace) -> Call:
    """A network that gives five Gaussians."""
    nn, F = T.nn, T.nn.functional
    net = _filled(T, nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 15)))
    x, y = _numbers(T, 200, 1), _numbers(T, 200, 1, seed=1)

    def loss() -> Any:
        weights, means, scales = net(x).split(5, dim=-1)
        scores = F.log_softmax(weights, -1) - scales - 0.5 * ((y - means) / scales.exp()) ** 2
        return -T.logsumexp(scores, -1).mean()

    return _training(T, net.parameters(), loss)


def capsules(T: Namespace) -> Call:
    """Routing by agreement, in einsum."""
    weight = _numbers(T, 32, 10, 16, 8, scale=0.1).requires_grad_(True)
    x, y = _numbers(T, 8, 32, 8), _labels(T, 8, 10)

    def squash(s: Any) -> Any:
        size = (s**2).sum(-1, keepdim=True)
        return size / (1 + size) * s / T.sqrt(size + 1e-8)

    def loss() -> Any:
        votes = T.einsum("ijkl,bil->bijk", weight, x)
        logits = T.zeros(8, 32, 10)
        for _ in range(3):
            v = squash(T.einsum("bij,bijk->bjk", T.softmax(logits, -1), votes))
            logits = logits + T.einsum("bijk,bjk->bij", votes, v)
        return T.nn.functional.cross_entropy(v.norm(dim=-1), y)

    return _training(T, [weight], loss)


def k_means(T: Namespace) -> Call:
    """A round of Lloyd's: no gradients."""
    x, start = _numbers(T, 500, 8), _numbers(T, 10, 8)

    def step() -> Any:
        centres = start
        for _ in range(5):
            nearest = T.cdist(x, centres).argmin(1)
            mine = T.nn.functional.one_hot(nearest, 10).float()
            centres = (mine.T @ x) / mine.sum(0).clamp(min=1)[:, None]
        return centres.sum()

    return step


def neural_ode(T: Namespace) -> Call:
    """Ten steps of RK4 through a small network."""
    nn = T.nn
    net = _filled(T, nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2)))
    x, y, h = _numbers(T, 32, 2), _numbers(T, 32, 2, seed=1), 0.1

    def loss() -> Any:
        z = x
        for _ in range(10):
            k1 = net(z)
            k2 = net(z + h / 2 * k1)
            k3 = net(z + h / 2 * k2)
            k4 = net(z + h * k3)
            z = z + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return ((z - y) ** 2).mean()

    return _training(T, net.parameters(), loss)


def diffusion(T: Namespace) -> Call:
    """A denoiser with a sinusoidal embedding of the time."""
    nn = T.nn
    net = _filled(T, nn.Sequential(nn.Linear(34, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 2)))
    x, noise, time = _numbers(T, 128, 2), _numbers(T, 128, 2, seed=1), _labels(T, 128, 100)
    kept = T.cumprod(1 - T.linspace(1e-4, 0.02, 100), 0)

    def loss() -> Any:
        a = kept[time][:, None]
        noisy = a.sqrt() * x + (1 - a).sqrt() * noise
        angles = time[:, None].float() * T.exp(-T.arange(16) / 4.0)
        inputs = T.cat([noisy, T.sin(angles), T.cos(angles)], dim=-1)
        return ((net(inputs) - noise) ** 2).mean()

    return _training(T, net.parameters(), loss)


def wavenet(T: Namespace) -> Call:
    """Dilated causal convolutions with gates."""
    nn, F = T.nn, T.nn.functional
    layers = _filled(T, nn.ModuleList([nn.Conv1d(16, 32, 2, dilation=2**k) for k in range(4)]))
    x, y = _numbers(T, 4, 16, 64), _numbers(T, 4, 16, 64, seed=1)

    def loss() -> Any:
        h = x
        for k, layer in enumerate(layers):
            value, gate = layer(F.pad(h, (2**k, 0))).chunk(2, dim=1)
            h = h + T.tanh(value) * T.sigmoid(gate)
        return F.mse_loss(h, y)

    return _training(T, layers.parameters(), loss)


def triplet(T: Namespace) -> Call:
    """A siamese network."""
    nn, F = T.nn, T.nn.functional
    net = _filled(T, nn.Sequential(nn.Linear(32, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 16)))
    anchor, near, far = (_numbers(T, 64, 32, seed=k) for k in range(3))
    return _training(T, net.parameters(), lambda: F.triplet_margin_loss(net(anchor), net(near), net(far)))


def cells_by_hand(T: Namespace) -> Call:
    """A GRU cell written out, over 20 steps."""
    wx, wh = (_numbers(T, n, 96, scale=0.1).requires_grad_(True) for n in (16, 32))
    x, y = _numbers(T, 16, 20, 16), _numbers(T, 16, 32, seed=1)

    def loss() -> Any:
        h = T.zeros(16, 32)
        for t in range(20):
            a, b = x[:, t] @ wx, h @ wh
            r = T.sigmoid(a[:, :32] + b[:, :32])
            z = T.sigmoid(a[:, 32:64] + b[:, 32:64])
            n = T.tanh(a[:, 64:] + r * b[:, 64:])
            h = (1 - z) * n + z * h
        return ((h - y) ** 2).mean()

    return _training(T, [wx, wh], loss)


def physics(T: Namespace) -> Call:
    """The residual of a Poisson problem: second derivatives by ``create_graph``."""
    nn = T.nn
    net = _filled(T, nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)))
    x = _numbers(T, 64, 1).requires_grad_(True)

    def loss() -> Any:
        u = net(x)
        (slope,) = T.autograd.grad(u.sum(), x, create_graph=True)
        (curvature,) = T.autograd.grad(slope.sum(), x, create_graph=True)
        return ((curvature + T.sin(x)) ** 2).mean() + (u[:2] ** 2).sum()

    return _training(T, net.parameters(), loss)


def gradient_penalty(T: Namespace) -> Call:
    """A critic held to slope one."""
    nn = T.nn
    net = _filled(T, nn.Sequential(nn.Linear(16, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1)))
    real, fake = _numbers(T, 64, 16), _numbers(T, 64, 16, seed=1)

    def loss() -> Any:
        between = (0.3 * real + 0.7 * fake).requires_grad_(True)
        (slope,) = T.autograd.grad(net(between).sum(), between, create_graph=True)
        penalty = ((slope.norm(2, dim=1) - 1) ** 2).mean()
        return net(fake).mean() - net(real).mean() + 10 * penalty

    return _training(T, net.parameters(), loss)


def clipped_language_model(T: Namespace) -> Call:
    """An LSTM over embeddings, dropout off, gradients clipped."""
    nn, F = T.nn, T.nn.functional
    tokens, lstm, head = nn.Embedding(50, 32), nn.LSTM(32, 64, batch_first=True), nn.Linear(64, 50)
    parameters = [p for part in (tokens, lstm, head) for p in _filled(T, part).parameters()]
    optimizer = T.optim.SGD(parameters, lr=1e-2, momentum=0.9)
    x, y = _labels(T, 8 * 20, 50).reshape(8, 20), _labels(T, 8 * 20, 50)

    def step() -> Any:
        optimizer.zero_grad()
        h, _ = lstm(tokens(x))
        loss = F.cross_entropy(head(h).reshape(-1, 50), y)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        return loss.detach()

    return step


CASES: Mapping[str, Callable[[Namespace], Call]] = {
    case.__name__: case
    for case in (
        vae, unet, graph_network, transformer_encoder, speech, policy_gradient, style_transfer, contrastive,
        mixture_density, capsules, k_means, neural_ode, diffusion, wavenet, triplet, cells_by_hand, physics,
        gradient_penalty, clipped_language_model,
    )
} | {"gp_by_hand": gaussian_process}  # fmt: skip
