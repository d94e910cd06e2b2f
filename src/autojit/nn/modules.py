"""torch.nn.modules: the layers under the paths of torch's files, such as ``nn.modules.conv``."""

from __future__ import annotations

from typing import Any

from autojit import nn as _nn
from autojit.core.module_paths import provide as _provide

_HOMES = {
    "activation": "activation attention",
    "adaptive": "output_loss",
    "batchnorm": "batchnorm lazy",
    "channelshuffle": "shape",
    "container": "containers",
    "conv": "convolution lazy",
    "distance": "shape",
    "dropout": "dropout",
    "flatten": "shape",
    "fold": "pooling",
    "instancenorm": "batchnorm lazy",
    "lazy": "lazy",
    "linear": "linear lazy parameter",
    "linear_cross_entropy_options": "functional.grouped",
    "loss": "loss output_loss",
    "module": "module state_dict hooks",
    "normalization": "normalization",
    "padding": "shape",
    "pixelshuffle": "shape",
    "pooling": "pooling",
    "rnn": "rnn rnn_cells utils.rnn",
    "sparse": "linear",
    "transformer": "transformer",
    "upsampling": "upsampling",
    "utils": "extents",
}
_OTHERS = {
    "conv": {"_ConvNd": "_Convolution", "_ConvTransposeNd": "_Transposed", "_LazyConvXdMixin": "_LazyConvolution"},
    "module": {"_IncompatibleKeys": "IncompatibleKeys"},
    "adaptive": {"_ASMoutput": "AdaptiveOutput"},
}
_provide(
    __name__,
    {path: " ".join(f"autojit.nn.{home}" for home in homes.split()) for path, homes in _HOMES.items()},
    _OTHERS,
)
_provide("autojit.nn", {"common_types": "autojit.nn.extents"})


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return [public for public in _nn.__all__ if public[0].isupper()]
    if hasattr(_nn, name):
        return getattr(_nn, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
