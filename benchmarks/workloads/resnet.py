"""Residual networks for small images: blocks of 3 x 3 convolutions, batch norm in training mode, SGD with momentum.

``resnet18``: a stem, then eight blocks of two convolutions, from 64 channels on 32 x 32 places to 512 on 4 x 4.
``residual_block``: three convolutions of 64 channels on 16 x 16 places inside one skip; batch 16.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.workloads.jax_parts import cross_entropy
from benchmarks.workloads.problem import Array, Namespace, Optimizer, Training, Work, set_parameters

CLASSES = 10
EPSILON = 1e-5  # of batch norm, torch's default


@dataclass(frozen=True)
class Convolution:
    """One convolution and its batch norm, on ``size`` x ``size`` images, padded to keep them."""

    inputs: int
    outputs: int
    kernel: int
    stride: int
    size: int

    @property
    def products(self) -> int:
        """Of one image."""
        return self.inputs * self.outputs * self.kernel**2 * (self.size // self.stride) ** 2


@dataclass(frozen=True)
class Block:
    """Convolutions around which a skip leads, with a convolution of its own where shapes change."""

    body: tuple[Convolution, ...]
    skip: Convolution | None = None


@dataclass(frozen=True)
class Net:
    """A stem, blocks, and a linear layer on the means over places."""

    stem: Convolution
    blocks: tuple[Block, ...]
    batch: int
    optimizer: Optimizer

    @property
    def convolutions(self) -> list[Convolution]:
        """In the order of their parameters."""
        return [self.stem, *(c for b in self.blocks for c in (*b.body, *([b.skip] if b.skip else [])))]


def resnet18(batch: int = 16, size: int = 32) -> Net:
    """The network of He and others (2016) with the stem that small images take."""
    blocks, inputs = [], 64
    stem = Convolution(3, inputs, 3, 1, size)
    for outputs, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        first = Convolution(inputs, outputs, 3, stride, size)
        skip = Convolution(inputs, outputs, 1, stride, size) if stride > 1 else None
        inputs, size = outputs, size // stride
        blocks.append(Block((first, Convolution(outputs, outputs, 3, 1, size)), skip))
    return Net(stem, tuple(blocks), batch, Optimizer("SGD", lr=1e-3, momentum=0.9))


def one_block(batch: int = 16, channels: int = 64, size: int = 16) -> Net:
    """A single skip."""
    same = Convolution(channels, channels, 3, 1, size)
    return Net(same, (Block((same, same)),), batch, Optimizer("SGD", lr=1e-3, momentum=0.9))


RESNET18, RESIDUAL_BLOCK = resnet18(), one_block()


def data(net: Net) -> tuple[Array, Array, list[Array]]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(net.batch, net.stem.inputs, net.stem.size, net.stem.size)).astype(np.float32)
    y = rng.integers(0, CLASSES, net.batch).astype(np.int64)
    parameters: list[Array] = []
    for c in net.convolutions:
        bound = (c.inputs * c.kernel**2) ** -0.5
        weight = rng.uniform(-bound, bound, (c.outputs, c.inputs, c.kernel, c.kernel)).astype(np.float32)
        parameters += [weight, np.ones(c.outputs, np.float32), np.zeros(c.outputs, np.float32)]
    features = net.convolutions[-1].outputs
    bound = features**-0.5
    parameters.append(rng.uniform(-bound, bound, (CLASSES, features)).astype(np.float32))
    parameters.append(rng.uniform(-bound, bound, CLASSES).astype(np.float32))
    return x, y, parameters


def work(net: Net) -> Work:
    """Forward and weight gradient of every convolution, as direct sums; the input's gradient of all but the first."""
    products = [c.products for c in net.convolutions]
    return Work(flops=2 * net.batch * (3 * sum(products) - products[0]))


def build(T: Namespace, net: Net) -> Training:
    x, y, parameters = data(net)
    model = set_parameters(T, torch_module(T, net), parameters)

    def loss(x: Any, y: Any) -> Any:
        return T.nn.functional.cross_entropy(model(x), y)

    return Training(loss, list(model.parameters()), net.optimizer, (T.tensor(x), T.tensor(y)))


def torch_module(T: Namespace, net: Net) -> Any:
    """The network as a user writes it."""
    nn, relu = T.nn, T.nn.functional.relu

    def normalised(c: Convolution) -> list[Any]:
        padding = c.kernel // 2
        return [
            nn.Conv2d(c.inputs, c.outputs, c.kernel, stride=c.stride, padding=padding, bias=False),
            nn.BatchNorm2d(c.outputs),
        ]

    class Residual(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, block: Block) -> None:
            super().__init__()
            layers: list[Any] = []
            for c in block.body:
                layers += [*normalised(c), nn.ReLU()]
            self.body = nn.Sequential(*layers[:-1])
            self.skip = nn.Sequential(*normalised(block.skip)) if block.skip else nn.Identity()

        def forward(self, x: Any) -> Any:
            return relu(self.body(x) + self.skip(x))

    stem = [*normalised(net.stem), nn.ReLU()]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(net.convolutions[-1].outputs, CLASSES)]
    return nn.Sequential(*stem, *map(Residual, net.blocks), *head)


def build_jax(net: Net) -> Training:
    import jax
    import jax.numpy as jnp

    x, y, parameters = data(net)

    def normalised(parts: Any, c: Convolution, h: Any) -> Any:
        weight, scale, shift = next(parts), next(parts), next(parts)
        pads = [(c.kernel // 2,) * 2] * 2
        h = jax.lax.conv_general_dilated(h, weight, (c.stride,) * 2, pads, dimension_numbers=("NHWC", "OIHW", "NHWC"))
        centred = h - h.mean((0, 1, 2))
        return centred * (jax.lax.rsqrt(jnp.square(centred).mean((0, 1, 2)) + EPSILON) * scale) + shift

    def loss(parameters: list[Any], x: Any, y: Any) -> Any:
        parts = iter(parameters)
        h = jnp.maximum(normalised(parts, net.stem, x), 0)
        for block in net.blocks:
            inside = normalised(parts, block.body[0], h)
            for c in block.body[1:]:
                inside = normalised(parts, c, jnp.maximum(inside, 0))
            h = jnp.maximum(inside + (normalised(parts, block.skip, h) if block.skip else h), 0)
        weight, bias = next(parts), next(parts)
        return cross_entropy(h.mean((1, 2)) @ weight.T + bias, y)

    return Training(loss, parameters, net.optimizer, (x.transpose(0, 2, 3, 1), y.astype(np.int32)))
