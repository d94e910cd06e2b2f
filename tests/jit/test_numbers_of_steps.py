"""Numbers that change from call to call, as arguments, counters and hyper-parameters: one step serves all values."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import math
import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.core.errors import TraceError
from autojit.jit.number_ranges import ANY, Range, combined, compared, power
from autojit.nn import functional as F
from tests.jit.agreement import Program, agree

FLOATS = (0.5, 0.7, 0.25, 0.9, 0.61)


def sample() -> aj.Tensor:
    return aj.linspace(0.1, 0.9, 6).reshape(2, 3)


def calls(*values: Any) -> list[tuple[Any, ...]]:
    return [(sample(), value) for value in values]


def _assigned(x: aj.Tensor, a: float) -> aj.Tensor:
    y = x.clone()
    y[0] = a
    y[1, 1:] = a * 2
    return y


def _descended(x: aj.Tensor, a: float) -> aj.Tensor:
    w = aj.ones(3, requires_grad=True)
    optimiser = aj.optim.SGD([w], lr=a)
    (w * x).sum().backward()
    optimiser.step()
    return w.detach()


def _slope(x: aj.Tensor, a: float) -> aj.Tensor:
    z = x.clone().requires_grad_()
    return aj.autograd.grad((z**2 * a).sum() * a, z)[0]


@pytest.mark.parametrize("dtype", [aj.bool, aj.int32, aj.float16, aj.float64, aj.complex64], ids=str)
@pytest.mark.parametrize("taken", [2, 0.5])
def test_a_number_taken_from_a_tensor_widens_others_as_a_plain_one(taken: float, dtype: aj.dtype) -> None:
    def step(x: aj.Tensor, t: aj.Tensor) -> Any:
        n = t.item()
        return x + n, n * x, n / (x + 2), x == n

    agree(lambda: Program(step, [(aj.tensor([0, 1, 3]).to(dtype), aj.tensor(taken * k)) for k in (1, 2, 3)]))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, a: (x * a, a * 2, -a, abs(a), [a], {"k": a}),
        lambda x, a: aj.arange(3) * a,  # an int tensor times a float: the default float
        lambda x, a: (x**a, a**x, x**2 * a**2, (1 + a**2) ** 0.5 * x),
        lambda x, a: (x.clamp(max=a), x.clamp_min(a), aj.clamp(x, 0.2, a), F.hardtanh(x, -a, a)),
        lambda x, a: (aj.full((2,), a), aj.full_like(x, a), x.new_full((2,), a), aj.tensor(a), aj.tensor([a, 1.0])),
        lambda x, a: (aj.where(x > a, x, a), aj.where(x > 0.5, a, 0.0), x.masked_fill(x > 0.5, a)),
        lambda x, a: (aj.add(x, x, alpha=a), aj.addcmul(x, x, x, value=a), x.clone().addcdiv_(x, x + 1, value=-a)),
        lambda x, a: (F.leaky_relu(x - 0.5, a), F.elu(x - 0.5, a), F.softplus(x, beta=a), F.threshold(x, a, 0.0)),
        lambda x, a: (F.layer_norm(x, (3,), eps=a), F.cross_entropy(x, aj.tensor([0, 1]), label_smoothing=a)),
        lambda x, a: (x.clone().fill_(a), x.nan_to_num(nan=a), aj.nn.init.constant_(aj.empty(2), a)),
        lambda x, a: aj.distributions.Normal(0.0, a).log_prob(x),
        lambda x, a: (1 / a * x, x / a, a - x, a // 0.3 * x, a % 0.3 * x),
        lambda x, a: x * 2 if isinstance(a, float) else x * 3,
        lambda x, a: (
            a + x.cumsum(0),
            aj.stack([x[0, 0], aj.tensor(a)]),
            x.lerp(x * 2, a),
            x.clone().lerp_(x + 1, 1 - a),
        ),
        _assigned,
        _descended,
        _slope,
    ],
)
def test_a_float_argument_is_one_input_of_every_use(function: Callable[..., Any]) -> None:
    agree(lambda: Program(function, calls(*FLOATS)), captures=2)


OPTIMISERS = [
    name
    for name in sorted(aj.optim.__all__)
    if isinstance(cls := getattr(aj.optim, name), type)
    and issubclass(cls, aj.optim.Optimizer)
    and name not in ("LBFGS", "Optimizer", "SparseAdam")  # a closure, no algorithm, sparse gradients
]


@pytest.mark.parametrize("option", ["lr", "weight_decay"])
@pytest.mark.parametrize("name", OPTIMISERS)
def test_an_optimiser_made_in_a_step_takes_a_float_argument_as_an_input(name: str, option: str) -> None:
    """What checks options must not use their digits where nothing is wrong."""
    if option not in inspect.signature(getattr(aj.optim, name)).parameters:
        pytest.skip(f"{name} has no {option}")

    def step(x: aj.Tensor, a: float) -> aj.Tensor:
        w = aj.ones(3, 3, requires_grad=True)
        optimiser = getattr(aj.optim, name)([w], **{option: a})
        (w * x[:1]).sum().backward()
        optimiser.step()
        return w.detach()

    if (name, option) == ("ASGD", "lr"):  # its state begins at the rate, outside of the step
        with pytest.raises(TraceError, match="is used outside the step"):
            agree(lambda: Program(step, calls(*FLOATS)))
        return
    agree(lambda: Program(step, calls(*FLOATS)), captures=None if (name, option) == ("Rprop", "lr") else 2)


@pytest.mark.parametrize(
    "function",
    [
        lambda a: math.exp(-a) + math.log1p(a) + math.tanh(a),
        lambda a: (1 + math.cos(math.pi * a)) / 2 + math.sin(a) * math.atan(a),
        lambda a: math.sqrt(a) + math.log(a) + math.log(a, 2) + math.log2(a) + math.log10(a),
        lambda a: math.atan2(a, 0.3) + math.hypot(0.1, a) + math.pow(a, 2),
        lambda a: min(a, 0.6) + max(0.3, a, a * a) + min(5.0, max(0.2, 0.9 * a)) + max(a, 0.0),
        lambda a: math.floor(a * 10) + math.ceil(a * 10) + round(a * 10),
        lambda a: np.sqrt(a) + np.exp(a) + np.float64(2) * a + np.power(a, 2),
        lambda a: 1.0 if math.isfinite(a) and not math.isnan(a) and not math.isinf(a) else 0.0,
        lambda a: math.erf(a) + math.erfc(a) + math.asin(a) + math.acos(a) + math.cosh(a) + math.sinh(a),
    ],
)
def test_functions_of_math_stay_in_the_step(function: Callable[[Any], Any]) -> None:
    agree(lambda: Program(lambda x, a: x * function(a), calls(*FLOATS)), captures=2)


def test_math_is_itself_again_after_a_capture() -> None:
    before = dict(vars(math)), min, max
    step = aj.jit(lambda x, a: x * math.sqrt(a))
    for value in (1.0, 4.0, 9.0):
        assert step(aj.ones(1), value).item() == math.sqrt(value)
    assert (dict(vars(math)), min, max) == before


@pytest.mark.parametrize(
    ("function", "bad"),
    [
        (math.sqrt, -1.0),
        (math.log, 0.0),
        (math.exp, 1000.0),
        (math.acos, 2.0),
        (math.cos, math.inf),
        (lambda a: 1 / a, 0.0),
    ],
)
def test_python_errors_of_numbers_are_raised(function: Callable[[float], float], bad: float) -> None:
    step = aj.jit(lambda x, a: x * function(a))
    for value in (0.5, 0.25, 0.5):
        assert step(aj.ones(1), value).item() == pytest.approx(function(value))
    with pytest.raises((ValueError, ArithmeticError)) as expected:
        function(bad)
    with pytest.raises(expected.type):
        step(aj.ones(1), bad)
    assert step(aj.ones(1), 0.5).item() == pytest.approx(function(0.5))


def test_an_int_that_counts_is_an_input_from_its_second_value_on() -> None:
    def decode(x: aj.Tensor, position: int) -> Any:
        cache = x.new_zeros(12, 3)
        cache[position] = x.sum(0)
        return cache, (aj.arange(12) <= position).sum(), position + 1

    agree(lambda: Program(decode, calls(*range(12))), captures=2)
    agree(lambda: Program(decode, calls(*range(5, 12), *range(5, 12))), captures=2)
    agree(lambda: Program(decode, calls(1, 3, 5, 7, 9, 11)), captures=5)  # which is no counting: the fifth value


def test_two_ints_that_count_together_are_inputs() -> None:
    step = aj.jit(lambda x, i, j: x[i] * j)
    x = aj.arange(10.0)
    for k in range(8):
        assert step(x, k, k + 1).item() == k * (k + 1)
    assert step.stats()["captures"] == 2


def test_what_python_decides_on_numbers_guards_steps_by_its_outcome() -> None:
    """One capture for the first value, then one for each way that the decisions go; no call is split."""

    def accumulate(x: aj.Tensor, i: int, scale: float = 1.0) -> Any:
        x = x * (2.0 if scale > 0.5 else i)
        return x + 1 if (i + 1) % 4 == 0 or i * i > 10**6 else x * i

    step = aj.jit(accumulate)
    for k in [*range(24), 3, 2000, 3_000_000_000, 2**40, 7]:
        assert step(aj.ones(1), k).item() == pytest.approx(accumulate(aj.ones(1), k).item())
    assert step.stats()["captures"] <= 5, "of small numbers three"
    assert step.stats()["splits"] == 0
    assert step.stats()["native_calls"] >= 18
    for scale in (0.1, float("nan"), 0.7, float("inf"), -0.0):
        for _ in range(2):
            assert step(aj.ones(1), 5, scale=scale).item() == accumulate(aj.ones(1), 5, scale).item()


def test_an_int_that_python_decides_on_in_many_ways_is_fixed() -> None:
    def powers(x: aj.Tensor, n: int) -> aj.Tensor:
        k = 0
        while k < n:
            x, k = x * 2, k + 1
        return x

    step = aj.jit(powers)
    for n in range(24):
        assert step(aj.ones(1), n).item() == 2.0**n
    assert "in more than 16 ways" in step.explain(verbose=True)
    for n in [*range(24), *range(24)]:  # a kind of arguments that comes again is captured, whatever came before
        assert step(aj.ones(1), n).item() == 2.0**n
    captures = step.stats()["captures"]
    for n in range(24):
        step(aj.ones(1), n)
    assert step.stats()["captures"] == captures


def test_the_fifth_value_of_an_int_argument_makes_it_an_input() -> None:
    def step(x: aj.Tensor, i: int) -> Any:
        return (x * i, i + 1, i / 2, x.masked_fill(x > 0.5, i), 0.9**i) if i else x

    compiled = agree(lambda: Program(step, calls(*range(1, 40), 0)), captures=3)
    assert compiled.stats()["splits"] == 0


@pytest.mark.parametrize(
    ("values", "captures"),
    [([*np.linspace(0.1, 1, 6), 0.3], 3), ([np.int64(k) for k in range(12)], 5), ([np.float32(a) for a in FLOATS], 2)],
)
def test_numbers_of_numpy_are_numbers(values: list[Any], captures: int) -> None:
    step = aj.jit(lambda x, a: x * a + a)
    for value in values:
        assert step(aj.ones(1), value).item() == pytest.approx(2 * float(value))
    assert step.stats()["captures"] == captures


def test_digits_of_an_argument_fix_it_again() -> None:
    def repeated(x: aj.Tensor, n: int) -> aj.Tensor:
        for _ in range(n):
            x = x * 1.5
        return x

    compiled = agree(lambda: Program(repeated, calls(*range(1, 9), 1, 2)), captures=8)
    assert "numbers were fixed: their digits are used at" in compiled.explain()
    assert compiled.stats()["splits"] == 0


def test_an_int_argument_as_an_index_is_a_view() -> None:
    def step(x: aj.Tensor, i: int) -> Any:
        y = x.clone()
        y[i].add_(10.0)
        y[i] = y[i] * 2
        y[:, i].mul_(3.0)
        return y, y[i, 0].item(), y[-i - 1].sum()

    agree(lambda: Program(step, [(aj.rand(9, 9), i) for i in (*range(9), *range(-8, 0))]), captures=3)
    agree(lambda: Program(step, [(aj.rand(3, 3), i) for i in (0, 1, 2, -1, -2, -3)]), captures=3)


def test_an_index_out_of_range_is_an_index_error() -> None:
    step = aj.jit(lambda x, i: x[i] * 2)
    x = aj.arange(8.0)
    for i in range(8):
        assert step(x, i).item() == 2 * i
    for i in (8, -9, 100):
        with pytest.raises(IndexError, match="out of bounds for dimension 0 with size 8"):
            step(x, i)
    assert step(x, -8).item() == 0
    assert step.stats()["captures"] == 3  # negative numbers have a step of their own


def test_a_schedule_read_by_an_int_runs_natively() -> None:
    betas = aj.linspace(0.1, 1.0, 50)
    step = aj.jit(lambda x, t: x * betas[t])
    for t in reversed(range(50)):
        assert step(aj.ones(2), t)[0].item() == pytest.approx(betas[t].item())
    assert step.stats()["captures"] == 5
    assert step.stats()["native_calls"] >= 44


def test_the_sign_of_an_argument_is_known_to_its_step() -> None:
    step = aj.jit(lambda x, a, k: x * math.sqrt(a) + a**1.5 / math.log1p(a) + k / (k + 1) + math.cos(0.1 * k))
    for k in range(12):
        a = 0.5 + 0.1 * k
        expected = math.sqrt(a) + a**1.5 / math.log1p(a) + k / (k + 1) + math.cos(0.1 * k)
        assert step(aj.ones(1), a, k).item() == pytest.approx(expected, rel=1e-6)
    assert step.stats()["native_calls"] >= 6
    before = step.stats()["captures"]
    assert step(aj.ones(1), 4.0, 0).item() == pytest.approx(3 + 8 / math.log(5.0), rel=1e-6)
    assert step.stats()["captures"] == before
    with pytest.raises(ValueError) as by_python:
        math.sqrt(-4.0)
    with pytest.raises(ValueError, match=re.escape(str(by_python.value))):  # versions of Python word it in their way
        step(aj.ones(1), -4.0, 0)


def test_writing_through_a_row_that_a_tensor_chooses() -> None:
    def step(x: aj.Tensor, i: aj.Tensor) -> Any:
        w = x.clone().requires_grad_()
        y = w * 1.0
        y[i].add_(10.0)
        row = y[i]
        row.mul_(2.0)
        row[0] = 5.0
        y[i, 1:].mul_(3.0)
        (slope,) = aj.autograd.grad((y**2).sum(), w)
        return y.detach(), slope

    agree(lambda: Program(step, [(aj.rand(4, 3), aj.tensor(i)) for i in (0, 3, 2, -1)]), captures=1)


class OwnAdam(aj.optim.Optimizer):
    """Adam as users write it, with a step counter that is an int."""

    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, {"lr": lr, "betas": (0.9, 0.99), "weight_decay": 0.0})

    @aj.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["step"], state["m"], state["v"] = 0, aj.zeros_like(p), aj.zeros_like(p)
                state["step"] += 1
                grad = p.grad if group["weight_decay"] == 0 else p.grad.add(p, alpha=group["weight_decay"])
                state["m"].mul_(b1).add_(grad, alpha=1 - b1)
                state["v"].mul_(b2).addcmul_(grad, grad, value=1 - b2)
                size = group["lr"] * math.sqrt(1 - b2 ** state["step"]) / (1 - b1 ** state["step"])
                p.addcdiv_(state["m"], state["v"].sqrt().add_(1e-8), value=-size)


def test_an_optimiser_of_the_user_with_a_counter_and_a_schedule() -> None:
    x = aj.linspace(-1.0, 1.0, 40).reshape(10, 4)
    found = []
    for compile_it in (False, True):
        model = aj.nn.Linear(4, 1)
        with aj.no_grad():
            model.weight.fill_(0.3)
            model.bias.zero_()
        optimiser = OwnAdam(model.parameters(), 0.05)
        schedule = aj.optim.lr_scheduler.ExponentialLR(optimiser, 0.99)

        def step(x: aj.Tensor, model: Any = model, optimiser: Any = optimiser) -> aj.Tensor:
            optimiser.zero_grad()
            loss = (model(x) ** 2 - x.sum(1, keepdim=True)).square().mean()
            loss.backward()
            optimiser.step()
            return loss.detach()

        run = aj.jit(step) if compile_it else step
        for _ in range(80):
            loss = run(x)
            schedule.step()
        found.append(loss.item())
    assert found[1] == pytest.approx(found[0], rel=1e-5)
    assert run.stats()["captures"] <= 3
    assert run.stats()["splits"] == 0


def test_ranges() -> None:
    unit, counts = Range(0.0, 1.0), Range(1.0, 2.0**63)
    assert power(Range(0.99, 0.99), counts) == Range(0.0, 0.99)
    assert combined("sub", Range(1.0, 1.0), Range(0.0, 0.99)).low > 0
    assert combined("mul", Range(-2.0, 3.0), Range(-1.0, 1.0))[:2] == (-3.0, 3.0)
    assert combined("truediv", unit, unit) == ANY
    assert Range(-3.0, 2.0).magnitude() == unit._replace(high=3.0)
    assert compared("lt", Range(0.0, 1.0), Range(2.0, 3.0)) is True
    assert compared("ge", Range(0.0, 1.0), Range(2.0, 3.0)) is False
    assert compared("ne", unit, Range(2.0, 2.0)) is True
    assert compared("lt", ANY, unit) is None
    assert compared("le", unit, unit) is None


def test_a_step_without_such_numbers_leaves_math_alone() -> None:
    seen = []

    @aj.jit
    def step(x: aj.Tensor, a: float) -> aj.Tensor:
        seen.append((math.exp, min))
        return x * a

    step(aj.ones(2), 1.0)
    assert seen == [(math.exp, min)]


def test_places_that_a_step_computes() -> None:
    def best_path(scores: aj.Tensor, transitions: aj.Tensor) -> Any:
        total, back = scores[0], []
        for row in scores[1:]:
            best, places = (transitions + total).max(1)
            total = row + best
            back.append(places)
        path = [total.argmax().item()]
        for places in reversed(back):
            path.insert(0, places[path[0]].item())
        return path, total.max()

    generator = np.random.default_rng(0)
    given = [tuple(aj.tensor(generator.normal(size=shape)) for shape in ((5, 4), (4, 4))) for _ in range(4)]
    step = agree(lambda: Program(best_path, given), captures=1)
    assert step.stats()["splits"] == 0


def test_a_number_of_the_step_is_copied_and_pickled_as_a_number() -> None:
    @dataclasses.dataclass
    class Options:
        rate: float = 1.5
        name: str = "a"

    def run(jit: Callable[[Any], Any]) -> list[Any]:
        options = Options()

        def step(x: Any) -> Any:
            total = x.sum().item()
            parts = [copy.copy(total), copy.deepcopy([total])[0], pickle.loads(pickle.dumps(total))]
            y = x - dataclasses.asdict(options)["rate"] * sum(parts)
            options.rate *= 2
            return y

        call = jit(step)
        return [(call(aj.tensor([1.0, k])).tolist(), options.rate) for k in range(3)]

    assert run(aj.jit) == run(lambda f: f)


def test_a_power_of_what_is_surely_positive_needs_no_look_at_its_digits() -> None:
    def step(x: aj.Tensor) -> aj.Tensor:
        return x * (abs(x.sum().item()) + 0.5) ** -1.5

    assert agree(lambda: Program(step, [(sample() * k,) for k in range(4)])).stats()["splits"] == 0


@pytest.mark.parametrize("kind", [float, np.float64, int])
def test_a_list_of_numbers_of_both_signs_is_no_choice_of_signs(kind: Any) -> None:
    """Steps know of numbers whether they are positive; one that has been of both is taken for both from then on."""

    def returns(rewards: list[Any], x: aj.Tensor) -> Any:
        total, found = 0.0, []
        for reward in reversed(rewards):
            total = reward + 0.9 * total
            found.append(total)
        return (x * aj.tensor(found, dtype=aj.float64)).sum(), found[-1]

    rng = np.random.default_rng(0)
    given = [[kind(v) for v in rng.normal(size=6) * 20] for _ in range(80)]
    step = aj.jit(returns)
    x = aj.ones(6, dtype=aj.float64)
    for rewards in given:
        wanted, found = returns(rewards, x), step(rewards, x)
        assert found[0].item() == pytest.approx(wanted[0].item()) and found[1] == pytest.approx(wanted[1])
    assert step.stats()["captures"] <= 12
    assert step.stats()["eager_calls"] == 0


def test_a_number_that_turns_negative_costs_one_capture() -> None:
    step = aj.jit(lambda x, rate: x * rate)
    for rate in (0.5, 0.25, -0.5, 0.75, -0.25, 0.0, 1e9, float("inf"), float("nan")):
        np.testing.assert_equal(step(aj.ones(2), rate).numpy(), np.full(2, rate, np.float32))
    assert step.stats()["captures"] <= 3
