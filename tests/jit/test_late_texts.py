"""Texts of a step's numbers that are printed, logged or stored are made at every call, with one capture for all."""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj

KEPT: list[Any] = []
LOG = logging.getLogger("tests.late_texts")


def all_forms(x: Any) -> None:
    loss = x.sum()
    print(f"{loss.item():.3f}|{float(loss):>10.2e}|{loss!r}|{loss.item()!s:>12}|{loss}|{x}|{loss:.2f}", end=";")
    print("%.2f" % loss.item(), "%.1f %d" % (loss.item(), 3), "{:.2f} {}".format(loss.item(), "q"), sep="/")  # noqa: UP031
    print(str(loss.item()), round(loss.item(), 2), repr(loss.item()), format(loss.item(), ".1f"), str(loss))


def with_numbers(x: Any) -> None:
    digits = 2
    print(f"{x.mean():.4f}", f"{x.sum().item() * 2 + 1:,.1f}", f"{x.argmax().item():03d} {x.shape}")
    print(f"{x.sum().item():.{digits}f}", 1, flush=True)


def in_a_variable(x: Any) -> None:
    for k in range(2):
        text = f"{k}: {x.sum().item():.1f}"
        print(text, k)
        KEPT.append(text)


def appended(x: Any) -> None:
    KEPT.append(f"{x.sum().item():.3f}")


def logged(x: Any) -> None:
    LOG.warning(f"loss {x.sum().item():.3f}")


def looked_at(x: Any) -> None:
    text = f"{x.sum().item():.1f}"
    print("long" if len(text) > 3 else "short", text, text.rjust(10), text + "!", {"loss": text})
    KEPT.append(len(f"{x.sum().item():.1f}"))


def handed_on(x: Any) -> None:
    def shown(text: str) -> str:
        return text.upper()

    message = f"{x.sum().item():.1f}"
    print(shown(f"a{x.sum().item():.1f}"), locals()["message"], [message for _ in range(2)])


def branched(x: Any) -> None:
    text = "none"
    if x.sum() > 6:
        text = f"{x.sum().item():.1f}"
    print(text)


def in_a_closure(x: Any) -> None:
    text = f"{x.sum().item():.1f}"

    def inner() -> str:
        return text

    print(inner())


VALUES = (1.5, 2.25, 3.125, 2.25)


def seen(function: Callable[[Any], None], call: Callable[[Any], Any], caplog: Any) -> tuple[Any, ...]:
    """What a function prints, stores and logs in several calls."""
    KEPT.clear()
    caplog.clear()
    with contextlib.redirect_stdout(io.StringIO()) as out:
        for value in VALUES:
            call(aj.tensor([value, 2 * value]))
    return out.getvalue(), list(KEPT), [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("function", [all_forms, with_numbers, in_a_variable, appended, logged])
def test_a_text_is_made_at_every_call_without_a_capture_for_it(function: Any, caplog: Any) -> None:
    step = aj.jit(function)
    assert seen(function, step, caplog) == seen(function, function, caplog)
    assert step.stats()["captures"] == 1


@pytest.mark.parametrize("function", [looked_at, handed_on, branched, in_a_closure])
def test_a_text_that_something_looks_at_is_that_of_its_numbers(function: Any, caplog: Any) -> None:
    assert seen(function, aj.jit(function), caplog) == seen(function, function, caplog)


def test_a_hundred_losses_are_printed_with_one_capture() -> None:
    @aj.jit
    def step(x: Any) -> Any:
        print(f"{x.sum().item():.3f}")
        return x

    with contextlib.redirect_stdout(io.StringIO()) as out:
        for k in range(100):
            step(aj.tensor([k + 0.5]))
    assert out.getvalue() == "".join(f"{k + 0.5:.3f}\n" for k in range(100))
    assert step.stats()["captures"] == 1


def test_an_error_of_the_function_is_its_own() -> None:
    @aj.jit
    def step(x: Any) -> Any:
        raise ValueError(f"bad {x.sum().item():.2f} {x}")

    with pytest.raises(ValueError, match=r"bad 2.00 tensor\(\[1., 1.\]\)"):
        step(aj.ones(2))
