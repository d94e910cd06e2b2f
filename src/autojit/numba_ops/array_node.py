"""LinkedArray: a user's function over whole arrays as an op of the graph, a kernel of its own.

Its derivative is the user's rule, written for tensors: `array_op` attaches it as an ``autograd.Function``.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.codegen.kernel_function import KernelFunction
from autojit.codegen.numba_text.array_function import write_array_call
from autojit.core.dtypes import dtype_of_numpy
from autojit.core.locks import new_lock
from autojit.core.records import record
from autojit.core.types import TensorType
from autojit.ir.graph import Node
from autojit.ir.op import Operands, bind, not_differentiable
from autojit.numba_ops.numba_compiler import CompiledArray
from autojit.numba_ops.user_function import failure
from autojit.ops.base import Structured
from autojit.ops.joining import select, stack

if TYPE_CHECKING:
    from numpy.typing import NDArray

FUNCTIONS: dict[str, ArrayFunction] = {}
_lock = new_lock()
_numbers = count()


@record(eq=False, frozen=False)
class ArrayFunction:
    """A function over arrays with its rules.

    Args:
        name: what messages call it.
        compiled: its code.
        results: the results' types from the operands'.
    """

    name: str
    compiled: CompiledArray
    results: Callable[..., tuple[TensorType, ...]]
    key: str = ""


def registered_array(function: ArrayFunction) -> ArrayFunction:
    """The function under a key of its own."""
    with _lock:
        function.key = f"{function.name}.{next(_numbers)}"
        FUNCTIONS[function.key] = function
    return function


@record
class LinkedArray(Structured):
    """The function of key ``function`` applied to whole arrays."""

    function: str

    @property
    def made(self) -> ArrayFunction:
        return FUNCTIONS[self.function]

    @property
    def n_outputs(self) -> int:
        return self.made.compiled.n_results

    def result_type(self, *types: TensorType) -> Any:
        found = self.made.results(*types)
        return found[0] if len(found) == 1 else found

    def eager(self, *arrays: NDArray[Any]) -> Any:
        types = [TensorType(a.shape, dtype_of_numpy(a.dtype)) for a in arrays]
        results = [np.empty(t.shape, t.dtype.numpy) for t in self.made.results(*types)]
        operands = [a[()] if a.ndim == 0 else np.require(a, requirements=("C", "A")) for a in arrays]
        self.made.compiled.dispatcher(*operands, *results)
        return results[0] if len(results) == 1 else tuple(results)

    vjp = jvp = not_differentiable("the derivative is the one its caller, ArrayOp, was given", is_missing=True)

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        extent = next(a.spec.shape[0] for a, flag in zip(args, batched, strict=True) if flag)
        calls = [
            bind(self, *[select(a, 0, k) if flag else a for a, flag in zip(args, batched, strict=True)])
            for k in range(extent)
        ]
        if self.n_outputs == 1:
            return stack(calls)
        return tuple(stack(parts) for parts in zip(*calls, strict=True))

    def write_kernel(self, kernel: KernelFunction, node: Node) -> float | None:
        """Write the kernel and give its time in nanoseconds; None where the function calls what cannot be linked."""
        code = self.made.compiled.code
        if code is None:
            return None
        return write_array_call(kernel, self, code, [v.type for v in node.inputs], [v.type for v in node.outputs])

    def may_refuse(self, *types: TensorType) -> bool:
        return bool(self.made.compiled.failures) or self.made.compiled.code is None

    def may_fail(self, *types: TensorType) -> bool:
        return True  # the runtime of the other compiler has errors of its own

    def failure(self, number: int) -> Exception:
        """What to raise for the number of a failure."""
        return failure(self.made.name, self.made.compiled.failures, number)
