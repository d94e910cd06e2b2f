"""Kernels compiled beside: NumPy serves until they are there, and they give what NumPy gives, for all extents."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import nn
from autojit.dispatch import awaited_kernels
from autojit.dispatch.awaited_kernels import AwaitedKernels, awaited
from autojit.tensor.state import reference_only

NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "lstm": lambda: nn.LSTM(3, 4, proj_size=2, bidirectional=True),
    "gru": lambda: nn.GRU(3, 4, batch_first=True),
    "rnn": lambda: nn.RNN(3, 4, nonlinearity="relu", bias=False),
}


@pytest.fixture
def at_once() -> Iterator[None]:
    aj.use_deterministic_algorithms(True)
    yield
    aj.use_deterministic_algorithms(False)


def results_of(net: Any, given: Any, second: bool) -> list[Any]:
    """What a network gives, and the derivatives of a function of it to first or second order."""
    output, final = net(given)
    output = output.data if isinstance(output, nn.utils.rnn.PackedSequence) else output
    found = [output, *(final if isinstance(final, tuple) else (final,))]
    leaves = [*net.parameters()]
    slopes = aj.autograd.grad(sum((y**3).sum() for y in found), leaves, create_graph=second)
    again = aj.autograd.grad(sum((s**2).sum() for s in slopes), leaves) if second else ()
    return [y.detach().numpy() for y in (*found, *slopes, *again)]


@pytest.mark.parametrize("name", NETWORKS)
def test_one_kernel_per_kind_gives_what_numpy_gives_for_all_extents(name: str, at_once: None) -> None:
    aj.manual_seed(3)
    net = NETWORKS[name]().double()
    x = aj.randn(7, 6, 3, dtype=aj.float64)
    kinds = []
    for number, given in enumerate((x, x[:2, :4], x[::2], x.transpose(0, 1), x[:5, 1:4])):
        found = results_of(net, given, second=number < 2)
        with reference_only():
            wanted = results_of(net, given, second=number < 2)
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * np.abs(b).max())
        kinds.append(len(awaited._known))
    assert kinds[1:] == kinds[1:2] * 4, "a kernel for other lengths"


def test_packed_sequences_and_single_rounds_have_kernels_too(at_once: None) -> None:
    aj.manual_seed(3)
    net = nn.GRU(3, 4).double()
    packed = nn.utils.rnn.pack_padded_sequence(aj.randn(5, 3, 3, dtype=aj.float64), aj.tensor([5, 3, 1]))
    for given in (packed, aj.randn(1, 3, 3, dtype=aj.float64), aj.randn(4, 3, dtype=aj.float64)):
        with reference_only():
            wanted = results_of(net, given, second=False)
        for a, b in zip(results_of(net, given, second=False), wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_the_second_call_asks_and_later_ones_get_it() -> None:
    kernels, made, begun = AwaitedKernels(), threading.Event(), []

    def make() -> str:
        begun.append(threading.get_ident())
        made.set()
        return "kernel"

    assert kernels.find("kind", make) is None and not begun
    assert kernels.find("kind", make) is None and made.wait(120)
    while (found := kernels.find("kind", make)) is None:
        pass
    assert found == "kernel" and kernels.find("kind", make) == "kernel"
    assert len(begun) == 1 and begun[0] != threading.get_ident()


def test_nothing_comes_while_results_are_compared_and_errors_reach_the_caller() -> None:
    kernels, made = AwaitedKernels(), threading.Event()

    def fail() -> None:
        made.set()
        raise ValueError("no kernel")

    kernels.find("kind", fail)
    kernels.find("kind", fail)
    assert made.wait(120)
    with kernels.settled():
        assert kernels.find("kind", fail) is None
    with pytest.raises(ValueError, match="no kernel"):
        while kernels.find("kind", fail) is None:
            pass


def test_who_cannot_have_a_thread_makes_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = AwaitedKernels()
    monkeypatch.setattr("autojit.runtime.background.helper", lambda work, name: None)
    assert kernels.find(1, lambda: "kernel") is kernels.find(1, lambda: "kernel") is None
    assert kernels.find(1, lambda: "other") == "kernel"
    monkeypatch.setattr(awaited_kernels, "MOST_KINDS", 1)
    assert kernels.find(2, lambda: "kernel") is None and list(kernels._known) == [2]


@pytest.mark.parametrize("count", [7, 300, 5000])
def test_elementwise_composites_are_one_node_whatever_computes_them(count: int, at_once: None) -> None:
    """NumPy, a kernel that is waited for or one that serves large arrays: values and derivatives of two orders."""
    x = aj.linspace(-3, 3, count, dtype=aj.float64).requires_grad_()

    def results(function: Callable[[Any], Any]) -> list[Any]:
        y = function(x * 1)
        assert [node.name() for node, _ in y.grad_fn.next_functions] == ["MulBackward0"]
        (slope,) = aj.autograd.grad(y.sum(), x, create_graph=True)
        (bend,) = aj.autograd.grad((slope * slope).sum(), x)
        return [t.detach().numpy() for t in (y, slope, bend)]

    functional = nn.functional
    for function in (functional.gelu, functional.silu, functional.softplus, lambda t: functional.leaky_relu(t, 0.1)):
        found = results(function)
        with reference_only():
            wanted = results(function)
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_bfloat16_has_the_bits_of_numpys() -> None:
    x, y = (aj.linspace(-4, 4, 9000).add(shift).bfloat16() for shift in (0.0, 4.5))
    for function in (
        lambda: x + y, lambda: x * y, lambda: x - y, lambda: x / y, lambda: -x, lambda: y.sqrt(),
        lambda: aj.maximum(x, y),
    ):  # fmt: skip
        found = function()
        with reference_only():
            wanted = function()
        assert found.dtype is aj.bfloat16
        np.testing.assert_array_equal(found.float().numpy(), wanted.float().numpy())
