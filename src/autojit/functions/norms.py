"""Norms under older names, and a check sum of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autojit.core.dtypes import DType, float64, int64, uint64
from autojit.core.errors import ArgumentError
from autojit.core.user_warnings import warn
from autojit.dispatch.declared import declared
from autojit.dispatch.on_device import placed
from autojit.dispatch.promotion import cast
from autojit.functions.reduction import norm
from autojit.functions.views import view
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of, wrap


@declared(method=False, out=True)
def frobenius_norm(input: Tensor, dim: int | Sequence[int], keepdim: bool = False) -> Tensor:
    """``linalg.vector_norm(input, 2, dim, keepdim)``."""
    warn("frobenius_norm is deprecated; use linalg.vector_norm(A, 2., dim, keepdim)", DeprecationWarning)
    return norm(input, 2, dim, keepdim)


@declared(method=False)
def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """Norms over all axes but ``dim`` (-1: over all), which keep extent 1.

    Example:
        >>> import autojit as aj
        >>> aj.norm_except_dim(aj.tensor([[3.0, 4.0], [0.0, 1.0]]))
        tensor([[5.],
                [1.]])
    """
    ndim = type_of(v).ndim
    if dim == -1:
        return norm(v, pow)
    others = tuple(axis for axis in range(ndim) if axis != dim % ndim)
    return norm(v, pow, others, True)


@declared(out=True)
def hash_tensor(input: Tensor, dim: int | Sequence[int] = (), *, keepdim: bool = False, mode: int = 0) -> Tensor:
    """The exclusive or of the elements' bits, of floats as float64 and whole numbers as int64: ``[..] -> u64[..]``.

    Raises:
        ValueError: another ``mode`` than 0.

    Example:
        >>> import autojit as aj
        >>> aj.hash_tensor(aj.tensor([1, 2, 7]))
        tensor(4, dtype=autojit.uint64)
    """
    if mode != 0:
        raise ArgumentError(f"hash_tensor: unknown mode {mode}", fix="pass mode=0")
    dtype: DType = type_of(input).dtype
    wide = view(cast(input.detach(), float64), int64) if dtype.is_floating_point else cast(input.detach(), int64)
    bits = wide.cpu().numpy().view(np.uint64)
    reduce: Any = np.bitwise_xor.reduce
    axes = tuple(range(bits.ndim)) if dim == () else dim
    found = np.asarray(reduce(bits, axes, keepdims=keepdim)).astype(uint64.numpy)
    return placed(wrap(found), type_of(input).device)
