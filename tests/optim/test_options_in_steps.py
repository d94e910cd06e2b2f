"""Options of optimisers that a compiled step changes: groups assigned to, schedules stepped, as in eager mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any

import pytest

import autojit as aj
from autojit.optim import lr_scheduler

Body = Callable[[aj.Tensor, aj.optim.Optimizer, Callable[[], aj.Tensor]], Any]
CALLS = 5


@pytest.fixture(autouse=True)
def _in_float64() -> Iterator[None]:
    aj.set_default_dtype(aj.float64)
    yield
    aj.set_default_dtype(aj.float32)


def _after(x: aj.Tensor, opt: aj.optim.Optimizer, update: Callable[[], aj.Tensor]) -> None:
    update()
    opt.param_groups[0]["lr"] *= 0.9


def _before(x: aj.Tensor, opt: aj.optim.Optimizer, update: Callable[[], aj.Tensor]) -> None:
    for group in opt.param_groups:
        group["lr"] = group["lr"] * 0.5
    update()


def _constant(x: aj.Tensor, opt: aj.optim.Optimizer, update: Callable[[], aj.Tensor]) -> None:
    opt.param_groups[1]["lr"] = 0.003
    update()
    opt.param_groups[1].update(lr=0.004)


def _new(x: aj.Tensor, opt: aj.optim.Optimizer, update: Callable[[], aj.Tensor]) -> Any:
    update()
    base = opt.param_groups[0].setdefault("base", 0.01)
    opt.param_groups[0]["lr"] = base / 2
    opt.param_groups[0]["calls"] = opt.param_groups[0].get("calls", 0) + 1
    return opt.param_groups[0]["calls"]


def _from_values(x: aj.Tensor, opt: aj.optim.Optimizer, update: Callable[[], aj.Tensor]) -> None:
    loss = update()
    opt.param_groups[0]["lr"] = 0.01 / (1.0 + loss.item())


def _decay(x: aj.Tensor, opt: aj.optim.Optimizer, update: Callable[[], aj.Tensor]) -> Any:
    opt.param_groups[0]["weight_decay"] = 0.1
    update()
    return opt.param_groups[0]["weight_decay"]


@pytest.mark.parametrize("body", [_after, _before, _constant, _new, _from_values, _decay])
@pytest.mark.parametrize("name", ["SGD", "AdamW", "RMSprop"])
def test_a_step_that_assigns_options_of_groups_is_as_in_eager_mode(body: Body, name: str) -> None:
    eager, compiled = _run(lambda f: f, body, name), _run(aj.jit, body, name)
    for place, (a, b) in enumerate(zip(eager, compiled, strict=True)):
        aj.testing.assert_close(a, b, rtol=1e-12, atol=1e-12, msg=f"at {place}")


def _run(jit: Any, body: Body, name: str) -> list[Any]:
    w, v = aj.ones(3, requires_grad=True), aj.full((3,), 0.5, requires_grad=True)
    opt = getattr(aj.optim, name)([{"params": [w]}, {"params": [v], "lr": 0.02}], lr=0.01)
    step = jit(lambda x: body(x, opt, lambda: _update(x, opt, w, v)))
    found = []
    for k in range(CALLS):
        result = step(aj.ones(3) * 0.1 * (k + 1))
        found.append([result or 0, w.detach().clone(), v.detach().clone()])
        found.append([value for group in opt.param_groups for value in group.values() if type(value) in (int, float)])
        if k == 2:
            opt.param_groups[0]["lr"] = 0.03
    return found


def _update(x: aj.Tensor, opt: aj.optim.Optimizer, w: aj.Tensor, v: aj.Tensor) -> aj.Tensor:
    opt.zero_grad()
    loss = (w * x + v * v * x).pow(2).sum()
    loss.backward()
    opt.step()
    return loss.detach()


def test_assigned_options_cost_no_captures_and_leave_other_steps_right() -> None:
    w = aj.ones(3, requires_grad=True)
    opt = aj.optim.SGD([w], lr=0.1)

    @aj.jit
    def decaying(x: aj.Tensor) -> None:
        _update(x, opt, w, w)
        opt.param_groups[0]["lr"] *= 0.5

    read = aj.jit(lambda x: x * opt.param_groups[0]["lr"])
    for k in range(6):
        decaying(aj.ones(3) * 0.1)
        assert read(aj.ones(1)).item() == pytest.approx(0.1 * 0.5 ** (k + 1))
    assert decaying.stats()["captures"] == 1


def test_options_that_a_step_reads_are_read_at_every_call() -> None:
    w = aj.ones(3, requires_grad=True)
    opt = aj.optim.SGD([w], lr=0.1)
    step = aj.jit(lambda x: x * opt.param_groups[0]["lr"] + opt.param_groups[0].get("extra", 1.0))
    for k in range(5):
        group = opt.param_groups[0]
        assert step(aj.ones(1)).item() == pytest.approx(group["lr"] + group.get("extra", 1.0))
        group["lr"] *= 0.5
        if k == 3:
            group["extra"] = 3.0


SCHEDULES: dict[str, Callable[[aj.optim.Optimizer], Any]] = {
    "exponential": lambda opt: lr_scheduler.ExponentialLR(opt, 0.5),
    "lambda": lambda opt: lr_scheduler.LambdaLR(opt, lambda epoch: 1.0 / (epoch + 1)),
    "one cycle": lambda opt: lr_scheduler.OneCycleLR(opt, 0.1, total_steps=20, cycle_momentum=False),
    "warm restarts": lambda opt: lr_scheduler.CosineAnnealingWarmRestarts(opt, 2),
    "sequential": lambda opt: lr_scheduler.SequentialLR(
        opt, [lr_scheduler.ConstantLR(opt, 0.5), lr_scheduler.ExponentialLR(opt, 0.5)], [2]
    ),
    "plateau": lambda opt: lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=0, threshold=10.0),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_steps_at_every_call(name: str) -> None:
    def run(jit: Any) -> list[Any]:
        w = aj.ones(3, requires_grad=True)
        opt = aj.optim.SGD([w], lr=0.01)
        schedule = SCHEDULES[name](opt)

        @jit
        def step(x: aj.Tensor) -> aj.Tensor:
            loss = _update(x, opt, w, w)
            schedule.step(*([loss] if name == "plateau" else []))
            return loss

        found = [[step(aj.ones(3) * 0.1), opt.param_groups[0]["lr"], schedule.last_epoch] for _ in range(CALLS)]
        if jit is aj.jit:
            assert step.stats()["captures"] == 1
        return found

    for a, b in zip(run(lambda f: f), run(aj.jit), strict=True):
        aj.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.filterwarnings("ignore:Detected call of")
@pytest.mark.parametrize("order", list(permutations(("step", "schedule", "zero_grad"))))
@pytest.mark.parametrize("every", [1, 3])
def test_the_three_calls_after_backward_are_native_in_any_order(order: tuple[str, ...], every: int) -> None:
    """Every order is written by somebody; all but one schedule before ``optimizer.step`` are one native call."""

    def run(compile: Callable[[Any], Any]) -> tuple[list[Any], Any]:
        w = aj.nn.Parameter(aj.ones(3))
        opt = aj.optim.SGD([w], lr=0.1, momentum=0.9)
        schedule = lr_scheduler.CosineAnnealingLR(opt, 20)
        calls = {"step": opt.step, "schedule": schedule.step, "zero_grad": opt.zero_grad}

        def step(x: aj.Tensor, number: int) -> aj.Tensor:
            loss = ((w * x) ** 2).mean()
            loss.backward()
            if (number + 1) % every == 0:
                for name in order:
                    calls[name]()
            return loss

        compiled = compile(step)
        found = [[float(compiled(aj.ones(3) * 0.1, k)), opt.param_groups[0]["lr"], *w.tolist()] for k in range(24)]
        return found, compiled

    wanted, _ = run(lambda step: step)
    found, compiled = run(aj.jit)
    for one, other in zip(found, wanted, strict=True):
        assert one == pytest.approx(other, rel=1e-12)
    if order.index("step") < order.index("schedule"):
        assert compiled.stats()["native_calls"] >= 12, compiled.explain()


@pytest.mark.filterwarnings("ignore:Detected call of")
def test_what_a_schedule_will_have_changed_is_read_line_by_line() -> None:
    def run(jit: Any) -> list[Any]:
        w = aj.ones(3, requires_grad=True)
        opt = aj.optim.SGD([w], lr=0.01)
        schedule = lr_scheduler.ExponentialLR(opt, 0.5)

        def step(x: aj.Tensor) -> None:
            schedule.step()
            _update(x, opt, w, w)

        def making(x: aj.Tensor) -> None:
            lr_scheduler.ExponentialLR(opt, 0.5)

        compiled = [jit(step), jit(making)]
        for k in range(4):
            compiled[k % 2](aj.ones(3))
        assert jit is not aj.jit or all("line by line" in each.explain() for each in compiled)
        return [schedule.last_epoch, opt.param_groups[0]["lr"], w.tolist()]

    assert run(aj.jit) == run(lambda f: f)


@pytest.mark.parametrize("change", ["load", "add", "append", "replace", "params", "clear"])
def test_what_no_step_does_to_an_optimiser_happens_at_every_call(change: str) -> None:
    def run(jit: Any) -> list[Any]:
        w, v, u = (aj.ones(3, requires_grad=True) for _ in range(3))
        opt = aj.optim.Adam([w], lr=0.01)
        other = aj.optim.Adam([w], lr=0.5)

        def step(x: aj.Tensor) -> None:
            _update(x, opt, w, v)
            if change == "load":
                opt.load_state_dict(other.state_dict())
            elif change == "add":
                opt.add_param_group({"params": [aj.nn.Parameter(u * len(opt.param_groups))]})
            elif change == "append":
                opt.param_groups.append(dict(opt.param_groups[0], params=[v]))
            elif change == "clear":
                opt.state.clear()
            elif change == "replace":
                opt.param_groups = [dict(opt.param_groups[0], lr=0.3)]
            else:
                opt.param_groups[0]["params"] = [v]

        compiled = jit(step)
        for _ in range(3):
            compiled(aj.ones(3))
        assert jit is not aj.jit or "line by line" in compiled.explain()
        return [repr([*opt.state.values(), *opt.param_groups]), w.tolist(), v.tolist()]

    assert run(aj.jit) == run(lambda f: f)
