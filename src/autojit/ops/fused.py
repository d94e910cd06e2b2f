"""Elementwise composites that eager mode computes in one pass over large arrays and records as one node.

The composite is an ordinary function of operands; its derivatives of every order come from the graph transforms, so
they too are one pass. A captured step and small arrays get the composite itself; where the op appears in a graph after
all, ``expand`` gives the composite.
"""

from __future__ import annotations

import math
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
from autojit.ops.cotangent_masks import masking
from autojit.ops.samples import Samples, draws
from autojit.ops.shape import broadcast_to

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["COMPOSITES", "Fused", "zeroes_cotangents"]

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
_DENSE = {
    "addcdiv", "addcmul", "distances", "fraction", "gated", "gelu", "inner_product", "kron", "lerp", "logit",
    "logit_loss", "logsigmoid", "logsumexp", "mish", "norm", "normalized", "normalized_with_moments", "outer",
    "probability_loss", "rms_normalized", "shifted_and_scaled", "silu", "softsign", "squared_errors", "tanhshrink",
    "var",
}  # fmt: skip


def zeroes_cotangents(name: str, options: tuple[Any, ...]) -> bool:
    """Whether an op of the composite, of this file or ``fused_arrays.py``, is one that ``masks_cotangents``."""
    if name == "pointwise_losses":
        return zeroes_cotangents(*options[:2])
    if name in ("norm", "distances"):  # other powers have derivative 0 at 0 by a mask, or are extrema
        return not (options[0] == 1 or -math.inf < options[0] < 0)
    if name in ("softmax_cotangent", "log_softmax_cotangent"):
        return bool(options[-1])
    return name not in _DENSE and (name, *options) != ("smooth_l1", 0)


@record
class Fused(Elementwise):
    """The composite ``COMPOSITES[composite](*operands, *options)``, or an adjoint of it, of any order.

    ``adjoints`` says of each adjoint taken so far whether its cotangents may be masked. The operands of an adjoint are
    those of what it is the adjoint of, then the cotangents of its results; its own results, ``count`` of them, are the
    cotangents of those operands.
    """

    composite: str
    options: tuple[Any, ...]
    adjoints: tuple[bool, ...] = ()
    count: int = 1

    lowering: ClassVar[str] = "composite"
    accepts: ClassVar[tuple[str, ...]] = ("float",)

    @property
    def masks_cotangents(self) -> bool:  # type: ignore[override]
        return bool(self.adjoints) or zeroes_cotangents(self.composite, self.options)

    @property
    def shown_name(self) -> str:
        return self.composite

    @property
    def n_outputs(self) -> int:
        return self.count

    def result_type(self, *types: TensorType) -> Any:
        found = super().result_type(*types)
        return found if self.count == 1 else (found,) * self.count

    def graph(self, shape: tuple[int, ...], dtype: DType, device: Any, operands: int) -> Graph:
        """The composite as a graph of operands of one shape."""
        if self.adjoints:
            *before, is_masked = self.adjoints
            inner = Fused(self.composite, self.options, tuple(before), operands - self.count)
            backward: Graph = transforms_port().adjoint(
                inner.graph(shape, dtype, device, self.count), is_masked=is_masked
            )
            return backward
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
        adjoint = Fused(self.composite, self.options, (*self.adjoints, masking.is_on), len(primals))
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
        adjoint = Fused("silu", (), (False,))
        return [(Fused("silu", ()), (x,)), (Fused("elu", (1.5,)), (x,)), (adjoint, (x, y)), (adjoint, (x[:1], y))]
