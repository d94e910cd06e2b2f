"""Kernels that are compiled while others are printed: each once, on another thread, and none after the last."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import pytest

from autojit import compiler
from autojit.core.errors import CompileError
from autojit.ir import evaluate, parse_graph
from autojit.runtime import printed_kernels
from autojit.runtime.printed_kernels import PrintedKernels


class Compiler:
    """Stands for what compiles: notes texts and threads; the first one waits until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cores: int = 2) -> None:
        self.texts: list[str] = []
        self.threads: set[int] = set()
        self.is_busy, self.may_go_on = threading.Event(), threading.Event()
        monkeypatch.setattr(printed_kernels, "load_kernels", self.load)
        monkeypatch.setattr(printed_kernels, "is_compiled", lambda text: text == "known")
        monkeypatch.setattr(printed_kernels, "available_cores", lambda: cores)

    def load(self, texts: Sequence[str]) -> None:
        self.texts += texts
        self.threads.add(threading.get_ident())
        self.is_busy.set()
        assert self.may_go_on.wait(60)
        raise CompileError("rejected")


def helpers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if "what is printed" in thread.name]


def test_each_text_is_begun_once_and_on_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler(monkeypatch)
    compiler.may_go_on.set()
    with PrintedKernels() as begin:
        for text in ("known", "a", "b", "a", "known", "b"):
            begin(text)
        while len(compiler.texts) < 2:
            compiler.is_busy.wait(60)
    for thread in helpers():
        thread.join(60)
    assert compiler.texts == ["a", "b"]  # what is rejected is met again by who needs it
    assert threading.get_ident() not in compiler.threads


def test_what_is_not_begun_at_the_end_is_left_to_who_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler(monkeypatch)
    with pytest.raises(KeyboardInterrupt), PrintedKernels() as begin:
        begin("a")
        assert compiler.is_busy.wait(60)
        begin("b")
        raise KeyboardInterrupt
    compiler.may_go_on.set()
    for thread in helpers():
        thread.join(60)
    assert compiler.texts == ["a"]


def test_one_core_has_nothing_to_spare(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler(monkeypatch, cores=1)
    with PrintedKernels() as begin:
        begin("a")
    assert not compiler.texts and not helpers()


def test_steps_are_what_they_are_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printed_kernels, "available_cores", lambda: 2)
    monkeypatch.setattr(printed_kernels, "is_compiled", lambda text: False)
    graph = parse_graph(
        "(x: f32[5, 4]) { y: f32[5, 4] = tanh(x); "
        "c: f32[5, 4] = cumulative[kind='sum', axis=0, reverse=False](y); s: f32[4] = sum[axes=(0,)](c); "
        "return y, c, s }"
    )
    x = np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4)
    for found, expected in zip(compiler.compile(graph).executable.run([x]), evaluate(graph, [x]), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)
