"""What ``aj.op`` makes of a scalar function: operands promoted, the function compiled for them, the op applied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autojit.core.dtypes import DType, default_dtype, result_type
from autojit.core.errors import UsageError
from autojit.dispatch.dispatch import number
from autojit.dispatch.promotion import NUMBERS, as_operand, cast
from autojit.ir.op import bind
from autojit.numba_ops.made_op import MadeOp
from autojit.numba_ops.numba_compiler import Compiled, compile_scalar
from autojit.numba_ops.scalar_node import LinkedScalar
from autojit.numba_ops.user_function import UserFunction, registered
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of

HALF_BYTES = 2


class ScalarOp(MadeOp):
    """An elementwise op made from a function of numbers; call it with tensors and numbers.

    Shapes broadcast. Floating-point operands are promoted to one dtype, which a floating-point result has too (the
    default dtype when there are none); integers and bools are passed as they are, Python numbers take the place torch
    gives them. A function that returns a tuple gives a tuple of tensors.
    """

    def __init__(
        self, function: Callable[..., Any], derivatives: tuple[Any, ...] | None, *, single_precision: bool
    ) -> None:
        super().__init__(function)
        self.single_precision = single_precision
        self._derivatives = derivatives
        self._made: dict[tuple[DType, ...], tuple[UserFunction, Compiled]] = {}

    def __call__(self, *operands: Any) -> Any:
        if not operands:
            raise UsageError(f"{self.name}: an op takes at least one operand")
        tensors, floating = _promoted(operands, self.name)
        made, compiled = self.made(tuple(type_of(t).dtype for t in tensors))
        tensors = [_as_taken(t, dtype) for t, dtype in zip(tensors, compiled.operands, strict=True)]
        results = [
            bind(LinkedScalar(made.key, k, floating if dtype.kind == "float" else dtype), *tensors)
            for k, dtype in enumerate(compiled.results)
        ]
        return tuple(results) if compiled.returns_tuple else results[0]

    def made(self, dtypes: tuple[DType, ...]) -> tuple[UserFunction, Compiled]:
        """The function for operands of these dtypes, compiled when it is first asked for."""
        with self._lock:
            found = self._made.get(dtypes)
            if found is None:
                found = self._made[dtypes] = self._make(dtypes)
            return found

    def _make(self, dtypes: tuple[DType, ...]) -> tuple[UserFunction, Compiled]:
        is_narrow = self.single_precision and not any(d.kind == "float" and d.size_bytes > 4 for d in dtypes)
        compiled = compile_scalar(self.function, dtypes, is_narrow)
        given = None
        if self._derivatives is not None:
            given = self._given(dtypes, compiled)
        name = str(getattr(self, "__name__", "function"))
        return registered(UserFunction(name, compiled.code, compiled.failures, given)), compiled

    def _given(self, dtypes: tuple[DType, ...], compiled: Compiled) -> tuple[UserFunction | None, ...]:
        assert self._derivatives is not None
        if len(self._derivatives) != len(dtypes):
            raise UsageError(
                f"op: {len(self._derivatives)} derivatives are given for {len(dtypes)} operands",
                fix="give one function per operand, in order; None where the derivative is zero",
            )
        found: list[UserFunction | None] = []
        for derivative in self._derivatives:
            if derivative is None:
                found.append(None)
                continue
            made, its = derivative.made(dtypes)
            if len(its.results) != len(compiled.results):
                raise UsageError(
                    f"op: the derivative {derivative.__name__} returns {len(its.results)} numbers",
                    fix=f"return the derivative of every result: {len(compiled.results)}",
                )
            found.append(made)
        return tuple(found)


def as_op(derivative: Any, *, single_precision: bool) -> ScalarOp | None:
    """A derivative as an op: an op itself, or a function that one is made from; None stays None."""
    if derivative is None or isinstance(derivative, ScalarOp):
        return derivative
    return ScalarOp(derivative, None, single_precision=single_precision)


def _promoted(operands: Sequence[Any], name: str) -> tuple[list[Tensor], DType]:
    """Operands as tensors, floats in one dtype; and that dtype (the default one when there are no floats)."""
    tensors = [x if isinstance(x, NUMBERS) else as_operand(x, name) for x in operands]
    floats = [type_of(t) for t in tensors if isinstance(t, Tensor) and type_of(t).dtype.kind == "float"]
    floating = result_type([(t.dtype, t.ndim) for t in floats]) if floats else default_dtype()
    return [_operand(t, floating) for t in tensors], floating


def _operand(x: Any, floating: DType) -> Tensor:
    if isinstance(x, Tensor):
        return cast(x, floating) if type_of(x).dtype.kind == "float" else x
    if isinstance(x, float):
        return number(x, floating)
    return as_operand(x)


def _as_taken(x: Tensor, dtype: DType) -> Tensor:
    """The operand as the function takes it, which differs where the function has a signature of its own."""
    own = type_of(x).dtype
    if own is dtype or (own.kind == "float" and own.size_bytes == HALF_BYTES):
        return x
    return cast(x, dtype)
