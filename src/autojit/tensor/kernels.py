"""Kernels of eager mode: elementwise work on large arrays in one compiled pass instead of several of NumPy's.

A kernel is compiled once per op and dtypes for arrays of any length (a symbolic size), and kept in the disk cache as
every other. It serves operands of one shape, all in row-major or all in column-major order, and single numbers beside
them; for anything else NumPy computes as it always does. What a kernel computes are the bits of a compiled step.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.device import CPU
from autojit.core.dtypes import DType, dtype_of_numpy
from autojit.core.ports import ports
from autojit.core.sizes import named_size, recording
from autojit.core.types import TensorType
from autojit.ir.builder import GraphBuilder
from autojit.ir.op import Op
from autojit.ops.base import Elementwise
from autojit.ops.fused import COMPOSITES, Fused
from autojit.ops.large_arrays import LARGE
from autojit.tensor.dispatch import apply
from autojit.tensor.op_node import rename_node
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from autojit.runtime.executable import Executable

Operand = tuple[DType, bool]  # the dtype, and whether it is one number for all elements
Extents = tuple[tuple[tuple[int, ...], DType], ...]  # per operand


def _compiled(op: Op, types: Sequence[TensorType]) -> Executable:
    from autojit.compiler import compile  # the compiler is loaded when a kernel is first needed

    builder = GraphBuilder()
    with recording(None):  # a capture in progress has nothing to do with these sizes
        return compile(builder.finish(builder.apply(op, [builder.input(t) for t in types]))).executable


@lru_cache(maxsize=512)
def _elementwise_kernel(op: Op, operands: tuple[Operand, ...]) -> Executable:
    """The kernel for vectors of any length and numbers beside them."""
    length = named_size("n", 1 << 17)
    return _compiled(op, [TensorType(() if one else (length,), dtype, CPU) for dtype, one in operands])


@lru_cache(maxsize=512)
def _kernel(op: Op, operands: Extents) -> Executable:
    """The kernel for these extents; of an op that does not fix them for all, numbered from 2 on (1 stands for 1)."""
    kinds: dict[int, int] = {n: n for extents, _ in operands for n in extents}
    if not op.fixes_sizes:
        kinds |= {n: named_size(f"n{n}", 512) for n in kinds if n != 1}
    return _compiled(op, [TensorType(tuple(kinds[n] for n in extents), dtype, CPU) for extents, dtype in operands])


def _numbered(arrays: Sequence[NDArray[Any]]) -> Extents:
    """Extents by the order in which they are met, equal ones alike, from 2 on; 1 stays 1."""
    met: dict[int, int] = {1: 1}
    return tuple((tuple(met.setdefault(n, len(met) + 1) for n in a.shape), dtype_of_numpy(a.dtype)) for a in arrays)


def evaluate_by_kernel(op: Op, arrays: Sequence[NDArray[Any]]) -> Any:
    """The op's result on arrays by its kernel, or None where kernels do not serve (``core.ports``)."""
    if isinstance(op, Elementwise):
        form = _form_of(arrays)
        found = None if form is None else run(_elementwise_kernel(op, form), arrays)
    elif all(a.size for a in arrays):
        extents = tuple((a.shape, dtype_of_numpy(a.dtype)) for a in arrays) if op.fixes_sizes else _numbered(arrays)
        found = _kernel(op, extents).run([np.ascontiguousarray(a) for a in arrays])
    else:
        found = None
    if found is None:
        return None
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


ports.by_kernel = evaluate_by_kernel
