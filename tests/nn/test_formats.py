"""What is said about the order of axes in memory holds: for tensors made like others, for modules, for layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit import Tensor, nn
from autojit.nn import functional as F

LAST, ROWS, KEPT = aj.channels_last, aj.contiguous_format, aj.preserve_format
LIKES: dict[str, Callable[..., Tensor]] = {
    "zeros_like": aj.zeros_like,
    "ones_like": aj.ones_like,
    "empty_like": aj.empty_like,
    "full_like": lambda x, **options: aj.full_like(x, 2, **options),
    "rand_like": aj.rand_like,
    "randn_like": aj.randn_like,
    "randint_like": lambda x, **options: aj.randint_like(x, 5, **options),
    "clone": lambda x, **options: x.clone(**options),
    "to": lambda x, **options: x.to(aj.float64, **options),
    "double": lambda x, **options: x.double(**options),
}
IMAGES = aj.arange(240.0).reshape(2, 4, 6, 5).contiguous(memory_format=LAST)
OTHERS = {
    "columns": aj.arange(12.0).reshape(3, 4).t(),
    "images": IMAGES,
    "gaps": aj.ones(2, 3, 3, 6)[..., ::2],
    "rows": aj.ones(2, 3, 4, 5),
    "overlapping": aj.empty_strided((4, 3, 2), (10, 1, 1)).permute(1, 0, 2),
    "repeated": aj.empty_strided((4, 3, 2), (10, 0, 3)).permute(2, 1, 0),
}


@pytest.mark.parametrize("like", LIKES.values(), ids=LIKES)
@pytest.mark.parametrize("x", OTHERS.values(), ids=OTHERS)
def test_likenesses_are_laid_out_as_asked(like: Callable[..., Tensor], x: Tensor) -> None:
    dense = (x * 1).stride()  # what an op of elements keeps: the order of the axes, without gaps
    assert like(x).stride() == like(x, memory_format=KEPT).stride() == dense
    assert like(x, memory_format=ROWS).is_contiguous()
    if x.ndim == 4:
        assert like(x, memory_format=LAST).is_contiguous(memory_format=LAST)
    else:
        with pytest.raises(RuntimeError, match="required rank 4 tensor"):
            like(x, memory_format=LAST)


def test_steps_lay_out_likenesses_as_their_functions_do() -> None:
    def made(x: Tensor) -> tuple[Tensor, ...]:
        return aj.zeros_like(x), aj.ones_like(x, memory_format=ROWS), x.clone(memory_format=ROWS), x + aj.ones_like(x)

    assert [y.stride() for y in aj.jit(made)(IMAGES)] == [y.stride() for y in made(IMAGES)]


ORDERS = [IMAGES, IMAGES.contiguous(), IMAGES.permute(3, 0, 2, 1).contiguous().permute(1, 3, 2, 0)]


@pytest.mark.parametrize("jit", [lambda f: f, aj.jit], ids=["eager", "compiled"])
@pytest.mark.parametrize("first", ORDERS)
@pytest.mark.parametrize("second", ORDERS)
def test_the_first_operand_decides_where_orders_differ(
    jit: Callable[[Any], Any], first: Tensor, second: Tensor
) -> None:
    ops: list[Callable[[Any, Any], Tensor]] = [
        lambda x, y: x + y, aj.maximum, aj.atan2, lambda x, y: x < y, aj.where, lambda x, y: aj.addcmul(x, y, y),
    ]  # fmt: skip
    for op in ops:
        y = second if op is not aj.where else second > 0
        operands = (y, first, second) if op is aj.where else (first, y)
        assert jit(op)(*operands).stride() == operands[0].stride()
        assert op(*[t.to("meta") for t in operands]).stride() == operands[0].stride()


@pytest.mark.parametrize("jit", [lambda f: f, aj.jit], ids=["eager", "compiled"])
def test_an_operand_decides_over_axes_that_it_has(jit: Callable[[Any], Any]) -> None:
    wide, add = aj.ones(3, 4, 5).permute(2, 0, 1), jit(lambda x, y: x + y)
    assert add(aj.ones(1, 3, 4), wide).stride() == (1, 20, 5)
    assert add(aj.ones(1, 4, 3).transpose(1, 2), wide).stride() == (1, 5, 15)
    assert add(wide, aj.ones(1, 4, 3).transpose(1, 2)).stride() == (1, 20, 5)


@pytest.mark.parametrize("jit", [lambda f: f, aj.jit], ids=["eager", "compiled"])
def test_images_that_are_joined_keep_the_format_of_all(jit: Callable[[Any], Any]) -> None:
    for dim in range(4):
        both = jit(lambda x, y, dim=dim: aj.cat((x, y), dim))
        assert both(IMAGES, IMAGES).is_contiguous(memory_format=LAST)
        assert both(IMAGES, IMAGES.contiguous()).is_contiguous() and both(IMAGES.contiguous(), IMAGES).is_contiguous()
        assert aj.equal(both(IMAGES, IMAGES), both(IMAGES.contiguous(), IMAGES.contiguous()))
        stacked = jit(lambda x, y, dim=dim: aj.stack((x, y), dim))(IMAGES, IMAGES)
        assert stacked.stride() == both(IMAGES, IMAGES).unflatten(dim, (2, -1)).stride()
    parts = IMAGES[:, :, :2], IMAGES[:, :, 1:]
    assert jit(lambda x, y: aj.cat((x, y), -1 - 1))(*parts).is_contiguous(memory_format=LAST)


def test_empty_takes_a_format() -> None:
    assert aj.empty(2, 3, 4, 5, memory_format=LAST).stride() == (60, 1, 15, 3)
    with pytest.raises(RuntimeError, match="unsupported memory format"):
        aj.empty(2, memory_format=KEPT)


def test_a_module_in_a_format_has_its_images_in_it() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 2), nn.BatchNorm2d(4), nn.Conv1d(2, 3, 2)).to(memory_format=LAST)
    kept = {name: p.is_contiguous(memory_format=LAST) for name, p in model.named_parameters() if p.ndim == 4}
    assert kept == {"0.weight": True}
    assert all(p.is_contiguous() for p in model.parameters() if p.ndim != 4)


WEIGHT = aj.arange(144.0).reshape(4, 4, 3, 3)


def test_a_weight_too_decides_on_the_format_of_a_convolution() -> None:
    for image, weight in ((IMAGES, WEIGHT), (IMAGES.contiguous(), WEIGHT.contiguous(memory_format=LAST))):
        assert F.conv2d(image, weight).is_contiguous(memory_format=LAST)
    assert F.conv2d(IMAGES.contiguous(), WEIGHT).is_contiguous()


def test_places_of_maxima_are_laid_out_as_the_maxima() -> None:
    for pooled in (F.max_pool2d(IMAGES, 2, return_indices=True), F.adaptive_max_pool2d(IMAGES, 3, return_indices=True)):
        assert all(t.is_contiguous(memory_format=LAST) for t in pooled)
    maxima, places = F.max_pool2d(IMAGES[..., :4], 2, return_indices=True)
    assert F.max_unpool2d(maxima, places, 2).is_contiguous(memory_format=LAST)
    assert F.max_unpool2d(maxima.contiguous(), places, 2).is_contiguous()


LAYERS: dict[str, Callable[[Tensor], Any]] = {
    "conv2d": lambda x: F.conv2d(x, WEIGHT),
    "conv_transpose2d": lambda x: F.conv_transpose2d(x, WEIGHT),
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 2),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 3),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, 3),
    "batch_norm": lambda x: F.batch_norm(x, aj.zeros(4), aj.ones(4), training=True),
    "batch_norm of running values": lambda x: F.batch_norm(x, aj.zeros(4), aj.ones(4)),
    "group_norm": lambda x: F.group_norm(x, 2),
    "interpolate": lambda x: F.interpolate(x, scale_factor=2),
    "smoothed": lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True),
    "areas": lambda x: F.interpolate(x, scale_factor=0.5, mode="area"),
    "pad": lambda x: F.pad(x, (1, 1, 1, 1)),
    "reflected": lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(x[..., :4], 2),
    "channel_shuffle": lambda x: F.channel_shuffle(x, 2),
    "dropout": lambda x: F.dropout(x, 0.5),
}


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_layers_keep_channels_innermost_and_the_values(layer: Callable[[Tensor], Tensor]) -> None:
    aj.manual_seed(0)
    found = layer(IMAGES)
    assert found.is_contiguous(memory_format=LAST)
    aj.manual_seed(0)
    in_rows = layer(IMAGES.contiguous())
    assert in_rows.is_contiguous()
    aj.testing.assert_close(found, in_rows, check_stride=False)
