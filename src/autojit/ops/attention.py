"""Scaled dot-product attention as one op, which a machine may have kernels for that make no table of all weights.

``Attention`` gives the attended values and, for each query, the logarithm of the sum of the exponentials of its scores.
From that the derivative, ``AttentionAdjoint``, computes the weights again instead of keeping them. Both are composites:
that is what a machine without such kernels computes, and where derivatives of higher order, those by the mask, tangents
and batches with random numbers come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import inf
from typing import Any, ClassVar

import numpy as np

from autojit.core.dtypes import HALVES, DType, bool_, float32, float64, int64
from autojit.core.errors import DTypeError, ShapeError, UnsupportedDTypeError
from autojit.core.records import record
from autojit.core.sizes import agree
from autojit.core.types import Shape, TensorType
from autojit.ir.graph import Graph
from autojit.ir.op import Ndarray, O, Operands, bind_all
from autojit.ops.attention_reference import Scores, attend, attend_back
from autojit.ops.base import tangent_sum
from autojit.ops.composites_activation import softmax
from autojit.ops.composites_reduction import logsumexp
from autojit.ops.cotangent_masks import masking
from autojit.ops.elementwise_arithmetic import add, cast, mul, sub, where
from autojit.ops.elementwise_exponential import exp
from autojit.ops.elementwise_logic import ge, le, lt, ne
from autojit.ops.graph_op import Composite, adjoint_of
from autojit.ops.matmul import matmul, swap_last
from autojit.ops.random import uniform
from autojit.ops.reductions import sum
from autojit.ops.samples import Samples, draws
from autojit.ops.shape import batch_all, reshape
from autojit.ops.sources import arange

__all__ = ["Attending", "Attention", "AttentionAdjoint"]

FLOATS = (*HALVES, float32, float64)


@record
class Attending(Composite, abstract=True):
    """What both ops are told.

    Operands are q ``f[*b, l, e]``, k ``f[*b, s, e]`` and v ``f[*b, s, d]``, then those that are told of.

    Args:
        scale: scores are multiplied by it.
        is_causal: query i sees keys 0 to i only.
        has_mask: ``[*b, l, s]``, bool (False removes a key) or added to the scores: float32 for halves.
        dropped: the probability that a weight is dropped; above 0, the key of the random numbers is an operand.
    """

    scale: float
    is_causal: bool
    has_mask: bool
    dropped: float

    reads_operands: ClassVar[bool] = False

    def adjoint(self, is_masked: bool) -> Attending:
        """The op of the derivative of the values by q, k and v; of the ops that have one."""
        raise NotImplementedError(self.name)

    def bars(self, primals: Operands, result: Any, y_bar: Any, learns: Sequence[bool]) -> Sequence[Any]:
        """Cotangents of operands that learn: of values by the `adjoint` for q, k and v, the rest by the composite."""
        found: list[Any] = []
        is_masked = masking.is_on

        def of_values(k: int) -> Any:
            if not found:
                found.extend(bind_all(self.adjoint(is_masked), *primals, *result, y_bar[0]))
            return found[k]

        def pulled_by(output: int, k: int) -> Any:
            given, types = [*primals, y_bar[output]], [x.spec for x in primals]
            return self.through(given, types, adjoint_of_one, output, (k,), masking.is_on)[0]

        def bar(k: int) -> Any:
            total = None
            if y_bar[0] is not None:
                total = of_values(k) if k < 3 else pulled_by(0, k)
            return total if y_bar[1] is None else tangent_sum(total, pulled_by(1, k))

        return [partial(bar, k) if learns[k] else None for k in range(len(primals))]

    @property
    def masks_cotangents(self) -> bool:
        """Whether some weights are 0 whatever their scores are."""
        return self.is_causal or self.has_mask

    @property
    def skips_keys(self) -> bool:
        """Whether kernels do not look at some of the scores."""
        return self.is_causal

    @property
    def draws(self) -> bool:
        """Whether the result depends on random numbers."""
        return self.dropped > 0

    @property
    def count(self) -> int:
        """How many operands there are in front of the adjoint's."""
        return 3 + self.has_mask + self.draws

    def split(self, operands: Sequence[Any]) -> tuple[Any, Any, Any, Any, Any]:
        """q, k, v, and mask and key or None."""
        q, k, v, *rest = operands[: self.count]
        mask = rest[0] if self.has_mask else None
        return q, k, v, mask, rest[-1] if self.draws else None

    def related(self, types: Sequence[TensorType]) -> list[TensorType]:
        """The operands' types with the key's extent, which is no size of a call's."""
        key = self.count - 1 if self.draws else None
        return [t.with_shape((2,)) if k == key else t for k, t in enumerate(types)]

    def scores(self) -> Scores:
        """What becomes of the products of queries and keys."""
        return Scores(self.scale, self.is_causal)

    def check(self, types: Sequence[TensorType]) -> TensorType:
        """The type of the attended values; errors where operands do not fit."""
        q, k, v, mask, key = self.split(types)
        facts = {"q": q, "k": k, "v": v}
        if q.dtype not in FLOATS:
            raise UnsupportedDTypeError(f'"{self.name}" not implemented for {q.dtype}', facts)
        if k.dtype is not q.dtype or v.dtype is not q.dtype:
            raise DTypeError(f"{self.name}: operands differ in dtype", facts)
        fits = q.ndim >= 2 and _same(q.shape[:-2], k.shape[:-2]) and _same(q.shape[:-2], v.shape[:-2])
        if not fits or not agree(q.shape[-1], k.shape[-1]) or not agree(k.shape[-2], v.shape[-2]):
            raise ShapeError(f"{self.name}: expected f[*b, l, e], f[*b, s, e] and f[*b, s, d]", facts)
        if mask is not None and not _same(mask.shape, (*q.shape[:-1], k.shape[-2])):
            raise ShapeError(f"{self.name}: expected a mask [*b, l, s]", facts | {"mask": mask})
        if mask is not None and mask.dtype not in (bool_, _wide(q.dtype)):
            raise DTypeError(f"{self.name}: a mask is bool or {_wide(q.dtype)}", facts | {"mask": mask})
        if key is not None and (key.shape != (2,) or key.dtype is not int64):
            raise DTypeError(f"{self.name}: a key is int64[2]: (seed, offset)", {"key": key})
        found: TensorType = q.with_shape((*q.shape[:-1], v.shape[-1]))
        return found

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        """Another axis in front of all; random numbers are those of one example, so the composite says which."""
        if self.draws:
            return super().batch(args, batched)
        return bind_all(self, *batch_all(args, batched))


def _same(a: Sequence[int], b: Sequence[int]) -> bool:
    return len(a) == len(b) and all(map(agree, a, b))


def _wide(dtype: DType) -> DType:
    """The dtype of scores: the exponential turns their rounding errors into relative errors of the weights."""
    return float32 if dtype in HALVES else dtype


@record
class Attention(Attending):
    """softmax(q k^T scale + mask) v and the logarithms of the sums; a query that sees no key gets zeros.

    Source: arXiv:1706.03762; as kernels arXiv:2205.14135.
    """

    n_outputs: ClassVar[int] = 2

    def result_type(self, *types: TensorType) -> Any:
        y = self.check(types)
        return y, TensorType(y.shape[:-1], _wide(y.dtype), y.device)

    def eager(self, *arrays: Ndarray) -> Any:
        if self.draws:
            return self.line_by_line(*arrays)
        q, k, v, mask, _ = self.split(arrays)
        return attend(self.scores(), q, k, v, mask)

    def expand(self, *operands: O) -> Any:
        q, k, v, mask, key = self.split(operands)
        narrow = v.spec.dtype
        q, k, v = (cast(x, _wide(narrow)) for x in (q, k, v))
        scores, is_kept = scores_of(self, q, k, mask)
        weights = _where_kept(is_kept, softmax(scores))
        if key is not None:
            weights = mul(weights, _spared(self, key, weights))
        lse = logsumexp(scores, -1)
        if mask is not None:  # of a query that sees no key: any number
            lse = where(lt(lse, least_score(lse) / 2), 0.0, lse)
        return cast(matmul(weights, v), narrow), lse

    composite = expand

    def vjp(self, primals: Operands, result: Any, y_bar: Any) -> Sequence[Any]:
        """Of the values by one op for q, k and v; by the mask, and of the sums, from the composite."""
        return self.bars(primals, result, y_bar, [True] * (3 + self.has_mask) + [False] * self.draws)

    def adjoint(self, is_masked: bool) -> AttentionAdjoint:
        """The op of the derivative by q, k and v."""
        return AttentionAdjoint(self.scale, self.is_causal, self.has_mask, self.dropped, is_masked)

    @staticmethod
    def samples(dtype: DType) -> Samples:
        return [(op, inputs) for op, inputs, _ in _cases(dtype)]


@record
class AttentionAdjoint(Attending):
    """The cotangents of q, k and v from that of the attended values, ``y_bar``.

    Operands are those of `Attention`, its results and ``y_bar``. ``is_masked``: zeros of ``y_bar`` may be masked ones.
    """

    is_masked: bool

    n_outputs: ClassVar[int] = 3

    def result_type(self, *types: TensorType) -> Any:
        y, y_bar = self.check(types), types[-1]
        if y_bar.dtype is not y.dtype or not _same(y_bar.shape, y.shape):
            raise ShapeError(f"{self.name}: the cotangent is not like the result", {"result": y, "y_bar": y_bar})
        return tuple(types[:3])

    def eager(self, *arrays: Ndarray) -> Any:
        if self.draws:
            return self.line_by_line(*arrays)
        q, k, v, mask, _ = self.split(arrays)
        return attend_back(self.scores(), q, k, v, mask, *arrays[self.count :])

    def expand(self, *operands: O) -> Any:
        narrow = operands[0].spec.dtype
        q, k, v, mask, key = self.split(operands)
        q, k, v, y, y_bar = (cast(x, _wide(narrow)) for x in (q, k, v, operands[-3], operands[-1]))
        scores, is_kept = scores_of(self, q, k, mask)
        lse = cast(reshape(operands[-2], (*operands[-2].spec.shape, 1)), _wide(narrow))
        weights = _where_kept(is_kept, exp(sub(scores, lse)))
        weights_bar = matmul(y_bar, swap_last(v))
        spared = None if key is None else _spared(self, key, weights)
        if spared is not None:
            weights_bar = mul(weights_bar, spared)
        scores_bar = mul(mul(weights, sub(weights_bar, sum(mul(y, y_bar), -1, keep=True))), self.scale)
        used = weights if spared is None else mul(weights, spared)
        bars = matmul(scores_bar, k), matmul(swap_last(scores_bar), q), matmul(swap_last(used), y_bar)
        return tuple([cast(x, narrow) for x in bars])

    def composite(self, *operands: O) -> Any:
        """The same where results and operands belong together: the adjoint of the composite, which has its own weights.

        In a step that computes both, they are the forward ones.
        """
        forward = Attention(self.scale, self.is_causal, self.has_mask, self.dropped)
        primals = operands[: self.count]
        types = [x.spec for x in primals]
        return tuple(forward.through([*primals, operands[-1]], types, adjoint_of_one, 0, (0, 1, 2), self.is_masked))

    @staticmethod
    def samples(dtype: DType) -> Samples:
        found: Samples = []
        for op, inputs, y_bar in _cases(dtype):
            assert isinstance(op, Attention)
            adjoint = AttentionAdjoint(op.scale, op.is_causal, op.has_mask, op.dropped, False)
            with np.errstate(all="ignore"):
                found.append((adjoint, (*inputs, *op.eager(*inputs), y_bar)))
        return found


def scores_of(op: Attending, q: O, k: O, mask: O | None) -> tuple[O, O | None]:
    """The scores of all keys for every query, low where a key is removed, and where a mask keeps them."""
    scores = matmul(mul(q, op.scale), swap_last(k))
    if op.is_causal:
        scores = where(_seen(q, scores.spec.shape), scores, -inf)
    if mask is None:
        return scores, None
    if mask.spec.dtype is bool_:
        return where(mask, scores, least_score(scores)), mask
    scores = add(scores, mask)
    is_kept = ne(scores, -inf)
    return where(is_kept, scores, least_score(scores)), is_kept


def least_score(scores: O) -> float:
    """What stands for -inf: finite, so that rows without any key are free of NaN in values and derivatives."""
    return float(np.finfo(scores.spec.dtype.numpy).min)


def _where_kept(is_kept: O | None, weights: O) -> O:
    return weights if is_kept is None else where(is_kept, weights, 0.0)


def _spared(op: Attending, key: O, weights: O) -> O:
    """0 for weights that are dropped, for the others what keeps their mean."""
    is_spared = ge(uniform(key, weights.spec.shape, float32), op.dropped)
    return mul(cast(is_spared, weights.spec.dtype), 1.0 / (1.0 - op.dropped))


def _seen(q: O, shape: Shape) -> O:
    """Which keys a query sees that sees none behind its own number: bool[l, s]."""
    rows = reshape(arange(q, shape[-2]), (shape[-2], 1))
    return le(reshape(arange(q, shape[-1]), (1, shape[-1])), rows)


def adjoint_of_one(graph: Graph, output: int, wanted: Sequence[int], is_masked: bool) -> Graph:
    """Inputs, then the cotangent of one output, to the cotangents of the inputs ``wanted``."""
    return adjoint_of(Graph(graph.inputs, graph.nodes, graph.outputs[output : output + 1]), wanted, is_masked)


def _cases(dtype: DType) -> list[tuple[Attention, tuple[Ndarray, ...], Ndarray]]:
    if dtype.kind != "float" or dtype.size_bytes == 1:
        return []
    q, k, v, bar = (
        draws(shape, dtype, seed)
        for seed, shape in enumerate(((2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 3), (2, 3, 5, 3)), start=1)
    )
    keep = draws((2, 3, 5, 6), bool_, 5)
    keep[:, :, 1] = False
    added = draws((2, 3, 5, 6), _wide(dtype), 6)
    added[:, 1, 2, :4] = -np.inf
    key = np.array([7, 3])
    return [
        (Attention(0.5, False, False, 0.0), (q, k, v), bar),
        (Attention(0.7, True, False, 0.0), (q[0, 0], k[0, 0], v[0, 0]), bar[0, 0]),
        (Attention(1.0, False, True, 0.0), (q, k, v, keep), bar),
        (Attention(0.3, False, True, 0.0), (q, k, v, added), bar),
        (Attention(0.5, True, False, 0.25), (q, k, v, key), bar),
    ]
