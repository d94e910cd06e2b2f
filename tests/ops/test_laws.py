"""Every registered op obeys every law, on its own samples, in every dtype it takes."""

from __future__ import annotations

import pytest

import autojit.ops  # noqa: F401
from autojit.core.dtypes import ALL_DTYPES
from autojit.ir import Op
from tests.ops.laws import LAWS, Law

OPS = [op for op in Op.registry.load().values() if op.__module__.startswith("autojit.ops.") and hasattr(op, "samples")]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("op_class", OPS, ids=lambda op: op.name)
def test_op_obeys(op_class: type[Op], law: Law) -> None:
    for dtype in ALL_DTYPES:
        for op, inputs in op_class.samples(dtype):  # type: ignore[attr-defined]
            try:
                law(op, inputs)
            except Exception as error:
                error.add_note(f"{op} on {[f'{x.dtype}{x.shape}' for x in inputs]}")
                raise


def test_every_op_has_samples() -> None:
    lacking = [name for name, op in Op.registry.items() if op.__module__.startswith("autojit.ops.") and op not in OPS]
    assert lacking == []
