"""Kernels of eager mode: work on large arrays in one compiled pass instead of several of NumPy's.

A kernel is compiled once per op, dtypes and pattern of extents for arrays of any length (symbolic sizes), and kept in
the disk cache as every other. That of an elementwise op serves operands of one shape, all in row-major or all in
column-major order, and single numbers beside them; others take row-major operands. For anything else NumPy computes as
it always does. What a kernel computes are the bits of a compiled step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from autojit.core.device import CPU
from autojit.core.device_array import DeviceArray, is_concrete
from autojit.core.dtypes import DType, bfloat16, dtype_of_numpy
from autojit.core.errors import SpecializeSize, UndecidedSizeError
from autojit.core.size_recorder import recording
from autojit.core.sizes import named_size
from autojit.core.types import TensorType
from autojit.core.undivided_work import undivided
from autojit.dispatch.awaited_kernels import awaited
from autojit.dispatch.composite_nodes import any_digits, composed
from autojit.dispatch.dispatch import apply
from autojit.history.lasting import make_lasting, with_lasting_constants
from autojit.history.op_node import rename_node
from autojit.history.recording import wants_grad
from autojit.ir.builder import GraphBuilder
from autojit.ir.graph import Graph
from autojit.ir.op import Op
from autojit.ops.base import Elementwise
from autojit.ops.fused import COMPOSITES, Fused, NamedComposite
from autojit.ops.graph_op import types_of
from autojit.runtime.gate import Reentered
from autojit.tensor.state import computes_at_once, state
from autojit.tensor.tensor import Tensor, has_own_memory, type_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from autojit.ops.fused_arrays import FusedArrays
    from autojit.runtime.executable import Executable

Operand = tuple[DType, bool]  # the dtype, and whether it is one number for all elements
Extents = tuple[tuple[tuple[int, ...], DType], ...]  # per operand
LARGE = 4096  # elements; below, starting a kernel costs more than NumPy's passes
KEPT_BYTES = 16 << 20  # of temporaries that a kernel keeps mapped between calls
_CALL_LIMIT = 2048


class _Call(NamedTuple):
    """A kernel and what a call with operands of certain shapes needs."""

    kernel: Executable
    sizes: tuple[int, ...]
    results: tuple[tuple[tuple[int, ...], Any], ...]  # shapes and dtypes


_calls: dict[Any, _Call | None] = {}


def _compiled(op: Op, types: Sequence[TensorType]) -> Executable:
    builder = GraphBuilder()
    with recording(None):  # a capture in progress has nothing to do with these sizes
        return _executable(builder.finish(_as_tuple(builder.apply(op, [builder.input(t) for t in types]))))


def _executable(graph: Graph) -> Executable:
    with undivided:
        from autojit.compiler import compile  # the compiler is loaded when a kernel is first needed

    return compile(graph).executable


def _awaited_kernel(op: FusedArrays, types: Sequence[TensorType]) -> Executable:
    """Of the op's own graph: passes over loops come before the one that would write it in the op's place."""
    with recording(None):
        return _executable(op.graph_of(op.related(types)))


def _as_tuple(found: object) -> Any:
    return found if isinstance(found, tuple | list) else (found,)


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
    types = [TensorType(tuple(kinds[n] for n in extents), dtype, CPU) for extents, dtype in operands]
    with recording(None):
        return _compiled(op, op.related(types) if hasattr(op, "related") else types)


def _numbered(arrays: Sequence[NDArray[Any]]) -> Extents:
    """Extents by the order in which they are met, equal ones alike, from 2 on; 1 stays 1."""
    met: dict[int, int] = {1: 1}
    return tuple((tuple(met.setdefault(n, len(met) + 1) for n in a.shape), dtype_of_numpy(a.dtype)) for a in arrays)


def evaluate_by_kernel(op: Op, arrays: Sequence[NDArray[Any]]) -> Any:
    """The op's result on arrays by its kernel, or None where kernels do not serve."""
    arrays = [a if type(a) is np.ndarray else np.asarray(a) for a in arrays]  # NumPy's numbers have no place in memory
    key = (op, *[(a.shape, a.dtype) for a in arrays])
    try:
        call = _calls[key]
    except KeyError:
        if len(_calls) >= _CALL_LIMIT:
            _calls.clear()
        call = _calls[key] = _prepare(op, arrays)
    if call is None:
        return None
    order = "C"
    if isinstance(op, Elementwise):
        found = _order_of(arrays)
        if found is None:
            return None
        order = found
    else:
        arrays = [a if a.flags.carray else np.require(a, requirements=["C", "A"]) for a in arrays]
    return _run(call, arrays, order)


def evaluate_when_ready(op: FusedArrays, arrays: Sequence[NDArray[Any]]) -> Any:
    """The same for an op whose kernel is compiled beside the first calls: None also until it is there."""
    key = (op, *[(a.shape, a.dtype) for a in arrays])
    call = _calls.get(key)
    if call is None:
        types = types_of(arrays)
        kernel = awaited.find(op.kind_of_kernel(arrays), lambda: _awaited_kernel(op, types))
        if kernel is None:
            return None
        if len(_calls) >= _CALL_LIMIT:
            _calls.clear()
        call = _calls[key] = _call(kernel, arrays)
    return _run(call, [a if a.flags.carray else np.require(a, requirements=["C", "A"]) for a in arrays], "C")


def _run(call: _Call, arrays: Sequence[NDArray[Any]], order: Any) -> Any:
    """What the kernel makes of arrays that it takes; None where it cannot run now."""
    empty: Any = np.empty
    made = [empty(shape, dtype, order) for shape, dtype in call.results]
    try:
        results = call.kernel.run_with(arrays, made, call.sizes)
    except Reentered:  # a signal handler or finaliser in the middle of another call of the kernel
        return None
    if call.kernel.arena_bytes > KEPT_BYTES:
        call.kernel.release_arenas()
    return results[0] if len(results) == 1 else tuple(results)


def _prepare(op: Op, arrays: Sequence[NDArray[Any]]) -> _Call | None:
    if isinstance(op, Elementwise):
        shape = next((a.shape for a in arrays if a.ndim), None)
        if shape is None or any(a.ndim and a.shape != shape for a in arrays):
            return None
        kernel = _elementwise_kernel(op, tuple((dtype_of_numpy(a.dtype), a.ndim == 0) for a in arrays))
        return _Call(kernel, (int(np.prod(shape)),), tuple((shape, spec.dtype) for spec in kernel.outputs))
    if not all(a.size for a in arrays):
        return None
    extents = tuple((a.shape, dtype_of_numpy(a.dtype)) for a in arrays) if op.fixes_sizes else _numbered(arrays)
    try:
        kernel = _kernel(op, extents)
    except (UndecidedSizeError, SpecializeSize):  # one for these extents alone would not pay for itself
        return None
    return _call(kernel, arrays)


def _call(kernel: Executable, arrays: Sequence[NDArray[Any]]) -> _Call:
    sizes = kernel.sizes_of([a.shape for a in arrays])
    shapes = kernel.storage_shapes(sizes)
    return _Call(kernel, sizes, tuple((s, spec.dtype) for s, spec in zip(shapes, kernel.outputs, strict=True)))


def in_one_pass(
    name: str, parameters: tuple[Any, ...], *operands: Any, node: str = "", keeps: bool = True, **shown: object
) -> Tensor:
    """The composite ``name`` of ``ops.fused``, recorded as one node: of large arrays by one kernel.

    Args:
        node: the node's name, as torch calls it.
        keeps: False: torch's node keeps none of the operands, which may change before backward; the one op would.
        shown: what the node shows as ``_saved_<name>``.
    """
    first = operands[0]
    array = first._array if isinstance(first, Tensor) else None
    if not keeps and state.grad_enabled and any([isinstance(t, Tensor) and wants_grad(t) for t in operands]):  # noqa: C419
        found: Tensor = with_lasting_constants(COMPOSITES[name](*operands, *parameters), *operands)
    elif (type(array) is np.ndarray or type(array) is DeviceArray) and computes_at_once() and _serves(operands):
        found = apply(_fused(name, parameters, _wanted(operands)), *operands)
    else:
        composite = COMPOSITES[name]
        recorded: Tensor | None = None
        if state.grad_enabled and array is None and _would_serve(operands):
            op = _fused(name, any_digits(parameters), _wanted(operands))
            compute = lambda *inside: composite(*inside, *parameters)
            recorded = composed(op, operands, compute, node, is_elementwise=True, keeps_order=True)
        if recorded is not None:
            return recorded
        found = composite(*operands, *parameters)
    return rename_node(found, node, **shown) if node else found


@lru_cache(maxsize=1024)
def _fused(name: str, parameters: tuple[Any, ...], wanted: tuple[int, ...] | None) -> Fused:
    return Fused(name, parameters, wanted)


def _wanted(operands: Sequence[Any]) -> tuple[int, ...] | None:
    """Which operands a backward pass is to give cotangents of, where that is not all or none."""
    if len(operands) == 1 or not state.grad_enabled:
        return None
    found = []
    for k, t in enumerate(operands):
        if isinstance(t, Tensor) and (t._requires_grad if t._view is None else wants_grad(t)):
            found.append(k)
    return tuple(found) if 0 < len(found) < len(operands) else None


def _serves(operands: Sequence[Any]) -> bool:
    first = operands[0]._array
    if len(operands) == 1 and type(first) is np.ndarray and first.dtype.char in "fd" and first.flags.carray:
        return True
    kind, shape, is_alike = first.dtype, first.shape, True
    if kind.char not in "fd" and kind is not bfloat16.numpy:
        return False
    for t in operands:
        array: Any = t._array if isinstance(t, Tensor) else None
        if not is_concrete(array) or array.dtype is not kind or (array.ndim and type(array) is not type(first)):
            return False
        is_alike = is_alike and (array.shape == shape or not array.ndim)
    return is_alike and (type(first) is DeviceArray or _order_of([t._array for t in operands]) is not None)


def _would_serve(operands: Sequence[Any]) -> bool:
    """``_serves`` of the arrays that operands are in eager mode."""
    if not all([isinstance(t, Tensor) for t in operands]):  # noqa: C419  (a list is faster than a generator)
        return False
    first, *others = [type_of(t) for t in operands]
    if first.dtype.numpy.char not in "fd" and first.dtype is not bfloat16:
        return False
    return all(other.dtype is first.dtype and (other.shape == first.shape or not other.shape) for other in others)


@overload
def in_one_step(
    name: str, options: tuple[Any, ...], *operands: Tensor, node: str = "", keeps: bool = True
) -> Tensor: ...
@overload
def in_one_step(
    name: str, options: tuple[Any, ...], *operands: Tensor, node: str = "", results: int
) -> tuple[Tensor, ...]: ...
def in_one_step(
    name: str, options: tuple[Any, ...], *operands: Tensor, node: str = "", results: int = 1, keeps: bool = True
) -> Any:
    """The composite ``name`` of ``ops.fused_arrays``, recorded as one node: of large arrays by one compiled step.

    Args:
        node: the node's name, as torch calls it.
        results: how many the composite has.
        keeps: False: of a composite with one result whose derivative depends on no operand's values, so that a second
            backward pass is allowed, and operands may change before it.
    """
    wanted = None
    if state.grad_enabled:
        wanted = tuple([i for i, t in enumerate(operands) if wants_grad(t)])
    if _are_at_hand(operands):
        found = apply(_fused_arrays(name, options, wanted or None, results), *operands)
        if wanted and not keeps:
            make_lasting((found,))
    else:
        composite = _array_op().functions[name]
        if wanted and _would_be_at_hand(operands):
            op = _fused_arrays(name, any_digits(options), wanted, results)
            recorded = composed(op, operands, lambda *inside: composite(*inside, *options), node, keeps=keeps)
            if recorded is not None:
                return recorded
        found = composite(*operands, *options)
        for one in (found,) if results == 1 else found:
            settle_composite(one, operands)
        if wanted and not keeps:
            with_lasting_constants(found, *operands)
    if node:
        rename_node(found if results == 1 else found[0], node)
    return found


def is_one_step(*operands: Tensor, parameters: Sequence[Tensor] = ()) -> bool:
    """Whether `in_one_step` computes a composite of such operands as one op: in eager mode, of plain alike tensors.

    ``parameters`` are operands whose class the caller has looked at.
    """
    kind = operands[0].dtype
    for t in operands:
        if type(t) is not Tensor or (t.dtype is not kind and t.dtype.kind == "float"):
            return False
    if any([t.dtype is not kind for t in parameters]):  # noqa: C419  (a list is faster than a generator)
        return False
    is_plain = type(operands[0]._array) is np.ndarray and kind.kind == "float"
    return is_plain and _are_at_hand((*operands, *parameters))


def by_parts(op: Op, x: Tensor, compute: Callable[[Tensor], Tensor], node: str) -> Tensor:
    """What several ops compute for ``op``, which keeps the shape, where it does not compute it itself."""
    if _would_be_at_hand([x]) and type_of(x).ndim:
        recorded: Tensor | None = composed(op, (x,), compute, node)
        if recorded is not None:
            return recorded
    found = compute(x)
    settle_composite(found, (x,))
    return rename_node(found, node)


def settle_composite(found: Tensor, operands: Sequence[Tensor]) -> None:
    """Put a composite's result, made by several ops, in row-major order, as the one op for it makes it."""
    if state.layers or type(found) is not Tensor or any(found is t for t in operands) or not has_own_memory(found):
        return
    if found._array is None:
        if state.trace is not None and found._value is not None and state.trace.order_of(found._value) is not None:
            state.trace.set_order(found._value, None)
    elif not found._array.flags.c_contiguous:
        found._array = found._array.copy(order="C")


@lru_cache(maxsize=1)
def _array_op() -> type[NamedComposite]:
    """The op of ``ops.fused_arrays``, imported when it is first used."""
    with undivided:
        from autojit.ops.fused_arrays import FusedArrays

    return FusedArrays


@lru_cache(maxsize=1024)
def _fused_arrays(name: str, options: tuple[Any, ...], wanted: tuple[int, ...] | None, results: int) -> Op:
    return _array_op()(name, options, wanted, (), results)


def _are_at_hand(operands: Sequence[Any]) -> bool:
    """Whether the operands are arrays that hold elements, float32 or float64 all alike except for indices and masks."""
    first = operands[0]._array
    if not is_concrete(first) or first.dtype.char not in "fdl" or not computes_at_once():
        return False
    for t in operands:
        array = t._array
        if type(array) is not type(first) or not array.size:
            return False
        if array.dtype is not first.dtype and array.dtype.kind not in "bi":
            return False
    return True


def _would_be_at_hand(operands: Sequence[Any]) -> bool:
    """``_are_at_hand`` of the arrays that operands are in eager mode."""
    kinds = [type_of(t).dtype for t in operands]
    first = kinds[0].numpy
    if first.char not in "fdl" or any(n == 0 for t in operands for n in type_of(t).shape if type(n) is int):
        return False
    return all(kind.numpy is first or kind.numpy.kind in "bi" for kind in kinds)


def _order_of(arrays: Sequence[NDArray[Any]]) -> str | None:
    """The order, "C" or "F", in which the arrays of one shape all are, aligned."""
    rows = columns = True
    for array in arrays:
        if array.ndim:
            flags = array.flags
            rows, columns = rows and flags.c_contiguous, columns and flags.f_contiguous
            if not flags.aligned:
                return None
    return "C" if rows else "F" if columns else None
