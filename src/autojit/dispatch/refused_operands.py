"""What is said when an op cannot be applied to its operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autojit.core.errors import TraceError, out_of_memory, tensor_expected
from autojit.core.tracebacks import trim
from autojit.core.types import TensorType
from autojit.ir.op import Op
from autojit.tensor.storage import ElsewhereArray
from autojit.tensor.tensor import Tensor, type_of


def types_of(operands: Sequence[Tensor]) -> list[TensorType]:
    """The operands' types; whatever is not a tensor is refused."""
    for t in operands:
        if not isinstance(t, Tensor):
            raise tensor_expected(t)
    return [type_of(t) for t in operands]


def is_elsewhere(operands: Sequence[Tensor]) -> bool:
    """Whether the elements of an operand are not in an array: it is sparse."""
    for t in operands:
        if not isinstance(t, Tensor):
            raise tensor_expected(t)
    return any(type(t._array) is ElsewhereArray for t in operands)


def left_of_batch(named: Mapping[str, object], of: str = "") -> TraceError:
    """A tensor that stands for each element of a batch is used when the batch is done with."""
    return TraceError(
        f"{of}a tensor of one element of a batch is used after the function that got it (of vmap, associative_scan and "
        "the like) has returned",
        named,
        "return it from that function: the result then has the values of all elements",
    )


def refused_outside(op: Op, operands: Sequence[Tensor]) -> TraceError:
    """A tensor of a captured step, or of a batch, is an operand outside of it."""
    named = {f"operand {i}": t for i, t in enumerate(operands)}
    if any(_is_without_values(t) for t in operands):
        return left_of_batch(named, f"{op.name}: ")
    return TraceError(
        f"{op.name}: a tensor of a captured step is used outside the capture",
        named,
        "return it from the step, or call .detach() and keep the returned value",
    )


def refusal(op: Op, operands: Sequence[Tensor], error: Exception) -> Exception:
    """What an op's eager rule has refused, in the words of its type rule if that refuses, too."""
    if isinstance(error, MemoryError):
        return out_of_memory(error)
    try:
        if not op.needs_elements:  # else there is no type before the elements are known
            op.result_type(*[type_of(t) for t in operands])
    except Exception as refused:
        error = refused
    trim(error)
    return error


def _is_without_values(t: Tensor) -> bool:
    """Whether a tensor has neither an array nor a value of a capture: it is a batch's."""
    storage = t._storage
    if t._array is not None or t._value is not None:
        return False
    return storage is None or (storage.array is None and storage.value is None)
