"""Tensors: the object, its memory, and what holds for the thread."""

from autojit.tensor.tensor import Tensor

__all__ = ["Tensor"]
