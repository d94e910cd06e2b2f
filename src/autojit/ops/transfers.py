"""Copies between devices: the one op whose result is somewhere else than its operand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autojit.core.device import CPU, Device
from autojit.core.dtypes import DType
from autojit.core.records import record
from autojit.core.types import TensorType
from autojit.ir.op import O, Op, Operands, bind, linear_jvp
from autojit.ops.loop_orders import as_loop
from autojit.ops.samples import Samples, ramp


@record
class ToDevice(Op):
    """A copy on another device. Linear: its derivative is the copy back."""

    device: Device
    moves = True
    keeps_order = True

    @staticmethod
    def samples(dtype: DType) -> Samples:
        return [(ToDevice(CPU), (ramp((2, 3), dtype),))]

    def result_type(self, x: TensorType) -> TensorType:
        return TensorType(x.shape, x.dtype, self.device)

    def eager(self, x: Any) -> Any:
        return as_loop(x.copy(order="K"), (x,))

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        return (bind(ToDevice(primals[0].spec.device), y_bar),)

    jvp = linear_jvp

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        return bind(self, args[0])


__all__ = ["ToDevice"]
