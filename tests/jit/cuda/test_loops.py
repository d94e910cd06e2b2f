"""Loops and branches of steps on a GPU: native, equal to the CPU's in any order of lanes, one graph where it can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import nn
from autojit.codegen.cuda import unrolled
from tests.covering import covering
from tests.emulated import emulated_cuda

F = nn.functional


@pytest.fixture
def times(request: pytest.FixtureRequest) -> Iterator[int]:
    """How often a program is differentiated; lanes, blocks and nodes of graphs come in one order or in another."""
    times, order = request.param
    with emulated_cuda(order):
        yield times


TIMES = pytest.mark.parametrize("times", [(0, None), (1, 7), (2, None)], indirect=True)


def rows(device: str, count: int, width: int = 4) -> aj.Tensor:
    return aj.linspace(-1, 1, count * width, device=device).reshape(count, width)


def recurrent(x: aj.Tensor, w: aj.Tensor) -> aj.Tensor:
    """A carry that a product takes part in, one that only adds up, results of both."""

    def body(carry: tuple[aj.Tensor, aj.Tensor], row: aj.Tensor) -> Any:
        state, total = carry
        state = aj.tanh(state @ w + row)
        return (state, total + state.square()), (state * row, total)

    start = aj.zeros(4, device=x.device), x[0].exp()
    (state, total), (products, totals) = aj.scan(body, start, x)
    return state.sum() + (total * totals.mean(0)).sum() + products.square().sum()


def backwards(x: aj.Tensor, w: aj.Tensor) -> aj.Tensor:
    """The last slice comes first; nothing is carried that is not also a result."""
    last, seen = aj.scan(lambda c, row: ((c * row).sin() @ w, c), x[0] * 2, x, reverse=True)
    return (last * seen.sum(0)).sum()


def nested(x: aj.Tensor, w: aj.Tensor) -> aj.Tensor:
    """A scan in a scan."""

    def outer(carry: aj.Tensor, row: aj.Tensor) -> Any:
        inner, seen = aj.scan(lambda c, k: (c * 0.5 + k * row, c), carry, w)
        return inner.tanh(), seen.sum(0)

    last, sums = aj.scan(outer, aj.ones(4, device=x.device), x)
    return last.sum() + sums.square().sum()


def differentiated(f: Callable[..., aj.Tensor], times: int) -> Callable[..., Any]:
    """The function, its gradient, or the gradient of its gradient's length."""
    for _ in range(times):
        gradient = aj.func.grad(f, argnums=(0, 1))
        f = lambda *x, gradient=gradient: sum(g.square().sum() for g in gradient(*x))
    return f


def called(f: Callable[..., Any], device: str, lengths: list[int]) -> tuple[list[Any], list[dict[str, Any]]]:
    """Results of three calls for each length, and what the function has counted."""
    found: list[Any] = []
    stats: list[dict[str, Any]] = []
    for count in lengths:
        step = aj.jit(f)
        for shift in (0.0, 0.1, -0.2):
            found.append(step(rows(device, count) + shift, rows(device, 4) / 2).detach().cpu().numpy())
        stats.append(step.stats())
        assert "call-back" not in step.explain()
    return found, stats


@TIMES
@pytest.mark.parametrize("program", [recurrent, backwards, nested], ids=lambda f: f.__name__)
def test_a_scan_of_known_length_is_part_of_the_one_graph_of_its_step(
    program: Callable[..., aj.Tensor], times: int
) -> None:
    step = differentiated(program, times)
    (expected, _), (found, stats) = (called(step, device, [4]) for device in ("cpu", "cuda"))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    for counted in stats:
        assert [counted[name] for name in ("fallbacks", "device_entries", "native_calls")] == [0, 1, 2]
        assert counted["graph_launches"] == 2 * counted["graphs"] <= 2  # none where all of it is one launch


@covering("program, most", [recurrent, backwards, nested], [1, 3, 8], every=3)
def test_a_scan_too_long_for_one_run_has_the_same_bits(
    program: Callable[..., aj.Tensor], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, lengths = differentiated(program, 1), [7]
    expected, _ = called(step, "cuda", lengths)
    monkeypatch.setattr(unrolled, "MOST_LAUNCHES", most)
    found, stats = called(step, "cuda", lengths)
    assert [a.tobytes() for a in found] == [a.tobytes() for a in expected]
    assert all(counted["fallbacks"] == 0 and counted["native_calls"] == 2 for counted in stats)
    assert stats[-1]["device_entries"] > 1 or most == 8


def doubling(x: aj.Tensor, w: aj.Tensor) -> aj.Tensor:
    """How many turns depends on the data: from none to more than a new tape has room for."""
    row = w[0]
    last, turns = aj.while_loop(
        lambda c, n: (c.abs().sum() < 20) & (n < 40), lambda c, n: ((c * 1.1 + row).sin() + c, n + 1), (x[0], 0)
    )
    return (last * x).sum() + turns


def branching(x: aj.Tensor, w: aj.Tensor) -> aj.Tensor:
    """One of two, by the sign of a sum; one of them gives back what it was given."""
    y, z = aj.cond(x.sum() > 0, lambda a, b: (a.exp() @ b, a), lambda a, b: (a * 3, a @ b), (x, w))
    return (y * z).sum()


def branches_in_turns(x: aj.Tensor, w: aj.Tensor) -> aj.Tensor:
    """A branch in a scan in a loop."""

    def turn(turns: aj.Tensor, carry: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        def body(c: aj.Tensor, row: aj.Tensor) -> Any:
            chosen = aj.cond(c.sum() > row.sum(), lambda a, b: a * 0.5 + b, lambda a, b: a * 1.5 - b, (c, row))
            return chosen, c

        last, seen = aj.scan(body, carry, x)
        return turns + 1, last + seen.mean(0)

    _, last = aj.while_loop(lambda n, c: (n < 3) & (c.sum() < 50), turn, (0, w[1]))
    return last.square().sum()


def loops_in_branches(x: aj.Tensor, w: aj.Tensor) -> aj.Tensor:
    """A loop and a scan in a branch."""

    def looped(a: aj.Tensor) -> aj.Tensor:
        (found,) = aj.while_loop(lambda c: c.sum() < 30, lambda c: (c * 1.5 + 1,), (a,))
        return found

    def scanned(a: aj.Tensor) -> aj.Tensor:
        return aj.scan(lambda c, row: ((c @ w + row).tanh(), c), a, x)[0]

    return aj.cond(x.sum() > 0, looped, scanned, (x[0],)).square().sum()


@TIMES
@pytest.mark.parametrize(
    "program", [doubling, branching, branches_in_turns, loops_in_branches], ids=lambda f: f.__name__
)
def test_the_host_turns_what_depends_on_data_without_python(program: Callable[..., aj.Tensor], times: int) -> None:
    step = differentiated(program, times)
    (expected, _), (found, stats) = (called(step, device, [3]) for device in ("cpu", "cuda"))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert (stats[0]["fallbacks"], stats[0]["native_calls"]) == (0, 2)


def test_a_condition_of_the_host_turns_a_loop_on_a_device() -> None:
    def f(x: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        turns, last = aj.while_loop(lambda n, c: n < 5, lambda n, c: (n + 1, c * n), (aj.tensor(1), x))
        return turns, last

    for _ in range(2):
        turns, last = aj.jit(f)(rows("cuda", 2))
    assert (turns.device.type, last.device.type, int(turns)) == ("cpu", "cuda", 5)
    np.testing.assert_allclose(last.cpu().numpy(), rows("cpu", 2).numpy() * 24, rtol=1e-6)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_recurrent_networks_train_in_one_graph(kind: str) -> None:
    def trained(device: str) -> tuple[list[Any], Any]:
        aj.manual_seed(0)
        model, scores = getattr(nn, kind)(3, 4, num_layers=2), nn.Linear(4, 2)
        model.to(device)
        scores.to(device)
        optimizer = aj.optim.Adam([*model.parameters(), *scores.parameters()], 1e-2)

        @aj.jit
        def step(x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(scores(model(x)[0][-1]), y)
            loss.backward()
            optimizer.step()
            return loss

        rng = np.random.default_rng(1)
        found: list[Any] = []
        for _ in range(3):
            x, y = rng.standard_normal((4, 2, 3)).astype(np.float32), rng.integers(0, 2, 2)
            found.append(step(aj.tensor(x, device=device), aj.tensor(y, device=device)).item())
        return [*found, *(p.detach().cpu().numpy() for p in model.parameters())], step.stats()

    (expected, _), (found, stats) = trained("cpu"), trained("cuda")
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    assert [stats[name] for name in ("fallbacks", "device_entries", "native_calls")] == [0, 1, 2]
    assert stats["graph_launches"] == 2 * stats["graphs"] <= 2


def scan_of_places(table: aj.Tensor, places: aj.Tensor) -> aj.Tensor:
    return aj.scan(lambda c, k: (c + table[k], c), aj.zeros(3, device=table.device), places)[0]


def loop_of_places(table: aj.Tensor, places: aj.Tensor) -> aj.Tensor:
    zero = aj.zeros((), dtype=aj.int64, device=table.device)
    found = aj.while_loop(
        lambda n, c: n < 4, lambda n, c: (n + 1, c + table[places[n]]), (zero, aj.zeros(3, device=table.device))
    )
    return found[1]


def branch_of_places(table: aj.Tensor, places: aj.Tensor) -> aj.Tensor:
    return aj.cond(places[0] >= 0, lambda t, k: t[k].sum(0), lambda t, k: t[0], (table, places))


@pytest.mark.parametrize("most", [unrolled.MOST_LAUNCHES, 2])
@pytest.mark.parametrize("program", [scan_of_places, loop_of_places, branch_of_places], ids=lambda f: f.__name__)
def test_an_index_out_of_range_in_a_loop_is_named_and_state_is_as_before(
    program: Callable[..., aj.Tensor], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unrolled, "MOST_LAUNCHES", most)
    table, state = rows("cuda", 5, 3), aj.zeros(3, device="cuda")

    @aj.jit
    def step(places: aj.Tensor) -> aj.Tensor:
        state.add_(1)
        found = program(table, places)
        state.mul_(2)
        return found + state

    good, bad = ([1, 0, 4, 2], [1, 0, 5, 2])
    first = step(aj.tensor(good, device="cuda"))
    for _ in range(3):
        before = state.cpu().numpy()
        with pytest.raises(IndexError, match=r"out of (bounds|range)") as caught:
            step(aj.tensor(bad, device="cuda"))
        assert "5" in str(caught.value) and "test_loops.py" in str(caught.value)
        np.testing.assert_array_equal(state.cpu().numpy(), before)
    again = step(aj.tensor(good, device="cuda"))
    np.testing.assert_allclose((again - first).cpu().numpy(), [4.0] * 3)  # 2 (2 + 1) - 2 (0 + 1)


def test_state_is_written_in_turns() -> None:
    """A generator and running statistics that the body of a scan changes."""

    def found(device: str) -> list[Any]:
        aj.manual_seed(5)
        norm = nn.BatchNorm1d(4, affine=False).to(device)

        @aj.jit
        def step(x: aj.Tensor) -> aj.Tensor:
            return aj.scan(lambda c, row: (norm(c) + aj.randn_like(c) * row, c.sum()), x, x[:, :1])[0]

        results = [step(rows(device, 3)) for _ in range(3)]
        return [t.detach().cpu().numpy() for t in (*results, norm.running_mean, norm.running_var)]

    for a, b in zip(found("cuda"), found("cpu"), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_bodies_count_sizes_as_the_cpu_does() -> None:
    def in_a_scan(x: aj.Tensor) -> aj.Tensor:
        return aj.scan(lambda c, row: (c + row[row > 0].sum(), c), x[0, 0], x)[0]

    def in_a_branch(x: aj.Tensor) -> aj.Tensor:
        return aj.cond(x.sum() > 0, lambda x: x[x > 0].sum(), lambda x: (x[x < 0] ** 2).sum(), (x,))

    def in_a_loop(x: aj.Tensor) -> aj.Tensor:
        return aj.while_loop(lambda c: (c > 0.5).any(), lambda c: (c * 0.5 - c[c > 0.2].sum() * 0.01,), (x,))[0]

    for f in (in_a_scan, in_a_branch, in_a_loop):
        step = aj.jit(f)
        for shift in (0.0, 0.3):
            found, expected = (step(rows(device, 3) + shift).cpu().numpy() for device in ("cuda", "cpu"))
            np.testing.assert_allclose(found, expected, rtol=1e-5)
        assert (step.stats()["fallbacks"], step.stats()["splits"]) == (0, 0), step.explain()


@pytest.mark.parametrize("times", [(0, None)], indirect=True)
def test_branches_beside_open_sizes_and_draws_in_bodies_are_those_of_eager_mode(times: int) -> None:
    """A branch of fixed sizes in a loop over an open one; the key that a body draws with is the host's."""

    def chosen(x: aj.Tensor) -> aj.Tensor:
        return aj.scan(lambda z, t: (aj.cond(t > 1, lambda a: a * 2, lambda a: a + 3, (z,)), z), x.sum(), x)[1]

    def drawn(x: aj.Tensor) -> aj.Tensor:
        y = x.clone().requires_grad_()
        last, kept = aj.scan(lambda c, t: (F.dropout(c * t, 0.5).sin(), c), y[0], y)
        return aj.autograd.grad(last.sum() + kept.square().sum(), y)[0]

    for function in (chosen, drawn):
        step = aj.jit(function)
        for n in (3, 4, 5):
            x = rows("cuda", n) if function is drawn else aj.linspace(-1, 2, n, device="cuda")
            aj.manual_seed(n)
            found = step(x)
            aj.manual_seed(n)
            aj.testing.assert_close(found, function(x))
