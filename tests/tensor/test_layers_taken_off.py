"""Where ops go is what the layers say, whatever comes between two lines: a signal, or a collection."""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit.compat.v0_3 import Variable
from autojit.dispatch.dispatch import apply
from autojit.tensor import state as switches
from autojit.tensor.state import Layer, State, below, set_layers, state, with_layers


class Through(Layer):
    what = "a layer that does nothing"

    def apply(self, op: Any, operands: Any) -> Any:
        with below(self):
            return apply(op, *operands)

    def carry(self, source: Any, made: Any, with_history: bool) -> None: ...

    def replace(self, x: Any, new: Any, method: str, old: Any, mark: int) -> None: ...


def is_consistent() -> bool:
    return state.divert == (state.layers[-1].apply if state.layers else State.elsewhere)


def at_instruction(number: int, function: Callable[[], object], act: Callable[[], object]) -> bool:
    """Call ``function``, and ``act`` before one of the instructions of ``state.py`` that it runs; whether that came."""
    left = [number]

    def trace(frame: types.FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename != switches.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left[0] -= 1
            if left[0] == 0:
                act()
        return trace

    before = sys.gettrace()
    sys._getframe().f_trace_opcodes = True  # 3.12 tells of instructions only if a frame asked for it before `settrace`
    sys.settrace(trace)
    try:
        function()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return left[0] <= 0


def nested() -> None:
    layer = Through()
    with with_layers((layer,)), below(layer):
        set_layers(())


def interrupted() -> None:
    raise KeyboardInterrupt


def test_an_interrupt_at_any_instruction_leaves_layers_and_way_together() -> None:
    number = 1
    while at_instruction(number, nested, interrupted):
        assert is_consistent(), number
        set_layers(())
        number += 1
    assert number > 50


@pytest.mark.parametrize("operate", [lambda x: x * 2, lambda x: x.sum(), lambda x: x.add_(0)])
def test_the_last_variable_may_go_at_any_instruction(operate: Callable[[aj.Tensor], aj.Tensor]) -> None:
    """As a collection may take it then; the next op finds its way, and the layer is gone after one more."""
    number, x = 1, aj.ones(2)
    held = [Variable(aj.ones(2))]
    while at_instruction(number, lambda: operate(x), held.clear):
        assert is_consistent(), number
        assert x.tolist() == [1.0, 1.0]
        x * 1
        assert not state.layers, number
        held.append(Variable(aj.ones(2)))
        number += 1
    assert number > 20
    held.clear()
    gc.collect()
    assert not state.layers
