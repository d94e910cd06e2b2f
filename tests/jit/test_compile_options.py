"""``jit(f, fullgraph=True, mode=...)``: a call is one step or an error that says why, and then nothing has changed."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import autojit as aj
from autojit.core.errors import TraceError, UsageError


def test_a_call_that_is_one_step_is_as_without() -> None:
    step = aj.jit(lambda x: (x * 2).sum(), fullgraph=True, mode="max-autotune")
    for _ in range(3):
        assert step(aj.ones(3)) == 6
    assert step.stats()["native_calls"] == 2


@pytest.mark.parametrize("make", [aj.jit, aj.compile])
def test_a_decision_on_values_is_refused_before_anything_changes(make: Any) -> None:
    total = aj.zeros(2)

    @make(fullgraph=True)
    def step(x: Any) -> Any:
        total.add_(x)
        return x * 2 if x.sum() > 0 else x

    for _ in range(2):
        with pytest.raises(TraceError, match="fullgraph=True") as told:
            step(aj.ones(2))
        assert "test_compile_options.py:" in str(told.value.facts["at"])
    assert total.tolist() == [0.0, 0.0]


def test_what_would_run_line_by_line_is_refused_with_its_reason() -> None:
    calls: list[int] = []

    @aj.jit(fullgraph=True)
    def step(x: Any) -> Any:
        calls.append(len(str(x)))
        return x

    for _ in range(2):
        with pytest.raises(TraceError, match="cannot be a step") as told:
            step(aj.ones(2))
        assert "text of a tensor" in str(told.value)
    assert calls == []


def test_the_option_goes_with_copies_and_is_off_by_default() -> None:
    assert aj.jit(len, fullgraph=True).options()["fullgraph"] is True
    assert aj.jit(len).options()["fullgraph"] is False
    assert aj.jit(aj.nn.Linear(2, 2), fullgraph=True)._jitted.of(len).fullgraph


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(UsageError, match="mode=fast, should be one of: default"):
        aj.jit(len, mode="fast")


def test_eager_mode_takes_no_offence() -> None:
    step = aj.jit(lambda x: x * 2 if x.sum() > 0 else x, fullgraph=True)
    with aj.eager():
        assert step(aj.ones(2)).tolist() == [2.0, 2.0]


def test_a_function_of_the_main_module_is_taken_along_by_those_who_do_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """``pickle`` leaves a name; ``cloudpickle`` must get the function, for another process has another main module."""
    import __main__

    cloudpickle = pytest.importorskip("cloudpickle")
    names: dict[str, Any] = {"__name__": "__main__"}
    exec("def double_in_main(x):\n    return x * 2\n", names)
    step = aj.jit(names["double_in_main"], fullgraph=True)
    monkeypatch.setattr(__main__, "double_in_main", step, raising=False)
    assert pickle.loads(pickle.dumps(step)) is step
    taken = cloudpickle.dumps(step)
    monkeypatch.delattr(__main__, "double_in_main")
    again = pickle.loads(taken)
    assert again(aj.ones(2)).tolist() == [2.0, 2.0]
    assert again.options() == step.options()
