"""A long compile says on a terminal what it does, and leaves nothing there; elsewhere, and by wish, it is silent."""

from __future__ import annotations

import io
import sys
import time

import pytest

import autojit as aj
from autojit.core import compile_notice
from autojit.core.compile_notice import CLEAR, noticed, stage
from autojit.core.config import config


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def drawn(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, patience_s: float = 0.01) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(compile_notice, "PATIENCE_S", patience_s)
    monkeypatch.setattr(compile_notice, "REDRAW_S", 0.01)
    with noticed("train"), noticed("inside"):
        stage("passes over 3 ops")
        deadline = time.monotonic() + 60 * (patience_s < 1 and stream.isatty() and config.notice)
        while not stream.getvalue() and time.monotonic() < deadline:
            time.sleep(0.002)
    return stream.getvalue()


def test_a_terminal_is_told_and_left_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    text = drawn(monkeypatch, Terminal())
    assert "autojit: compiling train: passes over 3 ops, 0 s" in text
    assert "inside" not in text
    assert text.endswith(CLEAR)


def test_what_is_quick_no_terminal_and_the_switch_are_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(monkeypatch, Terminal(), patience_s=60) == ""
    assert drawn(monkeypatch, io.StringIO()) == ""
    monkeypatch.setattr(config, "notice", False)
    assert drawn(monkeypatch, Terminal()) == ""


def test_a_compile_names_its_function_and_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr("autojit.compiler.stage", told.append)
    step = aj.jit(lambda x: (x @ x).tanh())
    step(aj.ones(3, 3))
    assert [text.split()[0] for text in told] == ["passes", "schedule", "code", "machine"]


def test_a_terminal_that_is_gone_harms_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(Terminal):
        def write(self, text: str) -> int:
            raise OSError("gone")

    monkeypatch.setattr(sys, "stderr", Gone())
    monkeypatch.setattr(compile_notice, "PATIENCE_S", 0.001)
    with noticed("train"):
        time.sleep(0.01)
