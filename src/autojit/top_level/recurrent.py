"""Recurrent networks and cells under torch's top-level names: the layers of ``nn`` with the weights as arguments.

Networks are called with a tensor, ``lstm(input, hx, params, has_biases, num_layers, dropout, train, bidirectional,
batch_first)``, or with a packed sequence, ``lstm(data, batch_sizes, hx, params, has_biases, num_layers, dropout, train,
bidirectional)``. ``params`` lists, by layer and direction, the two matrices, the two biases if ``has_biases``, and the
projection of an LSTM that has one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autojit.core.errors import ShapeError
from autojit.core.wrapping import named
from autojit.dispatch.declared import declared
from autojit.functions.autocast import in_lower_precision_on_devices
from autojit.nn import functional as F
from autojit.nn.module import Module
from autojit.nn.rnn import GRU, LSTM, RNN, RNNBase
from autojit.nn.rnn_cells import gru_step, lstm_step, rnn_step
from autojit.nn.utils.rnn import PackedSequence
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of

_KINDS: dict[str, type[RNNBase]] = {"LSTM": LSTM, "GRU": GRU, "RNN_TANH": RNN, "RNN_RELU": RNN}


def _network(mode: str, params: Sequence[Tensor], options: tuple[Any, ...]) -> RNNBase:
    """A layer of ``nn`` that uses the given weights."""
    has_biases, num_layers, dropout, train, bidirectional, batch_first = options
    directions = 2 if bidirectional else 1
    count = len(params) // max(num_layers * directions, 1)
    names = ["weight_ih", "weight_hh", *(["bias_ih", "bias_hh"] if has_biases else [])]
    projected = mode == "LSTM" and count == len(names) + 1
    if count * num_layers * directions != len(params) or count != len(names) + projected:
        raise ShapeError(
            f"{mode.lower()}: {num_layers} layers with {directions} directions take "
            f"{num_layers * directions * len(names)} parameters, got {len(params)}"
        )
    kind, gates = _KINDS[mode], {"LSTM": 4, "GRU": 3}.get(mode, 1)
    net: RNNBase = kind.__new__(kind)
    Module.__init__(net)
    net.mode, net.num_layers, net.bias, net.dropout = mode, num_layers, bool(has_biases), float(dropout)
    net.bidirectional, net.batch_first, net.training = bool(bidirectional), bool(batch_first), bool(train)
    net.input_size, net.hidden_size = type_of(params[0]).shape[1], int(type_of(params[0]).shape[0]) // gates
    net.proj_size = type_of(params[1]).shape[1] if projected else 0
    if projected:
        names.append("weight_hr")
    if mode.startswith("RNN"):
        net.nonlinearity = "relu" if mode == "RNN_RELU" else "tanh"
    given = iter(params)
    for layer in range(num_layers):
        for suffix in net._suffixes(layer):
            for name in names:
                net._parameters[f"{name}_{suffix}"] = next(given)  # type: ignore[assignment]
    return net


def _run(mode: str, first: Tensor, second: Any, rest: tuple[Any, ...]) -> tuple[Any, Any]:
    if isinstance(second, Tensor) and not type_of(second).dtype.is_floating_point:
        hx, params, *options = rest
        sequence: Any = PackedSequence(first, second)
        output, final = _network(mode, params, (*options, False))(sequence, _state(mode, hx))
        return output.data, final
    params, *options = rest
    found: tuple[Any, ...] = _network(mode, params, tuple(options))(first, _state(mode, second))
    return found


def _state(mode: str, hx: Any) -> Any:
    return tuple(hx) if mode == "LSTM" else hx


@declared(method=False)
def lstm(input: Tensor, hx: Any, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The outputs, the last hidden and the last cell states of an LSTM, for a tensor or a packed sequence.

    Shapes: ``f[time, n, size], (f[layers, n, hidden], same) -> f[time, n, directions * hidden]`` and the states.

    Raises:
        RuntimeError: a number of parameters, or shapes, that do not fit.
    """
    output, (h, c) = _run("LSTM", input, hx, rest)
    return output, h, c


def _of_one_state(name: str, what: str) -> Callable[..., tuple[Tensor, Tensor]]:
    def network(input: Tensor, hx: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
        return _run(name.upper(), input, hx, rest)

    told = f"""The outputs and the last hidden states of a {what}, for a tensor or a packed sequence.

    Raises:
        RuntimeError: a number of parameters, or shapes, that do not fit.
    """
    return declared(method=False)(named(network, name, told))


gru = _of_one_state("gru", "GRU")
rnn_tanh = _of_one_state("rnn_tanh", "recurrent network with tanh")
rnn_relu = _of_one_state("rnn_relu", "recurrent network with ReLU")


@declared(method=False)
@in_lower_precision_on_devices
def lstm_cell(
    input: Tensor,
    hx: tuple[Tensor, Tensor],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """One step of an LSTM: the next hidden and cell states.

    Shapes: ``f[n, size], (f[n, hidden], same) -> f[n, hidden], same``.

    Example:
        >>> import autojit as aj
        >>> zero = aj.zeros(1, 2)
        >>> aj.lstm_cell(zero, (zero, zero), aj.ones(8, 2), aj.ones(8, 2))[0]
        tensor([[0., 0.]])
    """
    return lstm_step(F.linear(input, w_ih, b_ih), hx[0], hx[1], w_hh, b_hh)


@declared(method=False)
@in_lower_precision_on_devices
def gru_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    """One step of a GRU: the next hidden state. Shapes: ``f[n, size], f[n, hidden] -> f[n, hidden]``.

    Example:
        >>> import autojit as aj
        >>> aj.gru_cell(aj.zeros(1, 2), aj.zeros(1, 2), aj.ones(6, 2), aj.ones(6, 2))
        tensor([[0., 0.]])
    """
    return gru_step(F.linear(input, w_ih, b_ih), hx, w_hh, b_hh)


@declared(method=False)
@in_lower_precision_on_devices
def rnn_tanh_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    """``tanh(w_ih @ x + b_ih + w_hh @ h + b_hh)``. Shapes: ``f[n, size], f[n, hidden] -> f[n, hidden]``."""
    return rnn_step(F.linear(input, w_ih, b_ih), hx, w_hh, b_hh, "tanh")


@declared(method=False)
@in_lower_precision_on_devices
def rnn_relu_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    """``relu(w_ih @ x + b_ih + w_hh @ h + b_hh)``. Shapes: ``f[n, size], f[n, hidden] -> f[n, hidden]``."""
    return rnn_step(F.linear(input, w_ih, b_ih), hx, w_hh, b_hh, "relu")
