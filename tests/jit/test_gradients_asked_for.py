"""Steps that ask for the gradients of some tensors, where histories outside may lead to these.

Law: `autograd.grad` and `backward(inputs=)` in a step give what they give in eager mode, whatever was computed outside
and how that changes from call to call; a call that needs a history outside for that runs line by line, and says so.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit import nn

# how the step asks, given the loss and the tensor whose gradient it asks for
ASKS: dict[str, Callable[[Any, Any], Any]] = {
    "grad": lambda loss, t: aj.autograd.grad(loss, [t]),
    "of those that may be unused": lambda loss, t: aj.autograd.grad(loss, [t], allow_unused=True),
    "zeros where unused": lambda loss, t: aj.autograd.grad(loss, t, materialize_grads=True),
    "with a history": lambda loss, t: [g * 2 for g in aj.autograd.grad(loss, t, create_graph=True)],
    "an error that it catches": lambda loss, t: _caught(loss, t),
    "backward(inputs=)": lambda loss, t: loss.backward(inputs=[t], retain_graph=True),
    "an edge": lambda loss, t: aj.autograd.grad(loss, [aj.autograd.graph.get_gradient_edge(t)], allow_unused=True),
}
# what the step makes of the tensor and of what is computed outside
LOSSES: dict[str, Callable[[Any, Any], Any]] = {
    "both": lambda t, y: (t * y * y).sum(),
    "what is outside": lambda t, y: (y * y).sum(),
}
# the tensor that the step asks about, and how it gets there: as an argument or from outside
TARGETS: dict[str, Callable[[Any], Any]] = {"leaf": lambda w: w, "made": lambda w: w * 3}
WAYS = ["argument", "outside"]


def _caught(loss: Any, t: Any) -> Any:
    try:
        return aj.autograd.grad(loss, [t])
    except RuntimeError as error:
        return str(error).splitlines()[0]


def told(found: Any) -> Any:
    if isinstance(found, aj.Tensor):
        return found.detach().tolist(), found.requires_grad
    return [told(x) for x in found] if isinstance(found, list | tuple) else found


def seen(jit: Callable[[Any], Any], ask: str, loss: str, target: str, ways: tuple[str, str], calls: str) -> list[Any]:
    """What a series of calls gives: "w" where the history outside comes from the tensor, "v" where from another."""
    held: dict[str, Any] = {}

    @jit
    def step(t: Any, y: Any) -> Any:
        t, y = (held["t"] if t is None else t), (held["y"] if y is None else y)
        return ASKS[ask](LOSSES[loss](t, y), t)

    found: list[Any] = []
    w, v = (aj.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    for source in calls:
        t = TARGETS[target](w)
        y = (t if source == "w" else v) * 5
        held["t"], held["y"] = t, y
        try:
            result = step(t if ways[0] == "argument" else None, y if ways[1] == "argument" else None)
            found.append(told(result))
        except RuntimeError as error:
            found.append(type(error).__name__)
        found.append([told(x.grad) for x in (w, v, t)] if t.is_leaf or t.retains_grad else told([w.grad, v.grad]))
        w.grad = v.grad = None
    return found


@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize("ways", list(itertools.product(WAYS, WAYS)), ids=lambda ways: "-".join(ways))
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("ask", ASKS)
def test_gradients_come_through_histories_outside_as_eagerly(ask: str, target: str, ways: tuple[str, str]) -> None:
    for loss, calls in itertools.product(LOSSES, ("wwvw", "vvwv")):
        expected = seen(lambda f: f, ask, loss, target, ways, calls)
        assert seen(aj.jit, ask, loss, target, ways, calls) == expected, (loss, calls)


def test_a_network_outside_and_its_derivative_in_the_step() -> None:
    def losses(jit: Callable[[Any], Any]) -> tuple[list[Any], Any]:
        aj.manual_seed(0)
        net = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1))

        @jit
        def residual(u: Any, x: Any) -> Any:
            (slope,) = aj.autograd.grad(u.sum(), x, create_graph=True)
            return (slope**2 - u).mean()

        found = []
        for k in range(4):
            x = aj.rand(5 + k % 2, 1, requires_grad=True)
            loss = residual(net(x), x)
            loss.backward()
            found += [loss.item(), net[0].weight.grad.tolist()]
            net.zero_grad()
        return found, residual

    expected, _ = losses(lambda f: f)
    found, step = losses(aj.jit)
    assert found == expected
    assert "whose gradient the step asks for: ran line by line" in step.explain()
    assert step.stats()["captures"] == 0  # once known, it is not captured for nothing


def test_what_nothing_outside_leads_to_is_compiled() -> None:
    w = aj.tensor([1.0, 2.0], requires_grad=True)
    v = aj.tensor([1.0, 2.0], requires_grad=True)

    @aj.jit
    def step(y: Any) -> Any:
        return aj.autograd.grad((w * y).sum(), [w])[0]

    for k in range(3):
        assert step(v * k).tolist() == [1.0 * k, 2.0 * k]
    assert step(w * 2).tolist() == [4.0, 8.0]
    assert "line by line" in step.explain()
    assert step(v * 2).tolist() == [2.0, 4.0]
    assert step.stats()["captures"] == 1


@pytest.mark.parametrize("has_hook", [(False, True, False), (True, False, True)])
def test_hooks_of_an_argument_see_the_gradient_that_the_step_asks_for(has_hook: tuple[bool, ...]) -> None:
    def gradients(jit: Callable[[Any], Any]) -> list[Any]:
        @jit
        def step(y: Any) -> Any:
            return aj.autograd.grad((y * y).sum(), [y])[0]

        w, found = aj.tensor([1.0, 2.0], requires_grad=True), list[Any]()
        for hooked in has_hook:
            y = w * 3
            if hooked:
                y.register_hook(lambda g: g * 10)
            found.append(step(y).tolist())
        return found

    assert gradients(aj.jit) == gradients(lambda f: f)


def test_the_gradient_of_an_argument_s_grad() -> None:
    def gradients(jit: Callable[[Any], Any]) -> list[Any]:
        @jit
        def step(p: Any, w: Any) -> Any:
            return aj.autograd.grad((p.grad * w).sum(), [w])[0]

        found = []
        for factor in (1.0, 2.0):
            w = aj.tensor([1.0, 2.0], requires_grad=True)
            p = aj.ones(2, requires_grad=True)
            p.grad = w * factor
            found.append(step(p, w).tolist())
        return found

    assert gradients(aj.jit) == gradients(lambda f: f)
