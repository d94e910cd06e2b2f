"""Elementwise composites that eager mode computes in one pass over large arrays and records as one node.

The composite is an ordinary function of operands; its derivatives of every order come from the graph transforms, so
they too are one pass. A captured step and small arrays get the composite itself; where the op appears in a graph after
all, ``expand`` gives the composite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

import autojit.ops.composites_pointwise as pointwise  # by its full name: asking the package would load all of it
from autojit.core.device import CPU
from autojit.core.dtypes import DType, dtype_of_numpy
from autojit.core.ports import transforms_port
from autojit.core.records import record
from autojit.core.types import TensorType
from autojit.ir.builder import GraphBuilder
from autojit.ir.graph import Graph
from autojit.ir.inline import inline
from autojit.ir.interpreter import evaluate
from autojit.ir.op import Operands, bind
from autojit.ops import composites_activation as activation
from autojit.ops.base import Elementwise, broadcast_shapes
from autojit.ops.samples import Samples, draws
from autojit.ops.shape import broadcast_to

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["COMPOSITES", "Fused"]

COMPOSITES: dict[str, Callable[..., Any]] = {
    name: getattr(module, name)
    for module, names in (
        (
            activation,
            (
                "celu", "elu", "gelu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "logsigmoid",
                "mish", "selu", "silu", "softplus", "softshrink", "softsign", "tanhshrink", "threshold",
            ),
        ),
        (pointwise, pointwise.__all__),
    )
    for name in names
}  # fmt: skip


@record
class Fused(Elementwise):
    """The composite ``COMPOSITES[composite](*operands, *options)``, or its adjoint, taken ``order`` times.

    The operands of an adjoint are those of what it is the adjoint of, then the cotangents of its results; its own
    results, ``count`` of them, are the cotangents of those operands.
    """

    masks_cotangents: ClassVar[bool] = True
    composite: str
    options: tuple[Any, ...]
    order: int = 0
    count: int = 1

    lowering: ClassVar[str] = "composite"
    accepts: ClassVar[tuple[str, ...]] = ("float",)

    @property
    def shown_name(self) -> str:
        return self.composite

    @property
    def n_outputs(self) -> int:  # type: ignore[override]
        return self.count

    def result_type(self, *types: TensorType) -> Any:
        found = super().result_type(*types)
        return found if self.count == 1 else (found,) * self.count

    def graph(self, shape: tuple[int, ...], dtype: DType, device: Any, operands: int) -> Graph:
        """The composite as a graph of operands of one shape."""
        if self.order:
            inner = Fused(self.composite, self.options, self.order - 1, operands - self.count)
            return transforms_port().adjoint(inner.graph(shape, dtype, device, self.count), is_masked=True)  # type: ignore[no-any-return]
        builder = GraphBuilder()
        values = [builder.input(TensorType(shape, dtype, device)) for _ in range(operands)]
        found = COMPOSITES[self.composite](*[builder.tracer(v) for v in values], *self.options)
        return builder.finish([found.value])

    def expand(self, *operands: Any) -> Any:
        """The composite on operands, broadcast to one shape."""
        spec = operands[0].spec
        shape = broadcast_shapes(*[x.spec.shape for x in operands])
        full = [broadcast_to(x, shape) if x.spec.shape != shape else x for x in operands]
        found = inline(self.graph(shape, spec.dtype, spec.device, len(operands)), full, full[0])
        return found[0] if self.count == 1 else tuple(found)

    def eager(self, *arrays: NDArray[Any]) -> Any:
        shape = np.broadcast_shapes(*[a.shape for a in arrays])
        dtype = dtype_of_numpy(arrays[0].dtype)
        graph = self.graph(shape, dtype, CPU, len(arrays))
        found = evaluate(graph, [np.broadcast_to(a, shape) for a in arrays])
        return found[0] if self.count == 1 else tuple(found)

    def vjp(self, primals: Operands, result: Any, y_bar: Any) -> Sequence[Any]:
        cotangents = y_bar if self.count > 1 else (y_bar,)
        given = [primals[0]._literal(0, primals[0].spec) if c is None else c for c in cotangents]
        adjoint = Fused(self.composite, self.options, self.order + 1, len(primals))
        found = bind(adjoint, *primals, *given)
        return (found,) if adjoint.count == 1 else tuple(found)

    def jvp(self, primals: Operands, result: Any, tangents: Operands) -> Any:
        spec = primals[0].spec
        shape = broadcast_shapes(*[x.spec.shape for x in primals])
        graph = transforms_port().jvp(self.graph(shape, spec.dtype, spec.device, len(primals)))
        zeros = [x._literal(0, x.spec) if t is None else t for x, t in zip(primals, tangents, strict=True)]
        full = [broadcast_to(x, shape) if x.spec.shape != shape else x for x in (*primals, *zeros)]
        found = inline(graph, full, full[0])[self.count :]
        return found[0] if self.count == 1 else tuple(found)

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if dtype.kind != "float":
            return []
        x, y = draws((2, 3), dtype, 1), draws((2, 3), dtype, 2)
        adjoint = Fused("silu", (), 1)
        return [(Fused("silu", ()), (x,)), (Fused("elu", (1.5,)), (x,)), (adjoint, (x, y)), (adjoint, (x[:1], y))]
