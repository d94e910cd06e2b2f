"""Faults planted in kernels that autojit made are found, and told with the user's op and line.

A fault is a change of a kernel's PTX before the device has it, such as a slip of a code generator would make; or an
edge that is left out of a step's graph. Where no rule is broken the numbers are wrong, and ``verify`` says so.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.core.errors import TraceError
from autojit.runtime.gpu.driver import Graph, GraphNode
from autojit.runtime.gpu.emulator.findings import EmulatedFault
from autojit.runtime.gpu.order import Order
from tests.emulated import emulated_cuda, fresh_driver

Arguments = tuple[Any, ...]


def data(*shape: int, grad: bool = True) -> aj.Tensor:
    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    return aj.tensor(values, device="cuda", requires_grad=grad)


def softmax(x: Any, w: Any) -> Any:
    y = aj.softmax(x * w, -1)
    loss = (y * y).sum()
    return loss.detach(), *aj.autograd.grad(loss, (x, w))


def product(a: Any, b: Any) -> Any:
    return a @ b


def pointwise(x: Any) -> Any:
    return aj.exp(x) + 1


def looked_up(table: Any, rows: Any) -> Any:
    found = aj.nn.functional.embedding(rows, table)
    return found.detach(), *aj.autograd.grad((found * found).sum(), (table,))


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], Arguments]]] = {
    "softmax": (softmax, lambda: (data(4, 1000), data(1000))),
    "product": (product, lambda: (data(40, 24, grad=False), data(24, 33, grad=False))),
    "pointwise": (pointwise, lambda: (data(1000, grad=False),)),
    "looked_up": (looked_up, lambda: (data(10, 4), aj.tensor([1, 7, 1, 9], device="cuda"))),
}


@dataclasses.dataclass(frozen=True)
class Fault:
    """What is changed where.

    Args:
        which: the number of the place in a kernel's text, from 0; None: all of them.
        is_apart: in launches of one kernel each, whose shared memory has no word more than they use.
    """

    program: str
    pattern: str
    replacement: str
    kinds: tuple[str, ...]
    which: int | None = 0
    is_apart: bool = False

    def planted(self, ptx: str) -> str:
        places = list(re.finditer(self.pattern, ptx))
        if self.which is not None:
            places = places[self.which : self.which + 1 or None]
        for place in reversed(places):
            ptx = ptx[: place.start()] + place.expand(self.replacement) + ptx[place.end() :]
        return ptx


BARRIER = r"bar\.sync \t?0;"
RACE = ("race within a block", "uninitialised read")

FAULTS = {
    "no barriers": Fault("softmax", BARRIER, "", RACE, None),
    "the first barrier is missing": Fault("softmax", BARRIER, "", RACE),
    "a load is a row too far": Fault(
        "softmax", r"(ld\.global\.nc\.v4\.b32 [^\[]*\[%rd\d+)\]", r"\1+16000]", ("out of bounds", "uninitialised read")
    ),
    "a load is a word too far": Fault(
        "softmax", r"(ld\.global\.nc\.v4\.b32 [^\[]*\[%rd\d+)\]", r"\1+4]", ("misaligned",)
    ),
    "a store is an access too far": Fault(
        "softmax", r"(st\.global\.v4\.b32 [^\[]*\[%rd\d+)\]", r"\1+16]", ("out of bounds", "race within a block")
    ),
    "a shared array is a word short": Fault(
        "softmax", r"(\.shared \.align \d+ \.b8 \w+)\[32\]", r"\1[28]", ("out of bounds",), is_apart=True
    ),
    "half of a warp meets": Fault(
        "softmax", r"(shfl\.sync\.bfly\.b32 .*), -1;", r"\1, 65535;", ("lane missing at a warp operation",)
    ),
    "a tile is not filled": Fault(
        "product", r"(?:st\.shared|cp\.async\.c[ag]\.shared)\S* .*;", "", ("uninitialised read",)
    ),
    "a product's barrier is missing": Fault("product", BARRIER, "", RACE),
    "surplus lanes store": Fault("pointwise", r"@%p\d+ bra\s+\S+;", "", ("out of bounds", "race within a block")),
    "a store is missing": Fault("looked_up", r"st\.global\S* .*;", "", ("uninitialised read",)),
}


def run_with(fault: Fault, monkeypatch: pytest.MonkeyPatch, **options: Any) -> int:
    """Run a program's step twice, eagerly compiled, with the fault in its kernels; how many of them have it."""
    changed = 0
    function, arguments = PROGRAMS[fault.program]
    with emulated_cuda(driver=fresh_driver()) as driver:
        assemble = driver.assemble

        def tampered(ptx: str, architecture: str) -> bytes:
            nonlocal changed
            broken = fault.planted(ptx)
            changed += broken != ptx
            return assemble(broken, architecture)

        given = arguments()
        monkeypatch.setattr(driver, "assemble", tampered)
        step = aj.jit(function, **options)
        for _ in range(2):
            step(*given)
        aj.cuda.synchronize()
    return changed


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_told_with_the_users_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = FAULTS[name]
    if fault.is_apart:
        monkeypatch.setenv("AUTOJIT_CUDA", "apart")
    with pytest.raises(EmulatedFault) as caught:
        assert run_with(fault, monkeypatch) == -1, "the fault is not found"
    told = caught.value
    assert told.kind in fault.kinds
    assert told.kernel == "kernel" and told.instruction
    assert Path(__file__).name in str(told) and "  in  " in str(told)


def test_a_wrong_distance_of_a_shuffle_gives_numbers_that_verify_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    fault = Fault("softmax", r"(shfl\.sync\.bfly\.b32[^;]*), 16, ", r"\1, 8, ", (), None)
    with pytest.raises(TraceError, match="value differs from eager mode"):
        assert run_with(fault, monkeypatch, verify="first") == -1, "the fault is not found"


def test_the_programs_themselves_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROGRAMS:
        assert run_with(Fault(name, r"\Znothing", "", ()), monkeypatch) == 0


@pytest.mark.parametrize("missing", [1, 2])
def test_a_missing_edge_of_a_graph_is_told(missing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Edges of kernels that read what another of the graph writes; of one launch for all: `test_joined_runs`."""
    monkeypatch.setenv("AUTOJIT_CUDA", "apart")

    def step(x: Any, w: Any) -> Any:
        for _ in range(3):
            x = aj.relu(x @ w)
        return x

    with emulated_cuda(driver=fresh_driver()) as driver:
        make_graph = driver.make_graph

        def without_edges(nodes: Sequence[GraphNode]) -> Graph:
            last = len(nodes) - missing
            return make_graph([dataclasses.replace(n, after=()) if k == last else n for k, n in enumerate(nodes)])

        monkeypatch.setattr(driver, "make_graph", without_edges)
        x, w = data(8, 16, grad=False), data(16, 16, grad=False)
        with pytest.raises(EmulatedFault) as caught:
            compiled = aj.jit(step)
            for _ in range(4):
                compiled(x, w)
            aj.cuda.synchronize()
    assert caught.value.kind in ("missing edge", "uninitialised read")


def test_a_read_before_the_wait_of_what_the_launch_in_front_writes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if everything were settled, whoever writes it."""

    def all_settled(order: object, number: int, accesses: Iterable[object]) -> list[bool]:
        return [True for _ in accesses]

    @aj.jit
    def two(x: Any) -> Any:
        return (x @ x) @ x

    with emulated_cuda():
        x = data(16, 16, grad=False)
        monkeypatch.setattr(Order, "settled", all_settled)
        with pytest.raises(EmulatedFault, match=r"early start: node \d+ .* reads before it waits"):
            for _ in range(3):
                two(x)
