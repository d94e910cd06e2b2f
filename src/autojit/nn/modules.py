"""torch.nn.modules: the layers under the paths of torch's files, such as ``nn.modules.conv``."""

from __future__ import annotations

from autojit import nn as _nn
from autojit.core.lazy_modules import LazyNames as _LazyNames
from autojit.core.lazy_modules import provide as _provide

_HOMES = {
    "activation": "activation multihead_attention",
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
    "utils": "extents state_dict",
}
_OTHERS = {
    "modules.conv": {
        "_ConvNd": "convolution:_Convolution",
        "_ConvTransposeNd": "convolution:_Transposed",
        "_LazyConvXdMixin": "lazy:_LazyConvolution",
    },
    "modules.module": {
        "_IncompatibleKeys": "state_dict:IncompatibleKeys",
        "_EXTRA_STATE_KEY_SUFFIX": "state_dict:_EXTRA_STATE",
    },
    "modules.adaptive": {"_ASMoutput": "output_loss:AdaptiveOutput"},
}
_provide("autojit.nn", {f"modules.{path}": homes for path, homes in _HOMES.items()}, _OTHERS)

__all__ = [name for name in _nn.__all__ if name[0].isupper()]
__getattr__ = _LazyNames(__name__, others="autojit.nn")
