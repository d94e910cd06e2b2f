"""Every lowering speaks the emitter's language and yields a scalar of the type rule's dtype."""

from __future__ import annotations

import pytest

import autojit.ops  # noqa: F401
from autojit.codegen.emitter import ScalarEmitter
from autojit.codegen.scalar import Scalar
from autojit.core.dtypes import ALL_DTYPES, DType, bool_, dtype_of_numpy
from autojit.core.types import TensorType
from autojit.ir import Op
from autojit.ops.base import Elementwise
from autojit.ops.formula import is_lowered
from autojit.ops.reductions import Fold

LOWERED = [
    op
    for op in Op.registry.values()
    if issubclass(op, Elementwise)
    and is_lowered(op)
    and getattr(op, "opened_by", None) is None  # passes leave nothing of those
    and hasattr(op, "samples")  # not those that users' functions become
]
REAL = [dtype for dtype in ALL_DTYPES if not dtype.is_complex]


def signatures(op_class: type[Op], dtype: DType) -> set[tuple[Op, tuple[DType, ...]]]:
    """The distinct (op, operand dtypes) among the samples that stay in real numbers."""
    found = {
        (op, tuple(dtype_of_numpy(x.dtype) for x in inputs))
        for op, inputs in op_class.samples(dtype)  # type: ignore[attr-defined]
    }
    return {(op, dtypes) for op, dtypes in found if not any(d.is_complex for d in (*dtypes, result(op, dtypes)))}


def result(op: Op, dtypes: tuple[DType, ...]) -> DType:
    found: TensorType = op.result_type(*[TensorType((), d) for d in dtypes])
    return found.dtype


@pytest.mark.parametrize("op_class", LOWERED, ids=lambda op: op.name)
def test_elementwise_lowering_yields_the_result_dtype(op_class: type[Op]) -> None:
    for dtype in REAL:
        for op, dtypes in signatures(op_class, dtype):
            assert isinstance(op, Elementwise)
            operands = [Scalar(f"%x{k}", d) for k, d in enumerate(dtypes)]
            assert op.lower(ScalarEmitter(), *operands).dtype is result(op, dtypes), (op, dtypes)


@pytest.mark.parametrize(
    "op_class", [op for op in Op.registry.values() if issubclass(op, Fold)], ids=lambda op: op.name
)
def test_reduction_lowering_folds_in_the_accumulators_dtype(op_class: type[Fold]) -> None:
    for dtype in REAL:
        if dtype.kind not in op_class.accepts:
            continue
        op = op_class((0,))
        wide = op.accumulator(dtype)
        identity, combine = op.lower(ScalarEmitter(), wide)
        assert identity.dtype is wide
        assert combine(Scalar("%a", wide), Scalar("%b", wide)).dtype is (bool_ if op.is_pair else wide)
