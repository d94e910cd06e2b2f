"""Memory that processes share: what one writes the others see, however they were started."""

from __future__ import annotations

import multiprocessing
import pickle
from multiprocessing import resource_sharer
from typing import Any

import pytest

import autojit as aj
from autojit import nn


def trained(model: nn.Linear, seed: int, is_compiled: bool) -> None:
    """Fit the sum of three numbers, in a process of its own."""
    aj.manual_seed(seed)
    optimizer = aj.optim.SGD(model.parameters(), lr=0.1)

    def step(x: aj.Tensor) -> None:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
        optimizer.step()

    step = aj.jit(step) if is_compiled else step
    for _ in range(100):
        step(aj.randn(16, 3))


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_train_one_model(method: str, is_compiled: bool) -> None:
    aj.manual_seed(0)
    model = nn.Linear(3, 1).share_memory()
    assert all(p.is_shared() for p in model.parameters())
    context: Any = multiprocessing.get_context(method)
    process = context.Process(target=trained, args=(model, 1, is_compiled))
    process.start()
    process.join()
    assert process.exitcode == 0
    aj.testing.assert_close(model.weight.detach(), aj.ones(1, 3), atol=0.05, rtol=0)


def answered(there: Any, back: Any) -> None:
    x = there.get()
    x[1] += 2
    back.put(type(x).__name__)


def test_what_goes_through_a_queue_is_the_same_memory() -> None:
    x = nn.Parameter(aj.arange(6.0).view(2, 3).t(), requires_grad=False).share_memory_()
    strides = x.stride()
    context: Any = multiprocessing.get_context("spawn")
    there, back = context.Queue(), context.Queue()
    process = context.Process(target=answered, args=(there, back))
    process.start()
    there.put(x)
    assert back.get() == "Parameter"
    process.join()
    for queue in (there, back):
        queue.close()
        queue.join_thread()
    resource_sharer.stop()  # the thread that sends descriptors: tests that count calls expect to be alone
    assert x.tolist() == [[0, 3], [3, 6], [2, 5]] and x.stride() == strides == (1, 3)


def test_sharing_keeps_what_the_tensor_is() -> None:
    x = aj.tensor([1.0, 2.0], requires_grad=True)
    assert x.share_memory_() is x and x.share_memory_() is x and x.is_shared() and x[1:].is_shared()
    assert not x.clone().is_shared() and not pickle.loads(pickle.dumps(x)).is_shared()
    (x * x).sum().backward()
    assert x.is_leaf and x.grad is not None and x.grad.tolist() == [2, 4]
    for empty in (aj.zeros(0), aj.tensor(3)):
        kept = empty.tolist()
        assert empty.share_memory_().tolist() == kept and empty.is_shared()


def test_memory_that_others_show_does_not_move() -> None:
    base = aj.zeros(3)
    view, alias = base[1:], base.detach()
    for x, words in ((view, "is a view"), (base, "another tensor shows"), (alias, "another tensor shows")):
        with pytest.raises(RuntimeError, match=words):
            x.share_memory_()
    with pytest.raises(RuntimeError, match="has been computed"):
        (2 * aj.ones(2, requires_grad=True)).share_memory_()


@pytest.mark.parametrize("typed", [True, False])
def test_storages_are_shared_with_their_tensors(typed: bool) -> None:
    x = aj.ones(3)
    memory = x.storage() if typed else x.untyped_storage()
    assert not memory.is_shared() and memory.share_memory_() is memory
    assert memory.is_shared() and x.is_shared() and x[1:].storage().is_shared()
    x.fill_(4.0)
    assert memory.tolist() == x.storage().tolist() if typed else memory.tolist() == x.untyped_storage().tolist()
