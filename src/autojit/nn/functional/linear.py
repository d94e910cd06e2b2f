"""Linear and bilinear maps, embeddings, one-hot codes."""

from __future__ import annotations

from typing import Any

import numpy as np

import autojit as aj
from autojit import ops
from autojit.autograd import Function
from autojit.core.device_array import host_copy
from autojit.core.dtypes import HALVES
from autojit.core.errors import ArgumentError, DTypeError, IndexOutOfRangeError, ShapeError, UsageError
from autojit.core.top_level import top_level
from autojit.core.user_warnings import warn
from autojit.dispatch.composite_nodes import in_one_node
from autojit.dispatch.dispatch import apply
from autojit.dispatch.kernels import in_one_step
from autojit.dispatch.requirements import is_known, require
from autojit.history.op_node import rename_node
from autojit.nn.functional.reduction import COMMON
from autojit.nn.functional.windows import in_single
from autojit.ops.composed_products import ADDMM, LINEAR_ROWS
from autojit.tensor import Tensor
from autojit.tensor.state import computes_at_once, state

__all__ = ["bilinear", "embedding", "embedding_bag", "linear", "one_hot"]


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b. Shapes: ``f[..., k], f[n, k] (, f[n]) -> f[..., n]``."""
    if state.autocast is not None:
        return state.autocast.lower(linear, input, weight, bias)
    if state.observer is not None and (row := state.observer.whole(linear, input, weight, bias)) is not None:
        found: Tensor = row[0]
        return found
    if bias is not None and _at_hand(input, weight, bias):
        if input.ndim == 2:
            return apply(ADDMM, bias, input, weight.t())
        return rename_node(
            apply(LINEAR_ROWS, input, weight, bias), "ViewBackward0"
        )  # torch's: a view of such a product
    turned = weight.t() if weight.ndim == 2 else weight
    if bias is None:
        return aj.matmul(input, turned)
    if bias.dtype is not weight.dtype:
        raise DTypeError(
            f"linear: the bias must have the dtype of the weight, but got {bias.dtype} and {weight.dtype}",
            {"weight": weight, "bias": bias},
        )

    def compute() -> Tensor:
        if weight.ndim == 2 and input.dtype is weight.dtype and input.dtype in HALVES:  # rounded once, with the bias
            return _of_halves(input, turned, bias)
        return aj.matmul(input, turned) + bias

    if input.ndim == 2 and weight.ndim == 2 and input.dtype is weight.dtype is bias.dtype:
        return in_one_node(ADDMM, (bias, input, turned), compute)
    return compute()


def _of_halves(x: Tensor, turned: Tensor, bias: Tensor) -> Tensor:
    if x.ndim == 2:
        return ops.addmm(bias, x, turned)
    rows = ops.addmm(bias, x.reshape(-1, x.shape[-1]), turned)
    return rows.reshape(*x.shape[:-1], turned.shape[1])


def _at_hand(x: Tensor, weight: Tensor, bias: Tensor) -> bool:
    """Whether all are concrete, of one common dtype and fitting extents."""
    a, w, b = x._array, weight._array, bias._array
    if not (type(a) is np.ndarray and type(w) is np.ndarray and type(b) is np.ndarray and computes_at_once()):
        return False
    dtype = a.dtype
    return (
        dtype is w.dtype
        and dtype is b.dtype
        and dtype.char in COMMON
        and w.ndim == 2
        and a.ndim > 0
        and b.shape == w.shape[:1]
        and a.shape[-1] == w.shape[1]
    )


@top_level
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x1 W[n] x2 for every n. Shapes: ``f[..., j], f[..., k], f[n, j, k] -> f[..., n]``."""
    if input1.shape[:-1] != input2.shape[:-1]:
        raise ShapeError(
            f"bilinear(): input batch dimensions do not match: got {list(input1.shape)} and {list(input2.shape)}"
        )
    if input1.shape[-1] != weight.shape[1] or input2.shape[-1] != weight.shape[2]:
        raise ShapeError(
            f"bilinear(): input sizes do not match weight sizes: got {input1.shape[-1]}, {input2.shape[-1]} "
            f"but expected {weight.shape[1]}, {weight.shape[2]}"
        )
    if not input1.dtype is input2.dtype is weight.dtype:
        raise DTypeError(
            f"bilinear(): All tensors must have the same dtype, got input1: {input1.dtype}, input2: {input2.dtype}, "
            f"weight: {weight.dtype}"
        )
    outputs, left, right = weight.shape
    x1 = input1.reshape(-1, left)
    x2 = input2.reshape(-1, right)
    by_output = aj.matmul(x1, weight.permute(1, 0, 2).reshape(left, outputs * right))
    rows = (by_output.reshape(-1, outputs, right) * x2.unsqueeze(1)).sum(2, dtype=weight.dtype)
    found = rows.reshape(*input1.shape[:-1], outputs)
    return found if bias is None else found + bias


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """The rows of ``weight`` at the given indices. Shapes: ``i[...], f[rows, n] -> f[..., n]``.

    Args:
        padding_idx: a row that gets no gradient.
        max_norm: rows looked up with a greater norm are scaled down to it first, in place.
        scale_grad_by_freq: divide a row's gradient by how often it was looked up.
        sparse: the gradient of ``weight`` is a sparse tensor of the rows that were looked up.

    Raises:
        RuntimeError: in backward, ``sparse`` together with ``scale_grad_by_freq``.
    """
    if input.is_floating_point() or input.dtype is aj.bool:
        raise UsageError(
            f"Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; "
            f"but got {input.dtype.scalar_type} instead (while checking arguments for embedding)"
        )
    if weight.ndim != 2:
        raise UsageError("'weight' must be 2-D", {"weight": weight})
    rows = weight.shape[0]
    if padding_idx is not None:
        if not -rows <= padding_idx < rows:
            raise AssertionError("Padding_idx must be within num_embeddings")
        padding_idx %= rows
    if max_norm is not None:
        _renormalise(weight, input, max_norm, norm_type)
    if scale_grad_by_freq and not sparse:
        weight = _scaled_by_frequency(weight, input)
    if sparse:
        found: Tensor = _SparseRows.apply(weight, input, scale_grad_by_freq, padding_idx)
    else:
        found = rename_node(_rows(weight, input), "EmbeddingBackward0")
    if padding_idx is None:
        return found
    # the same values everywhere; the gradient flows only where the index is not the padding row
    return aj.where(input.eq(padding_idx).unsqueeze(-1), found.detach(), found)


def _rows(weight: Tensor, index: Tensor) -> Tensor:
    if index.ndim == 1:
        return aj.index_select(weight, 0, index)
    try:
        rows = aj.index_select(weight, 0, index.reshape(-1))
    except IndexOutOfRangeError as error:
        raise error.of_shape(index.shape) from None
    return rows.view(*index.shape, weight.shape[1])


class _SparseRows(Function):
    """Rows of a matrix; the gradient of the matrix keeps only the rows that were looked up, in their order, without
    those of padding (which a step that does not know the rows keeps: there they are zero).
    """

    @staticmethod
    def forward(ctx: Any, weight: Tensor, rows: Tensor, is_scaled: bool = False, padding: int | None = None) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.is_scaled, ctx.padding = is_scaled, padding
        ctx.size = tuple(weight.shape)
        return _rows(weight, rows)

    @staticmethod
    def backward(ctx: Any, y_bar: Tensor) -> Any:
        if ctx.is_scaled:
            raise UsageError("embedding_backward: scale_grad_by_freq not supported with sparse gradients")
        (rows,) = ctx.saved_tensors
        places = rows.reshape(1, -1).to(aj.int64, copy=True)  # the gradient's own: indices may change
        rows_bar = y_bar.reshape(places.shape[1], ctx.size[1])
        if ctx.padding is not None and is_known(places):
            kept = places[0].ne(ctx.padding).nonzero()[:, 0]
            places, rows_bar = places.index_select(1, kept), rows_bar.index_select(0, kept)
        return aj.sparse_coo_tensor(places, rows_bar, ctx.size, device=y_bar.device), None, None, None


def _renormalise(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> None:
    weight = weight.detach()  # the same memory: its tangent, if it has one, stays
    with aj.no_grad():
        norms = aj.norm(weight, norm_type, 1, True)
        scale = aj.where(norms > max_norm, max_norm / (norms + 1e-7), 1.0)
        touched = aj.zeros(weight.shape[0], dtype=aj.bool, device=weight.device)
        touched[indices.reshape(-1)] = True
        weight.copy_(aj.where(touched.unsqueeze(1), weight * scale, weight))


def _scaled_by_frequency(weight: Tensor, indices: Tensor) -> Tensor:
    """The weight itself, whose gradient is divided by each row's number of look-ups."""
    flat = indices.reshape(-1)
    counts = aj.zeros(weight.shape[0], dtype=weight.dtype, device=weight.device)
    counts = counts.index_add(0, flat, aj.ones(flat.shape[0], dtype=weight.dtype, device=weight.device))
    scaled = weight / counts.clamp(min=1.0).unsqueeze(1)
    return scaled + (weight - scaled).detach()


_NEGATIVE_CLASS = "Class values must be non-negative."
_LARGE_CLASS = "Class values must be smaller than num_classes."


def _lie_below(classes: Tensor, count: int) -> bool:
    """Whether class indices can be looked at and are all within 0 .. count - 1."""
    if not is_known(classes):
        return False
    seen = host_copy(classes._array)
    return not seen.size or bool(0 <= seen.min() and seen.max() < count)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """1 at each class index along a new last axis. Shapes: ``i64[...] -> i64[..., num_classes]``."""
    if tensor.dtype is not aj.int64:
        raise UsageError("one_hot is only applicable to index tensor of type LongTensor.")
    if num_classes == -1:
        if tensor.numel() == 0:
            raise UsageError("Can not infer total number of classes from empty tensor.")
        num_classes = int(tensor.max().item()) + 1
    if num_classes <= 0 and tensor.numel():
        raise UsageError("num_classes should be positive")
    if not _lie_below(tensor, num_classes):
        valid = f"0 to {num_classes - 1}" if type(num_classes) is int else "0 to num_classes - 1"
        require(tensor, lambda t: t >= 0, _NEGATIVE_CLASS, valid, named="tensor")
        require(tensor, lambda t: t < num_classes, _LARGE_CLASS, valid, named="tensor")
    return in_one_step("one_hot", (num_classes,), tensor)


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Sums, means or maxima of bags of embedding rows.

    Shapes: ``i[bags, m], f[rows, n] -> f[bags, n]``, or ``i[total]`` with ``offsets`` i[bags] where each bag begins.
    """
    if not weight.is_floating_point() and input.is_floating_point():
        warn(
            "Argument order of nn.functional.embedding_bag was changed. Usage `embedding_bag(weight, input, ...)` is "
            "deprecated, and should now be `embedding_bag(input, weight, ...)`.",
            UserWarning,
        )
        input, weight = weight, input
    if mode not in ("sum", "mean", "max"):
        raise ArgumentError("mode has to be one of sum, mean or max")
    if per_sample_weights is not None:
        _check_sample_weights(per_sample_weights, input, weight, mode)
    flat, bags, n_bags = _bags(input, offsets, include_last_offset)
    if padding_idx is not None and not -weight.shape[0] <= padding_idx < weight.shape[0]:
        raise UsageError(
            f"padding_idx must be within the number of embeddings, -{weight.shape[0]} through {weight.shape[0] - 1}, "
            f"but got {padding_idx}"
        )
    try:
        rows = embedding(flat, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
    except IndexOutOfRangeError as error:
        raise IndexOutOfRangeError(
            f"Expected idx >= 0 && idx < num_embeddings: {error.what}", error.facts, error.fix
        ) from None
    counted = aj.ones(flat.shape[0], dtype=weight.dtype, device=weight.device)
    if padding_idx is not None:
        counted = (flat != padding_idx % weight.shape[0]).to(weight.dtype)
    if mode == "max" and flat.shape[0]:
        return _bag_maxima(rows, bags, n_bags, counted > 0)
    factors = counted if per_sample_weights is None else counted * per_sample_weights.reshape(-1)
    rows, counted, factors = in_single(rows), in_single(counted), in_single(factors)
    empty = aj.zeros((n_bags, weight.shape[1]), dtype=rows.dtype, device=weight.device)
    found = empty.index_add(0, bags, rows * factors.unsqueeze(1))
    if mode == "mean":
        counts = aj.zeros(n_bags, dtype=rows.dtype, device=weight.device).index_add(0, bags, counted)
        found = found / counts.clamp(min=1.0).unsqueeze(1)
    return found if found.dtype is weight.dtype else found.to(weight.dtype)


def _check_sample_weights(given: Tensor, input: Tensor, weight: Tensor, mode: str) -> None:
    """Errors for weights of samples that are not of the mode, the indices' shape or the table's dtype."""
    if mode != "sum":
        raise NotImplementedError(f"embedding_bag: per_sample_weights is only supported for mode='sum' (got {mode!r})")
    if given.shape != input.shape:
        raise ArgumentError(
            f"embedding_bag: If per_sample_weights ({given.shape}) is not None, then it must have the same shape as "
            f"the input ({input.shape})",
            {"per_sample_weights": given, "input": input},
        )
    if given.dtype is not weight.dtype:
        raise DTypeError(
            "embedding_bag: Expected 'weight' to have the same type as 'per_sample_weights', but got "
            f"{weight.dtype} and {given.dtype}",
            {"weight": weight, "per_sample_weights": given},
            "convert them: per_sample_weights.to(weight.dtype)",
        )


def _bags(input: Tensor, offsets: Tensor | None, include_last_offset: bool) -> tuple[Tensor, Tensor, int]:
    """Flat indices, the bag of each, the number of bags."""
    if input.ndim == 2:
        if offsets is not None:
            raise ArgumentError("if input is 2D, then offsets has to be None, as input is treated is a mini-batch of"
                             " fixed length sequences. However, found offsets of type " f"{type(offsets)}")  # fmt: skip
        n_bags, length = input.shape
        bags = aj.arange(n_bags, device=input.device).unsqueeze(1).expand(n_bags, length)
        return input.reshape(-1), bags.reshape(-1), n_bags
    if input.ndim != 1:
        raise ArgumentError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.ndim}")
    if offsets is None:
        raise ArgumentError("offsets has to be a 1D Tensor but got None")
    if offsets.ndim != 1:
        raise ArgumentError("offsets has to be a 1D Tensor", {"offsets": offsets})
    _check_offsets(offsets, input.shape[0])
    starts = offsets[:-1] if include_last_offset else offsets
    places = aj.arange(input.shape[0], device=input.device).unsqueeze(1)
    return input, (places >= starts.unsqueeze(0)).to(aj.int64).sum(1) - 1, starts.shape[0]


def _check_offsets(offsets: Tensor, total: int) -> None:
    """RuntimeError unless the first bag begins with the first index, and the last one no later than indices end."""
    if not offsets.shape[0]:
        return
    first = (
        "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. However, got"
    )
    require(offsets[:1], lambda t: t == 0, f"{first} {{value}}", "0", named="offsets")
    last = f"offsets[-1] can not be greater than input's length {total} but got offsets[-1] of {{value}}"
    require(offsets[-1:], lambda t: t <= total, last, f"0 to {total}", named="offsets")


def _bag_maxima(rows: Tensor, bags: Tensor, n_bags: int, counted: Tensor) -> Tensor:
    member = (aj.arange(n_bags, device=bags.device).unsqueeze(1) == bags.unsqueeze(0)) & counted.unsqueeze(0)
    spread = aj.where(member.unsqueeze(2), rows.unsqueeze(0), float("-inf"))
    return aj.where(member.sum(1, keepdim=True) > 0, spread.amax(1), 0.0)
