"""The kernel that sets a graph's condition is assembled for every architecture, alone and in a launch with others."""

from __future__ import annotations

import pytest

from autojit.codegen.cuda.decision import SET_CONDITION, decision_kernel
from autojit.codegen.cuda.entry_point import entry_text
from autojit.runtime.gpu.driver import SET_CONDITION as NAME
from tests.ptxas import ARCHITECTURES, assemble, needs_ptxas, ptx_of


@needs_ptxas
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_decisions_are_assembled(architecture: str) -> None:
    ways = [(is_negated, heeds) for is_negated in (False, True) for heeds in (False, True)]
    ptx = ptx_of([entry_text(decision_kernel(*way), [1], {}) for way in ways], architecture)
    assert all(text.count("call.uni") == 1 and f".extern .func {NAME}" in " ".join(text.split()) for text in ptx)
    assert all(found.spilled_bytes == 0 and found.registers <= 32 for found in assemble(ptx, architecture))


def test_one_name_is_meant() -> None:
    """By the code generator, which knows no driver, and by the drivers."""
    assert SET_CONDITION.symbol == NAME
