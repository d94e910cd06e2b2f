"""Calls in which Python decides run natively once their ways have come a few times, whatever is changed in between.

Of every program: results, gradients, state and what is kept outside are those of eager mode, call for call, under
changes of each kind between the calls; where nothing changes, calls no longer go through Python.
"""

from __future__ import annotations

import copy
import gc
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import autojit as aj
from tests.covering import covering

F = aj.nn.functional
CALLS = 40


def net_of(seed: int) -> Any:
    aj.manual_seed(seed)
    return aj.nn.Sequential(aj.nn.Linear(4, 8), aj.nn.ReLU(), aj.nn.Linear(8, 3))


def new_world() -> Any:
    net = net_of(0)
    return SimpleNamespace(
        net=net, opt=aj.optim.Adam(net.parameters(), lr=0.05), kept=[], best=[1e9], scale=1.5, count=0, factor=(2.0,)
    )


def keeps_the_best(w: Any, x: aj.Tensor, y: aj.Tensor) -> Any:
    loss = F.cross_entropy(w.net(x) * w.scale, y)
    w.opt.zero_grad()
    loss.backward()
    w.opt.step()
    value = loss.item()
    w.kept.append(value)
    if value < w.best[0]:
        w.best[0] = value
    return value


def skips(w: Any, x: aj.Tensor, y: aj.Tensor) -> Any:
    loss = F.cross_entropy(w.net(x) * w.factor[0], y)
    if loss > 1.5:
        return None
    w.opt.zero_grad()
    loss.backward()
    norm = aj.nn.utils.clip_grad_norm_(w.net.parameters(), 1.0)
    if norm > 1.0:
        w.count += 1
    w.opt.step()
    return loss.detach()


def chooses(w: Any, x: aj.Tensor, y: aj.Tensor) -> Any:
    p = F.softmax(w.net(x) * w.scale, -1)
    action = int(p[0, 0] < p[0, 1])
    w.kept.append(aj.log(p[0, action]))
    return action


def repeats(w: Any, x: aj.Tensor, y: aj.Tensor) -> Any:
    h, rounds = x, 0
    while h.abs().max() > 0.5 and rounds < 6:
        h, rounds = h * 0.5, rounds + 1
    return h * w.scale, rounds, w.net(h).sum()


def draws(w: Any, x: aj.Tensor, y: aj.Tensor) -> Any:
    h = F.dropout(w.net(x), 0.5)
    return h * 2 if h.sum() > 0 else aj.rand(2) + h.mean()


PROGRAMS = (keeps_the_best, skips, chooses, repeats, draws)


def _other_data(w: Any) -> None:
    w.net[0].weight.data = w.net[0].weight.data * 0.9


def _written(w: Any) -> None:
    with aj.no_grad():
        w.net[2].weight.mul_(1.1)


def _frozen(w: Any) -> None:
    w.net[0].weight.requires_grad_(not w.net[0].weight.requires_grad)


def _evaluating(w: Any) -> None:
    w.net.train(not w.net.training)


def _another_scale(w: Any) -> None:
    w.scale, w.factor = w.scale + 0.25, (w.factor[0] - 0.5,)


def _loaded(w: Any) -> None:
    w.net.load_state_dict(net_of(3).state_dict())


def _another_layer(w: Any) -> None:
    w.net[2] = copy.deepcopy(w.net[2])
    w.opt = aj.optim.Adam(w.net.parameters(), lr=0.05)


def _another_rate(w: Any) -> None:
    w.opt.param_groups[0]["lr"] *= 0.5


def _used(w: Any) -> None:
    if w.kept and isinstance(w.kept[-1], aj.Tensor) and w.kept[-1].requires_grad:
        w.kept[-1].backward()
        w.opt.step()
    w.kept.clear()


def _hooked(w: Any) -> None:
    w.net[1].register_forward_hook(lambda module, args, out: out * 0.5)


def _cleared(w: Any) -> None:
    w.opt.zero_grad()
    w.best[0] = 1e9


def _made_elsewhere(w: Any) -> None:
    aj.nn.Linear(2, 2)
    gc.collect()


CHANGES = (
    _other_data, _written, _frozen, _evaluating, _another_scale, _loaded, _another_layer, _another_rate, _used, _hooked,
    _cleared, _made_elsewhere,
)  # fmt: skip


def _arguments(rng: np.random.Generator, k: int) -> tuple[aj.Tensor, aj.Tensor]:
    size = 2 if k % 11 == 7 else 5
    x = aj.tensor(rng.normal(size=(size, 4)).astype(np.float32) * (0.2 + k % 3))
    if k % 13 == 9:
        x = aj.tensor(np.ascontiguousarray(x.numpy().T)).t()
    return x, aj.tensor(rng.integers(3, size=size))


def _seen(found: Any) -> Any:
    if isinstance(found, tuple):
        return tuple(map(_seen, found))
    return (found.requires_grad, found.detach().numpy().copy()) if isinstance(found, aj.Tensor) else found


def _history(program: Callable[..., Any], changes: Any, seed: int, is_compiled: bool) -> tuple[list[Any], Any]:
    rng, w = np.random.default_rng(seed), new_world()
    called = aj.jit(lambda x, y: program(w, x, y)) if is_compiled else lambda x, y: program(w, x, y)
    aj.manual_seed(seed)
    told: list[Any] = []
    for k in range(CALLS):
        if k % 8 == 7:
            changes[int(rng.integers(len(changes)))](w)
        with aj.set_grad_enabled(k % 10 != 6 or program not in (chooses, repeats, draws)):
            told.append(_seen(called(*_arguments(rng, k))))
        told.append([_seen(kept) for kept in w.kept[-2:]])
    told += [w.best[0], w.count, *[_seen(p) for p in w.net.parameters()]]
    return told, called


def _same(found: Any, wanted: Any) -> None:
    if isinstance(wanted, list | tuple):
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            _same(a, b)
    elif isinstance(wanted, float | np.ndarray):
        np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=1e-5)
    else:
        assert found == wanted and type(found) is type(wanted)


@pytest.mark.filterwarnings("ignore:jit.*served no second call")  # so many changes are warned of
@covering("program, change, seed", PROGRAMS, CHANGES, [0, 1, 2], every=2)
def test_changes_between_calls(program: Any, change: Any, seed: int) -> None:
    changes = (change, CHANGES[(CHANGES.index(change) + seed + 1) % len(CHANGES)])
    wanted, _ = _history(program, changes, seed, is_compiled=False)
    found, _ = _history(program, changes, seed, is_compiled=True)
    _same(found, wanted)


@pytest.mark.parametrize("program", PROGRAMS)
def test_calls_are_native_once_their_ways_have_come(program: Any) -> None:
    w = new_world()
    rng = np.random.default_rng(0)
    batches = [(aj.tensor(rng.normal(size=(5, 4)).astype(np.float32)), aj.tensor([0, 1, 2, 0, 1])) for _ in range(3)]
    called = aj.jit(lambda x, y: program(w, x, y))
    for k in range(60):
        called(*batches[k % 3])
        w.best[0] = 1e9
    before = called.stats()
    for k in range(30):
        called(*batches[k % 3])
        w.best[0] = 1e9
    after = called.stats()
    assert after["captures"] == before["captures"]
    assert after["native_calls"] - before["native_calls"] >= 28
    assert "Python decides" in called.explain()


def test_an_outcome_that_has_not_come_before_is_captured() -> None:
    @aj.jit
    def sign(x: aj.Tensor) -> Any:
        return "up" if x.sum() > 0 else "down"

    up, down = aj.ones(3), -aj.ones(3)
    assert [sign(up) for _ in range(10)] == ["up"] * 10
    assert sign(down) == "down"
    assert [sign(x) for x in (up, down) * 10] == ["up", "down"] * 10
    assert sign.stats()["captures"] == 2


def test_what_a_decision_fails_of_is_told_as_eager_mode_tells_it() -> None:
    table = aj.arange(5.0)

    @aj.jit
    def looked_up(k: aj.Tensor) -> Any:
        return "high" if table[k].sum() > 2 else "low"

    for _ in range(8):
        assert looked_up(aj.tensor([3])) == "high"
        assert looked_up(aj.tensor([0])) == "low"
    with pytest.raises(IndexError, match="out of"):
        looked_up(aj.tensor([7]))
    assert looked_up(aj.tensor([4])) == "high"


def test_threads_do_not_see_what_others_decide_on() -> None:
    weight = aj.tensor([1.0, -2.0, 3.0])

    @aj.jit
    def chosen(x: aj.Tensor) -> Any:
        s = x * weight
        return s * 2 if s.sum() > 0 else s - 1

    arguments = [aj.tensor(np.random.default_rng(k).normal(size=3).astype(np.float32)) for k in range(8)]
    wanted = [chosen.function(x).tolist() for x in arguments]
    for x in arguments * 4:
        chosen(x)
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(300):
            if not np.allclose(chosen(arguments[k]).tolist(), wanted[k]):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_calls_of_several_kinds_that_decide_take_turns() -> None:
    @aj.jit
    def chosen(x: aj.Tensor, how: Any) -> Any:
        y = x * 2 if how is None else x + how["by"] if type(how) is dict else x - how[0]
        return y.sum() if y.sum() > 0 else -2 * y.sum()

    kinds = (None, {"by": 1.5}, (0.5,))
    rng = np.random.default_rng(0)
    for k in range(90):
        x = aj.tensor(rng.normal(size=3).astype(np.float32))
        found, wanted = chosen(x, kinds[k % 3]), chosen.function(x, kinds[k % 3])
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-5)
    assert chosen.stats()["native_calls"] >= 60
