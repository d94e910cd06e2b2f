"""``numpy.linalg`` and ``numpy.fft`` over tensors."""

from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np

import autojit as aj
from autojit.interop.registry import (
    FUNCTIONS,
    Function,
    alike,
    axes_of,
    delivered,
    enter,
    implements,
    inexact,
    operand,
    tensor_of,
)  # fmt: skip


def _alike(a: Any, b: Any) -> tuple[Any, Any]:
    x, y = alike(inexact(a), inexact(b))
    return x, y


def _transformed(x: Any) -> Any:
    """What a Fourier transform takes: halves in float32."""
    found = inexact(x)
    return found.to(aj.float32) if found.dtype in (aj.float16, aj.bfloat16) else found


def _of_matrices(name: str) -> Function:
    return lambda a, *arguments, **options: getattr(aj.linalg, name)(inexact(a), *arguments, **options)


@implements("linalg.norm")
def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    x = inexact(x)
    if axis is None:
        if ord is None:
            axes = tuple(range(x.ndim))
            return aj.linalg.vector_norm(x, 2, axes, keepdim=keepdims) if axes else aj.abs(x)
        if x.ndim not in (1, 2):
            raise ValueError("Improper number of dimensions to norm.")
    axes = axes_of(axis, x.ndim)
    if len(axes) == 1:
        if isinstance(ord, str):
            raise ValueError(f"Invalid norm order '{ord}' for vectors")
        return aj.linalg.vector_norm(x, 2 if ord is None else ord, axes, keepdim=keepdims)
    if len(axes) != 2:
        raise ValueError("Improper number of dimensions to norm.")
    return aj.linalg.matrix_norm(x, "fro" if ord is None else ord, axes, keepdim=keepdims)


@implements("linalg.vector_norm")
def _vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    x = inexact(x)
    return aj.linalg.vector_norm(x, ord, None if axis is None else axes_of(axis, x.ndim), keepdim=keepdims)


@implements("linalg.solve")
def _solve(a: Any, b: Any) -> Any:
    x, y = _alike(a, b)
    return aj.linalg.solve(x, y[:, None])[..., 0] if y.ndim == 1 else aj.linalg.solve(x, y)


@implements("linalg.lstsq")
def _lstsq(a: Any, b: Any, rcond: Any = None) -> Any:
    x, y = _alike(a, b)
    found = aj.linalg.lstsq(x, y if y.ndim > 1 else y[:, None])
    solution = found.solution
    values = aj.linalg.svdvals(x)
    cut = (np.finfo(x.dtype.to_real().numpy).eps * max(x.shape) if rcond is None else rcond) * values.detach().max()
    rank = (values > cut).sum()
    rest = aj.matmul(x, solution) - (y if y.ndim > 1 else y[:, None])
    errors = (aj.abs(rest) ** 2).sum(0) if x.shape[0] > x.shape[1] else values.new_zeros((0,))
    return solution if y.ndim > 1 else solution[:, 0], errors, rank, values


@implements("linalg.pinv")
def _pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    x = inexact(a)
    cut = rtol if rcond is None else rcond
    return aj.linalg.pinv(x, rtol=1e-15 if cut is None and rtol is None else cut, hermitian=hermitian)


@implements("linalg.qr")
def _qr(a: Any, mode: str = "reduced") -> Any:
    if mode == "raw":
        raise TypeError("np.linalg.qr: mode='raw' has no form for tensors")
    found = aj.linalg.qr(inexact(a), mode)
    return found.R if mode == "r" else found


enter(
    "linalg",
    matrix_norm=lambda x, /, *, keepdims=False, ord="fro": aj.linalg.matrix_norm(inexact(x), ord, keepdim=keepdims),
    cond=lambda x, p=None: aj.linalg.cond(inexact(x), p),
    matrix_rank=lambda A, tol=None, hermitian=False, *, rtol=None: aj.linalg.matrix_rank(
        inexact(A), atol=tol, rtol=rtol, hermitian=hermitian
    ),
    cholesky=lambda a, /, *, upper=False: aj.linalg.cholesky(inexact(a), upper=upper),
    eigh=lambda a, UPLO="L": aj.linalg.eigh(inexact(a), UPLO),
    eigvalsh=lambda a, UPLO="L": aj.linalg.eigvalsh(inexact(a), UPLO),
    svd=lambda a, full_matrices=True, compute_uv=True, hermitian=False: (
        aj.linalg.svd(inexact(a), full_matrices) if compute_uv else aj.linalg.svdvals(inexact(a))
    ),
    tensorsolve=lambda a, b, axes=None: aj.linalg.tensorsolve(*_alike(a, b), axes),
    matmul=lambda x1, x2, /: aj.matmul(*alike(x1, x2)),
    multi_dot=lambda arrays, *, out=None: delivered(
        aj.linalg.multi_dot([tensor_of(a) for a in arrays]), out, "np.linalg.multi_dot"
    ),
    vecdot=lambda x1, x2, /, *, axis=-1: (aj.conj(tensor_of(x1)) * operand(x2)).sum(axis),
)
for _name in set(np.linalg.__all__) - {"LinAlgError"}:
    if getattr(np.linalg, _name) not in FUNCTIONS:  # forms of other signatures that later modules have replace these
        implements(f"linalg.{_name}")(_of_matrices(_name))


# ---- fft


def _along_one(name: str) -> Function:
    def transform(a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None) -> Any:
        return delivered(getattr(aj.fft, name)(_transformed(a), n, axis, norm), out, f"np.fft.{name}")

    return transform


def _along_many(name: str) -> Function:
    def transform(a: Any, s: Any = None, axes: Any = None, norm: Any = None, out: Any = None) -> Any:
        axes = (-2, -1) if name.endswith("2") and axes is None else axes
        return delivered(getattr(aj.fft, name)(_transformed(a), s, axes, norm), out, f"np.fft.{name}")

    return transform


def _shift(name: str) -> Function:
    return lambda x, axes=None: getattr(aj.fft, name)(tensor_of(x), axes)


for _name in np.fft.__all__:
    _taken = signature(getattr(np.fft, _name)).parameters
    if "a" in _taken:
        implements(f"fft.{_name}")((_along_one if "n" in _taken else _along_many)(_name))
    elif "axes" in _taken:
        implements(f"fft.{_name}")(_shift(_name))
