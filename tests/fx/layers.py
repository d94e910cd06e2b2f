"""Every layer of ``nn``, how it is made and what it is called with."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import autojit as aj
from autojit import nn

Case = tuple[Callable[[], nn.Module], Callable[[], tuple[Any, ...]]]


def _of(*shapes: tuple[int, ...]) -> Callable[[], tuple[Any, ...]]:
    return lambda: tuple(aj.randn(*shape) for shape in shapes)


def _signs(*shapes: tuple[int, ...]) -> Callable[[], tuple[Any, ...]]:
    return lambda: (*_of(*shapes)(), aj.tensor([1.0, -1.0, 1.0]))


def _classes(shape: tuple[int, ...], *classes: int) -> Callable[[], tuple[Any, ...]]:
    return lambda: (aj.randn(*shape), aj.tensor(classes))


def _spatial(name: str, *args: Any, extent: int = 6, **options: Any) -> dict[str, Case]:
    made = {d: getattr(nn, f"{name}{d}d") for d in (1, 2, 3)}
    return {f"{name}{d}d": (partial(kind, *args, **options), _of((2, 2, *[extent] * d))) for d, kind in made.items()}


_ACTIVATIONS = (
    "ELU Hardshrink Hardsigmoid Hardtanh Hardswish LeakyReLU LogSigmoid PReLU ReLU ReLU6 RReLU SELU CELU GELU Sigmoid "
    "SiLU Mish Softplus Softshrink Softsign Tanh Tanhshrink"
)
_LOSSES = "L1Loss MSELoss SmoothL1Loss HuberLoss"

LAYERS: dict[str, Case] = {
    "Linear": (partial(nn.Linear, 4, 3), _of((2, 4))),
    "Bilinear": (partial(nn.Bilinear, 4, 3, 2), _of((2, 4), (2, 3))),
    "Identity": (nn.Identity, _of((2, 4))),
    "Flatten": (nn.Flatten, _of((2, 3, 4))),
    "Unflatten": (partial(nn.Unflatten, 1, (2, 2)), _of((2, 4))),
    **_spatial("Conv", 2, 3, 3, padding=1, extent=5),
    **_spatial("ConvTranspose", 2, 3, 3, stride=2, extent=4),
    **_spatial("MaxPool", 2),
    **_spatial("AvgPool", 2),
    **_spatial("AdaptiveAvgPool", 2),
    **_spatial("AdaptiveMaxPool", 2),
    **_spatial("BatchNorm", 2, extent=4),
    **_spatial("InstanceNorm", 2, affine=True, extent=4),
    **{key: case for kind in ("Reflection", "Replication", "Zero", "Circular")
       for key, case in _spatial(f"{kind}Pad", 1, extent=4).items()},
    "Conv2d circular": (partial(nn.Conv2d, 2, 3, 3, padding=1, padding_mode="circular"), _of((2, 2, 5, 5))),
    "Unfold": (partial(nn.Unfold, 2), _of((2, 2, 5, 5))),
    "Fold": (partial(nn.Fold, (4, 5), (2, 2)), _of((1, 8, 12))),
    "LPPool2d": (partial(nn.LPPool2d, 2, 2), lambda: (aj.rand(2, 2, 6, 6),)),
    **{name: (getattr(nn, name), _of((3, 4))) for name in _ACTIVATIONS.split()},
    "GLU": (nn.GLU, _of((3, 4))),
    "Softmax": (partial(nn.Softmax, 1), _of((3, 4))),
    "LogSoftmax": (partial(nn.LogSoftmax, 1), _of((3, 4))),
    "GroupNorm": (partial(nn.GroupNorm, 2, 4), _of((3, 4, 5))),
    "LayerNorm": (partial(nn.LayerNorm, 4), _of((3, 4))),
    "RMSNorm": (partial(nn.RMSNorm, 4), _of((3, 4))),
    "LocalResponseNorm": (partial(nn.LocalResponseNorm, 2), _of((3, 4, 5, 5))),
    "Dropout": (nn.Dropout, _of((3, 4))),
    "AlphaDropout": (nn.AlphaDropout, _of((3, 4))),
    "Embedding": (partial(nn.Embedding, 5, 3), lambda: (aj.tensor([[0, 1], [4, 2]]),)),
    "EmbeddingBag": (partial(nn.EmbeddingBag, 5, 3), lambda: (aj.tensor([[0, 1], [4, 2]]),)),
    "RNN": (partial(nn.RNN, 3, 4), _of((5, 2, 3))),
    "LSTM": (partial(nn.LSTM, 3, 4, 2, batch_first=True, bidirectional=True), _of((5, 2, 3))),
    "GRU": (partial(nn.GRU, 3, 4), _of((5, 2, 3))),
    "LSTMCell": (partial(nn.LSTMCell, 3, 4), _of((2, 3))),
    "MultiheadAttention": (partial(nn.MultiheadAttention, 4, 2), _of((5, 2, 4), (5, 2, 4), (5, 2, 4))),
    "TransformerEncoderLayer": (partial(nn.TransformerEncoderLayer, 4, 2, 8, 0.0, batch_first=True), _of((2, 5, 4))),
    "TransformerDecoderLayer": (partial(nn.TransformerDecoderLayer, 4, 2, 8, 0.0), _of((2, 5, 4), (2, 5, 4))),
    "Transformer": (partial(nn.Transformer, 4, 2, 1, 1, 8, 0.0), _of((2, 5, 4), (2, 5, 4))),
    "CosineSimilarity": (nn.CosineSimilarity, _of((2, 4), (2, 4))),
    "PixelShuffle": (partial(nn.PixelShuffle, 2), _of((1, 4, 3, 3))),
    "Upsample": (partial(nn.Upsample, scale_factor=2, mode="bilinear"), _of((1, 2, 3, 3))),
    **{name: (getattr(nn, name), _of((3, 4), (3, 4))) for name in _LOSSES.split()},
    "BCEWithLogitsLoss": (nn.BCEWithLogitsLoss, lambda: (aj.randn(3), aj.rand(3))),
    "CrossEntropyLoss": (partial(nn.CrossEntropyLoss, label_smoothing=0.1), _classes((3, 4), 0, 1, 3)),
    "NLLLoss": (nn.NLLLoss, _classes((3, 4), 0, 1, 3)),
    "KLDivLoss": (partial(nn.KLDivLoss, reduction="batchmean"), lambda: (aj.randn(3, 4), aj.rand(3, 4))),
    "GaussianNLLLoss": (nn.GaussianNLLLoss, lambda: (aj.randn(3, 2), aj.randn(3, 2), aj.rand(3, 2) + 0.1)),
    "MultiMarginLoss": (nn.MultiMarginLoss, _classes((2, 4), 0, 3)),
    "HingeEmbeddingLoss": (nn.HingeEmbeddingLoss, _signs((3,))),
    "MarginRankingLoss": (nn.MarginRankingLoss, _signs((3,), (3,))),
    "CosineEmbeddingLoss": (nn.CosineEmbeddingLoss, _signs((3, 4), (3, 4))),
    "TripletMarginLoss": (nn.TripletMarginLoss, _of((3, 4), (3, 4), (3, 4))),
}  # fmt: skip
