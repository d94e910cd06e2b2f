"""Tensors: eager execution that records history, storages and views, and the functions users call."""

from autojit.tensor.methods import attach
from autojit.tensor.tensor import Tensor

FUNCTIONS = attach()

__all__ = ["FUNCTIONS", "Tensor"]
