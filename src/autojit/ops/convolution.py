"""Convolutions of any rank: three ops, each the derivative of the others.

All three come from one sum, linear in each of its factors: an image ``x`` (n, c, *image), a weight ``w`` (o, c /
groups, *kernel) and an output ``y`` (n, o, *places), with position ``p`` of the output, tap ``k`` of the kernel::

    T(x, w, y) = sum over n, o, c, p, k of  y[n, o, p] w[o, c, k] x[n, c, p * stride + k * dilation - padding]

where x counts as zero outside. Leaving out one factor gives an op: ``Convolution`` (y from x and w),
``ConvolutionInput`` (x from y and w: the transposed convolution) and ``ConvolutionWeight`` (w from x and y). So the
derivatives of each are the two others, to any order, and every stride and dilation goes through the same code.

How to read: ``Trilinear`` has the rules of all three, its ``batch`` folds a batch axis into an existing one, and
``convolve`` and ``convolve_transposed`` check operands as torch does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any, ClassVar

from autojit.core.dtypes import HALVES, DType, bool_, float32
from autojit.core.errors import DTypeError, ShapeError, UnsupportedDTypeError
from autojit.core.records import record
from autojit.core.types import Shape, TensorType
from autojit.ir.op import Ndarray, O, Op, Operands, bind
from autojit.ops.base import Structured, conjugate, product_jvp
from autojit.ops.by_name import apply
from autojit.ops.convolution_reference import Geometry, evaluate, evaluate_input, evaluate_weight
from autojit.ops.samples import Samples, draws
from autojit.ops.shape import permute, reshape

__all__ = ["Convolution", "ConvolutionInput", "ConvolutionWeight", "convolve", "convolve_transposed"]

Integers = tuple[int, ...]


@record
class Trilinear(Structured, abstract=True):
    """The three ops' common rules. ``extents`` are the spatial extents of the result.

    ``result`` is float32 where halves are not rounded at the end, else None; passes make it. ``roles`` names the
    operands and the result by their letters in the sum.
    """

    masks_cotangents: ClassVar[bool] = False
    roles: ClassVar[str]
    fixes_sizes: ClassVar[bool] = True
    extents: Shape
    stride: Integers
    padding: Integers
    dilation: Integers
    groups: int
    result: DType | None = None

    def parameters(self) -> tuple[tuple[str, object], ...]:
        """That the result is of the operands' dtype goes without saying."""
        found = super().parameters()
        return found[:-1] if self.result is None else found

    def result_type(self, a: TensorType, b: TensorType) -> TensorType:
        if a.dtype is not b.dtype or a.dtype is bool_:
            raise DTypeError(f"{self.name}: operands need one dtype other than bool", {"a": a, "b": b})
        if self.result is not None and a.dtype not in HALVES:
            raise DTypeError(f"{self.name}: convolutions of {a.dtype} are not {self.result}", {"a": a, "b": b})
        given = dict(zip(self.roles, (a, b), strict=False))
        shape = self.result_shape(*(given[r].shape for r in self.roles[:2]))
        return a.with_shape(shape) if self.result is None else a.with_shape(shape).with_dtype(self.result)

    def result_shape(self, a: Shape, b: Shape) -> Shape:
        """The result's shape; ShapeError when channels do not fit."""
        raise NotImplementedError

    def count_products(self, a: Shape, b: Shape) -> int:
        """How many products of operands of these shapes are added up."""
        given = dict(zip(self.roles, (a, b), strict=False))
        outputs = prod(given["y"][2:]) if "y" in given else prod(self.extents)
        weights = given["w"] if "w" in given else (given["y"][1], given["x"][1] // self.groups, *self.extents)
        return int(a[0] * outputs * prod(weights))

    def geometry(self) -> Geometry:
        """The window, without the extents."""
        return Geometry(self.stride, self.padding, self.dilation, self.groups)

    def _taken(self, a: Ndarray, b: Ndarray) -> tuple[Ndarray, Ndarray]:
        """The operands in what is computed in."""
        return (a, b) if self.result is None else (a.astype(self.result.numpy), b.astype(self.result.numpy))

    def _other(self, roles: str, extents: Shape) -> Op:
        kind = {"xwy": Convolution, "ywx": ConvolutionInput, "xyw": ConvolutionWeight}[roles]
        return kind(extents, self.stride, self.padding, self.dilation, self.groups)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        """The cotangent takes the result's place in the sum; the operand asked for is left out."""
        if self.result is not None:  # the cotangent of what was rounded next is one of halves: so are the factors
            y_bar = apply("cast", y_bar, dtype=primals[0].spec.dtype)
        known = dict(zip(self.roles, (*map(conjugate, primals), y_bar), strict=True))
        return tuple(self._cotangent(known, role, primals[k].spec) for k, role in enumerate(self.roles[:2]))

    def _cotangent(self, known: dict[str, Any], role: str, primal: TensorType) -> Any:
        roles = {"x": "ywx", "w": "xyw", "y": "xwy"}[role]
        op = self._other(roles, primal.shape[2:])
        return lambda: bind(op, known[roles[0]], known[roles[1]])

    jvp = product_jvp

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        """With one operand batched, the batch joins the axis that it shares with the result; else the groups."""
        roles = self.roles
        if all(batched):
            a, b = (_groups_in(x, AXES[r], self.groups) for x, r in zip(args, roles, strict=False))
            count = args[0].spec.shape[0]
            wide = replace(self, groups=self.groups * count)
            return _groups_out(bind(wide, a, b), AXES[roles[2]], count, self.groups)
        which = batched.index(True)
        (shared,) = set(AXES[roles[which]]) & set(AXES[roles[2]])
        count = args[which].spec.shape[0]
        operands = list(args)
        operands[which] = _join(args[which], AXES[roles[which]], shared, self.groups)
        return _split(bind(self, *operands), AXES[roles[2]], shared, count, self.groups)


class Convolution(Trilinear):
    """``y[n, o, p] = sum over c, k of x[n, c, p * stride + k * dilation - padding] w[o, c, k]``."""

    roles: ClassVar[str] = "xwy"

    def result_shape(self, a: Shape, b: Shape) -> Shape:
        if len(a) != len(b) or a[1] != b[1] * self.groups or b[0] % self.groups:
            raise ShapeError("convolution: channels do not fit", {"x": a, "w": b, "groups": self.groups})
        return (a[0], b[0], *self.extents)

    def eager(self, x: Ndarray, w: Ndarray) -> Ndarray:
        return evaluate(*self._taken(x, w), self.geometry(), self.extents)

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if dtype is bool_:
            return []
        return [
            (Convolution((3, 4), (1, 1), (0, 0), (1, 1), 1),
             (draws((2, 3, 5, 6), dtype), draws((4, 3, 3, 3), dtype, 1))),
            (Convolution((3, 2), (2, 3), (1, 2), (1, 2), 2),
             (draws((2, 4, 5, 6), dtype), draws((4, 2, 3, 2), dtype, 1))),
            (Convolution((6,), (1,), (1,), (1,), 3), (draws((1, 3, 6), dtype), draws((3, 1, 3), dtype, 1))),
            (Convolution((1, 2, 1), (2, 1, 1), (0, 1, 0), (1, 1, 1), 1),
             (draws((1, 1, 2, 2, 2), dtype), draws((2, 1, 2, 3, 2), dtype, 1))),
            (Convolution((2,), (1,), (0,), (1,), 1), (draws((0, 1, 3), dtype), draws((2, 1, 2), dtype, 1))),
            *([(Convolution((3,), (2,), (1,), (1,), 1, float32),
               (draws((2, 3, 6), dtype), draws((4, 3, 3), dtype, 1)))] if dtype in HALVES else ()),
        ]  # fmt: skip


class ConvolutionInput(Trilinear):
    """``x[n, c, p * stride + k * dilation - padding] = sum over o, p, k of y[n, o, p] w[o, c, k]``.

    The derivative of a convolution by its input, which is also what torch calls a transposed convolution.
    """

    roles: ClassVar[str] = "ywx"

    def result_shape(self, a: Shape, b: Shape) -> Shape:
        if len(a) != len(b) or a[1] != b[0] or b[0] % self.groups:
            raise ShapeError("convolution_input: channels do not fit", {"y": a, "w": b, "groups": self.groups})
        return (a[0], b[1] * self.groups, *self.extents)

    def eager(self, y: Ndarray, w: Ndarray) -> Ndarray:
        return evaluate_input(*self._taken(y, w), self.geometry(), self.extents)

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if dtype is bool_:
            return []
        return [
            (ConvolutionInput((5, 6), (1, 1), (0, 1), (1, 1), 1),
             (draws((2, 4, 3, 6), dtype), draws((4, 3, 3, 3), dtype, 1))),
            (ConvolutionInput((6,), (2,), (1,), (2,), 2), (draws((2, 4, 3), dtype), draws((4, 2, 2), dtype, 1))),
            *([(ConvolutionInput((6,), (2,), (1,), (1,), 1, float32),
               (draws((2, 4, 3), dtype), draws((4, 3, 3), dtype, 1)))] if dtype in HALVES else ()),
        ]  # fmt: skip


class ConvolutionWeight(Trilinear):
    """``w[o, c, k] = sum over n, p of x[n, c, p * stride + k * dilation - padding] y[n, o, p]``."""

    roles: ClassVar[str] = "xyw"

    def result_shape(self, a: Shape, b: Shape) -> Shape:
        if len(a) != len(b) or a[0] != b[0] or a[1] % self.groups or b[1] % self.groups:
            raise ShapeError("convolution_weight: channels do not fit", {"x": a, "y": b, "groups": self.groups})
        return (b[1], a[1] // self.groups, *self.extents)

    def eager(self, x: Ndarray, y: Ndarray) -> Ndarray:
        return evaluate_weight(*self._taken(x, y), self.geometry(), self.extents)

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if dtype is bool_:
            return []
        return [
            (ConvolutionWeight((3, 3), (1, 1), (0, 1), (1, 1), 1),
             (draws((2, 3, 5, 6), dtype), draws((2, 4, 3, 6), dtype, 1))),
            (ConvolutionWeight((2,), (2,), (1,), (2,), 2), (draws((2, 4, 6), dtype), draws((2, 2, 3), dtype, 1))),
            *([(ConvolutionWeight((3,), (2,), (1,), (1,), 1, float32),
               (draws((2, 3, 6), dtype), draws((2, 4, 3), dtype, 1)))] if dtype in HALVES else ()),
        ]  # fmt: skip


# -- a batch axis

AXES = {"x": "nc", "w": "oc", "y": "no"}


def _has_groups(axes: str, axis: str) -> bool:
    """Whether the extent of an axis counts all groups: true of every channel axis but the weight's second."""
    return axis != "n" and not (axes == "oc" and axis == "c")


def _join(x: O, axes: str, axis: str, groups: int) -> O:
    """(batch, a, b, ...) with the batch folded into one of the axes a, b; within each group if it counts groups."""
    count, *rest = x.spec.shape
    place = axes.index(axis)
    lead = [groups, rest[place] // groups] if _has_groups(axes, axis) else [rest[place]]
    parts = reshape(x, (count, *rest[:place], *lead, *rest[place + 1 :]))
    order = list(range(1, parts.spec.ndim))
    order.insert(place + len(lead) - 1, 0)
    moved = permute(parts, order)
    return reshape(moved, (*rest[:place], rest[place] * count, *rest[place + 1 :]))


def _split(x: O, axes: str, axis: str, count: int, groups: int) -> O:
    """The inverse of ``_join``."""
    shape = list(x.spec.shape)
    place = axes.index(axis)
    extent = shape[place] // count
    lead = [groups, count, extent // groups] if _has_groups(axes, axis) else [count, extent]
    parts = reshape(x, (*shape[:place], *lead, *shape[place + 1 :]))
    where = place + len(lead) - 2
    order = [where, *(k for k in range(parts.spec.ndim) if k != where)]
    return reshape(permute(parts, order), (count, *shape[:place], extent, *shape[place + 1 :]))


def _groups_in(x: O, axes: str, groups: int) -> O:
    """(batch, a, b, ...) with the batch before the axes that count groups, outside of them."""
    count, *rest = x.spec.shape
    if axes == "oc":
        return reshape(x, (count * rest[0], *rest[1:]))
    moved = permute(x, (1, 0, *range(2, x.spec.ndim)))
    return reshape(moved, (rest[0], count * rest[1], *rest[2:]))


def _groups_out(x: O, axes: str, count: int, groups: int) -> O:
    first, second, *rest = x.spec.shape
    if axes == "oc":
        return reshape(x, (count, first // count, second, *rest))
    parts = reshape(x, (first, count, second // count, *rest))
    return permute(parts, (1, 0, *range(2, parts.spec.ndim)))


# -- with torch's checks


def convolve(
    x: O,
    w: O,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int = 1,
    *,
    high: Sequence[int] | None = None,
    result: DType | None = None,
) -> O:
    """The convolution (cross-correlation, as in every network) of a stack of images with a weight.

    Shapes: ``f[n, c, *image], f[o, c / groups, *kernel] -> f[n, o, *places]`` with one entry of ``stride``, ``padding``
    and ``dilation`` per spatial axis.

    Args:
        padding: zeros before each axis, and after it unless ``high`` is given.
        high: zeros after each axis.
        result: float32 for halves that are not rounded yet.

    Raises:
        ShapeError: ranks, channels or groups do not fit, or the kernel is larger than the padded image.
        DTypeError: the dtypes differ, or are bool.
    """
    _check_window(stride, padding, dilation, groups)
    _check_weight(x.spec, w.spec, groups, is_transposed=False)
    after = padding if high is None else high
    padded = [n + a + b for n, a, b in zip(x.spec.shape[2:], padding, after, strict=True)]
    spans = [d * (k - 1) + 1 for d, k in zip(dilation, w.spec.shape[2:], strict=True)]
    if any(n < span for n, span in zip(padded, spans, strict=True)):
        raise ShapeError(
            f"Calculated padded input size per channel: ({_times(padded)}). Kernel size: ({_times(spans)}). "
            "Kernel size can't be greater than actual input size",
            {"x": x, "w": w},
        )
    extents = tuple((n - span) // s + 1 for n, span, s in zip(padded, spans, stride, strict=True))
    return bind(Convolution(extents, tuple(stride), tuple(padding), tuple(dilation), groups, result), x, w)


def convolve_transposed(
    y: O,
    w: O,
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    dilation: Sequence[int],
    groups: int = 1,
    *,
    result: DType | None = None,
) -> O:
    """The transposed convolution: what the derivative of a convolution by its input does to ``y``.

    Shapes: ``f[n, o, *places], f[o, c / groups, *kernel] -> f[n, c, *image]``; the image has extent ``(places - 1) *
    stride - 2 padding + dilation (kernel - 1) + output_padding + 1`` along each axis.

    Raises:
        ShapeError: ranks, channels, groups or paddings do not fit.
        DTypeError: the dtypes differ, or are bool.
    """
    _check_window(stride, padding, dilation, groups)
    if min(output_padding) < 0:
        raise ShapeError("negative output_padding is not supported")
    _check_weight(y.spec, w.spec, groups, is_transposed=True)
    if any(extra >= max(s, d) for extra, s, d in zip(output_padding, stride, dilation, strict=True)):
        raise ShapeError(
            "output padding must be smaller than either stride or dilation, but got "
            f"{_by_axis(output_padding=output_padding, stride=stride, dilation=dilation)}"
        )
    spans = [d * (k - 1) + 1 for d, k in zip(dilation, w.spec.shape[2:], strict=True)]
    sizes = zip(y.spec.shape[2:], stride, padding, spans, output_padding, strict=True)
    extents = tuple((n - 1) * s - 2 * p + span + extra for n, s, p, span, extra in sizes)
    if any(n <= 0 for n in extents):
        raise ShapeError(
            f"Given input size per channel: ({_times(y.spec.shape[2:])}). Calculated output size per channel: "
            f"({_times(extents)}). Output size is too small",
            {"x": y, "w": w},
        )
    return bind(ConvolutionInput(extents, tuple(stride), tuple(padding), tuple(dilation), groups, result), y, w)


def _check_window(stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int) -> None:
    if min(padding) < 0:
        raise ShapeError("negative padding is not supported")
    if min(stride) <= 0:
        raise ShapeError("non-positive stride is not supported")
    if min(dilation) <= 0:
        raise ShapeError("non-positive dilation is not supported")
    if groups <= 0:
        raise ShapeError("non-positive groups is not supported")


def _check_weight(x: TensorType, w: TensorType, groups: int, *, is_transposed: bool) -> None:
    facts = {"x": x, "w": w}
    shape, given = list(w.shape), list(x.shape)
    if w.ndim != x.ndim:
        raise ShapeError(
            f"Expected {w.ndim}-dimensional input for {w.ndim}-dimensional weight {shape}, but got "
            f"{x.ndim}-dimensional input of size {given} instead",
            facts,
        )
    if x.dtype is not w.dtype:
        raise DTypeError(f"Input type ({x.dtype}) and weight type ({w.dtype}) should be the same", facts)
    if x.dtype is bool_:
        raise UnsupportedDTypeError('"convolution" not implemented for bool', facts, "cast to an integer first")
    if w.shape[0] < groups:
        raise ShapeError(
            f"Given groups={groups}, expected weight to be at least {groups} at dimension 0, but got weight of size "
            f"{shape} instead",
            facts,
        )
    if w.shape[0] % groups:
        raise ShapeError(
            f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, but got weight of "
            f"size [{shape}] instead",
            facts,
        )
    expected = w.shape[0] if is_transposed else w.shape[1] * groups
    if x.shape[1] != expected:
        first = "transposed=1" if is_transposed else f"groups={groups}"
        raise ShapeError(
            f"Given {first}, weight of size {shape}, expected input{given} to have {expected} channels, but got "
            f"{x.shape[1]} channels instead",
            facts,
        )
    if prod(w.shape[2:]) == 0:
        raise ShapeError(f"kernel size should be greater than zero, but got weight of size {shape}", facts)
    if prod(x.shape[2:]) == 0:
        raise ShapeError(f"Only zero batch or zero channel inputs are supported, but got input shape: {given}", facts)


def _times(extents: Sequence[int]) -> str:
    return " x ".join(map(str, extents))


def _by_axis(**parameters: Sequence[int]) -> str:
    names = ("depth", "height", "width")
    parts = []
    for what, values in parameters.items():
        parts += [f"{what}_{name}: {n}" for name, n in zip(names[-len(values) :], values, strict=True)]
    return " ".join(parts)
