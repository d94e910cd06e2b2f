"""What a layer computes by may be assigned at any time: all attributes of all layers that a step meets are compared."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import autojit as aj
from autojit import nn
from autojit.jit.guards import PRIMITIVES, broken_guard

LAYERS = {name: found for name, found in vars(nn).items() if inspect.isclass(found) and issubclass(found, nn.Module)}
GIVEN: dict[str, tuple[Any, ...]] = {
    "Threshold": (0.1, 0.5), "MultiheadAttention": (4, 2), "Bilinear": (2, 3, 4), "Embedding": (5, 3),
    "EmbeddingBag": (5, 3), "Linear": (3, 2), "LazyLinear": (2,), "CrossMapLRN2d": (2,), "GroupNorm": (2, 4),
    "LayerNorm": (4,), "RMSNorm": (4,), "LocalResponseNorm": (2,), "AdaptiveLogSoftmaxWithLoss": (6, 8, [2, 4]),
    "LinearCrossEntropyLoss": (3, 2), "Fold": ((4, 4), 2), "Unfold": (2,), "ChannelShuffle": (2,),
    "PixelShuffle": (2,), "PixelUnshuffle": (2,), "Unflatten": (1, (2, 3)), "RNNBase": ("LSTM", 3, 2),
    "RNNCellBase": (3, 2, True, 4), "TransformerDecoderLayer": (4, 2, 8), "TransformerEncoderLayer": (4, 2, 8),
    "FractionalMaxPool2d": (2, 2), "FractionalMaxPool3d": (2, 2), "DataParallel": (nn.Linear(3, 2),),
}  # fmt: skip
ENDS: dict[str, tuple[Any, ...]] = {
    "Norm1d": (4,), "Norm2d": (4,), "Norm3d": (4,), "BatchNorm": (4,), "Pool1d": (2,), "Pool2d": (2,), "Pool3d": (2,),
    "Pad1d": (1,), "Pad2d": (1,), "Pad3d": (1,), "Cell": (3, 2), "RNN": (3, 2), "LSTM": (3, 2), "GRU": (3, 2),
}  # fmt: skip
CONSTANT = {"ConstantPad1d": (1, 0.5), "ConstantPad2d": (1, 0.5), "ConstantPad3d": (1, 0.5)}
LP = {f"LPPool{d}d": (2, 2) for d in (1, 2, 3)}
UNPOOLED = {f"MaxUnpool{d}d": (2,) for d in (1, 2, 3)}


def _make(name: str) -> nn.Module:
    given = {**GIVEN, **CONSTANT, **LP, **UNPOOLED}.get(name)
    if given is None and "Conv" in name:
        given = (2, 3) if "Lazy" in name else (2, 2, 3)
    if given is None and name in ("TransformerEncoder", "TransformerDecoder"):
        given = (_make(f"{name}Layer"), 2)
    if given is None:
        given = next((found for end, found in ENDS.items() if name.endswith(end) and "Lazy" not in name), ())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some are there for old programs
        made: nn.Module = LAYERS[name](*given)
    return made


def _another(value: Any) -> Any:
    """A value of the same kind that is another one; None where there is no such thing."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return f"{value}, another"
    if type(value) in (tuple, list) and value:
        return type(value)((_another(value[0]), *value[1:]))
    if value is None:
        return 1
    return aj.tanh if callable(value) and not isinstance(value, nn.Module) else None


def _options(layer: nn.Module) -> Iterator[tuple[str, nn.Module, str]]:
    for path, part in layer.named_modules():
        for name, value in vars(part).items():
            if not name.startswith("_") and (isinstance(value, (*PRIMITIVES, tuple, list)) or callable(value)):
                yield f"{path}.{name}", part, name


@pytest.mark.parametrize("name", LAYERS)
def test_no_attribute_of_a_layer_is_another_one_without_a_new_capture(name: str) -> None:
    layer = _make(name)
    step = aj.jit(lambda x: (layer.training, x * 2)[1])
    step(aj.ones(1))
    guards = step.last_step().capture.guards
    for path, part, attribute in list(_options(layer)):
        before = getattr(part, attribute)
        after = _another(before)
        if after is not None:
            assert broken_guard(guards) is None, path
            vars(part)[attribute] = after
            assert broken_guard(guards) is not None, path
            vars(part)[attribute] = before


CHANGES: dict[str, Callable[[Any], Any]] = {
    "stride": lambda m: setattr(m[0], "stride", (2, 2)),
    "padding": lambda m: setattr(m[0], "padding", (2, 1)),
    "dilation": lambda m: setattr(m[0], "dilation", (2, 2)),
    "kernel size": lambda m: setattr(m[2], "kernel_size", 3),
    "sizes": lambda m: setattr(m[3], "output_size", (3, 2)),
    "slope": lambda m: setattr(m[1], "negative_slope", 2.0),
    "function": lambda m: setattr(m[4], "activation", aj.tanh),
    "a part": lambda m: setattr(m[4], "norm_first", True),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_step_computes_by_what_was_assigned_to_its_layers(change: str) -> None:
    aj.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.LeakyReLU(), nn.MaxPool2d(2, stride=1), nn.AdaptiveAvgPool2d((2, 4)),
        nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0),
    ).double()  # fmt: skip
    x = aj.randn(1, 2, 8, 8, dtype=aj.float64)

    def forward(x: aj.Tensor) -> aj.Tensor:
        for k in range(4):
            x = model[k](x)
        return model[4](x.flatten(2).transpose(1, 2))  # type: ignore[no-any-return]

    step = aj.jit(forward)
    before = [step(x) for _ in range(2)]
    CHANGES[change](model)
    after, expected = step(x), forward(x)
    assert after.shape == expected.shape
    assert aj.allclose(after, expected)
    assert after.shape != before[0].shape or not aj.allclose(after, before[0])
