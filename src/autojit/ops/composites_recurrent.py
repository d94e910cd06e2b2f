"""What one round of a recurrent network does: its gates, with or without the product by which the state enters them.

Eager mode goes through as many of them as a sequence is long; as one op each, a round is one node of the history.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autojit.ir.op import O
from autojit.ops.elementwise_arithmetic import add, mul, sub
from autojit.ops.elementwise_exponential import sigmoid
from autojit.ops.elementwise_selection import relu
from autojit.ops.elementwise_trigonometric import tanh
from autojit.ops.matmul import matmul
from autojit.ops.shape import permute, slice_axis

__all__ = ["gru_cell", "gru_gates", "lstm_cell", "lstm_gates", "rnn_cell"]


def _pieces(x: O, count: int) -> Sequence[O]:
    """Equal pieces of the last axis."""
    width = x.spec.shape[-1] // count
    return [slice_axis(x, -1, k * width, (k + 1) * width) for k in range(count)]


def lstm_gates(gates_x: O, gates_h: O, c: O) -> tuple[O, O]:
    """(h', c') of the gates input, forget, cell, output, f[..., 4 n], and the cells' state ``c``, f[..., n]."""
    i, f, g, o = _pieces(add(gates_x, gates_h), 4)
    new: O = add(mul(sigmoid(f), c), mul(sigmoid(i), tanh(g)))
    return mul(sigmoid(o), tanh(new)), new


def lstm_cell(gates_x: O, h: O, c: O, weight_hh: O, *bias_hh: O) -> tuple[O, O]:
    """`lstm_gates` with the hidden state's part: ``weight_hh`` f[4 n, size] times ``h`` f[batch, size], and a bias."""
    return lstm_gates(gates_x, _hidden_part(h, weight_hh, bias_hh), c)


def gru_cell(gates_x: O, h: O, weight_hh: O, *bias_hh: O) -> O:
    """`gru_gates` in the same way."""
    return gru_gates(gates_x, _hidden_part(h, weight_hh, bias_hh), h)


def rnn_cell(gates_x: O, h: O, weight_hh: O, *rest: Any) -> O:
    """h' of an Elman network in the same way; the last option is whether the function is tanh, else relu."""
    *bias_hh, is_tanh = rest
    total = add(gates_x, _hidden_part(h, weight_hh, bias_hh))
    new: O = tanh(total) if is_tanh else relu(total)
    return new


def _hidden_part(h: O, weight_hh: O, bias_hh: Sequence[O]) -> O:
    product: O = matmul(h, permute(weight_hh, (1, 0)))
    return add(product, bias_hh[0]) if bias_hh else product


def gru_gates(gates_x: O, gates_h: O, h: O) -> O:
    """h' of the gates reset, update, new, f[..., 3 n], and the state ``h``, f[..., n]."""
    (r_x, z_x, n_x), (r_h, z_h, n_h) = _pieces(gates_x, 3), _pieces(gates_h, 3)
    r, z = sigmoid(add(r_x, r_h)), sigmoid(add(z_x, z_h))
    n: O = tanh(add(n_x, mul(r, n_h)))
    return add(n, mul(z, sub(h, n)))
