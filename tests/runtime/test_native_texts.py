"""The runtime's own native code, as text: LLVM accepts it for both machines, and it says what concurrency rests on."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from autojit.codegen.cpu.plan.control import control_ir
from autojit.codegen.cpu.plan.products import product_ir
from autojit.codegen.cpu.plan.runner import plan_ir
from autojit.codegen.target import HostTarget
from autojit.core.dtypes import float32, float64
from autojit.runtime.entry_ir import entry_ir
from autojit.runtime.host import cached_host_target
from autojit.runtime.interrupts import signals_ir
from autojit.runtime.llvm import compile_to_object
from autojit.runtime.pool_ir import PAUSE_BY_MACHINE, pool_ir, serial_pool_ir

TEXTS: dict[str, Callable[[str], str]] = {
    "plan": lambda machine: plan_ir(),
    "control": lambda machine: control_ir(),
    "product f32": lambda machine: product_ir(float32),
    "product f64": lambda machine: product_ir(float64),
    "entry": lambda machine: entry_ir(),
    "signals": lambda machine: signals_ir(),
    "serial pool": serial_pool_ir,
    "pool": pool_ir,
}


def target(machine: str) -> HostTarget:
    return replace(cached_host_target(), triple=f"{machine}-unknown-linux-gnu", cpu="generic", features="")


@pytest.mark.parametrize("machine", PAUSE_BY_MACHINE)
@pytest.mark.parametrize("name", TEXTS)
def test_llvm_takes_the_text(name: str, machine: str) -> None:
    for opt_level, pass_level in ((0, 0), (1, 0), (2, 2)):
        assert compile_to_object(TEXTS[name](machine), target(machine), opt_level, pass_level)


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_is_made_once(name: str) -> None:
    assert TEXTS[name]("x86_64") is TEXTS[name]("x86_64")


def orders(text: str, symbol: str) -> list[str]:
    """The atomic accesses of a function in the order of its text, without names."""
    (body,) = re.findall(rf"^define [^\n]*@{symbol}\(.*?^}}", text, re.MULTILINE | re.DOTALL)
    access = re.compile(r"(load|store) atomic (\w+),? .*? (\w+), align|(atomicrmw \w+) .*? (\w+)$|(cmpxchg) .*$", re.M)
    return [" ".join(filter(None, parts)) for parts in access.findall(body)]


def test_the_pool_claims_and_publishes_in_the_orders_that_its_pattern_needs() -> None:
    text = pool_ir("x86_64")
    assert orders(text, "work") == [
        "load i64 acquire", "load i64 monotonic", "cmpxchg", "load ptr monotonic", "load ptr monotonic",
        "load i64 monotonic", "load i32 monotonic", "atomicrmw add seq_cst", "load i32 seq_cst",
    ]  # fmt: skip
    assert "acq_rel acquire" in text
    assert orders(text, "worker")[-5:] == [
        "load i32 seq_cst", "atomicrmw add seq_cst", "load i64 seq_cst", "load i64 seq_cst", "atomicrmw sub seq_cst",
    ]  # fmt: skip
    assert orders(text, "aj_pool_reset") == ["store i64 seq_cst", *["store i32 seq_cst"] * 4]
