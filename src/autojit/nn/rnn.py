"""Recurrent layers: several layers, both directions, a scan over time.

The input's part of the gates of all steps is one matrix product before the loop. Under ``@aj.jit`` the scan is one op
whose body is compiled once, so that one compiled step serves every length.
"""

from __future__ import annotations

from typing import Any

import autojit as aj
from autojit.core.dtypes import DType
from autojit.core.errors import ArgumentError, ShapeError, UsageError
from autojit.core.user_warnings import warn
from autojit.dispatch.kernels import in_one_step, is_one_step
from autojit.nn import functional as F
from autojit.nn.parameter import Parameter
from autojit.nn.rnn_cells import PLAIN, Recurrent, gru_step, lstm_step, rnn_step
from autojit.nn.utils.rnn import PackedSequence, pack_like, unpacked
from autojit.tensor import Tensor
from autojit.tensor.state import state as thread

__all__ = ["GRU", "LSTM", "RNN", "RNNBase"]

_GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "LSTM": 4, "GRU": 3}
_State = tuple[Tensor, ...]  # (h,) or (h, c), each f[n, size]
_Weights = tuple[Any, ...]  # weight_hh, bias_hh, weight_hr; None for those that it has not


class RNNBase(Recurrent):
    """Parameters and the walk over layers, directions and time of RNN, LSTM and GRU.

    Shapes: input ``f[time, n, input]`` (``f[n, time, input]`` with ``batch_first``; without the batch axis also), or a
    ``PackedSequence``; output ``f[time, n, directions * hidden]``; states ``f[layers * directions, n, hidden]``.
    """

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        _check_options(mode, hidden_size, num_layers, dropout, proj_size)
        _check_types(input_size, bias, batch_first)
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        for layer in range(num_layers):
            for suffix in self._suffixes(layer):
                shapes = self._shapes(layer)
                self._add_parameters(device, dtype, **{f"{name}_{suffix}": shape for name, shape in shapes.items()})
        self.reset_parameters()

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def _output_size(self) -> int:
        return self.proj_size or self.hidden_size

    def _suffixes(self, layer: int) -> tuple[str, ...]:
        return (f"l{layer}", f"l{layer}_reverse") if self.bidirectional else (f"l{layer}",)

    def _shapes(self, layer: int) -> dict[str, tuple[int, ...]]:
        """Those of a layer's parameters in one direction."""
        rows = _GATES[self.mode] * self.hidden_size
        columns = self.input_size if layer == 0 else self._output_size * self._directions
        shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, columns), "weight_hh": (rows, self._output_size)}
        if self.bias:
            shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
        if self.proj_size:
            shapes["weight_hr"] = (self.proj_size, self.hidden_size)
        return shapes

    def flatten_parameters(self) -> None:
        """Nothing to do: parameters need no special layout. Kept for programs that call it."""

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of each layer and direction."""
        return [
            [p for name, p in self._parameters.items() if p is not None and name.endswith(f"_{suffix}")]
            for layer in range(self.num_layers)
            for suffix in self._suffixes(layer)
        ]

    @property
    def _flat_weights_names(self) -> list[str]:
        """The names of all parameters, in torch's order."""
        suffixes = [suffix for layer in range(self.num_layers) for suffix in self._suffixes(layer)]
        return [f"{name}_{suffix}" for suffix in suffixes for name in self._shapes(0)]

    @property
    def _flat_weights(self) -> list[Any]:
        """What stands under these names now, which pruning and its kin put there."""
        return [getattr(self, name, None) for name in self._flat_weights_names]

    def _step(self, gates_x: Tensor, state: _State, weights: _Weights) -> _State:
        """The next state from the input's part of the gates; ``weights`` are those of the hidden state."""
        raise NotImplementedError

    def _as_one_op(
        self, x: Tensor, state: _State, parameters: dict[str, Any], live: Tensor | None, *, reverse: bool
    ) -> tuple[Tensor, ...] | None:
        """The output and the last states where eager mode computes a layer's direction as one op, else None."""
        shapes = self._shapes(0)
        weights = [parameters[name] for name in shapes]
        if thread.autocast is not None or thread.trace is not None or not is_one_step(x, *state, parameters=weights):
            return None
        shapes["weight_ih"] = (shapes["weight_ih"][0], x.shape[-1])
        if [w.shape for w in weights] != [*shapes.values()] or not {type(w) for w in weights} <= PLAIN:
            return None
        options: tuple[bool, ...] = (live is not None, self.bias, reverse)
        name = f"{self.mode.lower()}_sequence"
        if self.mode == "LSTM":
            options = (live is not None, self.bias, self.proj_size > 0, reverse)
        elif self.mode != "GRU":
            name, options = "rnn_sequence", (*options, self.mode == "RNN_TANH")
        masks = () if live is None else (live,)
        return in_one_step(name, options, x, *state, *weights, *masks, node="StackBackward0", results=1 + len(state))

    def _run(self, x: Tensor, state: _State, suffix: str, live: Tensor | None) -> tuple[Tensor, _State]:
        """One layer in one direction over ``f[time, n, size]``; where ``live`` b[time, n, 1] is false, rows keep their
        state and give zeros.
        """
        names = ("weight_ih", "bias_ih", "weight_hh", "bias_hh", "weight_hr")
        parameters: dict[str, Any] = {name: getattr(self, f"{name}_{suffix}", None) for name in names}
        reverse = suffix.endswith("_reverse")
        found = self._as_one_op(x, state, parameters, live, reverse=reverse)
        if found is not None:
            return found[0], found[1:]
        given_weights = tuple(parameters.values())
        gates, weights = F.linear(x, *given_weights[:2]), given_weights[2:]
        if thread.autocast is not None and self.mode != "GRU":  # in a GRU the state's dtype wins
            state = tuple(part.to(gates.dtype) for part in state)

        def step(state: _State, given: tuple[Tensor, ...]) -> tuple[_State, Tensor]:
            new = self._step(given[0], state, weights)
            if live is None:
                return new, new[0]
            new = tuple(aj.where(given[1], after, before) for after, before in zip(new, state, strict=True))
            return new, aj.where(given[1], new[0], 0.0)

        given = (gates,) if live is None else (gates, live)
        final, output = aj.scan(step, state, given, reverse=reverse)
        return output, final

    def _run_layers(self, x: Tensor, states: _State, live: Tensor | None) -> tuple[Tensor, _State]:
        if x.shape[0] == 0:
            raise ShapeError("Expected sequence length to be larger than 0 in RNN", {"input": x})
        finals: list[_State] = []
        for layer in range(self.num_layers):
            outputs = []
            for suffix in self._suffixes(layer):
                state = tuple(part[len(finals)] for part in states)
                output, final = self._run(x, state, suffix, live)
                outputs.append(output)
                finals.append(final)
            x = outputs[0] if len(outputs) == 1 else aj.cat(outputs, -1)
            if self.dropout and layer < self.num_layers - 1:
                x = F.dropout(x, self.dropout, self.training)
        return x, tuple(aj.stack(list(parts)) for parts in zip(*finals, strict=True))

    def _state_sizes(self) -> tuple[int, ...]:
        return (self._output_size,)

    def _first_states(self, x: Tensor, hx: _State | None) -> _State:
        shapes = [(self.num_layers * self._directions, x.shape[1], size) for size in self._state_sizes()]
        if hx is None:
            return tuple(aj.zeros(shape, dtype=x.dtype, device=x.device) for shape in shapes)
        for place, (part, shape) in enumerate(zip(hx, shapes, strict=True)):
            if tuple(part.shape) != shape:
                which = f"hidden[{place}]" if len(shapes) > 1 else "hidden"
                raise ShapeError(f"Expected {which} size {shape}, got {list(part.shape)}")
        return hx

    def _forward(self, input: Any, hx: _State | None) -> tuple[Any, _State]:
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx)
        weight = next(iter(self._parameters.values()))
        if weight is not None and input.dtype != weight.dtype and thread.autocast is None:
            raise ArgumentError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({weight.dtype}).",
                {"input": input},
                f"convert the input: input.to({weight.dtype}), or the model: model.to({input.dtype})",
            )
        if input.ndim not in (2, 3):
            raise ArgumentError(f"{self._get_name()}: Expected input to be 2D or 3D, got {input.ndim}D tensor instead")
        if input.shape[-1] != self.input_size:
            raise ShapeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {input.shape[-1]}"
            )
        if input.ndim == 2:
            states = None if hx is None else tuple(part.unsqueeze(1) for part in hx)
            x = input.unsqueeze(1)
            output, finals = self._run_layers(x, self._first_states(x, states), None)
            return output.squeeze(1), tuple(part.squeeze(1) for part in finals)
        x = input.transpose(0, 1) if self.batch_first else input
        output, finals = self._run_layers(x, self._first_states(x, hx), None)
        return (output.transpose(0, 1) if self.batch_first else output), finals

    def _forward_packed(self, packed: PackedSequence, hx: _State | None) -> tuple[PackedSequence, _State]:
        padded, live = unpacked(packed)
        if hx is not None and packed.sorted_indices is not None:
            hx = tuple(part.index_select(1, packed.sorted_indices) for part in hx)
        output, finals = self._run_layers(padded, self._first_states(padded, hx), live.unsqueeze(2))
        if packed.unsorted_indices is not None:
            finals = tuple(part.index_select(1, packed.unsorted_indices) for part in finals)
        return pack_like(output, packed), finals

    def extra_repr(self) -> str:
        others = self._unlike(proj_size=0, num_layers=1, bias=True, batch_first=False, dropout=0.0, bidirectional=False)
        return ", ".join([f"{self.input_size}, {self.hidden_size}", *others])


def _check_types(input_size: Any, bias: Any, batch_first: Any) -> None:
    for name, value, kind in (
        ("bias", bias, bool),
        ("batch_first", batch_first, bool),
        ("input_size", input_size, int),
    ):
        if not isinstance(value, kind):
            raise TypeError(f"{name} should be of type {kind.__name__}, got: {type(value).__name__}")
    if input_size <= 0:
        raise ArgumentError("input_size must be greater than zero")


def _refuse_projection(name: str, given: dict[str, Any]) -> None:
    """ValueError for ``proj_size``, which LSTMs alone have; TypeError for other keywords."""
    if "proj_size" in given:
        raise ArgumentError("proj_size argument is only supported for LSTM, not RNN or GRU")
    for keyword in given:
        raise TypeError(f"{name}.__init__() got an unexpected keyword argument '{keyword}'")


def _check_options(mode: str, hidden_size: int, num_layers: int, dropout: Any, proj_size: int) -> None:
    if isinstance(dropout, bool) or not isinstance(dropout, int | float) or not 0 <= dropout <= 1:
        raise ArgumentError(
            "dropout should be a number in range [0, 1] representing the probability of an element being zeroed"
        )
    if dropout > 0 and num_layers == 1:
        warn(
            "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects num_layers "
            f"greater than 1, but got dropout={dropout} and num_layers={num_layers}",
        )
    if not isinstance(hidden_size, int):
        raise TypeError(f"hidden_size should be of type int, got: {type(hidden_size).__name__}")
    for name, value in (("hidden_size", hidden_size), ("num_layers", num_layers)):
        if value <= 0:
            raise ArgumentError(f"{name} must be greater than zero")
    if proj_size < 0:
        raise ArgumentError("proj_size should be a positive integer or zero to disable projections")
    if proj_size and mode != "LSTM":
        raise ArgumentError("proj_size argument is only supported for LSTM, not RNN or GRU")
    if proj_size >= hidden_size:
        raise ArgumentError("proj_size has to be smaller than hidden_size")


class _OneState(RNNBase):
    """Networks whose state is one tensor."""

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        output, (h,) = self._forward(input, None if hx is None else (hx,))
        return output, h


class RNN(_OneState):
    """Elman network: h' = tanh (or relu) of W_ih x + b_ih + W_hh h + b_hh."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: DType | None = None,
        **refused: Any,
    ) -> None:
        _refuse_projection(type(self).__name__, refused)
        if nonlinearity not in ("tanh", "relu"):
            raise ArgumentError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        self.__dict__["nonlinearity"] = nonlinearity
        super().__init__(
            f"RNN_{nonlinearity.upper()}", input_size, hidden_size, num_layers, bias, batch_first, dropout,
            bidirectional, 0, device, dtype,
        )  # fmt: skip

    def _step(self, gates_x: Tensor, state: _State, weights: _Weights) -> _State:
        return (rnn_step(gates_x, state[0], weights[0], weights[1], self.nonlinearity),)


class GRU(_OneState):
    """Gated recurrent unit with torch's gates (the reset gate acts after the hidden product)."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: DType | None = None,
        **refused: Any,
    ) -> None:
        _refuse_projection(type(self).__name__, refused)
        super().__init__(
            "GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype
        )

    def _step(self, gates_x: Tensor, state: _State, weights: _Weights) -> _State:
        return (gru_step(gates_x, state[0], weights[0], weights[1]),)


class LSTM(RNNBase):
    """Long short-term memory, with an optional projection of the hidden state to ``proj_size``."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(
            "LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, device,
            dtype,
        )  # fmt: skip

    def _state_sizes(self) -> tuple[int, ...]:
        return (self._output_size, self.hidden_size)

    def _step(self, gates_x: Tensor, state: _State, weights: _Weights) -> _State:
        return lstm_step(gates_x, state[0], state[1], *weights)

    def forward(self, input: Any, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Any, tuple[Tensor, Tensor]]:
        if hx is not None and len(hx) != 2:
            raise UsageError("lstm expects two hidden states", {"given": len(hx)}, "pass (h, c)")
        output, (h, c) = self._forward(input, hx)
        return output, (h, c)
