"""Errors are complete: what went wrong, with which operands, at which line of the user, and what to do about it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit.core import errors
from autojit.core.errors import AutojitError, AxisError, ShapeError, explain_error
from autojit.core.source import here


def caught(call: Callable[[], Any]) -> str:
    with pytest.raises(AutojitError) as raised:
        call()
    return str(raised.value)


def test_facts_are_aligned_under_the_first_line() -> None:
    assert explain_error("what", {"a": 1, "long": 2}, "do") == "what\n  a     1\n  long  2\n  fix   do"


def test_the_line_and_the_function_the_user_called_are_named() -> None:
    def wrong() -> Any:
        return aj.ones(2, 3).sum(4)

    line = inspect.getsourcelines(wrong)[1] + 1
    assert f"at    {'test_errors.py'}:{line}, calling sum()" in caught(wrong)


def test_operators_and_modules_are_named_as_users_know_them() -> None:
    assert "calling matmul()" in caught(lambda: aj.ones(2, 3) @ aj.ones(2, 3))
    assert "calling Linear()" in caught(lambda: aj.nn.Linear(2, 2)(aj.ones(3)))
    assert "calling add_()" in caught(lambda: aj.ones(2).add_(aj.ones(3)))


def test_operands_in_lists_are_named_but_not_a_thousand_of_them() -> None:
    text = caught(lambda: aj.stack([aj.ones(2)] * 500 + [aj.ones(3)]))
    assert "f32[3]" in text
    assert len(text.splitlines()) < 15


def test_an_operand_is_not_named_twice() -> None:
    assert caught(lambda: aj.ones(2, 3) @ aj.ones(4, 5)).count("f32[2, 3]") == 1


def test_what_the_raising_place_says_wins() -> None:
    error = ShapeError("what", {"at": "here"}, "the fix")
    assert str(error) == "what\n  at   here\n  fix  the fix"


def test_kinds_without_a_better_fix_have_a_general_one() -> None:
    assert AxisError.general_fix in caught(lambda: aj.ones(2).sum(4))


def test_every_kind_is_also_an_exception_that_torch_raises() -> None:
    kinds = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, AutojitError)]
    for kind in kinds:
        if kind is not AutojitError:
            assert issubclass(kind, RuntimeError | IndexError | ValueError | TypeError | AssertionError), kind


def test_an_error_that_is_told_again_has_all_that_it_had() -> None:
    error = aj.distributed.RankFailed("all_reduce: rank 2 has failed", {"group": "world"})
    error.ranks, error.hosts = (2,), ("here",)
    error.add_note("a note")
    place = here()
    for again in (error.found_at(place, "all_reduce"), error.of_call("all_reduce"), error.in_round(1),
                  error.with_facts({"more": 1}).found_at(place, "all_reduce").in_round(2)):  # fmt: skip
        assert vars(again).items() >= {"ranks": (2,), "hosts": ("here",), "__notes__": ["a note"]}.items()
        assert again.facts["group"] == "world"
    assert not error.is_placed
    again.add_note("of the copy alone")
    assert error.__notes__ == ["a note"]
