"""Shape, dtype and strides of every node, from a run with examples."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import autojit as aj
from autojit.core.dtypes import DType
from autojit.fx.interpreter import Interpreter
from autojit.fx.node import Node, map_aggregate
from autojit.tensor import Tensor
from autojit.tensor.size import Size

__all__ = ["ShapeProp", "TensorMetadata"]


class TensorMetadata(NamedTuple):
    """What is known of a tensor without its elements."""

    shape: Size
    dtype: DType
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: Any
    is_quantized: bool = False
    qparams: Mapping[str, Any] = MappingProxyType({})


class ShapeProp(Interpreter):
    """Runs a module and notes ``meta["tensor_meta"]`` and ``meta["type"]`` of every node.

    Example:
        >>> import autojit as aj
        >>> traced = aj.fx.symbolic_trace(aj.nn.Linear(3, 2))
        >>> result = aj.fx.passes.shape_prop.ShapeProp(traced).propagate(aj.zeros(4, 3))
        >>> traced.graph.output_node().meta["tensor_meta"].shape
        autojit.Size([4, 2])
    """

    def run_node(self, n: Node) -> Any:
        """Run a node and note what it gave."""
        result = super().run_node(n)
        found: list[Tensor] = []

        def noted(part: Any) -> Any:
            if not isinstance(part, Tensor):
                return part
            found.append(part)
            return TensorMetadata(part.shape, part.dtype, part.requires_grad, part.stride(), _format_of(part))

        meta = map_aggregate(result, noted)
        if found:
            n.meta["tensor_meta"] = meta
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """The result for examples."""
        return self.run(*args)


def _format_of(tensor: Tensor) -> Any:
    """The format in which a tensor is without gaps; None: in none."""
    formats: list[Any] = [aj.contiguous_format]
    formats += {4: [aj.channels_last], 5: [aj.channels_last_3d]}.get(tensor.ndim, [])
    return next((kind for kind in formats if tensor.is_contiguous(memory_format=kind)), None)
