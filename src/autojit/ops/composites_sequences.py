"""Recurrences over whole sequences as one function each: a layer of a recurrent network in one direction.

The input's part of the gates of all rounds is one matrix product; the rest is a `Scan`. As one op of
``fused_arrays.py`` a layer is one node of the history and, as soon as there is one, one kernel for every length and
batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autojit.core.types import TensorType
from autojit.ir.builder import GraphBuilder
from autojit.ir.op import O, bind
from autojit.ops.composites_ctc import ctc_losses
from autojit.ops.composites_recurrent import gru_gates, lstm_gates
from autojit.ops.elementwise_arithmetic import add, where
from autojit.ops.elementwise_selection import relu
from autojit.ops.elementwise_trigonometric import tanh
from autojit.ops.graph_op import as_tuple
from autojit.ops.matmul import matmul
from autojit.ops.scan_steps import Scan
from autojit.ops.shape import permute

__all__ = ["SEQUENCES", "open_extents"]

_OPEN: dict[str, tuple[str, ...]] = {
    "ctc_losses": ("TN.", "NL", "N", "N"),
    "gru_sequence": ("TN.", "N."),
    "lstm_sequence": ("TN.", "N.", "N."),
    "rnn_sequence": ("TN.", "N."),
}


def open_extents(composite: str, options: tuple[Any, ...], count: int) -> list[str]:
    """Of each of ``count`` operands the axes whose extents a kernel leaves open, by letters; equal letters are equal
    extents. Those marked by a point, or by nothing, are what the kernel is made for: they are a network's.
    """
    letters = _OPEN[composite]
    is_masked = composite != "ctc_losses" and options[0]
    return [*letters, *[""] * (count - len(letters) - is_masked), *["TN."] * is_masked]


def lstm_sequence(x: O, h: O, c: O, *rest: Any) -> tuple[O, ...]:
    """(the outputs of all rounds, the last h and c) of an LSTM's layer.

    Shapes: ``x`` f[time, n, size], the states f[n, hidden] -> f[time, n, hidden] and the states.

    ``rest``: ``weight_ih``, ``weight_hh``; both biases, the projection of h and the rounds b[time, n, 1] that belong
    to a sequence, each where it is there; then options: whether there are such a mask, biases, a projection, and
    whether time runs backwards. Where a round does not belong to a sequence, the states stay and the output is 0.
    """
    weight_ih, weight_hh, *others, is_masked, has_bias, is_projected, reverse = rest
    gates = _input_part(x, weight_ih, add(others[0], others[1]) if has_bias else None)
    projection = others[2 * has_bias : 2 * has_bias + is_projected]

    def step(gates_x: O, states: Sequence[O], constants: Sequence[O]) -> tuple[O, ...]:
        new_h, new_c = lstm_gates(gates_x, _turned(states[0], constants[0]), states[1])
        return (_turned(new_h, constants[1]) if is_projected else new_h), new_c

    return _over_time(step, (h, c), (gates, *others[len(others) - is_masked :]), (weight_hh, *projection), reverse)


def gru_sequence(x: O, h: O, *rest: Any) -> tuple[O, ...]:
    """(the outputs of all rounds, the last h) of a GRU's layer; operands as of `lstm_sequence`, without a
    projection.
    """
    weight_ih, weight_hh, *others, is_masked, has_bias, reverse = rest
    gates = _input_part(x, weight_ih, others[0] if has_bias else None)

    def step(gates_x: O, states: Sequence[O], constants: Sequence[O]) -> tuple[O, ...]:
        gates_h = _turned(states[0], constants[0])
        return (gru_gates(gates_x, add(gates_h, constants[1]) if has_bias else gates_h, states[0]),)

    constants = (weight_hh, *others[1 : 1 + has_bias])
    return _over_time(step, (h,), (gates, *others[len(others) - is_masked :]), constants, reverse)


def rnn_sequence(x: O, h: O, *rest: Any) -> tuple[O, ...]:
    """The same of an Elman network; the last option is whether its function is tanh, else relu."""
    weight_ih, weight_hh, *others, is_masked, has_bias, reverse, is_tanh = rest
    gates = _input_part(x, weight_ih, add(others[0], others[1]) if has_bias else None)

    def step(gates_x: O, states: Sequence[O], constants: Sequence[O]) -> tuple[O, ...]:
        total = add(gates_x, _turned(states[0], constants[0]))
        return (tanh(total) if is_tanh else relu(total),)

    return _over_time(step, (h,), (gates, *others[len(others) - is_masked :]), (weight_hh,), reverse)


def _turned(x: O, weight: O) -> O:
    found: O = matmul(x, permute(weight, (1, 0)))
    return found


def _input_part(x: O, weight: O, bias: O | None) -> O:
    """The gates' part of the inputs of all rounds: one product."""
    product = _turned(x, weight)
    return product if bias is None else add(product, bias)


def _over_time(
    step: Callable[[Any, Sequence[Any], Sequence[Any]], tuple[Any, ...]],  # of a slice, states and constants
    states: Sequence[O],
    stacks: Sequence[O],
    constants: Sequence[O],
    reverse: bool,
) -> tuple[O, ...]:
    """The outputs of all rounds and the last states; a second stack says which rounds belong to a sequence."""
    first, rest = len(states), len(states) + len(stacks)
    slices: list[TensorType] = [x.spec.drop((0,)) for x in stacks]
    builder = GraphBuilder()
    given = [
        builder.tracer(builder.input(t)) for t in (*[x.spec for x in states], *slices, *[x.spec for x in constants])
    ]
    before, live = given[:first], given[first + 1 : rest]
    new = step(given[first], before, given[rest:])
    output = new[0]
    if live:
        new = tuple(where(live[0], after, kept) for after, kept in zip(new, before, strict=True))
        output = where(live[0], output, 0)
    body = builder.finish([t.value for t in (*new, output)])
    op = Scan(body, first, len(stacks), stacks[0].spec.shape[0], reverse)
    *finals, outputs = as_tuple(bind(op, *states, *stacks, *constants), op.n_outputs)
    return (outputs, *finals)


SEQUENCES: dict[str, Callable[..., Any]] = {
    function.__name__: function for function in (ctc_losses, gru_sequence, lstm_sequence, rnn_sequence)
}
"""What eager mode computes by NumPy until a kernel was compiled beside."""
