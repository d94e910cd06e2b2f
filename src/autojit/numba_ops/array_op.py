"""What ``aj.op`` makes of a function over whole arrays: ``kernel(*operands, *results)`` with a rule for the shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autojit.autograd.function import Function
from autojit.core.dtypes import DType
from autojit.core.errors import ArgumentError, DifferentiationError, UsageError
from autojit.core.types import Shape, TensorType
from autojit.dispatch.promotion import as_operand
from autojit.ir.op import bind
from autojit.numba_ops.array_node import ArrayFunction, LinkedArray, registered_array
from autojit.numba_ops.made_op import MadeOp
from autojit.numba_ops.numba_compiler import compile_array
from autojit.tensor.tensor import type_of

Rule = Callable[..., Any]


class ArrayOp(MadeOp):
    """An op made from a function that fills arrays; call it with tensors.

    Operands reach the function as C-contiguous arrays (as numbers when they have no axes), results as arrays of
    undefined contents that it must fill. It is compiled for the operands' dtypes and numbers of axes.
    """

    def __init__(self, function: Callable[..., Any], out: Rule, vjp: Rule | None) -> None:
        super().__init__(function)
        self.out = out
        self.vjp = vjp
        self._made: dict[tuple[tuple[DType, int], ...], ArrayFunction] = {}
        self._differentiable = _function_of(self)

    def __call__(self, *operands: Any) -> Any:
        tensors = [as_operand(x, self.name) for x in operands]
        if not tensors:
            raise UsageError(f"{self.name}: an op takes at least one operand")
        made = self._function([type_of(t) for t in tensors])
        return self._differentiable.apply(LinkedArray(made.key), *tensors)

    def _backward(self, bars: tuple[Any, ...], saved: Sequence[Any], count: int) -> tuple[Any, ...]:
        """The cotangents of ``count`` operands by the user's rule; ``saved`` are operands and results."""
        if self.vjp is None:
            raise DifferentiationError(
                f"{self.name}: an op over arrays has the derivative that it is given",
                fix="aj.op(kernel, out=..., vjp=lambda grad, result, *operands: ...)",
            )
        operands, results = saved[:count], tuple(saved[count:])
        is_single = len(results) == 1
        found = self.vjp(bars[0] if is_single else bars, results[0] if is_single else results, *operands)
        cotangents = tuple(found) if isinstance(found, tuple | list) else (found,)
        if len(cotangents) != count:
            raise DifferentiationError(
                f"{self.name}: vjp returned {len(cotangents)} cotangents for {count} operands",
                fix="return one per operand, None for those without",
            )
        return cotangents

    def _function(self, types: list[TensorType]) -> ArrayFunction:
        key = tuple((t.dtype, t.ndim) for t in types)
        with self._lock:
            found = self._made.get(key)
            if found is None:
                results = self.results(*types)
                compiled = compile_array(self.function, key, [(t.dtype, t.ndim) for t in results])
                found = self._made[key] = registered_array(ArrayFunction(self.name, compiled, self.results))
            return found

    def results(self, *types: TensorType) -> tuple[TensorType, ...]:
        """The types of the results by the user's rule."""
        told = self.out(*[t.shape for t in types])
        listed = told if isinstance(told, list) else [told]
        return tuple(self._result(one, types[0]) for one in listed)

    def _result(self, told: Any, first: TensorType) -> TensorType:
        shape, dtype = told, first.dtype
        if isinstance(told, tuple) and len(told) == 2 and isinstance(told[1], DType):
            shape, dtype = told
        if not isinstance(shape, tuple) or not all(isinstance(n, int) for n in shape):
            raise ArgumentError(
                f"{self.name}: out gives {told!r}",
                fix="return a shape, a pair (shape, dtype), or a list of these: out=lambda x: (x[0],)",
            )
        checked: Shape = shape
        return TensorType(checked, dtype, first.device)


def _function_of(op: ArrayOp) -> type[Function]:
    """The differentiable function that applies the op's node."""

    class Linked(Function):
        """A linked function over arrays with the user's derivative."""

        generate_vmap_rule = True

        @staticmethod
        def forward(node: LinkedArray, *operands: Any) -> Any:
            return bind(node, *operands)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            results = output if isinstance(output, tuple) else (output,)
            ctx.count = len(inputs) - 1
            ctx.mark_non_differentiable(*[y for y in results if not type_of(y).dtype.is_differentiable])
            ctx.save_for_backward(*inputs[1:], *results)

        @staticmethod
        def backward(ctx: Any, *bars: Any) -> Any:
            return (None, *op._backward(bars, ctx.saved_tensors, ctx.count))

    return Linked
