"""One step of a recurrent network, as functions (shared with the layers in rnn.py) and as cell modules.

Gate order and parameter names are torch's: ``weight_ih`` f[gates * hidden, input], ``weight_hh``, ``bias_ih``,
``bias_hh``.
"""

from __future__ import annotations

import math
from typing import Any

import autojit as aj
from autojit.core.dtypes import DType
from autojit.core.errors import ArgumentError, ShapeError, UsageError
from autojit.dispatch.kernels import LARGE, in_one_step, is_one_step
from autojit.nn import functional as F
from autojit.nn import init
from autojit.nn.declared_layer import DeclaredLayer
from autojit.nn.parameter import Parameter
from autojit.tensor import Tensor
from autojit.tensor.state import state as thread

__all__ = ["GRUCell", "LSTMCell", "RNNCell", "RNNCellBase"]


def rnn_step(gates_x: Tensor, h: Tensor, weight_hh: Tensor, bias_hh: Tensor | None, nonlinearity: str) -> Tensor:
    """h' = act(gates_x + h W^T + b), ``gates_x`` being the input's part with its bias."""
    operands = _of_one_step(gates_x, h, weight_hh, bias_hh)
    if operands:
        is_tanh = nonlinearity == "tanh"
        node = "TanhBackward0" if is_tanh else "ReluBackward0"
        return in_one_step("rnn_cell", (is_tanh,), gates_x, h, *operands, node=node)
    total = gates_x + F.linear(h, weight_hh, bias_hh)
    return total.tanh() if nonlinearity == "tanh" else total.relu()


def lstm_step(
    gates_x: Tensor, h: Tensor, c: Tensor, weight_hh: Tensor, bias_hh: Tensor | None, weight_hr: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """One step with gates input, forget, cell, output; ``weight_hr`` projects the hidden state."""
    operands = _of_one_step(gates_x, h, weight_hh, bias_hh) if is_one_step(gates_x, c) else None
    if operands:
        h, c = in_one_step("lstm_cell", (), gates_x, h, c, *operands, node="MulBackward0", results=2)
        return (h if weight_hr is None else F.linear(h, weight_hr)), c
    gates_h = F.linear(h, weight_hh, bias_hh)
    if is_one_step(gates_x, gates_h, c):
        h, c = in_one_step("lstm_gates", (), gates_x, gates_h, c, node="MulBackward0", results=2)
    else:
        i, f, g, o = (gates_x + gates_h).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
    return (h if weight_hr is None else F.linear(h, weight_hr)), c


def gru_step(gates_x: Tensor, h: Tensor, weight_hh: Tensor, bias_hh: Tensor | None) -> Tensor:
    """One step with gates reset, update, new."""
    operands = _of_one_step(gates_x, h, weight_hh, bias_hh)
    if operands:
        return in_one_step("gru_cell", (), gates_x, h, *operands, node="AddBackward0")
    gates_h = F.linear(h, weight_hh, bias_hh)
    if is_one_step(gates_x, gates_h, h):
        return in_one_step("gru_gates", (), gates_x, gates_h, h, node="AddBackward0")
    r_x, z_x, n_x = gates_x.chunk(3, -1)
    r_h, z_h, n_h = gates_h.chunk(3, -1)
    r = (r_x + r_h).sigmoid()
    z = (z_x + z_h).sigmoid()
    n = (n_x + r * n_h).tanh()
    return n + z * (h - n)


def _of_one_step(gates_x: Tensor, h: Tensor, weight_hh: Tensor, bias_hh: Tensor | None) -> tuple[Tensor, ...] | None:
    """The hidden state's weights if eager mode computes the cell with their product as one op, else None.

    Its derivative computes the product again: only a small one costs less than the nodes that are saved. Gates of
    large arrays are one kernel, into which a product of any extents does not go.
    """
    operands = (weight_hh,) if bias_hh is None else (weight_hh, bias_hh)
    are_plain = type(weight_hh) in PLAIN and (bias_hh is None or type(bias_hh) in PLAIN)
    if thread.autocast is not None or not are_plain:
        return None
    if not is_one_step(gates_x, h, parameters=operands):
        return None
    rows, width = weight_hh.shape if weight_hh.ndim == 2 else (0, 0)
    fits = gates_x.ndim == h.ndim == 2 and h.shape[1] == width and gates_x.shape == (h.shape[0], rows)
    fits = fits and (bias_hh is None or bias_hh.shape == (rows,))
    count = h.shape[0] * rows
    return operands if fits and count < LARGE and count * width <= _SMALL_PRODUCT else None


PLAIN = {Tensor, Parameter}
_SMALL_PRODUCT = 1 << 19  # multiplications, 20 us of one core: what the nodes of a product, a sum and gates cost


class Recurrent(DeclaredLayer):
    """What layers and cells share: how their parameters are drawn."""

    hidden_size: int

    def reset_parameters(self) -> None:
        """Uniform in +-1/sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)


class RNNCellBase(Recurrent):
    """Parameters and checks of the three cells; ``num_chunks`` gates of ``hidden_size`` rows each."""

    weight_ih: Parameter
    weight_hh: Parameter
    bias_ih: Parameter | None
    bias_hh: Parameter | None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = num_chunks * hidden_size
        self._add_parameters(device, dtype, weight_ih=(rows, input_size), weight_hh=(rows, hidden_size))
        self._add_parameters(device, dtype, bias_ih=None, bias_hh=None)
        if bias:
            self._add_parameters(device, dtype, bias_ih=(rows,), bias_hh=(rows,))
        self.reset_parameters()

    def _check(self, input: Tensor, *states: Tensor | None) -> None:
        for number, tensor in enumerate((input, *states)):
            if tensor is None:
                continue
            what, size = ("hidden", self.hidden_size) if number else ("input", self.input_size)
            if tensor.ndim not in (1, 2):
                given = f"hx[{number - 1}]" if number and len(states) > 1 else what
                raise ArgumentError(f"{self._get_name()}: Expected {given} to be 1D or 2D, got {tensor.ndim}D instead")
            named = f"hidden{number - 1}" if number else "input"
            if tensor.shape[-1] != size:
                comma = "," if number else ""  # torch's words
                raise ShapeError(f"{named} has inconsistent {what}_size: got {tensor.shape[-1]}{comma} expected {size}")
            if tensor.shape[:-1] != input.shape[:-1]:
                given, other = (f"{s.shape[0]}" if s.ndim == 2 else "none" for s in (input, tensor))
                raise ShapeError(f"Input batch size {given} doesn't match {named} batch size {other}")

    def _zeros(self, input: Tensor) -> Tensor:
        return aj.zeros((*input.shape[:-1], self.hidden_size), dtype=input.dtype, device=input.device)

    def _gates_x(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight_ih, self.bias_ih)

    def extra_repr(self) -> str:
        return ", ".join([f"{self.input_size}, {self.hidden_size}", *self._unlike(bias=True)])


class RNNCell(RNNCellBase):
    """h' = tanh (or relu) of W_ih x + b_ih + W_hh h + b_hh. Shapes: ``f[n, input], f[n, hidden]``, or unbatched."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        if self.nonlinearity not in ("tanh", "relu"):
            raise UsageError(f"Unknown nonlinearity: {self.nonlinearity}")
        self._check(input, hx)
        h = self._zeros(input) if hx is None else hx
        return rnn_step(self._gates_x(input), h, self.weight_hh, self.bias_hh, self.nonlinearity)

    def extra_repr(self) -> str:
        return ", ".join([super().extra_repr(), *self._unlike(nonlinearity="tanh")])


class LSTMCell(RNNCellBase):
    """One LSTM step: ``(h', c')`` of an input and ``(h, c)``."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: DType | None = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        h, c = (self._zeros(input),) * 2 if hx is None else hx
        self._check(input, h, c)
        return lstm_step(self._gates_x(input), h, c, self.weight_hh, self.bias_hh)


class GRUCell(RNNCellBase):
    """One GRU step: ``h'`` of an input and ``h``."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: DType | None = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        self._check(input, hx)
        h = self._zeros(input) if hx is None else hx
        return gru_step(self._gates_x(input), h, self.weight_hh, self.bias_hh)
