"""The second device: memory apart from the host's, the same values, and steps that compile to one native call there."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import nn
from autojit.core.device import Device, space_at
from autojit.core.device_array import DeviceArray, empty_as
from autojit.testing import second_device
from tests.autograd.functions import Exp


@pytest.fixture
def there() -> Iterator[str]:
    with second_device("there") as name:
        yield name


def on_both(there: str, program: Callable[[str], Any]) -> tuple[Any, Any]:
    """What a program gives on the CPU and on the second device."""
    return program("cpu"), program(there)


def test_a_custom_function_runs_there(there: str) -> None:
    x = aj.zeros(2, requires_grad=True, device="cpu")
    y = Exp.apply(x.to(there))
    assert y.device.type == there
    y.sum().backward()
    assert x.grad.device.type == "cpu"
    assert x.grad.tolist() == [1.0, 1.0]


def test_its_memory_is_read_by_copies_alone(there: str) -> None:
    host = aj.arange(6.0, device="cpu").reshape(2, 3)
    x = host.to(there)
    assert type(x._array) is DeviceArray
    x.mul_(2)
    assert host.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert x.cpu().tolist() == x.tolist() == [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]
    for read in (np.asarray, lambda a: np.add(a, 1), np.sum, lambda a: np.concatenate([a]), list, bytes, memoryview):
        with pytest.raises(TypeError):
            read(x._array)
    with pytest.raises(TypeError, match="device type tensor to numpy"):
        x.numpy()


def test_views_show_the_same_memory(there: str) -> None:
    x = aj.zeros(3, 4, device=there)
    x.t()[1:3].add_(1)
    assert x.tolist() == [[0.0, 1.0, 1.0, 0.0]] * 3
    assert x.view(-1).data_ptr() == x.data_ptr()
    assert x[1].storage_offset() == 4 and x.t().stride() == (1, 4)
    assert x[1]._base is x


def test_what_is_made_without_operands_is_where_it_was_asked_for(there: str) -> None:
    with aj.device(there):
        made = [aj.ones(2), aj.tensor([1, 2]), aj.rand(2), aj.arange(3), aj.eye(2), aj.full((2,), 7.0), aj.randperm(4)]
    like = aj.zeros(2, 3, device=there)
    made += [aj.zeros_like(like), like.new_ones(2), like.new_tensor([1.0]), aj.randn_like(like), like > 0, like.sum()]
    assert {x.device.type for x in made} == {there}
    assert aj.zeros_like(like, device="cpu").device.type == "cpu"


def test_random_numbers_are_the_same_on_every_device(there: str) -> None:
    def drawn(device: str) -> list[Any]:
        aj.manual_seed(3)
        found = [aj.rand(5, device=device), aj.randn(5, device=device), aj.randint(9, (5,), device=device)]
        found += [aj.bernoulli(found[0]), aj.empty(4, device=device).normal_(), aj.multinomial(found[0], 3)]
        return [x.tolist() for x in found]

    here, elsewhere = on_both(there, drawn)
    assert here == elsewhere


def test_indices_and_numbers_on_the_cpu_go_with_tensors_there(there: str) -> None:
    x = aj.arange(12.0, device=there).reshape(3, 4)
    assert x[aj.tensor([0, 2], device="cpu")].tolist() == [[0.0, 1.0, 2.0, 3.0], [8.0, 9.0, 10.0, 11.0]]
    x[[0, 1], [0, 1]] = aj.tensor([5.0, 6.0], device=there)
    assert (x[0, 0].item(), x[1, 1].item()) == (5.0, 6.0)
    assert (x * aj.tensor(2.0, device="cpu")).device == x.device
    with pytest.raises(RuntimeError, match="two devices, there:0 and cpu"):
        x + aj.zeros(3, 4, device="cpu")


def training(device: str, optimizer: Any) -> tuple[list[float], dict[str, Any]]:
    aj.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.LayerNorm(8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 3)).to(device)
    updates = optimizer(model.parameters())
    x, y = aj.randn(7, 5, device=device), aj.randint(0, 3, (7,), device=device)

    @aj.jit
    def step(x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
        updates.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        updates.step()
        return loss

    losses = [step(x, y).item() for _ in range(6)]
    assert {p.device.type for p in model.parameters()} == {device}
    return losses + [p.sum().item() for p in model.parameters()], step.stats()


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda p: aj.optim.SGD(p, 0.1, momentum=0.9),
        lambda p: aj.optim.AdamW(p, 1e-2),
        lambda p: aj.optim.RMSprop(p, 1e-2),
    ],
    ids=["sgd", "adamw", "rmsprop"],
)
def test_a_training_step_is_one_native_call_with_the_results_of_the_cpu(there: str, optimizer: Any) -> None:
    (here, _), (elsewhere, stats) = on_both(there, lambda device: training(device, optimizer))
    np.testing.assert_allclose(elsewhere, here, rtol=1e-5)  # numbers of the optimiser are on the CPU: other kernels
    assert (stats["captures"], stats["native_calls"], stats["fallbacks"]) == (1, 5, 0)


def test_a_step_on_both_devices_is_one_native_call(there: str) -> None:
    w = aj.arange(4.0, device=there, requires_grad=True)
    count = aj.zeros((), device="cpu")

    @aj.jit
    def step(x: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        count.add_(1)
        loss = (x.to(there) * w * count).sum()
        (slope,) = aj.autograd.grad(loss, (w,))
        return loss.detach().cpu(), slope

    x = aj.ones(4, device="cpu")
    for call in range(1, 5):
        loss, slope = step(x)
        assert (loss.device.type, slope.device.type, count.item()) == ("cpu", there, call)
        assert (loss.item(), slope.tolist()) == (6.0 * call, [float(call)] * 4)
    assert (step.stats()["captures"], step.stats()["native_calls"]) == (1, 3)


def test_sizes_stay_open_there(there: str) -> None:
    w = aj.ones(3, device=there)

    @aj.jit
    def step(x: aj.Tensor) -> aj.Tensor:
        return (aj.softmax(x, -1) @ w).cumsum(0) * x.shape[0]

    for n in (2, 5, 3, 7, 5):
        x = aj.arange(3.0 * n, device=there).reshape(n, 3)
        np.testing.assert_allclose(step(x).tolist(), [n * (k + 1.0) for k in range(n)], rtol=1e-6)
    assert step.stats()["captures"] <= 3


def test_loops_and_branches_run_there(there: str) -> None:
    def program(device: str) -> list[float]:
        def rounds(x: aj.Tensor) -> aj.Tensor:
            total, _ = aj.scan(lambda c, row: (c * 0.5 + row, c), aj.zeros(3, device=device), x)
            (last,) = aj.while_loop(lambda c: c.sum() < 50, lambda c: (c * 2,), (total.exp(),))
            return aj.cond(last.sum() > 60, lambda c: c + 1, lambda c: c - 1, (last,)).sum()

        x = aj.linspace(-1, 1, 12, device=device).reshape(4, 3)
        return aj.jit(aj.func.grad(rounds))(x).reshape(-1).tolist() + [aj.jit(rounds)(x).item()]

    here, elsewhere = on_both(there, program)
    assert here == elsewhere


def test_threads_that_ran_before_the_device_came_see_it(there: str) -> None:
    asked: queue.Queue[Any] = queue.Queue()
    answers: queue.Queue[Any] = queue.Queue()

    def work() -> None:
        aj.ones(2, device="cpu") + 1
        answers.put("ready")
        x = asked.get()
        answers.put((x * 2).device.type)

    with second_device("late") as late:
        pass
    thread = threading.Thread(target=work)
    thread.start()
    assert answers.get() == "ready"
    with second_device("late") as late:
        asked.put(aj.ones(2, device=late))
        assert answers.get() == late
        thread.join()


def test_two_second_devices_come_and_go(there: str) -> None:
    with second_device("other") as other:
        x = aj.ones(2, device=there).to(other)
        assert (x + 1).device.type == other
        with pytest.raises(RuntimeError, match="two devices"):
            x + aj.ones(2, device=there)
    assert (aj.ones(2, device=there) + 1).device.type == there
    with pytest.raises(RuntimeError):
        aj.ones(2, device=other)


@pytest.mark.parametrize("order", ["C", "K"])
@pytest.mark.parametrize(
    "layout",
    [
        np.zeros((2, 3, 4)),
        np.zeros((4, 3, 2)).T,
        np.zeros((3, 2, 4)).transpose(1, 0, 2),
        np.zeros((2, 6, 8))[:, ::2, ::2],
        np.broadcast_to(np.zeros((3, 1)), (2, 3, 4)),
        np.zeros((2, 1, 3)).transpose(2, 1, 0),
        np.zeros((0, 3)),
        np.zeros(()),
    ],
    ids=str,
)
def test_copies_there_are_laid_out_as_numpy_lays_them_out(there: str, layout: Any, order: Any) -> None:
    space = space_at(Device(there, 0))
    assert space.holding(layout).copy(order=order).strides == layout.copy(order=order).strides
    made = empty_as(space.copied_in(np.zeros(layout.shape, np.float32)), layout)
    assert made.strides == np.empty_like(layout, dtype=np.float32).strides
