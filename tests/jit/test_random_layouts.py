"""Random views of and writes to arguments of every layout: values, strides, aliases and versions as in eager."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj


def _ramp(*shape: int) -> Any:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape) / 4


ARGUMENTS: dict[str, Callable[[], aj.Tensor]] = {
    "row-major": lambda: aj.tensor(_ramp(3, 4)),
    "transposed": lambda: aj.tensor(_ramp(4, 3)).t(),
    "gaps": lambda: aj.tensor(_ramp(3, 8))[:, ::2],
    "transposed gaps": lambda: aj.tensor(_ramp(4, 6))[:, ::2].t(),
    "expanded": lambda: aj.tensor(_ramp(4)).expand(3, 4),
    "column-major": lambda: aj.from_numpy(np.asfortranarray(_ramp(3, 4))),
}
READS = (
    "{a}.t()", "{a} * 2", "{a} + {b}", "{a}.reshape(-1)", "{a}.reshape(4, 3)", "{a}.view(-1)", "{a}.contiguous()",
    "{a}.clone()", "{a}[1:]", "{a}[:, ::2]", "{a}.flatten()", "{a}.tanh()", "{a}.sum(0)", "{a}.unsqueeze(0)",
    "{a}.detach()", "{a}.softmax(-1)", "aj.nn.functional.layer_norm({a}, {a}.shape[-1:])",
    "aj.where({a} > 1, {a}, {b})", "{a}.permute(*reversed(range({a}.ndim)))",
    "{a}.diagonal()", "{a} if {a}.is_contiguous() else {a} * 3", "{a} * {a}.stride()[0]", "{a}.flip(0)",
    "{a}.expand_as({b})", "aj.zeros_like({a})",
)  # fmt: skip
WRITES = (
    "{a}.add_(1)", "{a}.mul_({b})", "{a}.reshape(-1).add_(10)", "{a}[0].zero_()", "{a}.t().add_(2)",
    "{a}.contiguous().mul_(3)", "{a}.flatten()[:1].fill_(7)", "{a}.copy_({b} * 1)", "{a}[..., 0] = 5",
)  # fmt: skip


def program(draw: random.Random) -> str:
    lines, names = [], ["x", "y"]
    for k in range(draw.randrange(2, 7)):
        given = {"a": draw.choice(names), "b": draw.choice(names)}
        if draw.random() < 0.35:
            lines.append(draw.choice(WRITES).format(**given))
        else:
            lines.append(f"v{k} = {draw.choice(READS).format(**given)}")
            names.append(f"v{k}")
    shown = draw.sample(names, min(len(names), draw.randrange(1, 4)))
    return "def step(x, y):\n    " + "\n    ".join(lines) + f"\n    return [{', '.join(shown)}]"


def _steps(t: aj.Tensor) -> list[int]:
    """The strides that lead anywhere: NumPy's loops give an axis of size 1 one stride or another."""
    return [step for step, n in zip(t.stride(), t.shape, strict=True) if n > 1]


def _values(tensors: list[aj.Tensor]) -> list[Any]:
    return [np.round(t.numpy().astype(np.float64), 3).tolist() for t in tensors]


MODES: dict[str, Callable[[], Any]] = {
    "ordinary": contextlib.nullcontext,
    "no_grad": aj.no_grad,
    "inference": aj.inference_mode,
}


def seen(text: str, calls: list[tuple[str, str]], wrap: Callable[[Any], Any], mode: str) -> list[Any]:
    """What can be seen of each call in a mode, and after its results were written to."""
    names: dict[str, Any] = {"aj": aj}
    exec(text, names)
    step, found = wrap(names["step"]), list[Any]()
    for first, second in calls:
        x = ARGUMENTS[first]()
        y = x if second == "same" else ARGUMENTS[second]()
        try:
            with MODES[mode]():
                results = step(x, y)
        except (RuntimeError, IndexError) as error:
            found.append(type(error).__name__)
            continue
        found.append((_values([*results, x, y]), [_steps(t) for t in (*results, x, y)]))
        for t in results:
            try:
                with MODES[mode]():
                    t.add_(100)
            except (RuntimeError, IndexError) as error:
                found.append(type(error).__name__)
        found.append((_values([*results, x, y]), x._version, y._version))
    return found


def check(seed: int) -> None:
    draw = random.Random(seed)
    text = program(draw)
    kinds = [*ARGUMENTS, "same"]
    calls = [(draw.choice(list(ARGUMENTS)), draw.choice(kinds)) for _ in range(3)]
    mode = list(MODES)[seed % len(MODES)]
    eager, compiled = (seen(text, calls, wrap, mode) for wrap in (lambda f: f, aj.jit))
    assert compiled == eager, f"seed {seed}, {mode}, arguments {calls}:\n{text}"


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_a_step_shows_memory_as_eager_mode_does(first: int) -> None:
    for seed in range(first, first + 10):
        check(seed)


@pytest.mark.slow
def test_many_steps_show_memory_as_eager_mode_does() -> None:
    for seed in range(1000, 5000):
        check(seed)
