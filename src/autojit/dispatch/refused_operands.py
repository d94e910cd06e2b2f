"""What is said when an op cannot be applied to its operands."""

from __future__ import annotations

from collections.abc import Sequence

from autojit.core.errors import TraceError, out_of_memory, tensor_expected
from autojit.core.tracebacks import trim
from autojit.core.types import TensorType
from autojit.ir.op import Op
from autojit.tensor.tensor import Tensor, type_of


def types_of(operands: Sequence[Tensor]) -> list[TensorType]:
    """The operands' types; whatever is not a tensor is refused."""
    for t in operands:
        if not isinstance(t, Tensor):
            raise tensor_expected(t)
    return [type_of(t) for t in operands]


def refused_outside(op: Op, operands: Sequence[Tensor]) -> TraceError:
    """A tensor of a captured step is an operand outside of the capture."""
    return TraceError(
        f"{op.name}: a tensor of a captured step is used outside the capture",
        {f"operand {i}": t for i, t in enumerate(operands)},
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
