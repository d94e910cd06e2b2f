"""Layers of networks under torch's top-level names, whose order of arguments differs from ``nn.functional``'s.

Losses take the reduction as a number: 0 none (the default), 1 mean, 2 sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autojit.core.dtypes import bool_, int64
from autojit.core.errors import ArgumentError
from autojit.core.sizes import seems_equal
from autojit.dispatch.declared import declared
from autojit.dispatch.promotion import Real
from autojit.functions.comparison import where
from autojit.functions.elementwise import rsqrt
from autojit.functions.factories import zeros
from autojit.functions.index_functions import index_add, searchsorted
from autojit.functions.own_memory import no_view_of_parts
from autojit.functions.random import rand
from autojit.functions.refused_dtypes import refuses
from autojit.functions.scatter import scatter_reduce
from autojit.nn import functional as F
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of

_REDUCTIONS = ("none", "mean", "sum")
_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")
_BAGS = ("sum", "mean", "max")


def _chosen(name: str, what: str, number: int, choices: Sequence[str]) -> str:
    if not isinstance(number, int):
        raise TypeError(f"{name}(): argument '{what}' must be int, not {type(number).__name__}")
    if not 0 <= number < len(choices):
        raise ArgumentError(f"{name}: {number} is no {what}", fix=f"pass 0 to {len(choices) - 1}")
    return choices[number]


@declared(method=False)
@refuses("bool int complex")
def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """``nn.functional.batch_norm`` with the weights first."""
    return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


@declared(method=False)
@refuses("bool int complex")
def instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """``nn.functional.instance_norm`` with the weights first."""
    return F.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


@declared(method=False)
@refuses("bool int complex")
def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
    cudnn_enable: bool = True,
) -> Tensor:
    """``nn.functional.layer_norm``."""
    return F.layer_norm(input, normalized_shape, weight, bias, eps)


@declared(method=False)
@refuses("bool int complex")
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
    cudnn_enabled: bool = True,
) -> Tensor:
    """``nn.functional.group_norm``."""
    return F.group_norm(input, num_groups, weight, bias, eps)


@declared(method=False)
def native_layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """``layer_norm``, the means and the reciprocals of the deviations.

    Example:
        >>> import autojit as aj
        >>> aj.native_layer_norm(aj.tensor([[1.0, 3.0]]), (2,), None, None, 0.0)[1]
        tensor([[2.]])
    """
    axes = tuple(range(-len(normalized_shape), 0))
    found = F.layer_norm(input, normalized_shape, weight, bias, eps)
    spread = input.var(axes, correction=0, keepdim=True)
    return found, input.mean(axes, keepdim=True), rsqrt(spread + eps)


@declared(method=False)
@no_view_of_parts
def native_group_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int, group: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """``group_norm``, the means and the reciprocals of the deviations.

    Shapes: ``f[N, C, ..] -> f[N, C, ..], f[N, group], f[N, group]``.
    """
    rows = input.reshape(N, group, -1)
    found = F.group_norm(input, group, weight, bias, eps)
    return found, rows.mean(-1), rsqrt(rows.var(-1, correction=0) + eps)


@declared(method=False)
def native_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """``batch_norm``, and in training the means and the reciprocals of the deviations, else empty tensors."""
    found = F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    if not training:
        nothing = zeros(0, dtype=type_of(input).dtype, device=type_of(input).device)
        return found, nothing, nothing
    axes = (0, *range(2, type_of(input).ndim))
    return found, input.mean(axes), rsqrt(input.var(axes, correction=0) + eps)


@declared(method=False)
def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """``dropout`` and which elements it kept.

    Example:
        >>> import autojit as aj
        >>> aj.native_dropout(aj.ones(2), 0.5, False)[1]
        tensor([True, True])
    """
    shape = type_of(input).shape
    if train is False or seems_equal(input.numel(), 0):
        return input.clone(), zeros(shape, dtype=bool_, device=input.device).logical_not()
    mask = rand(shape, device=input.device) >= p
    return input * mask * (0.0 if p == 1 else 1.0 / (1.0 - p)), mask


@declared(method=False)
def native_channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """``nn.functional.channel_shuffle``."""
    return F.channel_shuffle(input, groups)


@declared(method=False)
@refuses("complex")
def rrelu(
    input: Tensor, lower: float = 0.125, upper: float = 1 / 3, training: bool = False, generator: object = None
) -> Tensor:
    """``nn.functional.rrelu``; a generator other than the default one is refused.

    Raises:
        NotImplementedError: ``generator`` is given.
    """
    _refuse_generator("rrelu", generator)
    return F.rrelu(input, lower, upper, training)


@declared(method=False)
def rrelu_(
    input: Tensor, lower: float = 0.125, upper: float = 1 / 3, training: bool = False, generator: object = None
) -> Tensor:
    """``rrelu`` in place."""
    _refuse_generator("rrelu_", generator)
    return F.rrelu_(input, lower, upper, training)


def _refuse_generator(name: str, generator: object) -> None:
    if generator is not None:
        raise NotImplementedError(f"{name}: only the default generator is supported; seed it with manual_seed")


@declared(method=False)
@refuses("bool int complex")
def adaptive_max_pool1d(input: Tensor, output_size: Any) -> tuple[Tensor, Tensor]:
    """The maxima and their positions."""
    values, places = F.adaptive_max_pool1d(input, output_size, True)
    return values, places


@declared(method=False)
def constant_pad_nd(input: Tensor, pad: Sequence[int], value: Real = 0) -> Tensor:
    """``nn.functional.pad`` with a constant.

    Example:
        >>> import autojit as aj
        >>> aj.constant_pad_nd(aj.ones(1), (1, 1), 2.0)
        tensor([2., 1., 2.])
    """
    return F.pad(input, pad, "constant", value)


@declared(method=False)
def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    """A convolution, or its transpose, over the one to three axes that ``weight`` has besides its channels.

    Raises:
        RuntimeError: shapes that do not fit.

    Example:
        >>> import autojit as aj
        >>> aj.convolution(aj.ones(1, 1, 3), aj.ones(1, 1, 2), None, [1], [0], [1], False, [0], 1)
        tensor([[[2., 2.]]])
    """
    axes = type_of(weight).ndim - 2
    if axes not in (1, 2, 3):
        raise ArgumentError(f"convolution: weight has {axes} axes beside its channels, not 1 to 3", {"weight": weight})
    if transposed:
        transpose = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[axes - 1]
        return transpose(input, weight, bias, stride, padding, output_padding, groups, dilation)
    direct = (F.conv1d, F.conv2d, F.conv3d)[axes - 1]
    return direct(input, weight, bias, stride, padding, dilation, groups)


@declared(method=False)
def embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Tensor:
    """``nn.functional.embedding`` with the table first; -1 means no padding.

    Example:
        >>> import autojit as aj
        >>> aj.embedding(aj.eye(2), aj.tensor([1]))
        tensor([[0., 1.]])
    """
    padding = None if padding_idx < 0 else padding_idx
    return F.embedding(indices, weight, padding, None, 2.0, scale_grad_by_freq, sparse)


@declared(method=False)
def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``nn.functional.embedding_bag`` with the table first, and what else torch gives.

    Args:
        mode: 0 sum, 1 mean, 2 max.

    Returns:
        The bags, the bag of each index (empty for sums), the sizes of the bags, and of maxima the rows they come from
        (else the sizes again); sizes of sums are 0.
    """
    kind = _chosen("embedding_bag", "mode", mode, _BAGS)
    found = F.embedding_bag(
        indices, weight, offsets, None, 2, scale_grad_by_freq, kind, sparse, per_sample_weights, include_last_offset,
        padding_idx,
    )  # fmt: skip
    starts = offsets[:-1] if include_last_offset else offsets
    counts = starts.new_zeros((type_of(starts).size,), dtype=int64)
    if kind == "sum":
        return found, counts.new_zeros((0,)), counts, counts.clone()
    places = indices.new_ones((type_of(indices).size,), dtype=int64)
    bags = searchsorted(starts.contiguous(), places.cumsum(0) - 1, right=True) - 1
    counted = places if padding_idx is None else places * indices.ne(padding_idx)
    sizes = index_add(counts, 0, bags, counted)
    if kind == "mean":
        return found, bags, sizes, sizes
    rows = weight.detach()[indices]
    is_best = rows.eq(found.detach()[bags]) & counted[:, None].ne(0)
    last = type_of(indices).size - 1
    candidates = where(is_best, (places.cumsum(0) - 1)[:, None], last)
    first = scatter_reduce(found.new_full(type_of(found).shape, last, dtype=int64), 0, bags[:, None].expand(rows.shape),
                           candidates, "amin")  # fmt: skip
    return found, bags, sizes, where(sizes[:, None] > 0, indices[first], 0)


@declared(method=False)
def affine_grid_generator(theta: Tensor, size: Sequence[int], align_corners: bool) -> Tensor:
    """``nn.functional.affine_grid``."""
    return F.affine_grid(theta, size, align_corners)


@declared(aliases="grid_sampler_2d grid_sampler_3d", method=False)
def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """``nn.functional.grid_sample`` with numbers for the modes.

    Args:
        interpolation_mode: 0 bilinear, 1 nearest, 2 bicubic.
        padding_mode: 0 zeros, 1 border, 2 reflection.
    """
    mode = _chosen("grid_sampler", "interpolation_mode", interpolation_mode, _MODES)
    padding = _chosen("grid_sampler", "padding_mode", padding_mode, _PADDINGS)
    return F.grid_sample(input, grid, mode, padding, align_corners)


@declared(method=False)
@refuses("int complex")
def kl_div(input: Tensor, target: Tensor, reduction: int = 0, *, log_target: bool = False) -> Tensor:
    """``nn.functional.kl_div``; the mean is over all elements."""
    return _reduced(F.kl_div, reduction, input, target, log_target=log_target)


def _reduced(loss: Callable[..., Tensor], reduction: int, *operands: object, **options: object) -> Tensor:
    kind = _chosen(loss.__name__, "reduction", reduction, _REDUCTIONS)
    losses = loss(*operands, **options, reduction="none")
    return losses if kind == "none" else losses.mean() if kind == "mean" else losses.sum()


@declared(method=False)
@refuses("int")
def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None = None, pos_weight: Tensor | None = None, reduction: int = 0
) -> Tensor:
    """``nn.functional.binary_cross_entropy_with_logits``."""
    return _reduced(F.binary_cross_entropy_with_logits, reduction, input, target, weight, pos_weight=pos_weight)


@declared(method=False)
@refuses("complex")
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0
) -> Tensor:
    """``nn.functional.cosine_embedding_loss``."""
    return _reduced(F.cosine_embedding_loss, reduction, input1, input2, target, margin)


@declared(method=False)
def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, reduction: int = 0) -> Tensor:
    """``nn.functional.hinge_embedding_loss``."""
    return _reduced(F.hinge_embedding_loss, reduction, input, target, margin)


@declared(method=False)
@refuses("complex")
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0
) -> Tensor:
    """``nn.functional.margin_ranking_loss``."""
    return _reduced(F.margin_ranking_loss, reduction, input1, input2, target, margin)


@declared(method=False)
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-06,
    swap: bool = False,
    reduction: int = 0,
) -> Tensor:
    """``nn.functional.triplet_margin_loss``."""
    return _reduced(F.triplet_margin_loss, reduction, anchor, positive, negative, margin, p, eps, swap)


@declared(method=False)
def poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int) -> Tensor:
    """``nn.functional.poisson_nll_loss``."""
    return _reduced(F.poisson_nll_loss, reduction, input, target, log_input, full, eps=eps)


@declared(method=False)
@refuses("bool int complex")
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 0,
    zero_infinity: bool = False,
) -> Tensor:
    """``nn.functional.ctc_loss``; the mean is over the losses divided by the lengths of their targets."""
    kind = _chosen("ctc_loss", "reduction", reduction, _REDUCTIONS)
    return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, kind, zero_infinity)
