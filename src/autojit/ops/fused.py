"""Elementwise composites that eager mode computes in one pass over large arrays and records as one node.

The composite is an ordinary function of operands; its derivatives of every order come from the graph transforms, so
they too are one pass. A captured step and small arrays get the composite itself; where the op appears in a graph after
all, ``expand`` gives the composite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import compress
from typing import Any, ClassVar, Self, cast

import numpy as np

import autojit.ops.composites_pointwise as pointwise  # by its full name: asking the package would load all of it
from autojit.core.dtypes import DType
from autojit.core.ports import ports
from autojit.core.records import record
from autojit.core.types import TensorType
from autojit.ir.graph import Graph
from autojit.ir.inline import live
from autojit.ir.op import Ndarray, O, Operands, bind, is_type_only
from autojit.ir.result_types import holds_plain
from autojit.ops import composites_activation as activation
from autojit.ops.base import Elementwise, broadcast_shapes
from autojit.ops.cotangent_masks import masking
from autojit.ops.graph_op import Composite, ElementwiseGraph, GraphOp, as_tuple
from autojit.ops.loop_orders import goes_by_rows
from autojit.ops.numpy_program import program_of
from autojit.ops.samples import Samples, draws
from autojit.ops.shape import broadcast_to

__all__ = ["COMPOSITES", "Fused", "NamedComposite"]

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
    "add_scaled", "addcdiv", "addcmul", "distances", "fraction", "gated", "gelu", "inner_product", "kron", "ldexp",
    "lerp", "logit", "logit_loss", "logsigmoid", "logsumexp", "mish", "norm", "normalized", "normalized_with_moments",
    "outer", "probability_loss", "rms_normalized", "shifted_and_scaled", "silu", "softsign", "squared_errors",
    "tanhshrink", "var",
}  # fmt: skip

_KEPT_AS_IN_TORCH = ("window_means",)  # whose node there refuses a changed operand, though it reads its shape alone


def zeroes_cotangents(name: str, options: tuple[Any, ...]) -> bool:
    """Whether an op of the composite, of this file or ``fused_arrays.py``, is one that ``masks_cotangents``."""
    if name == "pointwise_losses":
        return zeroes_cotangents(*options[:2])
    if name in ("norm", "distances"):  # other powers have derivative 0 at 0 by a mask, or are extrema
        return bool(options[0] != 1)
    if name in ("softmax_cotangent", "log_softmax_cotangent"):
        return bool(options[-1])
    if name == "rnn_cell":
        return not options[0]
    if name in ("window_maxima", "window_means"):  # slices, except of windows of one element over all of an axis
        return any((size, stride) != (1, 1) for size, stride, *_ in options[0])
    return name not in _DENSE and (name, *options) != ("smooth_l1", 0)


Adjoint = tuple[tuple[int, ...], bool]


@record
class NamedComposite(Composite, abstract=True):
    """The composite ``functions[composite](*operands, *options)``, of ``results`` results, or an adjoint of it.

    ``adjoints`` says of which operands each of the adjoints taken so far, of any order, gives the cotangents, and
    whether those it is given may be masked: of n operands and m results it takes these operands and then m cotangents.
    ``wanted`` names the operands whose cotangents the VJP rule is asked for; None: all that have one.
    """

    composite: str
    options: tuple[Any, ...]
    wanted: tuple[int, ...] | None = None
    adjoints: tuple[Adjoint, ...] = ()
    results: int = 1

    functions: ClassVar[Mapping[str, Callable[..., Any]]]

    @property
    def masks_cotangents(self) -> bool:
        is_masked = any(is_given_masked for _, is_given_masked in self.adjoints)
        return is_masked or zeroes_cotangents(self.composite, self.options)

    @property
    def shown_name(self) -> str:
        return self.composite

    @property
    def n_outputs(self) -> int:
        return len(self.adjoints[-1][0]) if self.adjoints else self.results

    def after(self, adjoints: tuple[Adjoint, ...]) -> Self:
        """The composite after these adjoints; the same op every time, which knows what it has been applied to."""
        return cast("Self", _after(self, adjoints))

    def expand(self, *operands: O) -> Any:
        if self.adjoints:
            return GraphOp.expand(self, *operands)
        return self.functions[self.composite](*self.fitted(operands), *self.options)

    def new_graph(self, types: Sequence[TensorType]) -> Graph:
        if not self.adjoints:
            return super().new_graph(types)
        inner, (wanted, is_masked) = self.after(self.adjoints[:-1]), self.adjoints[-1]
        graph = inner.graph_of(types[: len(types) - inner.n_outputs])
        found: Graph = ports.transforms.adjoint(graph, wanted, is_masked=is_masked)
        return found

    def wanted_of(self, primals: Operands) -> Sequence[int]:
        return self.wanted if self.wanted is not None else super().wanted_of(primals)

    def pulled(self, wanted: Sequence[int], primals: Operands, bars: Operands) -> Sequence[Any]:
        """By one op again, which eager mode computes as it computes this one.

        It does not look at an operand of which only the type was kept: a cotangent stands there.
        """
        adjoint = self.after((*self.adjoints, (tuple(wanted), masking.is_on)))
        given = [self._in_place_of(x, bars) if is_type_only(x) else x for x in primals]
        if any(map(is_type_only, primals)):
            read = _read(adjoint, tuple([x.spec for x in (*given, *bars)]))
            assert not any(map(is_type_only, compress(primals, read))), f"{self.composite}: an operand was not kept"
        return as_tuple(bind(adjoint, *given, *bars), len(wanted))

    @staticmethod
    def _in_place_of(x: Any, bars: Operands) -> Any:
        like = next((bar for bar in bars if bar.spec == x.spec), None)
        return x._literal(0, x.spec) if like is None else like

    def read_by_rule(self, types: Sequence[TensorType]) -> Sequence[bool]:
        """Those that are inputs of an op of the adjoint, whether or not cotangents are masked."""
        if self.opened_by != "expand" or not holds_plain(tuple(types)) or self.composite in _KEPT_AS_IN_TORCH:
            return super().read_by_rule(types)  # what loops read is not known before they are written out
        found = as_tuple(self.result_type(*types), self.n_outputs)
        wanted = self.wanted
        if wanted is None:
            wanted = tuple([k for k, t in enumerate(types) if t.dtype.is_differentiable])
        given = (*types, *[t for t in found if t.dtype.is_differentiable])
        reads = [_read(self.after((*self.adjoints, (wanted, is_masked))), given) for is_masked in (False, True)]
        return [any(read) for read in zip(*reads, strict=True)][: len(types)]


@lru_cache(maxsize=1024)
def _read(op: NamedComposite, types: tuple[TensorType, ...]) -> tuple[bool, ...]:
    """Which inputs the graph of a composite for operands of these types reads."""
    graph = live(op.graph_of(types))
    read = {v for node in graph.nodes for v in node.inputs} | set(graph.outputs)
    return tuple([v in read for v in graph.inputs])


@lru_cache(maxsize=1024)
def _after(op: NamedComposite, adjoints: tuple[Adjoint, ...]) -> NamedComposite:
    return type(op)(op.composite, op.options, None, adjoints, op.results)


@record
class Fused(ElementwiseGraph, NamedComposite):
    """The composite ``COMPOSITES[composite](*operands, *options)`` of elementwise ops, or an adjoint of it."""

    accepts: ClassVar[tuple[str, ...]] = ("float",)
    functions: ClassVar[Mapping[str, Callable[..., Any]]] = COMPOSITES
    masks_cotangents = NamedComposite.masks_cotangents

    def result_type(self, *types: TensorType) -> Any:
        return self.one_or_all([Elementwise.result_type(self, *types)] * self.n_outputs)

    def graph_of(self, types: Sequence[TensorType]) -> Graph:
        shape = broadcast_shapes(*[t.shape for t in types])
        return super().graph_of([t.with_shape(shape) for t in types])

    def fitted(self, operands: Operands) -> Operands:
        shape = broadcast_shapes(*[x.spec.shape for x in operands])
        return [broadcast_to(x, shape) if x.spec.shape != shape else x for x in operands]

    def eager(self, *arrays: Ndarray) -> Any:
        given = self.in_rows(arrays)
        if given is not None:
            return self.one_or_all(program_of(self, given).run(*given))
        shape = np.broadcast_shapes(*[a.shape for a in arrays])
        return self.line_by_line(*[np.broadcast_to(a, shape) for a in arrays])

    @staticmethod
    def in_rows(arrays: Sequence[Ndarray]) -> Sequence[Ndarray] | None:
        """The operands of a program, in their common shape; None where results are laid out in another order than rows,
        which NumPy's calls for whole programs do not look after.
        """
        shape = arrays[0].shape
        for a in arrays:
            if a.shape != shape or not a.flags.c_contiguous:
                break
        else:
            return arrays
        shape = np.broadcast(*arrays).shape if len(arrays) > 1 else shape
        given = [a if a.shape == shape else np.broadcast_to(a, shape) for a in arrays]
        return given if all(map(goes_by_rows, given)) else None

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if dtype.kind != "float":
            return []
        x, y = draws((2, 3), dtype, 1), draws((2, 3), dtype, 2)
        adjoint = Fused("silu", (), None, (((0,), False),))
        return [(Fused("silu", ()), (x,)), (Fused("elu", (1.5,)), (x,)), (adjoint, (x, y)), (adjoint, (x[:1], y))]
