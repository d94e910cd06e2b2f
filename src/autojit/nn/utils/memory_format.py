"""Weights of convolutions in another memory format."""

from __future__ import annotations

from typing import Any, TypeVar

from autojit.nn.convolution import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d
from autojit.nn.module import Module

AnyModule = TypeVar("AnyModule", bound=Module)


def convert_conv2d_weight_memory_format(module: AnyModule, memory_format: Any) -> AnyModule:
    """Store the weights of all 2d convolutions of the module in ``memory_format``; returns the module.

    Example:
        >>> import autojit as aj
        >>> conv = aj.nn.Conv2d(8, 4, 3)
        >>> aj.nn.utils.convert_conv2d_weight_memory_format(conv, aj.channels_last).weight.stride()
        (72, 1, 24, 8)
    """
    return _convert(module, memory_format, (Conv2d, ConvTranspose2d))


def convert_conv3d_weight_memory_format(module: AnyModule, memory_format: Any) -> AnyModule:
    """Store the weights of all 3d convolutions of the module in ``memory_format``; returns the module."""
    return _convert(module, memory_format, (Conv3d, ConvTranspose3d))


def _convert(module: AnyModule, memory_format: Any, kinds: tuple[type[Module], ...]) -> AnyModule:
    for part in module.modules():
        if isinstance(part, kinds):
            part.weight.data = part.weight.detach().contiguous(memory_format=memory_format)
    return module
