"""Gradients that a step gives to its arguments: leaves without one, which have a fresh tensor as ``.grad`` afterwards.

Native code computes such a gradient as one more output of the call; the leaf gets it before Ctrl-C can come between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autojit.ir.graph import Value
    from autojit.jit.step import CompiledStep
    from autojit.tensor.memory_orders import Order


def given_gradients(step: CompiledStep) -> list[tuple[int, int]]:
    """(argument, number of the output) of the gradients, for a step whose effects native code can leave."""
    found: list[tuple[int, int]] = []
    free = len(step.results.values)
    for write in step.effects.writes:
        found.append((write.index, free if write.result is None else write.result))
        free += write.value is not None
    return found


def outputs_of(step: CompiledStep) -> list[tuple[Value, Order]]:
    """The tensors that a native call makes, results first, and how each is laid out in memory; last what state was."""
    found = list(zip(step.results.values, step.results.orders, strict=True))
    return [*found, *((value, None) for value in step.effects.free), *((entry.input, None) for entry in step.kept)]
