"""Images of changing extents go through one compiled step: convolutions, pooling, resampling, normalisation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit import nn
from autojit.nn import functional as F
from tests.jit.test_symbolic_sizes import check_same

EXTENTS = ((10, 13), (12, 9), (17, 31), (40, 16))


def images(channels: int = 3) -> list[aj.Tensor]:
    return [aj.rand(2, channels, *extents) for extents in EXTENTS]


FUNCTIONS: dict[str, Callable[[aj.Tensor], Any]] = {
    "maxima": lambda x: F.max_pool2d(x, 2),
    "maxima that overlap": lambda x: F.max_pool2d(x, 3, 2, 1),
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "nearest by centres": lambda x: F.interpolate(x, scale_factor=3, mode="nearest-exact"),
    "to another image's size": lambda x: F.interpolate(x[:, :, :4], size=x.shape[2:], mode="bilinear"),
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "corners": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
    "bicubic": lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
    "transposed": lambda x: F.conv_transpose2d(x, aj.ones(3, 4, 2, 2), stride=2),
    "dilated": lambda x: F.conv2d(x, aj.ones(4, 3, 3, 3), padding=2, dilation=2),
    "lines": lambda x: F.conv1d(x.flatten(2), aj.ones(2, 3, 5), stride=2),
    "group norm": lambda x: F.group_norm(x, 3),
    "halves": lambda x: x.chunk(2, 2)[1] * 2,
    "positions": lambda x: x + aj.linspace(0, 1, x.shape[3]),
    "products": lambda x: x.prod(2),
    "middle": lambda x: x.flatten(2).median(2).values,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_images(name: str) -> None:
    function = FUNCTIONS[name]
    compiled = aj.jit(function)
    for x in images():
        check_same(compiled(x), function(x), x.shape)
    stats = compiled.stats()
    assert (stats["captures"], stats["fallbacks"], stats["specialised_sizes"]) == (2, 0, 0), compiled.explain()


class Segmenter(nn.Module):
    """Fully convolutional: down, up, and a class for every place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.down = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 12, 3, stride=2, padding=1)
        self.norm, self.last = nn.BatchNorm2d(12), nn.Conv2d(20, 4, 1)

    def forward(self, x: aj.Tensor) -> aj.Tensor:
        fine = self.first(x).relu()
        coarse = self.norm(self.down(fine)).relu()
        wide = F.interpolate(coarse, size=fine.shape[2:], mode="bilinear", align_corners=False)
        found: aj.Tensor = self.last(aj.cat([fine, wide], 1))
        return found


def losses(run: Callable[[Callable[..., Any]], Callable[..., Any]]) -> tuple[list[float], Any]:
    aj.manual_seed(3)
    model = Segmenter()
    optimizer = aj.optim.Adam(model.parameters(), lr=0.01)

    def step(x: aj.Tensor, labels: aj.Tensor) -> aj.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    wrapped = run(step)
    found = [float(wrapped(x, (x.sum(1) * 2).long() % 4)) for x in images() + images()]
    return found, wrapped


def test_a_fully_convolutional_net_trains_on_images_of_all_sizes() -> None:
    expected, _ = losses(lambda step: step)
    found, compiled = losses(aj.jit)
    check_same(aj.tensor(found), aj.tensor(expected), "losses")
    stats = compiled.stats()
    assert stats["captures"] <= 3
    assert (stats["fallbacks"], stats["specialised_sizes"], stats["splits"]) == (0, 0, 0), compiled.explain()


def test_second_derivatives_of_products_over_an_open_axis() -> None:
    weight = aj.rand(4, dtype=aj.float64, requires_grad=True)

    def function(x: aj.Tensor) -> Any:
        (first,) = aj.autograd.grad((x * weight).prod(0).sum(), (weight,), create_graph=True)
        return first.detach(), aj.autograd.grad((first**2).sum(), (weight,))[0]

    compiled = aj.jit(function)
    for n in (5, 4, 7, 2):
        x = aj.rand(n, 4, dtype=aj.float64)
        x[0, 1] = 0.0
        x[:2, 2] = 0.0
        check_same(compiled(x), function(x), n)
    assert (compiled.stats()["captures"], compiled.stats()["specialised_sizes"]) == (2, 0)
