"""Recurrent layers in compiled steps: one step for every length, equal to eager execution to second order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import nn
from autojit.jit.function import JitFunction

LENGTHS = (1, 2, 7, 33)
LAYERS: dict[str, Callable[[], nn.Module]] = {
    "lstm": lambda: nn.LSTM(3, 4),
    "lstm of two layers, both ways": lambda: nn.LSTM(3, 4, 2, bidirectional=True),
    "lstm with projection": lambda: nn.LSTM(3, 4, proj_size=2),
    "lstm without bias": lambda: nn.LSTM(3, 4, bias=False),
    "gru": lambda: nn.GRU(3, 4),
    "gru of two layers": lambda: nn.GRU(3, 4, 2),
    "rnn": lambda: nn.RNN(3, 4),
    "rnn of relu, backwards too": lambda: nn.RNN(3, 4, nonlinearity="relu", bidirectional=True),
}


@pytest.fixture(autouse=True)
def _float64() -> Any:
    before = aj.get_default_dtype()
    aj.set_default_dtype(aj.float64)
    aj.manual_seed(0)
    yield
    aj.set_default_dtype(before)


def check_equal(found: Any, wanted: Any, what: object = "") -> None:
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-9, atol=1e-12, err_msg=str(what))


def check_lengths(function: Callable[..., Any], make: Callable[[int], tuple[Any, ...]], captures: int) -> JitFunction:
    """The compiled function gives for every length what the function gives; nothing of it runs in Python."""
    compiled: JitFunction = aj.jit(function)
    for length in LENGTHS:
        given = make(length)
        check_equal(compiled(*given), function(*given), length)
    stats = compiled.stats()
    assert stats["captures"] <= captures, compiled.explain()
    assert (stats["fallbacks"], stats["splits"], stats["specialised_sizes"]) == (0, 0, 0), compiled.explain()
    return compiled


def states_of(net: nn.Module, batch: int = 2) -> Any:
    count = net.num_layers * (2 if net.bidirectional else 1)
    h = aj.randn(count, batch, net.proj_size or net.hidden_size)
    return (h, aj.randn(count, batch, net.hidden_size)) if net.mode == "LSTM" else h


def flat(found: tuple[aj.Tensor, Any]) -> list[aj.Tensor]:
    output, final = found
    return [output, *(final if isinstance(final, tuple) else (final,))]


@pytest.mark.parametrize("name", LAYERS)
def test_one_step_serves_every_length(name: str) -> None:
    net = LAYERS[name]()
    hx = states_of(net)

    def step(x: aj.Tensor) -> tuple[aj.Tensor, ...]:
        outputs = flat(net(x, hx))
        loss = sum((y**2).sum() for y in outputs)
        return (*outputs, *aj.autograd.grad(loss, (x, *net.parameters())))

    check_lengths(step, lambda length: (aj.randn(length, 2, 3).requires_grad_(),), captures=3)


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn"])
def test_second_derivatives_for_every_length(name: str) -> None:
    net = LAYERS[name]()

    def step(x: aj.Tensor) -> tuple[aj.Tensor, ...]:
        slopes = aj.autograd.grad((net(x)[0] ** 3).sum(), (x, *net.parameters()), create_graph=True)
        return aj.autograd.grad(sum((s**2).sum() for s in slopes), (x, *net.parameters()))

    check_lengths(step, lambda length: (aj.randn(length, 2, 3).requires_grad_(),), captures=3)


@pytest.mark.parametrize("name", ["lstm with projection", "gru", "rnn"])
def test_compiled_derivatives_are_right_to_second_order(name: str) -> None:
    net = LAYERS[name]()
    compiled = aj.jit(lambda x, *hx: tuple(flat(net(x, hx if len(hx) > 1 else hx[0]))))
    hx = states_of(net)
    given = [aj.randn(3, 2, 3), *(hx if isinstance(hx, tuple) else (hx,))]
    given = [t.requires_grad_() for t in given]
    assert aj.autograd.gradcheck(compiled, given)
    assert aj.autograd.gradgradcheck(compiled, given)


@pytest.mark.parametrize("enforce_sorted", [True, False])
@pytest.mark.parametrize("name", ["lstm of two layers, both ways", "gru"])
def test_one_step_serves_packed_sequences_of_all_lengths(name: str, enforce_sorted: bool) -> None:
    net = LAYERS[name]()
    utils = nn.utils.rnn

    @aj.jit
    def step(x: aj.Tensor, lengths: aj.Tensor) -> tuple[aj.Tensor, ...]:
        output, final = net(utils.pack_padded_sequence(x, lengths, enforce_sorted=enforce_sorted))
        padded, counts = utils.pad_packed_sequence(output)
        loss = (padded**2).sum() + sum((part**3).sum() for part in flat((x, final))[1:])
        return loss, counts, *aj.autograd.grad(loss, (x, *net.parameters()))

    for lengths in ([5, 4, 1], [6, 6, 2], [9, 3, 3], [2, 2, 1], [12, 1, 1]):
        order = lengths if enforce_sorted else lengths[1:] + lengths[:1]
        x = aj.randn(lengths[0], 3, 3).requires_grad_()
        found = step(x, aj.tensor(order))
        alone = [flat(net(x[:length, k : k + 1])) for k, length in enumerate(order)]
        loss = sum((y[0] ** 2).sum() + sum((part**3).sum() for part in y[1:]) for y in alone)
        wanted = [loss, aj.tensor(order), *aj.autograd.grad(loss, (x, *net.parameters()))]
        check_equal(found, wanted, order)
    stats = step.stats()
    assert (stats["captures"], stats["fallbacks"], stats["specialised_sizes"]) == (2, 0, 0), step.explain()


def test_lengths_that_do_not_fill_the_time_axis_and_wrong_ones() -> None:
    pack = nn.utils.rnn.pack_padded_sequence
    compiled = aj.jit(lambda x, lengths: tuple(pack(x, lengths)[:2]))
    x = aj.randn(6, 2, 3)
    for lengths in ([4, 2], [6, 3], [3, 3]):
        wanted = aj.cat([x[t, : sum(size > t for size in lengths)] for t in range(lengths[0])])
        for run in (compiled, pack):
            data, batch_sizes = run(x, aj.tensor(lengths))[:2]
            check_equal([data], [wanted])
            assert batch_sizes.tolist() == [sum(size > t for size in lengths) for t in range(lengths[0])]
    for run in (compiled, pack):
        for lengths, message in (
            ([3, 5], "sorted in decreasing order"),
            ([3, 0], "greater than 0"),
            ([7, 1], "time axis"),
        ):
            with pytest.raises(RuntimeError, match=message):
                run(x, aj.tensor(lengths))
        with pytest.raises(RuntimeError, match="batch_size=2"):
            run(x, aj.tensor([3]))


def test_packed_integers_keep_their_dtype() -> None:
    packed = nn.utils.rnn.pack_sequence([aj.tensor([1, 2, 3]), aj.tensor([4])])
    padded, lengths = nn.utils.rnn.pad_packed_sequence(packed, padding_value=-1, total_length=4)
    assert padded.dtype is aj.int64 and lengths.tolist() == [3, 1]
    assert padded.tolist() == [[1, 4], [2, -1], [3, -1], [-1, -1]]


def test_training_with_dropout_on_any_length_and_batch() -> None:
    steps, nets = [], []
    for _ in range(2):
        aj.manual_seed(1)
        net = nn.GRU(3, 4, 2, batch_first=True, dropout=0.5)
        steps.append(_training_step(net, aj.optim.Adam(net.parameters(), lr=0.01)))
        nets.append(net)
    compiled = aj.jit(steps[0])
    for batch, length in ((4, 5), (3, 7), (2, 9), (5, 2), (6, 31)):
        x = aj.randn(batch, length, 3)
        before = aj.get_rng_state()
        found = compiled(x)
        aj.set_rng_state(before)
        check_equal([found], [steps[1](x)], (batch, length))
    check_equal(nets[0].parameters(), nets[1].parameters())
    stats = compiled.stats()
    assert (stats["captures"], stats["fallbacks"]) == (2, 0), compiled.explain()


def _training_step(net: nn.Module, optimizer: Any) -> Callable[[aj.Tensor], aj.Tensor]:
    def step(x: aj.Tensor) -> aj.Tensor:
        optimizer.zero_grad()
        loss: aj.Tensor = (net(x)[0] ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def test_what_is_compiled_does_not_grow_with_the_length() -> None:
    net = nn.LSTM(3, 4)
    kernels = []
    for length in (20, 200):
        compiled = aj.jit(lambda x: aj.autograd.grad(net(x)[0].sum(), tuple(net.parameters())), dynamic=False)
        compiled(aj.randn(length, 2, 3))
        kernels.append(compiled.stats()["kernels"])
    assert kernels[0] == kernels[1]


def test_layers_in_a_batch_of_weights() -> None:
    net = nn.RNN(3, 4)
    weights = {name: aj.randn(5, *p.shape) for name, p in net.named_parameters()}
    call = lambda weights, x: aj.func.functional_call(net, weights, (x,))[0]
    batched = aj.vmap(call, in_dims=(0, None))
    x = aj.randn(6, 2, 3)
    wanted = [call({name: w[k] for name, w in weights.items()}, x) for k in range(5)]
    check_equal(batched(weights, x), wanted)
    check_equal(aj.jit(batched)(weights, x), wanted)


def test_mixed_precision_keeps_the_dtype_of_the_products() -> None:
    aj.set_default_dtype(aj.float32)
    x = aj.randn(5, 2, 3)
    for kind, wanted in ((nn.LSTM, aj.bfloat16), (nn.RNN, aj.bfloat16), (nn.GRU, aj.float32)):  # as in torch
        net = kind(3, 4)
        for run in (net, aj.jit(net)):
            with aj.autocast("cpu", aj.bfloat16):
                output, final = run(x)
            found = {output.dtype, *(t.dtype for t in (final if isinstance(final, tuple) else (final,)))}
            assert found == {wanted}, kind


def test_a_parametrized_weight_is_computed_once_for_all_steps() -> None:
    calls = []

    class Halved(nn.Module):
        def forward(self, w: aj.Tensor) -> aj.Tensor:
            calls.append(1)
            return w / 2

    net = nn.GRU(3, 4)
    nn.utils.parametrize.register_parametrization(net, "weight_hh_l0", Halved())
    calls.clear()
    output, _ = net(aj.randn(9, 2, 3))
    assert len(calls) == 1 and output.shape == (9, 2, 4)


def test_no_steps_are_refused() -> None:
    for run in (nn.LSTM(3, 4), aj.jit(nn.LSTM(3, 4))):
        with pytest.raises(RuntimeError, match="Expected sequence length to be larger than 0 in RNN"):
            run(aj.zeros(0, 2, 3))


def test_wrong_states_are_refused() -> None:
    x, h = aj.zeros(5, 2, 3), aj.zeros(1, 2, 4)
    for net in (nn.LSTM(3, 4), aj.jit(nn.LSTM(3, 4))):
        with pytest.raises(RuntimeError, match="lstm expects two hidden states"):
            net(x, (h, h, h))
        with pytest.raises(RuntimeError, match="dtype"):
            net(x, (h.float(), h.float()))
        with pytest.raises(RuntimeError, match=r"Expected hidden(\[0\])? size"):
            net(x, (h[:, :1], h))


def test_a_python_loop_over_cells_has_a_step_per_length_and_says_why() -> None:
    cell = nn.LSTMCell(3, 4)

    @aj.jit
    def run(x: aj.Tensor) -> aj.Tensor:
        state = aj.zeros(2, 4), aj.zeros(2, 4)
        for t in range(x.shape[0]):
            state = cell(x[t], state)
        return state[0]

    for length in (4, 5, 6):
        run(aj.randn(length, 2, 3))
    assert run.stats()["captures"] == 3 and run.stats()["specialised_sizes"] == 1
    assert "test_recurrent.py" in run.explain() and "as a loop or a text does (aj.scan" in run.explain()


@pytest.mark.parametrize("name", ["float", "double", "half", "long", "int", "short", "char", "byte"])
def test_packed_sequences_are_cast_as_tensors_are(name: str) -> None:
    packed = nn.utils.rnn.pack_sequence([aj.arange(3.0), aj.arange(2.0)])
    cast = getattr(packed, name)()
    assert cast.data.dtype is getattr(packed.data, name)().dtype and cast.data.tolist() == packed.data.tolist()
    assert cast.batch_sizes.equal(packed.batch_sizes)


def test_cells_say_which_state_has_too_many_axes() -> None:
    x, h, wrong = aj.ones(2, 3), aj.ones(2, 4), aj.ones(1, 1, 2, 4)
    for states, name in [((wrong, h), r"hx\[0\]"), ((h, wrong), r"hx\[1\]")]:
        with pytest.raises(ValueError, match=rf"LSTMCell: Expected {name} to be 1D or 2D, got 4D instead"):
            aj.nn.LSTMCell(3, 4)(x, states)
    with pytest.raises(ValueError, match="GRUCell: Expected hidden to be 1D or 2D, got 4D instead"):
        aj.nn.GRUCell(3, 4)(x, wrong)
