"""What a program does to other modules and optimisers between calls leaves these native, and is seen if it counts.

The guard epoch is one number for all of them: where it has moved on, a step's guards are looked at, and its native code
goes on.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import nn

CALLS = 30
ELSEWHERE: dict[str, Callable[[Any, Any, int], Any]] = {
    "a loss is made": lambda m, o, k: nn.CrossEntropyLoss(),
    "a model is made and called": lambda m, o, k: nn.Sequential(nn.Linear(2, 2), nn.ReLU())(aj.ones(1, 2)),
    "its own state is loaded": lambda m, o, k: m.load_state_dict(m.state_dict()),
    "another state is loaded": lambda m, o, k: (n := nn.Linear(2, 2)).load_state_dict(n.state_dict()),
    "another is evaluated": lambda m, o, k: nn.Dropout().train(k % 2 == 0),
    "an optimiser is made": lambda m, o, k: aj.optim.SGD(m.parameters(), 0.1),
    "another gets an attribute": lambda m, o, k: setattr(nn.ReLU(), "note", k),
    "a hook on another": lambda m, o, k: nn.ReLU().register_forward_hook(lambda *given: None),
    "another is frozen": lambda m, o, k: nn.Linear(2, 2).requires_grad_(False),
    "a copy is made": lambda m, o, k: copy.deepcopy(m).train(k % 2 == 0),
}
COUNTING: dict[str, Callable[[Any, Any, int], Any]] = {
    "evaluation": lambda m, o, k: m.train(k % 3 != 0),
    "an attribute that it reads": lambda m, o, k: setattr(m, "scale", 1.0 + k // 7),
    "a layer": lambda m, o, k: k % 11 or m.layers.append(nn.Tanh()),
    "a parameter": lambda m, o, k: k % 9 == 8 and setattr(m.layers[0], "bias", nn.Parameter(aj.full((4,), float(k)))),
    "a hook": lambda m, o, k: k == 15 and m.register_forward_hook(lambda module, x, y: y * 3),
    "a buffer": lambda m, o, k: k % 8 == 7 and setattr(m, "shift", aj.full((4,), float(k))),
    "a layer put first": lambda m, o, k: k == 9 and m.layers.insert(0, nn.Tanh()),
    "a layer taken out": lambda m, o, k: k == 13 and m.layers.__delitem__(1),
    "layers in another order": lambda m, o, k: k == 11 and (m.layers.append(nn.Tanh()), m.layers.__delitem__(1)),
    "a layer of a list": lambda m, o, k: k % 8 == 5 and m.more.append(nn.LeakyReLU(0.1 * k)),
    "a list that gets other places": lambda m, o, k: (
        k == 6 and m.more.insert(0, nn.Tanh()),
        k == 12 and m.more.__setitem__(0, nn.ReLU()),
        k == 18 and m.more.pop(0),
    ),
    "an attribute of a layer": lambda m, o, k: k > 4 and setattr(m.slope, "negative_slope", 0.1 * (k // 6)),
    "an attribute taken away": lambda m, o, k: k == 10 and delattr(m, "factor"),
    "a table written to": lambda m, o, k: k == 10 and m.layers._modules.__setitem__("1", nn.Tanh()),
    "its state set": lambda m, o, k: k == 10 and m.slope.__setstate__(nn.LeakyReLU(0.9).__getstate__()),
    "an option": lambda m, o, k: o.param_groups[0].__setitem__("lr", 0.01 * (1 + k % 4)),
}


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
        self.scale = self.factor = 1.0
        self.more, self.slope = nn.ModuleList(), nn.LeakyReLU(0.5)
        self.register_buffer("shift", aj.zeros(4))

    def forward(self, x: Any) -> Any:
        y = self.slope(self.layers(x) * self.scale * getattr(self, "factor", 2.0)) + self.shift
        for layer in self.more:
            y = layer(y)
        return y if self.training else y.sum(0)


def _ran(between: Callable[[Any, Any, int], Any], jit: Callable[[Any], Any], kind: str) -> tuple[list[Any], Any]:
    aj.manual_seed(0)
    model = Model()
    optimizer = aj.optim.SGD(model.parameters(), 0.01)

    def whole(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    def forward(x: Any) -> Any:
        return model(x)

    step = jit(whole if kind == "a whole step" else forward)
    found = []
    for k in range(CALLS):
        between(model, optimizer, k)
        draws = np.random.default_rng(k)
        found.append(step(aj.tensor(draws.standard_normal((2, 3)), dtype=aj.float32)).detach().numpy().copy())
    return found, step


@pytest.mark.parametrize("kind", ["a whole step", "a forward pass"])
@pytest.mark.parametrize("what", [*ELSEWHERE, *COUNTING])
def test_calls_are_right_and_native(what: str, kind: str) -> None:
    between = {**ELSEWHERE, **COUNTING}[what]
    wanted, _ = _ran(between, lambda f: f, kind)
    found, step = _ran(between, aj.jit, kind)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    if what in ELSEWHERE:
        assert step.stats()["native_calls"] >= CALLS - 6, step.explain()
        assert step.stats()["captures"] == 1


def test_steps_of_two_kinds_take_turns() -> None:
    """Both are verified again when a module was made in between, and neither is captured again."""
    model = Model()
    step = aj.jit(lambda x, many: model(x).sum() if many else model(x).mean())
    for k in range(CALLS):
        nn.ReLU()
        x = aj.full((2, 3), float(k))
        assert step(x, k % 2 == 0).item() == pytest.approx((model(x).sum() if k % 2 == 0 else model(x).mean()).item())
    assert step.stats()["native_calls"] >= CALLS - 8
    assert step.stats()["captures"] == 2


def test_what_changes_before_a_capture_meets_it_and_after() -> None:
    """A module counts its changes from the capture on that reads it, whoever made it and whatever it did before."""
    layer = nn.LeakyReLU(0.1)
    step = aj.jit(lambda x: layer(x))
    x = aj.tensor([-1.0, 2.0])
    for slope in (0.2, 0.2, 0.2, 0.4, 0.4, 0.5):
        layer.negative_slope = slope
        assert step(x).tolist() == pytest.approx([-slope, 2.0])
    other = nn.LeakyReLU(0.7)
    other.negative_slope = 0.8
    holder = nn.Sequential(layer)
    whole = aj.jit(lambda x: holder(x))
    for k in range(8):
        if k == 4:
            holder[0] = other
        if k == 6:
            other.negative_slope = 0.25
        wanted = 0.5 if k < 4 else 0.8 if k < 6 else 0.25
        assert whole(x).tolist() == pytest.approx([-wanted, 2.0])


def test_threads_that_change_what_another_captures() -> None:
    """Whenever a capture begins, the step that it makes is of what is there or is not used again."""
    from concurrent.futures import ThreadPoolExecutor

    for _ in range(30):
        layer = nn.LeakyReLU(0.1)
        step = aj.jit(lambda x, layer=layer: layer(x))
        x = aj.tensor([-1.0])
        with ThreadPoolExecutor(2) as pool:
            running = pool.submit(step, x)
            pool.submit(setattr, layer, "negative_slope", 0.6).result()
            running.result()
        assert step(x).item() == pytest.approx(-0.6)
