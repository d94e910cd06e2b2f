"""Sparse tensors as parameters and buffers: they train, move, copy, pickle and load as dense ones do.

The law is that of the dense twin: what is done with a sparse parameter gives the elements of a dense parameter whose
gradient is masked to the kept places.
"""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import autojit as aj
from autojit import nn

PLACES = [[0, 1, 1], [2, 0, 2]]
FORMS = ("coalesced", "uncoalesced", "csr")


def sparse(form: str) -> Any:
    if form == "uncoalesced":
        return aj.sparse_coo_tensor([[0, 1, 1, 1], [2, 0, 2, 2]], [3.0, 4.0, 2.0, 3.0], (2, 3))
    found = aj.sparse_coo_tensor(PLACES, [3.0, 4.0, 5.0], (2, 3)).coalesce()
    return found.to_sparse_csr() if form == "csr" else found


class Net(nn.Module):
    def __init__(self, form: str) -> None:
        super().__init__()
        self.w = nn.Parameter(sparse(form))
        self.register_buffer("b", sparse(form))

    def forward(self, x: Any) -> Any:
        return self.w @ x


def trained(form: str, is_jitted: bool, momentum: float, set_to_none: bool = True) -> list[list[float]]:
    net = Net(form)
    optimizer = aj.optim.SGD(net.parameters(), lr=0.1, momentum=momentum)

    def step(x: Any) -> Any:
        optimizer.zero_grad(set_to_none=set_to_none)
        loss = (net(x) ** 2).sum() + (net.b @ x).sum()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        optimizer.step()
        with aj.no_grad():
            net.b.mul_(0.5)
        return loss.detach()

    called = aj.jit(step) if is_jitted else step
    for k in range(3):
        called(aj.ones(3, 2) * (0.1 + k / 10))
    found: list[list[float]] = net.w.detach().to_dense().tolist() + net.b.to_dense().tolist()
    return found


def trained_densely(momentum: float) -> list[list[float]]:
    w = nn.Parameter(sparse("coalesced").to_dense())
    mask, b = w.detach() != 0, w.detach().clone()
    optimizer = aj.optim.SGD([w], lr=0.1, momentum=momentum)
    for k in range(3):
        x = aj.ones(3, 2) * (0.1 + k / 10)
        optimizer.zero_grad()
        (((w * mask) @ x) ** 2).sum().backward()
        nn.utils.clip_grad_norm_([w], 5.0)
        optimizer.step()
        b *= 0.5
    return w.detach().tolist() + b.tolist()


@pytest.mark.parametrize("momentum", (0.0, 0.9))
@pytest.mark.parametrize("form", ("coalesced", "csr"))
def test_a_sparse_parameter_trains_as_the_dense_one_with_a_masked_gradient(form: str, momentum: float) -> None:
    wanted = aj.tensor(trained_densely(momentum))
    for is_jitted in (False, True):
        assert aj.allclose(aj.tensor(trained(form, is_jitted, momentum)), wanted)
    assert aj.allclose(aj.tensor(trained(form, False, momentum, set_to_none=False)), wanted)


@pytest.mark.parametrize("form", FORMS)
def test_it_is_a_parameter_of_its_layout(form: str) -> None:
    net, data = Net(form), sparse(form)
    assert isinstance(net.w, nn.Parameter)
    assert net.w.is_leaf
    assert net.w.layout is data.layout
    assert net.w._nnz() == data._nnz()
    assert [name for name, _ in net.named_parameters()] == ["w"]
    net(aj.ones(3, 2)).sum().backward()
    assert net.w.grad is not None
    assert net.w.grad.layout is data.layout
    copies = [copy.deepcopy(net.w), pickle.loads(pickle.dumps(net.w)), copy.deepcopy(net).w]
    for made in copies:
        assert isinstance(made, nn.Parameter)
        assert made.requires_grad
        assert aj.equal(made.to_dense(), data.to_dense())
    assert net.double().w.dtype is aj.float64
    assert isinstance(net.w, nn.Parameter)
    with aj.no_grad():
        net.w.mul_(2)
        net.w.copy_(net.w * 2)
    assert net.w.requires_grad
    fresh = Net(form)
    fresh.load_state_dict(net.state_dict())
    assert aj.equal(fresh.w.to_dense(), data.to_dense() * 4)


@pytest.mark.parametrize("form", FORMS)
def test_what_changes_its_gradient_in_place_changes_its_gradient(form: str) -> None:
    w = nn.Parameter(sparse(form))
    for change in (lambda g: g.mul_(3), lambda g: g.zero_(), lambda g: g.add_(g)):
        w.grad = None
        (w @ aj.ones(3, 2)).sum().backward()
        grad = w.grad
        assert grad is not None
        change(grad)
        assert w.grad is not None
        assert aj.equal(w.grad.to_dense(), grad.to_dense())


def test_a_leaf_is_not_written_while_gradients_are_recorded() -> None:
    w = nn.Parameter(sparse("coalesced"))
    for write in (lambda: w.mul_(2), lambda: w.zero_(), lambda: w.copy_(sparse("coalesced"))):
        with pytest.raises(RuntimeError, match="leaf Variable"):
            write()
    assert aj.equal(w.detach().to_dense(), sparse("coalesced").to_dense())


def other_places(s: Any) -> Any:
    return s.add_(aj.sparse_coo_tensor([[0], [1]], [1.0], (2, 3)).coalesce())


@pytest.mark.parametrize("change", (lambda s: s.mul_(2), lambda s: s.zero_(), other_places))
def test_a_step_changes_the_sparse_tensors_it_is_given_and_finds(change: Any) -> None:
    given, found = sparse("coalesced"), sparse("coalesced")
    again, twin = sparse("coalesced"), sparse("coalesced")

    def step(s: Any) -> Any:
        change(s)
        change(found)
        return s.to_dense().sum() + found.to_dense().sum()

    results = [aj.jit(step)(given), aj.jit(step)(given)]
    wanted = []
    for _ in range(2):
        change(again)
        change(twin)
        wanted.append(again.to_dense().sum() + twin.to_dense().sum())
    assert aj.equal(aj.stack(results), aj.stack(wanted))
    assert aj.equal(given.to_dense(), again.to_dense())
    assert aj.equal(found.to_dense(), twin.to_dense())


def test_zeros_like_a_sparse_tensor_keeps_nothing() -> None:
    for form in FORMS:
        made = aj.zeros_like(sparse(form))
        assert made.layout is sparse(form).layout
        assert made._nnz() == 0
    assert aj.zeros_like(sparse("csr"), layout=aj.strided).tolist() == [[0] * 3] * 2


def test_what_needs_memory_says_that_a_sparse_tensor_has_none() -> None:
    s = sparse("coalesced")
    for ask in (lambda: s.data_ptr(), lambda: s.untyped_storage()):
        with pytest.raises(NotImplementedError, match=r"sparse|Sparse"):
            ask()
