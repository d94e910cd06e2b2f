"""Ctrl-C in autojit's own bookkeeping leaves nothing behind, wherever it comes; and it still comes soon."""

from __future__ import annotations

import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import autojit as aj
from autojit.backend import compiling_by, cpu_backend
from autojit.core.late_interrupts import late_interrupts
from autojit.passes import pipeline
from autojit.runtime import background, llvm
from autojit.runtime.host import cached_host_target
from autojit.schedule import scheduler
from tests.acceptance.processes import run_python

KINDS = ("cold", "warm", "again", "differentiated")


@pytest.mark.parametrize("check", ["0", "1"], ids=["", "checked"])
def test_an_interrupt_leaves_nothing_behind(tmp_path: Path, check: str) -> None:
    which = ["--count", "20", "--share", "4"] if check == "0" else ["--count", "20", "--only", "warm"]
    arguments = ["-m", "tests.jit.interrupting", *which]
    found = run_python(arguments, tmp_path, AUTOJIT_OPT_LEVEL="0", AUTOJIT_CHECK=check)
    assert ", 0 left something behind" in found.stdout


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(8))
def test_an_interrupt_leaves_nothing_behind_at_length(tmp_path: Path, kind: str, seed: int) -> None:
    arguments = ["-m", "tests.jit.interrupting", "--count", "1000", "--only", kind, "--seed", str(seed)]
    found = run_python(arguments, tmp_path, AUTOJIT_OPT_LEVEL="0")
    assert ", 0 left something behind" in found.stdout


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def test_users_code_is_interrupted_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), late_interrupts:
        interrupt()  # a frame of this module


def test_bookkeeping_is_interrupted_when_it_has_ended() -> None:
    done: list[str] = []
    scope: dict[str, Any] = {"__name__": "autojit.pretended", "done": done, "raise_signal": signal.raise_signal}
    exec("def work():\n    raise_signal(2)\n    done.append('all')\n", scope)
    with pytest.raises(KeyboardInterrupt), late_interrupts, late_interrupts:
        scope["work"]()
    assert done == ["all"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_handlers_run_when_they_should() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
    try:
        with late_interrupts:
            signal.raise_signal(signal.SIGUSR1)
            assert heard == [signal.SIGUSR1]
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers on this system")
def test_a_function_that_never_ends_is_interrupted_while_it_is_captured() -> None:
    def step(x: Any) -> Any:
        while True:
            x = x + 1

    before = signal.signal(signal.SIGALRM, lambda *_: interrupt())
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            aj.jit(step)(aj.ones(3))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not late_interrupts.depth


STAGES = ("optimize", "schedule", "lower", "build")


@pytest.mark.parametrize("stage", STAGES[:3])
def test_an_interrupted_compilation_ends_with_its_stage(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []

    def watched(name: str, made: Any) -> Any:
        scope = {"__name__": "autojit.pretended", "raise_signal": signal.raise_signal, "begun": begun, "made": made}
        lines = [
            f"    begun.append('{name}')",
            *["    raise_signal(2)"] * (name == stage),
            "    return made(*given, **named)",
        ]
        exec("\n".join(["def run(*given, **named):", *lines]), scope)
        return scope["run"]

    weight = aj.ones(3)

    @aj.jit
    def step(x: Any) -> Any:
        weight.add_(x.sin())
        return weight * 2

    usual = cpu_backend()
    stages = {name: watched(name, getattr(usual, name)) for name in STAGES[2:]}
    with monkeypatch.context() as patched, compiling_by(replace(usual, **stages)):
        for name, module in zip(STAGES, (pipeline, scheduler), strict=False):
            patched.setattr(module, name, watched(name, getattr(module, name)))
        with pytest.raises(KeyboardInterrupt):
            step(aj.zeros(3))
    assert begun[-1] == stage
    assert float(step(aj.zeros(3)).sum()) == 6
    assert not late_interrupts.depth


def test_kernels_that_wait_to_be_compiled_are_left_out_after_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []

    def one(text: str, *others: Any) -> bytes:
        compiled.append(text)
        if threading.current_thread() is threading.main_thread():
            scope["interrupted"]()
        return b""

    scope: dict[str, Any] = {"__name__": "autojit.pretended", "raise_signal": signal.raise_signal}
    exec("def interrupted():\n    raise_signal(2)", scope)
    monkeypatch.setattr(llvm, "_compile", one)
    monkeypatch.setattr(background, "available_cores", lambda: 2)
    monkeypatch.setattr(background, "helper", lambda work, name: None)
    with pytest.raises(KeyboardInterrupt):
        llvm.compile_all([str(k) for k in range(9)], cached_host_target())
    assert len(compiled) == 1
