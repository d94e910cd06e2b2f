"""Kernels of eager mode: elementwise work on large arrays in one compiled pass instead of several of NumPy's.

A kernel is compiled once per op and dtypes for arrays of any length (a symbolic size), and kept in the disk cache as
every other. It serves operands of one shape, all in row-major or all in column-major order, and single numbers beside
them; for anything else NumPy computes as it always does. What a kernel computes are the bits of a compiled step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.device import CPU
from autojit.core.dtypes import DType, dtype_of_numpy
from autojit.core.evaluating import LARGE, evaluating
from autojit.core.sizes import named_size
from autojit.core.types import Shape, TensorType
from autojit.ir.builder import GraphBuilder
from autojit.ir.op import Op, bind
from autojit.ops.base import Elementwise
from autojit.ops.fused import COMPOSITES, Fused
from autojit.tensor.dispatch import apply
from autojit.tensor.op_node import rename_node
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from autojit.runtime.executable import Executable

Operand = tuple[DType, bool]  # the dtype, and whether it is one number for all elements
Compute = Callable[..., Any]


def kernel_of(compute: Compute, operands: Sequence[Operand]) -> Executable:
    """The compiled form of an elementwise composite on vectors of any length and numbers beside them."""
    from autojit.compiler import compile  # the compiler is loaded when a kernel is first needed

    length = named_size("n", 1 << 17)
    builder = GraphBuilder()
    values = [builder.input(TensorType(() if one else (length,), dtype, CPU)) for dtype, one in operands]
    found = compute(*[builder.tracer(value) for value in values])
    results = found if isinstance(found, tuple) else (found,)
    return compile(builder.finish([r.value for r in results])).executable


@lru_cache(maxsize=512)
def _kernel_of_op(op: Op, operands: tuple[Operand, ...]) -> Executable:
    return kernel_of(lambda *tracers: bind(op, *tracers), operands)


Pattern = tuple[tuple[tuple[int, ...], DType], ...]  # per operand: extents as numbers of a list, -1 for 1


@lru_cache(maxsize=512)
def _kernel_of_pattern(op: Op, operands: Pattern) -> Executable:
    from autojit.compiler import compile

    builder = GraphBuilder()
    sizes = {-1: 1}
    for place in sorted({place for places, _ in operands for place in places} - {-1}):
        sizes[place] = named_size(f"n{place}", 512)
    values = [builder.input(TensorType(tuple(sizes[p] for p in places), dtype, CPU)) for places, dtype in operands]
    return compile(builder.finish(builder.apply(op, values))).executable


def evaluate_by_open_kernel(op: Op, arrays: Sequence[NDArray[Any]]) -> Any:
    """The op's result by the kernel that serves all operands of these ranks with the same equal extents and ones."""
    places: dict[int, int] = {1: -1}
    pattern = []
    for array in arrays:
        if array.size == 0:
            return None
        pattern.append((tuple(places.setdefault(n, len(places) - 1) for n in array.shape), dtype_of_numpy(array.dtype)))
    found = _kernel_of_pattern(op, tuple(pattern)).run([np.ascontiguousarray(a) for a in arrays])
    return found[0] if op.n_outputs == 1 else tuple(found)


@lru_cache(maxsize=256)
def _kernel_of_shapes(op: Op, operands: tuple[tuple[Shape, DType], ...]) -> Executable:
    from autojit.compiler import compile

    builder = GraphBuilder()
    values = [builder.input(TensorType(shape, dtype, CPU)) for shape, dtype in operands]
    return compile(builder.finish(builder.apply(op, values))).executable


def evaluate_by_kernel(op: Op, arrays: Sequence[NDArray[Any]]) -> Any:
    """The op's result on arrays by its kernel, or None where kernels do not serve.

    The kernel of an op that is not elementwise is compiled for the arrays' shapes.
    """
    if not isinstance(op, Elementwise):
        kernel = _kernel_of_shapes(op, tuple((a.shape, dtype_of_numpy(a.dtype)) for a in arrays))
        found = kernel.run([np.ascontiguousarray(a) for a in arrays])
        return found[0] if op.n_outputs == 1 else tuple(found)
    form = _form_of(arrays)
    if form is None:
        return None
    found = run(_kernel_of_op(op, form), arrays)
    return found[0] if op.n_outputs == 1 else tuple(found)


def in_one_pass(name: str, parameters: tuple[Any, ...], *operands: Any, node: str = "", **shown: Any) -> Any:
    """The composite ``name`` of ``ops.fused``: of large arrays by one kernel, and then recorded as one node.

    Args:
        node: the node's name, as torch calls it.
        shown: what the node shows as ``_saved_<name>``.
    """
    first = operands[0]
    array = first._array if isinstance(first, Tensor) else None
    if type(array) is np.ndarray and array.size >= LARGE and state.divert is None and _serves(operands):
        found = apply(_fused(name, parameters), *operands)
    else:
        found = COMPOSITES[name](*operands, *parameters)
    return rename_node(found, node, **shown) if node else found


@lru_cache(maxsize=1024)
def _fused(name: str, parameters: tuple[Any, ...]) -> Fused:
    return Fused(name, parameters)


def _serves(operands: Sequence[Any]) -> bool:
    if not all(isinstance(t, Tensor) for t in operands):
        return False
    arrays = [t._array for t in operands]
    if not all(type(a) is np.ndarray and a.dtype.kind == "f" and a.dtype.itemsize >= 4 for a in arrays):
        return False
    return len({a.dtype for a in arrays}) == 1 and _form_of(arrays) is not None


def _form_of(arrays: Sequence[NDArray[Any]]) -> tuple[Operand, ...] | None:
    """The kernel's operands for arrays that one can serve."""
    shape: tuple[int, ...] | None = None
    rows = columns = True
    form = []
    for array in arrays:
        one = array.ndim == 0
        if not one:
            if shape is not None and array.shape != shape:
                return None
            shape, flags = array.shape, array.flags
            rows, columns = rows and flags.c_contiguous, columns and flags.f_contiguous
            if not flags.aligned:
                return None
        form.append((dtype_of_numpy(array.dtype), one))
    return tuple(form) if shape is not None and (rows or columns) else None


def run(kernel: Executable, arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Run a kernel on arrays that ``_form_of`` found to fit: fresh arrays in their order."""
    full = next(array for array in arrays if array.ndim)
    order = "C" if full.flags.c_contiguous else "F"
    results = [np.empty(full.shape, spec.dtype, order) for spec in kernel.outputs]  # type: ignore[call-overload]
    kernel.run_with(arrays, results, (full.size,))
    return results


evaluating.by_kernel = evaluate_by_kernel
evaluating.by_open_kernel = evaluate_by_open_kernel
