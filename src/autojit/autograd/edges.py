"""What edges of the history lead to: the types of tensors, and zeros in them."""

from __future__ import annotations

from autojit.core.types import TensorType
from autojit.functions.elementwise import clone
from autojit.tensor import Tensor
from autojit.tensor.node import AccumulateGrad, Edge, type_of_meta
from autojit.tensor.tensor import type_of

__all__ = ["edge_type", "zeros_of"]


def zeros_of(edge: Edge) -> Tensor:
    """Zeros in the type of the tensor an edge stands for."""
    found: Tensor = Tensor._literal_of(0, edge_type(edge))
    return found if type_of(found).shape else clone(found)


def edge_type(edge: Edge) -> TensorType:
    """The type of the tensor an edge stands for."""
    node, number = edge
    if isinstance(node, AccumulateGrad):
        return type_of(node.variable)
    return type_of_meta(node.out_metas[number])
