"""``agree``: the law of ``@aj.jit``: a program gives compiled what it gives eager, in every output and all state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import autojit as aj
from autojit.jit.function import JitFunction
from autojit.tensor.state import reference_only


class Program(NamedTuple):
    """A function, the arguments of each of its calls, and the tensors it may change besides its results."""

    function: Callable[..., Any]
    calls: Sequence[tuple[Any, ...]]
    state: Sequence[aj.Tensor] = ()
    between: Callable[[int], Any] | None = None  # runs before call k, outside the step


def plain(value: Any) -> Any:
    """Nested lists of arrays and Python values: what two runs are compared by."""
    if isinstance(value, aj.Tensor):
        grad = value.grad if value.is_leaf and value.requires_grad else None
        flags = value.requires_grad, value.is_leaf
        return ["tensor", value.detach().numpy().copy(), value.stride(), *flags, plain(grad)]
    if isinstance(value, dict):
        return ["dict", *([k, plain(v)] for k, v in value.items())]
    if isinstance(value, list | tuple):
        return [type(value).__name__, *(plain(v) for v in value)]
    return value


def run(program: Program, function: Callable[..., Any]) -> list[Any]:
    """Everything that can be seen after each call."""
    seen = []
    for k, arguments in enumerate(program.calls):
        if program.between is not None:
            program.between(k)
        result = function(*arguments)
        seen.append([plain(result), plain(list(arguments)), plain(list(program.state))])
    return seen


def check_equal(a: Any, b: Any, where: str = "") -> None:
    """Equal structure and values (to rounding)."""
    if isinstance(a, list):
        assert isinstance(b, list) and len(a) == len(b), (where, a, b)
        for k, (x, y) in enumerate(zip(a, b, strict=True)):
            check_equal(x, y, f"{where}[{k}]")
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype and a.shape == b.shape, (where, a, b)
        tolerance = 1e-10 if a.dtype == np.float64 else 2e-5
        np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance, err_msg=where)
    elif isinstance(a, float):
        assert type(b) is float, (where, a, b)
        np.testing.assert_allclose(b, a, rtol=1e-5, err_msg=where)
    else:
        assert type(a) is type(b), (where, a, b)
        if isinstance(a, bool | int | str | None):
            assert a == b, where


def agree(make: Callable[[], Program], captures: int | None = None) -> JitFunction:
    """Run a program eagerly and compiled from equal beginnings; the jitted function for further questions."""
    aj.manual_seed(0)
    first = make()
    with reference_only():
        eager = run(first, first.function)
    aj.manual_seed(0)
    second = make()
    step = aj.jit(second.function)
    compiled = run(second, step)
    for k, (a, b) in enumerate(zip(eager, compiled, strict=True)):
        check_equal(a, b, f"call {k}: ")
    if captures is not None:
        assert step.stats()["captures"] == captures, step.explain()
    return step
