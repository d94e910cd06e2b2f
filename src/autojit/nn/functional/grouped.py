"""Products of matrices in groups, and a linear map joined with its cross-entropy.

``linear_cross_entropy`` with options works through the batch in chunks whose logits are computed again for the
derivative, so that the whole matrix of logits never exists.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

import autojit as aj
from autojit.core.dtypes import DType
from autojit.core.errors import ShapeError, UsageError
from autojit.core.sizes import distinct
from autojit.nn.functional.classification import class_weights, cross_entropy
from autojit.nn.functional.linear import linear
from autojit.nn.functional.reduction import known
from autojit.tensor import Tensor
from autojit.tensor.state import is_tracing
from autojit.utils.checkpoint import checkpoint


def grouped_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    *,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: DType | None = None,
) -> Tensor:
    """One matrix product per group; ``offs`` i32[groups] says where each group ends along the axis that is shared out.

    Shapes: ``[m, k], [g, k, n] -> [m, n]`` (rows in groups), ``[g, m, k], [k, n] -> [m, n]`` (columns in groups),
    ``[m, k], [k, n] -> [g, m, n]`` (inner axis in groups), ``[g, m, k], [g, k, n] -> [g, m, n]`` (no ``offs``).
    Rows and columns behind the last group are zero.

    Args:
        bias: added to the result.
        out_dtype: dtype of the result; that of the operands by default.

    Raises:
        RuntimeError: ranks, inner extents or dtypes do not fit, or ``offs`` is missing or too many.

    Example:
        >>> import autojit as aj
        >>> import autojit.nn.functional as F
        >>> experts = aj.tensor([[[1.0]], [[10.0]]])
        >>> F.grouped_mm(aj.tensor([[1.0], [2.0], [3.0]]), experts, offs=aj.tensor([1, 3], dtype=aj.int32))
        tensor([[ 1.],
                [20.],
                [30.]])
    """
    _check_groups(mat_a, mat_b, offs)
    if offs is None:
        found = aj.bmm(mat_a, mat_b)
    elif mat_a.ndim == 2 and mat_b.ndim == 3:
        found = _sum_or_cat(mat_a, mat_b, offs)
    elif mat_a.ndim == 3:
        found = _sum_or_cat(mat_b.t(), mat_a.transpose(1, 2), offs).t()
    else:
        found = aj.stack([a @ mat_b for a in _groups(mat_a, offs, 1)])
    if bias is not None:
        found = found + bias
    return found if out_dtype is None else found.to(out_dtype)


def _check_groups(a: Tensor, b: Tensor, offs: Tensor | None) -> None:
    facts = {"mat_a": a, "mat_b": b}
    if a.ndim not in (2, 3) or b.ndim not in (2, 3):
        raise ShapeError("grouped_mm: expected matrices or stacks of them", facts)
    if (offs is None) != (a.ndim == b.ndim == 3):
        raise UsageError("grouped_mm: offs has to be given exactly when an operand is 2D", facts)
    if a.dtype is not b.dtype:
        raise UsageError("grouped_mm: expected operands of the same dtype", facts)
    if a.shape[-1] != b.shape[-2]:
        raise ShapeError(
            f"grouped_mm: contraction dimension of mat_a and mat_b must match, got {a.shape[-1]} and {b.shape[-2]}",
            facts,
        )
    stacks = [t for t in (a, b) if t.ndim == 3] + ([] if offs is None else [offs])
    counts = distinct(t.shape[0] for t in stacks)
    if len(counts) > 1:
        raise ShapeError(f"grouped_mm: operands have different numbers of groups: {sorted(counts)}", facts)


def _groups(x: Tensor, offs: Tensor, axis: int) -> list[Tensor]:
    """``x`` once per group with zeros outside the group along ``axis``: shapes do not depend on ``offs``."""
    line = aj.arange(x.shape[axis], device=x.device)
    shape = [-1 if k == axis else 1 for k in range(x.ndim)]
    found = []
    for k in range(offs.shape[0]):
        mask = line < offs[k]
        if k:
            mask = mask & (line >= offs[k - 1])
        found.append(aj.where(mask.reshape(shape), x, 0.0))
    return found


def _sum_or_cat(rows: Tensor, matrices: Tensor, offs: Tensor) -> Tensor:
    """Each row times the matrix of its group. Where the group ends are not known yet, a sum over masked products."""
    if is_tracing():
        terms = [part @ matrices[k] for k, part in enumerate(_groups(rows, offs, 0))]
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return total
    ends = [int(end) for end in offs.tolist()]
    parts = [rows[start:stop] @ matrices[k] for k, (start, stop) in enumerate(pairwise([0, *ends]))]
    missing = rows.shape[0] - ends[-1]
    if missing:
        parts.append(rows.new_zeros((missing, matrices.shape[2])))
    return aj.cat(parts)


@dataclass
class LinearCrossEntropyOptions:
    """How ``linear_cross_entropy`` divides the batch into chunks.

    Args:
        allow_retain_graph: accepted for torch's sake; a second backward pass is always possible.
        batch_chunk_size: rows per chunk.
        chunking_method: ``"aspect_ratio:factor"``: chunks of about ``rows * in_features / classes / factor`` rows, a
            power of two; ``"auto"`` is a factor of 2.
        acc_policy: ``"auto"``, ``"accurate"``, ``"balanced"`` or ``"compact"``; they differ on accelerators only.
        acc_dtype: dtype in which a chunk's logits and loss are computed.

    Raises:
        ValueError: a value is not among these.

    Example:
        >>> from autojit import nn
        >>> nn.LinearCrossEntropyOptions(batch_chunk_size=64).batch_chunk_size
        64
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: Any = None

    def __post_init__(self) -> None:
        if self.acc_policy not in ("auto", "accurate", "balanced", "compact"):
            raise ValueError(f"invalid acc_policy: {self.acc_policy!r}")
        if self.chunking_method not in (None, "auto"):
            name, colon, factor = str(self.chunking_method).partition(":")
            if name != "aspect_ratio" or (colon and not (factor.isdigit() and int(factor) > 0)):
                raise ValueError(f"invalid chunking_method: {self.chunking_method!r}")
        size = self.batch_chunk_size
        if size is not None and size <= 0:
            raise ValueError(f"batch_chunk_size must be positive int or None, got {size!r}")
        if self.acc_dtype not in (None, aj.float16, aj.bfloat16, aj.float32, aj.float64):
            raise ValueError(f"acc_dtype must be a floating dtype or None, got {self.acc_dtype!r}")

    def rows(self, batch: int, in_features: int, classes: int) -> int:
        """Rows per chunk."""
        if self.batch_chunk_size is not None:
            return min(self.batch_chunk_size, batch)
        if self.chunking_method is None:
            return batch
        _, _, factor = self.chunking_method.replace("auto", "aspect_ratio:2").partition(":")
        target = -(-batch // -(-classes // in_features))
        return max(1, min((1 << (target - 1).bit_length()) // int(factor or 1), batch))


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: LinearCrossEntropyOptions | None = None,
) -> Tensor:
    """``cross_entropy(linear(input, linear_weight, linear_bias), target)``.

    Shapes: ``f[(n,) in], f[classes, *extents, in]`` and a target as for logits ``f[(n,) classes, *extents]``.

    Args:
        options: work through the batch in chunks, with less memory; for targets of class indices.

    Raises:
        RuntimeError: shapes do not fit, or ``ignore_index`` is given for class probabilities.

    Example:
        >>> import autojit as aj
        >>> import autojit.nn.functional as F
        >>> F.linear_cross_entropy(aj.zeros(2, 3), aj.ones(4, 3), aj.tensor([0, 1]))
        tensor(1.3863)
    """
    _check_linear(input, linear_weight, linear_bias)
    classes, extents = linear_weight.shape[0], linear_weight.shape[1:-1]
    if tuple(target.shape) == (*input.shape[:-1], classes, *extents) and ignore_index is not None:
        raise UsageError("ignore_index cannot be specified when target contains probabilities")
    flat_weight = linear_weight.reshape(-1, input.shape[-1])
    flat_bias = None if linear_bias is None else linear_bias.reshape(-1)
    ignored = -100 if ignore_index is None else ignore_index

    is_chunked = input.ndim == 2 and target.dtype is aj.int64 and not extents and label_smoothing == 0.0
    if options is None or not is_chunked:
        logits = linear(input, flat_weight, flat_bias).reshape(*input.shape[:-1], classes, *extents)
        return cross_entropy(logits, target, weight, None, ignored, None, reduction, label_smoothing)
    known(reduction)
    size = options.rows(input.shape[0], input.shape[1], classes)
    exact = options.acc_dtype or (aj.float32 if input.dtype in (aj.float16, aj.bfloat16) else input.dtype)

    def chunk(x: Tensor, wanted: Tensor) -> Tensor:
        logits = linear(x, flat_weight, flat_bias).to(exact)
        given = None if weight is None else weight.to(exact)
        return cross_entropy(logits, wanted, given, ignore_index=ignored, reduction="none")

    chunks = zip(input.split(size), target.split(size), strict=True)
    each = aj.cat([checkpoint(chunk, x, wanted, use_reentrant=False) for x, wanted in chunks])
    if reduction != "none":
        each = each.sum()
    if reduction == "mean":
        is_counted = target.ne(ignored)
        share = is_counted if weight is None else class_weights(weight, is_counted, target)
        each = each / share.to(exact).sum()
    return each.to(input.dtype)


def _check_linear(input: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    facts = {"input": input, "linear_weight": weight}
    if input.ndim not in (1, 2):
        raise ShapeError(f"expected input with dimensionality 1 or 2, got {input.ndim}", facts)
    if weight.ndim < 2:
        raise ShapeError(f"expected linear_weight with dimensionality at least 2, got {weight.ndim}", facts)
    if input.shape[-1] != weight.shape[-1]:
        raise ShapeError(
            "expected equal input and linear_weight last dimensions (in_features), got "
            f"{input.shape[-1]} and {weight.shape[-1]}, respectively",
            facts,
        )
    if bias is not None and tuple(bias.shape) != tuple(weight.shape[:-1]):
        raise ShapeError(f"expected linear_bias shape {tuple(weight.shape[:-1])}, got {tuple(bias.shape)}", facts)
    if prod(weight.shape[1:-1]) != 1 and input.ndim == 1:
        raise ShapeError(
            f"K-dimensional loss defined by linear_weight shape {tuple(weight.shape)} requires batched input, got "
            f"unbatched input with shape {tuple(input.shape)}",
            facts,
        )
