"""Derivatives of scatters that multiply or keep an extreme: linear in the number of elements.

Equal extremes share the cotangent. A product's derivative leaves the factor out, also where it is zero. Where two
factors of one place are zero, it is written as a multiple of the other one, so that its own derivative is right too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autojit.ir.op import O, Op, Operands, bind
from autojit.ops.elementwise_arithmetic import add, cast, div, mul, sub, where
from autojit.ops.elementwise_logic import eq
from autojit.ops.sources import zeros_like


def _with(op: Op, combine: str) -> Op:
    return type(op)(**{**dict(op.parameters()), "combine": combine})


def _count(op: Any, of_base: Any, of_src: Any, like: Operands, indices: Sequence[Any]) -> Any:
    """How many elements of a place, its own included, satisfy a condition: in the dtype of the operands."""
    ones = [where(flags, 1, zeros_like(x)) for flags, x in zip((of_base, of_src), like, strict=True)]
    return bind(_with(op, "add"), *ones, *indices)


def _shares(op: Any, primals: Operands, result: O) -> tuple[Any, Any]:
    """Per element of base and src: its part of its place's derivative with respect to itself."""
    base, src, *indices = primals
    gathering = op.gathering()
    if op.combine == "mul":
        is_zero = eq(base, 0), eq(src, 0)
        zeros = _count(op, *is_zero, (base, src), indices)
        safe = where(is_zero[0], 1, base), where(is_zero[1], 1, src)
        product = bind(op, *safe, *indices)  # of the factors that are not zero
        sums = bind(_with(op, "add"), *(where(z, x, 0) for z, x in zip(is_zero, (base, src), strict=True)), *indices)
        of_base = where(is_zero[0], _without(base, zeros, sums, product), div(result, safe[0]))
        zeros, sums, product, whole = (bind(gathering, x, *indices) for x in (zeros, sums, product, result))
        return of_base, where(is_zero[1], _without(src, zeros, sums, product), div(whole, safe[1]))
    reaches = eq(base, result), eq(src, bind(gathering, result, *indices))
    count = _count(op, *reaches, (base, src), indices)
    counts = count, bind(gathering, count, *indices)
    # a NaN that is the extreme equals nothing: 0 of 0, a NaN for all elements of its place, as in torch
    of_base, of_src = (div(cast(r, n.spec.dtype), n) for r, n in zip(reaches, counts, strict=True))
    return of_base, of_src


def _without(x: O, zeros: O, sums: O, product: O) -> O:
    """The product of the other factors of a place for a factor ``x`` that is zero, as are ``zeros`` of them in all."""
    other = sub(sums, x)  # of two zeros
    return where(eq(zeros, 1), product, where(eq(zeros, 2), mul(other, product), 0))


def fold_vjp(op: Any, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
    """The cotangents of base and src, and None for every index."""
    _, _, *indices = primals
    of_base, of_src = _shares(op, primals, result)
    src_bar = mul(bind(op.gathering(), y_bar, *indices), of_src)
    return (mul(y_bar, of_base), src_bar, *(None for _ in indices))


def fold_jvp(op: Any, primals: Operands, result: Any, tangents: Operands) -> Any:
    """The tangent of the result."""
    base_dot, src_dot, *_ = tangents
    _, _, *indices = primals
    if base_dot is None and src_dot is None:
        return None
    of_base, of_src = _shares(op, primals, result)
    total = zeros_like(result) if base_dot is None else mul(of_base, base_dot)
    if src_dot is None:
        return total
    return add(total, bind(_with(op, "add"), zeros_like(result), mul(of_src, src_dot), *indices))
