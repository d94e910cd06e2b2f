"""Steps of the corpus that no program, workload or example has: control flow, sizes, structured ops, plans' runners."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import autojit as aj
from autojit import nn, optim
from autojit.nn import functional as F

STEPS: dict[str, Callable[[], None]] = {}


def step(run: Callable[[], None]) -> Callable[[], None]:
    """Enter a step into the corpus under its function's name."""
    STEPS[run.__name__] = run
    return run


def data(*shape: int, dtype: str = "float32", seed: int = 0, grad: bool = False) -> Any:
    drawn = aj.tensor(np.random.default_rng(seed).standard_normal(shape).astype(dtype))
    return drawn.requires_grad_(True) if grad else drawn


def integers(high: int, *shape: int, seed: int = 0) -> Any:
    return aj.tensor(np.random.default_rng(seed).integers(0, high, shape))


def gradients_of(function: Callable[..., Any], *args: Any) -> None:
    """The function with its gradients, compiled, called twice."""

    @aj.jit
    def both(*args: Any) -> Any:
        value = function(*args)
        wanted = [a for a in args if a.requires_grad]
        return value.detach(), *aj.autograd.grad(value.sum(), wanted)

    for _ in range(2):
        both(*args)


def compiled(function: Callable[..., Any], *calls: tuple[Any, ...], **options: Any) -> None:
    """The function compiled, called with each of ``calls``."""
    made = aj.jit(function, **options)
    for args in calls:
        made(*args)


def trained(model: nn.Module, optimizer: Any, loss_of: Callable[..., Any], *args: Any) -> None:
    """Two steps of training."""

    @aj.jit
    def train(*args: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(model, *args)
        loss.backward()
        optimizer.step()
        return loss.detach()

    for _ in range(2):
        train(*args)


# -- control flow


def _recurrence(x: Any, w: Any) -> Any:
    last, _ = aj.control_flow.scan(lambda h, row: (aj.tanh(h @ w + row),) * 2, aj.zeros(4), x)
    return last


@step
def scan_forward() -> None:
    compiled(_recurrence, (data(9, 4), data(4, 4, seed=1)))


@step
def scan_gradient() -> None:
    gradients_of(_recurrence, data(9, 4), data(4, 4, seed=1, grad=True))


@step
def scan_second_derivative() -> None:
    def curvature(x: Any, w: Any) -> Any:
        (slope,) = aj.autograd.grad(_recurrence(x, w).sum(), (w,), create_graph=True)
        return slope.square()

    gradients_of(curvature, data(9, 4), data(4, 4, seed=1, grad=True))


@step
def while_loop() -> None:
    def halve(x: Any) -> Any:
        (found,) = aj.control_flow.while_loop(lambda y: y.abs().sum() > 1, lambda y: (y * 0.5,), (x,))
        return found

    compiled(halve, (data(50),), (data(50, seed=1),))


@step
def while_loop_gradient() -> None:
    def halve(x: Any) -> Any:
        (found,) = aj.control_flow.while_loop(lambda y: y.abs().sum() > 1, lambda y: (aj.sin(y) * 0.5,), (x,))
        return found

    gradients_of(halve, data(50, grad=True))


@step
def cond_gradient() -> None:
    def choose(x: Any) -> Any:
        return aj.control_flow.cond(x.sum() > 0, lambda y: aj.exp(y), lambda y: y * y, (x,))

    gradients_of(choose, data(33, grad=True))


@step
def decision_in_python() -> None:
    def choose(x: Any) -> Any:
        y = x * 3
        return aj.exp(y) if y.sum() > 0 else aj.sin(y)

    compiled(choose, (data(20),), (-data(20).abs(),), (data(20).abs(),))


# -- sizes


@step
def open_size_elementwise() -> None:
    compiled(lambda x: aj.tanh(x).sum(1) * 2, *[(data(n, 7),) for n in (5, 9, 12)])


@step
def open_size_training() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = optim.Adam(model.parameters())

    def train(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled(train, *[(data(n, 6), integers(3, n)) for n in (10, 14, 18)])


@step
def open_size_convolution() -> None:
    layer = nn.Conv2d(2, 3, 3)
    compiled(lambda x: layer(x).detach().sum((2, 3)), *[(data(n, 2, 9, 9),) for n in (2, 3, 5)])


@step
def open_size_scan() -> None:
    w = data(4, 4, seed=1)
    compiled(lambda x: _recurrence(x, w), *[(data(n, 4),) for n in (5, 6, 8)])


@step
def counted_size() -> None:
    compiled(lambda x: aj.nonzero(x > 0) * 2, (data(40),), (data(40, seed=1),))


@step
def counted_size_summed() -> None:
    compiled(lambda x: x[x > 0].square().mean(), (data(300),), (data(300, seed=1),))


# -- structured ops and their derivatives


@step
def sort_and_gather() -> None:
    gradients_of(lambda x: aj.sort(x, dim=1)[0][:, :5] * 2, data(20, 30, grad=True))


@step
def top_k() -> None:
    gradients_of(lambda x: aj.topk(x, 4, dim=1)[0], data(20, 30, grad=True))


@step
def running_sums() -> None:
    gradients_of(lambda x: aj.cumsum(x, 1) * aj.cumprod(x, 0), data(6, 50, grad=True))


@step
def running_extremes() -> None:
    gradients_of(lambda x: aj.cummax(x, 1)[0] + aj.logcumsumexp(x, 1), data(6, 50, grad=True))


@step
def scatter_and_look_up() -> None:
    def function(x: Any, index: Any) -> Any:
        return aj.zeros(10, 8).index_add(0, index, x)[index] + aj.zeros(10, 8).index_copy(0, index, x)[index]

    gradients_of(function, data(24, 8, grad=True), integers(10, 24))


@step
def search_in_sorted() -> None:
    compiled(lambda a, x: aj.searchsorted(a, x), (aj.sort(data(50))[0], data(20, seed=1)))


@step
def convolutions() -> None:
    def function(x: Any, w: Any) -> Any:
        return F.max_pool2d(F.conv2d(x, w, stride=2, padding=1), 2)

    gradients_of(function, data(4, 3, 16, 16, grad=True), data(8, 3, 3, 3, seed=1, grad=True))


@step
def grouped_dilated_convolution() -> None:
    def function(x: Any, w: Any) -> Any:
        return F.conv1d(x, w, groups=2, dilation=2)

    gradients_of(function, data(4, 6, 30, grad=True), data(4, 3, 3, seed=1, grad=True))


@step
def transposed_convolution() -> None:
    gradients_of(
        lambda x, w: F.conv_transpose2d(x, w, stride=2), data(2, 3, 7, 7, grad=True), data(3, 4, 3, 3, grad=True)
    )


@step
def factorisations() -> None:
    def function(x: Any) -> Any:
        a = x @ x.mT + 4 * aj.eye(5)
        return aj.linalg.solve(a, x) + aj.linalg.cholesky(a)

    gradients_of(function, data(5, 5, dtype="float64", grad=True))


@step
def random_numbers() -> None:
    compiled(lambda x: F.dropout(x, 0.3) + aj.randn_like(x) * aj.rand(60), (data(40, 60),), (data(40, 60),))


@step
def index_out_of_range_is_reported() -> None:
    compiled(lambda x, index: x[index] * 2, (data(30, 4), integers(30, 90)))


# -- products, bands, batches, donated state


@step
def batched_products() -> None:
    gradients_of(lambda a, b: a @ b.mT, data(3, 2, 20, 30, grad=True), data(3, 1, 25, 30, seed=1, grad=True))


@step
def products_of_doubles() -> None:
    gradients_of(
        lambda a, b: (a @ b).relu(), data(70, 90, dtype="float64", grad=True), data(90, 40, dtype="float64", seed=1)
    )


@step
def half_products() -> None:
    def function(a: Any, b: Any) -> Any:
        with aj.autocast("cpu", dtype=aj.bfloat16):
            return (a @ b).sum()

    gradients_of(function, data(20, 30, grad=True), data(30, 10, seed=1, grad=True))


@step
def integer_products() -> None:
    compiled(lambda a, b: a @ b, (integers(9, 6, 7), integers(9, 7, 5)))


@step
def bands_of_rows() -> None:
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 64))
    trained(model, optim.SGD(model.parameters(), lr=0.1), lambda m, x: m(x).square().mean(), data(4096, 256))


@step
def many_parameters() -> None:
    model = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(300, 300), nn.Tanh())])
    optimizer = optim.AdamW(model.parameters())
    trained(model, optimizer, lambda m, x: m(x).square().mean(), data(32, 300))


@step
def batch_norm_state() -> None:
    model = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.LazyLinear(4))
    model(data(2, 3, 8, 8))
    trained(model, optim.RMSprop(model.parameters()), lambda m, x: m(x).square().mean(), data(8, 3, 8, 8))


@step
def clipped_gradients() -> None:
    model = nn.Linear(10, 10)
    optimizer = optim.Adagrad(model.parameters())

    @aj.jit
    def train(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    for _ in range(2):
        train(data(5, 10))


@step
def parts_of_arguments_written() -> None:
    def function(x: Any) -> Any:
        x[1:4] += 1
        x[:, 2] = x[:, 3] * 2
        return x.sum(0)

    compiled(function, (data(9, 6),), (data(9, 6),))


@step
def complex_numbers() -> None:
    compiled(lambda x: aj.fft.ifft(aj.fft.fft(x) * 2).real.sum(0), (data(5, 16),))


@step
def parted_loops() -> None:
    gradients_of(
        lambda a, b: aj.cat([a.sin(), b.cos(), a * 2], 1).sum(0), data(60, 70, grad=True), data(60, 9, grad=True)
    )


@step
def empty_operands() -> None:
    compiled(lambda x, y: (x.sum(0) + 1, x @ y), (data(0, 5), data(5, 3)))
