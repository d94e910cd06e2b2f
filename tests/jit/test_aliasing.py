"""Arguments, state and results that alias: eager equals compiled, and results alias what they alias in eager mode."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import autojit as aj
from tests.jit.agreement import Program, agree, plain


def vector(*values: float) -> aj.Tensor:
    return aj.tensor([float(v) for v in values])


def test_arguments_written_in_place() -> None:
    def make() -> Program:
        def step(x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
            x.mul_(2).add_(y)
            y[0] = 7.0
            return x + y

        return Program(step, [(vector(1, 2), vector(3, 4)) for _ in range(3)])

    agree(make, captures=1)


def test_the_same_tensor_twice() -> None:
    def make() -> Program:
        x = vector(1, 2)

        def step(a: aj.Tensor, b: aj.Tensor) -> aj.Tensor:
            a.add_(1)
            return a * b

        return Program(step, [(x, x), (x, x), (vector(1, 2), vector(3, 4)), (x, x)])

    agree(make)


def test_overlapping_views_as_arguments() -> None:
    def make() -> Program:
        base = aj.arange(6, dtype=aj.float32)

        def step(a: aj.Tensor, b: aj.Tensor) -> aj.Tensor:
            a.mul_(2)
            return a + b

        return Program(step, [(base[:4], base[2:]), (base[:4], base[2:])], [base])

    agree(make)


def test_overlapping_views_that_are_only_read_need_one_capture() -> None:
    def make() -> Program:
        base = aj.arange(40, dtype=aj.float32)
        return Program(lambda a, b: (a - b).sum(), [(base[k : k + 8], base[k + 1 : k + 9]) for k in range(6)])

    agree(make, captures=1)


def test_an_argument_that_is_also_state() -> None:
    def make() -> Program:
        weight = vector(1, 2)

        def step(x: aj.Tensor) -> aj.Tensor:
            weight.add_(1)
            return x * 2

        return Program(step, [(vector(5, 6),), (weight,), (vector(7, 8),), (weight,), (weight[:],)], [weight])

    agree(make)


def test_views_of_parameters_updated_in_place() -> None:
    def make() -> Program:
        table = aj.nn.Parameter(aj.arange(12, dtype=aj.float32).reshape(4, 3))
        row = table.detach()[1]

        def step(x: aj.Tensor) -> aj.Tensor:
            with aj.no_grad():
                table[0] += x
                row.mul_(0.5)
                table.data[2:, 1] = 1.0
            return (table * 2).sum().detach() + row

        return Program(step, [(vector(1, 2, 3),) for _ in range(3)], [table, row])

    agree(make, captures=1)


def test_results_that_are_arguments_parameters_and_views() -> None:
    weight = aj.nn.Parameter(aj.arange(6, dtype=aj.float32).reshape(2, 3))

    def function(x: aj.Tensor) -> Any:
        y = x * 2
        return x, weight, x[0], weight[1], y, y[1], y, None, 3, "text"

    step = aj.jit(function)
    for _ in range(3):
        x = aj.ones(2, 3)
        a, w, x0, w1, y, y1, again, *rest = step(x)
        assert a is x and w is weight and again is y and rest == [None, 3, "text"]
        x[0] = 5.0
        assert x0.tolist() == [5.0] * 3
        y[1] = 9.0
        assert y1.tolist() == [9.0] * 3
        assert w1.tolist() == weight[1].tolist() and w1.requires_grad


def test_results_are_not_overwritten_by_later_calls() -> None:
    step = aj.jit(lambda x: x * 2)
    kept = [step(aj.full((3,), float(k))) for k in range(20)]
    assert [t[0].item() for t in kept] == [2.0 * k for k in range(20)]


class Pair(NamedTuple):
    first: aj.Tensor
    second: Any


@dataclass
class Record:
    value: aj.Tensor
    name: str


@pytest.mark.parametrize(
    "function",
    [
        lambda x: [x, (x + 1, {"a": x * 2, "b": [x * 3]})],
        lambda x: Pair(x * 2, Pair(x, None)),
        lambda x: OrderedDict(z=x * 1.5, a=2),
        lambda x: (),
        lambda x: None,
        lambda x: [],
        lambda x: Record(x * 2, "r"),
        lambda x: (x * 2,),
        lambda x: (x.detach(), x.clone(), x.view(-1), x.t() if x.ndim == 2 else x),
    ],
)
def test_nests_of_results(function: Any) -> None:
    agree(lambda: Program(function, [(vector(1, 2),), (vector(3, 4),), (vector(5, 6),)]), captures=1)


def test_nests_of_arguments() -> None:
    def step(batch: Any, scale: Any = 2.0, *more: Any, **named: Any) -> Any:
        x, y = batch["pair"]
        return x * scale + y.value + (more[0] if more else 0) + named.get("z", 1)

    jitted = aj.jit(step)
    for k in range(4):
        batch = {"pair": (vector(k, 2), Record(vector(3, k), "n"))}
        for arguments, named in (((batch,), {}), ((batch, 3.0, vector(1, 1)), {}), ((batch,), {"z": vector(k, k)})):
            a, b = step(*arguments, **named), jitted(*arguments, **named)  # type: ignore[arg-type]
            assert a.tolist() == b.tolist()
    assert jitted.stats()["captures"] == 3


def test_a_generator_result_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="generator"):
        aj.jit(lambda x: (x * k for k in range(2)))(vector(1, 2))
    with pytest.raises(RuntimeError, match="generator"):

        @aj.jit
        def produce(x: aj.Tensor) -> Any:
            yield x


def test_zero_sizes_scalars_arrays_and_strides() -> None:
    agree(lambda: Program(lambda x: (x * 2, x.sum(), x), [(aj.zeros(0, 3),), (aj.zeros(0, 3),)]), captures=1)
    agree(lambda: Program(lambda x: x * 2 + 1, [(aj.tensor(3.0),), (aj.tensor(4.0),)]), captures=1)
    base = aj.arange(12, dtype=aj.float32).reshape(3, 4)
    agree(lambda: Program(lambda x: x * 2 + x.sum(0), [(base.t(),), (base.t() + 1,)]))
    step = aj.jit(lambda x: x * 2)
    for k in range(3):
        assert step(np.arange(6.0).reshape(2, 3) + k)[1, 2].item() == 2 * (5 + k)
        assert step(np.arange(6.0).reshape(2, 3).T[::-1] + k).shape == (3, 2)


def test_state_that_is_not_contiguous() -> None:
    def make() -> Program:
        array = np.arange(12.0).reshape(3, 4)
        state = aj.from_numpy(array.T)

        def step(x: aj.Tensor) -> aj.Tensor:
            state.add_(x)
            return state.sum(0)

        return Program(step, [(aj.ones(4, 3, dtype=aj.float64) * k,) for k in range(3)], [state])

    agree(make, captures=1)


def test_memory_shared_behind_the_tensors_back_is_an_error() -> None:
    array = np.arange(6.0)
    a, b = aj.from_numpy(array), aj.from_numpy(array[2:])

    def step(x: aj.Tensor) -> aj.Tensor:
        a.add_(1)
        return b.sum() + x

    with pytest.raises(RuntimeError, match="share memory"):
        aj.jit(step)(aj.tensor(1.0))


def test_versions_grow_and_stale_gradients_are_errors() -> None:
    weight = vector(1, 2).requires_grad_()

    @aj.jit
    def step(x: aj.Tensor) -> None:
        with aj.no_grad():
            weight.add_(x)

    versions = []
    for _ in range(4):
        step(vector(1, 1))
        versions.append(weight._version)
    assert versions == sorted(set(versions))
    loss = (weight**2).sum()
    step(vector(1, 1))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_gradient_the_user_keeps_is_not_overwritten() -> None:
    model = aj.nn.Linear(2, 1)

    @aj.jit
    def step(x: aj.Tensor) -> None:
        model.zero_grad()
        model(x).sum().backward()

    step(vector(1, 2))
    kept = model.weight.grad
    array = model.weight.grad.numpy()
    views = model.weight.grad[0]
    for k in range(5):
        step(vector(k, k))
        assert kept.tolist() == [[1.0, 2.0]] and array.tolist() == [[1.0, 2.0]] and views.tolist() == [1.0, 2.0]
        assert model.weight.grad.tolist() == [[float(k)] * 2]
    assert plain(model.weight.grad)[1].shape == (1, 2)


def test_gradients_of_arguments() -> None:
    def make() -> Program:
        def step(x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
            loss = (x * y).sum()
            loss.backward()
            return loss.detach()

        x = vector(1, 2).requires_grad_()
        y = vector(3, 4).requires_grad_()
        return Program(step, [(x, y), (x, y), (y, x), (x, x), (vector(1, 1).requires_grad_(), y)])

    agree(make)


def test_an_argument_that_the_function_also_reads_from_outside_gathers_both_gradients() -> None:
    x = aj.tensor([3.0, 4.0], requires_grad=True)
    other = aj.tensor([1.0, 1.0], requires_grad=True)
    step = aj.jit(lambda a: aj.autograd.grad((a * x).sum(), a)[0])
    for given, expected in ((x, [6.0, 8.0]), (other, [3.0, 4.0]), (x, [6.0, 8.0]), (other, [3.0, 4.0])):
        assert step(given).tolist() == expected


def test_the_same_through_backward_after_another_argument_came_first() -> None:
    x = aj.tensor([3.0, 4.0], requires_grad=True)

    @aj.jit
    def step(a: aj.Tensor) -> None:
        (a * x).sum().backward()

    other = aj.tensor([1.0, 1.0], requires_grad=True)
    step(other)
    step(other)
    assert other.grad.tolist() == [6.0, 8.0]
    x.grad = None
    step(x)
    assert x.grad.tolist() == [6.0, 8.0]


@pytest.mark.parametrize("size", [8, 1 << 20])
def test_numpy_views_of_results_keep_their_values(size: int) -> None:
    double = aj.jit(lambda x: x * 2)
    x = aj.ones(size)
    shown = [double(x * k).numpy()[1:5] for k in range(12)]
    assert [float(view[0]) for view in shown] == [2.0 * k for k in range(12)]
