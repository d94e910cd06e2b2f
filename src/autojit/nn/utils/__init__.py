"""Utilities around gradients, parameters, weights and sequences."""

from __future__ import annotations

from autojit.functions.argument_errors import name_arguments_in_errors
from autojit.nn.utils import parametrizations, parametrize, rnn, stateless
from autojit.nn.utils.clip_grad import (
    clip_grad_norm,
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)  # fmt: skip
from autojit.nn.utils.convert_parameters import parameters_to_vector, vector_to_parameters
from autojit.nn.utils.fusion import (
    fuse_conv_bn_eval,
    fuse_conv_bn_weights,
    fuse_linear_bn_eval,
    fuse_linear_bn_weights,
)  # fmt: skip
from autojit.nn.utils.init import skip_init
from autojit.nn.utils.memory_format import convert_conv2d_weight_memory_format, convert_conv3d_weight_memory_format
from autojit.nn.utils.spectral_norm import remove_spectral_norm, spectral_norm
from autojit.nn.utils.weight_norm import remove_weight_norm, weight_norm

__all__ = [
    "clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_",
    "convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format", "fuse_conv_bn_eval",
    "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights", "get_total_norm",
    "parameters_to_vector", "parametrizations", "parametrize", "remove_spectral_norm", "remove_weight_norm", "rnn",
    "skip_init", "spectral_norm", "stateless", "vector_to_parameters", "weight_norm",
]  # fmt: skip
_modules = ("parametrizations", "parametrize", "rnn", "stateless")
name_arguments_in_errors(globals(), [name for name in __all__ if name not in _modules])
