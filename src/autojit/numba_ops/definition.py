"""``op``: the door for users' own functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, overload

from autojit.core.errors import ArgumentError
from autojit.core.top_level import top_level
from autojit.numba_ops.array_op import ArrayOp
from autojit.numba_ops.scalar_op import ScalarOp, as_op


@overload
def op(
    function: Callable[..., Any],
    *,
    derivatives: Sequence[Any] | None = None,
    single_precision: bool = False,
    out: None = None,
    vjp: None = None,
) -> ScalarOp: ...


@overload
def op(function: Callable[..., Any], *, out: Callable[..., Any], vjp: Callable[..., Any] | None = None) -> ArrayOp: ...


@overload
def op(
    function: None = None,
    *,
    derivatives: Sequence[Any] | None = None,
    single_precision: bool = False,
    out: Callable[..., Any] | None = None,
    vjp: Callable[..., Any] | None = None,
) -> Callable[[Callable[..., Any]], Any]: ...


@top_level
def op(
    function: Callable[..., Any] | None = None,
    *,
    derivatives: Sequence[Any] | None = None,
    single_precision: bool = False,
    out: Callable[..., Any] | None = None,
    vjp: Callable[..., Any] | None = None,
) -> Any:
    """Make an op of a function compiled by Numba; also a decorator, above or instead of ``numba.njit``.

    A function of numbers becomes an elementwise op: its machine code is inlined in the kernels it is used in, branches,
    loops and all. Its derivatives are made from its code, or are given as functions of the same operands, one per
    operand; the derivatives of those are made in turn, so derivatives of every order exist either way.

    A function over whole arrays, ``kernel(*operands, *results)``, which fills its results, becomes an op by ``out``,
    which tells the results' shapes from the operands'. Its derivative is ``vjp``, written in tensor ops.

    Args:
        function: a Numba function, or a plain Python function, which is then compiled by Numba.
        derivatives: of a function of numbers: the partial derivative with respect to each operand, a function of the
            same operands (or another op); None for an operand on which the result does not depend smoothly.
        single_precision: compute in float32 where no operand is float64. Numba takes Python's literals for float64, and
            computes in float64 what they meet; the result is float32 either way.
        out: of a function over arrays: takes the operands' shapes, returns the result's shape, a ``(shape, dtype)``
            pair, or a list of those for several results. Without a dtype the first operand's is meant.
        vjp: of a function over arrays: ``vjp(grad, result, *operands)`` returns the cotangent of each operand (None
            for those without); with several results ``grad`` and ``result`` are tuples.

    Returns:
        A callable that takes tensors and numbers, eager and under ``aj.jit``, ``aj.func`` and ``aj.autograd``.

    Raises:
        UnsupportedError: Numba is not installed, or the function does what cannot be linked (at the first call).
        ArgumentError: options of both kinds of functions are given.

    Example:
        >>> import math
        >>> import autojit as aj
        >>> @aj.op
        ... def softened(x, scale):
        ...     if x > 0.0:
        ...         return x
        ...     return scale * (math.exp(x / scale) - 1.0)
        >>> x = aj.tensor([-1.0, 2.0], requires_grad=True)
        >>> y = softened(x, 0.5)
        >>> y.sum().backward()
        >>> x.grad
        tensor([0.1353, 1.0000])
    """
    if (out is not None and (derivatives is not None or single_precision)) or (out is None and vjp is not None):
        raise ArgumentError(
            "op: derivatives and single_precision are for functions of numbers, out and vjp for functions over arrays"
        )

    made = partial(_made, derivatives=derivatives, single_precision=single_precision, out=out, vjp=vjp)
    return made if function is None else made(function)


def _made(
    function: Callable[..., Any],
    derivatives: Sequence[Any] | None,
    single_precision: bool,
    out: Callable[..., Any] | None,
    vjp: Callable[..., Any] | None,
) -> ScalarOp | ArrayOp:
    if not callable(function):
        raise ArgumentError(f"op: expected a function, but got {type(function).__name__}")
    if out is not None:
        return ArrayOp(function, out, vjp)
    given = None
    if derivatives is not None:
        given = tuple(as_op(derivative, single_precision=single_precision) for derivative in derivatives)
    return ScalarOp(function, given, single_precision=single_precision)
