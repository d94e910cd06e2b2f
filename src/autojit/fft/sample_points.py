"""Frequencies of a transform's entries, and their order along an axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autojit import ops
from autojit.core.dtypes import DType, default_dtype
from autojit.core.errors import DTypeError
from autojit.core.wrapping import named
from autojit.functions.factories import arange, finish
from autojit.functions.out_arguments import with_out
from autojit.ops.base import normalize_axis
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of


def _frequencies(name: str, counted: Callable[[int, DType], Tensor], what: str, example: str) -> Callable[..., Tensor]:
    def frequencies(
        n: int,
        d: float = 1.0,
        *,
        dtype: DType | None = None,
        layout: Any = None,
        device: Any = None,
        requires_grad: bool = False,
    ) -> Tensor:
        kind = default_dtype() if dtype is None else dtype
        if kind.category < 2:
            raise DTypeError(f"{name} requires a floating point or complex dtype", {"dtype": kind})
        distance = n * d  # torch multiplies by the reciprocal; a distance of 0 gives infinite frequencies
        return finish(counted(n, kind) * (1.0 / distance if distance else float("inf")), requires_grad, device)

    told = f"""The frequencies of {what}.

    Example:
        >>> import autojit as aj
        >>> aj.fft.{name}(4)
        {example}
    """
    return with_out(named(frequencies, name, told))


def _both_signs(n: int, kind: DType) -> Tensor:
    return ops.concatenate([arange((n + 1) // 2, dtype=kind), arange(-(n // 2), 0, dtype=kind)])


fftfreq = _frequencies(
    "fftfreq",
    _both_signs,
    "``fft``'s entries for samples at distance ``d``, in cycles per unit of ``d``: ``[n]``",
    "tensor([ 0.0000,  0.2500, -0.5000, -0.2500])",
)
rfftfreq = _frequencies(
    "rfftfreq",
    lambda n, kind: arange(n // 2 + 1, dtype=kind),
    "``rfft``'s entries for samples at distance ``d``: ``[n // 2 + 1]``",
    "tensor([0.0000, 0.2500, 0.5000])",
)


def fftshift(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """Move the zero frequency to the middle of the axes (all by default).

    Example:
        >>> import autojit as aj
        >>> aj.fft.fftshift(aj.arange(5))
        tensor([3, 4, 0, 1, 2])
    """
    return _rolled(input, dim, 0)


def ifftshift(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """The inverse of ``fftshift``.

    Example:
        >>> import autojit as aj
        >>> aj.fft.ifftshift(aj.tensor([3, 4, 0, 1, 2]))
        tensor([0, 1, 2, 3, 4])
    """
    return _rolled(input, dim, 1)


def _rolled(x: Tensor, dim: int | Sequence[int] | None, more: int) -> Tensor:
    shape = type_of(x).shape
    given = range(len(shape)) if dim is None else [dim] if isinstance(dim, int) else dim
    axes = [normalize_axis(axis, len(shape), "fftshift") for axis in given]
    return ops.roll(x, [(shape[axis] + more) // 2 for axis in axes], axes) if axes else x.clone()
