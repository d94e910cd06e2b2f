"""LinkedScalar: a user's scalar function as an op of the graph, fused like every elementwise op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from autojit.codegen.numba_text.calls import call
from autojit.core.dtypes import DType
from autojit.core.records import record
from autojit.core.types import TensorType
from autojit.ir.op import Operands, bind
from autojit.numba_ops.user_function import find
from autojit.ops.base import Elementwise, broadcast_shapes
from autojit.ops.by_name import apply
from autojit.ops.cotangent_masks import cotangent_product

if TYPE_CHECKING:
    from numpy.typing import NDArray


@record
class LinkedScalar(Elementwise):
    """Result ``output`` of the function of key ``function``, as ``dtype``. Operands may differ in dtype."""

    is_cheap: ClassVar[bool] = False
    reads_operands: ClassVar[bool] = True

    function: str
    output: int
    dtype: DType

    def result_type(self, *types: TensorType) -> TensorType:
        shape = broadcast_shapes(*[t.shape for t in types], op=find(self.function).name)
        return TensorType(shape, self.dtype, types[0].device)

    def eager(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        return find(self.function).evaluate(self, arrays)

    def vjp(self, primals: Operands, result: Any, y_bar: Any) -> Sequence[Any]:
        return tuple(self._cotangent(k, primals, y_bar) for k in range(len(primals)))

    def _cotangent(self, operand: int, primals: Operands, y_bar: Any) -> Callable[[], Any] | None:
        if not self._depends_on(operand, primals):
            return None
        dtype = primals[operand].spec.dtype
        return lambda: _as(cotangent_product(y_bar, self._slope(operand, primals)), dtype)

    def jvp(self, primals: Operands, result: Any, tangents: Operands) -> Any:
        total: Any = None
        for k, x_dot in enumerate(tangents):
            if x_dot is None or not self._depends_on(k, primals):
                continue
            term = apply("mul", self._slope(k, primals), _as(x_dot, self.dtype))
            total = term if total is None else apply("add", total, term)
        return total

    def _depends_on(self, operand: int, primals: Operands) -> bool:
        is_smooth = self.dtype.kind == "float" and primals[operand].spec.dtype.kind == "float"
        return is_smooth and find(self.function).depends_on(operand)

    def _slope(self, operand: int, primals: Operands) -> Any:
        """The partial derivative with respect to an operand, at the operands."""
        partial = find(self.function).partial(operand)
        assert partial is not None
        return bind(LinkedScalar(partial.key, self.output, self.dtype), *primals)

    def has_code(self, machine: str) -> bool:
        return machine == "cpu" or not find(self.function).needs_host

    def lower(self, emit: Any, *scalars: Any) -> Any:
        return call(emit, find(self.function).code, scalars, self.output, self.dtype)

    def may_refuse(self, *types: TensorType) -> bool:
        return bool(find(self.function).failures)

    def may_fail(self, *types: TensorType) -> bool:
        return find(self.function).code.may_fail

    def failure(self, number: int) -> Exception:
        """What to raise for the number of a failure."""
        return find(self.function).failure(number)


def _as(x: Any, dtype: DType) -> Any:
    return x if x.spec.dtype is dtype else apply("cast", x, dtype=dtype)
