"""Tensors: eager execution that records history, storages and views, and the functions users call."""

import sys
from types import ModuleType
from typing import Any

import autojit.tensor.fast_paths  # noqa: F401 (large arrays in eager mode)
from autojit.tensor.factories import tensor as _factory
from autojit.tensor.methods import attach
from autojit.tensor.tensor import Tensor

FUNCTIONS = attach()


class _Package(ModuleType):
    """``autojit.tensor`` names this package and the factory: calling the package calls the factory.

    The public namespace binds the factory; tools that import submodules by path bind the package again.
    """

    def __call__(self, data: Any, **options: Any) -> Tensor:
        return _factory(data, **options)


sys.modules[__name__].__class__ = _Package

__all__ = ["FUNCTIONS", "Tensor"]
